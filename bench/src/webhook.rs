//! The benchmark of the framework's webhook server (B7). In: a scale. Out: a report. Every server is a process on a core of its
//! own, and answers the same reviews of a Pod over TLS with the same verdicts. They are measured alternately, and every answer
//! is checked.
//!
//! ```text
//! launch ─▶ subject (the other process): framework or bare; Go's is in tests/go/webhook
//!    └────▶ load: reviews over kept-alive or new connections ─▶ closed, open, rotation
//! ```

mod bare;
mod certificate_directory;
mod closed;
mod framework;
mod launch;
mod load;
mod open;
mod pod_rules;
mod review;
mod rotation;
mod subject;

use std::time::Duration;

use crate::WebhookOptions;
use crate::cores::Cores;
use crate::invalid_run::InvalidRun;
use crate::machine::{self, Machine};
use crate::operator::Cluster;
use crate::report::{Figures, Report, Section};

use certificate_directory::CertificateDirectory;
use launch::{Launcher, Program};

pub(crate) use subject::{SubjectOptions, run_subject};

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stage {
    /// Reviews as fast as they are answered, by several numbers of connections.
    Closed,
    /// Reviews at a given rate.
    Open,
    /// Reviews while the certificate is replaced again and again.
    Rotation,
}

impl Stage {
    const ALL: [Stage; 3] = [Self::Closed, Self::Open, Self::Rotation];
}

/// The size of a run.
struct Scale {
    /// How often the servers take turns.
    rounds: usize,
    /// How long each is measured in a round.
    closed: Duration,
    /// The same with reviews at a given rate.
    open: Duration,
    /// How often servers take turns at a given rate.
    open_rounds: usize,
    /// How often the certificate is replaced.
    rotations: usize,
}

const FULL: Scale = Scale {
    rounds: 5,
    closed: Duration::from_millis(700),
    open: Duration::from_secs(4),
    open_rounds: 3,
    rotations: 10,
};

const QUICK: Scale =
    Scale { rounds: 2, closed: Duration::from_millis(250), open: Duration::from_secs(1), open_rounds: 1, rotations: 2 };

/// Runs the benchmark.
pub(crate) fn run(options: &WebhookOptions) -> Result<Report, InvalidRun> {
    let scale = if options.run.quick { QUICK } else { FULL };
    let load_before = machine::load();
    // Before this process is pinned to one core.
    let (programs, left_out) = launch::programs();
    let cores = Cores::arrange();
    // The framework tells an API server of its webhooks. It runs in this process, so that it costs the measured one nothing.
    let cluster = Cluster::start(0)?;
    // All clients run on one thread, so that they use only one core.
    let clients = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let certificates = CertificateDirectory::new(scale.rotations + 1)?;
    let launcher = Launcher { cores, certificates: &certificates, api_server: cluster.url() };
    let mut sections = Vec::new();
    for stage in Stage::ALL {
        if options.only.is_empty() || options.only.contains(&stage) {
            eprintln!("bench: {stage:?} …");
            sections.push(Section::of(stage.title(), clients.block_on(stage.run(&launcher, &programs, &scale))));
        }
    }
    let facts = [
        ("run", if options.run.quick { "quick: figures are rough".to_owned() } else { "full".to_owned() }),
        ("cores", cores.describe().to_owned()),
        ("load before", load_before),
        ("load after", machine::load()),
        ("review", format!("{} bytes, of them {} are the Pod; TLS 1.3, HTTP/1.1", review::size(), review::pod_size())),
        (
            "konverge",
            "konverge::Operator with typed functions; \"few fields\": types with only what they look at".to_owned(),
        ),
        ("bare", "hyper and rustls with kube's types of reviews; its patch is written by hand".to_owned()),
        ("go", left_out.unwrap_or_else(|| "controller-runtime's webhook server, built in this run".to_owned())),
    ];
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Report { machine: Machine::read()?, facts, sections })
}

impl Stage {
    fn title(self) -> String {
        match self {
            Self::Closed => "B7: reviews of a Pod, as fast as they are answered".to_owned(),
            Self::Open => format!("B7: {} reviews/s, from when a review was due to its answer", open::RATE),
            Self::Rotation => "B7: reviews while the certificate is replaced".to_owned(),
        }
    }

    async fn run(self, launcher: &Launcher<'_>, programs: &[Program], scale: &Scale) -> Result<Figures, InvalidRun> {
        match self {
            Self::Closed => closed::measure(launcher, programs, scale).await,
            Self::Open => open::measure(launcher, programs, scale).await,
            Self::Rotation => rotation::measure(launcher, scale.rotations).await,
        }
    }
}
