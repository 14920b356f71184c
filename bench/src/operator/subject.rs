//! The subject process: this program, started by itself. In: a job. Out: the result of its task, on stdout. The process ends
//! with the task; the parent kills it after a timeout.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::{Client, Config};

use super::controllers::{self, Work};
use super::job::{Cost, Job, Line, Task, TaskResult};
use super::reconcile_counter::ReconcileCounter;
use super::{converge, hold, lead};
use crate::invalid_run::{InvalidRun, expect};
use crate::process::Process;

/// Runs the task of a job and prints its result.
pub(crate) fn run_subject(job: &str) -> Result<(), InvalidRun> {
    let begun = Instant::now();
    let job: Job =
        serde_json::from_str(job).map_err(|error| InvalidRun::new(format!("cannot read the job: {error}")))?;
    let runtime = match job.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?,
    };
    // The work is a spawned task, because the main thread is not one of the runtime's workers.
    let ended = runtime.block_on(async { tokio::spawn(run(job, begun)).await });
    let line = match ended {
        Ok(Ok(result)) => Line::Done(result),
        Ok(Err(invalid)) => Line::Failed(invalid.to_string()),
        Err(error) => Line::Failed(error.to_string()),
    };
    print_line(&line)?;
    // Controllers are still running, and nothing is lost when they are stopped like this.
    std::process::exit(0)
}

/// Prints a line for the parent process.
pub(super) fn print_line(line: &Line) -> Result<(), InvalidRun> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line).map_err(|error| InvalidRun::new(error.to_string()))?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

async fn run(job: Job, begun: Instant) -> Result<TaskResult, InvalidRun> {
    let uri = job.server.parse().map_err(|_| InvalidRun::new(format!("{} is not an address", job.server)))?;
    let client = Client::try_from(Config::new(uri)).map_err(|error| InvalidRun::new(error.to_string()))?;
    match job.task {
        Task::Noop { objects, storms, idle } => noop(&job, client, begun, objects, storms, idle).await,
        Task::Events { objects, changes, pause, resync } => {
            let work = Work { objects, pause, resync, stamped: true, counter: Arc::default() };
            events(&job, client, work, changes).await
        }
        Task::Hold { objects, kind } => hold::hold(job.implementation, client, objects, kind).await,
        Task::Cold => cold(&job, client).await,
        Task::Lead { election } => lead::lead(election, client).await,
        Task::Converge { parents } => {
            let reconciles = converge::start(job.implementation, client, parents).await?;
            until_stdin_closes().await?;
            Ok(reconciles.result())
        }
    }
}

async fn noop(
    job: &Job,
    client: Client,
    begun: Instant,
    objects: usize,
    storms: usize,
    idle: Duration,
) -> Result<TaskResult, InvalidRun> {
    let own = Process::own();
    let counter = Arc::new(ReconcileCounter::default());
    let work = Work { objects, pause: None, resync: None, stamped: false, counter: counter.clone() };
    let wake_all = controllers::start(job.implementation, client, work)?;
    counter.reach(objects).await;
    let initial = Cost { cpu: own.cpu_exact()?, wall: begun.elapsed(), count: objects };
    let (first, mut before) = (counter.digest(), counter.digest());
    let (storming, cpu) = (Instant::now(), own.cpu_exact()?);
    for storm in 1..=storms {
        wake_all();
        counter.reach(objects * (storm + 1)).await;
        expect("digest of a storm", counter.digest().wrapping_sub(before), first)?;
        before = counter.digest();
    }
    let storm = Cost { cpu: own.cpu_exact()?.saturating_sub(cpu), wall: storming.elapsed(), count: objects * storms };
    let rss = own.memory()?.rss;
    let cpu = own.cpu_exact()?;
    tokio::time::sleep(idle).await;
    let idle = own.cpu_exact()?.saturating_sub(cpu);
    expect("reconciles", counter.count(), objects * (storms + 1))?;
    Ok(TaskResult::Noop { initial, storm, rss, idle })
}

async fn events(job: &Job, client: Client, work: Work, changes: usize) -> Result<TaskResult, InvalidRun> {
    let (own, counter, objects) = (Process::own(), work.counter.clone(), work.objects);
    let _wake_all = controllers::start(job.implementation, client, work)?;
    counter.reach(objects).await;
    print_line(&Line::Ready)?;
    let (begun, cpu) = (Instant::now(), own.cpu_exact()?);
    while counter.changes() < changes {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (cpu, wall) = (own.cpu_exact()?.saturating_sub(cpu), begun.elapsed());
    expect("changes that were seen", counter.changes(), changes)?;
    Ok(TaskResult::Events {
        latencies: counter.latencies(),
        cost: Cost { cpu, wall, count: counter.count() - objects },
    })
}

async fn cold(job: &Job, client: Client) -> Result<TaskResult, InvalidRun> {
    let counter = Arc::new(ReconcileCounter::default());
    let work = Work { objects: 0, pause: None, resync: None, stamped: false, counter: counter.clone() };
    let _wake_all = controllers::start(job.implementation, client, work)?;
    counter.reach(1).await;
    Ok(TaskResult::Cold { cpu: Process::own().cpu_exact()? })
}

/// Waits until the parent process closes the standard input.
async fn until_stdin_closes() -> Result<(), InvalidRun> {
    let waited = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    waited.await.map_err(|error| InvalidRun::new(error.to_string()))??;
    Ok(())
}
