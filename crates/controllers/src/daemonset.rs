//! DaemonSets: one pod on each node that takes it. In: a DaemonSet, the nodes, its pods and revisions. Out: pods created and
//! deleted, and a status that counts nodes. `plan` decides; here is only who asks and who acts.

mod kind;
mod placement;
mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{apps::v1 as apps, core::v1 as core};
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Action, CacheOf, Cause, Controller, Error, Predicate, Result, Run, Target, Trigger, What};
use kube::core::ApiResource;
use parking_lot::Mutex;

use crate::adopt;
use crate::desk::Desk;
use crate::guard::Guard;
use crate::history::{self, History, POD_REVISION, Revision};
use crate::plane::{Plane, Task};
use crate::pods::{self, Created, Maker, Pod, Pods};
use crate::simulate::Node;

use kind::DaemonSet;
use plan::{Plan, Seen};

/// As kube-controller-manager calls it.
pub(crate) const NAME: &str = "daemonset-controller";

/// How long the next pod on a node where one failed has at least, and at most when it fails again and again.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
const LONGEST_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Starts the controller.
pub(crate) fn start(plane: &Plane) -> Task {
    let desk = plane.desk(NAME);
    let controller = desk.controller(Target::of::<apps::DaemonSet>());
    let pods = Pods::new(&desk);
    controller.watch(pods::target(), adopt::managed("Pod", "apps", "DaemonSet"));
    // What is not in a namespace is a node: it wakes every DaemonSet.
    let changed = Predicate::spec_changed().or(Predicate::labels_changed());
    let wakes = Trigger::mapped("Node", |node| vec![ObjectKey::new(None, node.name())]).when(changed);
    let nodes = controller.watch(Target::of::<core::Node>(), wakes);
    let this = Arc::new(DaemonSets {
        guard: Guard::new(&desk, ApiResource::erase::<apps::DaemonSet>(&()), controller.primary().clone()),
        sets: CacheOf::new(controller.primary().clone()),
        nodes: CacheOf::new(nodes),
        pods,
        history: History::new::<apps::DaemonSet>(&desk, &controller, POD_REVISION),
        api: ApiResource::erase::<apps::DaemonSet>(&()),
        pods_api: pods::api(),
        failures: Mutex::default(),
        controller: controller.clone(),
        desk: desk.clone(),
    });
    desk.work(controller, move |run| this.clone().reconcile(run))
}

/// By node: when a pod was last deleted because it failed, and how long the next one has.
type Failures = HashMap<String, (Timestamp, Duration)>;

struct DaemonSets {
    desk: Desk,
    guard: Guard,
    sets: CacheOf<DaemonSet>,
    nodes: CacheOf<Node>,
    pods: Pods,
    history: History,
    api: ApiResource,
    pods_api: ApiResource,
    failures: Mutex<HashMap<ObjectKey, Failures>>,
    controller: Arc<Controller>,
}

impl DaemonSets {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if run.key.namespace().is_none() {
            self.node_changed(&run.key);
            return Ok(Action::Wait);
        }
        if let Some(namespace) = adopt::strays_of(&run.key) {
            self.offer_strays(namespace);
            return Ok(Action::Wait);
        }
        let Some(set) = self.sets.get(&run.key)? else {
            self.failures.lock().remove(&run.key);
            return Ok(Action::Wait);
        };
        // What goes takes its pods with it, or leaves them to others.
        if set.metadata.is_terminating() {
            return Ok(Action::Wait);
        }
        let selector = LabelSelector::from_object(&set.spec.selector).map_err(Error::permanent)?;
        let subject = Arc::new(set.metadata.subject(&self.api));
        if selector.is_everything() {
            let why = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.desk.warning(&subject, "SelectingAll", why);
            return Ok(Action::Wait);
        }
        self.guard.check(&set.metadata, &selector, &set.spec.template, &subject)?;
        let mut revisions = self.history.of(&set.metadata, &selector).await?;
        let pods = self.claimed(&set, &selector).await?;
        let collisions = set.status.collision_count.unwrap_or_default();
        let template = &set.spec.template;
        let present = self.history.present(&set.metadata, template, &mut revisions, collisions).await?;
        let Some((present, collisions)) = present else { return Ok(Action::Wait) };
        let hash = present.metadata.labels.get(POD_REVISION).unwrap_or(&present.metadata.name);

        let plan = self.seen(&set, &pods, hash, plan::plan);
        let maker = Maker {
            desk: &self.desk,
            guard: &self.guard,
            owner: &set.metadata,
            selector: &selector,
            subject: &subject,
        };
        let done = self.carry_out(&set, &plan, hash, maker).await;
        // What was just created and deleted counts: the cache knows.
        let pods = adopt::claim(&set.metadata, &selector, self.pods.managed_by(&set.metadata.uid)).mine;
        let collisions = (collisions > 0).then_some(collisions);
        let status = self.seen(&set, &pods, hash, |seen| plan::status(seen, collisions));
        self.desk.write_status(&self.api, &set.metadata, &set.status, &status).await?;
        done?;
        self.forget(&set, &present, &revisions, &pods).await?;
        Ok(plan.again.map_or(Action::Wait, Action::Requeue))
    }

    /// Looks at what there is.
    fn seen<T>(&self, set: &DaemonSet, pods: &[Arc<Pod>], hash: &str, look: impl FnOnce(&Seen<'_>) -> T) -> T {
        let nodes = self.nodes.list(None, &LabelSelector::default());
        let nodes: Vec<Arc<Node>> = nodes.into_iter().flatten().collect();
        let now = self.desk.now();
        let failures = self.failures.lock().get(&set.metadata.key()).cloned().unwrap_or_default();
        let patience = |node: &str| {
            let Some((when, wait)) = failures.get(node) else { return Duration::ZERO };
            let wait = SignedDuration::try_from(*wait).unwrap_or(SignedDuration::MAX);
            Duration::try_from(wait - now.duration_since(*when)).unwrap_or_default()
        };
        look(&Seen { set, nodes: &nodes, pods, hash, patience: &patience, now })
    }

    async fn carry_out(&self, set: &DaemonSet, plan: &Plan, hash: &str, maker: Maker<'_>) -> Result<()> {
        let subject = maker.subject;
        for (pod, node) in &plan.ended {
            let name = pod.metadata.key();
            match pod.status.phase.as_str() {
                "Failed" => {
                    let message = format!("Found failed daemon pod {name} on node {node}, will try to kill it");
                    self.desk.warning(subject, "FailedDaemonPod", message);
                    self.failed(&set.metadata.key(), node);
                }
                _ => {
                    let message = format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
                    self.desk.event(subject, "SucceededDaemonPod", message);
                }
            }
        }
        let reference = set.metadata.as_controller(&self.api);
        let create = |node: &String| {
            let template = &set.spec.template;
            let pod = placement::pod(template, hash, &set.metadata, &reference, node, self.desk.random());
            async move { maker.create(&pod).await }
        };
        // The first alone, because what refuses one refuses all.
        if let Some((first, rest)) = plan.create.split_first()
            && (set.status.observed_generation == 0 || self.guard.is_wanted(&set.metadata).await?)
            && create(first).await? == Created::Yes
        {
            self.desk.together(rest.iter().map(create)).await.into_iter().collect::<Result<Vec<Created>>>()?;
        }
        let deletes = plan.delete.iter().map(|pod| pods::delete(&self.desk, &pod.metadata, subject));
        self.desk.together(deletes).await.into_iter().collect()
    }

    /// A pod failed on a node: the next one that fails there stays a while.
    fn failed(&self, set: &ObjectKey, node: &str) {
        let mut failures = self.failures.lock();
        let nodes = failures.entry(set.clone()).or_default();
        let wait = match nodes.get(node) {
            Some((_, wait)) => (*wait * 2).min(LONGEST_PATIENCE),
            None => FIRST_PATIENCE,
        };
        nodes.insert(node.to_owned(), (self.desk.now(), wait));
    }

    /// Deletes revisions beyond the limit that no pod is of.
    async fn forget(
        &self,
        set: &DaemonSet,
        present: &Revision,
        revisions: &[Arc<Revision>],
        pods: &[Arc<Pod>],
    ) -> Result<()> {
        let is_needed = |revision: &Revision| {
            let hash = revision.metadata.labels.get(POD_REVISION);
            revision.metadata.uid == present.metadata.uid || pods.iter().any(|pod| plan::hash(pod) == hash)
        };
        let old = revisions.len().saturating_sub(1);
        let many = old.saturating_sub(history::limit(set.spec.revision_history_limit));
        self.history.forget(&history::surplus(revisions, is_needed, many)).await
    }

    /// The pods of a DaemonSet, after it took those nobody had and let those go that it no longer selects.
    async fn claimed(&self, set: &DaemonSet, selector: &LabelSelector) -> Result<Vec<Arc<Pod>>> {
        let candidates = self.pods.decoded(&adopt::candidates(self.pods.cache(), &set.metadata));
        let claim = adopt::claim(&set.metadata, selector, candidates);
        adopt::take(&self.desk, &self.api, &set.metadata, &self.pods_api, claim).await
    }

    /// Wakes every DaemonSet: each may want a pod on a node, or not any more.
    fn node_changed(&self, node: &ObjectKey) {
        for set in self.sets.cache().list(None, &LabelSelector::default()) {
            let resource_version = String::new();
            let cause = Cause { kind: "Node".into(), key: node.clone(), what: What::Resync, resource_version };
            self.controller.wake(&set.key(), cause);
        }
    }

    /// Wakes the DaemonSets that may want pods or revisions which nobody manages.
    fn offer_strays(&self, namespace: &str) {
        let sets = self.sets.list(Some(namespace), &LabelSelector::default());
        let sets: Vec<Arc<DaemonSet>> = sets.into_iter().flatten().collect();
        let strays = self.pods.decoded(&adopt::unmanaged(self.pods.cache(), namespace));
        for set in &sets {
            adopt::offer(&self.controller, &set.metadata, &set.spec.selector, "Pod", &strays);
        }
        let owners = sets.iter().map(|set| (&set.metadata, &set.spec.selector));
        self.history.offer_strays(&self.controller, namespace, owners);
    }
}
