//! One good client beside a hostile one. The good client reads and updates a small object at a fixed rate, whatever the server does, and a
//! latency begins when the request was due. Out: its latencies beside nothing and beside each attack, and the memory that the server takes
//! meanwhile. Each attack has a server of its own, which may use all cores. Any failed request of the good client makes the run invalid.

mod attack;

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use self::attack::Attack;
use super::kinds::CONFIG_MAPS;
use crate::child::{Server, ServerProgram, Storage, Transport};
use crate::http;
use crate::invalid_run::InvalidRun;
use crate::latency::Latencies;
use crate::report::{Figure, Figures};

/// The rate of the good client's requests.
pub(super) const REQUESTS_PER_SECOND: u32 = 200;

/// How long an attack goes on before the good client begins.
const UNDER_WAY: Duration = Duration::from_millis(500);

/// How many times its p99 beside nothing the good client's p99 may be.
const AIM: f64 = 2.0;

/// Measures the good client beside nothing and beside each attack, for this long each.
pub(super) async fn measure(program: &ServerProgram, time: Duration) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    let program = ServerProgram { cores: program.cores.server_on_all(), ..program.clone() };
    let (quiet, _) = beside(&program, None, time).await?;
    figures.add(Figure::cost("p99 beside nothing", quiet.millis(0.99), "ms").with_note(quiet.summary()));
    for attack in Attack::ALL {
        eprintln!("bench: … beside {}", attack.name());
        let outcome = beside(&program, Some(attack), time).await;
        let (latencies, resident) = outcome.map_err(|invalid| invalid.during(attack.name()))?;
        let note = format!("{}; the server has {:.0} MB", latencies.summary(), resident as f64 / 1e6);
        let figure = Figure::cost(format!("p99 beside {}", attack.name()), latencies.millis(0.99), "ms");
        figures.add(figure.with_aim(AIM * quiet.millis(0.99)).with_note(note));
    }
    Ok(figures)
}

/// The good client's latencies, and the server's resident memory at the end.
async fn beside(
    program: &ServerProgram,
    attack: Option<Attack>,
    time: Duration,
) -> Result<(Latencies, u64), InvalidRun> {
    let server = program.start(Storage::Memory, Transport::Plain).await?;
    let good = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"good"},"data":{"turn":"0"}}"#;
    server.endpoint.once(&http::request("POST", CONFIG_MAPS, "application/json", good), 201).await?;
    let attacker = match attack {
        Some(attack) => {
            attack.prepare(&server.endpoint).await?;
            Some(Attacker::start(attack, &server)?)
        }
        None => None,
    };
    tokio::time::sleep(UNDER_WAY).await;
    let latencies = good_client(&server, time).await?;
    let resident = server.process().memory()?.rss;
    if let Some(attacker) = attacker {
        attacker.stop()?;
    }
    Ok((latencies, resident))
}

/// Reads and updates its object in turn.
async fn good_client(server: &Server, time: Duration) -> Result<Latencies, InvalidRun> {
    let path = format!("{CONFIG_MAPS}/good");
    let mut connection = server.endpoint.connect().await?;
    let count = (time.as_secs_f64() * f64::from(REQUESTS_PER_SECOND)) as u32;
    let mut latencies = Latencies::with_capacity(count as usize);
    let begun = Instant::now();
    for turn in 0..count {
        let due = begun + Duration::from_secs(1) * turn / REQUESTS_PER_SECOND;
        tokio::time::sleep_until(due.into()).await;
        let request = match turn % 2 {
            0 => http::get(&path),
            _ => {
                let patch = format!(r#"{{"data":{{"turn":"{turn}"}}}}"#);
                http::request("PATCH", &path, "application/merge-patch+json", patch.as_bytes())
            }
        };
        connection.call(&request, 200).await.map_err(|invalid| invalid.during("a request of the good client"))?;
        latencies.record(due.elapsed());
    }
    Ok(latencies)
}

/// An attack that goes on, on a thread of its own, so that the good client never waits for it here.
struct Attacker {
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<Result<(), InvalidRun>>,
}

impl Attacker {
    fn start(attack: Attack, server: &Server) -> Result<Self, InvalidRun> {
        let (stop, mut stopped) = oneshot::channel();
        let endpoint = server.endpoint.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    ended = attack.run(&endpoint) => ended,
                    _ = &mut stopped => Ok(()),
                }
            })
        });
        Ok(Self { stop, thread })
    }

    /// Fails if the attack has ended by itself: then the good client was measured beside nothing.
    fn stop(self) -> Result<(), InvalidRun> {
        let has_ended = self.stop.send(()).is_err();
        match self.thread.join() {
            Ok(Ok(())) if has_ended => Err(InvalidRun::new("the attack ended before the measurement")),
            Ok(ended) => ended,
            Err(_) => Err(InvalidRun::new("the attack panicked")),
        }
    }
}
