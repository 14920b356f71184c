//! From a wakeup to a due key. In: wakeups, from any thread. Out: [`Job`]s, one at a time for each key, and what became
//! of them back in. Which key is next is decided by the pure machine in `queue/order.rs`; this file puts it behind one
//! lock and lets workers sleep until there is something to do. It spawns no task and sets no timer a key: one of the
//! waiting workers sleeps until the next key is due, the others until they are woken, one for each key that is ready.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hashbrown::DefaultHashBuilder;
use konverge_core::ObjectKey;

mod backoff;
mod entries;
mod options;
mod order;
mod platform;
mod requeue;
mod timers;
mod waiters;
mod wakeup;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use options::{Ageing, QueueOptions, QueueStats, Rate};
pub(crate) use platform::{Platform, Tokio};
pub use requeue::{Requeue, Settled};
pub use wakeup::{Added, Causes, Priority, Wakeup};

use order::{Next, Order, Taken, Ticket};
use platform::Lock;
use waiters::Waiters;
use wakeup::CAUSES;

/// The keys of one controller that want a reconcile. A handle: its copies are the same queue.
///
/// - One entry a key, and at most one [`Job`] of a key at a time; a wakeup that comes while it runs is kept.
/// - Failing keys back off one by one; only failures count (see [`Backoff`] and [`Requeue`]).
/// - Higher priorities first, first in first out within one, and nothing starves (see [`Ageing`]).
/// - It holds at most one entry for each object there is, or [`QueueOptions::max_keys`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use konverge_core::ObjectKey;
/// use konverge_runtime::{Requeue, Priority, Queue, QueueOptions, Wakeup};
///
/// let queue = Queue::new(&QueueOptions::default());
/// let web = ObjectKey::new(Some("default"), "web");
/// let _ = queue.add(&web, Wakeup::new(Priority::Change, "created"));
/// let _ = queue.add(&web, Wakeup::new(Priority::Change, "its Secret changed"));
///
/// let job = queue.get().await.expect("the queue is open");
/// assert_eq!((job.key(), job.attempt()), (&web, 1));
/// assert_eq!(job.causes().iter().copied().collect::<Vec<_>>(), ["created", "its Secret changed"]);
/// job.done(Requeue::Forget);
///
/// queue.shutdown();
/// assert!(queue.get().await.is_none());
/// # }
/// ```
pub struct Queue<C, P: Platform = Tokio>
where
    C: Send + 'static,
{
    shared: Arc<Shared<C, P>>,
}

struct Shared<C: Send + 'static, P: Platform> {
    platform: P,
    /// A copy of the machine's, to hash keys before the lock is taken.
    hasher: DefaultHashBuilder,
    state: P::Lock<State<C>>,
}

/// What the lock guards.
struct State<C> {
    order: Order<C>,
    waiters: Waiters,
    /// Who waits for the end of everything that runs.
    drainers: Vec<Waker>,
    /// The state of the random numbers that jitter takes.
    random: u64,
}

impl<C: Send + 'static> Queue<C> {
    /// An empty, open queue.
    pub fn new(options: &QueueOptions) -> Self {
        Self::on(Tokio, options)
    }
}

impl<C: Send + 'static, P: Platform> Queue<C, P> {
    pub(crate) fn on(platform: P, options: &QueueOptions) -> Self {
        let order = Order::new(options, platform.now());
        let hasher = order.hasher().clone();
        // Any seed will do: it only has to differ from the next operator's, and the hasher has a random one.
        let random = entries::hash(&hasher, &ObjectKey::new(None, "jitter")) | 1;
        let state = State { order, waiters: Waiters::default(), drainers: Vec::new(), random };
        Self { shared: Arc::new(Shared { platform, hasher, state: Lock::new(state) }) }
    }

    /// A handle that does not keep it.
    pub(crate) fn downgrade(&self) -> WeakQueue<C, P> {
        WeakQueue(Arc::downgrade(&self.shared))
    }

    /// Asks for a reconcile of a key. Never waits for anything but the lock.
    pub fn add(&self, key: &ObjectKey, wakeup: Wakeup<C>) -> Added {
        let (hash, now) = (entries::hash(&self.shared.hasher, key), self.shared.platform.now());
        let (added, waker) = self.shared.state.with(|state| {
            let added = state.order.add_hashed(hash, key, wakeup, now);
            (added, state.call())
        });
        wake(waker);
        added
    }

    /// The next key to reconcile; waits for one. `None` once the queue is closed and nothing is left to take.
    /// Nothing is lost when the future is dropped: a key is handed out with the job, not before.
    pub async fn get(&self) -> Option<Job<'_, C, P>> {
        let mut waiting = Waiting { queue: self, seat: None, turns: 0 };
        let (mut sleep, mut armed) = (pin!(None::<P::Sleep>), None);
        poll_fn(|cx| {
            waiting.turns += 1;
            self.shared.platform.proceed(cx, |cx| {
                loop {
                    match waiting.look(cx) {
                        Look::Job(job) => return Poll::Ready(job),
                        Look::Sleep(None) => {
                            sleep.set(None);
                            armed = None;
                            return Poll::Pending;
                        }
                        Look::Sleep(Some(until)) => {
                            if armed != Some(until) {
                                sleep.set(Some(self.shared.platform.sleep_until(until)));
                                armed = Some(until);
                            }
                            let sleep = sleep.as_mut().as_pin_mut().expect("it was set above");
                            if sleep.poll(cx).is_pending() {
                                return Poll::Pending;
                            }
                            armed = None;
                        }
                    }
                }
            })
        })
        .await
    }

    /// Forgets a key that is not running: its wakeups, its delay, its failures. For objects that are gone and need no
    /// last reconcile. Says whether there was something to forget.
    pub fn forget(&self, key: &ObjectKey) -> bool {
        self.shared.state.with(|state| state.order.forget(key))
    }

    /// Takes no more wakeups. A key that waits for a later time is dropped and nothing is retried any more; what is ready is
    /// still handed out, then [`Queue::get`] gives `None`.
    pub fn shutdown(&self) {
        self.end(Order::close);
    }

    /// Closes, and drops what is ready as well: [`Queue::get`] gives `None` at once, only running jobs are left.
    pub fn shutdown_now(&self) {
        self.end(Order::stop);
    }

    /// Waits until the queue is closed, nothing is ready and no job is running. Does not close it.
    pub async fn drained(&self) {
        poll_fn(|cx| {
            self.shared.state.with(|state| {
                if state.order.is_drained() {
                    return Poll::Ready(());
                }
                if !state.drainers.iter().any(|known| known.will_wake(cx.waker())) {
                    state.drainers.push(cx.waker().clone());
                }
                Poll::Pending
            })
        })
        .await;
    }

    /// How many keys are ready.
    pub fn len(&self) -> usize {
        self.shared.state.with(|state| state.order.ready())
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the queue holds and has done so far. Takes as long however much that is.
    pub fn stats(&self) -> QueueStats {
        let now = self.shared.platform.now();
        self.shared.state.with(|state| state.order.stats(now))
    }

    /// The keys that have been running for longer than `limit`, with how long, oldest first.
    pub fn overdue(&self, limit: Duration) -> Vec<(ObjectKey, Duration)> {
        let now = self.shared.platform.now();
        self.shared.state.with(|state| state.order.overdue(limit, now))
    }

    fn end(&self, how: impl FnOnce(&mut Order<C>, Instant)) {
        let now = self.shared.platform.now();
        let wakers = self.shared.state.with(|state| {
            how(&mut state.order, now);
            state.call_all()
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    fn done(&self, ticket: Ticket, requeue: Requeue, started: Instant) -> Settled {
        let now = match requeue {
            // Nothing is timed from the end of this one, so the newest time that the machine has seen will do: to read
            // the clock would be a quarter of the work.
            Requeue::Forget => started,
            _ => self.shared.platform.now(),
        };
        let (settled, wakers) = self.shared.state.with(|state| (state.done(ticket, requeue, now), state.call_after()));
        wakers.wake();
        settled
    }

    /// Hands a key back and takes the next one that is ready, under one lock.
    fn done_and_get(&self, ticket: Ticket, requeue: Requeue, now: Instant) -> (Settled, Option<Job<'_, C, P>>) {
        let (settled, next, wakers) = self.shared.state.with(|state| {
            let settled = state.done(ticket, requeue, now);
            let next = match state.order.next(now) {
                Next::Take(taken) => Some(taken),
                Next::Wait(_) | Next::Empty | Next::Over => None,
            };
            (settled, next, state.call_after())
        });
        wakers.wake();
        (settled, next.map(|taken| Job::new(self, taken, now, false)))
    }
}

/// A handle that does not keep its queue.
pub(crate) struct WeakQueue<C: Send + 'static, P: Platform = Tokio>(Weak<Shared<C, P>>);

impl<C: Send + 'static, P: Platform> WeakQueue<C, P> {
    /// The queue, if somebody still has it.
    pub(crate) fn upgrade(&self) -> Option<Queue<C, P>> {
        Some(Queue { shared: self.0.upgrade()? })
    }
}

impl<C: Send + 'static, P: Platform> Clone for Queue<C, P> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C: Send + 'static, P: Platform> fmt::Debug for Queue<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.stats()).finish()
    }
}

/// Whom to wake once the lock is given back: one, or all in a queue that is closed.
struct Wakers {
    one: Option<Waker>,
    all: Vec<Waker>,
}

impl Wakers {
    fn wake(self) {
        wake(self.one);
        self.all.into_iter().for_each(Waker::wake);
    }
}

impl<C> State<C> {
    fn done(&mut self, ticket: Ticket, requeue: Requeue, now: Instant) -> Settled {
        let random = self.random();
        self.order.done(ticket, requeue, now, random)
    }

    fn call_after(&mut self) -> Wakers {
        match self.order.is_closed() {
            // The last one out ends the wait of all others.
            true => Wakers { one: None, all: self.call_all() },
            false => Wakers { one: self.call(), all: Vec::new() },
        }
    }

    fn call(&mut self) -> Option<Waker> {
        match self.waiters.all_up() {
            true => None,
            false => self.waiters.call(self.order.ready(), self.order.first_due()),
        }
    }

    fn call_all(&mut self) -> Vec<Waker> {
        let mut wakers = self.waiters.call_all();
        if self.order.is_drained() {
            wakers.append(&mut self.drainers);
        }
        wakers
    }

    /// A number from 0 to 1 (xorshift64). It has to differ between keys; nobody tries to guess it.
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A worker on its way to a job. Dropping it gives up its seat, and passes on a call that came for it.
struct Waiting<'a, C: Send + 'static, P: Platform> {
    queue: &'a Queue<C, P>,
    seat: Option<u32>,
    /// In how many turns of its task it looked.
    turns: usize,
}

/// What a look into the queue found.
enum Look<'a, C: Send + 'static, P: Platform> {
    /// A job, or none any more.
    Job(Option<Job<'a, C, P>>),
    /// Nothing until somebody calls, or until then.
    Sleep(Option<Instant>),
}

impl<'a, C: Send + 'static, P: Platform> Waiting<'a, C, P> {
    fn look(&mut self, cx: &mut Context<'_>) -> Look<'a, C, P> {
        let now = self.queue.shared.platform.now();
        let (look, waker) = self.queue.shared.state.with(|state| {
            state.waiters.look(self.seat);
            let until = match state.order.next(now) {
                Next::Take(taken) => {
                    state.waiters.leave(&mut self.seat);
                    return (Ok(Some(taken)), state.call());
                }
                Next::Over => {
                    state.waiters.leave(&mut self.seat);
                    return (Ok(None), None);
                }
                Next::Wait(until) => Some(until),
                Next::Empty => None,
            };
            let keeps = state.waiters.wait(&mut self.seat, cx.waker(), until);
            (Err(until.filter(|_| keeps)), None)
        });
        let first = self.turns > 1 && waker.is_none();
        wake(waker);
        match look {
            Ok(taken) => Look::Job(taken.map(|taken| Job::new(self.queue, taken, now, first))),
            Err(until) => Look::Sleep(until),
        }
    }
}

impl<C: Send + 'static, P: Platform> Drop for Waiting<'_, C, P> {
    fn drop(&mut self) {
        if self.seat.is_none() {
            return;
        }
        let waker = self.queue.shared.state.with(|state| {
            state.waiters.leave(&mut self.seat);
            state.call()
        });
        wake(waker);
    }
}

/// A key that was handed out for a reconcile. Nobody else gets it until the job is finished. A job that is dropped (a
/// panic, a timeout, a cancelled task) counts as failed, so a key is never stuck.
pub struct Job<'a, C: Send + 'static, P: Platform = Tokio> {
    queue: &'a Queue<C, P>,
    /// Taken by whoever finishes it.
    ticket: Option<Ticket>,
    key: ObjectKey,
    causes: Causes<C>,
    attempt: u32,
    last: bool,
    waited: Duration,
    priority: Priority,
    started: Instant,
    first: bool,
}

impl<'a, C: Send + 'static, P: Platform> Job<'a, C, P> {
    fn new(queue: &'a Queue<C, P>, taken: Taken<C>, started: Instant, first: bool) -> Self {
        let Taken { ticket, key, causes, attempt, last, waited, priority } = taken;
        Self { queue, ticket: Some(ticket), key, causes, attempt, last, waited, priority, started, first }
    }

    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Why: the newest wakeups since the key ran last.
    pub fn causes(&self) -> &Causes<C> {
        &self.causes
    }

    /// 1, and one more for each run in a row before it that did not end well.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether the key is given up if this one ends with [`Requeue::RateLimited`]: its retries are used up.
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// How long the key could have run already.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How urgent it was.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// When it was handed out.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Whether handing it out was the first thing in this turn of the task that asked for it, and woke nobody.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// Why, to keep.
    pub(crate) fn take_causes(&mut self) -> Causes<C> {
        std::mem::replace(&mut self.causes, Causes::none(0))
    }

    /// Hands the key back. Says what became of it.
    pub fn done(mut self, requeue: Requeue) -> Settled {
        let ticket = self.ticket.take().expect("only the last call takes the ticket");
        self.queue.done(ticket, requeue, self.started)
    }

    /// Hands the key back at this time, and takes the next one if one is ready: half the locking of doing one after the
    /// other. If none is, [`Queue::get`] waits for it.
    pub fn done_and_get(mut self, requeue: Requeue, now: Instant) -> (Settled, Option<Job<'a, C, P>>) {
        let ticket = self.ticket.take().expect("only the last call takes the ticket");
        self.queue.done_and_get(ticket, requeue, now)
    }
}

impl<C: Send + 'static, P: Platform> Drop for Job<'_, C, P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.queue.done(ticket, Requeue::RateLimited, self.started);
        }
    }
}

impl<C: Send + fmt::Debug + 'static, P: Platform> fmt::Debug for Job<'_, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut job = f.debug_struct("Job");
        job.field("key", &self.key).field("attempt", &self.attempt).field("priority", &self.priority);
        job.field("waited", &self.waited).field("causes", &self.causes).finish()
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
