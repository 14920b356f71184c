//! Hooks for metrics and readiness. In: what a controller and its workers do. Out: calls of the hooks, each of which does
//! nothing by default. Requests have a hook of their own: [`RequestMeter`](crate::RequestMeter).

use std::time::Duration;

use crate::queue::QueueStats;
use crate::reconciler::Verdict;

/// Told about the work of one controller.
pub trait Meter: Send + Sync + 'static {
    /// The caches are filled and the workers begin.
    fn ready(&self) {}
    /// The controller's queue: `stats` tells how it is doing whenever it is asked, and nothing once the controller is gone.
    fn queue(&self, _stats: Box<dyn Fn() -> Option<QueueStats> + Send + Sync>) {}
    /// A worker starts.
    fn worker(&self) -> Box<dyn WorkerMeter> {
        Box::new(())
    }
}

/// Told about one worker.
pub trait WorkerMeter: Send {
    /// A reconcile begins, after its key waited this long.
    fn began(&mut self, _waited: Duration) {}
    /// It ended after this long.
    fn ended(&mut self, _verdict: &Verdict, _took: Duration) {}
}

/// Tells nobody.
impl Meter for () {}

/// Tells nobody.
impl WorkerMeter for () {}
