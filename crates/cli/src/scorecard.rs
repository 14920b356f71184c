//! `konverge scorecard`: how mature an operator is, measured by running it in an embedded control plane. In: the project of the current directory. Out: a report
//! of what passed, what is missing and what to do about it, and the level from 1 to 5; exit code 1 if that is below `--level`, 2 if nothing could be measured.
//!
//! ```text
//! subject, previous, declarations   what is measured, and what the project says about itself
//! observe ─▶ session ─▶ cluster      runs it: an embedded control plane, `operator_process`, and `write_record` of what it writes
//! observations ─▶ verdicts ─▶ check  what was seen, what that means, and the level; pure
//! report                             text, JSON, JUnit
//! end_state, drift, metrics_page     what two runs have in common, what to disturb, what metrics say; pure
//! ```

mod check;
mod cluster;
mod declarations;
mod drift;
mod end_state;
mod metrics_page;
mod observations;
mod observe;
mod operator_process;
mod previous;
mod report;
mod session;
mod subject;
mod verdicts;
mod write_record;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use konverge_core::ErrorChain;
use konverge_serve::StopSignals;
use serde_json::Value;

use crate::bundle::JudgedBundle;
use crate::description::{AskError, Description, ProjectArgs, ProjectError, here};
use crate::documents::{Document, ReadError, read_all};
use crate::kustomize::CONFIG;
use crate::manifests::{Part, manifests};
use crate::project::{CompileError, Project};
use crate::run::{BLOCKING_THREADS_TIMEOUT, SHUTDOWN_TIMEOUT};

use check::{CHECKS, Check, HIGHEST, Outcome, Phase, Scored, Verdict, level_of};
use declarations::DeclarationError;
use observations::{Observations, SeenBundle};
use observe::{Plan, progress};
use previous::{Previous, PreviousError};
use report::{Look, Report};
use session::Patience;
use subject::Subject;

pub(crate) const EXAMPLES: &str = "\
The operator is built and run against control planes in this process, with simulated pods and in memory; no cluster is touched. What cannot be measured is never
passed: a scorecard.yaml beside Cargo.toml declares how a backup is asked for and what tells success.

Exit codes: 0 measured; 1 below --level, or a check of --only has not passed; 2 nothing could be measured.

Examples:
  konverge scorecard
  konverge scorecard --level 1 -o junit > scorecard.xml     in CI
  konverge scorecard --previous v1.1.0                      an upgrade from a revision of git
  konverge scorecard --only idempotent,least-privilege
  konverge scorecard --list";

/// Arguments of `konverge scorecard`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScorecardArgs {
    #[command(flatten)]
    project: ProjectArgs,
    /// Fail, with exit code 1, if the operator is below this level
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(1..=i64::from(HIGHEST)))]
    level: Option<u8>,
    /// The previous version, for level 2: a revision of git, which is built, or the path of an executable
    #[arg(long, value_name = "REVISION|FILE")]
    previous: Option<String>,
    /// Samples to apply: a file or a directory; may be repeated [default: config/samples]
    #[arg(long, value_name = "PATH")]
    samples: Vec<PathBuf>,
    /// Do only these checks; exit with 1 if one of them has not passed
    #[arg(long, value_name = "CHECK", value_delimiter = ',', conflicts_with = "level")]
    only: Vec<String>,
    /// Leave these checks out; a level that needs one is not reached
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    skip: Vec<String>,
    /// List the checks
    #[arg(long)]
    list: bool,
    /// How long each wait may take, as 30s or 2m
    #[arg(long, value_name = "TIME", value_parser = crate::control_plane::time, default_value = "30s")]
    timeout: Duration,
    /// How long the operator writes nothing before it is taken to be at rest. Longer than its slowest step
    #[arg(long, value_name = "TIME", value_parser = crate::control_plane::time, default_value = "2s")]
    settle: Duration,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = ScorecardFormat::Text)]
    output: ScorecardFormat,
}

/// How a scorecard is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScorecardFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For CI systems.
    Junit,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
enum ScorecardError {
    #[error("there is no check {0:?}; `konverge scorecard --list` lists them")]
    Unknown(String),
    #[error("--settle {0:?} is not shorter than --timeout {1:?}, so nothing would ever come to rest")]
    Settle(Duration, Duration),
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the samples cannot be read")]
    Samples(#[source] ReadError),
    #[error(transparent)]
    Declarations(#[from] DeclarationError),
    #[error(transparent)]
    Previous(#[from] PreviousError),
    #[error("the operator cannot be asked what it needs: {0}")]
    Subject(String),
    #[error("the system refused")]
    System(#[from] std::io::Error),
    #[error("it was stopped before everything was measured")]
    Stopped,
}

/// `konverge scorecard`
pub(crate) fn scorecard(args: &ScorecardArgs) -> ExitCode {
    if args.list {
        list();
        return ExitCode::SUCCESS;
    }
    run(args).unwrap_or_else(|error| {
        eprintln!("error: {}", ErrorChain(&error));
        ExitCode::from(2)
    })
}

fn list() {
    for check in &CHECKS {
        let group = match check.group {
            check::Group::Level(level) if check.required => format!("level {level}"),
            check::Group::Level(level) => format!("(level {level})"),
            check::Group::Practice => "practice".to_owned(),
        };
        println!("{:<26}{group:<11}{}", check.name, check.about);
    }
}

fn run(args: &ScorecardArgs) -> Result<ExitCode, ScorecardError> {
    let chosen = chosen(&args.only, &args.skip)?;
    if args.settle >= args.timeout {
        return Err(ScorecardError::Settle(args.settle, args.timeout));
    }
    let (project, package, target) = here(&args.project)?;
    let declared = declarations::read(project.directory())?;
    let samples = samples(&args.samples, project.directory()).map_err(ScorecardError::Samples)?;
    let previous = args.previous.as_deref().map(|what| Previous::of(what, &project)).transpose()?;
    let executable = project.compile(&[])?;
    let version = package.version.clone();
    let operator = Description::ask(&executable, project.directory(), package, target)?;
    let phases: BTreeSet<Phase> = chosen.iter().flat_map(|check| check.needs.iter().copied()).collect();
    let mut seen = described(&project, &operator, &samples, phases.contains(&Phase::Bundle))?;

    let mut stop = StopSignals::listen(SHUTDOWN_TIMEOUT)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let patience = Patience { timeout: args.timeout, settle: args.settle };
    let measured = runtime.block_on(async {
        let measure = async {
            let subject = Subject::ask(&executable, project.directory(), &operator.settings, samples.clone());
            let subject = subject.await.map_err(ScorecardError::Subject)?;
            let previous = match &previous {
                Some(previous) => Some(asked(previous, &operator, &samples).await?),
                None => None,
            };
            let plan = Plan { subject: &subject, previous: previous.as_ref(), declared: &declared, phases, patience };
            observe::observe(&plan, &mut seen).await;
            Ok(())
        };
        tokio::select! {
            measured = measure => measured,
            () = stop.asked() => Err(ScorecardError::Stopped),
        }
    });
    runtime.shutdown_timeout(BLOCKING_THREADS_TIMEOUT);
    measured?;

    let score = |check: &'static Check| Scored { check, verdict: check.judge(&seen) };
    let skipped = |check: &'static Check| Scored {
        check,
        verdict: Verdict { outcome: Outcome::Skipped, found: vec!["left out".to_owned()], advice: String::new() },
    };
    let is_chosen = |check: &&'static Check| chosen.iter().any(|one| one.name == check.name);
    let all = || CHECKS.iter().filter_map(|check| Check::named(check.name));
    let scored: Vec<Scored> = match args.only.is_empty() {
        true => all().map(|check| if is_chosen(&check) { score(check) } else { skipped(check) }).collect(),
        false => all().filter(is_chosen).map(score).collect(),
    };
    let is_whole = args.only.is_empty();
    let report = Report { operator: &operator.name, version: &version, scored: &scored, is_whole };
    match args.output {
        ScorecardFormat::Text => {
            let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            print!("{}", report.text(if coloured { Look::Coloured } else { Look::Plain }));
        }
        ScorecardFormat::Json => println!("{:#}", report.json()),
        ScorecardFormat::Junit => print!("{}", report.junit()),
    }
    Ok(exit_code(args.level, !args.only.is_empty(), &scored))
}

/// The checks that are asked for.
fn chosen(only: &[String], skip: &[String]) -> Result<Vec<&'static Check>, ScorecardError> {
    for name in only.iter().chain(skip) {
        Check::named(name).ok_or_else(|| ScorecardError::Unknown(name.clone()))?;
    }
    let is_wanted = |check: &&Check| {
        let names = |list: &[String]| list.iter().any(|name| name == check.name);
        (only.is_empty() || names(only)) && !names(skip)
    };
    Ok(CHECKS.iter().filter(is_wanted).filter_map(|check| Check::named(check.name)).collect())
}

fn exit_code(level: Option<u8>, only: bool, scored: &[Scored]) -> ExitCode {
    let below = level.is_some_and(|wanted| level_of(scored) < wanted);
    let missed = only && scored.iter().any(|one| one.verdict.outcome != Outcome::Passed);
    ExitCode::from(u8::from(below || missed))
}

/// The previous version, asked what it needs. Without samples of its own it gets those of this version.
async fn asked(
    previous: &Previous,
    operator: &Description,
    samples: &[(String, Value)],
) -> Result<Subject, ScorecardError> {
    let own = if previous.samples.is_empty() { samples.to_vec() } else { previous.samples.clone() };
    let subject = Subject::ask(&previous.executable, &previous.directory, &operator.settings, own).await;
    subject.map_err(|why| ScorecardError::Subject(format!("the previous version: {why}")))
}

/// Samples with where they are from: those of the arguments, or of `config/samples`; none if nobody wrote some.
fn samples(paths: &[PathBuf], directory: &Path) -> Result<Vec<(String, Value)>, ReadError> {
    let folder = directory.join(CONFIG).join("samples");
    let documents = match paths.is_empty() {
        true if folder.is_dir() => read_all(&[folder])?,
        true => Vec::new(),
        false => read_all(paths)?,
    };
    // What kustomize reads in such a folder is for kustomize.
    let is_object = |document: &Document| document.object["kind"] != "Kustomization";
    Ok(documents.into_iter().filter(is_object).map(|document| (document.source, document.object)).collect())
}

/// What can be known without running anything.
fn described(
    project: &Project,
    operator: &Description,
    samples: &[(String, Value)],
    with_bundle: bool,
) -> Result<Observations, ScorecardError> {
    // Nobody serves webhooks where pods are simulated, and optional parts need what not every cluster has.
    let is_applied = |part: Part| !part.is_optional() && part != Part::Webhook;
    let objects =
        manifests(operator).into_iter().filter(|manifest| is_applied(manifest.part)).map(|manifest| manifest.object);
    let mut seen = Observations {
        definitions: operator.definitions.clone(),
        manifests: objects.collect(),
        samples: samples.to_vec(),
        alerts: alerts(project.directory()).map_err(ScorecardError::Samples)?,
        ..Observations::default()
    };
    if with_bundle {
        progress("making the bundle");
        let directory = tempfile::tempdir()?;
        let samples: Vec<Value> = samples.iter().map(|(_, sample)| sample.clone()).collect();
        let judged = JudgedBundle::make(project, operator, &samples, directory.path());
        seen.bundle = Some(judged.map(|JudgedBundle { csv, errors }| SeenBundle { csv, errors }));
    }
    Ok(seen)
}

/// The alerts in the files of a project: names and expressions.
fn alerts(directory: &Path) -> Result<Vec<(String, String)>, ReadError> {
    let folder = directory.join(CONFIG);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for document in read_all(&[folder])?.iter().filter(|document| document.object["kind"] == "PrometheusRule") {
        let groups = document.object["spec"]["groups"].as_array().into_iter().flatten();
        for rule in groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()) {
            if let (Some(name), Some(expression)) = (rule["alert"].as_str(), rule["expr"].as_str()) {
                found.push((name.to_owned(), expression.to_owned()));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_checks_are_done() {
        let check = |only: &[&str], skip: &[&str], expect: Result<usize, &str>| {
            let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            match (chosen(&texts(only), &texts(skip)), expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found.len(), expect, "{only:?} {skip:?}"),
                (Err(found), Err(expect)) => assert!(found.to_string().contains(expect), "{found}"),
                (found, expect) => panic!("{:?} instead of {expect:?}", found.map(|found| found.len())),
            }
        };
        check(&[], &[], Ok(CHECKS.len()));
        check(&["idempotent"], &[], Ok(1));
        check(&[], &["idempotent", "start"], Ok(CHECKS.len() - 2));
        check(&["idempotent", "start"], &["start"], Ok(1));
        check(&["idempotence"], &[], Err("--list"));
    }

    #[test]
    fn exit_codes() {
        let scored = |outcome: Outcome| {
            let verdict = Verdict { outcome, found: Vec::new(), advice: String::new() };
            vec![Scored { check: Check::named("idempotent").expect("a check"), verdict }]
        };
        for (level, only, outcome, expect) in [
            (None, false, Outcome::Failed, 0),
            (Some(1), false, Outcome::Passed, 1),
            (None, true, Outcome::Passed, 0),
            (None, true, Outcome::Failed, 1),
            (None, true, Outcome::NotMeasured, 1),
        ] {
            assert_eq!(
                exit_code(level, only, &scored(outcome)),
                ExitCode::from(expect),
                "{level:?} {only} {outcome:?}"
            );
        }
    }
}
