//! Which Event objects have to be written, and when. In: recorded events and the results of writes, with their time. Out:
//! one write at a time. Pure.
//!
//! A new event is written at once. Repetitions wait for [`EventLimits::series_delay`], so that many of them become one update
//! of its series. A token bucket limits the new Events of each object.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::journal::RecordedEvent;
use crate::token_bucket::TokenBucket;
use crate::write::Digest;

/// How often Events are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventLimits {
    /// How long after its first occurrence an event counts as repeated.
    pub window: SignedDuration,
    /// How long a repetition waits for further ones.
    pub series_delay: SignedDuration,
    /// How many new Events of one object may be written without a pause.
    pub burst: u32,
    /// How long it takes until one more may be written.
    pub refill: SignedDuration,
}

/// An event that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub recorded: Arc<RecordedEvent>,
    /// Whether the Event object exists, so that its series has to be updated.
    pub exists: bool,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteResult {
    /// The Event was written.
    Written,
    /// The Event object existed already, with a count of its own.
    Exists,
    /// The Event object does not exist any more: somebody deleted it, or its TTL ended.
    Vanished,
    /// The write may succeed later, but not before this pause is over.
    Later(SignedDuration),
    /// The write will never succeed.
    Refused,
}

/// Whether an event will be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// It will be written now or later.
    Taken,
    /// It will not: its object has too many.
    Limited,
}

#[derive(Debug)]
struct Entry {
    recorded: Arc<RecordedEvent>,
    /// The count of the Event object; 0 if there is no Event object.
    written: u32,
    /// The count that is being written; 0 if none is.
    writing: u32,
    due: Option<Timestamp>,
    attempts: u32,
}

/// The events that have to be written, and those that may still be repeated.
#[derive(Debug)]
pub(super) struct Outbox {
    limits: EventLimits,
    entries: HashMap<u64, Entry>,
    due: BTreeSet<(Timestamp, u64)>,
    buckets: HashMap<Digest, TokenBucket>,
}

/// The most events that are tracked. Further ones are not written, to protect the cluster and this process.
const MOST_ENTRIES: usize = 10_000;

/// How often a write is attempted.
const ATTEMPTS: u32 = 5;

impl Outbox {
    /// An empty one.
    pub(super) fn new(limits: EventLimits) -> Self {
        Self { limits, entries: HashMap::new(), due: BTreeSet::new(), buckets: HashMap::new() }
    }

    /// Adds an event, or a repetition of it.
    pub(super) fn add(&mut self, recorded: Arc<RecordedEvent>, now: Timestamp) -> Offered {
        let id = recorded.id;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.recorded = recorded;
            if entry.due.is_none() && entry.writing == 0 {
                self.schedule(id, now + self.limits.series_delay);
            }
            return Offered::Taken;
        }
        if self.entries.len() >= MOST_ENTRIES {
            self.remove_expired(now);
        }
        if self.entries.len() >= MOST_ENTRIES || !self.may_create(recorded.subject.digest(), now) {
            return Offered::Limited;
        }
        self.entries.insert(id, Entry { recorded, written: 0, writing: 0, due: None, attempts: 0 });
        self.schedule(id, now);
        Offered::Taken
    }

    /// When the next event is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes an event that is due. The caller writes it and calls [`finish`](Self::finish).
    pub(super) fn take(&mut self, now: Timestamp) -> Option<Task> {
        let (due, id) = *self.due.first()?;
        if due > now {
            return None;
        }
        self.due.pop_first();
        let entry = self.entries.get_mut(&id)?;
        entry.due = None;
        entry.writing = entry.recorded.count;
        Some(Task { recorded: entry.recorded.clone(), exists: entry.written > 0 })
    }

    /// Takes the result of a write. Returns whether the event is lost.
    pub(super) fn finish(&mut self, id: u64, result: WriteResult, now: Timestamp) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let writing = std::mem::take(&mut entry.writing);
        entry.attempts += 1;
        let again = match result {
            WriteResult::Written => {
                (entry.written, entry.attempts) = (writing, 0);
                let more = entry.recorded.count > writing;
                more.then(|| now + self.limits.series_delay)
            }
            WriteResult::Exists => {
                (entry.written, entry.attempts) = (1, 0);
                (entry.recorded.count > 1).then_some(now)
            }
            WriteResult::Vanished if entry.attempts < ATTEMPTS => {
                entry.written = 0;
                Some(now)
            }
            WriteResult::Later(pause) if entry.attempts < ATTEMPTS => {
                let backoff = SignedDuration::from_secs(1 << entry.attempts);
                Some(now + pause.max(backoff))
            }
            WriteResult::Vanished | WriteResult::Later(_) | WriteResult::Refused => {
                self.entries.remove(&id);
                return true;
            }
        };
        match again {
            Some(due) => self.schedule(id, due),
            // A later repetition would be a new event.
            None if self.is_expired(id, now) => drop(self.entries.remove(&id)),
            None => {}
        }
        false
    }

    /// Makes all events due that wait, for the last attempt before the process stops.
    pub(super) fn make_all_due(&mut self, now: Timestamp) {
        let waiting: Vec<u64> = self.due.iter().map(|(_, id)| *id).collect();
        self.due.clear();
        waiting.into_iter().for_each(|id| self.schedule(id, now));
    }

    /// Removes events that cannot be repeated any more, and token buckets that are full again.
    pub(super) fn remove_expired(&mut self, now: Timestamp) {
        let expired: Vec<u64> = self.entries.keys().copied().filter(|id| self.is_expired(*id, now)).collect();
        expired.iter().for_each(|id| drop(self.entries.remove(id)));
        self.buckets.retain(|_, bucket| !bucket.is_full(tick(now)));
    }

    fn schedule(&mut self, id: u64, due: Timestamp) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.due = Some(due);
            self.due.insert((due, id));
        }
    }

    fn is_expired(&self, id: u64, now: Timestamp) -> bool {
        self.entries.get(&id).is_none_or(|entry| {
            let idle = entry.due.is_none() && entry.writing == 0;
            idle && now.duration_since(entry.recorded.first) >= self.limits.window
        })
    }

    fn may_create(&mut self, subject: Digest, now: Timestamp) -> bool {
        let EventLimits { burst, refill, .. } = self.limits;
        let bucket = || TokenBucket::new(refill.unsigned_abs(), burst);
        self.buckets.entry(subject).or_insert_with(bucket).try_take(tick(now))
    }
}

/// A time in the ticks of token buckets. Times before 1970 become zero.
fn tick(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
