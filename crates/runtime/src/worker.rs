//! From a due key to what comes next. In: jobs of the queue. Out: a reconcile's verdict, handed back to the queue. Here is
//! the boundary around user code: a panic, a hang or an error ends one reconcile, never the worker or another key.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use konverge_core::ObjectKey;
use tracing::Instrument;

use crate::error::{Error, Retry, retry};
use crate::history::{History, Record};
use crate::queue::{Causes, Job, Outcome, Queue, Settled};
use crate::trigger::Cause;

/// What a reconcile asks for when all went well.
///
/// ```
/// use konverge_runtime::Action;
/// use std::time::Duration;
/// assert_eq!(Action::requeue(Duration::from_secs(5)), Action::Requeue(Duration::from_secs(5)));
/// assert_eq!(Action::await_change(), Action::Wait);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Nothing until something changes.
    #[default]
    Wait,
    /// Another look after this long, or earlier if something changes.
    Requeue(Duration),
}

impl Action {
    /// Another look after this long, or earlier if something changes.
    pub fn requeue(after: Duration) -> Self {
        Self::Requeue(after)
    }

    /// Nothing until something changes.
    pub fn await_change() -> Self {
        Self::Wait
    }
}

/// A boxed future that may move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One reconcile that is due.
#[derive(Clone, Debug)]
pub struct Run {
    /// Of which object.
    pub key: ObjectKey,
    /// Why: the newest causes, oldest first.
    pub causes: Vec<Arc<Cause>>,
    /// How many failures in a row came before.
    pub attempt: u32,
}

/// What is done for an object: the function a user writes, and what surrounds it.
pub trait Reconciler: Send + Sync + 'static {
    /// Brings the world closer to what the object asks for.
    fn reconcile(&self, run: Run) -> BoxFuture<Result<Action, Error>>;
}

impl<F> Reconciler for F
where
    F: Fn(Run) -> BoxFuture<Result<Action, Error>> + Send + Sync + 'static,
{
    fn reconcile(&self, run: Run) -> BoxFuture<Result<Action, Error>> {
        self(run)
    }
}

/// How a reconcile ended, for metrics and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done, nothing more to do for now.
    Success,
    /// Done, and to be looked at again.
    Requeued,
    /// It failed, with what is to be done about it.
    Failed {
        /// One word.
        reason: &'static str,
        /// What went wrong.
        message: String,
        /// Whether it is tried again.
        retried: bool,
    },
    /// It took longer than it may.
    TimedOut,
    /// It panicked.
    Panicked {
        /// What the panic said.
        message: String,
    },
}

/// Who is told about the work; every method may be left as it is.
pub trait Meter: Send + Sync + 'static {
    /// The caches are filled and the workers begin.
    fn ready(&self) {}
    /// A key got into the queue.
    fn queued(&self) {}
    /// A key that failed waits for another try.
    fn retried(&self) {}
    /// A worker comes to life.
    fn worker(&self) -> Box<dyn WorkerMeter> {
        Box::new(())
    }
}

/// Who is told about one worker.
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

/// Works until the queue is closed and empty.
pub(crate) async fn work(
    name: Arc<str>,
    queue: Queue<Arc<Cause>>,
    reconciler: Arc<dyn Reconciler>,
    timeout: Option<Duration>,
    meter: Arc<dyn Meter>,
    history: Arc<History>,
) {
    let mut worker = meter.worker();
    while let Some(job) = queue.next().await {
        worker.began(job.waited());
        let began = Instant::now();
        let (verdict, outcome) = one(&name, &job, &*reconciler, timeout).await;
        let took = began.elapsed();
        worker.ended(&verdict, took);
        history.record(job.key(), Record { causes: owned(job.causes()), took, verdict });
        if let Settled::Waits { failures: 1.., .. } = job.finish(outcome) {
            meter.retried();
        }
    }
}

/// One reconcile, whatever becomes of it.
async fn one(
    name: &str,
    job: &Job<Arc<Cause>>,
    reconciler: &dyn Reconciler,
    timeout: Option<Duration>,
) -> (Verdict, Outcome) {
    let key = job.key();
    let run = Run { key: key.clone(), causes: owned(job.causes()), attempt: job.attempt() };
    let why = run.causes.last().map(|cause| cause.to_string()).unwrap_or_default();
    let span = tracing::info_span!("reconcile", controller = name, %key, attempt = run.attempt, cause = why);
    // The future is made inside, so that a panic while it is made is caught as well.
    let reconcile = AssertUnwindSafe(async { reconciler.reconcile(run).await }).catch_unwind();
    let limited = async {
        match timeout {
            Some(timeout) => tokio::time::timeout(timeout, reconcile).await.map_err(|_| timeout),
            None => Ok(reconcile.await),
        }
    };
    let ended = limited.instrument(span.clone()).await;
    let _inside = span.enter();
    match ended {
        Ok(Ok(Ok(Action::Wait))) => {
            tracing::debug!("reconciled");
            (Verdict::Success, Outcome::Done)
        }
        Ok(Ok(Ok(Action::Requeue(after)))) => {
            tracing::debug!(?after, "reconciled");
            (Verdict::Requeued, Outcome::Again(after))
        }
        Ok(Ok(Err(error))) => {
            let outcome = policy(&error);
            let retried = !matches!(outcome, Outcome::GaveUp);
            tracing::warn!(reason = error.reason(), %error, retried, "the reconcile failed");
            (Verdict::Failed { reason: error.reason(), message: error.to_string(), retried }, outcome)
        }
        Ok(Err(panic)) => {
            let message = panicked(&*panic);
            tracing::error!(message, "the reconcile panicked");
            (Verdict::Panicked { message }, Outcome::Failed)
        }
        Err(after) => {
            tracing::warn!(?after, "the reconcile took too long");
            (Verdict::TimedOut, Outcome::Failed)
        }
    }
}

/// What the queue does about an error.
fn policy(error: &Error) -> Outcome {
    match retry(error) {
        Retry::Backoff | Retry::Fresh => Outcome::Failed,
        Retry::After(pause) => Outcome::Hold(pause),
        Retry::UntilChanged => Outcome::GaveUp,
        // Whoever leads now looks at every object anyway.
        Retry::Stop => Outcome::Done,
    }
}

fn owned(causes: &Causes<Arc<Cause>>) -> Vec<Arc<Cause>> {
    causes.iter().cloned().collect()
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
