//! The engine's work as metrics. In: what the engine tells. Out: counts under the names that dashboards know.

use std::sync::Arc;
use std::time::{Duration, Instant};

use konverge_runtime::{Meter, Verdict, WorkerMeter};

use crate::metrics::{ControllerMetrics, Metrics, Outcome, WorkerMetrics};
use crate::probes::HealthCheck;

/// One controller's metrics, and its readiness if somebody asks for that.
#[derive(Debug)]
pub(crate) struct ControllerMeter {
    pub metrics: ControllerMetrics,
    pub ready: Option<HealthCheck>,
}

impl Metrics {
    /// Counts the work of a controller of the engine under this name: for controllers that are not made by
    /// [`Operator`](crate::Operator).
    pub fn meter(&self, name: &str) -> Arc<dyn Meter> {
        Arc::new(ControllerMeter { metrics: self.controller(name), ready: None })
    }
}

struct OneWorker {
    metrics: ControllerMetrics,
    worker: WorkerMetrics,
}

impl Meter for ControllerMeter {
    fn ready(&self) {
        if let Some(ready) = &self.ready {
            ready.pass();
        }
    }

    fn queued(&self) {
        self.metrics.queued();
    }

    fn retried(&self) {
        self.metrics.retried();
    }

    fn worker(&self) -> Box<dyn WorkerMeter> {
        Box::new(OneWorker { metrics: self.metrics.clone(), worker: self.metrics.worker() })
    }
}

impl WorkerMeter for OneWorker {
    fn began(&mut self, waited: Duration) {
        self.metrics.dequeued(waited);
        self.worker.busy(Instant::now());
    }

    fn ended(&mut self, verdict: &Verdict, took: Duration) {
        self.worker.idle();
        let outcome = match verdict {
            Verdict::Success => Outcome::Success,
            Verdict::Requeued => Outcome::RequeueAfter,
            Verdict::Failed { retried: true, .. } => Outcome::Error,
            Verdict::Failed { retried: false, .. } => Outcome::TerminalError,
            Verdict::TimedOut => Outcome::Timeout,
            Verdict::Panicked { .. } => Outcome::Panic,
        };
        self.metrics.reconciled(outcome, took);
    }
}
