//! `konverge install` and `uninstall`: the CRDs of the project's operator, in the cluster of the kubeconfig. In: a project. Out: CRDs that the
//! server serves, or that are gone. CRDs that have objects are deleted only if somebody says so, because their objects go with them.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::OutputFormat;
use crate::confirm::{NobodyToAsk, confirm};
use crate::counted::counted;
use crate::description::{AskError, Description, ProjectArgs, ProjectError, here, text};
use crate::manifests::called;
use crate::remote_cluster::{ApplyOptions, ClusterArgs, RemoteCluster, RemoteError, block_on};

/// Who the fields of installed CRDs belong to.
const MANAGER: &str = "konverge-install";

/// How long a server may take until it serves a new kind.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(60);

/// How often is looked.
const LOOK: Duration = Duration::from_millis(200);

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Arguments of `konverge install`.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Let the server check everything, and store nothing
    #[arg(long)]
    dry_run: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Arguments of `konverge uninstall`.
#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Delete CRDs that have objects, and with them the objects, without asking
    #[arg(short, long)]
    yes: bool,
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// How many seconds to wait until they are gone
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

/// Why CRDs were not installed or deleted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Cluster(#[from] RemoteError),
    #[error(transparent)]
    Nobody(#[from] NobodyToAsk),
    #[error("nothing was deleted")]
    Declined,
    #[error("the server does not serve {name} yet, after {} s: {why}", ESTABLISHED_WITHIN.as_secs())]
    NotEstablished { name: String, why: String },
    #[error(
        "{name} is still being deleted after {seconds} s, because {left} of its objects cannot go before a finalizer is removed, which their operator does after its cleanup: \
         start it if it does not run (`konverge run`), and wait (--timeout {})", seconds.saturating_mul(5).max(60)
    )]
    Held { name: String, left: String, seconds: u64 },
}

/// `konverge install`
pub(crate) fn install(args: &InstallArgs) -> ExitCode {
    block_on(async {
        let (operator, cluster) = described(&args.project, &args.cluster).await?;
        let mut changes = Vec::new();
        for definition in &operator.definitions {
            let mut definition = definition.clone();
            // The operator says itself where it converts, as soon as it runs.
            if let Some(spec) = definition["spec"].as_object_mut() {
                spec.remove("conversion");
            }
            // The operator decides what its CRDs look like, whoever changed them.
            let options = ApplyOptions { manager: MANAGER, force: true, dry_run: args.dry_run };
            let change = cluster.apply(&definition, options).await?;
            if args.output == OutputFormat::Text {
                let dry_run = if args.dry_run { " (dry run)" } else { "" };
                println!("{} {}{dry_run}", called(&definition), change.word());
            }
            changes.push(json!({"name": definition["metadata"]["name"], "change": change.word()}));
            if !args.dry_run {
                established(&cluster, &text(&definition["metadata"]["name"])).await?;
            }
        }
        match args.output {
            OutputFormat::Text if changes.is_empty() => println!("the operator has no CRDs of its own"),
            OutputFormat::Text => {}
            _ => println!("{:#}", json!({"cluster": cluster.url(), "definitions": changes})),
        }
        Ok::<_, InstallError>(ExitCode::SUCCESS)
    })
}

/// `konverge uninstall`
pub(crate) fn uninstall(args: &UninstallArgs) -> ExitCode {
    block_on(async {
        let (operator, cluster) = described(&args.project, &args.cluster).await?;
        let names: Vec<String> = operator.definitions.iter().map(|one| text(&one["metadata"]["name"])).collect();
        let found = present(&cluster, &names).await?;
        for name in names.iter().filter(|name| !found.iter().any(|(found, _)| found == *name)) {
            println!("CustomResourceDefinition {name} is not installed");
        }
        if args.dry_run {
            found.iter().for_each(|(name, objects)| println!("{} (dry run)", objects.deleted_with(name)));
            return Ok(ExitCode::SUCCESS);
        }
        if !may_delete(&found, args.yes)? {
            return Err(InstallError::Declined);
        }
        delete(&cluster, &found, Duration::from_secs(args.timeout)).await?;
        Ok::<_, InstallError>(ExitCode::SUCCESS)
    })
}

/// The operator, and the cluster. The cluster is asked first, because compiling the operator takes a while.
async fn described(args: &ProjectArgs, cluster: &ClusterArgs) -> Result<(Description, RemoteCluster), InstallError> {
    let (project, package, target) = here(args)?;
    let cluster = RemoteCluster::connect(cluster).await?;
    Ok((Description::of(&project, package, target)?, cluster))
}

/// Waits until the server serves the kind of a CRD.
pub(crate) async fn established(cluster: &RemoteCluster, name: &str) -> Result<(), InstallError> {
    let deadline = Instant::now() + ESTABLISHED_WITHIN;
    loop {
        let definition = cluster.get(&format!("{CRDS}/{name}")).await?.unwrap_or_default();
        let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is =
            |kind: &str| conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == "True");
        if is("Established").is_some() {
            cluster.forget_kinds();
            return Ok(());
        }
        if Instant::now() > deadline {
            let refused = conditions.iter().find(|condition| condition["status"] == "False");
            let why = refused.map_or_else(|| "it does not say why".to_owned(), |condition| text(&condition["message"]));
            return Err(InstallError::NotEstablished { name: name.to_owned(), why });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The objects of a CRD, as far as they can be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Objects {
    Count(usize),
    /// There may be some; why they cannot be listed.
    Unknown(String),
}

impl Objects {
    async fn of(cluster: &RemoteCluster, definition: &Value) -> Self {
        let Some(list) = objects_of(definition) else {
            return Self::Unknown("none of its versions is served".to_owned());
        };
        match cluster.list(&list, "").await {
            Ok(objects) => Self::Count(objects.len()),
            Err(error) => Self::Unknown(error.to_string()),
        }
    }

    /// What is said after a CRD was deleted.
    pub(crate) fn deleted_with(&self, name: &str) -> String {
        match self {
            Self::Count(0) => format!("CustomResourceDefinition {name} deleted"),
            Self::Count(count) => {
                format!("CustomResourceDefinition {name} deleted, with {}", counted(*count, "object"))
            }
            Self::Unknown(_) => format!("CustomResourceDefinition {name} deleted, with all its objects"),
        }
    }
}

/// Those of these CRDs that are installed, with their objects.
pub(crate) async fn present(cluster: &RemoteCluster, names: &[String]) -> Result<Vec<(String, Objects)>, RemoteError> {
    let mut found = Vec::new();
    for name in names {
        if let Some(definition) = cluster.get(&format!("{CRDS}/{name}")).await? {
            found.push((name.clone(), Objects::of(cluster, &definition).await));
        }
    }
    Ok(found)
}

/// The path of the list of a CRD's objects; none if no version is served. Objects in the version that is stored need no conversion, which may
/// be out of order.
fn objects_of(definition: &Value) -> Option<String> {
    let spec = &definition["spec"];
    let served = || spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true);
    let version = served().find(|version| version["storage"] == true).or_else(|| served().next())?;
    Some(format!("/apis/{}/{}/{}", text(&spec["group"]), text(&version["name"]), text(&spec["names"]["plural"])))
}

/// What would be lost with these CRDs; nothing if it is known that they have no objects.
fn loss(definitions: &[(String, Objects)]) -> Option<String> {
    let (mut counted, mut unknown) = (Vec::new(), Vec::new());
    for (name, objects) in definitions {
        match objects {
            Objects::Count(0) => {}
            Objects::Count(count) => counted.push(format!("{count} of {name}")),
            Objects::Unknown(why) => unknown.push(format!("those of {name} cannot be counted: {why}")),
        }
    }
    counted.append(&mut unknown);
    (!counted.is_empty()).then(|| format!("deleting the CRDs deletes all their objects ({})", counted.join(", ")))
}

/// Whether CRDs may be deleted; asks if they have objects, or may have some.
pub(crate) fn may_delete(definitions: &[(String, Objects)], yes: bool) -> Result<bool, NobodyToAsk> {
    loss(definitions).map_or(Ok(true), |loss| confirm(&loss, yes))
}

/// Deletes CRDs, and waits until they are gone.
pub(crate) async fn delete(
    cluster: &RemoteCluster,
    definitions: &[(String, Objects)],
    within: Duration,
) -> Result<(), InstallError> {
    for (name, _) in definitions {
        cluster.delete(&format!("{CRDS}/{name}")).await?;
    }
    for (name, objects) in definitions {
        let path = format!("{CRDS}/{name}");
        if !cluster.wait_gone(&path, within).await? {
            let definition = cluster.get(&path).await?.unwrap_or_default();
            let left = match Objects::of(cluster, &definition).await {
                Objects::Count(left) => left.to_string(),
                Objects::Unknown(_) => "some".to_owned(),
            };
            return Err(InstallError::Held { name: name.clone(), left, seconds: within.as_secs() });
        }
        println!("{}", objects.deleted_with(name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_listed_as_they_are_stored() {
        let check = |versions: Value, expect: Option<&str>| {
            let definition = json!({"spec": {"group": "g", "names": {"plural": "shops"}, "versions": versions}});
            assert_eq!(objects_of(&definition).as_deref(), expect, "{definition}");
        };
        let version =
            |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
        check(json!([version("v1", true, false), version("v2", true, true)]), Some("/apis/g/v2/shops"));
        check(json!([version("v1", true, false), version("v2", false, true)]), Some("/apis/g/v1/shops"));
        check(json!([version("v1", false, true)]), None);
    }

    #[test]
    fn what_may_be_lost_is_asked_for() {
        let check = |objects: &[Objects], expect: Option<&str>| {
            let definitions: Vec<_> = objects.iter().map(|objects| ("shops.g".to_owned(), objects.clone())).collect();
            assert_eq!(loss(&definitions).as_deref(), expect);
        };
        check(&[], None);
        check(&[Objects::Count(0)], None);
        check(&[Objects::Count(2)], Some("deleting the CRDs deletes all their objects (2 of shops.g)"));
        check(
            &[Objects::Unknown("forbidden".into()), Objects::Count(1), Objects::Count(0)],
            Some(
                "deleting the CRDs deletes all their objects (1 of shops.g, those of shops.g cannot be counted: forbidden)",
            ),
        );
    }
}
