//! What bad reconcilers cost the others: how long it takes from a change to the reconcile of a good key, alone and beside
//! keys that panic, hang, hoard memory or block their thread. The changes come over a socket from a server that is a
//! process of its own, so that everything between the network and the reconcile is in the figure. Holds nobody to it.
//!
//! `cargo run --release -p konverge-runtime --example isolation [ROUNDS [SECONDS [THREADS]]]`

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apiserver::{ApiServer, Options};
use konverge_runtime::{
    Action, Backoff, BoxFuture, Caches, Controller, ControllerOptions, Error, QueueOptions, Run, Target, WatchSettings,
    connect,
};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How often a good key changes.
const EVERY: Duration = Duration::from_millis(2);
/// How many good keys there are.
const GOOD: usize = 100;
/// Every so many changes of good keys, each bad one changes once, one after the other.
const BAD_EVERY: usize = 50;
/// What good keys are beside, one kind after the other, then all of them.
const BESIDE: [&str; 6] = ["", "panic", "hang", "hoard", "block", "panic hang hoard block"];

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, bad, seconds] = &args[..]
        && serve == "serve"
    {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(serve_and_change(bad, seconds.parse()?));
    }
    std::panic::set_hook(Box::new(|_| ()));
    let mut numbers = args.iter().filter_map(|number| number.parse::<usize>().ok());
    let (rounds, seconds) = (numbers.next().unwrap_or(5), numbers.next().unwrap_or(4));
    let threads = numbers.next().unwrap_or(4);
    let mut figures = BESIDE.map(|_| [Vec::new(), Vec::new()]);
    for _ in 0..rounds {
        for (bad, [p50s, p99s]) in BESIDE.iter().zip(&mut figures) {
            let mut server = Server::start(bad, seconds)?;
            let operator = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
            let mut waited = operator.block_on(measure(&mut server))?;
            operator.shutdown_timeout(Duration::from_secs(1));
            waited.sort();
            let at = |share: f64| waited.get((waited.len() as f64 * share) as usize).copied().unwrap_or_default();
            p50s.push(at(0.5));
            p99s.push(at(0.99));
        }
    }
    println!("from a change to its reconcile; median of {rounds} rounds of {seconds} s, {threads} threads");
    let figures = figures.map(|of| of.map(middle));
    for (bad, [p50, p99]) in BESIDE.iter().zip(figures) {
        let [times50, times99] = [p50 / figures[0][0], p99 / figures[0][1]];
        let beside = if bad.is_empty() { "alone".to_owned() } else { format!("beside {bad}") };
        println!("{beside:32} p50 {p50:>6.0} µs {times50:.2}x   p99 {p99:>6.0} µs {times99:.2}x");
    }
    Ok(())
}

/// The median in µs.
fn middle(mut values: Vec<Duration>) -> f64 {
    values.sort();
    values.get(values.len() / 2).map_or(f64::NAN, |middle| middle.as_secs_f64() * 1e6)
}

/// A clock that all processes share.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// How late good keys were reconciled.
async fn measure(server: &mut Server) -> Result<Vec<Duration>, Failure> {
    let client = connect(Config::new(server.says()?.parse()?))?;
    let caches = Caches::new(client, WatchSettings::default());
    let backoff = Backoff { initial: Duration::from_millis(10), max: Duration::from_secs(1), ..Backoff::default() };
    let options = ControllerOptions {
        concurrency: 16,
        timeout: Some(Duration::from_millis(500)),
        drain: Duration::from_secs(1),
        queue: QueueOptions { backoff, ..QueueOptions::default() },
        ..ControllerOptions::default()
    };
    let controller = Controller::new("isolation", Target::of::<ConfigMap>(), caches, options);
    let (maps, waited) = (controller.primary().clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = waited.clone();
    let reconciler = move |run: Run| -> BoxFuture<Result<Action, Error>> {
        let (maps, noted) = (maps.clone(), noted.clone());
        Box::pin(async move {
            let due = maps.get(&run.key).and_then(|map| map.pointer("/data/due")?.trim_matches('"').parse().ok());
            let due = due.map(Duration::from_nanos).unwrap_or_default();
            match run.key.name() {
                "panic" => panic!("on purpose"),
                "hang" => std::future::pending().await,
                "hoard" => drop(std::hint::black_box(vec![1u8; 100 << 20])),
                "block" => std::thread::sleep(Duration::from_millis(50)),
                good if good.starts_with("good") => noted.lock().push(now().saturating_sub(due)),
                _ => {}
            }
            Ok(Action::Wait)
        })
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let running = controller.clone();
    let running = tokio::spawn(async move { running.run(Arc::new(reconciler), async { drop(stopped.await) }).await });
    controller.primary().synced().await;
    server.begin()?;
    server.says()?;
    // That it has ended by itself is seen below.
    let _ = stop.send(());
    running.await?;
    Ok(std::mem::take(&mut *waited.lock()))
}

/// The other process.
struct Server {
    child: Child,
    tell: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(bad: &str, seconds: usize) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", bad, &seconds.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let tell = child.stdin.take().ok_or("its input is not piped")?;
        let lines = BufReader::new(child.stdout.take().ok_or("its output is not piped")?).lines();
        Ok(Self { child, tell, lines })
    }

    fn says(&mut self) -> Result<String, Failure> {
        Ok(self.lines.next().ok_or("the server has ended")??)
    }

    fn begin(&mut self) -> Result<(), Failure> {
        Ok(self.tell.write_all(b"!")?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves; and once it is told to begin, changes objects, each with when that was due. Says where, and when it is done.
async fn serve_and_change(bad: &str, seconds: usize) -> Result<(), Failure> {
    let server = ApiServer::open(Options::default()).await?;
    let hand: Api<ConfigMap> = Api::namespaced(Client::new(server.clone(), "default"), "default");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(server.clone());
            tokio::spawn(async move {
                let http = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                // It ends with the operator.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    tokio::task::spawn_blocking(|| std::io::stdin().read_exact(&mut [0])).await??;
    let params = PatchParams::apply("isolation").force();
    let set = async |name: &str| {
        let data = json!({"due": now().as_nanos().to_string()});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        hand.patch(name, &params, &Patch::Apply(map)).await
    };
    let bad: Vec<&str> = bad.split_whitespace().collect();
    let mut clock = tokio::time::interval(EVERY);
    for at in 0..seconds * 1000 / EVERY.as_millis() as usize {
        clock.tick().await;
        set(&format!("good-{}", at % GOOD)).await?;
        let apart = BAD_EVERY / bad.len().max(1);
        if at % apart == 0
            && let Some(name) = bad.get(at % BAD_EVERY / apart)
        {
            set(name).await?;
        }
    }
    println!("done");
    Ok(())
}
