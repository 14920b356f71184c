//! `konverge deploy` and `undeploy`: the operator into the cluster of the kubeconfig, and out of it. In: the project, or manifests that somebody
//! rendered. Out: what changed, and a rollout that is finished or the reason why it is not.
//!
//! ```text
//! plan        which objects, in which order
//! ownership   which deployment an object is a part of
//! inventory   what an earlier deploy left in the cluster
//! rollout     how far a Deployment or StatefulSet is, and what its Pods complain about
//! undeploy    the reverse
//! ```

mod inventory;
mod ownership;
mod plan;
mod rollout;
mod undeploy;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::OutputFormat;
use crate::confirm::NobodyToAsk;
use crate::description::{AskError, DeployTarget, Description, ProjectArgs, ProjectError, here, text};
use crate::documents::{Document, ReadError, read_all};
use crate::image_reference::{BadReference, ImageReference};
use crate::install::{self, InstallError};
use crate::manifests::{called, manifests};
use crate::remote_cluster::{ApplyOptions, ClusterArgs, RemoteCluster, RemoteError, block_on};

pub(crate) use inventory::Inventory;
use ownership::Ownership;
pub(crate) use plan::apply_rank;
pub(crate) use rollout::{complaints, is_rolled_out, pod_query, pods, unfinished};
pub(crate) use undeploy::{UndeployArgs, undeploy};

/// Who the fields of deployed objects belong to.
const MANAGER: &str = "konverge-deploy";

/// Arguments of `konverge deploy`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeployArgs {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The image, with its tag [default: `image` in [package.metadata.konverge] with the version of the package]
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["filename", "kustomize"])]
    image: Option<String>,
    /// Deploy these manifests instead: a file, a directory, or - for standard input; may be repeated
    #[arg(short, long, value_name = "PATH", conflicts_with = "kustomize")]
    filename: Vec<PathBuf>,
    /// Deploy what `kustomize build` or `kubectl kustomize` makes of this directory instead
    #[arg(short, long, value_name = "DIR")]
    kustomize: Option<PathBuf>,
    /// Let the server check everything, and store nothing
    #[arg(long)]
    dry_run: bool,
    /// Take fields over that others manage
    #[arg(long)]
    force_conflicts: bool,
    /// Delete CRDs that are no part of it any more although they have objects, without asking
    #[arg(short, long)]
    yes: bool,
    /// Do not wait until the new Pods are available
    #[arg(long)]
    no_wait: bool,
    /// How many seconds to wait for them
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Why an operator was not deployed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeployError {
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Cluster(#[from] RemoteError),
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error(transparent)]
    Nobody(#[from] NobodyToAsk),
    #[error(transparent)]
    Image(#[from] BadReference),
    #[error("there are no objects to deploy in what was given")]
    Empty,
    #[error("{source_name} cannot be deployed: {why}")]
    BadObject { source_name: String, why: String },
    #[error(
        "{object} is part of the deployment {name} in the namespace {namespace}, and nothing can be part of two; `konverge undeploy --namespace \
         {namespace}` takes that one out"
    )]
    OfAnother { object: String, namespace: String, name: String },
    #[error(
        "neither kustomize nor kubectl can be started; render the directory elsewhere, and pass the result with -f"
    )]
    NoKustomize,
    #[error("{program} does not understand {}:\n{words}", directory.display())]
    Kustomize { program: &'static str, directory: PathBuf, words: String },
    #[error("{0}")]
    Rollout(String),
    #[error("there is no deployment {name} in the namespace {namespace}: `konverge deploy` made none there")]
    NotDeployed { name: String, namespace: String },
    #[error(
        "the deployment {name} in the namespace {namespace} has no Pods; `kubectl -n {namespace} get deployments,events` says why, unless it has no replicas"
    )]
    NoPods { name: String, namespace: String },
    #[error("the list of what was deployed cannot be read from {0}: {1}")]
    Inventory(String, String),
}

/// `konverge deploy`
pub(crate) fn deploy(args: &DeployArgs) -> ExitCode {
    block_on(async {
        let (project, package, mut target) = here(&args.project)?;
        if let Some(image) = &args.image {
            ImageReference::parse(image)?;
            target.image = image.clone();
        }
        let given = given(args)?;
        // The cluster is asked before the operator is compiled, which takes a while.
        let cluster = RemoteCluster::connect(&args.cluster).await?;
        let objects = match given {
            Some(given) => given,
            None => generated(&Description::of(&project, package, target.clone())?),
        };
        if objects.is_empty() {
            return Err(DeployError::Empty);
        }
        let mut deploying = Deploying { args, target, cluster, changes: Vec::new() };
        let outcome = deploying.run(objects).await;
        deploying.report();
        outcome.map(|()| ExitCode::SUCCESS)
    })
}

/// The objects that arguments name; nothing if they are those of the operator.
fn given(args: &DeployArgs) -> Result<Option<Vec<Value>>, DeployError> {
    let given = match (&args.kustomize, args.filename.is_empty()) {
        (Some(directory), _) => checked(plan::kustomized(directory)?)?,
        (None, false) => checked(read_all(&args.filename)?)?,
        (None, true) => return Ok(None),
    };
    if given.is_empty() { Err(DeployError::Empty) } else { Ok(Some(given)) }
}

/// The objects of the operator, without those that not every cluster takes.
fn generated(operator: &Description) -> Vec<Value> {
    let all = manifests(operator).into_iter().filter(|manifest| !manifest.part.is_optional());
    all.map(|manifest| manifest.object).collect()
}

fn checked(documents: Vec<Document>) -> Result<Vec<Value>, DeployError> {
    documents.into_iter().map(plan::checked).collect()
}

struct Deploying<'a> {
    args: &'a DeployArgs,
    target: DeployTarget,
    cluster: RemoteCluster,
    /// What was done about which object.
    changes: Vec<(String, &'static str)>,
}

impl Deploying<'_> {
    async fn run(&mut self, objects: Vec<Value>) -> Result<(), DeployError> {
        let DeployTarget { name, namespace, .. } = self.target.clone();
        self.say(&format!("deploying {name} to {} (namespace {namespace})", self.cluster.url()));
        let mut objects = self.in_namespaces(plan::in_order(objects, &self.target)).await?;
        self.refuse_those_of_others(&objects).await?;
        self.leave_out_namespaces(&mut objects).await?;
        if self.cluster.is_simulated().await && plan::leave_out_webhooks(&mut objects) {
            self.say("Pods are simulated in this cluster, so nobody would answer webhooks: they are left out");
        }
        let before = Inventory::read(&self.cluster, &self.target).await?;
        let now = Inventory::of(&objects);
        // Whatever happens next, the next deploy knows what may be there. The list needs its namespace.
        let needs_namespace = |object: &&Value| object["kind"] == "Namespace";
        for object in objects.iter().filter(needs_namespace) {
            self.apply(object, &objects).await?;
        }
        if !self.args.dry_run {
            before.and(&now).write(&self.cluster, &self.target, MANAGER).await?;
        }
        let (webhooks, others): (Vec<&Value>, Vec<&Value>) =
            objects.iter().filter(|object| !needs_namespace(object)).partition(|object| plan::is_webhook(object));
        for object in &others {
            self.apply(object, &objects).await?;
            if object["kind"] == "CustomResourceDefinition" && !self.args.dry_run {
                install::established(&self.cluster, &text(&object["metadata"]["name"])).await?;
            }
        }
        if !self.args.dry_run && !self.args.no_wait {
            for object in others.iter().filter(|object| rollout::is_rolled_out(object)) {
                self.wait_for(object).await?;
            }
        }
        for object in webhooks {
            self.apply(object, &objects).await?;
        }
        let kept = self.prune(&before, &now).await?;
        if !self.args.dry_run {
            now.and(&kept).write(&self.cluster, &self.target, MANAGER).await?;
        }
        Ok(())
    }

    /// The objects, with the namespace of the deployment where one is missing.
    async fn in_namespaces(&self, mut objects: Vec<Value>) -> Result<Vec<Value>, DeployError> {
        for at in 0..objects.len() {
            let object = &objects[at];
            if object["metadata"]["namespace"].is_string() {
                continue;
            }
            let is_namespaced = match self.cluster.is_namespaced(object).await {
                Ok(is_namespaced) => is_namespaced,
                Err(RemoteError::UnknownKind { .. }) => plan::brings_namespaced(&object["kind"], &objects),
                Err(error) => return Err(error.into()),
            };
            if is_namespaced {
                objects[at]["metadata"]["namespace"] = self.target.namespace.as_str().into();
            }
        }
        Ok(objects)
    }

    /// Nothing is applied if something of it belongs to another deployment: two would take it from each other, and one would delete it.
    async fn refuse_those_of_others(&self, objects: &[Value]) -> Result<(), DeployError> {
        for object in objects.iter().filter(|object| object["kind"] != "Namespace") {
            let path = match self.cluster.path(object).await {
                Ok(path) => path,
                // Its kind comes with its CRD, so none of it is there yet.
                Err(RemoteError::UnknownKind { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let found = self.cluster.get(&path).await?.unwrap_or_default();
            let Ownership::Another { namespace, name } = ownership::of(&found, &self.target) else { continue };
            // A deployment without a list is gone: its namespace was deleted, or it left its CRDs.
            let other = DeployTarget { name: name.clone(), namespace: namespace.clone(), image: String::new() };
            if !Inventory::read(&self.cluster, &other).await?.is_empty() {
                return Err(DeployError::OfAnother { object: called(object), namespace, name });
            }
        }
        Ok(())
    }

    /// A namespace that this deployment did not make is left as it is: its labels are for everything in it, and it is not ours to delete.
    async fn leave_out_namespaces(&mut self, objects: &mut Vec<Value>) -> Result<(), DeployError> {
        let mut left_out = Vec::new();
        for namespace in objects.iter().filter(|object| object["kind"] == "Namespace") {
            let found = self.cluster.get(&self.cluster.path(namespace).await?).await?;
            if found.is_some_and(|found| ownership::of(&found, &self.target) != Ownership::Ours) {
                left_out.push(namespace.clone());
            }
        }
        objects.retain(|object| !left_out.contains(object));
        for namespace in left_out {
            self.changed(called(&namespace), "left as it is: this deployment did not make it");
        }
        Ok(())
    }

    async fn apply(&mut self, object: &Value, all: &[Value]) -> Result<(), DeployError> {
        // The operator decides what its CRDs look like, whoever changed them.
        let force = self.args.force_conflicts || object["kind"] == "CustomResourceDefinition";
        let options = ApplyOptions { manager: MANAGER, force, dry_run: self.args.dry_run };
        let word = match self.cluster.apply(object, options).await {
            Ok(change) => change.word(),
            // A dry run makes neither the namespace nor the kinds that this object needs.
            Err(error) if self.args.dry_run && plan::needs_another(&error, object, all) => {
                "created (not checked, because it needs an object that a dry run does not make)"
            }
            Err(error) => return Err(error.into()),
        };
        self.changed(called(object), word);
        Ok(())
    }

    /// Waits until the Pods of a Deployment or StatefulSet are new and available.
    async fn wait_for(&self, deployment: &Value) -> Result<(), DeployError> {
        let path = self.cluster.path(deployment).await?;
        let within = Duration::from_secs(self.args.timeout);
        let progress = |words: &str| self.say(&format!("waiting for {}: {words}", called(deployment)));
        rollout::wait(&self.cluster, &path, within, progress).await
    }

    /// Deletes what an earlier deploy made and this one does not have. Returns what has to stay.
    async fn prune(&mut self, before: &Inventory, now: &Inventory) -> Result<Inventory, DeployError> {
        let mut kept = Inventory::default();
        for object in before.without(now) {
            let path = match self.cluster.path(&object).await {
                Ok(path) => path,
                // Its kind is gone, and so is it.
                Err(RemoteError::UnknownKind { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(found) = self.cluster.get(&path).await? else { continue };
            // Somebody else has taken it over.
            if ownership::of(&found, &self.target) != Ownership::Ours {
                continue;
            }
            let name = called(&object);
            if object["kind"] == "Namespace" {
                self.changed(name, "kept: a namespace is deleted only by `konverge undeploy`");
                kept = kept.and(&Inventory::of(&[object]));
                continue;
            }
            if object["kind"] == "CustomResourceDefinition" && !self.args.dry_run {
                let definitions = install::present(&self.cluster, &[text(&object["metadata"]["name"])]).await?;
                if !install::may_delete(&definitions, self.args.yes).unwrap_or(false) {
                    self.changed(name, "kept: it has objects, or may have some; --yes deletes it with them");
                    kept = kept.and(&Inventory::of(&[object]));
                    continue;
                }
            }
            let mut word = "deleted: it is no part of the operator any more";
            if !self.args.dry_run {
                self.cluster.delete(&path).await?;
                // Until what it owns is gone, it is still there.
                if self.args.no_wait {
                    word = "is being deleted: it is no part of the operator any more";
                } else if !self.cluster.wait_gone(&path, Duration::from_secs(self.args.timeout)).await? {
                    word = "is being deleted, which takes longer than --timeout";
                }
            }
            self.changed(name, word);
        }
        Ok(kept)
    }

    fn changed(&mut self, object: String, word: &'static str) {
        if self.args.output == OutputFormat::Text {
            let dry_run = if self.args.dry_run { " (dry run)" } else { "" };
            println!("{object} {word}{dry_run}");
        }
        self.changes.push((object, word));
    }

    /// Progress, for people only.
    fn say(&self, words: &str) {
        if self.args.output == OutputFormat::Text {
            eprintln!("{words}");
        }
    }

    fn report(&self) {
        if self.args.output != OutputFormat::Text {
            let shown = |(object, change): &(String, &str)| json!({"object": object, "change": change});
            let objects: Vec<Value> = self.changes.iter().map(shown).collect();
            println!(
                "{:#}",
                json!({"cluster": self.cluster.url(), "namespace": self.target.namespace, "objects": objects})
            );
            return;
        }
        let count = |word: &str| self.changes.iter().filter(|(_, change)| change.starts_with(word)).count();
        eprintln!(
            "{} created, {} configured, {} unchanged, {} deleted",
            count("created"),
            count("configured"),
            count("unchanged"),
            count("deleted")
        );
    }
}
