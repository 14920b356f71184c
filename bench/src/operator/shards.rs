//! Replicas that divide the objects (B8). In: widgets in a cluster, and reconciles that wait as if for a server. Out: reconciles a second
//! of one replica and of three, and how long a shard is idle when it moves. The replicas are in this process, each with threads of its own:
//! they mostly wait, and compete for nothing but the server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use konverge::prelude::*;
use konverge::{HeldShard, Term};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::cluster::Cluster;
use super::controllers::settings;
use super::kinds::Widget;
use super::{Scale, compare_rates};
use crate::invalid_run::InvalidRun;
use crate::latency::Latencies;
use crate::report::{Figure, Figures};

/// Into how many shards the widgets are divided.
const SHARDS: usize = 12;

/// What a reconcile does: waits as if for a server, and wants to be called again.
#[derive(Clone, Copy)]
struct Work {
    wait: Duration,
    requeue: Duration,
}

/// More than replicas can do, which shows how much they do.
const SATURATED: Work = Work { wait: Duration::from_millis(20), requeue: Duration::from_millis(10) };

/// Much less than they can do, which shows how long nobody works on a shard: with more, its objects would wait behind those of other shards.
const RELAXED: Work = Work { wait: Duration::from_millis(2), requeue: Duration::from_millis(20) };

/// So many widgets have a shard each in which nothing waits.
const RELAXED_WIDGETS: usize = 5 * SHARDS;

/// How many reconciles run at the same time on each replica.
const CONCURRENCY: usize = 10;

/// How long it may take until shards are where they belong.
const DIVIDED_WITHIN: Duration = Duration::from_secs(60);

/// How long to look on after shards have moved.
const SETTLED: Duration = Duration::from_millis(500);

/// Three replicas are to do at least this many times as much as one.
const AIM: f64 = 2.5;

/// A moved shard is to be idle for at most this long, in milliseconds.
const IDLE_AIM: f64 = 300.0;

/// What all replicas do.
#[derive(Clone, Default)]
struct Diary {
    reconciles: Arc<AtomicUsize>,
    /// Who worked on each shard last, by the name of its Lease, and until when.
    shards: Arc<Mutex<HashMap<String, (String, Instant)>>>,
    /// How long shards were idle while they moved.
    idle: Arc<Mutex<Latencies>>,
}

impl Diary {
    /// How long shards were idle that moved since this was asked last.
    fn take_idle(&self) -> Latencies {
        std::mem::take(&mut *self.idle.lock())
    }

    /// A reconcile begins in the term of this task, or has ended.
    fn note(&self, has_ended: bool) {
        let Some(fence) = Term::of_this_task().and_then(|term| term.fence.clone()) else { return };
        let mut parts = fence.splitn(4, '/').map(str::to_owned);
        let (Some(lease), Some(holder)) = (parts.nth(1), parts.nth(1)) else { return };
        let (now, mut shards) = (Instant::now(), self.shards.lock());
        let last = shards.insert(lease, (holder.clone(), now));
        if let Some((_, since)) = last.filter(|(before, _)| *before != holder && !has_ended) {
            self.idle.lock().record(now.saturating_duration_since(since));
        }
    }
}

/// A replica that runs.
struct Replica {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
    held: Arc<AtomicUsize>,
}

impl Replica {
    fn start(cluster: &Cluster, diary: &Diary, work: Work) -> Result<Self, InvalidRun> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
        let inside = runtime.enter();
        let url = cluster.url().parse().map_err(|_| InvalidRun::new("the server has no address"))?;
        let client =
            konverge_runtime::connect(kube::Config::new(url)).map_err(|error| InvalidRun::new(error.to_string()))?;
        let (diary, held) = (diary.clone(), Arc::<AtomicUsize>::default());
        let told = held.clone();
        let mut settings = settings();
        settings.shards = SHARDS;
        settings.controller.max_concurrent_reconciles = CONCURRENCY;
        let operator = Operator::<Widget>::new()
            .settings(settings)
            .client(client)
            .on_shards(move |held: &[HeldShard]| told.store(held.len(), Relaxed))
            .reconcile(move |_: Context<Widget>| {
                let diary = diary.clone();
                async move {
                    diary.note(false);
                    tokio::time::sleep(work.wait).await;
                    diary.reconciles.fetch_add(1, Relaxed);
                    diary.note(true);
                    Ok(Action::requeue(work.requeue))
                }
            });
        let (stop, stopped) = oneshot::channel::<()>();
        let task = runtime.spawn(operator.run_until(async { drop(stopped.await) }));
        drop(inside);
        Ok(Self { runtime, stop, task, held })
    }

    /// Stops as at SIGTERM.
    fn stop(self) -> Result<(), InvalidRun> {
        drop(self.stop);
        let ended = self.runtime.block_on(self.task).map_err(|error| InvalidRun::new(error.to_string()))?;
        ended.map_err(|error| InvalidRun::new(error.to_string()))
    }
}

/// Runs the stage.
pub(super) fn measure(scale: &Scale) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    rates(scale, &mut figures)?;
    moves(scale, &mut figures)?;
    Ok(figures)
}

/// How much more three replicas do than one.
fn rates(scale: &Scale, figures: &mut Figures) -> Result<(), InvalidRun> {
    let cluster = Cluster::start(scale.sharded)?;
    let diary = Diary::default();
    let mut replicas = vec![Replica::start(&cluster, &diary, SATURATED)?];
    divided(&replicas)?;
    let one = rate(&diary, scale.sharding);
    for _ in 0..2 {
        replicas.push(Replica::start(&cluster, &diary, SATURATED)?);
    }
    divided(&replicas)?;
    let three = rate(&diary, scale.sharding);
    replicas.into_iter().try_for_each(Replica::stop)?;
    let of = |replicas: &str| format!("{replicas}, reconciles that wait for 20 ms, {CONCURRENCY} at a time");
    figures.add(Figure::rate(of("one replica"), one, "reconciles/s"));
    let compared = compare_rates(&[one], &[three]);
    figures.add(Figure::rate(of("three replicas"), three, "reconciles/s").compared(compared).with_aim(AIM * one));
    Ok(())
}

/// How long shards are idle while a replica comes, and while one stops.
fn moves(scale: &Scale, figures: &mut Figures) -> Result<(), InvalidRun> {
    let cluster = Cluster::start(RELAXED_WIDGETS)?;
    let diary = Diary::default();
    let mut replicas = vec![Replica::start(&cluster, &diary, RELAXED)?, Replica::start(&cluster, &diary, RELAXED)?];
    divided(&replicas)?;
    let (mut came, mut went) = (Latencies::default(), Latencies::default());
    for _ in 0..scale.moves {
        rate(&diary, SETTLED);
        drop(diary.take_idle());
        replicas.push(Replica::start(&cluster, &diary, RELAXED)?);
        divided(&replicas)?;
        rate(&diary, SETTLED);
        came.extend(diary.take_idle());
        // The oldest stops, and the others have its shards.
        replicas.remove(0).stop()?;
        divided(&replicas)?;
        rate(&diary, SETTLED);
        went.extend(diary.take_idle());
    }
    let enough = scale.moves * SHARDS / 4;
    if came.len() < enough || went.len() < enough {
        let moved = format!("{} shards moved to new replicas and {} from one that stopped", came.len(), went.len());
        return Err(InvalidRun::new(format!("too few: {moved}")));
    }
    replicas.into_iter().try_for_each(Replica::stop)?;
    for (what, idle) in [("a replica comes", &came), ("a replica stops", &went)] {
        for (share, name) in [(0.5, "p50"), (1.0, "max")] {
            let what = format!("a moved shard is idle, {what}, {} shards, {name}", idle.len());
            figures.add(Figure::cost(what, idle.millis(share), "ms").with_aim(IDLE_AIM));
        }
    }
    Ok(())
}

/// Reconciles a second, for this long.
fn rate(diary: &Diary, time: Duration) -> f64 {
    let (before, began) = (diary.reconciles.load(Relaxed), Instant::now());
    std::thread::sleep(time);
    (diary.reconciles.load(Relaxed) - before) as f64 / began.elapsed().as_secs_f64()
}

/// Waits until everybody has an even part.
fn divided(replicas: &[Replica]) -> Result<(), InvalidRun> {
    let began = Instant::now();
    let is_even = || {
        let held: Vec<usize> = replicas.iter().map(|replica| replica.held.load(Relaxed)).collect();
        held.iter().sum::<usize>() == SHARDS && held.iter().all(|held| *held >= SHARDS / replicas.len())
    };
    while !is_even() {
        if began.elapsed() > DIVIDED_WITHIN {
            return Err(InvalidRun::new("the shards are not divided within a minute"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
