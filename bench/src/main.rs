//! Benchmarks of Konverge: figures, never verdicts. In: a subject and how long one may take. Out: a table to read and,
//! if asked for, the same as JSON. Nothing here fails because something is slow; a run that went wrong is void and says
//! so.
//!
//! ```text
//! child ─▶ http ─▶ apiserver/{start, memory, create, list, fanout} ─▶ report
//!   │                  (each stage meters the child by `process`)
//!   └ pinned to a core of its own by `cores`, on a disk described by `machine`
//! ```

mod anchor;
mod apiserver;
mod child;
mod cores;
mod http;
mod http_body;
mod latency;
mod machine;
mod meter;
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
    Apiserver(Options),
}

#[derive(Args)]
struct Options {
    /// Finish within a minute: fewer objects, shorter phases.
    #[arg(long)]
    quick: bool,
    /// Write the figures as JSON, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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

fn main() -> ExitCode {
    let Command { subject: Subject::Apiserver(options) } = Command::parse();
    match run(&options) {
        Ok(report) if report.is_void() => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(void) => {
            eprintln!("bench: {void}");
            ExitCode::FAILURE
        }
    }
}

/// One thread serves all clients, so that its core is the only one they take.
fn run(options: &Options) -> Result<Report, Void> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(apiserver::run(options))?;
    println!("{report}");
    if let Some(file) = &options.json {
        std::fs::write(file, report.json()).map_err(|error| Void::new(format!("{}: {error}", file.display())))?;
    }
    Ok(report)
}
