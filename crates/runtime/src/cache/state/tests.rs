//! The state against a model of a server: whatever is listed, watched, missed and written, readers see at least our own
//! writes, subscribers are told each change once, and indexes find exactly what is there.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ApiResource;
use proptest::prelude::*;
use serde_json::json;

use super::super::index::Values;
use super::*;
use crate::object::Mode;

fn object(name: &str, uid: u64, version: u64, color: u8) -> Arc<Object> {
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": format!("owner-{}", color % 2)}]);
    let metadata = json!({
        "name": name, "namespace": "default", "uid": uid.to_string(), "resourceVersion": version.to_string(),
        "ownerReferences": owner, "labels": {"color": color.to_string()}
    });
    let json = json!({ "metadata": metadata }).to_string();
    Arc::new(Object::parse(&ApiResource::erase::<ConfigMap>(&()), &json, Mode::Full).unwrap())
}

/// What indexes find an object by.
fn indexed(state: &State, object: &Object) -> Indexed {
    state.functions().iter().map(|function| function.of(object)).collect()
}

fn listed(state: &mut State, object: Arc<Object>, changes: &mut Vec<Change>) {
    let indexed = indexed(state, &object);
    state.listed(object, indexed, changes);
}

fn applied(state: &mut State, object: Arc<Object>, changes: &mut Vec<Change>) {
    let indexed = indexed(state, &object);
    state.applied(object, indexed, changes);
}

fn wrote(state: &mut State, object: Arc<Object>, changes: &mut Vec<Change>) {
    let indexed = indexed(state, &object);
    state.wrote(object, indexed, Instant::now(), changes);
}

/// A server: what is there, and what happened, of which the watch may be behind.
#[derive(Default)]
struct Model {
    revision: u64,
    objects: BTreeMap<String, Arc<Object>>,
    /// What the watch has yet to bring: the object, and whether it is gone.
    events: Vec<(Arc<Object>, bool)>,
}

impl Model {
    fn write(&mut self, name: &str, color: u8) -> Arc<Object> {
        self.revision += 1;
        let uid = self.objects.get(name).map_or(self.revision, |object| object.uid().parse().unwrap());
        let object = object(name, uid, self.revision, color);
        self.objects.insert(name.to_owned(), object.clone());
        self.events.push((object.clone(), false));
        object
    }

    fn delete(&mut self, name: &str) -> Option<Arc<Object>> {
        let known = self.objects.remove(name)?;
        self.revision += 1;
        let color = known.label("color").unwrap().parse().unwrap();
        let last = object(name, known.uid().parse().unwrap(), self.revision, color);
        self.events.push((last, true));
        Some(known)
    }
}

/// A subscriber: what it was told.
#[derive(Default)]
struct Told {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    deleted: BTreeMap<String, usize>,
}

impl Told {
    fn hear(&mut self, changes: Vec<Change>) {
        for change in changes {
            let known = self.objects.get(&change.key());
            match (change.before(), change.after()) {
                (None, Some(_)) => assert!(known.is_none(), "{change:?} of a known object"),
                (Some(before), Some(after)) => {
                    assert_eq!(known.map(|known| known.resource_version()), Some(before.resource_version()));
                    assert_ne!(before.resource_version(), after.resource_version());
                    assert_eq!(before.uid(), after.uid());
                }
                (Some(before), None) => {
                    *self.deleted.entry(before.uid().to_owned()).or_default() += 1;
                    assert_eq!(self.deleted[before.uid()], 1, "{before:?} is deleted twice");
                }
                (None, None) => unreachable!(),
            }
            match change.after() {
                Some(after) => {
                    assert!(!self.deleted.contains_key(after.uid()), "{after:?} is a phantom");
                    self.objects.insert(change.key(), after.clone());
                }
                None => drop(self.objects.remove(&change.key())),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Somebody writes.
    Theirs(u8, u8),
    /// Somebody deletes.
    TheirsGone(u8),
    /// We write, and note it.
    Ours(u8, u8),
    /// We delete, and note it.
    OursGone(u8),
    /// The watch brings so many events.
    Watch(u8),
    /// The watch loses what it has not brought, and lists.
    Relist(Listing),
}

/// What happens around a list.
#[derive(Clone, Debug, Default)]
struct Listing {
    /// After it was asked for and before the server takes it we write this object, and somebody may delete it at once.
    before: Option<(u8, bool)>,
    /// So many objects into it it begins anew.
    cut: Option<u8>,
    /// While it comes in we write this object.
    amid: Option<u8>,
    /// Whether it says at which version it was taken.
    tells_version: bool,
}

fn listing() -> impl Strategy<Value = Listing> {
    let before = proptest::option::of((0u8..5, any::<bool>()));
    (before, proptest::option::of(0u8..4), proptest::option::of(0u8..5), any::<bool>())
        .prop_map(|(before, cut, amid, tells_version)| Listing { before, cut, amid, tells_version })
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0u8..5;
    prop_oneof![
        3 => (name(), 0u8..4).prop_map(|(name, color)| Step::Theirs(name, color)),
        2 => name().prop_map(Step::TheirsGone),
        3 => (name(), 0u8..4).prop_map(|(name, color)| Step::Ours(name, color)),
        2 => name().prop_map(Step::OursGone),
        4 => (1u8..6).prop_map(Step::Watch),
        1 => listing().prop_map(Step::Relist),
    ]
}

fn name(at: u8) -> String {
    format!("o{at}")
}

/// What we last did to each object.
type Own = BTreeMap<String, Did>;

enum Did {
    Wrote(Arc<Object>),
    Removed(String),
}

fn check(state: &State, model: &Model, own: &Own, told: &Told) {
    // Reads after a write see at least that write.
    for (name, did) in own {
        match (did, state.get(&ObjectKey::new(Some("default"), name))) {
            (Did::Wrote(written), Some(seen)) => {
                assert!(seen.revision() >= written.revision(), "{seen:?} is older than {written:?}");
            }
            // Somebody else deleted it since.
            (Did::Wrote(written), None) => {
                assert!(
                    model.objects.get(name).is_none_or(|now| now.uid() != written.uid()),
                    "{written:?} is not seen"
                );
            }
            (Did::Removed(uid), seen) => {
                assert!(seen.is_none_or(|seen| seen.uid() != uid), "{seen:?} was deleted by us")
            }
        }
    }
    // Indexes find what reading everything finds.
    let all: Vec<&Arc<Object>> = state.iter().collect();
    let mut keys: Vec<_> = all.iter().map(|object| object.key()).collect();
    keys.sort();
    let count = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), count, "an object is there twice");
    for (index, values) in [("owner uid", ["owner-0", "owner-1"]), ("color", ["0", "3"])] {
        for value in values {
            let mut found: Vec<String> =
                state.by_index(index, value).unwrap().iter().map(|o| format!("{o:?}")).collect();
            let is = |object: &&&Arc<Object>| match index {
                "color" => object.label("color").as_deref() == Some(value),
                _ => object.owners().any(|owner| owner.uid == value),
            };
            let mut expect: Vec<String> = all.iter().filter(is).map(|object| format!("{object:?}")).collect();
            found.sort();
            expect.sort();
            assert_eq!(found, expect, "{index}={value}");
        }
    }
    let sizes: usize = state.watched.iter().chain(state.ahead.iter()).map(|object| object.size()).sum();
    assert_eq!(state.bytes(), sizes);
    assert_eq!(state.watched.places(), 2 * state.watched.len(), "an index keeps what is gone");
    assert_eq!(state.ahead.places(), 2 * state.ahead.len());
    // Subscribers were told of what readers see.
    let seen: BTreeMap<_, _> = state.iter().map(|object| (object.key(), object.clone())).collect();
    assert_eq!(format!("{seen:?}"), format!("{:?}", told.objects));
}

fn run(steps: Vec<Step>) {
    let now = Instant::now();
    let (mut state, mut model, mut told, mut own) = (State::new(), Model::default(), Told::default(), Own::new());
    let values: Values = Arc::new(|object| object.label("color").into_iter().map(Into::into).collect());
    let function = Function { name: "color".into(), values, summer: state.summer() };
    state.add_index(function, |_| Sums::None);
    let mut changes = Vec::new();
    let relist = |state: &mut State, model: &mut Model, own: &mut Own, listing: &Listing| {
        let mut changes = Vec::new();
        let ours = |state: &mut State, model: &mut Model, own: &mut Own, at: u8, changes: &mut Vec<Change>| {
            let written = model.write(&name(at), 1);
            wrote(state, written.clone(), changes);
            own.insert(name(at), Did::Wrote(written));
        };
        state.list_sent();
        if let Some((at, theirs_gone)) = listing.before {
            ours(state, model, own, at, &mut changes);
            if theirs_gone {
                model.delete(&name(at));
            }
        }
        state.list_began();
        let in_list: Vec<Arc<Object>> = model.objects.values().cloned().collect();
        let version = model.revision;
        model.events.clear();
        for (at, object) in in_list.iter().enumerate() {
            if listing.cut.is_some_and(|cut| usize::from(cut) == at) {
                return changes;
            }
            listed(state, object.clone(), &mut changes);
            if let (0, Some(amid)) = (at, listing.amid) {
                ours(state, model, own, amid, &mut changes);
            }
        }
        state.list_done(listing.tells_version.then_some(version), &mut changes);
        if listing.tells_version {
            // No ghosts: what is older than the list is in it.
            let uids: Vec<&str> = in_list.iter().map(|object| object.uid()).collect();
            for seen in state.iter().filter(|seen| seen.revision() <= Some(version)) {
                assert!(uids.contains(&seen.uid()), "{seen:?} was gone when the list was taken at {version}");
            }
        }
        changes
    };
    for step in steps.into_iter().chain([Step::Relist(Listing::default()), Step::Watch(255)]) {
        match step {
            Step::Theirs(at, color) => drop(model.write(&name(at), color)),
            Step::TheirsGone(at) => {
                model.delete(&name(at));
            }
            Step::Ours(at, color) => {
                let written = model.write(&name(at), color);
                wrote(&mut state, written.clone(), &mut changes);
                own.insert(name(at), Did::Wrote(written));
            }
            Step::OursGone(at) => {
                if let Some(deleted) = model.delete(&name(at)) {
                    state.removed(&deleted.key(), deleted.uid(), now, &mut changes);
                    own.insert(name(at), Did::Removed(deleted.uid().to_owned()));
                }
            }
            Step::Watch(count) => {
                // A watch begins with a list.
                if !state.is_synced() || state.listing {
                    changes.extend(relist(&mut state, &mut model, &mut own, &Listing::default()));
                }
                for (object, gone) in model.events.drain(..model.events.len().min(count.into())) {
                    match gone {
                        true => state.deleted(&object, now, &mut changes),
                        false => applied(&mut state, object, &mut changes),
                    }
                }
            }
            Step::Relist(listing) => {
                changes.extend(relist(&mut state, &mut model, &mut own, &listing));
                if state.listing {
                    // It was cut: what happens now is missed until the next one.
                    told.hear(std::mem::take(&mut changes));
                    changes.extend(relist(&mut state, &mut model, &mut own, &Listing::default()));
                }
            }
        }
        told.hear(std::mem::take(&mut changes));
        check(&state, &model, &own, &told);
    }
    // At rest readers see the server, and nothing is ahead of the watch.
    let seen: BTreeMap<_, _> = state.iter().map(|object| (object.name().to_owned(), object.clone())).collect();
    assert_eq!(format!("{seen:?}"), format!("{:?}", model.objects));
    assert_eq!(state.ahead.len(), 0);
    for name in model.objects.keys() {
        assert!(state.is_caught_up(&ObjectKey::new(Some("default"), name)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn readers_subscribers_and_indexes_agree(steps in proptest::collection::vec(step(), 1..60)) {
        run(steps);
    }
}

#[test]
fn a_late_note_changes_nothing() {
    let now = Instant::now();
    let (mut state, mut changes) = (State::new(), Vec::new());
    state.list_began();
    state.list_done(None, &mut changes);
    applied(&mut state, object("a", 1, 5, 0), &mut changes);
    state.deleted(&object("a", 1, 6, 0), now, &mut changes);
    let key = ObjectKey::new(Some("default"), "a");
    // The answer to our write comes when the watch has long told of it, and of its end.
    changes.clear();
    wrote(&mut state, object("a", 1, 5, 0), &mut changes);
    assert!(state.get(&key).is_none() && state.is_caught_up(&key));
    state.removed(&key, "1", now, &mut changes);
    assert!(changes.is_empty(), "{changes:?}");
    applied(&mut state, object("a", 2, 7, 0), &mut changes);
    assert_eq!(state.get(&key).unwrap().uid(), "2");
    assert!(state.is_caught_up(&key));
}

#[test]
fn what_leaves_the_selection_is_hidden_until_it_comes_back() {
    let now = Instant::now();
    let (mut state, mut changes) = (State::new(), Vec::new());
    state.list_began();
    listed(&mut state, object("a", 1, 5, 0), &mut changes);
    state.list_done(None, &mut changes);
    let key = ObjectKey::new(Some("default"), "a");
    state.left(&object("a", 1, 6, 9), now, &mut changes);
    assert!(state.get(&key).is_none());
    // Somebody else brings it back before the watch has told of anything.
    applied(&mut state, object("a", 1, 7, 0), &mut changes);
    assert!(state.get(&key).is_some());
    // One that was never here is not hidden when it comes.
    state.left(&object("b", 2, 8, 9), now, &mut changes);
    applied(&mut state, object("b", 2, 9, 0), &mut changes);
    assert!(state.get(&ObjectKey::new(Some("default"), "b")).is_some());
}

/// Each change as what happened, to which uid, and the version after it.
fn words(changes: &[Change]) -> Vec<String> {
    let word = |change: &Change| {
        let sign = match (change.before(), change.after()) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        format!("{sign}{}.{}", change.object().uid(), change.object().resource_version())
    };
    changes.iter().map(word).collect()
}

/// A write of ours wakes whom it concerns when it is made. The watch brings the same version later, which is nothing new:
/// whoever was woken has seen it. Anything else that it brings is.
#[test]
fn the_echo_of_a_write_is_not_told() {
    let now = Instant::now();
    let (mut state, mut changes) = (State::new(), Vec::new());
    state.list_began();
    listed(&mut state, object("a", 1, 5, 0), &mut changes);
    state.list_done(None, &mut changes);
    let told = |state: &mut State, act: &mut dyn FnMut(&mut State, &mut Vec<Change>)| {
        let mut changes = Vec::new();
        act(state, &mut changes);
        words(&changes)
    };
    assert_eq!(told(&mut state, &mut |state, changes| wrote(state, object("a", 1, 8, 1), changes)), ["~1.8"]);
    // Somebody else wrote before us; our write has what that changed.
    assert_eq!(told(&mut state, &mut |state, changes| applied(state, object("a", 1, 7, 2), changes)), [""; 0]);
    assert_eq!(told(&mut state, &mut |state, changes| applied(state, object("a", 1, 8, 1), changes)), [""; 0]);
    // Somebody else wrote after us.
    assert_eq!(told(&mut state, &mut |state, changes| applied(state, object("a", 1, 9, 2), changes)), ["~1.9"]);
    // The same for what we make, and for what we delete.
    assert_eq!(told(&mut state, &mut |state, changes| wrote(state, object("b", 2, 10, 1), changes)), ["+2.10"]);
    assert_eq!(told(&mut state, &mut |state, changes| applied(state, object("b", 2, 10, 1), changes)), [""; 0]);
    let key = ObjectKey::new(Some("default"), "b");
    assert_eq!(told(&mut state, &mut |state, changes| state.removed(&key, "2", now, changes)), ["-2.10"]);
    assert_eq!(told(&mut state, &mut |state, changes| state.deleted(&object("b", 2, 11, 1), now, changes)), [""; 0]);
    // A write that the watch passes without bringing it was undone meanwhile: that is told.
    assert_eq!(told(&mut state, &mut |state, changes| wrote(state, object("c", 3, 12, 1), changes)), ["+3.12"]);
    assert_eq!(
        told(&mut state, &mut |state, changes| applied(state, object("a", 1, 14, 2), changes)),
        ["~1.14", "-3.12"]
    );
}

/// Whoever owned the first has to know that it is gone, also if the watch never brought it.
#[test]
fn our_object_that_somebody_replaced_while_nobody_looked_is_told() {
    let (mut state, mut changes) = (State::new(), Vec::new());
    state.list_began();
    state.list_done(None, &mut changes);
    wrote(&mut state, object("a", 1, 5, 0), &mut changes);
    wrote(&mut state, object("b", 2, 6, 0), &mut changes);
    state.list_sent();
    state.list_began();
    listed(&mut state, object("a", 3, 9, 1), &mut changes);
    state.list_done(None, &mut changes);
    assert_eq!(words(&changes), ["+1.5", "+2.6", "-1.5", "+3.9", "-2.6"]);
}

/// A deletion that the watch told of before we noted it leaves something behind, but not for long.
#[test]
fn deletions_that_were_noted_late_are_forgotten() {
    let now = Instant::now();
    let (mut state, mut changes) = (State::new(), Vec::new());
    state.list_began();
    state.list_done(None, &mut changes);
    for at in 1..=1000 {
        let name = format!("o{at}");
        applied(&mut state, object(&name, at, 10 * at, 0), &mut changes);
        state.deleted(&object(&name, at, 10 * at + 1, 0), now, &mut changes);
        state.removed(&ObjectKey::new(Some("default"), &name), &at.to_string(), now, &mut changes);
    }
    assert_eq!(state.ahead(), 1000);
    let later = now + HIDDEN_UNSEEN + SWEEP_EVERY;
    state.removed(&ObjectKey::new(Some("default"), "last"), "last", later, &mut changes);
    assert_eq!(state.ahead(), 1);
    // What has left the selection is forgotten when the watch has come so far.
    applied(&mut state, object("a", 5000, 20_000, 0), &mut changes);
    state.left(&object("a", 5000, 20_005, 9), later, &mut changes);
    assert_eq!((state.ahead(), state.gone_below.len()), (2, 1));
    applied(&mut state, object("b", 5001, 20_006, 0), &mut changes);
    assert_eq!((state.ahead(), state.gone_below.len()), (1, 0));
}
