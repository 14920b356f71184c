//! Benchmarks of Konverge. In: which benchmark, and whether it may take long. Out: a table, and on request the same as JSON. A
//! slow result is not a failure; a run with a wrong result is invalid, and the report says so.
//!
//! ```text
//! child ─▶ http ─▶ apiserver/{start, memory, create, list, fanout, kinds, kubectl, webhooks, rbac, hostile} ─▶ report
//!   │                  (each stage measures the child with `process`)
//!   └ pinned to a core of its own by `cores`, on a disk described by `machine`
//!
//! operator/launch ─▶ this program again, as one subject ─▶ operator/{noop, converge, events, memory, cold, shards} ─▶ report
//!   └ against operator/{replay, cluster} in this process
//!
//! webhook/launch ─▶ this program again, or one in Go, as a webhook server ─▶ webhook/{closed, open, rotation} ─▶ report
//! ```

mod apiserver;
mod baseline;
mod child;
mod compare;
mod cores;
mod http;
mod http_body;
mod invalid_run;
mod latency;
mod machine;
mod meter;
mod operator;
mod pod;
mod process;
mod report;
mod tls;
mod webhook;
mod widget;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::invalid_run::InvalidRun;
use crate::report::Report;

/// Measures Konverge on this machine.
#[derive(Parser)]
#[command(name = "bench")]
struct Command {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// The API server: start, memory, creates, lists, watches (B9).
    Apiserver(ApiserverOptions),
    /// The framework, compared with kube's controller (B1 to B6).
    Operator(OperatorOptions),
    /// The framework's webhook server, compared with a bare one and with controller-runtime's (B7).
    Webhook(WebhookOptions),
    /// Runs as the subject of a measurement; this program starts it.
    #[command(hide = true)]
    Subject {
        /// The job, as JSON.
        job: String,
    },
    /// Runs as a webhook server; this program starts it.
    #[command(hide = true)]
    WebhookSubject(webhook::SubjectOptions),
}

#[derive(Args)]
struct RunOptions {
    /// Make a short run: fewer objects, shorter phases, fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Write the report as JSON to this file.
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
    /// Create data directories here; choose the disk that you want to measure.
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
    /// Run only these stages.
    #[arg(value_name = "STAGE")]
    only: Vec<operator::Stage>,
}

#[derive(Args)]
struct WebhookOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Run only these stages.
    #[arg(value_name = "STAGE")]
    only: Vec<webhook::Stage>,
}

fn main() -> ExitCode {
    let result = match Command::parse().benchmark {
        Benchmark::Apiserver(options) => apiserver(&options).and_then(|report| print_report(&report, &options.run)),
        Benchmark::Operator(options) => operator::run(&options).and_then(|report| print_report(&report, &options.run)),
        Benchmark::Webhook(options) => webhook::run(&options).and_then(|report| print_report(&report, &options.run)),
        Benchmark::WebhookSubject(options) => webhook::run_subject(&options).map(|()| ExitCode::SUCCESS),
        Benchmark::Subject { job } => operator::run_subject(&job).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|invalid| {
        eprintln!("bench: {invalid}");
        ExitCode::FAILURE
    })
}

/// All clients run on one thread, so that they use only one core.
fn apiserver(options: &ApiserverOptions) -> Result<Report, InvalidRun> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(apiserver::run(options))
}

fn print_report(report: &Report, run: &RunOptions) -> Result<ExitCode, InvalidRun> {
    println!("{report}");
    if let Some(file) = &run.json {
        std::fs::write(file, report.json()).map_err(|error| InvalidRun::new(format!("{}: {error}", file.display())))?;
    }
    Ok(if report.is_invalid() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
