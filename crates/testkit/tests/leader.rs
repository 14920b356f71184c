//! Several instances of one operator, of which one works. Time is virtual: the Lease is held and renewed as on a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use konverge::k8s_openapi::api::coordination::v1::Lease;
use konverge::k8s_openapi::api::events::v1::Event;
use konverge::prelude::*;
use konverge_testkit::{Fake, Running, Verb};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Something to reconcile.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
pub struct LampSpec {
    /// How bright.
    pub watts: u32,
}

fn lamp(name: &str) -> Lamp {
    Lamp::new(name, LampSpec { watts: 40 })
}

/// What an instance of the operator did, and what it was told.
#[derive(Clone, Default)]
struct Instance {
    reconciles: Arc<AtomicU64>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Instance {
    /// An operator that counts its reconciles, and writes the name of its instance into a ConfigMap for each lamp.
    fn operator(&self, name: &'static str) -> Operator<Lamp> {
        let (reconciles, started, stopped) = (self.reconciles.clone(), self.told.clone(), self.told.clone());
        Operator::<Lamp>::new()
            .reconcile(move |ctx: Context<Lamp>| {
                let reconciles = reconciles.clone();
                async move {
                    ctx.apply(ConfigMap::new(ctx.name()).data("by", name)).await?;
                    reconciles.fetch_add(1, Ordering::Relaxed);
                    Ok(Action::await_change())
                }
            })
            .owns::<ConfigMap>()
            .configure(|settings| settings.leader_election.enabled = true)
            .on_started_leading(move |term| started.lock().push(format!("started {}", term.number)))
            .on_stopped_leading(move |term| stopped.lock().push(format!("stopped {}", term.number)))
    }

    fn reconciles(&self) -> u64 {
        self.reconciles.load(Ordering::Relaxed)
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().clone()
    }
}

fn written_by(instance: &'static str) -> impl Fn(&ConfigMap) -> bool {
    move |map| map.inner().data.as_ref().is_some_and(|data| data["by"] == instance)
}

async fn lease(fake: &Fake) -> Lease {
    fake.get::<Lease>("konverge-lock").await.expect("there is a Lease")
}

/// Two instances, of which the first leads.
async fn two(fake: &Fake) -> Result<[(Instance, Running); 2]> {
    let (first, second) = (Instance::default(), Instance::default());
    let one = fake.run(first.operator("first"));
    fake.wait_until("l", written_by("first")).await?;
    let two = fake.run(second.operator("second"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((first.told(), second.told()), (vec!["started 0".to_owned()], Vec::new()));
    assert_eq!(second.reconciles(), 0, "a standby does not reconcile");
    Ok([(first, one), (second, two)])
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_hands_over_at_once() -> Result<()> {
    let fake = Fake::new().with(lamp("l"));
    let [(first, one), (second, two)] = two(&fake).await?;
    let spec = lease(&fake).await.spec.unwrap();
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(0)));

    let began = Instant::now();
    one.stop().await?;
    fake.wait_until("l", written_by("second")).await?;
    assert!(began.elapsed() < Duration::from_secs(1), "it took {:?}", began.elapsed());
    assert_eq!((first.told(), second.told()), (vec!["started 0".into(), "stopped 0".into()], vec!["started 1".into()]));
    two.stop().await?;
    let spec = lease(&fake).await.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some(""), Some(1)));
    Ok(())
}

/// `kubectl describe lease` finds events by the uid of the Lease.
#[tokio::test(start_paused = true)]
async fn events_are_about_the_very_lease() -> Result<()> {
    let fake = Fake::new().with(lamp("l"));
    let running = fake.run(Instance::default().operator("first"));
    fake.wait_until("l", written_by("first")).await?;
    let about_lease = |event: &Event| event.reason.as_deref() == Some("LeaderElection");
    let deadline = Instant::now() + Duration::from_secs(10);
    let event = loop {
        match fake.list::<Event>().await?.into_iter().find(about_lease) {
            Some(event) => break event,
            None => assert!(Instant::now() < deadline, "no event tells who leads"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let regarding = event.regarding.unwrap_or_default();
    let uid = lease(&fake).await.metadata.uid;
    assert!(uid.is_some() && regarding.uid == uid, "{regarding:?}");
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_replaced_when_its_lease_is_over() -> Result<()> {
    let fake = Fake::new().with(lamp("l"));
    let [(_, one), (_, two)] = two(&fake).await?;
    let died = Instant::now();
    drop(one);
    fake.wait_until("l", written_by("second")).await?;
    let took = died.elapsed();
    assert!((Duration::from_secs(13)..Duration::from_millis(15_500)).contains(&took), "it took {took:?}");
    two.stop().await
}

/// Nobody answers the leader, so it stops before another may begin; when the server is back, it is a standby whose caches are filled.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_and_goes_on_as_a_standby() -> Result<()> {
    let fake = Fake::new().with(lamp("l"));
    let [(first, one), (second, two)] = two(&fake).await?;
    let cut = Instant::now();
    // The second renewal is the one that is sent because the first may be on a dead connection.
    fake.when::<Lease>(Verb::Update).times(2).delay(Duration::from_secs(3600));
    while first.told().len() < 2 {
        assert!(cut.elapsed() < Duration::from_secs(60), "it still leads");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let stopped = cut.elapsed();
    assert!(stopped < Duration::from_millis(12_100), "it led for {stopped:?}");
    fake.wait_until("l", written_by("second")).await?;
    assert!(second.told() == ["started 1"], "{:?}", second.told());

    // The standby leads again when the other one goes, and begins with all objects.
    let before = first.reconciles();
    two.stop().await?;
    fake.wait_until("l", written_by("first")).await?;
    assert!(first.reconciles() > before);
    assert_eq!(first.told(), ["started 0", "stopped 0", "started 2"]);
    one.stop().await
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_told_to_exit_when_it_lost_does_so() -> Result<()> {
    let fake = Fake::new().with(lamp("l"));
    let instance = Instance::default();
    let operator = instance.operator("only").configure(|settings| settings.leader_election.exit_when_lost = true);
    let running = fake.run(operator);
    fake.wait_until("l", written_by("only")).await?;
    fake.when::<Lease>(Verb::Update).fail(500);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let ended = running.stop().await.unwrap_err().to_string();
    assert_eq!(ended, "this instance does not lead any more, and the settings say that it ends then");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_function_that_panics_when_it_is_told_ends_the_operator_with_an_error() -> Result<()> {
    let fake = Fake::new().with(lamp("l"));
    let operator = Instance::default().operator("only").on_new_leader(|_| panic!("it is broken"));
    let running = fake.run(operator);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let ended = running.stop().await.unwrap_err().to_string();
    assert_eq!(ended, "a function that is told about leader election panicked");
    Ok(())
}

#[test]
fn the_role_of_the_election_is_printed() {
    let settings = Settings::from_args(["shop", "--leader-elect", "--leader-election-namespace=locks"]).unwrap();
    let manifests = Instance::default().operator("a").manifests(&settings);
    let role = manifests.iter().find(|manifest| manifest["metadata"]["name"] == "shop-leader-election").unwrap();
    assert_eq!((role["kind"].as_str(), role["metadata"]["namespace"].as_str()), (Some("Role"), Some("locks")));
    // Nobody takes these rights away because one run did not use them.
    assert_eq!(role["metadata"]["annotations"]["konverge.dev/keep-rights"], "true");
    let leases = &role["rules"][0];
    assert_eq!(leases["resources"][0], "leases");
    assert_eq!(settings.lease_name(), "shop-lock");
}

/// Whoever may write the Lease may write anything into it that the server takes. Nothing of it keeps the operator from leading.
#[tokio::test(start_paused = true)]
async fn what_others_write_into_the_lease_stops_nobody() -> Result<()> {
    let (late, largest) = ("9999-12-31T23:59:59.000000Z", i32::MAX);
    let check = async |what: &str, spec: serde_json::Value, within: Duration| -> Result<()> {
        let metadata = serde_json::json!({"name": "konverge-lock", "namespace": "default"});
        let lease = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
        });
        let fake = Fake::new().with(lamp("l")).with(lease);
        let (instance, began) = (Instance::default(), Instant::now());
        let running = fake.run(instance.operator("first"));
        while instance.reconciles() == 0 {
            assert!(began.elapsed() < within, "{what}: it does not lead");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        running.stop().await
    };
    let soon = Duration::from_secs(20);
    let timed = |who: &str, at: &str| serde_json::json!({"holderIdentity": who, "acquireTime": at, "renewTime": at});
    check("a holder and times that are too late", timed("gone", late), soon).await?;
    check("times that are too late", timed("", late), soon).await?;
    let numbers = serde_json::json!({"leaseTransitions": largest, "leaseDurationSeconds": largest});
    check("the largest numbers", numbers, soon).await?;
    let held = serde_json::json!({"holderIdentity": "gone", "leaseDurationSeconds": largest});
    check("a holder for 68 years", held, Duration::from_secs(3700)).await?;
    let strategy = serde_json::json!({"strategy": "OldestEmulationVersion", "preferredHolder": "other"});
    check("a strategy", strategy, soon).await?;
    check("nothing", serde_json::json!({}), soon).await
}
