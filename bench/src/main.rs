//! Benchmarks of Konverge: figures, never verdicts. In: a subject and how long one may take. Out: a table to read and,
//! if asked for, the same as JSON. Nothing here fails because something is slow; a run that went wrong is void and says
//! so.
//!
//! ```text
//! child ─▶ http ─▶ apiserver/{start, memory, create, list, fanout} ─▶ report
//!   │                  (each stage meters the child by `process`)
//!   └ pinned to a core of its own by `cores`, on a disk described by `machine`
//!
//! operator/launch ─▶ this program again, as one subject ─▶ operator/{noop, converge, events, memory, cold} ─▶ report
//!   └ against operator/{replay, cluster} in this process
//! ```

#![allow(unreachable_pub, reason = "private modules of this crate still say pub; other crates do not")]

mod anchor;
mod apiserver;
mod child;
mod compare;
mod cores;
mod http;
mod http_body;
mod latency;
mod machine;
mod meter;
mod operator;
mod pod;
mod process;
mod report;
mod trust;
mod void;
mod widget;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::report::Report;
use crate::void::Void;

/// Measures Konverge on this machine.
#[derive(Parser)]
#[command(name = "bench")]
struct Command {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Subcommand)]
enum Subject {
    /// The API server: start, memory, creates, lists, watches (B9).
    Apiserver(ApiserverOptions),
    /// The framework beside kube's stock controller (B1 to B6).
    Operator(OperatorOptions),
    /// One subject of a measurement; started by this program itself.
    #[command(hide = true)]
    Perform {
        /// What to do, as JSON.
        job: String,
    },
}

#[derive(Args)]
struct RunOptions {
    /// Finish soon: fewer objects, shorter phases, fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Write the figures as JSON, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct ApiserverOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Measure this program instead of building the `konverge` of this workspace.
    #[arg(long, value_name = "PROGRAM")]
    server: Option<PathBuf>,
    /// Put data directories here; it should be on the disk you care about.
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Run only these stages.
    #[arg(long, value_name = "STAGE", value_delimiter = ',')]
    only: Vec<apiserver::Stage>,
}

#[derive(Args)]
struct OperatorOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Run only these.
    #[arg(value_name = "STAGE")]
    only: Vec<operator::Stage>,
}

fn main() -> ExitCode {
    let done = match Command::parse().subject {
        Subject::Apiserver(options) => apiserver(&options).and_then(|report| tell(&report, &options.run)),
        Subject::Operator(options) => operator::run(&options).and_then(|report| tell(&report, &options.run)),
        Subject::Perform { job } => operator::perform(&job).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|void| {
        eprintln!("bench: {void}");
        ExitCode::FAILURE
    })
}

/// One thread serves all clients, so that its core is the only one they take.
fn apiserver(options: &ApiserverOptions) -> Result<Report, Void> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(apiserver::run(options))
}

fn tell(report: &Report, run: &RunOptions) -> Result<ExitCode, Void> {
    println!("{report}");
    if let Some(file) = &run.json {
        std::fs::write(file, report.json()).map_err(|error| Void::new(format!("{}: {error}", file.display())))?;
    }
    Ok(if report.is_void() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
