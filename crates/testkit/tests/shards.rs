//! Several instances of one operator that divide its objects. Time is virtual: Leases are held and renewed as on a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use konverge::k8s_openapi::api::coordination::v1::Lease;
use konverge::prelude::*;
use konverge::{BackgroundTask, HeldShard, Term};
use konverge_testkit::{Fake, Running};
use parking_lot::Mutex;
use tokio::time::Instant;

const OBJECTS: usize = 300;
const SHARDS: usize = 8;

/// Something to reconcile.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
pub struct LampSpec {
    /// How bright.
    pub watts: u32,
}

/// One reconcile, from when it began until it ended or was cut off.
#[derive(Clone, Debug)]
struct Entry {
    object: String,
    by: &'static str,
    began: Instant,
    ended: Instant,
    /// Whether it came to its end.
    is_done: bool,
    /// The term that its writes named.
    fence: String,
}

/// What all instances did.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<Entry>>>);

impl Diary {
    /// Notes a reconcile when this is dropped, however it ends.
    fn begin(&self, object: String, by: &'static str) -> Begun {
        let fence = Term::of_this_task().and_then(|term| term.fence.clone()).expect("a reconcile works for a term");
        let now = Instant::now();
        let entry = Entry { object, by, began: now, ended: now, is_done: false, fence: fence.to_string() };
        Begun { diary: self.clone(), entry }
    }

    fn entries(&self) -> Vec<Entry> {
        self.0.lock().clone()
    }

    /// Who reconciled each object last.
    fn last(&self) -> BTreeMap<String, Entry> {
        let done = self.entries().into_iter().filter(|entry| entry.is_done);
        done.map(|entry| (entry.object.clone(), entry)).collect()
    }

    /// The objects that an instance reconciled last.
    fn of(&self, by: &str) -> BTreeSet<String> {
        self.last().into_values().filter(|entry| entry.by == by).map(|entry| entry.object).collect()
    }

    /// How often each object was reconciled.
    fn counts(&self) -> BTreeMap<String, usize> {
        self.entries().into_iter().fold(BTreeMap::new(), |mut counts, entry| {
            *counts.entry(entry.object).or_default() += 1;
            counts
        })
    }

    /// No two instances reconciled one object at the same time.
    fn check(&self) {
        let mut by_object: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in self.entries() {
            by_object.entry(entry.object.clone()).or_default().push(entry);
        }
        for entries in by_object.values_mut() {
            entries.sort_by_key(|entry| entry.began);
            for pair in entries.windows(2) {
                assert!(pair[0].ended <= pair[1].began, "{pair:?}");
            }
        }
    }

    async fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

struct Begun {
    diary: Diary,
    entry: Entry,
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut entry = self.entry.clone();
        entry.ended = Instant::now();
        self.diary.0.lock().push(entry);
    }
}

/// One instance of the operator.
struct Instance {
    running: Option<Running>,
    held: Arc<Mutex<Vec<HeldShard>>>,
}

impl Instance {
    fn start(fake: &Fake, diary: &Diary, name: &'static str, shards: usize) -> Self {
        let held = Arc::new(Mutex::new(Vec::new()));
        let told = held.clone();
        let operator = operator(diary, name).shards(shards).on_shards(move |held| *told.lock() = held.to_vec());
        Self { running: Some(fake.run(operator)), held }
    }

    fn held(&self) -> usize {
        self.held.lock().len()
    }

    fn dies(&mut self) {
        drop(self.running.take());
        self.held.lock().clear();
    }

    async fn stops(&mut self) -> Result<()> {
        self.running.take().expect("it runs").stop().await
    }
}

/// An operator that writes the name of its instance into a ConfigMap for each lamp, and takes its time.
fn operator(diary: &Diary, name: &'static str) -> Operator<Lamp> {
    let diary = diary.clone();
    Operator::<Lamp>::new()
        .reconcile(move |ctx: Context<Lamp>| {
            let diary = diary.clone();
            async move {
                let mut begun = diary.begin(ctx.name().to_owned(), name);
                tokio::time::sleep(Duration::from_millis(30)).await;
                ctx.apply(ConfigMap::new(ctx.name()).data("by", name)).await?;
                begun.entry.is_done = true;
                Ok(Action::await_change())
            }
        })
        .owns::<ConfigMap>()
}

fn lamps(count: usize) -> Fake {
    (0..count).fold(Fake::new(), |fake, number| {
        let lamp = Lamp::new(format!("lamp-{number}"), LampSpec { watts: 40 });
        fake.with(lamp)
    })
}

/// Three instances that have divided everything.
async fn three(fake: &Fake, diary: &Diary) -> [Instance; 3] {
    let instances = ["a", "b", "c"].map(|name| Instance::start(fake, diary, name, SHARDS));
    diary.wait("all are reconciled", |diary| diary.last().len() == OBJECTS).await;
    diary.wait("everybody has a part", |_| instances.iter().all(|instance| instance.held() >= 2)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    instances
}

/// Only objects that moved are reconciled again: once, and once more because that changes their ConfigMap.
fn check_again(before: &BTreeMap<String, usize>, after: &BTreeMap<String, usize>, moved: &BTreeSet<String>) {
    for (object, count) in after {
        let (again, most) = (count - before[object], if moved.contains(object) { 2 } else { 0 });
        assert!(again <= most, "{object} was reconciled {again} times");
    }
}

/// The code of a write that names this term.
async fn write_in(fake: &Fake, fence: &str) -> u16 {
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"late-","namespace":"default"}}"#;
    let request = konverge::http::Request::post("/api/v1/namespaces/default/configmaps")
        .header("content-type", "application/json")
        .header(Term::HEADER, fence)
        .body(body.as_bytes().to_vec())
        .expect("a request");
    match fake.client().request_text(request).await {
        Ok(_) => 201,
        Err(konverge::kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_object_is_reconciled_by_one_instance_at_a_time_while_instances_come_and_go() -> Result<()> {
    let (fake, diary) = (lamps(OBJECTS), Diary::default());
    let [mut a, mut b, c] = three(&fake, &diary).await;
    let mut held = [a.held(), b.held(), c.held()];
    held.sort_unstable();
    assert_eq!(held, [2, 3, 3]);
    assert!(["a", "b", "c"].iter().all(|name| diary.of(name).len() > OBJECTS / 8), "each has its part");

    // One dies. The others take its shards when its Lease is over, and only its objects are reconciled again.
    let (of_a, before, old) = (diary.of("a"), diary.counts(), diary.last());
    let died = Instant::now();
    a.dies();
    diary.wait("the dead one is replaced", |diary| diary.of("a").is_empty()).await;
    let took = died.elapsed();
    assert!((Duration::from_secs(13)..Duration::from_secs(17)).contains(&took), "it took {took:?}");
    assert_eq!((b.held(), c.held()), (4, 4));
    tokio::time::sleep(Duration::from_secs(30)).await;
    check_again(&before, &diary.counts(), &of_a);
    // The server refuses what the dead one has sent, and takes what the others send.
    let taken = of_a.first().expect("it had some");
    assert_eq!(write_in(&fake, &old[taken].fence).await, 409);
    assert_eq!(write_in(&fake, &diary.last()[taken].fence).await, 201);

    // One stops. The other one has everything at once.
    let stopped = Instant::now();
    b.stops().await?;
    diary.wait("the stopped one is replaced", |diary| diary.of("c").len() == OBJECTS).await;
    assert!(stopped.elapsed() < Duration::from_secs(2), "it took {:?}", stopped.elapsed());
    assert_eq!(c.held(), SHARDS);

    // One comes. It gets its part, and the rest stays where it is.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = diary.counts();
    let d = Instance::start(&fake, &diary, "d", SHARDS);
    diary.wait("the new one has its part", |_| (c.held(), d.held()) == (4, 4)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    check_again(&before, &diary.counts(), &diary.of("d"));
    diary.check();
    let permissions = fake.permissions();
    assert!(permissions.lacking.is_empty(), "{permissions}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_child_wakes_its_owner_where_that_is_reconciled_and_nowhere_else() -> Result<()> {
    let (fake, diary) = (lamps(OBJECTS), Diary::default());
    let _instances = three(&fake, &diary).await;
    let (before, last) = (diary.counts(), diary.last());
    for number in 0..30 {
        fake.delete::<ConfigMap>(&format!("lamp-{number}")).await?;
    }
    diary.wait("children are restored", |diary| diary.entries().len() >= before.len() + 30).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    for number in 0..30 {
        let lamp = format!("lamp-{number}");
        fake.get::<ConfigMap>(&lamp).await?;
        assert_eq!(diary.last()[&lamp].by, last[&lamp].by, "{lamp}");
    }
    Ok(())
}

/// Idle instances renew one Lease each, however many shards there are.
#[tokio::test(start_paused = true)]
async fn an_idle_instance_renews_one_lease() -> Result<()> {
    let (fake, diary) = (lamps(OBJECTS), Diary::default());
    let _instances = three(&fake, &diary).await;
    fake.forget_calls();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes = fake.writes();
    assert!((85..=95).contains(&writes.len()), "three instances, every two seconds: {}\n{writes}", writes.len());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn instances_with_another_number_of_shards_wait_for_the_others() -> Result<()> {
    let (fake, diary) = (lamps(20), Diary::default());
    let mut old = Instance::start(&fake, &diary, "old", 8);
    diary.wait("all are reconciled", |diary| diary.of("old").len() == 20).await;
    let new = Instance::start(&fake, &diary, "new", 3);
    new.running.as_ref().expect("it runs").ready().await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((old.held(), new.held()), (8, 0));
    let stopped = Instant::now();
    old.stops().await?;
    diary.wait("the new one has all", |diary| diary.of("new").len() == 20).await;
    assert!(stopped.elapsed() < Duration::from_secs(2), "it took {:?}", stopped.elapsed());
    assert_eq!(new.held(), 3);
    diary.check();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let names = fake.list::<Lease>().await?.into_iter().filter_map(|lease| lease.metadata.name);
    let shards: Vec<String> = names.filter(|name| name.contains("-shard-")).collect();
    assert_eq!(shards, ["konverge-shard-0-of-3", "konverge-shard-1-of-3", "konverge-shard-2-of-3"]);
    Ok(())
}

/// Whoever may write the Leases may write anything into them that the server takes. Shards move all the same.
#[tokio::test(start_paused = true)]
async fn what_others_write_into_the_leases_stops_no_shard() -> Result<()> {
    let lease = |name: &str, holder: &str| {
        let late = "9999-12-31T23:59:59.000000Z";
        let labels = serde_json::json!({"konverge.dev/shards-of": "konverge"});
        serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"holderIdentity": holder, "acquireTime": late, "renewTime": late, "leaseTransitions": i32::MAX},
        })
    };
    let (fake, diary) = (lamps(OBJECTS), Diary::default());
    let fake = fake.with(lease("konverge-shard-3-of-8", "gone")).with(lease("konverge-replica-0", "gone"));
    let [mut a, mut b, c] = three(&fake, &diary).await;
    a.stops().await?;
    b.dies();
    diary.wait("the last one has everything", |diary| diary.of("c").len() == OBJECTS).await;
    assert_eq!(c.held(), SHARDS);
    diary.check();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_background_task_runs_on_one_instance() -> Result<()> {
    let (fake, diary) = (lamps(3), Diary::default());
    let begun = Arc::new(AtomicU64::new(0));
    let start = |name| {
        let begun = begun.clone();
        let operator = operator(&diary, name).shards(4).background("one", move |task: BackgroundTask| async move {
            begun.fetch_add(1, Ordering::Relaxed);
            task.stopped().await;
            Ok(())
        });
        fake.run(operator)
    };
    let (one, two) = (start("one"), start("two"));
    diary.wait("all are reconciled", |diary| diary.last().len() == 3).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(begun.load(Ordering::Relaxed), 1);
    // Whoever had it hands it over, and the other one begins it.
    one.stop().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    two.stop().await?;
    assert!((1..=2).contains(&begun.load(Ordering::Relaxed)));
    Ok(())
}

#[test]
fn the_role_of_shards_is_printed_and_leader_election_is_refused_beside_them() {
    let settings = Settings::from_args(["shop", "--shards=8"]).unwrap();
    let manifests = operator(&Diary::default(), "a").manifests(&settings);
    let role = manifests.iter().find(|manifest| manifest["metadata"]["name"] == "shop-shards").unwrap();
    assert_eq!(role["rules"][0]["resources"][0], "leases");
    let refused = Settings::from_args(["shop", "--shards=8", "--leader-elect"]).unwrap_err().to_string();
    assert!(refused.contains("leave out one of them"), "{refused}");
    assert!(Settings::from_args(["shop", "--shards=1001"]).is_err());
}
