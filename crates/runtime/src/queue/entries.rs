//! Where the entries of a queue live. In: keys and causes. Out: slots, found by key in one probe and linked into lists
//! (ready by priority, running, resting) without a search. Slots and cause nodes are used again, so adding and taking
//! allocates only while the queue is larger than it ever was. Decides nothing about order: that is `order.rs`.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use konverge_core::ObjectKey;

use super::{CAUSES, Causes, Priority};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// An empty queue that grew beyond this many slots gives its memory back: a mass resync is a peak, not the normal.
pub(super) const KEEP: usize = 1024;

/// Where an entry is between its first wakeup and its last requeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In no list: just made, just finished, or a free slot.
    Idle,
    /// In the timers, by a wakeup that asked for a delay.
    Delayed,
    /// In the timers, because its last reconcile asked to run again.
    Again,
    /// In the timers, because its last reconcile failed.
    Backoff,
    /// In the list of its priority.
    Ready,
    /// Handed out.
    Running,
    /// Given up until something wakes it.
    Resting,
}

/// One key. Its fields mean what its state makes them mean; the largest queues are of waiting entries, so it is small.
#[derive(Debug)]
pub(super) struct Entry {
    /// Empty in a free slot.
    pub key: Option<ObjectKey>,
    hash: u64,
    /// Waiting: when it is due. Ready: when it took its place. Running: since when. Resting: since when.
    pub at: u64,
    /// Ready: since when it could have run. Running and woken: when the wakeup is due.
    pub ready: u64,
    /// Backoff and resting: no wakeup runs it before this.
    pub floor: u64,
    /// The neighbours in its list. The place in the timers, or the next free slot, is in `next`.
    prev: u32,
    pub next: u32,
    first_cause: u32,
    last_cause: u32,
    /// Failures in a row.
    pub failures: u32,
    /// Runs in a row, between and besides the failures, in which others were in the way. They lengthen the wait, and use
    /// up no retries.
    pub hindered: u16,
    /// How many changes in a row have cut a backoff short.
    pub early: u16,
    dropped_causes: u16,
    causes: u8,
    pub state: State,
    pub priority: Priority,
    /// Running: the priority of the wakeups that came meanwhile.
    pub woken: Option<Priority>,
    /// Backoff: a change has cut it short.
    pub cut: bool,
    /// Given up, and neither tried nor changed since.
    pub gave_up: bool,
}

/// A list of entries, linked through them.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub head: u32,
    tail: u32,
    pub len: usize,
}

impl Entry {
    /// Runs in a row that did not end well, whoever was to blame.
    pub(super) fn bad_runs(&self) -> u32 {
        self.failures.saturating_add(u32::from(self.hindered))
    }

    pub(super) fn forget_failures(&mut self) {
        (self.failures, self.hindered, self.early) = (0, 0, 0);
    }
}

impl List {
    pub(super) const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };
}

#[derive(Debug)]
struct CauseNode<C> {
    /// Empty in a free node.
    cause: Option<C>,
    next: u32,
}

/// The entries, their index by key, and the causes they wait with.
#[derive(Debug)]
pub(super) struct Entries<C> {
    slots: Vec<Entry>,
    free: u32,
    index: HashTable<u32>,
    causes: Vec<CauseNode<C>>,
    free_cause: u32,
    hasher: DefaultHashBuilder,
}

impl<C> Entries<C> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            index: HashTable::new(),
            causes: Vec::new(),
            free_cause: NONE,
            hasher: DefaultHashBuilder::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// What hashes keys; a copy of it hashes outside of a lock.
    pub(super) fn hasher(&self) -> &DefaultHashBuilder {
        &self.hasher
    }

    pub(super) fn get(&self, slot: u32) -> &Entry {
        &self.slots[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.slots[slot as usize]
    }

    pub(super) fn find(&self, hash: u64, key: &ObjectKey) -> Option<u32> {
        let same = |slot: &u32| {
            let entry = &self.slots[*slot as usize];
            entry.hash == hash && entry.key.as_ref() == Some(key)
        };
        self.index.find(hash, same).copied()
    }

    /// A new, idle entry for a key that has none.
    pub(super) fn insert(&mut self, hash: u64, key: ObjectKey) -> u32 {
        let entry = Entry {
            key: Some(key),
            hash,
            at: 0,
            ready: 0,
            floor: 0,
            prev: NONE,
            next: NONE,
            first_cause: NONE,
            last_cause: NONE,
            failures: 0,
            hindered: 0,
            early: 0,
            dropped_causes: 0,
            causes: 0,
            state: State::Idle,
            priority: Priority::Resync,
            woken: None,
            cut: false,
            gave_up: false,
        };
        let slot = match self.free {
            NONE => {
                self.slots.push(entry);
                u32::try_from(self.slots.len() - 1)
                    .expect("a queue of four thousand million keys does not fit in memory")
            }
            slot => {
                self.free = self.get(slot).next;
                *self.get_mut(slot) = entry;
                slot
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |slot| slots[*slot as usize].hash);
        slot
    }

    /// Forgets an entry that is in no list.
    pub(super) fn remove(&mut self, slot: u32) {
        if self.get(slot).causes > 0 {
            drop(self.take_causes(slot));
        }
        let hash = self.get(slot).hash;
        if let Ok(found) = self.index.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        let free = self.free;
        let entry = self.get_mut(slot);
        (entry.key, entry.state, entry.next) = (None, State::Idle, free);
        self.free = slot;
        if self.index.is_empty() && self.slots.len() > KEEP {
            *self = Self { hasher: self.hasher.clone(), ..Self::new() };
        }
    }

    pub(super) fn push_back(&mut self, list: &mut List, slot: u32) {
        let tail = list.tail;
        let entry = self.get_mut(slot);
        (entry.prev, entry.next) = (tail, NONE);
        match tail {
            NONE => list.head = slot,
            tail => self.get_mut(tail).next = slot,
        }
        list.tail = slot;
        list.len += 1;
    }

    pub(super) fn unlink(&mut self, list: &mut List, slot: u32) {
        let entry = self.get(slot);
        let (prev, next) = (entry.prev, entry.next);
        match prev {
            NONE => list.head = next,
            prev => self.get_mut(prev).next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.get_mut(next).prev = prev,
        }
        list.len -= 1;
    }

    /// Remembers why the key was woken; the oldest reason makes room for the newest.
    pub(super) fn push_cause(&mut self, slot: u32, cause: C) {
        if usize::from(self.get(slot).causes) == CAUSES {
            self.drop_oldest_cause(slot);
        }
        let node = CauseNode { cause: Some(cause), next: NONE };
        let at = match self.free_cause {
            NONE => {
                self.causes.push(node);
                // At most CAUSES for each slot; the slots are counted.
                (self.causes.len() - 1) as u32
            }
            at => {
                self.free_cause = self.causes[at as usize].next;
                self.causes[at as usize] = node;
                at
            }
        };
        let entry = &mut self.slots[slot as usize];
        match entry.last_cause {
            NONE => entry.first_cause = at,
            last => self.causes[last as usize].next = at,
        }
        entry.last_cause = at;
        entry.causes += 1;
    }

    /// Hands the causes of an entry out, oldest first.
    pub(super) fn take_causes(&mut self, slot: u32) -> Causes<C> {
        let entry = &mut self.slots[slot as usize];
        let mut causes = Causes::none(std::mem::take(&mut entry.dropped_causes));
        let mut at = entry.first_cause;
        if at == NONE {
            return causes;
        }
        // The whole chain goes to the free ones as it is.
        self.causes[entry.last_cause as usize].next = self.free_cause;
        self.free_cause = entry.first_cause;
        for _ in 0..entry.causes {
            let node = &mut self.causes[at as usize];
            node.cause.take().into_iter().for_each(|cause| causes.push(cause));
            at = node.next;
        }
        (entry.first_cause, entry.last_cause, entry.causes) = (NONE, NONE, 0);
        causes
    }

    fn drop_oldest_cause(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let at = entry.first_cause;
        let node = &mut self.causes[at as usize];
        node.cause = None;
        entry.first_cause = node.next;
        node.next = self.free_cause;
        self.free_cause = at;
        entry.causes -= 1;
        entry.dropped_causes = entry.dropped_causes.saturating_add(1);
    }
}

/// The hash by which a key is found.
pub(super) fn hash(hasher: &DefaultHashBuilder, key: &ObjectKey) -> u64 {
    hasher.hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> ObjectKey {
        ObjectKey::new(Some("default"), &format!("web-{n}"))
    }

    #[test]
    fn slots_and_cause_nodes_are_used_again() {
        let mut entries = Entries::new();
        for round in 0..100 {
            let slots: Vec<u32> = (0..10)
                .map(|n| {
                    let slot = entries.insert(hash(entries.hasher(), &key(n)), key(n));
                    (0..20).for_each(|cause| entries.push_cause(slot, cause));
                    slot
                })
                .collect();
            assert_eq!((entries.slots.len(), entries.causes.len()), (10, 10 * CAUSES), "round {round}");
            for slot in slots {
                let causes = entries.take_causes(slot);
                assert_eq!((causes.iter().copied().collect::<Vec<_>>(), causes.dropped()), ((12..20).collect(), 12));
                entries.remove(slot);
            }
            assert_eq!(entries.len(), 0);
        }
    }

    #[test]
    fn an_empty_queue_gives_a_peak_back() {
        let mut entries = Entries::<()>::new();
        let slots: Vec<u32> = (0..5_000).map(|n| entries.insert(hash(entries.hasher(), &key(n)), key(n))).collect();
        assert_eq!(entries.find(hash(entries.hasher(), &key(4_000)), &key(4_000)), Some(slots[4_000]));
        slots.into_iter().for_each(|slot| entries.remove(slot));
        assert_eq!((entries.slots.capacity(), entries.len()), (0, 0));
        assert_eq!(entries.find(hash(entries.hasher(), &key(1)), &key(1)), None);
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Entry>() <= 88, "{}", size_of::<Entry>());
    }
}
