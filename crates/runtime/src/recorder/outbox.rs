//! Which Event objects have to be written, and when. In: recorded events and how writes ended, with their time. Out: one
//! request at a time. Pure.
//!
//! The first of an event is written at once. Repetitions wait a little, so that many of them become one update of its
//! series. Each object may make only so many new Events in a time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::journal::Recorded;
use crate::token_bucket::TokenBucket;
use crate::write::Digest;

/// How the outbox paces itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long after its first an event may still be repeated.
    pub window: SignedDuration,
    /// How long repetitions wait for more of them.
    pub gather: SignedDuration,
    /// How many new Events of one object may come at once.
    pub burst: u32,
    /// How long until one more may come.
    pub refill: SignedDuration,
}

/// Something to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub recorded: Arc<Recorded>,
    /// Whether there is an Event object already, whose series has to be updated.
    pub known: bool,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is written.
    Written,
    /// The Event object was there already, with a count of its own.
    Exists,
    /// The Event object is gone: somebody deleted it, or its time was over.
    Vanished,
    /// It may work later, but not before this time is over.
    Later(SignedDuration),
    /// It will never work.
    Refused,
}

/// What became of an offered event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// It is written now or later.
    Taken,
    /// The object makes too many.
    Limited,
}

#[derive(Debug)]
struct Entry {
    recorded: Arc<Recorded>,
    /// The count that is written; 0 if there is no Event object.
    written: u32,
    /// The count that is being written.
    writing: u32,
    due: Option<Timestamp>,
    attempts: u32,
}

/// All that has to be written.
#[derive(Debug)]
pub(super) struct Outbox {
    pace: Pace,
    entries: HashMap<u64, Entry>,
    due: BTreeSet<(Timestamp, u64)>,
    buckets: HashMap<Digest, TokenBucket>,
}

/// More events at once than these are not written: a cluster has better things to do.
const MOST_ENTRIES: usize = 10_000;

/// How often a write is tried.
const ATTEMPTS: u32 = 5;

impl Outbox {
    /// An empty one.
    pub fn new(pace: Pace) -> Self {
        Self { pace, entries: HashMap::new(), due: BTreeSet::new(), buckets: HashMap::new() }
    }

    /// Takes an event, or one more of it.
    pub fn offer(&mut self, recorded: Arc<Recorded>, now: Timestamp) -> Offered {
        let id = recorded.id;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.recorded = recorded;
            if entry.due.is_none() && entry.writing == 0 {
                self.schedule(id, now + self.pace.gather);
            }
            return Offered::Taken;
        }
        if self.entries.len() >= MOST_ENTRIES {
            self.sweep(now);
        }
        if self.entries.len() >= MOST_ENTRIES || !self.may_create(recorded.subject.sum(), now) {
            return Offered::Limited;
        }
        self.entries.insert(id, Entry { recorded, written: 0, writing: 0, due: None, attempts: 0 });
        self.schedule(id, now);
        Offered::Taken
    }

    /// When there is something to be written.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    /// What is to be written now; the caller says how it [`ended`](Self::ended).
    pub fn take(&mut self, now: Timestamp) -> Option<Task> {
        let (due, id) = *self.due.first()?;
        if due > now {
            return None;
        }
        self.due.pop_first();
        let entry = self.entries.get_mut(&id)?;
        entry.due = None;
        entry.writing = entry.recorded.count;
        Some(Task { recorded: entry.recorded.clone(), known: entry.written > 0 })
    }

    /// Takes note of how a write ended. Tells whether the event is lost.
    pub fn ended(&mut self, id: u64, ended: Ended, now: Timestamp) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let writing = std::mem::take(&mut entry.writing);
        entry.attempts += 1;
        let again = match ended {
            Ended::Written => {
                (entry.written, entry.attempts) = (writing, 0);
                let more = entry.recorded.count > writing;
                more.then(|| now + self.pace.gather)
            }
            Ended::Exists => {
                (entry.written, entry.attempts) = (1, 0);
                (entry.recorded.count > 1).then_some(now)
            }
            Ended::Vanished if entry.attempts < ATTEMPTS => {
                entry.written = 0;
                Some(now)
            }
            Ended::Later(pause) if entry.attempts < ATTEMPTS => {
                let backoff = SignedDuration::from_secs(1 << entry.attempts);
                Some(now + pause.max(backoff))
            }
            Ended::Vanished | Ended::Later(_) | Ended::Refused => {
                self.entries.remove(&id);
                return true;
            }
        };
        match again {
            Some(due) => self.schedule(id, due),
            // Nobody can repeat it any more.
            None if self.is_over(id, now) => drop(self.entries.remove(&id)),
            None => {}
        }
        false
    }

    /// Makes everything that waits due: the last chance.
    pub fn hurry(&mut self, now: Timestamp) {
        let waiting: Vec<u64> = self.due.iter().map(|(_, id)| *id).collect();
        self.due.clear();
        waiting.into_iter().for_each(|id| self.schedule(id, now));
    }

    /// Forgets what cannot be repeated any more.
    pub fn sweep(&mut self, now: Timestamp) {
        let over: Vec<u64> = self.entries.keys().copied().filter(|id| self.is_over(*id, now)).collect();
        over.iter().for_each(|id| drop(self.entries.remove(id)));
        self.buckets.retain(|_, bucket| !bucket.is_full(tick(now)));
    }

    fn schedule(&mut self, id: u64, due: Timestamp) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.due = Some(due);
            self.due.insert((due, id));
        }
    }

    fn is_over(&self, id: u64, now: Timestamp) -> bool {
        self.entries.get(&id).is_none_or(|entry| {
            let idle = entry.due.is_none() && entry.writing == 0;
            idle && now.duration_since(entry.recorded.first) >= self.pace.window
        })
    }

    fn may_create(&mut self, subject: Digest, now: Timestamp) -> bool {
        let Pace { burst, refill, .. } = self.pace;
        let bucket = || TokenBucket::new(refill.unsigned_abs(), burst);
        self.buckets.entry(subject).or_insert_with(bucket).try_take(tick(now))
    }
}

/// A time in the ticks of token buckets. Before 1970 is as good as then.
fn tick(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
