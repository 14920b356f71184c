//! What is known of the objects of a watch. In: lists, changes, and our own writes. Out: changes against what was known
//! before. Pure; never waits.
//!
//! There are two layers: what the watch has brought, and what we have written and the watch has not brought yet. Readers
//! see the second above the first, and subscribers are told whenever what readers see changes. So a write of ours is told
//! when it is made, and when the watch brings just that resource version nothing is told: whoever was woken by the write has
//! seen it. What others change is told when the watch brings it, unless a later write of ours, which includes it, was told
//! already.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use konverge_core::ObjectKey;
use tokio::time::Instant;

use super::change::{Change, Origin};
use super::index::{Function, Indexed, Summer, Sums};
use super::layer::Layer;
use crate::object::Object;

/// How long a deletion of ours hides what it deleted at most. The watch tells of it long before, unless it did so before
/// we noted the deletion at all.
const HIDDEN: Duration = Duration::from_secs(600);

/// The same for one of an object that nobody here has seen: the watch has mostly told of its end already.
const HIDDEN_UNSEEN: Duration = Duration::from_secs(60);

/// How often deletions are looked for that have hidden long enough.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// What is known.
pub(crate) struct State {
    /// The indexes of both layers, in their order. They are only ever added to.
    functions: Arc<[Function]>,
    summer: Summer,
    watched: Layer,
    /// Our writes that the watch has not brought yet.
    ahead: Layer,
    /// The same by version, and when each was noted.
    awaited: BTreeSet<(u64, ObjectKey)>,
    noted: HashMap<ObjectKey, u64>,
    /// Our deletions that the watch has not brought yet.
    gone: HashMap<ObjectKey, Vec<Gone>>,
    /// Those of them that hide versions before one, by that.
    gone_below: BTreeSet<(u64, ObjectKey)>,
    /// When those that have hidden long enough were last looked for.
    swept: Option<Instant>,
    /// Counts what we note, so that a list knows what it is newer than.
    notes: u64,
    /// Lists asked for and not yet complete: what had been noted when the newest was sent.
    list_covers: u64,
    /// How far the watch has come.
    position: u64,
    round: u32,
    listing: bool,
    synced: bool,
}

struct Gone {
    uid: String,
    /// Versions before this one are hidden; all of them, if there is none.
    below: Option<u64>,
    note: u64,
    until: Instant,
}

impl State {
    pub(super) fn new() -> Self {
        let (summer, mut watched, mut ahead) = (Summer::default(), Layer::default(), Layer::default());
        for layer in [&mut watched, &mut ahead] {
            layer.add_index(|_| Sums::None);
        }
        Self {
            functions: [Function::owners(summer.clone())].into(),
            summer,
            watched,
            ahead,
            awaited: BTreeSet::new(),
            noted: HashMap::new(),
            gone: HashMap::new(),
            gone_below: BTreeSet::new(),
            swept: None,
            notes: 0,
            list_covers: 0,
            position: 0,
            round: 0,
            listing: false,
            synced: false,
        }
    }

    /// A list is being asked for: it will show all that was noted before.
    pub(super) fn list_sent(&mut self) {
        self.list_covers = self.notes;
    }

    /// The server is behind what it has shown before: how far the watch had come says nothing about what comes now.
    pub(super) fn rewound(&mut self) {
        self.position = 0;
    }

    /// What follows is a list. One that was under way was not completed.
    pub(super) fn list_began(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.listing = true;
    }

    /// An object of the list. `indexed` is not needed of one that is known in this version.
    pub(super) fn listed(&mut self, object: Arc<Object>, indexed: Indexed, changes: &mut Vec<Change>) {
        let origin = if self.synced { Origin::Relist } else { Origin::Initial };
        self.put(object, indexed, origin, changes);
    }

    /// The list was complete: what it did not show is gone. It was taken at `version`, if that is known: then it is newer
    /// than our writes up to there, whenever they were noted. Somebody may have deleted what we made after the list was
    /// asked for and before the server took it, and no watch will tell of that.
    pub(super) fn list_done(&mut self, version: Option<u64>, changes: &mut Vec<Change>) {
        for key in self.watched.untouched(self.round) {
            let before = self.seen_now(&key);
            let removed = self.watched.remove(&key).expect("the key was just found");
            // An object that was there and is not in the list is gone, also if we wrote to it after the list was asked for.
            if self.ahead.get(&key).is_some_and(|ahead| ahead.uid() == removed.uid()) {
                self.forget(&key);
            }
            self.record_change(&key, before, Origin::Relist, changes);
        }
        // A complete list is at least as new as the newest object in it.
        let newest = self.watched.iter().filter_map(|object| object.revision()).max().unwrap_or_default();
        self.position = self.position.max(newest).max(version.unwrap_or_default());
        let is_covered = |(key, note): &(&ObjectKey, &u64)| {
            let written = || self.ahead.get(key).and_then(|written| written.revision());
            **note <= self.list_covers || version.is_some_and(|version| written().is_some_and(|at| at <= version))
        };
        let covered: Vec<ObjectKey> = self.noted.iter().filter(is_covered).map(|(key, _)| key.clone()).collect();
        for key in covered {
            let before = self.seen_now(&key);
            self.forget(&key);
            self.record_change(&key, before, Origin::Relist, changes);
        }
        let covers = self.list_covers;
        self.retain_gone(|gone| gone.note > covers, Origin::Relist, changes);
        self.listing = false;
        self.synced = true;
    }

    /// An object was created or changed.
    pub(super) fn applied(&mut self, object: Arc<Object>, indexed: Indexed, changes: &mut Vec<Change>) {
        let revision = object.revision();
        self.put(object, indexed, Origin::Watch, changes);
        self.reached(revision, changes);
    }

    /// An object is gone.
    pub(super) fn deleted(&mut self, object: &Object, now: Instant, changes: &mut Vec<Change>) {
        self.sweep(now, changes);
        let key = object.key();
        let before = self.seen_now(&key);
        // It may be unknown: that happens when a watch resumes a little before it ended.
        if self.watched.like(object).is_some_and(|known| known.uid() == object.uid()) {
            self.watched.remove(&key);
        }
        self.retain_gone_of(&key, |gone| gone.uid != object.uid());
        self.caught_up(object);
        self.record_change(&key, before, Origin::Watch, changes);
        self.reached(object.revision(), changes);
    }

    /// We wrote this object, and this is what the server answered.
    pub(super) fn wrote(&mut self, object: Arc<Object>, indexed: Indexed, now: Instant, changes: &mut Vec<Change>) {
        let key = object.key();
        let Some(revision) = object.revision() else { return };
        if self.has_seen(&key, object.resource_version()) {
            return;
        }
        let newer = self.ahead.get(&key).and_then(|ahead| ahead.revision()).is_some_and(|ahead| ahead >= revision);
        if newer {
            return;
        }
        let before = self.seen_now(&key);
        // Other objects that had this name are gone, though the watch has not told of that.
        for layer in [&self.watched, &self.ahead] {
            if let Some(former) = layer.get(&key).filter(|former| former.uid() != object.uid()) {
                let gone =
                    Gone { uid: former.uid().to_owned(), below: None, note: self.notes + 1, until: now + HIDDEN };
                self.gone.entry(key.clone()).or_default().push(gone);
            }
        }
        self.forget(&key);
        self.notes += 1;
        self.ahead.put(object, 0, indexed);
        self.awaited.insert((revision, key.clone()));
        self.noted.insert(key.clone(), self.notes);
        self.record_change(&key, before, Origin::Own, changes);
    }

    /// We deleted the object with this uid, and it is gone.
    pub(super) fn removed(&mut self, key: &ObjectKey, uid: &str, now: Instant, changes: &mut Vec<Change>) {
        // Noted even if the watch shows nothing to hide: it may be so far behind that the object is yet to come.
        self.hide(key, uid, None, now, changes);
    }

    /// We wrote this object, and it does not belong here any more.
    pub(super) fn left(&mut self, object: &Object, now: Instant, changes: &mut Vec<Change>) {
        let known = self.ahead.like(object).or_else(|| self.watched.like(object));
        if known.is_some_and(|known| known.uid() == object.uid() && known.revision() < object.revision()) {
            self.hide(&object.key(), object.uid(), object.revision(), now, changes);
        }
    }

    fn hide(&mut self, key: &ObjectKey, uid: &str, below: Option<u64>, now: Instant, changes: &mut Vec<Change>) {
        self.sweep(now, changes);
        let before = self.seen_now(key);
        let seen = [&self.watched, &self.ahead].iter().any(|layer| layer.get(key).is_some_and(|one| one.uid() == uid));
        if self.ahead.get(key).is_some_and(|ahead| ahead.uid() == uid) {
            self.forget(key);
        }
        self.retain_gone_of(key, |gone| gone.uid != uid);
        self.notes += 1;
        let until = now + if seen { HIDDEN } else { HIDDEN_UNSEEN };
        let gone = Gone { uid: uid.to_owned(), below, note: self.notes, until };
        self.gone_below.extend(below.map(|below| (below, key.clone())));
        self.gone.entry(key.clone()).or_default().push(gone);
        self.record_change(key, before, Origin::Own, changes);
    }

    /// What readers see of a key now, to be compared by [`State::record_change`] after a step.
    fn seen_now(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.get(key).cloned()
    }

    /// Tells how what readers see of a key has changed, if it has.
    fn record_change(&self, key: &ObjectKey, before: Option<Arc<Object>>, origin: Origin, changes: &mut Vec<Change>) {
        let after = self.get(key).cloned();
        if let (Some(before), Some(after)) = (&before, &after)
            && before.uid() == after.uid()
        {
            if before.resource_version() != after.resource_version() {
                changes.push(Change::updated(before.clone(), after.clone(), origin));
            }
            return;
        }
        // Another object under the same name is told as a deletion and a creation.
        changes.extend(before.map(|before| Change::deleted(before, origin)));
        changes.extend(after.map(|after| Change::created(after, origin)));
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        let object = self.ahead.get(key).or_else(|| self.watched.get(key))?;
        (!object.is_stub() && !self.is_hidden(object)).then_some(object)
    }

    /// Whether there is only a stub of an object.
    pub(super) fn is_elsewhere(&self, key: &ObjectKey) -> bool {
        let object = self.ahead.get(key).or_else(|| self.watched.get(key));
        object.is_some_and(|object| object.is_stub() && !self.is_hidden(object))
    }

    /// Whether there is a stub of just this version of an object.
    pub(super) fn is_stub_of(&self, object: &Object) -> bool {
        self.watched.like(object).is_some_and(|known| known.is_stub() && is_same_version(known, object))
    }

    /// Puts an object in the place of its stub, or a stub in the place of its object. Of another version nothing is changed.
    pub(super) fn exchange(&mut self, object: Arc<Object>, indexed: Indexed, changes: &mut Vec<Change>) {
        let is_other = |known: &&Arc<Object>| is_same_version(known, &object) && known.is_stub() != object.is_stub();
        if self.watched.like(&object).is_none_or(|known| !is_other(&known)) {
            return;
        }
        let key = object.key();
        let before = self.seen_now(&key);
        // A list that is under way says for itself whether the object is there.
        let round = self.watched.round(&object).unwrap_or(self.round);
        self.watched.put(object, round, indexed);
        self.record_change(&key, before, Origin::Initial, changes);
    }

    /// Every object readers see.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.seen(self.watched.iter(), self.ahead.iter())
    }

    /// Every object in a namespace that readers see.
    pub(super) fn iter_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.seen(self.watched.iter_in(namespace), self.ahead.iter_in(namespace))
    }

    /// The objects the index `name` finds under `value`; nothing if there is no such index.
    pub(super) fn by_index(&self, name: &str, value: &str) -> Option<Vec<Arc<Object>>> {
        let (at, sum) = (self.index(name)?, self.summer.sum(value));
        Some(self.seen(self.watched.by_index(at, sum), self.ahead.by_index(at, sum)).cloned().collect())
    }

    /// What readers see of some of both layers.
    fn seen<'s>(
        &'s self,
        watched: impl Iterator<Item = &'s Arc<Object>>,
        ahead: impl Iterator<Item = &'s Arc<Object>>,
    ) -> impl Iterator<Item = &'s Arc<Object>> {
        let seen = |object: &&Arc<Object>| !object.is_stub() && !self.is_hidden(object);
        watched.filter(|object| !self.is_overtaken(object)).chain(ahead).filter(seen)
    }

    /// The functions whose sums of an object have to come with it. They are run while nothing is locked.
    pub(super) fn functions(&self) -> Arc<[Function]> {
        self.functions.clone()
    }

    /// Makes sums as this state's functions do.
    pub(super) fn summer(&self) -> Summer {
        self.summer.clone()
    }

    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.functions.iter().position(|function| &*function.name == name)
    }

    /// Every object that is kept, whether readers see it or not: an index is over all of them.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.watched.iter().chain(self.ahead.iter())
    }

    /// Adds an index. `sums` are those of everything that is kept.
    pub(super) fn add_index(&mut self, function: Function, sums: impl Fn(&Arc<Object>) -> Sums) {
        self.watched.add_index(&sums);
        self.ahead.add_index(&sums);
        self.functions = self.functions.iter().cloned().chain([function]).collect();
    }

    /// Whether the watch has brought just this version of an object.
    pub(super) fn is_known(&self, object: &Object) -> bool {
        let same = |known: &Arc<Object>| is_same_version(known, object) && known.is_stub() == object.is_stub();
        self.watched.like(object).is_some_and(same)
    }

    /// Whether the watch has brought this version of an object, or one after it.
    pub(super) fn has_seen(&self, key: &ObjectKey, resource_version: &str) -> bool {
        let known = self.watched.get(key);
        if known.is_some_and(|known| known.resource_version() == resource_version) {
            return true;
        }
        let Ok(revision) = resource_version.parse::<u64>() else { return false };
        // While a list comes in, the watch stands where it stood before.
        revision <= self.position || known.and_then(|known| known.revision()).is_some_and(|known| known >= revision)
    }

    /// Whether the watch has brought every write of ours to an object.
    pub(super) fn is_caught_up(&self, key: &ObjectKey) -> bool {
        !self.noted.contains_key(key) && self.watched.get(key).is_none_or(|object| !self.is_hidden(object))
    }

    /// Whether the first list is complete.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// How many objects are here in full.
    pub(super) fn len(&self) -> usize {
        self.watched.len() - self.watched.stubs()
    }

    pub(super) fn bytes(&self) -> usize {
        self.watched.bytes() + self.ahead.bytes()
    }

    /// How many writes of ours the watch has not brought yet.
    pub(super) fn ahead(&self) -> usize {
        self.ahead.len() + self.gone.values().map(Vec::len).sum::<usize>()
    }

    fn put(&mut self, object: Arc<Object>, indexed: Indexed, origin: Origin, changes: &mut Vec<Change>) {
        if self.is_known(&object) {
            self.watched.touch(&object, self.round);
            // A relist brings every object again, and mostly there is no write of ours.
            if !self.ahead.is_empty() {
                let key = object.key();
                let before = self.seen_now(&key);
                self.caught_up(&object);
                self.record_change(&key, before, origin, changes);
            }
            return;
        }
        // Without writes of ours readers see what the watch brings, and nothing has to be looked up.
        if self.ahead.is_empty() && self.gone.is_empty() {
            let is_seen = |object: &Arc<Object>| !object.is_stub();
            let before = self.watched.put(object.clone(), self.round, indexed).filter(is_seen);
            match (before, Some(object).filter(is_seen)) {
                (Some(before), Some(after)) if before.uid() == after.uid() => {
                    changes.push(Change::updated(before, after, origin));
                }
                (former, after) => {
                    changes.extend(former.map(|former| Change::deleted(former, origin)));
                    changes.extend(after.map(|after| Change::created(after, origin)));
                }
            }
            return;
        }
        let key = object.key();
        let before = self.seen_now(&key);
        let former = self.watched.put(object.clone(), self.round, indexed);
        if let Some(former) = former.filter(|former| former.uid() != object.uid()) {
            self.retain_gone_of(&key, |gone| gone.uid != former.uid());
        }
        self.caught_up(&object);
        self.record_change(&key, before, origin, changes);
    }

    /// The watch has brought this version of an object: our own writes up to it are no longer ahead.
    fn caught_up(&mut self, object: &Object) {
        if self.ahead.is_empty() {
            return;
        }
        let ahead = self.ahead.like(object).and_then(|ahead| ahead.revision());
        if let (Some(ahead), Some(revision)) = (ahead, object.revision())
            && ahead <= revision
        {
            self.forget(&object.key());
        }
    }

    /// Looks at all of our deletions. There may be many, so this is not for every change.
    fn retain_gone(&mut self, keep: impl Fn(&Gone) -> bool, origin: Origin, changes: &mut Vec<Change>) {
        let over = |(_, gone): &(&ObjectKey, &Vec<Gone>)| !gone.iter().all(&keep);
        let keys: Vec<ObjectKey> = self.gone.iter().filter(over).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let before = self.seen_now(&key);
            self.retain_gone_of(&key, &keep);
            self.record_change(&key, before, origin, changes);
        }
    }

    /// Looks at those of one name.
    fn retain_gone_of(&mut self, key: &ObjectKey, keep: impl Fn(&Gone) -> bool) {
        if let Some(gone) = self.gone.get_mut(key) {
            gone.retain(keep);
            if gone.is_empty() {
                self.gone.remove(key);
            }
        }
    }

    /// Forgets, now and then, the deletions that have hidden long enough.
    fn sweep(&mut self, now: Instant, changes: &mut Vec<Change>) {
        if self.swept.is_some_and(|swept| now < swept + SWEEP_EVERY) {
            return;
        }
        self.swept = Some(now);
        self.retain_gone(|gone| gone.until > now, Origin::Own, changes);
    }

    /// The watch has come so far, and with it every write up to there: changes of a kind come in order.
    fn reached(&mut self, revision: Option<u64>, changes: &mut Vec<Change>) {
        let Some(revision) = revision else { return };
        self.position = self.position.max(revision);
        while self.gone_below.first().is_some_and(|(below, _)| *below <= revision)
            && let Some((below, key)) = self.gone_below.pop_first()
        {
            let before = self.seen_now(&key);
            self.retain_gone_of(&key, |gone| gone.below != Some(below));
            self.record_change(&key, before, Origin::Watch, changes);
        }
        while let Some((first, key)) = self.awaited.first()
            && *first <= revision
        {
            let key = key.clone();
            let before = self.seen_now(&key);
            self.forget(&key);
            self.record_change(&key, before, Origin::Watch, changes);
        }
    }

    fn forget(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.noted.remove(key)?;
        let object = self.ahead.remove(key)?;
        if let Some(revision) = object.revision() {
            self.awaited.remove(&(revision, key.clone()));
        }
        Some(object)
    }

    fn is_overtaken(&self, watched: &Object) -> bool {
        !self.ahead.is_empty() && self.ahead.like(watched).is_some()
    }

    fn is_hidden(&self, object: &Object) -> bool {
        let hides =
            |gone: &Gone| gone.uid == object.uid() && gone.below.is_none_or(|below| object.revision() < Some(below));
        !self.gone.is_empty() && self.gone.get(&object.key()).is_some_and(|gone| gone.iter().any(hides))
    }
}

fn is_same_version(known: &Object, object: &Object) -> bool {
    known.resource_version() == object.resource_version() && known.uid() == object.uid()
}

#[cfg(test)]
mod tests;
