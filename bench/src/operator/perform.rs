//! The other end of a measurement: this program as one subject. In: a job. Out: what it came to, on stdout. It ends with
//! the task; a task that does not come to its end is ended by whoever asked for it.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::{Client, Config};

use super::controllers::{self, Work};
use super::job::{Answer, Cost, Job, Line, Task};
use super::tally::Tally;
use super::{converge, hold};
use crate::process::Process;
use crate::void::{Void, expect};

/// Does a job.
pub fn perform(job: &str) -> Result<(), Void> {
    let begun = Instant::now();
    let job: Job = serde_json::from_str(job).map_err(|error| Void::new(format!("this is no job: {error}")))?;
    let runtime = match job.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?,
    };
    // The work is a task of its own: on several threads the main one is not among the workers.
    let done = runtime.block_on(async { tokio::spawn(run(job, begun)).await });
    let line = match done {
        Ok(Ok(answer)) => Line::Done(answer),
        Ok(Err(void)) => Line::Failed(void.to_string()),
        Err(error) => Line::Failed(error.to_string()),
    };
    say(&line)?;
    // Controllers run on; there is nothing they could lose.
    std::process::exit(0)
}

/// Prints a line for whoever started this process.
pub fn say(line: &Line) -> Result<(), Void> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line).map_err(|error| Void::new(error.to_string()))?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

async fn run(job: Job, begun: Instant) -> Result<Answer, Void> {
    let uri = job.server.parse().map_err(|_| Void::new(format!("{} is no address", job.server)))?;
    let client = Client::try_from(Config::new(uri)).map_err(|error| Void::new(error.to_string()))?;
    match job.task {
        Task::Noop { objects, storms, idle } => noop(&job, client, begun, objects, storms, idle).await,
        Task::Events { objects, changes, pause, resync } => {
            let work = Work { objects, pause, resync, stamped: true, tally: Arc::default() };
            events(&job, client, work, changes).await
        }
        Task::Hold { objects, kind } => hold::hold(job.who, client, objects, kind).await,
        Task::Cold => cold(&job, client).await,
        Task::Converge { parents } => {
            let reconciles = converge::start(job.who, client, parents).await?;
            until_told().await?;
            Ok(reconciles.answer())
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
) -> Result<Answer, Void> {
    let own = Process::own();
    let tally = Arc::new(Tally::default());
    let work = Work { objects, pause: None, resync: None, stamped: false, tally: tally.clone() };
    let wake_all = controllers::start(job.who, client, work)?;
    tally.reach(objects).await;
    let initial = Cost { cpu: own.cpu_exact()?, wall: begun.elapsed(), count: objects };
    let (first, mut before) = (tally.digest(), tally.digest());
    let (storming, cpu) = (Instant::now(), own.cpu_exact()?);
    for storm in 1..=storms {
        wake_all();
        tally.reach(objects * (storm + 1)).await;
        expect("what a storm read", tally.digest().wrapping_sub(before), first)?;
        before = tally.digest();
    }
    let storm = Cost { cpu: own.cpu_exact()?.saturating_sub(cpu), wall: storming.elapsed(), count: objects * storms };
    let rss = own.memory()?.rss;
    let cpu = own.cpu_exact()?;
    tokio::time::sleep(idle).await;
    let idle = own.cpu_exact()?.saturating_sub(cpu);
    expect("reconciles", tally.count(), objects * (storms + 1))?;
    Ok(Answer::Noop { initial, storm, rss, idle })
}

async fn events(job: &Job, client: Client, work: Work, changes: usize) -> Result<Answer, Void> {
    let (own, tally, objects) = (Process::own(), work.tally.clone(), work.objects);
    let _wake_all = controllers::start(job.who, client, work)?;
    tally.reach(objects).await;
    say(&Line::Ready)?;
    let (begun, cpu) = (Instant::now(), own.cpu_exact()?);
    while tally.changes() < changes {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (cpu, wall) = (own.cpu_exact()?.saturating_sub(cpu), begun.elapsed());
    expect("changes that were seen", tally.changes(), changes)?;
    Ok(Answer::Events { latencies: tally.latencies(), cost: Cost { cpu, wall, count: tally.count() - objects } })
}

async fn cold(job: &Job, client: Client) -> Result<Answer, Void> {
    let tally = Arc::new(Tally::default());
    let work = Work { objects: 0, pause: None, resync: None, stamped: false, tally: tally.clone() };
    let _wake_all = controllers::start(job.who, client, work)?;
    tally.reach(1).await;
    Ok(Answer::Cold { cpu: Process::own().cpu_exact()? })
}

/// Waits until whoever started this process closes its input.
async fn until_told() -> Result<(), Void> {
    let waited = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    waited.await.map_err(|error| Void::new(error.to_string()))??;
    Ok(())
}
