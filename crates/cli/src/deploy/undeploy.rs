//! `konverge undeploy`: takes an operator out of a cluster. In: the list that `konverge deploy` left there. Out: what was deleted. CRDs go first, while
//! the operator still runs: nobody else removes the finalizers of its objects. A namespace with objects of others, and CRDs with objects, are
//! deleted only if somebody says so; what cannot be listed counts as something to lose. What other deployments or people have taken over stays.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::inventory::{list_name, list_path};
use super::ownership::{self, Ownership};
use super::{DeployError, Inventory, MANAGER, plan};
use crate::confirm::{NobodyToAsk, confirm};
use crate::counted::counted;
use crate::description::{DeployTarget, ProjectArgs, here, text};
use crate::install::{self, InstallError};
use crate::manifests::called;
use crate::remote_cluster::{ClusterArgs, RemoteCluster, RemoteError, block_on};

/// Arguments of `konverge undeploy`.
#[derive(Debug, clap::Args)]
pub(crate) struct UndeployArgs {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Leave the CRDs and their objects
    #[arg(long, conflicts_with = "yes")]
    keep_crds: bool,
    /// Delete CRDs that have objects, and a namespace with objects of others, without asking
    #[arg(short, long)]
    yes: bool,
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// How many seconds to wait until each object is gone
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

/// Objects that come and go by themselves: they do not keep a namespace.
const PASSING: [&str; 5] =
    ["events", "events.events.k8s.io", "leases.coordination.k8s.io", "endpoints", "endpointslices.discovery.k8s.io"];

/// Objects that every namespace has.
const EVERYWHERE: [(&str, &str); 2] = [("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")];

/// `konverge undeploy`
pub(crate) fn undeploy(args: &UndeployArgs) -> ExitCode {
    block_on(async {
        let (_, _, target) = here(&args.project)?;
        let cluster = RemoteCluster::connect(&args.cluster).await?;
        let within = Duration::from_secs(args.timeout);
        Undeploying { args, target, cluster, within, kept: Inventory::default() }.run().await?;
        Ok::<_, DeployError>(ExitCode::SUCCESS)
    })
}

struct Undeploying<'a> {
    args: &'a UndeployArgs,
    target: DeployTarget,
    cluster: RemoteCluster,
    within: Duration,
    /// What stays of the deployment.
    kept: Inventory,
}

impl Undeploying<'_> {
    async fn run(&mut self) -> Result<(), DeployError> {
        let inventory = Inventory::read(&self.cluster, &self.target).await?;
        if inventory.is_empty() {
            let DeployTarget { name, namespace, .. } = self.target.clone();
            return Err(DeployError::NotDeployed { name, namespace });
        }
        let mut objects = plan::in_order(inventory.objects(), &self.target);
        objects.reverse();
        let (definitions, objects): (Vec<Value>, Vec<Value>) =
            objects.into_iter().partition(|object| object["kind"] == "CustomResourceDefinition");
        let (namespaces, others): (Vec<Value>, Vec<Value>) =
            objects.into_iter().partition(|object| object["kind"] == "Namespace");
        let deleted = self.remove_definitions(definitions).await?;
        for object in &others {
            if let Some(path) = self.ours(object).await? {
                self.remove(object, &path).await?;
            }
        }
        let mut home_is_gone = false;
        for namespace in namespaces {
            let gone = self.remove_namespace(&namespace, &others, &deleted).await?;
            home_is_gone |= gone && namespace["metadata"]["name"] == self.target.namespace.as_str();
        }
        match (self.args.dry_run || home_is_gone, self.kept.is_empty()) {
            (true, _) => {}
            (false, true) => drop(self.cluster.delete(&list_path(&self.target)).await?),
            // The next undeploy, or deploy, goes on from there.
            (false, false) => self.kept.write(&self.cluster, &self.target, MANAGER).await?,
        }
        Ok(())
    }

    /// The path of an object that is still a part of this deployment.
    async fn ours(&self, object: &Value) -> Result<Option<String>, DeployError> {
        let path = match self.cluster.path(object).await {
            Ok(path) => path,
            // Its kind is gone, and so is it.
            Err(RemoteError::UnknownKind { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(found) = self.cluster.get(&path).await? else { return Ok(None) };
        if ownership::of(&found, &self.target) != Ownership::Ours {
            self.say(&format!("{} kept: it is no part of this deployment any more", called(object)));
            return Ok(None);
        }
        Ok(Some(path))
    }

    /// Deletes the CRDs, and says which. An answer of no ends the command before anything is deleted.
    async fn remove_definitions(&mut self, objects: Vec<Value>) -> Result<BTreeSet<String>, DeployError> {
        let (mut ours, mut names) = (Vec::new(), Vec::new());
        for object in objects {
            if self.ours(&object).await?.is_some() {
                names.push(text(&object["metadata"]["name"]));
                ours.push(object);
            }
        }
        let definitions = install::present(&self.cluster, &names).await?;
        let ask = || if self.args.dry_run { Ok(true) } else { install::may_delete(&definitions, self.args.yes) };
        if !goes_on(self.args.keep_crds, ask)? {
            names.iter().for_each(|name| self.say(&format!("CustomResourceDefinition {name} kept")));
            self.kept = self.kept.and(&Inventory::of(&ours));
            return Ok(BTreeSet::new());
        }
        match self.args.dry_run {
            true => definitions.iter().for_each(|(name, objects)| self.say(&objects.deleted_with(name))),
            false => install::delete(&self.cluster, &definitions, self.within).await?,
        }
        Ok(names.into_iter().collect())
    }

    async fn remove(&mut self, object: &Value, path: &str) -> Result<(), DeployError> {
        let name = called(object);
        if self.args.dry_run {
            self.say(&format!("{name} deleted"));
            return Ok(());
        }
        self.cluster.delete(path).await?;
        if self.cluster.wait_gone(path, self.within).await? {
            self.say(&format!("{name} deleted"));
        } else {
            self.say(&format!("{name} is being deleted, which takes longer than {} s", self.args.timeout));
            self.kept = self.kept.and(&Inventory::of(std::slice::from_ref(object)));
        }
        Ok(())
    }

    /// Deletes a namespace that this deployment made; whether it is gone, or going. `objects` are those of the deployment, `definitions` the CRDs
    /// that are deleted.
    async fn remove_namespace(
        &mut self,
        object: &Value,
        objects: &[Value],
        definitions: &BTreeSet<String>,
    ) -> Result<bool, DeployError> {
        let Some(path) = self.ours(object).await? else { return Ok(false) };
        let namespace = text(&object["metadata"]["name"]);
        let others = self.others_in(&namespace, &certificates(&self.target, objects), definitions).await?;
        if let Some(others) = others.words() {
            let question = format!("the namespace {namespace} has {others}, which would be deleted with it");
            let ask = || if self.args.dry_run { Ok(self.args.yes) } else { confirm(&question, self.args.yes) };
            // Nobody to ask is no failure here: everything of the operator is gone.
            if !ask().unwrap_or(false) {
                self.say(&format!("Namespace {namespace} kept: it has {others}; --yes deletes it with them"));
                self.kept = self.kept.and(&Inventory::of(std::slice::from_ref(object)));
                return Ok(false);
            }
        }
        if self.args.dry_run {
            self.say(&format!("Namespace {namespace} deleted"));
            return Ok(true);
        }
        self.cluster.delete(&path).await?;
        match self.cluster.wait_gone(&path, self.within).await? {
            true => self.say(&format!("Namespace {namespace} deleted")),
            false => self.say(&format!(
                "Namespace {namespace} is being deleted, which takes longer than {} s",
                self.args.timeout
            )),
        }
        Ok(true)
    }

    /// What is in a namespace that neither the deployment nor the cluster itself made.
    async fn others_in(
        &self,
        namespace: &str,
        certificates: &[String],
        definitions: &BTreeSet<String>,
    ) -> Result<Others, DeployError> {
        let mut others = Others::default();
        let lists = match self.cluster.lists_in(namespace).await {
            Ok(lists) => lists,
            Err(error) => {
                others.unknown.push(error.to_string());
                return Ok(others);
            }
        };
        let mut found = Vec::new();
        for list in lists {
            let resource = resource_of(&list);
            if PASSING.contains(&resource.as_str()) || definitions.contains(&resource) {
                continue;
            }
            match self.cluster.list(&list, "").await {
                Ok(objects) => found.extend(objects.into_iter().map(|object| (resource.clone(), object))),
                // Its kind went away after it was listed as one.
                Err(error) if error.code() == 404 => {}
                Err(error) => others.unknown.push(format!("{resource}: {error}")),
            }
        }
        others.objects = not_ours(&found, &self.target, certificates);
        Ok(others)
    }

    fn say(&self, words: &str) {
        println!("{words}{}", if self.args.dry_run { " (dry run)" } else { "" });
    }
}

/// Whether CRDs are deleted. A no is no wish for half of it: the operator without its CRDs is what `--keep-crds` is for.
fn goes_on(keep: bool, ask: impl FnOnce() -> Result<bool, NobodyToAsk>) -> Result<bool, DeployError> {
    if keep {
        return Ok(false);
    }
    if ask()? { Ok(true) } else { Err(InstallError::Declined.into()) }
}

/// What would be lost with a namespace.
#[derive(Debug, Default)]
struct Others {
    objects: Vec<String>,
    /// Which kinds cannot be listed, and why.
    unknown: Vec<String>,
}

impl Others {
    fn words(&self) -> Option<String> {
        let unknown = |list: &[String]| format!("objects that cannot be listed ({})", list.join(", "));
        let objects = |list: &[String]| format!("{} of others ({})", counted(list.len(), "object"), shown(list));
        match (self.objects.as_slice(), self.unknown.as_slice()) {
            ([], []) => None,
            (others, []) => Some(objects(others)),
            ([], list) => Some(format!("maybe {}", unknown(list))),
            (others, list) => Some(format!("{}, and maybe {}", objects(others), unknown(list))),
        }
    }
}

fn shown(others: &[String]) -> String {
    match others {
        [first, second, third, _, ..] => format!("{first}, {second}, {third}, …"),
        few => few.join(", "),
    }
}

/// The Secrets in which the operator keeps the certificates of its webhooks: one for each Service.
fn certificates(target: &DeployTarget, objects: &[Value]) -> Vec<String> {
    let services = objects.iter().filter(|object| object["kind"] == "Service");
    let services = services.map(|service| text(&service["metadata"]["name"]));
    services.chain([format!("{}-webhook", target.name)]).map(|service| format!("{service}-cert")).collect()
}

/// `leases.coordination.k8s.io`, by the path of its list in a namespace.
fn resource_of(list: &str) -> String {
    let parts: Vec<&str> = list.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["apis", group, .., plural] => format!("{plural}.{group}"),
        [.., plural] => (*plural).to_owned(),
        [] => String::new(),
    }
}

/// Those of all objects in a namespace, each with its resource, that neither the deployment nor the cluster itself made.
fn not_ours(found: &[(String, Value)], target: &DeployTarget, certificates: &[String]) -> Vec<String> {
    let uids: BTreeSet<&str> = found.iter().filter_map(|(_, object)| object["metadata"]["uid"].as_str()).collect();
    let is_other = |(resource, object): &&(String, Value)| {
        let metadata = &object["metadata"];
        let name = text(&metadata["name"]);
        let is_ours = ownership::of(object, target) == Ownership::Ours
            || (resource == "configmaps" && name == list_name(target))
            || (resource == "secrets" && certificates.contains(&name));
        // What has an owner here goes with it, and the owner is looked at, too.
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let is_owned = owners.filter_map(|owner| owner["uid"].as_str()).any(|uid| uids.contains(uid));
        let goes = is_owned || metadata["deletionTimestamp"].is_string();
        !is_ours && !goes && !EVERYWHERE.contains(&(resource.as_str(), name.as_str()))
    };
    let others = found.iter().filter(is_other);
    others.map(|(resource, object)| format!("{resource}/{}", text(&object["metadata"]["name"]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn target() -> DeployTarget {
        DeployTarget { name: "shop".into(), namespace: "shop-system".into(), image: String::new() }
    }

    #[test]
    fn a_no_ends_the_command() {
        let nobody = || Err(NobodyToAsk("x".into()));
        let check = |keep, answer: Result<bool, NobodyToAsk>, expect: &str| {
            let found = goes_on(keep, || answer).map_or_else(|error| error.to_string(), |deletes| deletes.to_string());
            assert!(found.starts_with(expect), "{found}");
        };
        check(false, Ok(true), "true");
        check(false, Ok(false), "nothing was deleted");
        check(false, nobody(), "x, and nobody can be asked");
        check(true, nobody(), "false");
    }

    #[test]
    fn whose_objects_keep_a_namespace() {
        let check = |resource: &str, object: Value, expect: bool| {
            let owner = ("deployments.apps".to_owned(), json!({"metadata": {"name": "web", "uid": "inside"}}));
            let found = [(resource.to_owned(), object), owner];
            let certificates = certificates(&target(), &[json!({"kind": "Service", "metadata": {"name": "hook"}})]);
            let others = not_ours(&found, &target(), &certificates);
            assert_eq!(others.len() == 2, expect, "{others:?}");
        };
        let named = |name: &str| json!({"metadata": {"name": name}});
        check("serviceaccounts", named("default"), false);
        check("configmaps", named("kube-root-ca.crt"), false);
        check("configmaps", named("konverge-deploy-shop"), false);
        check("secrets", named("hook-cert"), false);
        check("secrets", named("shop-webhook-cert"), false);
        // The same names, but of other kinds.
        check("configmaps", named("default"), true);
        check("secrets", named("kube-root-ca.crt"), true);
        check("secrets", named("konverge-deploy-shop"), true);
        check("secrets", named("till-webhook-cert"), true);
        let owned = |uid: &str| json!({"metadata": {"name": "a", "ownerReferences": [{"uid": uid}]}});
        check("pods", owned("inside"), false);
        // An owner in no namespace stays, and so would this.
        check("configmaps", owned("outside"), true);
        let mut ours = named("a");
        ownership::mark(&mut ours, &target());
        check("configmaps", ours.clone(), false);
        ownership::mark(&mut ours, &DeployTarget { namespace: "other".into(), ..target() });
        check("configmaps", ours, true);
    }

    #[test]
    fn what_cannot_be_listed_is_asked_for() {
        let check = |objects: &[&str], unknown: &[&str], expect: Option<&str>| {
            let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let others = Others { objects: texts(objects), unknown: texts(unknown) };
            assert_eq!(others.words().as_deref(), expect);
        };
        check(&[], &[], None);
        check(&["pods/a"], &[], Some("1 object of others (pods/a)"));
        check(&[], &["secrets: no"], Some("maybe objects that cannot be listed (secrets: no)"));
        check(
            &["a", "b", "c", "d"],
            &["secrets: no"],
            Some("4 objects of others (a, b, c, …), and maybe objects that cannot be listed (secrets: no)"),
        );
    }

    #[test]
    fn resources_have_groups() {
        assert_eq!(resource_of("/api/v1/namespaces/a/events"), "events");
        assert_eq!(resource_of("/apis/coordination.k8s.io/v1/namespaces/a/leases"), "leases.coordination.k8s.io");
    }
}
