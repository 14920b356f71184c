//! Controllers of one operator that are elected apart from each other. Time is virtual: Leases are held and renewed as on a cluster.

use std::sync::Arc;
use std::time::Duration;

use konverge::k8s_openapi::api::coordination::v1::Lease;
use konverge::prelude::*;
use konverge::{ElectionGroup, Metrics, Term};
use konverge_testkit::{Fake, Running, Verb};
use parking_lot::Mutex;
use tokio::time::Instant;

/// What the operator itself reconciles.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
pub struct LampSpec {
    /// How bright.
    pub watts: u32,
}

/// What the groups reconcile.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Blind", namespaced)]
pub struct BlindSpec {
    /// How far it is down.
    pub percent: u32,
}

const OPERATOR: &str = "konverge-lock";
const BLINDS: &str = "konverge-lock-blinds";

/// What one instance did, and what it was told.
#[derive(Clone, Default)]
struct Instance {
    fences: Arc<Mutex<Vec<String>>>,
    told: Arc<Mutex<Vec<String>>>,
    metrics: Metrics,
}

impl Instance {
    /// Notes the term of a reconcile, and writes a ConfigMap in three ways: applied, by a client of one's own, and an event.
    async fn reconcile<R: Kind>(self, ctx: Context<R>, name: &'static str) -> Result<Action> {
        let fence = Term::of_this_task().and_then(|term| term.fence.clone()).expect("a reconcile works for a term");
        self.fences.lock().push(fence.to_string());
        ctx.apply(ConfigMap::new(ctx.name()).data("by", name)).await?;
        ctx.event("Moved", format!("moved by {name}")).await?;
        Ok(Action::await_change())
    }

    fn blinds(&self, name: &'static str) -> Controller<Blind> {
        let (this, started, stopped, led) = (self.clone(), self.told.clone(), self.told.clone(), self.told.clone());
        let group = ElectionGroup::new("blinds")
            .on_started_leading(move |term| started.lock().push(format!("blinds started {}", term.number)))
            .on_stopped_leading(move |term| stopped.lock().push(format!("blinds stopped {}", term.number)))
            .on_new_leader(move |_| led.lock().push("blinds led".into()));
        Controller::<Blind>::new()
            .reconcile(move |ctx| this.clone().reconcile(ctx, name))
            .owns::<ConfigMap>()
            .election_group(group)
    }

    fn operator(&self, name: &'static str) -> Operator<Lamp> {
        let (this, started) = (self.clone(), self.told.clone());
        Operator::<Lamp>::new()
            .reconcile(move |ctx| this.clone().reconcile(ctx, name))
            .owns::<ConfigMap>()
            .metrics(self.metrics.clone())
            .configure(|settings| settings.leader_election.enabled = true)
            .on_started_leading(move |term| started.lock().push(format!("started {}", term.number)))
            .and(self.blinds(name))
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().clone()
    }

    /// Whether this instance leads by these Leases, as its metrics tell it.
    fn leads(&self) -> [bool; 2] {
        let page = self.metrics.page();
        [OPERATOR, BLINDS].map(|lease| page.contains(&format!("leader_election_master_status{{name=\"{lease}\"}} 1")))
    }
}

fn fake() -> Fake {
    Fake::new().with(Lamp::new("lamp", LampSpec { watts: 40 })).with(Blind::new("blind", BlindSpec { percent: 50 }))
}

fn written_by(instance: &'static str) -> impl Fn(&ConfigMap) -> bool {
    move |map| map.inner().data.as_ref().is_some_and(|data| data["by"] == instance)
}

async fn holder(fake: &Fake, lease: &str) -> String {
    let spec = fake.get::<Lease>(lease).await.expect("there is a Lease").spec.expect("it has a spec");
    spec.holder_identity.unwrap_or_default()
}

async fn wait(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Two instances that have begun together, so that each leads something: who leads the operator itself, and who leads the group.
async fn two(fake: &Fake) -> [(Instance, Running, &'static str); 2] {
    let (first, second) = (Instance::default(), Instance::default());
    let (one, two) = (fake.run(first.operator("first")), fake.run(second.operator("second")));
    wait("each leads something", || {
        let mut led = [first.leads(), second.leads()];
        led.sort_unstable();
        led == [[false, true], [true, false]]
    })
    .await;
    let [first, second] = [(first, one, "first"), (second, two, "second")];
    if first.0.leads()[0] { [first, second] } else { [second, first] }
}

#[tokio::test(start_paused = true)]
async fn different_instances_lead_different_groups_each_in_its_own_term() -> Result<()> {
    let fake = fake();
    let [(lamps, one, by_lamps), (blinds, two, by_blinds)] = two(&fake).await;
    fake.wait_until("lamp", written_by(by_lamps)).await?;
    fake.wait_until("blind", written_by(by_blinds)).await?;
    assert_ne!(holder(&fake, OPERATOR).await, holder(&fake, BLINDS).await);
    let all_name = |instance: &Instance, lease: &str| {
        let fences = instance.fences.lock();
        !fences.is_empty() && fences.iter().all(|fence| fence.starts_with(&format!("default/{lease}/0/")))
    };
    assert!(all_name(&lamps, OPERATOR), "{:?}", lamps.fences.lock());
    assert!(all_name(&blinds, BLINDS), "{:?}", blinds.fences.lock());
    // Events of a group are written although this instance does not lead the operator itself.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let events = fake.events().await?;
    for by in [by_lamps, by_blinds] {
        assert!(events.iter().any(|event| event.contains(&format!("moved by {by}"))), "{events:?}");
    }
    // Nothing moves by itself.
    assert_eq!((lamps.leads(), blinds.leads()), ([true, false], [false, true]));

    // Whoever stops releases what it holds, and the other one leads all.
    let stopped = Instant::now();
    two.stop().await?;
    fake.wait_until("blind", written_by(by_lamps)).await?;
    assert!(stopped.elapsed() < Duration::from_secs(1), "it took {:?}", stopped.elapsed());
    assert_eq!(lamps.leads(), [true, true]);
    assert!(blinds.told().ends_with(&["blinds stopped 0".into()]), "{:?}", blinds.told());
    one.stop().await?;
    assert_eq!((holder(&fake, OPERATOR).await, holder(&fake, BLINDS).await), (String::new(), String::new()));
    let permissions = fake.permissions();
    assert!(permissions.lacking.is_empty(), "{permissions}");
    Ok(())
}

/// Nobody answers the renewals of one Lease. The term of that group ends; everything else goes on.
#[tokio::test(start_paused = true)]
async fn a_group_whose_term_ends_takes_nothing_else_with_it() -> Result<()> {
    let fake = fake();
    let only = Instance::default();
    let running = fake.run(only.operator("only"));
    wait("it leads all", || only.leads() == [true, true]).await;
    fake.wait_until("blind", written_by("only")).await?;
    fake.when::<Lease>(Verb::Update).named(BLINDS).fail(500);
    wait("the term of the group is over", || only.leads() == [true, false]).await;
    assert!(only.told().contains(&"blinds stopped 0".into()), "{:?}", only.told());

    let before = only.fences.lock().len();
    fake.edit("blind", |blind: &mut Blind| blind.spec.percent = 60).await?;
    fake.edit("lamp", |lamp: &mut Lamp| lamp.spec.watts = 60).await?;
    wait("lamps are reconciled", || only.fences.lock().len() > before).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let since = only.fences.lock()[before..].to_vec();
    assert!(since.iter().all(|fence| fence.contains(&format!("/{OPERATOR}/"))), "{since:?}");
    running.stop().await
}

/// A task that a reconcile of a group spawns writes for the group, too: the client knows it.
#[tokio::test(start_paused = true)]
async fn a_client_of_a_group_writes_only_while_the_group_is_led() -> Result<()> {
    let fake = fake();
    let client = Arc::new(Mutex::new(None));
    let kept = client.clone();
    let blinds = Controller::<Blind>::new()
        .reconcile(move |ctx: Context<Blind>| {
            *kept.lock() = Some(ctx.client());
            async { Ok(Action::await_change()) }
        })
        .needs::<ConfigMap>(["create"])
        .election_group("blinds");
    let operator = Instance::default();
    let running = fake.run(
        Operator::<Lamp>::new()
            .reconcile(|_: Context<Lamp>| async { Ok(Action::await_change()) })
            .metrics(operator.metrics.clone())
            .configure(|settings| settings.leader_election.enabled = true)
            .and(blinds),
    );
    wait("it leads all", || operator.leads() == [true, true] && client.lock().is_some()).await;
    let client = client.lock().clone().expect("a reconcile has run");
    let write = |name: &'static str| {
        let api = konverge::kube::Api::<konverge::k8s_openapi::api::core::v1::ConfigMap>::namespaced(
            client.clone(),
            "default",
        );
        async move {
            let mut map = konverge::k8s_openapi::api::core::v1::ConfigMap::default();
            map.metadata.name = Some(name.to_owned());
            api.create(&Default::default(), &map).await.map(drop)
        }
    };
    write("led").await.expect("the group is led");
    fake.when::<Lease>(Verb::Update).named(BLINDS).fail(500);
    wait("the term of the group is over", || operator.leads() == [true, false]).await;
    write("not-led").await.expect_err("nobody leads the group here");
    assert!(fake.find::<ConfigMap>("not-led").await?.is_none());
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_exits_when_it_lost_does_so_for_a_group() -> Result<()> {
    let fake = fake();
    let only = Instance::default();
    let operator = only.operator("only").configure(|settings| settings.leader_election.exit_when_lost = true);
    let running = fake.run(operator);
    wait("it leads all", || only.leads() == [true, true]).await;
    fake.when::<Lease>(Verb::Update).named(BLINDS).fail(500);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let ended = running.stop().await.unwrap_err().to_string();
    assert_eq!(ended, "this instance does not lead any more, and the settings say that it ends then");
    Ok(())
}

/// One instance, and no election: it runs all groups.
#[tokio::test(start_paused = true)]
async fn without_leader_election_one_instance_runs_all_groups() -> Result<()> {
    let fake = fake();
    let blinds = Controller::<Blind>::new()
        .reconcile(|ctx: Context<Blind>| async move {
            ctx.apply(ConfigMap::new(ctx.name()).data("by", "only")).await?;
            Ok(Action::await_change())
        })
        .owns::<ConfigMap>()
        .election_group("blinds");
    let lamps = Operator::<Lamp>::new().reconcile(|_: Context<Lamp>| async { Ok(Action::await_change()) });
    let running = fake.run(lamps.and(blinds));
    fake.wait_until("blind", written_by("only")).await?;
    assert!(fake.find::<Lease>(BLINDS).await?.is_none());
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn groups_and_shards_are_refused_together() {
    let fake = fake();
    let operator = Instance::default().operator("only").configure(|settings| {
        settings.leader_election.enabled = false;
        settings.shards = 4;
    });
    let running = fake.run(operator);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = running.stop().await.unwrap_err().to_string();
    assert!(refused.ends_with("remove --shards, or .election_group(…)"), "{refused}");
}
