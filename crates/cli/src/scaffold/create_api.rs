//! `konverge create api`: another kind of a project, another version of one, or a controller for a kind that had none. In: flags or answers.
//! Out: new files, and lines added to `src/kinds.rs`. What the user wrote is not touched.

use super::ask::{self, Question};
use super::files::{Files, sample_path, source, test_names};
use super::project_file::{ProjectFile, Resource, Webhooks};
use super::{Existing, ScaffoldError, names, tell_next};

/// Arguments of `konverge create api`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateApiArgs {
    /// The group, without the domain; "" for the domain itself
    #[arg(long)]
    group: Option<String>,
    /// The version, such as v1alpha1
    #[arg(long)]
    version: Option<String>,
    /// The kind, such as Memcached
    #[arg(long)]
    kind: Option<String>,
    /// The plural, if it is not that of the language [default: formed from the kind]
    #[arg(long)]
    plural: Option<String>,
    /// Whether objects are in namespaces
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set)]
    namespaced: bool,
    /// Scaffold the types of the kind; always so
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set)]
    resource: bool,
    /// Scaffold a controller; with =false the kind has types and a CRD, and nothing reconciles it
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set)]
    controller: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// What is asked for here and by `create webhook`.
pub(super) const GROUP: Question =
    Question { flag: "--group", what: "The group, without the domain", example: "cache" };
const VERSION: Question = Question { flag: "--version", what: "The version", example: "v1alpha1" };
pub(super) const KIND: Question = Question { flag: "--kind", what: "The kind", example: "Memcached" };

/// `konverge create api`
pub(crate) fn create_api(args: &CreateApiArgs) -> Result<(), ScaffoldError> {
    let existing = Existing::find(args.dry_run)?;
    let project = &existing.project;
    if !args.resource {
        return Err(ScaffoldError::Refused(
            "--resource=false is not needed: a controller of a kind that others define is `Controller::<Deployment>::new()` or \
             `Controller::dynamic(…)` in src/lib.rs, added by `.and(…)`"
                .into(),
        ));
    }
    let mut asker = ask::terminal();
    let group = asker.text(args.group.as_deref(), GROUP, |text| names::group(text, &project.domain))?;
    let version = asker.text(args.version.as_deref(), VERSION, names::version)?;
    let kind = asker.text(args.kind.as_deref(), KIND, names::kind)?;
    let plural = args.plural.as_deref().map(names::plural).transpose()?;

    let mut shall = project.clone();
    let known = shall.resources.iter_mut().find(|resource| resource.group == group && resource.kind == kind);
    let mut copies = Files::new();
    match known {
        None => {
            let resource = new_resource(args, project, [group, version.clone(), kind], plural)?;
            shall.resources.push(resource);
        }
        Some(resource) if resource.versions.contains(&version) => {
            if resource.controller || !args.controller {
                existing.ask_again()?;
                return Err(ScaffoldError::Refused(already(resource, &version)));
            }
            refuse_without_status(&existing, resource)?;
            resource.controller = true;
        }
        Some(resource) => {
            refuse_other_names(args, resource, plural.as_deref())?;
            copies = copied(&existing, resource, &version)?;
            resource.add_version(&version);
        }
    }
    let resource = changed(project, &shall).clone();
    let result = existing.change(&shall, &copies);
    if matches!(result, Ok(()) | Err(ScaffoldError::ByHand(_))) {
        tell_end(&existing, &resource, &version);
    }
    result
}

/// The resource of the new project that the old one has not, or has otherwise.
fn changed<'a>(was: &ProjectFile, shall: &'a ProjectFile) -> &'a Resource {
    let mut resources = shall.resources.iter();
    resources.find(|resource| !was.resources.contains(resource)).expect("the command has changed one")
}

fn already(resource: &Resource, version: &str) -> String {
    let Resource { kind, .. } = resource;
    format!(
        "{kind} has the version {version} already ({}); another --version adds one to the kind, another --kind adds a kind",
        source(resource, version)
    )
}

fn new_resource(
    args: &CreateApiArgs,
    project: &ProjectFile,
    [group, version, kind]: [String; 3],
    plural: Option<String>,
) -> Result<Resource, ScaffoldError> {
    let plural = plural.unwrap_or_else(|| names::plural_of(&kind));
    if let Some(other) = project.resources.iter().find(|other| other.group == group && other.plural == plural) {
        let name = format!("{plural}.{}", project.full_group(&group));
        let why = format!("the kind {} has the name {name} already; choose another one with --plural", other.kind);
        return Err(ScaffoldError::Refused(why));
    }
    let module = free_module(project, &group, &kind).ok_or_else(|| {
        let why =
            format!("a kind that is written like {kind} is there already, and its module would have the same name");
        ScaffoldError::Refused(why)
    })?;
    Ok(Resource {
        group,
        kind,
        plural,
        module,
        namespaced: args.namespaced,
        controller: args.controller,
        versions: vec![version],
        conversions: Vec::new(),
        webhooks: Webhooks::default(),
    })
}

/// The module of a new kind. Neither it nor its tests have the name of those of another kind, also not when that one gets webhooks: `ShopWebhook` beside
/// `Shop`.
fn free_module(project: &ProjectFile, group: &str, kind: &str) -> Option<String> {
    let is_taken = |name: &String| project.resources.iter().any(|other| test_names(&other.module).contains(name));
    let plain = names::module(kind);
    // For a kind of the same name in another group. A group may begin with a digit, and a module may not.
    let digit = if group.starts_with(|first: char| first.is_ascii_digit()) { "group_" } else { "" };
    let in_group = format!("{digit}{}_{plain}", group.replace(['-', '.'], "_"));
    [plain, in_group]
        .into_iter()
        .filter(|module| !module.starts_with('_'))
        .find(|module| !test_names(module).iter().any(is_taken))
}

/// The controller writes the status of the stored version. A file that began as a copy of another version is the user's, so nothing is added to it.
fn refuse_without_status(existing: &Existing, resource: &Resource) -> Result<(), ScaffoldError> {
    let (hub, status) = (source(resource, resource.hub()), format!("{}Status", resource.kind));
    let text = existing.disk.read(&hub)?.unwrap_or_default();
    if resource.hub() == resource.first() || text.contains(&status) {
        return Ok(());
    }
    let why = format!(
        "the controller would write a status, and {hub} has none; add `status = \"{status}\"` to its `#[kube(…)]` and the type {status} with \
         `observed_generation: i64` and `ready_replicas: i32`, in all versions, and run this again"
    );
    Err(ScaffoldError::Refused(why))
}

/// All versions of a kind have one scope and one plural.
fn refuse_other_names(args: &CreateApiArgs, resource: &Resource, plural: Option<&str>) -> Result<(), ScaffoldError> {
    let Resource { kind, .. } = resource;
    if resource.namespaced && !args.namespaced {
        let why = format!("{kind} is in namespaces, and all its versions have to be; leave out --namespaced=false");
        return Err(ScaffoldError::Refused(why));
    }
    match plural {
        Some(plural) if plural != resource.plural => {
            let why = format!("the plural of {kind} is {} in all its versions; leave out --plural", resource.plural);
            Err(ScaffoldError::Refused(why))
        }
        _ => Ok(()),
    }
}

/// The types and the sample of a new version: copies of those of the version that is stored now.
fn copied(existing: &Existing, resource: &Resource, version: &str) -> Result<Files, ScaffoldError> {
    let (hub, disk) = (resource.hub(), &existing.disk);
    let types = source(resource, hub);
    let text = disk.read(&types)?.unwrap_or_default();
    let copy = types_of_version(&text, hub, version).ok_or_else(|| {
        let why = format!(
            "{types} has no `version = \"{hub}\"` in an attribute, so it cannot be copied for {version}; add the version by hand, as in the \
             guide on versions"
        );
        ScaffoldError::Refused(why)
    })?;
    let mut copies = Files::from([(source(resource, version), copy)]);
    if let Some(sample) = disk.read(&sample_path(resource, hub))? {
        let group = existing.project.full_group(&resource.group);
        let (from, to) = (format!("apiVersion: {group}/{hub}"), format!("apiVersion: {group}/{version}"));
        copies.insert(sample_path(resource, version), sample.replace(&from, &to));
    }
    Ok(copies)
}

/// Types with another version in their attribute and in the header of the file; nothing if the attribute is not found.
fn types_of_version(text: &str, from: &str, to: &str) -> Option<String> {
    let (attribute, new) = (format!("version = \"{from}\""), format!("version = \"{to}\""));
    if !text.contains(&attribute) {
        return None;
    }
    let line = |line: &str| match line.starts_with("//!") {
        true => line.replace(&format!("version {from} "), &format!("version {to} ")),
        false => line.replace(&attribute, &new),
    };
    Some(text.split_inclusive('\n').map(line).collect())
}

fn tell_end(existing: &Existing, resource: &Resource, version: &str) {
    let disk = &existing.disk;
    if disk.is_dry_run() {
        return;
    }
    let (kind, hub) = (&resource.kind, resource.hub());
    let group = existing.project.full_group(&resource.group);
    println!("\n{kind} is there as {group}/{version}.");
    if resource.versions.len() > 1 {
        println!("{hub} is reconciled and stored now; objects are converted from and to the other versions.");
    }
    let types = format!("edit {}", source(resource, version));
    let sample = format!("kubectl apply -f {}", sample_path(resource, version));
    tell_next(
        disk,
        &[
            (&types, "say what users write"),
            ("cargo test", "see that all fits together"),
            ("konverge dev", "run the operator on a cluster of its own"),
            (&sample, "in another terminal, with the KUBECONFIG that it prints"),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::{project, resource};
    use super::*;

    #[test]
    fn modules_and_tests_of_kinds_differ() {
        let project = |modules: &[&str]| {
            let resource = |module: &&str| Resource { module: (*module).to_owned(), ..resource("Shop") };
            ProjectFile { resources: modules.iter().map(resource).collect(), ..project() }
        };
        for (modules, group, kind, expect) in [
            (&[][..], "a", "Shop", Some("shop")),
            (&["shop"], "a", "Shop", Some("a_shop")),
            (&["shop"], "3d.x-y", "Shop", Some("group_3d_x_y_shop")),
            (&["shop"], "", "Shop", None),
            (&["shop"], "a", "ShopWebhook", Some("a_shop_webhook")),
            (&["shop"], "a", "ShopVersions", Some("a_shop_versions")),
            (&["shop_webhook"], "a", "Shop", Some("a_shop")),
            (&["shop", "a_shop"], "a", "Shop", None),
        ] {
            assert_eq!(free_module(&project(modules), group, kind).as_deref(), expect, "{modules:?} {group} {kind}");
        }
    }

    #[test]
    fn types_are_copied_for_a_version() {
        let types = "//! Shop in version v1 of the group x.\nuse k8s::core::v1::Pod;\n#[kube(group = \"x\", version = \"v1\")]\n";
        let copy = types_of_version(types, "v1", "v2").expect("it has a version");
        let expect = "//! Shop in version v2 of the group x.\nuse k8s::core::v1::Pod;\n#[kube(group = \"x\", version = \"v2\")]\n";
        assert_eq!(copy, expect);
        assert_eq!(types_of_version(types, "v1beta1", "v2"), None);
    }
}
