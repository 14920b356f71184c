//! Which key is reconciled next. In: wakeups, how reconciles ended, the time, a random number. Out: the key to take, when to
//! look again, what became of a key. Never asks the clock, never waits, never locks: `queue.rs` does that around it.
//!
//! ```text
//!            wakeup                due                    take
//! idle ───────────────▶ delayed ─────────▶ ready ─────────────────▶ running ──▶ idle, delayed, backoff or resting
//!   └──────────────────────────────────────▲                          │ ▲
//!                                                             wakeup  ╰─╯ runs once more when it is finished
//! ```
//!
//! One entry a key, whatever happens: wakeups of a key that waits are merged (the higher priority, the earlier time),
//! wakeups of a key that runs are kept until it is finished.
//!
//! **Backoff** counts what [`Order::done`] calls failed and nothing else; runs in which others were in the way (an outage)
//! are counted beside it, for their own wait. While a key backs off
//! - a resync or a retry waits with it: its cause is kept, the time stays;
//! - a change cuts the wait short, and the count of failures stays as it was. A reconciler that changes its own object
//!   and then fails would turn that into a hot loop, so the cut has a backoff of its own: the first change in a row runs
//!   at once, the next at the earliest `delay(1)` after the failure, then `delay(2)`, and never later than the retry
//!   itself. A retry that no change hastened, or a success, begins that anew.
//!
//! A key that was given up rests. A change runs it again with all its retries, a resync gives it one try.
//!
//! **Order** among ready keys is strictly by priority and first in, first out within one, with one exception that keeps
//! everything moving: one take out of [`every`](super::Ageing::every) goes to the key that took its place first,
//! whatever its priority, if it has been ready for [`patience`](super::Ageing::patience). So a mass resync costs fresh
//! changes one take out of `every`, and a ready key with `m` others before it, in all priorities together, is taken
//! with the `every × (m + 1)`-th take after its patience ran out, or earlier.

use std::time::{Duration, Instant};

use hashbrown::DefaultHashBuilder;
use konverge_core::ObjectKey;

use super::entries::{self, Entries, Entry, List, NONE, State};
use super::timers::Timers;
use super::{Added, Backoff, Causes, Priority, QueueOptions, QueueStats, Requeue, Settled, Wakeup};
use crate::token_bucket::{TokenBucket, ticks};

#[cfg(test)]
mod tests;

/// How many due timers one take looks at, so that it stays short when a hundred thousand are due at once. They are
/// readied faster than they are taken, so none waits for long.
const DUE_AT_ONCE: usize = 64;

/// What to do next.
#[derive(Debug)]
pub(super) enum Next<C> {
    /// Reconcile this key, then call [`Order::done`].
    Take(Taken<C>),
    /// Nothing can be taken before this instant, unless a wakeup or a requeue comes.
    Wait(Instant),
    /// Nothing can be taken until a wakeup or a requeue comes.
    Empty,
    /// Closed, and nothing will be taken any more.
    Over,
}

/// A key that fails at every change waits longer after each of them, so that a reconcile which causes its own changes is no
/// hot loop. Longer than this it does not wait: the next change may be the one that repairs the object.
const MAX_WAIT_AFTER_CHANGE: Duration = Duration::from_secs(10);

/// A key that was handed out.
#[derive(Debug)]
pub(super) struct Taken<C> {
    pub ticket: Ticket,
    pub key: ObjectKey,
    pub causes: Causes<C>,
    pub attempt: u32,
    /// Whether a failure of this run would be the end of trying.
    pub last: bool,
    pub waited: Duration,
    pub priority: Priority,
}

/// The right to finish a key, once.
#[derive(Debug)]
pub(super) struct Ticket(u32);

/// The machine.
#[derive(Debug)]
pub(super) struct Order<C> {
    entries: Entries<C>,
    /// By priority.
    ready: [List; Priority::ALL.len()],
    /// In the order in which they were taken.
    running: List,
    /// In the order in which they were given up.
    resting: List,
    timers: Timers,
    /// Takes since the oldest ready key was taken.
    passed: u32,
    bucket: Option<TokenBucket>,
    backoff: Backoff,
    patience: u64,
    every: u32,
    max_keys: usize,
    closed: bool,
    /// Tick zero.
    start: Instant,
    /// The newest time seen: clocks read by several threads arrive in any order.
    now: u64,
    adds: u64,
    retries: u64,
    refused: u64,
}

impl<C> Order<C> {
    pub(super) fn new(options: &QueueOptions, start: Instant) -> Self {
        Self {
            entries: Entries::new(),
            ready: [List::EMPTY; Priority::ALL.len()],
            running: List::EMPTY,
            resting: List::EMPTY,
            timers: Timers::default(),
            passed: 0,
            bucket: options.rate.as_ref().map(|rate| TokenBucket::new(rate.every, rate.burst)),
            backoff: options.backoff.clone(),
            patience: ticks(options.ageing.patience),
            every: options.ageing.every,
            max_keys: options.max_keys.unwrap_or(usize::MAX),
            closed: false,
            start,
            now: 0,
            adds: 0,
            retries: 0,
            refused: 0,
        }
    }

    /// What hashes keys for [`Order::add_hashed`].
    pub(super) fn hasher(&self) -> &DefaultHashBuilder {
        self.entries.hasher()
    }

    /// A key asks for a reconcile.
    #[cfg(test)]
    pub(super) fn add(&mut self, key: &ObjectKey, wakeup: Wakeup<C>, now: Instant) -> Added {
        self.add_hashed(entries::hash(self.hasher(), key), key, wakeup, now)
    }

    /// [`Order::add`] for a caller that has hashed the key already, before it took a lock.
    pub(super) fn add_hashed(&mut self, hash: u64, key: &ObjectKey, wakeup: Wakeup<C>, now: Instant) -> Added {
        let now = self.tick(now);
        if self.closed {
            return Added::Closed;
        }
        let (slot, added) = match self.entries.find(hash, key) {
            Some(slot) => (slot, Added::Merged),
            None if self.entries.len() >= self.max_keys && !self.forget_resting() => {
                self.refused += 1;
                return Added::Full;
            }
            None => (self.entries.insert(hash, key.clone()), Added::New),
        };
        self.entries.push_cause(slot, wakeup.cause);
        let due = wakeup.after.map_or(now, |after| now + ticks(after));
        self.wake(slot, wakeup.priority, due, now);
        added
    }

    /// The key to reconcile now.
    pub(super) fn next(&mut self, now: Instant) -> Next<C> {
        let now = self.tick(now);
        self.ready_due(now);
        let Some((list, passes)) = self.choose(now) else {
            return match self.timers.first() {
                Some((due, _)) => Next::Wait(self.instant(due)),
                None if self.closed && !self.any_woken() => Next::Over,
                None => Next::Empty,
            };
        };
        if let Some(bucket) = &mut self.bucket {
            let opens = bucket.next_at();
            if opens > now {
                return Next::Wait(self.instant(opens));
            }
            bucket.take(now);
        }
        self.passed = if passes { self.passed.saturating_add(1) } else { 0 };
        let slot = self.ready[list].head;
        self.entries.unlink(&mut self.ready[list], slot);
        self.entries.push_back(&mut self.running, slot);
        let causes = self.entries.take_causes(slot);
        let entry = self.entries.get_mut(slot);
        let waited = Duration::from_nanos(now.saturating_sub(entry.ready));
        (entry.state, entry.at, entry.woken, entry.gave_up) = (State::Running, now, None, false);
        let key = entry.key.clone().expect("a ready entry has a key");
        let (attempt, priority) = (entry.bad_runs().saturating_add(1), entry.priority);
        let last = self.backoff.is_exhausted(entry.failures.saturating_add(1));
        Next::Take(Taken { ticket: Ticket(slot), key, causes, attempt, last, waited, priority })
    }

    /// A key that was taken is handed back. `random` is from 0 to 1.
    pub(super) fn done(&mut self, ticket: Ticket, requeue: Requeue, now: Instant, random: f64) -> Settled {
        let (now, slot) = (self.tick(now), ticket.0);
        self.entries.unlink(&mut self.running, slot);
        let entry = self.entries.get_mut(slot);
        entry.state = State::Idle;
        let (woken, due) = (entry.woken.take(), entry.ready);
        match requeue {
            Requeue::Forget => entry.forget_failures(),
            Requeue::After(after) => {
                entry.forget_failures();
                self.wait(slot, State::Again, now + ticks(after), Priority::Retry);
            }
            Requeue::RateLimited => {
                entry.failures = entry.failures.saturating_add(1);
                if self.backoff.is_exhausted(entry.failures) {
                    self.rest(slot, now);
                } else {
                    self.retries += 1;
                    let delay = self.backoff.jittered(entry.failures, random);
                    entry.floor = now + ticks(self.backoff.delay(u32::from(entry.early)).min(MAX_WAIT_AFTER_CHANGE));
                    entry.cut = false;
                    self.wait(slot, State::Backoff, now + ticks(delay), Priority::Retry);
                }
            }
            Requeue::AfterOutageOrConflict => {
                entry.hindered = entry.hindered.saturating_add(1);
                self.retries += 1;
                let began = entry.at;
                let delay = self.backoff.jittered(entry.bad_runs(), random).min(Requeue::MAX_AFTER_OUTAGE_OR_CONFLICT);
                let least = self.backoff.jittered(1, random).min(Requeue::MAX_AFTER_OUTAGE_OR_CONFLICT);
                entry.floor = now + ticks(self.backoff.delay(u32::from(entry.early)).min(MAX_WAIT_AFTER_CHANGE));
                entry.cut = false;
                self.wait(slot, State::Backoff, (began + ticks(delay)).max(now + ticks(least)), Priority::Retry);
            }
            Requeue::NotBefore(after) => {
                let due = now + ticks(after.max(self.backoff.initial.min(self.backoff.max)));
                (entry.floor, entry.cut) = (due, false);
                self.wait(slot, State::Backoff, due, Priority::Retry);
            }
            Requeue::GiveUp => {
                entry.failures = entry.failures.saturating_add(1);
                self.rest(slot, now);
            }
        }
        if let Some(priority) = woken {
            self.wake(slot, priority, due, now);
        }
        self.settle(slot)
    }

    /// Forgets a key that is not running: its wakeups, its delay, its failures. Says whether there was one.
    pub(super) fn forget(&mut self, key: &ObjectKey) -> bool {
        let Some(slot) = self.entries.find(entries::hash(self.hasher(), key), key) else { return false };
        match self.entries.get(slot).state {
            State::Running => return false,
            State::Ready => self.unready(slot),
            State::Resting => self.entries.unlink(&mut self.resting, slot),
            _ => self.unwait(slot),
        }
        self.entries.remove(slot);
        true
    }

    /// Takes no more wakeups and drops everything that is not ready, due or running.
    pub(super) fn close(&mut self, now: Instant) {
        let now = self.tick(now);
        self.closed = true;
        while self.timers.first().is_some_and(|(due, _)| due <= now) {
            self.ready_due(now);
        }
        let mut timers = std::mem::take(&mut self.timers);
        timers.drain().for_each(|slot| self.entries.remove(slot));
        while self.forget_resting() {}
    }

    /// Closes, and drops what is ready as well: only what runs is left.
    pub(super) fn stop(&mut self, now: Instant) {
        self.close(now);
        for list in 0..self.ready.len() {
            while self.ready[list].head != NONE {
                let slot = self.ready[list].head;
                self.unready(slot);
                self.entries.remove(slot);
            }
        }
        let mut slot = self.running.head;
        while slot != NONE {
            let entry = self.entries.get_mut(slot);
            entry.woken = None;
            slot = entry.next;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it is closed and nothing is ready or running.
    pub(super) fn is_drained(&self) -> bool {
        self.closed && self.running.len == 0 && self.ready() == 0
    }

    /// How many keys are ready.
    #[inline]
    pub(super) fn ready(&self) -> usize {
        self.ready.iter().map(|list| list.len).sum()
    }

    /// When the first waiting key is due.
    pub(super) fn first_due(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| self.instant(due))
    }

    pub(super) fn stats(&self, now: Instant) -> QueueStats {
        let now = ticks(now.saturating_duration_since(self.start)).max(self.now);
        let since = |list: &List| match list.head {
            NONE => None,
            head => Some(Duration::from_nanos(now - self.entries.get(head).at)),
        };
        QueueStats {
            ready: self.ready.map(|list| list.len),
            waiting: self.timers.len(),
            running: self.running.len,
            resting: self.resting.len,
            longest_running: since(&self.running),
            oldest_ready: self.ready.iter().filter_map(since).max(),
            adds: self.adds,
            retries: self.retries,
            refused: self.refused,
        }
    }

    /// The keys that are ready at this time, with their priority and when they took their place.
    #[cfg(test)]
    pub(super) fn ready_keys(&mut self, now: Instant) -> Vec<(ObjectKey, Priority, Instant)> {
        let now = self.tick(now);
        self.ready_due(now);
        let mut keys = Vec::new();
        for list in &self.ready {
            let mut slot = list.head;
            while slot != NONE {
                let entry = self.entries.get(slot);
                let key = entry.key.clone().expect("a ready entry has a key");
                keys.push((key, entry.priority, self.instant(entry.at)));
                slot = entry.next;
            }
        }
        keys
    }

    /// How many keys it holds, in whatever state.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.entries.len()
    }

    /// Brings a wakeup, due at a tick, to an entry in any state.
    fn wake(&mut self, slot: u32, priority: Priority, due: u64, now: u64) {
        let entry = self.entries.get_mut(slot);
        let higher = entry.priority.max(priority);
        if entry.gave_up && priority.is_change() {
            let early = entry.early.saturating_add(1);
            entry.forget_failures();
            (entry.gave_up, entry.early) = (false, early);
        }
        match entry.state {
            State::Idle => self.place(slot, State::Delayed, due, priority, now),
            State::Ready if higher > entry.priority => {
                let ready = entry.ready;
                self.unready(slot);
                self.line_up(slot, ready, higher, now);
            }
            State::Ready => {}
            // A reconcile that asked to run again has no claim to a priority before that time.
            State::Again if due < entry.at => self.replace(slot, State::Delayed, due, priority, now),
            State::Again => entry.priority = higher,
            State::Delayed if due < entry.at => self.replace(slot, State::Delayed, due, higher, now),
            State::Delayed => entry.priority = higher,
            State::Backoff => {
                let due = due.max(entry.floor);
                entry.priority = higher;
                if priority.is_change() && due < entry.at {
                    if !std::mem::replace(&mut entry.cut, true) {
                        entry.early = entry.early.saturating_add(1);
                    }
                    self.replace(slot, State::Backoff, due, higher, now);
                }
            }
            State::Resting => {
                entry.cut = true;
                let due = due.max(entry.floor);
                self.entries.unlink(&mut self.resting, slot);
                self.place(slot, State::Backoff, due, priority, now);
            }
            State::Running => {
                entry.ready = entry.woken.map_or(due, |_| entry.ready.min(due));
                entry.woken = entry.woken.max(Some(priority));
            }
        }
    }

    /// Puts an entry that is in no list where it belongs: ready if it is due, else into the timers as `state`.
    fn place(&mut self, slot: u32, state: State, due: u64, priority: Priority, now: u64) {
        if due > now {
            return self.wait(slot, state, due, priority);
        }
        self.adds += 1;
        self.line_up(slot, due, priority, now);
    }

    /// Puts an entry at the end of the ready ones of its priority.
    fn line_up(&mut self, slot: u32, due: u64, priority: Priority, now: u64) {
        let entry = self.entries.get_mut(slot);
        (entry.state, entry.priority, entry.at, entry.ready) = (State::Ready, priority, now, due);
        self.entries.push_back(&mut self.ready[priority as usize], slot);
    }

    /// [`Order::place`] for an entry that is in the timers.
    fn replace(&mut self, slot: u32, state: State, due: u64, priority: Priority, now: u64) {
        self.unwait(slot);
        self.place(slot, state, due, priority, now);
    }

    fn wait(&mut self, slot: u32, state: State, due: u64, priority: Priority) {
        let entry = self.entries.get_mut(slot);
        (entry.state, entry.priority, entry.at) = (state, priority, due);
        let entries = &mut self.entries;
        self.timers.push(due, slot, |slot, at| entries.get_mut(slot).next = at);
    }

    fn unwait(&mut self, slot: u32) {
        let (at, entries) = (self.entries.get(slot).next, &mut self.entries);
        self.timers.remove(at, |slot, at| entries.get_mut(slot).next = at);
    }

    fn unready(&mut self, slot: u32) {
        let list = self.entries.get(slot).priority as usize;
        self.entries.unlink(&mut self.ready[list], slot);
    }

    fn rest(&mut self, slot: u32, now: u64) {
        let entry = self.entries.get_mut(slot);
        entry.floor = now + ticks(self.backoff.delay(u32::from(entry.early)).min(MAX_WAIT_AFTER_CHANGE));
        (entry.state, entry.at, entry.gave_up) = (State::Resting, now, true);
        self.entries.push_back(&mut self.resting, slot);
    }

    /// What became of an entry that was handed back. The idle are forgotten, and so are the waiting in a closed queue.
    fn settle(&mut self, slot: u32) -> Settled {
        let entry = self.entries.get(slot);
        let (at, failures) = (entry.at, entry.failures);
        let bad_runs = entry.bad_runs();
        match entry.state {
            State::Ready => return Settled::Ready,
            State::Resting if !self.closed => return Settled::GaveUp { failures },
            State::Delayed | State::Again | State::Backoff if !self.closed => {
                return Settled::Waits { until: self.instant(at), failures: bad_runs };
            }
            State::Resting => self.entries.unlink(&mut self.resting, slot),
            State::Delayed | State::Again | State::Backoff => self.unwait(slot),
            State::Idle | State::Running => {}
        }
        self.entries.remove(slot);
        Settled::Idle
    }

    /// Forgets the key that was given up first: what it knows is only that a resync is worth one try.
    fn forget_resting(&mut self) -> bool {
        let slot = self.resting.head;
        if slot == NONE {
            return false;
        }
        self.entries.unlink(&mut self.resting, slot);
        self.entries.remove(slot);
        true
    }

    fn ready_due(&mut self, now: u64) {
        for _ in 0..DUE_AT_ONCE {
            let Some((due, slot)) = self.timers.first().filter(|(due, _)| *due <= now) else { return };
            self.unwait(slot);
            let entry = self.entries.get_mut(slot);
            if entry.state == State::Backoff && !entry.cut {
                entry.early = 0;
            }
            let priority = entry.priority;
            self.place(slot, State::Ready, due, priority, now);
        }
    }

    /// The list to take from: the highest that is not empty, or the one whose head took its place first when that is
    /// due for its turn. Says also whether the take passes that head by.
    fn choose(&self, now: u64) -> Option<(usize, bool)> {
        let place = |list: usize| self.entries.get(self.ready[list].head).at;
        let mut full = (0..self.ready.len()).rev().filter(|list| self.ready[*list].head != NONE);
        let top = full.next()?;
        let oldest = full.fold(top, |oldest, list| if place(list) < place(oldest) { list } else { oldest });
        if oldest == top {
            return Some((top, false));
        }
        let aged = place(oldest).saturating_add(self.patience) <= now;
        let turn = aged && self.passed.saturating_add(1) >= self.every;
        Some(if turn { (oldest, false) } else { (top, true) })
    }

    fn any_woken(&self) -> bool {
        self.running().any(|entry| entry.woken.is_some())
    }

    /// The keys that have been running for longer than `limit`, with how long, oldest first.
    pub(super) fn overdue(&self, limit: Duration, now: Instant) -> Vec<(ObjectKey, Duration)> {
        let now = ticks(now.saturating_duration_since(self.start));
        let of = |entry: &Entry| Some((entry.key.clone()?, Duration::from_nanos(now.saturating_sub(entry.at))));
        self.running().filter_map(of).take_while(|(_, ran)| *ran > limit).collect()
    }

    fn running(&self) -> impl Iterator<Item = &Entry> {
        let entry = |slot: u32| (slot != NONE).then(|| self.entries.get(slot));
        std::iter::successors(entry(self.running.head), move |before| entry(before.next))
    }

    fn tick(&mut self, now: Instant) -> u64 {
        self.now = self.now.max(ticks(now.saturating_duration_since(self.start)));
        self.now
    }

    fn instant(&self, tick: u64) -> Instant {
        self.start + Duration::from_nanos(tick)
    }
}
