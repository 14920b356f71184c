//! A store as simple as can be, a list of states, and random walks that compare a real one with it at every step.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{CaseName, Rng, show_commit};
use crate::{Change, Commit, CommitError, Entry, Range, ReadError, Revision, Store, Watch};

type State = BTreeMap<String, Entry>;

/// Every state there ever was, in full: state `n` is what revision `n` shows.
struct Model {
    states: Vec<State>,
    changes: Vec<Change>,
    oldest: u64,
}

impl Model {
    fn newest(&self) -> &State {
        self.states.last().expect("there is always a state")
    }

    fn revision(&self) -> Revision {
        Revision(self.states.len() as u64 - 1)
    }

    fn commit(&mut self, commit: &Commit) -> Result<Revision, CommitError> {
        for condition in &commit.conditions {
            let found = self.newest().get(&**condition.key()).cloned();
            let expected = match condition {
                crate::Condition::Absent(_) => None,
                crate::Condition::Unchanged(_, revision) => Some(*revision),
            };
            if found.as_ref().map(|entry| entry.revision) != expected {
                return Err(CommitError::Conflict { key: condition.key().clone(), found });
            }
        }
        let revision = self.revision().next();
        let (mut state, mut changes) = (self.newest().clone(), Vec::new());
        for write in &commit.writes {
            let key = write.key();
            let before = state.remove(&**key);
            let after = write.value().map(|value| Entry {
                key: key.clone(),
                value: value.clone(),
                revision,
                created: before.as_ref().map_or(revision, |before| before.created),
            });
            if let Some(after) = &after {
                state.insert(key.to_string(), after.clone());
            }
            if before.is_some() || after.is_some() {
                changes.push(Change { revision, key: key.clone(), before, after });
            }
        }
        if !changes.is_empty() {
            self.states.push(state);
            self.changes.extend(changes);
        }
        Ok(self.revision())
    }

    fn readable(&self, at: Option<Revision>) -> Result<&State, ReadError> {
        let (oldest, newest) = (Revision(self.oldest), self.revision());
        match at.unwrap_or(newest) {
            asked if asked < oldest => Err(ReadError::Compacted { asked, oldest }),
            asked if asked > newest => Err(ReadError::Future { asked, newest }),
            at => Ok(&self.states[usize::try_from(at.0).expect("a small number")]),
        }
    }
}

/// A watch and what the model says it has handed out.
struct Watcher {
    watch: Watch,
    prefix: &'static str,
    /// Handed out through here.
    through: Revision,
}

const KEYS: [&str; 9] = ["/a/1", "/a/2", "/a/3", "/b/1", "/b/2", "/b", "/c", "/a/22", "/d/x/y"];
const PREFIXES: [&str; 7] = ["", "/a/", "/b", "/b/", "/c", "/a/2", "/nothing"];

/// Does `steps` random things to an empty store and compares each answer with the model's. Panics, naming the seed, at
/// the first that differs.
pub fn random_walk(store: &dyn Store, seed: u64, steps: usize) {
    let case_name = CaseName(format!("random_walk with seed {seed}"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime for the walk");
    let mut rng = Rng::new(seed);
    let mut model = Model { states: vec![State::new()], changes: Vec::new(), oldest: 0 };
    let mut watchers: Vec<Watcher> = Vec::new();
    for step in 0..steps {
        match rng.below(20) {
            0..8 => {
                let commit = random_commit(&mut rng, &model, step);
                let real = runtime.block_on(store.commit(commit.clone()));
                assert_eq!(show_commit(real), show_commit(model.commit(&commit)), "{commit:?}");
            }
            8..12 => compare_range(&mut rng, &model, store),
            12..14 => {
                let (key, at) = (*rng.pick(&KEYS), random_revision(&mut rng, &model));
                let expect = model.readable(at).map(|state| state.get(key).cloned());
                assert_eq!(store.get(key, at), expect, "{key} at {at:?}");
            }
            14 => {
                let prefix = *rng.pick(&PREFIXES);
                let after = random_revision(&mut rng, &model).unwrap_or(model.revision());
                match (store.watch(prefix, after), model.readable(Some(after))) {
                    (Ok(watch), Ok(_)) => watchers.push(Watcher { watch, prefix, through: after }),
                    (real, expect) => assert_eq!(real.err(), expect.err(), "watch after {after}"),
                }
            }
            15..18 if !watchers.is_empty() => {
                let chosen = rng.below(watchers.len());
                if !compare_watch(&mut rng, &model, &mut watchers[chosen]) {
                    watchers.swap_remove(chosen);
                }
            }
            18 if rng.once_in(2) => {
                let before = random_revision(&mut rng, &model).unwrap_or(model.revision());
                store.compact(before);
                model.oldest = model.oldest.max(before.0.min(model.revision().0));
            }
            _ if !watchers.is_empty() => drop(watchers.swap_remove(rng.below(watchers.len()))),
            _ => {}
        }
        assert_eq!((store.revision(), store.oldest()), (model.revision(), Revision(model.oldest)));
    }
    while let Some(mut watcher) = watchers.pop() {
        while compare_watch(&mut rng, &model, &mut watcher) && watcher.watch.position() < model.revision() {}
    }
    drop(case_name);
}

fn random_commit(rng: &mut Rng, model: &Model, step: usize) -> Commit {
    let mut commit = Commit::default();
    let mut keys = KEYS.to_vec();
    for _ in 0..rng.below(4) {
        let key = keys.swap_remove(rng.below(keys.len()));
        commit = match rng.below(3) {
            0 => commit.delete(key),
            _ => commit.put(key, Bytes::from(format!("{step} {}", "x".repeat(rng.below(50))))),
        };
    }
    for _ in 0..rng.below(3) {
        let key = *rng.pick(&KEYS);
        commit = match model.newest().get(key) {
            // Mostly true, or nothing would ever be written.
            Some(entry) if !rng.once_in(5) => commit.unchanged(key, entry.revision),
            None if !rng.once_in(5) => commit.absent(key),
            _ if rng.once_in(2) => commit.absent(key),
            _ => commit.unchanged(key, random_revision(rng, model).unwrap_or_default()),
        };
    }
    commit
}

/// Mostly one that can be read; sometimes compacted, sometimes one too far.
fn random_revision(rng: &mut Rng, model: &Model) -> Option<Revision> {
    let newest = model.revision().0;
    match rng.below(8) {
        0 => None,
        1 => Some(Revision(rng.next_u64() % (newest + 2))),
        _ => Some(Revision(model.oldest + rng.next_u64() % (newest - model.oldest + 1))),
    }
}

fn compare_range(rng: &mut Rng, model: &Model, store: &dyn Store) {
    let at = random_revision(rng, model);
    let after = (!rng.once_in(3)).then(|| *rng.pick(&KEYS));
    let limit = (!rng.once_in(3)).then(|| rng.below(6));
    let prefix: &str = rng.pick::<&str>(&PREFIXES);
    let range = Range { prefix, after, limit, at };
    let expect = model.readable(at).map(|state| {
        let wanted = |key: &&Entry| key.key.starts_with(range.prefix) && after.is_none_or(|after| *key.key > *after);
        state.values().filter(wanted).cloned().collect::<Vec<_>>()
    });
    assert_eq!(store.count(range), expect.as_ref().map(Vec::len).map_err(|error| *error), "{range:?}");
    let page = store.range(range).map(|page| {
        assert_eq!(page.revision, at.unwrap_or(model.revision()));
        (page.entries, page.more)
    });
    let expect = expect.map(|mut all| {
        let more = limit.is_some_and(|limit| all.len() > limit);
        all.truncate(limit.unwrap_or(usize::MAX));
        (all, more)
    });
    assert_eq!(page, expect, "{range:?}");
}

/// False: the watch has come to its end.
fn compare_watch(rng: &mut Rng, model: &Model, watcher: &mut Watcher) -> bool {
    let Watcher { watch, prefix, through } = watcher;
    let pending: Vec<&Change> =
        model.changes.iter().filter(|change| change.revision > *through && change.key.starts_with(*prefix)).collect();
    let promised = watch.position();
    assert!(promised >= *through, "a position never goes back");
    assert!(pending.first().is_none_or(|first| promised < first.revision), "a position promises what was handed out");
    let max = rng.below(5) + 1;
    match watch.take(max) {
        Ok(changes) => {
            let given: Vec<&Change> = changes.iter().collect();
            assert_eq!(given, pending[..given.len().min(pending.len())], "in order, each once");
            assert!(pending.is_empty() || !given.is_empty(), "what is there is handed out");
            assert!(given.len() <= max || given.iter().all(|change| change.revision == given[0].revision));
            if let (Some(last), Some(next)) = (given.last(), pending.get(given.len())) {
                assert!(last.revision < next.revision, "a commit is not split");
            }
            *through = given.last().map_or(*through, |change| change.revision);
            true
        }
        Err(error) => {
            assert!(matches!(error, ReadError::Compacted { .. }), "{error}");
            let lost = pending.first().is_some_and(|first| first.revision.0 <= model.oldest);
            assert!(lost, "this watch lost nothing, but was told: {error}");
            false
        }
    }
}
