//! A part of the objects against a model of a server: whatever is watched, listed late, held and given up, readers see only objects of held
//! shards, never an older version than before, and all of them when the watch and a list have come through.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_leadership::{ShardSeats, Term};
use kube::api::ApiResource;
use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::cache::change::Change;

fn resource() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

fn object(name: &str, uid: u64, version: u64, owner: Option<&str>) -> Object {
    let mut metadata =
        json!({"name": name, "namespace": "default", "uid": uid.to_string(), "resourceVersion": version.to_string()});
    if let Some(owner) = owner {
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": owner}]);
    }
    let json = json!({"metadata": metadata, "data": {"text": "x".repeat(100)}}).to_string();
    Object::parse(&resource(), &json, Mode::Full).unwrap()
}

fn hold(seats: &ShardSeats, shard: usize, term: &mut u64) {
    *term += 1;
    let term = Term::of_lease("shop", &format!("shard-{shard}"), *term, &"web-0".into());
    seats.lead(shard, term, Instant::now() + Duration::from_secs(3600));
}

/// A cache without a watch, and the shards that it keeps objects of.
struct Table {
    core: Core,
    seats: ShardSeats,
    term: u64,
    /// The server: what is there, and what the watch has yet to bring, and whether it is gone.
    there: BTreeMap<String, (u64, u64)>,
    events: std::collections::VecDeque<(String, u64, u64, bool)>,
    version: u64,
    /// A list that has been read and not been used.
    list: Option<BTreeMap<String, (u64, u64)>>,
    /// The newest version that readers saw of each uid.
    seen: BTreeMap<String, u64>,
}

const COUNT: usize = 3;

impl Table {
    fn new(part: ShardPart) -> Self {
        let (shards, seats) = Shards::vacant(COUNT, "web-0", 0);
        let core = Core::new(Target::all(resource()).part(part), Some(&shards));
        core.change(|state, changes| {
            state.list_sent();
            state.list_began();
            state.list_done(Some(0), changes);
        });
        let (there, events) = (BTreeMap::new(), Default::default());
        Self { core, seats, term: 0, there, events, version: 0, list: None, seen: BTreeMap::new() }
    }

    fn keeper(&self) -> &Keeper {
        self.core.keeper.as_ref().expect("it is of a part")
    }

    fn write(&mut self, name: &str) {
        self.version += 1;
        let uid = self.there.get(name).map_or(self.version, |(uid, _)| *uid);
        self.there.insert(name.to_owned(), (uid, self.version));
        self.events.push_back((name.to_owned(), uid, self.version, false));
    }

    fn delete(&mut self, name: &str) {
        if let Some((uid, _)) = self.there.remove(name) {
            self.version += 1;
            self.events.push_back((name.to_owned(), uid, self.version, true));
        }
    }

    fn watch(&mut self) {
        use crate::watch::Sink;
        match self.events.pop_front() {
            Some((name, uid, version, true)) => self.core.deleted(object(&name, uid, version, None)),
            Some((name, uid, version, false)) => self.core.applied(object(&name, uid, version, None)),
            None => {}
        }
    }

    fn fill(&mut self) {
        for (name, (uid, version)) in self.list.take().unwrap_or_default() {
            let object = object(&name, uid, version, None);
            if self.keeper().keeps(&object) {
                self.core.fill(object);
            }
        }
    }

    /// What readers see is never older than before, and of a shard that is complete they see everything that the watch has brought,
    /// whatever is missing of other shards.
    fn check(&mut self) {
        let keeper = self.keeper();
        for stub in self.core.state.read().kept().filter(|object| object.is_stub()) {
            let shard = keeper.shards.of(stub.uid());
            let is_complete = keeper.is_complete(&keeper.progress.borrow(), Some(shard));
            assert!(keeper.term(shard).is_none() || !is_complete, "{stub:?} of shard {shard} is not here");
        }
        for object in self.core.state.read().iter() {
            let (uid, version) = (object.uid().to_owned(), object.revision().unwrap());
            assert!(self.seen.get(&uid).is_none_or(|seen| *seen <= version), "{object:?} after {:?}", self.seen[&uid]);
            assert!(object.json().contains("data"), "readers see whole objects");
            self.seen.insert(uid, version);
        }
    }

    /// Everything comes through: readers see all objects of held shards as they are, and no others.
    fn settle(&mut self) {
        while !self.events.is_empty() {
            self.watch();
            self.check();
        }
        if self.core.survey(self.keeper()) {
            self.list = Some(self.there.clone());
            self.fill();
        }
        self.check();
        assert!(!self.core.survey(self.keeper()), "everything is here");
        assert!(self.keeper().is_complete(&self.keeper().progress.borrow(), None), "and known to be");
        let shards = &self.keeper().shards;
        let is_held = |uid: &u64| shards.leadership(shards.of(&uid.to_string())).term().is_some();
        let expect: BTreeMap<String, u64> =
            self.there.iter().filter(|(_, (uid, _))| is_held(uid)).map(|(name, (_, at))| (name.clone(), *at)).collect();
        let state = self.core.state.read();
        let found: BTreeMap<String, u64> =
            state.iter().map(|object| (object.name().to_owned(), object.revision().unwrap())).collect();
        assert_eq!((found.len(), state.len()), (expect.len(), expect.len()));
        assert_eq!(found, expect);
        for name in self.there.keys() {
            let key = ObjectKey::new(Some("default"), name);
            assert!(state.get(&key).is_some() != state.is_elsewhere(&key), "{name} is known");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u8),
    Delete(u8),
    Watch,
    Hold(usize),
    GiveUp(usize),
    List,
    Fill,
    Survey,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..8u8).prop_map(Step::Write),
        1 => (0..8u8).prop_map(Step::Delete),
        4 => Just(Step::Watch),
        2 => (0..COUNT).prop_map(Step::Hold),
        1 => (0..COUNT).prop_map(Step::GiveUp),
        2 => Just(Step::List),
        2 => Just(Step::Fill),
        2 => Just(Step::Survey),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nothing_is_lost_and_nothing_comes_back(steps in proptest::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut table = Table::new(ShardPart::OwnObjects);
            for step in steps {
                match step {
                    Step::Write(name) => table.write(&name.to_string()),
                    Step::Delete(name) => table.delete(&name.to_string()),
                    Step::Watch => table.watch(),
                    Step::Hold(shard) => hold(&table.seats, shard, &mut table.term),
                    Step::GiveUp(shard) => table.seats.follow(shard, None),
                    Step::List => table.list = Some(table.there.clone()),
                    Step::Fill => table.fill(),
                    Step::Survey => drop(table.core.survey(table.keeper())),
                }
                table.check();
            }
            table.settle();
        });
    }
}

/// Whose shard decides.
#[tokio::test]
async fn children_go_with_their_owners() {
    let (shards, seats) = Shards::vacant(COUNT, "web-0", 0);
    let uid_of = |shard: usize| (0..).map(|n: u32| n.to_string()).find(|uid| shards.of(uid) == shard).unwrap();
    let (own, foreign) = (uid_of(0), uid_of(1));
    hold(&seats, 0, &mut 0);
    let label = |owner: &str| {
        let metadata = json!({"name": "c", "uid": "c", "resourceVersion": "1", "labels": {OWNER_LABEL: owner}});
        Object::parse(&resource(), &json!({ "metadata": metadata }).to_string(), Mode::Full).unwrap()
    };
    let check = |part: ShardPart, object: &Object, expect: bool| {
        let keeper = Keeper::new(part, Some(&shards)).unwrap();
        assert_eq!(keeper.keeps(object), expect, "{part:?} {}", object.json());
        // A stub is judged as its object is.
        let stub = keeper.stub(&Target::all(resource()), object);
        assert_eq!((keeper.keeps(&stub), stub.is_stub()), (expect, true), "{part:?} {}", stub.json());
        assert_eq!(
            (stub.key(), stub.uid(), stub.resource_version()),
            (object.key(), object.uid(), object.resource_version())
        );
    };
    check(ShardPart::OwnChildren, &object("a", 1, 1, Some(&own)), true);
    check(ShardPart::OwnChildren, &object("a", 1, 1, Some(&foreign)), false);
    check(ShardPart::OwnChildren, &object("a", 1, 1, None), true);
    check(ShardPart::OwnChildren, &label(&own), true);
    check(ShardPart::OwnChildren, &label(&foreign), false);
    check(ShardPart::OwnObjects, &object("a", own.parse().unwrap(), 1, Some(&foreign)), true);
    check(ShardPart::OwnObjects, &object("a", foreign.parse().unwrap(), 1, Some(&own)), false);
    assert!(
        Keeper::new(ShardPart::Everything, Some(&shards)).is_none()
            && Keeper::new(ShardPart::OwnObjects, None).is_none()
    );
}

/// Whatever is missing of one shard, another one that is complete stays so.
#[tokio::test]
async fn each_shard_is_complete_by_itself() {
    let mut table = Table::new(ShardPart::OwnObjects);
    for name in 0..30 {
        table.write(&name.to_string());
        table.watch();
    }
    let check = |table: &Table, what: &str, expect: [bool; COUNT]| {
        let (keeper, progress) = (table.keeper(), table.keeper().progress.borrow());
        let complete = [0, 1, 2].map(|shard| keeper.is_complete(&progress, Some(shard)));
        assert_eq!(complete, expect, "{what}");
        assert_eq!(
            keeper.is_complete(&progress, None),
            expect == [true; COUNT],
            "{what}: for whoever works for no shard"
        );
    };
    table.core.survey(table.keeper());
    check(&table, "none is held", [true; COUNT]);
    hold(&table.seats, 0, &mut table.term);
    check(&table, "one has just come", [false, true, true]);
    assert!(table.core.survey(table.keeper()), "there are stubs");
    check(&table, "one is to be read", [false, true, true]);
    table.list = Some(table.there.clone());
    table.fill();
    assert!(!table.core.survey(table.keeper()), "all stubs are filled");
    check(&table, "one is read", [true; COUNT]);
    hold(&table.seats, 2, &mut table.term);
    assert!(table.core.survey(table.keeper()), "there are stubs");
    check(&table, "another one comes", [true, true, false]);
    table.seats.follow(0, None);
    table.core.survey(table.keeper());
    check(&table, "the first one goes", [true, true, false]);
    hold(&table.seats, 0, &mut table.term);
    check(&table, "the first one comes again, in another term", [false, true, false]);

    let shards = &table.keeper().shards;
    let (leadership, term) = (shards.leadership(2), shards.leadership(2).term().expect("it is held"));
    assert_eq!(leadership.sync_scope(term, || shards.of_this_task()), Some(2));
    assert_eq!(shards.of_this_task(), None);
}

/// Whoever subscribes hears of objects that come and go with their shards, and of no others.
/// A list that failed for a shard that has gone says nothing about the shards that come later.
#[tokio::test]
async fn a_failure_is_forgotten_when_nothing_is_missing() {
    let mut table = Table::new(ShardPart::OwnObjects);
    let is_failing = |table: &Table| table.keeper().progress.borrow().is_failing;
    for name in ["a", "b", "c", "d", "e", "f"] {
        table.write(name);
        table.watch();
    }
    (0..COUNT).for_each(|shard| hold(&table.seats, shard, &mut table.term));
    table.keeper().progress.send_modify(|progress| progress.is_failing = true);
    assert!(table.core.survey(table.keeper()) && is_failing(&table), "there are stubs, and the list failed");
    (0..COUNT).for_each(|shard| table.seats.follow(shard, None));
    assert!(!table.core.survey(table.keeper()) && !is_failing(&table));
}

#[tokio::test]
async fn subscribers_hear_of_the_part() {
    let mut table = Table::new(ShardPart::OwnObjects);
    let told = |table: &Table, act: &dyn Fn(&mut super::super::State, &mut Vec<Change>)| {
        let mut changes = Vec::new();
        act(&mut table.core.state.write(), &mut changes);
        let shown = changes.iter().map(|it| format!("{}{}", if it.is_delete() { "-" } else { "+" }, it.key().name()));
        shown.collect::<Vec<_>>().join(" ")
    };
    let shards = table.keeper().shards.clone();
    let full = Arc::new(object("a", 7, 1, None));
    let stub = Arc::new(table.keeper().stub(&table.core.target, &full));
    let newer = Arc::new(table.keeper().stub(&table.core.target, &object("a", 7, 2, None)));
    let none = || vec![super::super::Sums::None];
    assert_eq!(told(&table, &|state, changes| state.applied(stub.clone(), none(), changes)), "");
    hold(&table.seats, shards.of("7"), &mut table.term);
    assert_eq!(told(&table, &|state, changes| state.exchange(full.clone(), none(), changes)), "+a");
    assert_eq!(told(&table, &|state, changes| state.exchange(full.clone(), none(), changes)), "");
    assert_eq!(told(&table, &|state, changes| state.exchange(stub.clone(), none(), changes)), "-a");
    assert_eq!(told(&table, &|state, changes| state.applied(newer.clone(), none(), changes)), "");
    assert_eq!(
        told(&table, &|state, changes| state.exchange(full.clone(), none(), changes)),
        "",
        "it is an old version"
    );
}
