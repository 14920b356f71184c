//! One process with several controllers, background tasks and triggers from outside of the cluster.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};

use futures_util::stream::{self, StreamExt};
use konverge::k8s_openapi::api::core::v1::ConfigMap as RawConfigMap;
use konverge::kube::api::{Api, PostParams};
use konverge::prelude::*;
use konverge::{BackgroundTask, key_channel};
use konverge_testkit::{Fake, Verb};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Sells at the price of the day.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
pub struct ShopSpec {}

/// Takes the money.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Till", namespaced)]
pub struct TillSpec {}

fn shop(name: &str) -> Shop {
    Shop::new(name, ShopSpec {})
}

/// The price of the day, and why shops were reconciled.
#[derive(Default)]
struct Price {
    now: AtomicU32,
    causes: Mutex<Vec<String>>,
}

async fn sell(ctx: Context<Shop>) -> Result<Action> {
    let price = ctx.state::<Arc<Price>>()?;
    price.causes.lock().extend(ctx.causes().iter().map(ToString::to_string));
    ctx.apply(ConfigMap::new(ctx.name()).data("price", price.now.load(SeqCst).to_string())).await?;
    Ok(Action::await_change())
}

async fn charge(ctx: Context<Till>) -> Result<Action> {
    let price = ctx.state::<Arc<Price>>()?.now.load(SeqCst);
    let currency = ctx.state::<&'static str>()?;
    ctx.apply(ConfigMap::new(ctx.name()).data("price", format!("{price} {currency}"))).await?;
    Ok(Action::await_change())
}

fn price_is(price: &'static str) -> impl Fn(&ConfigMap) -> bool {
    move |map| map.get("price") == Some(price)
}

/// The operator's state is shared by both controllers and the task; the task notices a new price and triggers a shop; and
/// while the operator stops, the task can still write.
#[tokio::test]
async fn two_controllers_a_task_and_a_trigger_share_a_process() -> Result<()> {
    let fake = Fake::new().with(shop("s")).with(Till::new("t", TillSpec {}));
    let (keys, triggered) = key_channel();
    let (announce, announced) = oneshot::channel::<u32>();
    let sync = |task: BackgroundTask| async move {
        assert_eq!(task.name(), "price-sync");
        let price = announced.await.map_err(Error::new)?;
        task.state::<Arc<Price>>()?.now.store(price, SeqCst);
        keys.send(ObjectKey::new(Some("default"), "nobody")).await?;
        keys.send(ObjectKey::new(Some("default"), "s")).await?;
        task.stopped().await;
        let maps: Api<RawConfigMap> = Api::namespaced(task.client(), "default");
        maps.create(&PostParams::default(), &ConfigMap::new("closed").into_inner()).await?;
        Ok(())
    };
    let tills = Controller::<Till>::new().reconcile(charge).state("crowns");
    let shops = Operator::<Shop>::new().reconcile(sell).owns::<ConfigMap>().triggered_by("prices", triggered);
    let price = Arc::new(Price::default());
    let operator = shops.state(price.clone()).and(tills).background("price-sync", sync);
    assert_eq!(operator.definitions().len(), 2);
    let rules = operator.rules();

    let running = fake.run_unrestricted(operator);
    fake.wait_until("s", price_is("0")).await?;
    fake.wait_until("t", price_is("0 crowns")).await?;
    announce.send(7).expect("the task waits for it");
    fake.wait_until("s", price_is("7")).await?;
    let triggered = "Shop default/s was triggered by prices";
    assert!(price.causes.lock().iter().any(|cause| cause == triggered), "{:?}", price.causes);
    running.stop().await?;
    fake.get::<ConfigMap>("closed").await?;
    assert!(price_is("0 crowns")(&fake.get("t").await?));
    assert!(fake.used().without(&rules).is_empty(), "{}", fake.used().without(&rules));
    Ok(())
}

/// A controller's own state is nobody else's, and goes before the operator's.
#[tokio::test]
async fn state_of_a_controller_is_its_own() -> Result<()> {
    async fn name(ctx: Context<Shop>) -> Result<Action> {
        ctx.apply(ConfigMap::new(ctx.name()).data("state", ctx.state::<&'static str>()?.to_owned())).await?;
        Ok(Action::await_change())
    }
    async fn own(ctx: Context<Till>) -> Result<Action> {
        let texts = (ctx.state::<&'static str>()?, ctx.state::<u32>()?);
        ctx.apply(ConfigMap::new(ctx.name()).data("state", format!("{texts:?}"))).await?;
        Ok(Action::await_change())
    }
    let fake = Fake::new().with(shop("s")).with(Till::new("t", TillSpec {}));
    let tills = Controller::<Till>::new().reconcile(own).state("a till's");
    let operator = Operator::<Shop>::new().reconcile(name).state("the operator's").state(5u32).and(tills);
    let running = fake.run_unrestricted(operator);
    let state = |text: &'static str| move |map: &ConfigMap| map.get("state") == Some(text);
    fake.wait_until("s", state("the operator's")).await?;
    fake.wait_until("t", state("(\"a till's\", 5)")).await?;
    running.stop().await
}

/// A controller is tested by itself, before it is part of an operator.
#[tokio::test]
async fn one_controller_is_tested_alone() -> Result<()> {
    let fake = Fake::new().with(Till::new("t", TillSpec {}));
    let tills = Controller::<Till>::new().reconcile(charge).state(Arc::new(Price::default())).state("crowns");
    fake.reconcile(&tills, "t").await?;
    assert!(price_is("0 crowns")(&fake.get("t").await?));
    Ok(())
}

fn idle() -> Operator<Shop> {
    Operator::<Shop>::new().reconcile(async |_: Context<Shop>| Ok(Action::await_change()))
}

/// Whoever started the process starts it anew; an operator that goes on without a part of it would look healthy.
#[tokio::test(start_paused = true)]
async fn a_task_that_fails_ends_the_operator() -> Result<()> {
    let fails = |_: BackgroundTask| async { Err(Error::new("the market is closed")) };
    let panics = |_: BackgroundTask| async { panic!("the market burns") };
    let forgets = |task: BackgroundTask| async move { task.state::<u32>().map(drop) };
    let stream = stream::iter([0]).map(|_| -> ObjectKey { panic!("the wire is cut") });
    for (operator, expect) in [
        (idle().background("prices", fails), "the background task prices failed: the market is closed"),
        (idle().background("prices", panics), "the background task prices panicked: the market burns"),
        (
            idle().background("prices", forgets),
            "the operator of the background task prices has no state of the type u32",
        ),
        (idle().triggered_by("prices", stream), "a trigger stream of shop.example.com panicked: the wire is cut"),
    ] {
        let fake = Fake::new().with(shop("s"));
        let ended = operator.in_test(fake.client()).run_until(pending()).await.unwrap_err().to_string();
        assert!(ended.contains(expect), "{ended}");
    }
    Ok(())
}

/// A task that is done, and a stream that ends, leave the rest as it is.
#[tokio::test]
async fn a_task_and_a_stream_may_end() -> Result<()> {
    let fake = Fake::new().with(shop("s"));
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let triggered = stream::iter([ObjectKey::new(Some("default"), "s")]);
    let operator = Operator::<Shop>::new()
        .reconcile(sell)
        .state(Arc::new(Price::default()))
        .background("once", move |_: BackgroundTask| async move {
            counted.fetch_add(1, SeqCst);
            Ok(())
        })
        .triggered_by("once", triggered);
    let running = fake.run_unrestricted(operator);
    fake.wait_until("s", price_is("0")).await?;
    fake.create(shop("later")).await?;
    fake.wait_until("later", price_is("0")).await?;
    running.stop().await?;
    assert_eq!(count.load(SeqCst), 1);
    Ok(())
}

/// A task starts when the caches are filled: it may rely on them.
#[tokio::test(start_paused = true)]
async fn a_task_waits_for_the_caches() -> Result<()> {
    let fake = Fake::new().with(shop("s"));
    fake.when::<Shop>(Verb::Watch).times(3).fail(503);
    let started = Arc::new(AtomicUsize::new(0));
    let seen = started.clone();
    let operator = idle().background("late", move |task: BackgroundTask| async move {
        seen.fetch_add(1, SeqCst);
        task.stopped().await;
        Ok(())
    });
    let running = fake.run_unrestricted(operator);
    while fake.calls().only(|call| call.is_about("Shop") && call.code == Some(503)).len() < 3 {
        assert_eq!(started.load(SeqCst), 0, "{}", fake.calls());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while started.load(SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.stop().await
}

/// A task reads what controllers watch without a request, and what nobody watches with one.
#[tokio::test]
async fn a_task_reads_from_the_caches() -> Result<()> {
    let fake = Fake::new().with(shop("s")).with(shop("t")).with(ConfigMap::new("prices").data("gold", "7"));
    let (done, read) = oneshot::channel::<Vec<String>>();
    let operator = idle().background("reader", move |task: BackgroundTask| async move {
        let key = |name| ObjectKey::new(Some("default"), name);
        let one = task.get::<Shop>(&key("s")).await?.map(|shop| shop.metadata.name);
        let none = task.get::<Shop>(&key("none")).await?.is_none();
        let shops = (task.list::<Shop>().await?.len(), task.list_in::<Shop>("elsewhere").await?.len());
        let gold = task.get::<ConfigMap>(&key("prices")).await?.and_then(|map| map.get("gold").map(str::to_owned));
        let maps = (task.list::<ConfigMap>().await?.len(), task.list_in::<ConfigMap>("default").await?.len());
        // The other end waits for it.
        let _ = done.send(vec![format!("{one:?} {none} {shops:?}"), format!("{gold:?} {maps:?}")]);
        task.stopped().await;
        Ok(())
    });
    let running = fake.run_unrestricted(operator);
    let read = read.await.unwrap();
    assert_eq!(read[0], "Some(Some(\"s\")) true (2, 0)");
    assert!(read[1].starts_with("Some(\"7\") ("), "{read:?}");
    running.stop().await?;
    let reads = |kind: &'static str, verbs: &'static [Verb]| {
        fake.calls().only(move |call| call.is_about(kind) && verbs.contains(&call.verb)).len()
    };
    assert_eq!(reads("Shop", &[Verb::Get, Verb::List]), 0, "{}", fake.calls());
    assert_eq!(reads("Shop", &[Verb::Watch]), 1, "{}", fake.calls());
    assert_eq!(reads("ConfigMap", &[Verb::Get, Verb::Watch]), 2, "{}", fake.calls());
    Ok(())
}

/// A task that does not listen is cut off when the drain time is over, and its operator ends well.
#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_listen_is_cut_off() -> Result<()> {
    let fake = Fake::new().with(shop("s"));
    let (began, started) = oneshot::channel::<()>();
    let drain = |settings: &mut Settings| settings.graceful_shutdown_timeout = Duration::from_secs(7);
    let dropped = Arc::new(AtomicBool::new(false));
    struct Noted(Arc<AtomicBool>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let noted = Noted(dropped.clone());
    let deaf = move |_: BackgroundTask| async move {
        let _noted = noted;
        drop(began);
        pending().await
    };
    let running = fake.run_unrestricted(idle().configure(drain).background("deaf", deaf));
    started.await.unwrap_err();
    let asked = Instant::now();
    running.stop().await?;
    assert!((Duration::from_secs(7)..Duration::from_secs(9)).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    assert!(dropped.load(SeqCst));
    Ok(())
}

/// Senders learn that nobody reads any more.
#[tokio::test]
async fn keys_for_an_operator_that_ended_are_refused() -> Result<()> {
    let (keys, triggered) = key_channel();
    let fake = Fake::new().with(shop("s"));
    let running = fake.run_unrestricted(idle().triggered_by("prices", triggered));
    keys.send(ObjectKey::new(Some("default"), "s")).await?;
    running.stop().await?;
    let refused = keys.send(ObjectKey::new(Some("default"), "s")).await.unwrap_err().to_string();
    assert_eq!(refused, "default/s cannot be triggered: the operator that reconciles it has stopped");
    Ok(())
}
