//! The engine as a whole, against an API server in the same process: what bad reconcilers do to others, which is nothing; and in
//! `standby` what an instance does that does not lead.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics where it is")]

mod standby;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_apiserver::{ApiServer, Options};
use konverge_core::ObjectKey;
use konverge_runtime::{
    Action, Backoff, BoxFuture, Caches, Controller, ControllerOptions, Error, QueueOptions, Run, Target, Trigger,
    Verdict, WatchSettings,
};
use kube::Client;
use kube::api::{Api, PostParams};

async fn client() -> Client {
    Client::new(ApiServer::open(Options::default()).await.unwrap(), "default")
}

async fn create(client: &Client, name: &str) {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    Api::<ConfigMap>::default_namespaced(client.clone()).create(&PostParams::default(), &map).await.unwrap();
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("default"), name)
}

/// Polls until it is so; the deadline is far beyond what it takes.
async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} did not happen");
}

/// Runs a controller of ConfigMaps until `look` returns.
async fn with_controller<R, L>(client: Client, options: ControllerOptions, reconcile: R, look: L)
where
    R: Fn(Run) -> BoxFuture<Result<Action, Error>> + Send + Sync + 'static,
    L: AsyncFnOnce(&Controller),
{
    let caches = Caches::new(client, WatchSettings::default());
    let controller = Controller::new("configmaps", Target::of::<ConfigMap>(), caches.clone(), options);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let controller = controller.clone();
        async move { controller.run(Arc::new(reconcile), async { drop(stopped.await) }).await }
    });
    look(&controller).await;
    stop.send(()).unwrap();
    running.await.unwrap();
    caches.shutdown().await;
}

fn quick() -> ControllerOptions {
    let backoff = Backoff { initial: Duration::from_millis(5), max: Duration::from_millis(20), ..Backoff::default() };
    ControllerOptions {
        concurrency: 4,
        timeout: Some(Duration::from_millis(50)),
        queue: QueueOptions { backoff, ..QueueOptions::default() },
        ..ControllerOptions::default()
    }
}

#[tokio::test]
async fn a_panic_or_a_hang_ends_one_reconcile_and_no_more() {
    let client = client().await;
    for name in ["panics", "hangs", "fails", "gives-up"] {
        create(&client, name).await;
    }
    for number in 0..50 {
        create(&client, &format!("good-{number}")).await;
    }
    let runs: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let counted = runs.clone();
    let reconcile = move |run: Run| -> BoxFuture<Result<Action, Error>> {
        let name = run.key.name().to_owned();
        *counted.lock().unwrap().entry(name.clone()).or_default() += 1;
        // A panic before there is a future is a panic like any other.
        assert!(name != "panics", "on purpose");
        Box::pin(async move {
            match name.as_str() {
                "hangs" => std::future::pending().await,
                "fails" => Err(Error::new("not yet")),
                "gives-up" => Err(Error::permanent("never")),
                _ => Ok(Action::await_change()),
            }
        })
    };
    let ran = |name: &str| runs.lock().unwrap().get(name).copied().unwrap_or_default();
    with_controller(client, quick(), reconcile, async |controller| {
        eventually("every good one", || (0..50).all(|number| ran(&format!("good-{number}")) > 0)).await;
        for name in ["panics", "hangs", "fails"] {
            eventually("a retry", || ran(name) >= 3).await;
        }
        let last = |name: &str| controller.history().of(&key(name)).last().cloned().unwrap().verdict;
        assert_eq!(last("panics"), Verdict::Panicked { message: "on purpose".into() });
        assert_eq!(last("hangs"), Verdict::TimedOut);
        assert!(matches!(last("fails"), Verdict::Failed { retried: true, .. }));
        assert!(matches!(last("gives-up"), Verdict::Failed { retried: false, .. }));
    })
    .await;
    assert_eq!(ran("gives-up"), 1);
    assert_eq!(ran("good-7"), 1);
}

/// Two retries, then nothing until something changes; whoever looks is told, and so is the reconcile itself beforehand.
#[tokio::test]
async fn who_is_given_up_is_told_of() {
    let client = client().await;
    for name in ["fails", "panics"] {
        create(&client, name).await;
    }
    let mut options = quick();
    options.queue.backoff.max_retries = Some(2);
    type Runs = HashMap<String, Vec<(u32, bool)>>;
    let runs: Arc<Mutex<Runs>> = Arc::default();
    let noted = runs.clone();
    let reconcile = move |run: Run| -> BoxFuture<Result<Action, Error>> {
        let name = run.key.name().to_owned();
        noted.lock().unwrap().entry(name.clone()).or_default().push((run.attempt, run.is_last));
        Box::pin(async move {
            assert!(name != "panics", "on purpose");
            Err(Error::new("not yet"))
        })
    };
    with_controller(client, options, reconcile, async |controller| {
        let verdicts = |name: &str| -> Vec<Verdict> {
            controller.history().of(&key(name)).into_iter().map(|record| record.verdict).collect()
        };
        let failed = |retried| Verdict::Failed { reason: "Failed".into(), message: "not yet".into(), retried };
        let panicked = || Verdict::Panicked { message: "on purpose".into() };
        let gave_up = |last| Verdict::GaveUp { attempts: 3, last: Box::new(last) };
        for (name, expect) in [
            ("fails", vec![failed(true), failed(true), gave_up(failed(false))]),
            ("panics", vec![panicked(), panicked(), gave_up(panicked())]),
        ] {
            eventually("it to be given up", || verdicts(name).len() >= 3).await;
            assert_eq!(verdicts(name), expect, "{name}");
            assert_eq!(runs.lock().unwrap()[name], [(1, false), (2, false), (3, true)], "{name}");
        }
        assert_eq!(controller.queue().resting, 2);
    })
    .await;
}

#[tokio::test]
async fn a_stop_lets_running_reconciles_finish() {
    let client = client().await;
    create(&client, "slow").await;
    let (began, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (began.clone(), ended.clone());
    let reconcile = move |_: Run| -> BoxFuture<Result<Action, Error>> {
        let (began, ended) = counts.clone();
        Box::pin(async move {
            began.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            ended.fetch_add(1, Ordering::SeqCst);
            Ok(Action::await_change())
        })
    };
    let options = ControllerOptions { timeout: None, ..quick() };
    with_controller(client, options, reconcile, async |_| {
        eventually("the start", || began.load(Ordering::SeqCst) == 1).await;
    })
    .await;
    assert_eq!((began.load(Ordering::SeqCst), ended.load(Ordering::SeqCst)), (1, 1));
}

/// An operator may look at Secrets that its objects name and make others that belong to them: both are Secrets.
#[tokio::test]
async fn a_kind_that_is_watched_for_two_reasons_wakes_for_both() {
    let client = client().await;
    for name in ["named", "noted"] {
        create(&client, name).await;
    }
    let runs: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let counted = runs.clone();
    let reconcile = move |run: Run| -> BoxFuture<Result<Action, Error>> {
        *counted.lock().unwrap().entry(run.key.name().to_owned()).or_default() += 1;
        Box::pin(async { Ok(Action::await_change()) })
    };
    let ran = |name: &str| runs.lock().unwrap().get(name).copied().unwrap_or_default();
    let wakes = |name: &'static str| Trigger::mapped("Secret", move |_| vec![key(name)]);
    with_controller(client.clone(), quick(), reconcile, async |controller| {
        eventually("the first look", || ["named", "noted"].into_iter().all(|name| ran(name) == 1)).await;
        let secrets = controller.watch(Target::of::<Secret>(), wakes("named"));
        controller.watch(Target::of::<Secret>(), Trigger::owner("Secret", "", "ConfigMap", true));
        secrets.synced().await;
        let mut secret = Secret::default();
        secret.metadata.name = Some("s".to_owned());
        secret.metadata.annotations =
            Some([("konverge.dev/owner".to_owned(), "ConfigMap/default/noted".to_owned())].into());
        Api::<Secret>::default_namespaced(client).create(&PostParams::default(), &secret).await.unwrap();
        eventually("both", || ["named", "noted"].into_iter().all(|name| ran(name) == 2)).await;
    })
    .await;
}
