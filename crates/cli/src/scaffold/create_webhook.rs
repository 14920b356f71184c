//! `konverge create webhook`: functions that default, refuse or convert objects of a kind. In: flags or answers. Out: new files, and lines added
//! to `src/kinds.rs`. The second webhook of a kind is added to the first one's file.

use super::ask::{self, Asker, Question};
use super::create_api::{GROUP, KIND};
use super::files::source;
use super::project_file::{ProjectFile, Resource, Webhooks};
use super::{Existing, ScaffoldError, files, names, tell_next};

/// Arguments of `konverge create webhook`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateWebhookArgs {
    /// The group, without the domain; needed only if several groups have the kind
    #[arg(long)]
    group: Option<String>,
    /// A version of the kind. Webhooks work with the version that is stored, whichever a client uses
    #[arg(long)]
    version: Option<String>,
    /// The kind
    #[arg(long)]
    kind: Option<String>,
    /// Scaffold a function that fills in what users leave out
    #[arg(long)]
    defaulting: bool,
    /// Scaffold a function that refuses objects
    #[arg(long, visible_alias = "validation")]
    programmatic_validation: bool,
    /// Check that the versions of the kind are converted: `create api` scaffolds the conversion together with a version
    #[arg(long)]
    conversion: bool,
    /// Versions that are converted from and to the stored one [default: all others]
    #[arg(long, value_name = "VERSION", value_delimiter = ',', requires = "conversion")]
    spoke: Vec<String>,
    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
}

const DEFAULTING: Question =
    Question { flag: "--defaulting", what: "Scaffold a webhook that fills in defaults", example: "" };
const VALIDATION: Question =
    Question { flag: "--programmatic-validation", what: "Scaffold a webhook that refuses objects", example: "" };

/// `konverge create webhook`
pub(crate) fn create_webhook(args: &CreateWebhookArgs) -> Result<(), ScaffoldError> {
    let existing = Existing::find(args.dry_run)?;
    let project = &existing.project;
    if project.resources.is_empty() {
        let why = "this project has no kinds yet; `konverge create api` adds one";
        return Err(ScaffoldError::Refused(why.into()));
    }
    let mut asker = ask::terminal();
    let kind = asker.text(args.kind.as_deref(), KIND, names::kind)?;
    let group = group(&mut asker, args, project, &kind)?;
    let resource = project.resource(&group, &kind).ok_or_else(|| unknown(project, &group, &kind))?;
    if let Some(version) = args.version.as_ref().filter(|version| !resource.versions.contains(version)) {
        return Err(ScaffoldError::Refused(no_version(resource, version)));
    }
    let wanted = wanted(&mut asker, args)?;
    if args.conversion {
        check_conversions(args, resource)?;
    }
    let webhooks = Webhooks {
        defaulting: resource.webhooks.defaulting || wanted.defaulting,
        validation: resource.webhooks.validation || wanted.validation,
    };
    if args.conversion {
        for conversion in &resource.conversions {
            let path = source(resource, &files::conversion_module(conversion));
            existing.disk.tell("36", "there", &format!("{path}: `konverge create api` wrote it with the version"));
        }
    }
    if webhooks == resource.webhooks {
        if !wanted.is_none() {
            existing.disk.tell("36", "there", &format!("{}: it was scaffolded before", source(resource, "webhook")));
        }
        existing.ask_again()?;
        println!("\nNothing is left to do.");
        return Ok(());
    }
    let mut shall = project.clone();
    let resource = Resource { webhooks, ..resource.clone() };
    let same = |other: &&mut Resource| other.group == resource.group && other.kind == resource.kind;
    if let Some(place) = shall.resources.iter_mut().find(same) {
        place.clone_from(&resource);
    }
    let result = existing.change(&shall, &files::Files::new());
    if matches!(result, Ok(()) | Err(ScaffoldError::ByHand(_))) {
        let edit = format!("edit {}", source(&resource, "webhook"));
        tell_next(
            &existing.disk,
            &[
                (&edit, "say what is refused and what is filled in"),
                ("cargo test", "see that all fits together"),
                ("konverge dev", "webhooks work there, with nothing to set up"),
            ],
        );
    }
    result
}

/// The group that was given, or the only one that has the kind.
fn group<R: std::io::BufRead, W: std::io::Write>(
    asker: &mut Asker<R, W>,
    args: &CreateWebhookArgs,
    project: &ProjectFile,
    kind: &str,
) -> Result<String, ScaffoldError> {
    let mut groups = project.resources.iter().filter(|resource| resource.kind == kind).map(|resource| &resource.group);
    match (&args.group, groups.next(), groups.next()) {
        (None, Some(only), None) => Ok(only.clone()),
        (None, None, _) => Err(unknown(project, "", kind)),
        (given, ..) => asker.text(given.as_deref(), GROUP, |text| names::group(text, &project.domain)),
    }
}

/// Which webhooks are wanted: what flags say, or what a person answers.
fn wanted<R: std::io::BufRead, W: std::io::Write>(
    asker: &mut Asker<R, W>,
    args: &CreateWebhookArgs,
) -> Result<Webhooks, ScaffoldError> {
    let given = Webhooks { defaulting: args.defaulting, validation: args.programmatic_validation };
    if !given.is_none() || args.conversion {
        return Ok(given);
    }
    let nothing = || {
        let why = "say which webhook: --defaulting, --programmatic-validation, --conversion, or several of them";
        ScaffoldError::Refused(why.into())
    };
    if !asker.may_ask() {
        return Err(nothing());
    }
    let answered = Webhooks { defaulting: asker.yes(DEFAULTING)?, validation: asker.yes(VALIDATION)? };
    if answered.is_none() { Err(nothing()) } else { Ok(answered) }
}

fn check_conversions(args: &CreateWebhookArgs, resource: &Resource) -> Result<(), ScaffoldError> {
    let Resource { kind, group, .. } = resource;
    if resource.versions.len() < 2 {
        let why = format!(
            "{kind} has one version, {}, so there is nothing to convert; `konverge create api --group {} --version v2 --kind {kind}` adds a \
             version together with its conversion",
            resource.hub(),
            if group.is_empty() { "\"\"" } else { group },
        );
        return Err(ScaffoldError::Refused(why));
    }
    for spoke in &args.spoke {
        if spoke == resource.hub() {
            let why =
                format!("{spoke} is the version of {kind} that is stored; the others are converted from and to it");
            return Err(ScaffoldError::Refused(why));
        }
        if !resource.versions.contains(spoke) {
            return Err(ScaffoldError::Refused(no_version(resource, spoke)));
        }
    }
    Ok(())
}

fn no_version(resource: &Resource, version: &str) -> String {
    let Resource { kind, versions, .. } = resource;
    format!("{kind} has no version {version}; it has {}. `konverge create api` adds one", versions.join(", "))
}

fn unknown(project: &ProjectFile, group: &str, kind: &str) -> ScaffoldError {
    let known: Vec<String> = project
        .resources
        .iter()
        .map(|resource| format!("{} in {}", resource.kind, project.full_group(&resource.group)))
        .collect();
    let of_group =
        if group.is_empty() { String::new() } else { format!(" in the group {}", project.full_group(group)) };
    ScaffoldError::Refused(format!(
        "this project has no kind {kind}{of_group}; it has {}. `konverge create api` adds one",
        known.join(", ")
    ))
}
