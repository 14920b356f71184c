//! Counts the engine's work. In: calls of the engine. Out: metrics of the controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use konverge_runtime::{Meter, QueueStats, RequestMeter, Verdict, WorkerMeter};

use crate::metrics::{ControllerMetrics, Metrics, ReconcileResult, WorkerMetrics};

/// One controller's metrics, and whether it is ready.
#[derive(Debug)]
pub(crate) struct ControllerMeter {
    pub metrics: ControllerMetrics,
    /// Set when the caches are filled and reconciles begin.
    pub ready: Arc<AtomicBool>,
}

/// Counts the work of a controller of the engine under this name. For the control plane of `konverge dev`, whose controllers
/// are not made with [`Controller`](crate::Controller).
pub fn controller_meter(metrics: &Metrics, name: &str) -> Arc<dyn Meter> {
    Arc::new(ControllerMeter { metrics: metrics.controller(name), ready: Arc::default() })
}

impl Metrics {
    /// Counts the requests of a client as `rest_client_requests_total` and `rest_client_request_duration_seconds`, for
    /// [`ClientLayers::meter`](crate::ClientLayers::meter). `host` is the API server as the label shows it: `10.0.0.1:443`.
    pub fn request_meter(&self, host: &str) -> Arc<dyn RequestMeter> {
        Arc::new(HostMeter { metrics: self.clone(), host: host.to_owned() })
    }
}

/// The requests to one API server.
struct HostMeter {
    metrics: Metrics,
    host: String,
}

impl RequestMeter for HostMeter {
    fn requested(&self, method: &http::Method, code: Option<u16>, took: Duration) {
        self.metrics.requested(method, &self.host, code, took);
    }
}

struct OneWorker {
    metrics: ControllerMetrics,
    worker: WorkerMetrics,
}

impl Meter for ControllerMeter {
    fn ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    fn queue(&self, stats: Box<dyn Fn() -> Option<QueueStats> + Send + Sync>) {
        self.metrics.queue_from(stats);
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
        if let Verdict::GaveUp { .. } = verdict {
            self.metrics.gave_up();
        }
        // A reconcile that was cut off because the process stops has neither succeeded nor failed.
        if let Some(outcome) = outcome(verdict) {
            self.metrics.reconciled(outcome, took);
        }
    }
}

fn outcome(verdict: &Verdict) -> Option<ReconcileResult> {
    Some(match verdict {
        Verdict::Success => ReconcileResult::Success,
        Verdict::Requeued => ReconcileResult::RequeueAfter,
        Verdict::Failed { retried: true, .. } => ReconcileResult::Error,
        Verdict::Failed { retried: false, .. } => ReconcileResult::TerminalError,
        Verdict::TimedOut => ReconcileResult::Timeout,
        Verdict::Panicked { .. } => ReconcileResult::Panic,
        Verdict::GaveUp { last, .. } => return outcome(last),
        // A verdict that is added later is not counted until somebody chooses its result here.
        Verdict::Cut | _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_of_a_reconcile_has_its_count() {
        let failed = |retried| Verdict::Failed { reason: "Failed".into(), message: "no".into(), retried };
        let gave_up = |last| Verdict::GaveUp { attempts: 4, last: Box::new(last) };
        let panicked = || Verdict::Panicked { message: "no".into() };
        for (verdict, expect) in [
            (Verdict::Success, Some(ReconcileResult::Success)),
            (Verdict::Requeued, Some(ReconcileResult::RequeueAfter)),
            (failed(true), Some(ReconcileResult::Error)),
            (failed(false), Some(ReconcileResult::TerminalError)),
            (Verdict::TimedOut, Some(ReconcileResult::Timeout)),
            (panicked(), Some(ReconcileResult::Panic)),
            (gave_up(failed(false)), Some(ReconcileResult::TerminalError)),
            (gave_up(Verdict::TimedOut), Some(ReconcileResult::Timeout)),
            (gave_up(panicked()), Some(ReconcileResult::Panic)),
            // Neither an error nor a timeout: an update of the operator must not cause an alert.
            (Verdict::Cut, None),
        ] {
            assert_eq!(outcome(&verdict), expect, "{verdict:?}");
        }
    }
}
