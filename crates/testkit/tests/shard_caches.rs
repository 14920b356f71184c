//! What instances that divide their objects keep of them: each keeps its own part, and misses nothing when parts move. Time is virtual.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use konverge::prelude::*;
use konverge::{HeldShard, Metrics, ShardCache};
use konverge_testkit::{Fake, Running, Verb};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Something to reconcile.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
pub struct LampSpec {
    /// How bright.
    pub watts: u32,
    /// Something that takes memory.
    pub note: String,
}

const OBJECTS: usize = 120;
const SHARDS: usize = 6;

fn lamp(number: usize) -> Lamp {
    Lamp::new(format!("lamp-{number}"), LampSpec { watts: 40, note: "n".repeat(2000) })
}

fn lamps() -> Fake {
    (0..OBJECTS).fold(Fake::new(), |fake, number| fake.with(lamp(number)))
}

/// What a reconcile of another object saw.
type Seen = Arc<Mutex<BTreeMap<String, (bool, usize)>>>;

/// One instance of an operator that gives each lamp a large child.
struct Instance {
    running: Option<Running>,
    metrics: Metrics,
    held: Arc<Mutex<Vec<HeldShard>>>,
    seen: Seen,
}

impl Instance {
    fn start(fake: &Fake, cache: ShardCache) -> Self {
        Self::start_reading(fake, cache, false)
    }

    /// `reads`: whether each reconcile reads another lamp, and lists all.
    fn start_reading(fake: &Fake, cache: ShardCache, reads: bool) -> Self {
        let (metrics, held, seen) = (Metrics::new(), Arc::new(Mutex::new(Vec::new())), Seen::default());
        let (told, noted) = (held.clone(), seen.clone());
        let operator = Operator::<Lamp>::new()
            .reconcile(move |ctx: Context<Lamp>| {
                let noted = noted.clone();
                async move {
                    let spec = &ctx.resource().spec;
                    let child = ConfigMap::new(ctx.name()).data("watts", spec.watts.to_string());
                    ctx.apply(child.data("note", &spec.note)).await?;
                    if reads {
                        let number: usize = ctx.name()["lamp-".len()..].parse().expect("a number");
                        let other = ctx.get::<Lamp>(&format!("lamp-{}", (number + 1) % OBJECTS)).await?;
                        let all = ctx.list::<Lamp>().await?.len();
                        noted.lock().insert(ctx.name().to_owned(), (other.is_some(), all));
                    }
                    Ok(Action::await_change())
                }
            })
            .owns::<ConfigMap>()
            .metrics(metrics.clone())
            .shards(SHARDS)
            .configure(move |settings| settings.shard_cache = cache)
            .on_shards(move |held| *told.lock() = held.to_vec());
        Self { running: Some(fake.run(operator)), metrics, held, seen }
    }

    fn held(&self) -> usize {
        self.held.lock().len()
    }

    fn dies(&mut self) {
        drop(self.running.take());
        self.held.lock().clear();
    }

    /// A figure of the cache of a kind.
    fn figure(&self, name: &str, kind: &str) -> usize {
        let page = self.metrics.page();
        let line = page.lines().find(|line| line.starts_with(&format!("konverge_cache_{name}{{kind=\"{kind}\"")));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or_default()
    }

    fn objects(&self, kind: &str) -> usize {
        self.figure("objects", kind)
    }

    fn bytes(&self) -> usize {
        self.figure("bytes", "Lamp") + self.figure("bytes", "ConfigMap")
    }
}

async fn wait(what: &str, is_so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}: not within two minutes");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Whether every lamp has a child that is like it.
async fn are_converged(fake: &Fake) -> bool {
    let (Ok(lamps), Ok(maps)) = (fake.list::<Lamp>().await, fake.list::<ConfigMap>().await) else { return false };
    let watts =
        |map: &ConfigMap| Some((map.inner().metadata.name.clone()?, map.inner().data.as_ref()?["watts"].clone()));
    let maps: BTreeMap<String, String> = maps.iter().filter_map(watts).collect();
    lamps
        .iter()
        .all(|lamp| maps.get(lamp.metadata.name.as_deref().unwrap_or_default()) == Some(&lamp.spec.watts.to_string()))
}

async fn three(fake: &Fake, cache: ShardCache) -> [Instance; 3] {
    let instances = [(); 3].map(|()| Instance::start(fake, cache));
    wait("everybody has a part", async || instances.iter().all(|instance| instance.held() == SHARDS / 3)).await;
    wait("all are reconciled", async || are_converged(fake).await).await;
    instances
}

/// Each object and each child is kept in full by one instance; the others keep little of it.
#[tokio::test(start_paused = true)]
async fn each_instance_keeps_its_own_part() -> Result<()> {
    let fake = lamps();
    let [mut one, two, three] = three(&fake, ShardCache::Own).await;
    let all = [&one, &two, &three];
    for kind in ["Lamp", "ConfigMap"] {
        let parts: Vec<usize> = all.iter().map(|instance| instance.objects(kind)).collect();
        assert_eq!(parts.iter().sum::<usize>(), OBJECTS, "{kind}: {parts:?}");
        assert!(parts.iter().all(|part| *part > OBJECTS / 8), "{kind}: {parts:?}");
    }
    let divided: Vec<usize> = all.iter().map(|instance| instance.bytes()).collect();

    // What is here when others go is all of it.
    one.dies();
    wait("the others have its shards", async || two.held() + three.held() == SHARDS).await;
    wait("their parts are all", async || two.objects("Lamp") + three.objects("Lamp") == OBJECTS).await;
    assert_eq!(two.objects("ConfigMap") + three.objects("ConfigMap"), OBJECTS);

    let whole = Instance::start(&self::lamps(), ShardCache::All);
    wait("it has all", async || whole.held() == SHARDS && whole.objects("ConfigMap") == OBJECTS).await;
    let most = divided.iter().max().unwrap();
    assert!(*most * 10 < whole.bytes() * 6, "{divided:?} bytes each, and {} if all is kept", whole.bytes());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn with_all_every_instance_keeps_everything() -> Result<()> {
    let fake = lamps();
    for instance in three(&fake, ShardCache::All).await {
        assert_eq!((instance.objects("Lamp"), instance.objects("ConfigMap")), (OBJECTS, OBJECTS));
    }
    Ok(())
}

/// Objects and children come, change and go while instances come and go. In the end every lamp has its child.
#[tokio::test(start_paused = true)]
async fn nothing_is_missed_while_parts_move() -> Result<()> {
    let fake = lamps();
    let [mut one, two, mut three] = three(&fake, ShardCache::Own).await;
    let churn = async |round: usize| -> Result<()> {
        for number in (round..OBJECTS).step_by(7) {
            fake.edit(&format!("lamp-{number}"), |lamp: &mut Lamp| lamp.spec.watts += 1).await?;
        }
        for number in (round..OBJECTS).step_by(11) {
            // Nobody has restored what the dead one had.
            let child = format!("lamp-{number}");
            if fake.find::<ConfigMap>(&child).await?.is_some() {
                fake.delete::<ConfigMap>(&child).await?;
            }
        }
        let again = format!("lamp-{round}");
        fake.delete::<Lamp>(&again).await?;
        fake.create(lamp(round)).await?;
        Ok(())
    };
    churn(0).await?;
    one.dies();
    for round in 1..20 {
        churn(round).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    wait("the dead one is replaced", async || two.held() + three.held() == SHARDS).await;
    let mut four = Instance::start(&fake, ShardCache::Own);
    for round in 20..30 {
        churn(round).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    wait("the new one has its part", async || four.held() == SHARDS / 3).await;
    three.running.take().expect("it runs").stop().await?;
    churn(30).await?;
    wait("all are like their lamps", async || are_converged(&fake).await).await;
    wait("the parts are all", async || two.objects("Lamp") + four.objects("Lamp") == OBJECTS).await;

    // A child that somebody deletes is restored by whoever has its owner now.
    for number in 0..OBJECTS {
        fake.delete::<ConfigMap>(&format!("lamp-{number}")).await?;
    }
    wait("children are restored", async || are_converged(&fake).await).await;
    four.running.take().expect("it runs").stop().await?;
    wait("the last one has all", async || two.objects("Lamp") == OBJECTS && are_converged(&fake).await).await;
    Ok(())
}

/// A reconcile sees objects of other parts: one by one from the server, and all by a list.
#[tokio::test(start_paused = true)]
async fn objects_of_other_parts_are_there_for_whoever_reads_them() -> Result<()> {
    let fake = lamps();
    let instances = [(); 2].map(|()| Instance::start_reading(&fake, ShardCache::Own, true));
    wait("everybody has a part", async || instances.iter().all(|instance| instance.held() == SHARDS / 2)).await;
    let seen = || {
        let all = instances.iter().flat_map(|instance| instance.seen.lock().clone());
        all.collect::<BTreeMap<String, (bool, usize)>>()
    };
    wait("all are reconciled", async || seen().len() == OBJECTS).await;
    for (lamp, (other, all)) in seen() {
        assert_eq!((other, all), (true, OBJECTS), "{lamp}");
    }
    Ok(())
}

/// A second kind of children, and whether reconciles read it.
fn with_secrets(fake: &Fake, reads: &Arc<AtomicBool>) -> (Running, Arc<Mutex<Vec<HeldShard>>>) {
    let (held, reads) = (Arc::new(Mutex::new(Vec::new())), reads.clone());
    let told = held.clone();
    let operator = Operator::<Lamp>::new()
        .reconcile(move |ctx: Context<Lamp>| {
            let reads = reads.load(Ordering::Relaxed);
            async move {
                let watts = ctx.resource().spec.watts.to_string();
                ctx.apply(ConfigMap::new(ctx.name()).data("watts", &watts)).await?;
                if reads {
                    ctx.apply(Secret::new(ctx.name()).data("watts", watts)).await?;
                }
                Ok(Action::await_change())
            }
        })
        .owns::<ConfigMap>()
        .owns::<Secret>()
        .shards(SHARDS)
        .configure(|settings| settings.shard_cache = ShardCache::Own)
        .on_shards(move |held| *told.lock() = held.to_vec());
    (fake.run(operator), held)
}

/// Two instances with a Secret for each lamp; the second one dies, and the first one has all shards.
async fn takes_all(fake: &Fake, reads: &Arc<AtomicBool>, before_death: impl FnOnce(&Fake)) -> Running {
    let [(first, held), (second, _)] = [(); 2].map(|()| with_secrets(fake, reads));
    wait("both have a part", async || held.lock().len() == SHARDS / 2).await;
    wait("all are reconciled", async || {
        are_converged(fake).await && fake.list::<Secret>().await.is_ok_and(|secrets| secrets.len() == OBJECTS)
    })
    .await;
    before_death(fake);
    drop(second);
    wait("the first one has all shards", async || held.lock().len() == SHARDS).await;
    first
}

/// A kind of children that cannot be listed holds up only reconciles that read it.
#[tokio::test(start_paused = true)]
async fn shards_that_come_do_not_wait_for_a_kind_that_nobody_reads() -> Result<()> {
    let (fake, reads) = (lamps(), Arc::new(AtomicBool::new(true)));
    let first = takes_all(&fake, &reads, |fake| {
        reads.store(false, Ordering::Relaxed);
        fake.when::<Secret>(Verb::List).fail(500);
    })
    .await;
    for number in 0..OBJECTS {
        fake.edit(&format!("lamp-{number}"), |lamp: &mut Lamp| lamp.spec.watts = 60).await?;
    }
    wait("all are like their lamps", async || are_converged(&fake).await).await;
    first.stop().await
}

/// While the objects of a shard that came are read, reconciles of the others go on.
#[tokio::test(start_paused = true)]
async fn shards_that_are_here_do_not_wait_for_one_that_comes() -> Result<()> {
    let (fake, reads) = (lamps(), Arc::new(AtomicBool::new(true)));
    let slow = Duration::from_secs(25);
    let first = takes_all(&fake, &reads, |fake| fake.when::<ConfigMap>(Verb::List).delay(slow)).await;
    let began = Instant::now();
    for number in 0..OBJECTS {
        fake.edit(&format!("lamp-{number}"), |lamp: &mut Lamp| lamp.spec.watts = 60).await?;
    }
    let changed = async || {
        let maps = fake.list::<ConfigMap>().await.unwrap_or_default();
        maps.iter().filter(|map| map.inner().data.as_ref().is_some_and(|data| data["watts"] == "60")).count()
    };
    while changed().await < OBJECTS / 4 {
        assert!(began.elapsed() < slow / 2, "reconciles of shards that were here wait: {} did not", changed().await);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    wait("all are like their lamps", async || are_converged(&fake).await).await;
    first.stop().await
}
