//! One reconcile: the boundary around user code. In: a job of the queue. Out: how the reconcile ended, and what the queue
//! does with its key. A panic, a hang or an error ends one reconcile, never the worker or another key.
//!
//! Most reconciles find nothing to do and never wait, so a reconcile is begun on the worker's own task; one that waits goes
//! on on a task of its own, where a timeout can end it. All user code is called where a panic is caught: the function, the
//! drop of what it left behind, the `Display` of its error.
//!
//! A reconcile that blocks its thread holds up nobody else. Tokio keeps the task that was woken last to itself until the
//! task that woke it gives the thread back; every other one can be taken over by another thread. So a reconcile is begun as
//! the first thing in a turn of its worker: if the worker woke somebody in this turn (another worker for the next key, or
//! a task that the last reconcile woke), it yields the thread first. The job knows, see [`Job::is_first`].

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use konverge_core::ObjectKey;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::{Worker, is_cut};
use crate::error::{Error, TimedOut};
use crate::failure_log::FailureLog;
use crate::ownership::Claim;
use crate::queue::{Job, Requeue};
use crate::reconciler::{Action, BoxFuture, Reconciler, Run, Verdict, panic_message};
use crate::retry::retry;
use crate::trigger::Cause;

/// A job of a controller's queue.
pub(super) type DueJob<'a> = Job<'a, Arc<Cause>>;

/// How a reconcile ended, and what the queue does with its key.
type Ended = (Verdict, Requeue);

impl Worker {
    /// One reconcile, however it ends.
    pub(super) async fn attempt(&mut self, job: &DueJob<'_>, causes: Arc<[Arc<Cause>]>, claim: Claim) -> Ended {
        let (key, attempt) = (job.key(), job.attempt());
        // The cause is formatted only if somebody listens to this level.
        let cause = causes.last().map(tracing::field::display);
        let span = tracing::info_span!("reconcile", controller = &*self.controller, %key, attempt, cause);
        let (controller, failures) = (self.controller.clone(), self.failures.clone());
        let id = ReconcileId { controller, key: key.clone(), attempt, span, failures };
        if !job.is_first() {
            yield_thread().await;
        }
        let mut run = Some(Run { key: key.clone(), causes, attempt, is_last: job.is_last() });
        let begun =
            poll_fn(|cx| Poll::Ready(run.take().map(|run| begin(&*self.reconciler, run, &id, &claim, cx)))).await;
        match begun.expect("it is polled once, because it is ready then") {
            Ok(Begun::Ended(ended)) => ended,
            Ok(Begun::Waits(rest)) => {
                let (it, span) = (id.clone(), id.span.clone());
                let rest = async move { judged(rest.await, &it) };
                let rest = tokio::spawn(claim.leadership.scope(claim.term.clone(), rest).instrument(span));
                Running { rest, id }.ended(job, self.timeout, &mut self.cut, claim.over()).await
            }
            Err(panic) => after_panic(&id, &*panic),
        }
    }
}

/// Which reconcile it is.
#[derive(Clone)]
struct ReconcileId {
    controller: Arc<str>,
    key: ObjectKey,
    attempt: u32,
    /// Shown with every line, if lines of its level are.
    span: Span,
    failures: Arc<FailureLog>,
}

impl ReconcileId {
    /// Writes a line about a reconcile that went wrong. Where the span is not shown, because only warnings are, the line
    /// names the controller and the object all the same.
    fn log(&self, line: impl FnOnce()) {
        match self.span.is_disabled() {
            true => tracing::error_span!("reconcile", controller = &*self.controller, key = %self.key).in_scope(line),
            false => self.span.in_scope(line),
        }
    }
}

/// How far a reconcile has come when it first returned.
enum Begun {
    Ended(Ended),
    Waits(BoxFuture<Result<Action, Error>>),
}

/// The first part of a reconcile, which is all of it if it never waits; or what it panicked with.
fn begin(
    reconciler: &dyn Reconciler,
    run: Run,
    id: &ReconcileId,
    claim: &Claim,
    cx: &mut Context<'_>,
) -> Result<Begun, Box<dyn Any + Send>> {
    // Whatever a panic leaves half done was the reconcile's own, and goes with it.
    catch_unwind(AssertUnwindSafe(|| {
        id.span.in_scope(|| {
            let mut rest = reconciler.reconcile(run);
            match claim.leadership.sync_scope(claim.term.clone(), || rest.as_mut().poll(cx)) {
                Poll::Ready(result) => {
                    drop(rest);
                    Begun::Ended(judged(result, id))
                }
                Poll::Pending => Begun::Waits(rest),
            }
        })
    }))
}

/// Gives the thread to other tasks that are ready, once.
async fn yield_thread() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The rest of a reconcile on its task, which does not outlive this.
struct Running {
    rest: JoinHandle<Ended>,
    id: ReconcileId,
}

impl Running {
    /// Waits for its end. If it takes too long or is cut, it ends at its next await.
    async fn ended(
        mut self,
        job: &DueJob<'_>,
        timeout: Option<Duration>,
        cut: &mut watch::Receiver<bool>,
        over: impl Future<Output = ()>,
    ) -> Ended {
        // Timed from when the job was handed out: that clock was read already.
        let until = timeout.and_then(|timeout| Instant::from_std(job.started()).checked_add(timeout));
        let late = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A reconcile that has ended counts as ended, also if it is late.
            biased;
            ended = &mut self.rest => return self.settled(ended, Verdict::Cut),
            () = late => self.id.log(|| {
                let seconds = timeout.unwrap_or_default().as_secs_f64();
                tracing::warn!(timeout_seconds = seconds, "the reconcile took too long");
            }),
            () = is_cut(cut) => return self.aborted(Verdict::Cut).await,
            () = over => return self.aborted(Verdict::Cut).await,
        }
        self.aborted(Verdict::TimedOut).await
    }

    /// Ends it, and waits until it has ended: a key whose reconcile blocks its thread is not handed out again.
    async fn aborted(mut self, why: Verdict) -> Ended {
        self.rest.abort();
        let ended = (&mut self.rest).await;
        self.settled(ended, why)
    }

    /// How it ended; `cancelled` is what to call it if it did not come to its end.
    fn settled(&self, ended: Result<Ended, JoinError>, cancelled: Verdict) -> Ended {
        match ended.map_err(JoinError::try_into_panic) {
            Ok(ended) => ended,
            Err(Ok(panic)) => after_panic(&self.id, &*panic),
            // The next term begins with it. A queue that is shut down forgets it.
            Err(Err(_)) if cancelled == Verdict::Cut => (cancelled, Requeue::After(Duration::ZERO)),
            Err(Err(_)) => (cancelled, Requeue::RateLimited),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.rest.abort();
    }
}

fn after_panic(id: &ReconcileId, panic: &(dyn Any + Send)) -> Ended {
    let message = panic_message(panic);
    id.log(|| tracing::error!(message, "the reconcile panicked"));
    (Verdict::Panicked { message }, Requeue::RateLimited)
}

/// The result of a reconcile, as the queue and people read it.
fn judged(result: Result<Action, Error>, id: &ReconcileId) -> Ended {
    let error = match result {
        Ok(Action::Wait) => {
            tracing::debug!("reconciled");
            return (Verdict::Success, Requeue::Forget);
        }
        Ok(Action::Requeue(after)) => {
            tracing::debug!(?after, "reconciled");
            return (Verdict::Requeued, Requeue::After(after));
        }
        Err(error) => error,
    };
    let (retry, reason, message) = (retry(&error), error.get_reason(), format!("{error:#}"));
    let retried = retry.is_retried();
    if retry.is_expected(id.attempt) {
        tracing::debug!(%error, "another writer was faster; the reconcile starts over");
    } else {
        match id.failures.admit(reason, Instant::now()) {
            Some(left_out) => {
                let left_out = (left_out > 0).then_some(left_out);
                id.log(|| tracing::warn!(reason, "error" = message, retried, left_out, "the reconcile failed"));
            }
            None => tracing::debug!(reason, "error" = message, retried, "the reconcile failed"),
        }
    }
    let verdict = match error.find::<TimedOut>() {
        Some(_) => Verdict::TimedOut,
        None => Verdict::Failed { reason: reason.to_owned(), message, retried },
    };
    (verdict, retry.requeue())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::captured_log::CapturedLog;

    fn nobody() -> ReconcileId {
        let (controller, key) = ("c".into(), ObjectKey::new(Some("a"), "b"));
        ReconcileId { controller, key, attempt: 1, span: Span::none(), failures: failures() }
    }

    fn failures() -> Arc<FailureLog> {
        Arc::new(FailureLog::new(Instant::now()))
    }

    #[test]
    fn a_warning_names_its_controller_and_its_object_where_only_warnings_are_shown() {
        let log = CapturedLog::at(Level::WARN);
        tracing::subscriber::with_default(log.clone(), || {
            let span = tracing::info_span!("reconcile");
            let (controller, key) = ("disruption-controller".into(), ObjectKey::new(Some("shop"), "web"));
            let id = ReconcileId { controller, key, attempt: 1, span, failures: failures() };
            judged(Err(Error::new("no luck")), &id);
        });
        let text = log.lines().concat();
        for expect in ["disruption-controller", "shop/web", "no luck"] {
            assert!(text.contains(expect), "{expect} is not in {text}");
        }
    }

    #[test]
    fn a_writer_that_is_always_faster_is_warned_of() {
        for (attempt, expect) in [(1, false), (4, false), (5, true), (6, true)] {
            let log = CapturedLog::at(Level::WARN);
            tracing::subscriber::with_default(log.clone(), || {
                let conflict = crate::WriteError::Conflict { message: "too late".into(), fields: Vec::new() };
                judged(Err(conflict.into()), &ReconcileId { attempt, ..nobody() });
            });
            assert_eq!(log.lines().concat().contains("too late"), expect, "attempt {attempt}");
        }
    }

    #[test]
    fn what_a_reconcile_answers_is_what_the_queue_does() {
        let second = Duration::from_secs(1);
        for (result, expect) in [
            (Ok(Action::Wait), Requeue::Forget),
            (Ok(Action::requeue(second)), Requeue::After(second)),
            (Ok(Action::requeue(Duration::ZERO)), Requeue::After(Duration::ZERO)),
            (Err(Error::new("no")), Requeue::RateLimited),
        ] {
            let text = format!("{result:?}");
            assert_eq!(judged(result, &nobody()).1, expect, "{text}");
        }
    }

    #[test]
    fn people_see_what_is_behind_an_error() {
        #[derive(Debug, thiserror::Error)]
        #[error("the backup failed")]
        struct Failed(#[source] std::io::Error);
        let error = Failed(std::io::Error::other("the disk is full"));
        let (verdict, _) = judged(Err(Error::from(error)), &nobody());
        let Verdict::Failed { message, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!(message, "the backup failed: the disk is full");
    }
}
