//! In: good objects of every kind. Out: whether our validation refuses the same mutations of them as the registries of
//! Kubernetes, with the same errors. The registries are asked through a Go program of ours (`xtask/oracle`), which is built
//! with the sources of the release.

mod compare;
mod mutation;
mod oracle;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use konverge_apiserver::{CheckError, check_object};

use crate::source::Release;
use compare::{Outcome, compare};
use mutation::Mutation;
use oracle::Oracle;

/// Where the good objects and the cases for the tests are.
const OBJECTS: &str = "crates/apiserver/src/validation/objects.jsonl";
const CASES: &str = "crates/apiserver/src/validation/cases.jsonl";

/// Compares what we refuse with what Kubernetes refuses, for thousands of mutated objects.
#[derive(Args, Debug)]
pub(crate) struct Validation {
    #[command(flatten)]
    release: Release,
    /// Only objects of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Prints so many differences of each kind
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    show: usize,
    /// Folder where the Go program is built
    #[arg(long, value_name = "DIR", default_value = "target/validation-oracle")]
    build: PathBuf,
    /// Writes the cases that agree for the tests, which need no Go
    #[arg(long)]
    write_cases: bool,
}

/// How the mutations of one kind came out.
#[derive(Default)]
struct Tally {
    agreed: usize,
    refused: usize,
    reordered: usize,
    differed: Vec<String>,
}

/// Compares every mutation.
pub(crate) fn run(options: &Validation, root: &Path) -> Result<(), String> {
    let mut oracle = Oracle::start(&options.release, root, &options.build)?;
    let objects = std::fs::read_to_string(root.join(OBJECTS)).map_err(|error| format!("{OBJECTS}: {error}"))?;
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut cases = Vec::new();
    let mut told = BTreeSet::new();
    for (at, line) in objects.lines().enumerate() {
        let good: Value = serde_json::from_str(line).map_err(|error| format!("{OBJECTS} line {}: {error}", at + 1))?;
        let kind = good["kind"].as_str().unwrap_or_default().to_owned();
        if options.kind.as_ref().is_some_and(|wanted| *wanted != kind) {
            continue;
        }
        let tally = tallies.entry(kind.clone()).or_default();
        for mutation in mutation::all(&good) {
            let object = mutation.apply(&good);
            for old in [None, Some(&good)] {
                let theirs = oracle.ask(&object, old)?;
                let ours = match check_object(&object, old) {
                    Ok(errors) => errors
                        .iter()
                        .map(|error| format!("{}: {}", error.cause().field, error.cause().message))
                        .collect(),
                    Err(CheckError::Undecodable(why)) => vec![format!("undecodable: {why}")],
                    Err(error) => return Err(format!("{OBJECTS} line {}: {error}", at + 1)),
                };
                let act = if old.is_some() { "update" } else { "create" };
                let shown = |ours: &[String], theirs: &[String]| {
                    format!(
                        "{act} {mutation}\n      ours   {}\n      theirs {}",
                        ours.join("\n             "),
                        theirs.join("\n             ")
                    )
                };
                match compare(&ours, &theirs) {
                    Outcome::Same => {
                        tally.agreed += 1;
                        if !theirs.is_empty() {
                            tally.refused += 1;
                            // One case for each error of a field, wherever its struct stands.
                            let mut is_new = false;
                            for error in &ours {
                                is_new |= told.insert(compare::gist(error));
                            }
                            if is_new && !ours[0].starts_with("undecodable") {
                                cases.push(case(at, &mutation, old.is_some(), &ours));
                            }
                        }
                    }
                    Outcome::Reordered => {
                        tally.agreed += 1;
                        tally.refused += 1;
                        tally.reordered += 1;
                    }
                    Outcome::Different(ours, theirs) => tally.differed.push(shown(&ours, &theirs)),
                }
            }
        }
    }
    report(&tallies, options.show);
    if options.write_cases {
        let text: String = cases.iter().map(|case| format!("{case}\n")).collect();
        std::fs::write(root.join(CASES), text).map_err(|error| format!("{CASES}: {error}"))?;
    }
    Ok(())
}

fn case(object: usize, mutation: &Mutation, update: bool, errors: &[String]) -> Value {
    let mut case = json!({"object": object, "at": mutation.at, "errors": errors});
    if let Some(value) = &mutation.value {
        case["value"] = value.clone();
    }
    if update {
        case["update"] = true.into();
    }
    case
}

fn report(tallies: &BTreeMap<String, Tally>, show: usize) {
    for (kind, tally) in tallies {
        for difference in tally.differed.iter().take(show) {
            println!("  {kind}: {difference}");
        }
    }
    println!("{:36} {:>7} {:>8} {:>9} {:>9}", "kind", "agreed", "refused", "reordered", "differed");
    let (mut agreed, mut differed) = (0, 0);
    for (kind, tally) in tallies {
        println!(
            "{kind:36} {:>7} {:>8} {:>9} {:>9}",
            tally.agreed,
            tally.refused,
            tally.reordered,
            tally.differed.len()
        );
        agreed += tally.agreed;
        differed += tally.differed.len();
    }
    println!("{:36} {agreed:>7} {:>8} {:>9} {differed:>9}", "all", "", "");
}
