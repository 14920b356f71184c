//! Random input for everything that reads bytes of others. In: targets, a time, a seed. Out: nothing, or the first input that makes
//! a target panic, hang or contradict itself; that input is written to the corpus, where `cargo test` replays it from then on.
//!
//! ```text
//! corpus + seeds ─▶ mutate ─▶ target ─▶ an outcome that is new? ─▶ one more input to begin with
//!        ▲                      └▶ a panic, a hang, a contradiction ─┐
//!        └───────────────────────────────────────────────────────────┘
//! ```
//!
//! It runs on stable Rust, so it does not see which lines an input reaches. Instead every target says in a few words what an
//! input led to, such as an error message, and inputs with new words are mutated further.

mod corpus;
mod mutate;
mod random;
mod run;
mod target;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Parser;

use crate::corpus::Corpus;
use crate::run::Run;
use crate::target::Target;

/// Feeds random input to the parts that read what others send.
#[derive(Parser)]
#[command(name = "fuzz")]
struct Args {
    /// The targets to run; without any, all of them
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// How long to run each target
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u64,
    /// What the random numbers begin with; a run that failed prints its own
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Run one input and print what it led to
    #[arg(long, value_name = "FILE", conflicts_with = "seconds")]
    replay: Option<PathBuf>,
    /// List the targets
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(unknown) = args.targets.iter().find(|name| Target::named(name).is_none()) {
        eprintln!("fuzz: there is no target {unknown:?}; --list shows them");
        return ExitCode::FAILURE;
    }
    let chosen = targets::ALL
        .iter()
        .filter(|target| args.targets.is_empty() || args.targets.iter().any(|name| name == target.name));
    if args.list {
        targets::ALL.iter().for_each(|target| println!("{:<12} {}", target.name, target.about));
        return ExitCode::SUCCESS;
    }
    if let Some(file) = &args.replay {
        return replay(chosen, file);
    }
    let seed = args.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
    });
    run::watch_for_hangs();
    for target in chosen {
        let run = Run { target, seed, time: Duration::from_secs(args.seconds), corpus: Corpus::of(target.name) };
        if let Err(finding) = run.run() {
            eprintln!("{finding}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn replay<'t>(targets: impl Iterator<Item = &'t Target>, file: &std::path::Path) -> ExitCode {
    let input = match std::fs::read(file) {
        Ok(input) => input,
        Err(error) => {
            eprintln!("fuzz: {}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    };
    for target in targets {
        println!("{}: {}", target.name, (target.make)()(&input));
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What once made a target fail, and what began its runs, is fine now.
    #[test]
    fn the_corpus_is_replayed() {
        for target in &targets::ALL {
            let mut run = (target.make)();
            for (name, input) in Corpus::of(target.name).inputs().expect("the corpus can be read") {
                println!("{} {name}", target.name);
                run(&input);
            }
            for seed in (target.seeds)() {
                run(&seed);
            }
        }
    }

    #[test]
    fn every_corpus_has_a_target() {
        for name in Corpus::names().expect("the corpus can be read") {
            assert!(Target::named(&name).is_some(), "corpus/{name} belongs to no target");
        }
    }
}
