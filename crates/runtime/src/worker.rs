//! From a due key to what comes next. In: jobs of the queue. Out: reconciles, and what the queue does with their keys. The
//! loop is here; `worker/attempt.rs` is one reconcile, with the boundary around user code.

mod attempt;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::failure_log::FailureLog;
use crate::history::{History, ReconcileRecord};
use crate::liveness::Liveness;
use crate::meter::Meter;
use crate::ownership::Ownership;
use crate::queue::{Queue, Requeue};
use crate::reconciler::{Reconciler, Verdict};
use crate::trigger::Cause;

/// What a worker works with.
#[derive(Clone)]
pub(crate) struct Worker {
    pub controller: Arc<str>,
    pub queue: Queue<Arc<Cause>>,
    pub reconciler: Arc<dyn Reconciler>,
    pub timeout: Option<Duration>,
    /// Which objects are reconciled, and in which term.
    pub ownership: Ownership,
    /// What runs when this becomes true is cut off at its next await, and nothing new begins.
    pub cut: watch::Receiver<bool>,
    pub meter: Arc<dyn Meter>,
    pub history: Arc<History>,
    pub liveness: Arc<Liveness>,
    /// Shared by the workers of a controller.
    pub failures: Arc<FailureLog>,
}

impl Worker {
    /// Works until the queue is shut down and empty, or until it is cut off. A panic outside of user code ends the worker: its key has
    /// then failed, and the controller starts another worker.
    pub(crate) async fn work(mut self) {
        let (queue, mut meter) = (self.queue.clone(), self.meter.worker());
        let mut next = None;
        loop {
            let job = match next.take() {
                Some(job) => Some(job),
                None => tokio::select! {
                    biased;
                    () = is_cut(&mut self.cut) => None,
                    job = queue.get() => job,
                },
            };
            let Some(mut job) = job else { return };
            if *self.cut.borrow() {
                // It was handed out and not begun: the next term begins with it.
                job.done(Requeue::After(Duration::ZERO));
                return;
            }
            let Some(claim) = self.ownership.claim(job.key()) else {
                // Another instance reconciles it; whoever takes its shard begins with all objects.
                job.done(Requeue::Forget);
                continue;
            };
            meter.began(job.waited());
            let causes: Arc<[Arc<Cause>]> = job.take_causes().into_all().collect();
            let (mut verdict, requeue) = self.attempt(&job, causes.clone(), claim).await;
            if requeue == Requeue::RateLimited && job.is_last() {
                verdict = self.gave_up(verdict, &job);
            }
            let now = Instant::now().into_std();
            let took = now.saturating_duration_since(job.started());
            meter.ended(&verdict, took);
            self.history.record(job.key(), ReconcileRecord { causes, took, verdict }, now);
            (_, next) = job.done_and_get(requeue, now);
            self.liveness.worked();
        }
    }

    /// The verdict on a key whose retries are used up.
    fn gave_up(&self, mut last: Verdict, job: &attempt::DueJob<'_>) -> Verdict {
        let attempts = job.attempt();
        tracing::error!(
            controller = &*self.controller,
            key = %job.key(),
            attempts,
            "all retries are used up; waiting until something changes"
        );
        if let Verdict::Failed { retried, .. } = &mut last {
            *retried = false;
        }
        Verdict::GaveUp { attempts, last: Box::new(last) }
    }
}

/// Waits until reconciles are cut off. Without a sender nothing is: the controller was dropped, and its workers with it.
async fn is_cut(cut: &mut watch::Receiver<bool>) {
    if cut.wait_for(|cut| *cut).await.is_err() {
        std::future::pending::<()>().await;
    }
}
