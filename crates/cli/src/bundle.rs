//! `konverge bundle`: an operator as the Operator Lifecycle Manager (OLM) installs it. In: the project of the current directory. Out: the
//! files of a bundle, or with `--check` which of them are stale.
//!
//! ```text
//! metadata      Cargo.toml and flags → what catalogs show, and which bundle comes before this one
//! csv           description, metadata, samples → a ClusterServiceVersion: `descriptors` of fields, `managed_kinds`, `webhooks`
//! files         all of it → files
//! validate      a bundle on disk → what the published rules say of it
//! subscription  a bundle on disk → what an administrator applies to install it
//! ```

mod csv;
mod descriptors;
mod files;
mod managed_kinds;
mod metadata;
mod subscription;
mod validate;
mod webhooks;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use konverge_core::ErrorChain;
use serde_json::Value;

use crate::args::OutputFormat;
use crate::description::{AskError, Description, ProjectArgs, ProjectError, here};
use crate::documents::{ReadError, read_all};
use crate::generate::report;
use crate::generated_files::FilesError;
use crate::kustomize::CONFIG;
use crate::project::Project;

use csv::CsvError;
use metadata::{BundleMetadata, MetadataError};
use subscription::SubscriptionArgs;
use validate::ValidateBundleArgs;

/// Arguments of `konverge bundle`.
#[derive(Debug, clap::Args)]
pub(crate) struct BundleArgs {
    #[command(flatten)]
    write: WriteBundleArgs,
    /// What to do with a bundle that is there.
    #[command(subcommand)]
    command: Option<BundleCommand>,
}

/// The subcommands of `konverge bundle`.
#[derive(Debug, Subcommand)]
enum BundleCommand {
    /// Judge a bundle by the rules that operator-framework publishes
    #[command(after_help = validate::EXAMPLES)]
    Validate(ValidateBundleArgs),
    /// Print the OperatorGroup, Subscription and CatalogSource that install a bundle
    #[command(after_help = subscription::EXAMPLES)]
    Subscription(SubscriptionArgs),
}

/// Arguments of `konverge bundle` itself.
#[derive(Debug, clap::Args)]
struct WriteBundleArgs {
    #[command(flatten)]
    project: ProjectArgs,
    /// The version of the operator [default: that of the package]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// The channels of the package that this version is in [default: `channels` in [package.metadata.konverge.bundle], or candidate
    /// before 1.0.0, and stable from then on]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    channels: Vec<String>,
    /// The channel of those who choose none [default: `default-channel`, or the first channel]
    #[arg(long, value_name = "NAME")]
    default_channel: Option<String>,
    /// The version that this one replaces, as `shop.v1.1.0` or `1.1.0`
    #[arg(long, value_name = "NAME")]
    replaces: Option<String>,
    /// The versions from which an upgrade may jump to this one, as `>=1.0.0 <1.2.0`
    #[arg(long, value_name = "RANGE")]
    skip_range: Option<String>,
    /// The image of the operator [default: `image` in [package.metadata.konverge] with the version]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Write nothing; say which files are stale, and exit with 1 if there are some
    #[arg(long)]
    check: bool,
    /// Where to write, instead of the project's directory
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
enum BundleError {
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the samples for catalogs cannot be read")]
    Samples(#[source] ReadError),
    #[error(transparent)]
    Csv(#[from] CsvError),
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// `konverge bundle`
pub(crate) fn bundle(args: &BundleArgs) -> ExitCode {
    let done = match &args.command {
        Some(BundleCommand::Validate(args)) => return validate::validate(args),
        Some(BundleCommand::Subscription(args)) => return subscription::subscription(args),
        None => write(&args.write),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {}", ErrorChain(&error));
        ExitCode::FAILURE
    })
}

fn write(args: &WriteBundleArgs) -> Result<ExitCode, BundleError> {
    let (project, mut package, mut target) = here(&args.project)?;
    if let Some(version) = &args.version {
        target.image = retagged(&target.image, &package.version, version);
        package.version = version.clone();
    }
    if let Some(image) = &args.image {
        target.image = image.clone();
    }
    let mut metadata = BundleMetadata::of(project.package(), &target.name, &package.version, project.directory())?;
    metadata.with_flags(args)?;
    let operator = Description::of(&project, package, target)?;
    let samples = samples(project.directory())?;
    let files = files::files(&operator, &metadata, &samples)?;
    let directory = args.output_dir.as_deref().unwrap_or(project.directory());
    let changes = files.changes(directory)?;
    if !args.check {
        files.write(directory, &changes)?;
    }
    Ok(report(args.output, args.check, directory, &changes, "konverge bundle"))
}

/// A bundle as `konverge bundle` makes it, and what is wrong with it.
pub(crate) struct JudgedBundle {
    /// The ClusterServiceVersion.
    pub csv: Value,
    /// What the rules call errors.
    pub errors: Vec<String>,
}

impl JudgedBundle {
    /// Makes the bundle of an operator in a directory for it, and judges it there.
    pub(crate) fn make(
        project: &Project,
        operator: &Description,
        samples: &[Value],
        directory: &Path,
    ) -> Result<Self, String> {
        let chain = |error: &(dyn std::error::Error + 'static)| ErrorChain(error).to_string();
        let metadata = BundleMetadata::of(project.package(), &operator.name, &operator.version, project.directory());
        let metadata = metadata.map_err(|error| chain(&error))?;
        let files = files::files(operator, &metadata, samples).map_err(|error| chain(&error))?;
        let changes = files.changes(directory).map_err(|error| chain(&error))?;
        files.write(directory, &changes).map_err(|error| chain(&error))?;
        let (csv, errors) = validate::errors(&directory.join(files::BUNDLE)).map_err(|error| chain(&error))?;
        Ok(Self { csv, errors })
    }
}

/// An image whose tag was the version of the package, with another version.
fn retagged(image: &str, old: &str, new: &str) -> String {
    let tag = |version: &str| version.replace('+', "-");
    match image.strip_suffix(&format!(":{}", tag(old))) {
        Some(repository) => format!("{repository}:{}", tag(new)),
        None => image.to_owned(),
    }
}

/// The objects in `config/samples`; none if nobody wrote some.
fn samples(directory: &Path) -> Result<Vec<Value>, BundleError> {
    let folder = directory.join(CONFIG).join("samples");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let documents = read_all(&[folder]).map_err(BundleError::Samples)?;
    Ok(documents.into_iter().map(|document| document.object).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_the_version() {
        for (image, expect) in [
            ("ghcr.io/acme/shop:1.0.0-a", "ghcr.io/acme/shop:2.0.0"),
            ("ghcr.io/acme/shop:latest", "ghcr.io/acme/shop:latest"),
        ] {
            assert_eq!(retagged(image, "1.0.0+a", "2.0.0"), expect);
        }
    }
}
