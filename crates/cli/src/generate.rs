//! `konverge generate`: manifests and a Helm chart from the operator itself. In: the project of the current directory. Out: files, or with
//! `--check` which of them are stale, and exit code 1.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use konverge_core::ErrorChain;
use serde_json::{Value, json};

use crate::args::OutputFormat;
use crate::chart;
use crate::counted::{counted, counted_as};
use crate::description::{AskError, Description, ProjectArgs, ProjectError, here};
use crate::generated_files::{FileAction, FileChange, FilesError, GeneratedFiles};
use crate::image_reference::{BadReference, ImageReference};
use crate::kustomize;
use crate::manifests::{Part, manifests};

/// Arguments of `konverge generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct GenerateArgs {
    /// What to generate
    #[arg(value_enum)]
    what: What,
    /// Write nothing; say which files are stale, and exit with 1 if there are some
    #[arg(long)]
    check: bool,
    /// Where to write, instead of the project's directory
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// The image of the Deployment or StatefulSet, with its tag [default: `image` in [package.metadata.konverge] with the version of the package]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    #[command(flatten)]
    project: ProjectArgs,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// CRDs: config/crd
    Crd,
    /// ServiceAccount, roles and bindings: config/rbac
    Rbac,
    /// Webhook configurations and their Service: config/webhook
    Webhook,
    /// ServiceMonitor and alerts for Prometheus, and a dashboard for Grafana: config/prometheus, config/grafana
    Monitoring,
    /// Everything for kubectl and kustomize: config
    Manifests,
    /// A Helm chart: charts/NAME
    Chart,
    /// Manifests and chart
    All,
}

/// Why nothing was generated.
#[derive(Debug, thiserror::Error)]
enum GenerateError {
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Image(#[from] BadReference),
}

/// `konverge generate`
pub(crate) fn generate(args: &GenerateArgs) -> ExitCode {
    match run(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", ErrorChain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &GenerateArgs) -> Result<ExitCode, GenerateError> {
    let (project, package, mut target) = here(&args.project)?;
    if let Some(image) = &args.image {
        ImageReference::parse(image)?;
        target.image = image.clone();
    }
    let operator = Description::of(&project, package, target)?;
    let directory = args.output_dir.as_deref().unwrap_or(project.directory());
    let mut changes = Vec::new();
    for files in files(args.what, &operator) {
        let found = files.changes(directory)?;
        if !args.check {
            files.write(directory, &found)?;
        }
        changes.extend(found);
    }
    let again = format!("konverge generate {}", spelled(args.what));
    Ok(report(args.output, args.check, directory, &changes, &again))
}

/// The files of what was asked for.
fn files(what: What, operator: &Description) -> Vec<GeneratedFiles> {
    let all = manifests(operator);
    let of = |parts: &[Part]| kustomize::files(&all, parts);
    match what {
        What::Crd => vec![of(&[Part::Crd])],
        What::Rbac => vec![of(&[Part::Rbac])],
        What::Webhook => vec![of(&[Part::Webhook])],
        What::Monitoring => vec![of(&[Part::Prometheus, Part::Grafana])],
        What::Manifests => vec![of(&Part::ALL)],
        What::Chart => vec![chart::files(operator)],
        What::All => vec![of(&Part::ALL), chart::files(operator)],
    }
}

/// What is stale of the files that somebody generated in a directory; none if nobody has generated any. Nothing is written.
pub(crate) fn stale(operator: &Description, directory: &Path) -> Result<Option<Vec<FileChange>>, FilesError> {
    let mut found = None;
    for files in files(What::All, operator) {
        let changes = files.changes(directory)?;
        let missing = changes.iter().filter(|change| change.action == FileAction::Create).count();
        // Whoever has none of these files has no use for them.
        if missing < files.len() {
            let stale = changes.into_iter().filter(|change| change.action != FileAction::Keep);
            found.get_or_insert_with(Vec::new).extend(stale);
        }
    }
    Ok(found)
}

/// Says what was done about files, or which are stale. `again` is the command that writes them.
pub(crate) fn report(
    output: OutputFormat,
    is_check: bool,
    directory: &Path,
    changes: &[FileChange],
    again: &str,
) -> ExitCode {
    let stale = changes.iter().filter(|change| change.action != FileAction::Keep).count();
    let word = |action: FileAction| if is_check { action.stale() } else { action.done() };
    if output == OutputFormat::Text {
        for FileChange { path, action } in changes {
            println!("{} {}", path.display(), word(*action));
        }
        match (stale, is_check) {
            (0, _) => println!("all files are up to date"),
            (_, true) => {
                eprintln!("error: {} not up to date; run `{again}`", counted_as(stale, "file is", "files are"));
            }
            (_, false) => println!("{} changed in {}", counted(stale, "file"), directory.display()),
        }
    } else {
        let shown = |change: &FileChange| json!({"path": change.path, "state": change.action.stale()});
        let shown: Vec<Value> = changes.iter().map(shown).collect();
        let shown = json!({"directory": directory, "checked": is_check, "upToDate": stale == 0, "files": shown});
        match output {
            OutputFormat::Yaml => print!("{}", serde_saphyr::to_string(&shown).unwrap_or_default()),
            _ => println!("{shown:#}"),
        }
    }
    ExitCode::from(u8::from(is_check && stale > 0))
}

fn spelled(what: What) -> String {
    what.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
