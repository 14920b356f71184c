//! What a user writes, and what it is given and answers with. In: an object that is due. Out: what comes next, or an error.
//! Plain types; the worker carries them out.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use konverge_core::ObjectKey;

use crate::error::Error;
use crate::retry;
use crate::trigger::Cause;

/// A boxed future that may move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a reconcile asks for when all went well.
///
/// ```
/// use konverge_runtime::Action;
/// use std::time::Duration;
/// assert_eq!(Action::requeue(Duration::from_secs(5)), Action::Requeue(Duration::from_secs(5)));
/// assert_eq!(Action::await_change(), Action::Wait);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Nothing until something changes.
    #[default]
    Wait,
    /// Another reconcile after this long, or earlier if something changes.
    Requeue(Duration),
}

impl Action {
    /// Another reconcile after this long, or earlier if something changes.
    pub fn requeue(after: Duration) -> Self {
        Self::Requeue(after)
    }

    /// Nothing until something changes.
    pub fn await_change() -> Self {
        Self::Wait
    }
}

/// One reconcile that is due.
#[derive(Clone, Debug)]
pub struct Run {
    /// Of which object.
    pub key: ObjectKey,
    /// Why: the newest causes, oldest first.
    pub causes: Arc<[Arc<Cause>]>,
    /// 1, and one more for each run in a row before it that did not end well.
    pub attempt: u32,
    /// Whether no retry follows if this one fails: `max_retries` are used up. The object then waits for a change. Outages and
    /// conflicts use up no retries.
    pub is_last: bool,
}

impl Run {
    /// Whether an error that usually passes by itself (another writer was faster, the server failed) has been in the way
    /// for so long that it does not pass.
    pub fn is_persistent(&self) -> bool {
        retry::is_persistent(self.attempt)
    }
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
#[non_exhaustive]
pub enum Verdict {
    /// It succeeded. The object is reconciled again when something changes.
    Success,
    /// It succeeded and asked to be reconciled again after a while.
    Requeued,
    /// It failed.
    Failed {
        /// One word.
        reason: String,
        /// What went wrong.
        message: String,
        /// Whether it is tried again without a change.
        retried: bool,
    },
    /// It took longer than it may.
    TimedOut,
    /// It panicked.
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// It failed once more than `max_retries` allow, so that it is not tried again until something changes.
    GaveUp {
        /// How many runs in a row did not end well.
        attempts: u32,
        /// How the last of them ended: [`Verdict::Failed`], [`Verdict::TimedOut`] or [`Verdict::Panicked`].
        last: Box<Verdict>,
    },
    /// It was cut off because the controller shuts down, or because this instance does not lead any more. That is no failure of its
    /// own: the next leader runs it again.
    Cut,
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
