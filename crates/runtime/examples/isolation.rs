//! What bad reconcilers cost the others: how long good keys wait for their reconcile, alone and beside keys that panic,
//! hang, hoard and block. Prints figures; holds nobody to them.
//!
//! `cargo run --release -p konverge-runtime --example isolation [ROUNDS [SECONDS]]`

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apiserver::{ApiServer, Options};
use konverge_core::ObjectKey;
use konverge_runtime::{
    Action, Backoff, BoxFuture, Caches, Cause, Controller, ControllerOptions, Error, QueueOptions, Run, Target,
    WatchSettings, What,
};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// How often a good key is woken.
const EVERY: Duration = Duration::from_millis(1);
/// How many good keys there are.
const GOOD: usize = 100;
/// Every so many good wakeups, each bad key is woken too.
const BAD_EVERY: usize = 100;

/// When each good key was woken, and how long those waited that have run.
#[derive(Default)]
struct Waits {
    woken: HashMap<ObjectKey, Instant>,
    waited: Vec<Duration>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::panic::set_hook(Box::new(|_| ()));
    let mut numbers = std::env::args().skip(1).filter_map(|number| number.parse::<u64>().ok());
    let (rounds, seconds) = (numbers.next().unwrap_or(3), numbers.next().unwrap_or(5));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    for round in 1..=rounds {
        let alone = runtime.block_on(measure(&[], seconds))?;
        let beside = runtime.block_on(measure(&["panic", "hang", "hoard", "block"], seconds))?;
        let (p50, p99) = (ratio(alone[0], beside[0]), ratio(alone[1], beside[1]));
        println!(
            "round {round}: alone p50 {:?} p99 {:?}, beside p50 {:?} p99 {:?}: {p50:.2}x, {p99:.2}x",
            alone[0], alone[1], beside[0], beside[1]
        );
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

fn ratio(alone: Duration, beside: Duration) -> f64 {
    beside.as_secs_f64() / alone.as_secs_f64().max(1e-9)
}

/// The median and the 99th percentile of how long good keys wait, beside these bad ones.
async fn measure(bad: &[&str], seconds: u64) -> Result<[Duration; 2], Box<dyn std::error::Error>> {
    let client = Client::new(ApiServer::open(Options::default()).await?, "default");
    let caches = Caches::new(client, WatchSettings::default());
    let backoff = Backoff { initial: Duration::from_millis(1), max: Duration::from_millis(1), ..Backoff::default() };
    let options = ControllerOptions {
        concurrency: 16,
        timeout: Some(Duration::from_millis(500)),
        drain: Duration::from_secs(1),
        queue: QueueOptions { backoff, ..QueueOptions::default() },
        ..ControllerOptions::default()
    };
    let controller = Controller::new("isolation", Target::of::<ConfigMap>(), caches, options);
    let waits = Arc::new(Mutex::new(Waits::default()));
    let (stop, stopped) = oneshot::channel::<()>();
    let seen = waits.clone();
    let reconciler = move |run: Run| -> BoxFuture<Result<Action, Error>> {
        let seen = seen.clone();
        Box::pin(async move {
            match run.key.name() {
                "panic" => panic!("on purpose"),
                "hang" => std::future::pending().await,
                "hoard" => drop(std::hint::black_box(vec![1u8; 100 << 20])),
                "block" => std::thread::sleep(Duration::from_millis(50)),
                _ => {
                    let mut waits = seen.lock();
                    if let Some(woken) = waits.woken.remove(&run.key) {
                        waits.waited.push(woken.elapsed());
                    }
                }
            }
            Ok(Action::Wait)
        })
    };
    let running = controller.clone();
    let task = tokio::spawn(async move { running.run(Arc::new(reconciler), async { drop(stopped.await) }).await });
    controller.primary().synced().await;
    let key = |name: &str| ObjectKey::new(Some("default"), name);
    let cause = |key: &ObjectKey| Cause {
        kind: "ConfigMap".into(),
        key: key.clone(),
        what: What::Created,
        resource_version: String::new(),
    };
    let mut clock = tokio::time::interval(EVERY);
    let began = Instant::now();
    for at in 0.. {
        clock.tick().await;
        if began.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        let good = key(&format!("good-{}", at % GOOD));
        waits.lock().woken.insert(good.clone(), Instant::now());
        controller.wake(&good, cause(&good));
        for name in bad.iter().filter(|_| at % BAD_EVERY == 0) {
            controller.wake(&key(name), cause(&key(name)));
        }
    }
    // That it has ended by itself is seen below.
    let _ = stop.send(());
    task.await?;
    let mut waited = std::mem::take(&mut waits.lock().waited);
    waited.sort();
    let at = |share: f64| waited.get((waited.len() as f64 * share) as usize).copied().unwrap_or_default();
    Ok([at(0.5), at(0.99)])
}
