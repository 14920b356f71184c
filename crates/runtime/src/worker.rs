//! From a due key to what comes next. In: jobs of the queue. Out: a reconcile's verdict, handed back to the queue. Here is
//! the boundary around user code: a panic, a hang or an error ends one reconcile, never the worker or another key.
//!
//! Most reconciles find nothing to do and never wait, so a reconcile is begun on the worker's own task; one that waits goes
//! on on a task of its own, where a timeout can end it. All of user code is held where it runs, and what it panics with
//! ends there: the function, the drop of what it left behind, the words of its error.
//!
//! A reconcile that blocks its thread holds up nobody else. Tokio keeps the task that was woken last to itself until the
//! task that woke it lets go of the thread; every other one can be taken over by another thread. So a reconcile is begun as
//! the first thing in a turn of its worker: if the worker woke somebody in this turn (another worker for the next key, or
//! whomever the last reconcile woke), it lets go of the thread first. The job tells, see [`Job::is_first`].

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use konverge_core::ObjectKey;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::error::{Error, Retry, TimedOut, retry};
use crate::history::{History, Record};
use crate::liveness::Liveness;
use crate::queue::{Job, Outcome, Queue, QueueStats, Settled};
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

/// The shortest time after which a failure is looked at again: too short to be noticed, and little work for a machine.
const SOONEST: Duration = Duration::from_millis(10);

/// A boxed future that may move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

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
    /// From this attempt on, an error that usually passes by itself (another writer was faster, the server failed) is one
    /// that lasts. With the usual backoff that is seven seconds after the first.
    const LASTS_FROM: u32 = 5;

    /// Whether an error that usually passes by itself has been in the way for so long that it does not.
    pub fn lasts(&self) -> bool {
        self.attempt >= Self::LASTS_FROM
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
pub enum Verdict {
    /// Done, nothing more to do for now.
    Success,
    /// Done, and to be looked at again.
    Requeued,
    /// It failed, with what is to be done about it.
    Failed {
        /// One word.
        reason: String,
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
    /// It failed once more than `max_retries` allow, so that it is not tried again until something changes.
    GaveUp {
        /// How many runs in a row did not end well.
        attempts: u32,
        /// How the last of them ended: [`Verdict::Failed`], [`Verdict::TimedOut`] or [`Verdict::Panicked`].
        last: Box<Verdict>,
    },
    /// It was cut off because the controller stops. That is no failure of its own: it is run again by whoever starts next.
    Cut,
}

/// Who is told about the work; every method may be left as it is.
pub trait Meter: Send + Sync + 'static {
    /// The caches are filled and the workers begin.
    fn ready(&self) {}
    /// The controller's queue: `stats` tells how it is doing whenever it is asked, and nothing once the controller is gone.
    fn queue(&self, _stats: Box<dyn Fn() -> Option<QueueStats> + Send + Sync>) {}
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

/// What a worker works with.
#[derive(Clone)]
pub(crate) struct Worker {
    pub name: Arc<str>,
    pub queue: Queue<Arc<Cause>>,
    pub reconciler: Arc<dyn Reconciler>,
    pub timeout: Option<Duration>,
    /// What runs when this becomes true is cut off at its next await.
    pub cut: watch::Receiver<bool>,
    pub meter: Arc<dyn Meter>,
    pub history: Arc<History>,
    pub liveness: Arc<Liveness>,
}

impl Worker {
    /// Works until the queue is closed and empty. A panic outside of user code ends the worker: its key has then failed,
    /// and whoever started the worker starts another.
    pub async fn work(mut self) {
        let mut worker = self.meter.worker();
        let mut ready = None;
        loop {
            let next = match ready.take() {
                Some(job) => Some(job),
                None => self.queue.next().await,
            };
            let Some(mut job) = next else { return };
            worker.began(job.waited());
            let causes: Arc<[Arc<Cause>]> = job.take_causes().into_all().collect();
            let reconcile = one(&self.name, &job, causes.clone(), &*self.reconciler, self.timeout, &mut self.cut);
            let (mut verdict, outcome) = reconcile.await;
            if outcome == Outcome::Failed && job.is_last() {
                let attempts = job.attempt();
                tracing::error!(
                    controller = &*self.name,
                    key = %job.key(),
                    attempts,
                    "all retries are used up; waiting until something changes"
                );
                if let Verdict::Failed { retried, .. } = &mut verdict {
                    *retried = false;
                }
                verdict = Verdict::GaveUp { attempts, last: Box::new(verdict) };
            }
            let now = Instant::now().into_std();
            let took = now.saturating_duration_since(job.started());
            worker.ended(&verdict, took);
            self.history.record(job.key(), Record { causes, took, verdict }, now);
            let (settled, next) = job.exchange(outcome, now);
            if let Settled::Waits { failures: 1.., .. } = settled {
                self.meter.retried();
            }
            ready = next;
            self.liveness.worked();
        }
    }
}

/// One reconcile, whatever becomes of it.
async fn one(
    name: &Arc<str>,
    job: &Job<'_, Arc<Cause>>,
    causes: Arc<[Arc<Cause>]>,
    reconciler: &dyn Reconciler,
    timeout: Option<Duration>,
    cut: &mut watch::Receiver<bool>,
) -> (Verdict, Outcome) {
    let (key, attempt) = (job.key(), job.attempt());
    // Only who listens pays for the words.
    let why = causes.last().map(tracing::field::display);
    let span = tracing::info_span!("reconcile", controller = &**name, %key, attempt, cause = why);
    let who = Who { name: name.clone(), key: key.clone(), attempt, span };
    if !job.is_first() {
        let_go().await;
    }
    let mut run = Some(Run { key: key.clone(), causes, attempt, is_last: job.is_last() });
    let begun = poll_fn(|cx| Poll::Ready(run.take().map(|run| begin(reconciler, run, &who, cx)))).await;
    match begun.expect("it is polled once, because it is ready then") {
        Ok(Begun::Ended(ended)) => ended,
        Ok(Begun::Waits(rest)) => {
            let (it, span) = (who.clone(), who.span.clone());
            let rest = tokio::spawn(async move { judged(rest.await, &it) }.instrument(span));
            Running { rest, who }.ended(job, timeout, cut).await
        }
        Err(panic) => after_panic(&who, &*panic),
    }
}

/// Which reconcile it is.
#[derive(Clone)]
struct Who {
    name: Arc<str>,
    key: ObjectKey,
    attempt: u32,
    /// Shown with every line, if lines of its level are.
    span: Span,
}

impl Who {
    /// Writes a line about a reconcile that went wrong. Where the span is not shown, because only warnings are, the line
    /// names the controller and the object all the same.
    fn tell(&self, line: impl FnOnce()) {
        match self.span.is_disabled() {
            true => tracing::error_span!("reconcile", controller = &*self.name, key = %self.key).in_scope(line),
            false => self.span.in_scope(line),
        }
    }
}

/// What a reconcile has come to when it first let go of the thread.
enum Begun {
    Ended((Verdict, Outcome)),
    Waits(BoxFuture<Result<Action, Error>>),
}

/// The first part of a reconcile, which is all of it if it never waits; or what it panicked with.
fn begin(reconciler: &dyn Reconciler, run: Run, who: &Who, cx: &mut Context<'_>) -> Result<Begun, Box<dyn Any + Send>> {
    // Whatever a panic leaves half done was the reconcile's own, and goes with it.
    catch_unwind(AssertUnwindSafe(|| {
        who.span.in_scope(|| {
            let mut rest = reconciler.reconcile(run);
            match rest.as_mut().poll(cx) {
                Poll::Ready(said) => {
                    drop(rest);
                    Begun::Ended(judged(said, who))
                }
                Poll::Pending => Begun::Waits(rest),
            }
        })
    }))
}

/// Lets go of the thread, and goes on as soon as others who are up have had it.
async fn let_go() {
    let mut had_it = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut had_it, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The rest of a reconcile on its task, which does not outlive this.
struct Running {
    rest: JoinHandle<(Verdict, Outcome)>,
    who: Who,
}

impl Running {
    /// Waits for its end, which comes at its next await if it takes too long or is cut.
    async fn ended(
        mut self,
        job: &Job<'_, Arc<Cause>>,
        timeout: Option<Duration>,
        cut: &mut watch::Receiver<bool>,
    ) -> (Verdict, Outcome) {
        // Timed from when the job was handed out: that clock was read already.
        let until = timeout.and_then(|timeout| Instant::from_std(job.started()).checked_add(timeout));
        let late = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let cut = async {
            // A sender that is gone cuts nobody: the controller was dropped, and its workers with it.
            if cut.wait_for(|cut| *cut).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            // What has ended has ended, also if it is late.
            biased;
            ended = &mut self.rest => return self.settled(ended, Verdict::Cut),
            () = late => self.who.tell(|| {
                let seconds = timeout.unwrap_or_default().as_secs_f64();
                tracing::warn!(timeout_seconds = seconds, "the reconcile took too long");
            }),
            () = cut => return self.aborted(Verdict::Cut).await,
        }
        self.aborted(Verdict::TimedOut).await
    }

    /// Ends it, and waits until it has ended: a key whose reconcile blocks its thread is not handed out again.
    async fn aborted(mut self, why: Verdict) -> (Verdict, Outcome) {
        self.rest.abort();
        let ended = (&mut self.rest).await;
        self.settled(ended, why)
    }

    /// How it ended; `cancelled` is what to call it if it did not come to its end.
    fn settled(&self, ended: Result<(Verdict, Outcome), JoinError>, cancelled: Verdict) -> (Verdict, Outcome) {
        match ended.map_err(JoinError::try_into_panic) {
            Ok(ended) => ended,
            Err(Ok(panic)) => after_panic(&self.who, &*panic),
            // The queue is closed by now and forgets the key, whatever it is told.
            Err(Err(_)) if cancelled == Verdict::Cut => (cancelled, Outcome::Done),
            Err(Err(_)) => (cancelled, Outcome::Failed),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.rest.abort();
    }
}

/// What a panic said.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

fn after_panic(who: &Who, panic: &(dyn Any + Send)) -> (Verdict, Outcome) {
    let message = panic_message(panic);
    who.tell(|| tracing::error!(message, "the reconcile panicked"));
    (Verdict::Panicked { message }, Outcome::Failed)
}

/// What a reconcile said, as the queue and people read it.
fn judged(said: Result<Action, Error>, who: &Who) -> (Verdict, Outcome) {
    match said {
        Ok(Action::Wait) => {
            tracing::debug!("reconciled");
            (Verdict::Success, Outcome::Done)
        }
        Ok(Action::Requeue(after)) => {
            tracing::debug!(?after, "reconciled");
            (Verdict::Requeued, Outcome::Again(after))
        }
        Err(error) => {
            let outcome = policy(&error);
            let retried = !matches!(outcome, Outcome::GaveUp);
            match retry(&error) {
                // Somebody else was faster; that is how it is meant to be, for once.
                Retry::Fresh if who.attempt < Run::LASTS_FROM => {
                    tracing::debug!(%error, "the reconcile begins again with what is new")
                }
                _ => {
                    let (reason, text) = (error.get_reason(), format!("{error:#}"));
                    who.tell(|| tracing::warn!(reason, "error" = text, retried, "the reconcile failed"));
                }
            }
            let verdict = match error.find::<TimedOut>() {
                Some(_) => Verdict::TimedOut,
                None => {
                    Verdict::Failed { reason: error.get_reason().to_owned(), message: format!("{error:#}"), retried }
                }
            };
            (verdict, outcome)
        }
    }
}

/// What the queue does about an error.
fn policy(error: &Error) -> Outcome {
    match retry(error) {
        Retry::Backoff => Outcome::Failed,
        Retry::Fresh | Retry::Outage => Outcome::Hindered,
        // Not at once: what has just failed would do nothing else.
        Retry::After(pause) => Outcome::Again(pause.max(SOONEST)),
        Retry::Hold(pause) => Outcome::Hold(pause),
        Retry::UntilChanged => Outcome::GaveUp,
        // Whoever leads now looks at every object anyway.
        Retry::Stop => Outcome::Done,
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::said::Said;

    fn nobody() -> Who {
        Who { name: "c".into(), key: ObjectKey::new(Some("a"), "b"), attempt: 1, span: Span::none() }
    }

    #[test]
    fn a_warning_names_its_controller_and_its_object_where_only_warnings_are_shown() {
        let log = Said::at(Level::WARN);
        tracing::subscriber::with_default(log.clone(), || {
            let span = tracing::info_span!("reconcile");
            let (name, key) = ("disruption-controller".into(), ObjectKey::new(Some("shop"), "web"));
            let who = Who { name, key, attempt: 1, span };
            judged(Err(Error::new("no luck")), &who);
        });
        let text = log.lines().concat();
        for expect in ["disruption-controller", "shop/web", "no luck"] {
            assert!(text.contains(expect), "{expect} is not in {text}");
        }
    }

    #[test]
    fn who_is_faster_for_ever_is_warned_of() {
        for (attempt, expect) in [(1, false), (4, false), (5, true), (6, true)] {
            let log = Said::at(Level::WARN);
            tracing::subscriber::with_default(log.clone(), || {
                let conflict = crate::WriteError::Conflict { message: "too late".into(), fields: Vec::new() };
                judged(Err(conflict.into()), &Who { attempt, ..nobody() });
            });
            assert_eq!(log.lines().concat().contains("too late"), expect, "attempt {attempt}");
        }
    }

    #[test]
    fn what_a_reconcile_says_is_what_the_queue_does() {
        const SECOND: Duration = Duration::from_secs(1);
        let throttled = crate::WriteError::Throttled { retry_after: Some(SECOND), message: "slow down".into() };
        let cases = [
            (Ok(Action::Wait), Outcome::Done),
            (Ok(Action::requeue(SECOND)), Outcome::Again(SECOND)),
            (Ok(Action::requeue(Duration::ZERO)), Outcome::Again(Duration::ZERO)),
            (Err(Error::new("no")), Outcome::Failed),
            (Err(Error::permanent("no")), Outcome::GaveUp),
            // A pause of the user's is over when something changes, one that the server asked for is not.
            (Err(Error::retry_after(SECOND, "no")), Outcome::Again(SECOND)),
            (Err(Error::retry_after(Duration::ZERO, "no")), Outcome::Again(SOONEST)),
            (Err(Error::from(throttled)), Outcome::Hold(SECOND)),
        ];
        for (said, expect) in cases {
            let text = format!("{said:?}");
            assert_eq!(judged(said, &nobody()).1, expect, "{text}");
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
