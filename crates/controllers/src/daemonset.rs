//! The DaemonSet controller. In: a DaemonSet, the nodes, its pods and revisions. Out: pods created and deleted, and a status that
//! counts nodes. `plan` decides; this file reads caches and sends writes.

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

use crate::child_creator::{ChildCreator, Creation};
use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::controller_ref;
use crate::pods::{self, Pod, PodCreator, Pods};
use crate::revision_history::{self, POD_REVISION, Revision, RevisionHistory};
use crate::simulator::Node;

use kind::DaemonSet;
use plan::{Observed, Plan};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "daemonset-controller";

/// How long a failed pod is kept before it is replaced: at first, and at most if pods keep failing on a node.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(15 * 60);

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(Target::of::<apps::DaemonSet>());
    let pods = Pods::new(&ctx);
    controller.watch(pods::target(), controller_ref::trigger("Pod", "apps", "DaemonSet"));
    // A key without a namespace is a node: it wakes every DaemonSet.
    let changed = Predicate::spec_changed().or(Predicate::labels_changed());
    let wakes = Trigger::mapped("Node", |node| vec![ObjectKey::new(None, node.name())]).when(changed);
    let nodes = controller.watch(Target::of::<core::Node>(), wakes);
    let this = Arc::new(DaemonSets {
        creator: ChildCreator::new(&ctx, ApiResource::erase::<apps::DaemonSet>(&()), controller.primary().clone()),
        sets: CacheOf::new(controller.primary().clone()),
        nodes: CacheOf::new(nodes),
        pods,
        history: RevisionHistory::new::<apps::DaemonSet>(&ctx, &controller, POD_REVISION),
        api: ApiResource::erase::<apps::DaemonSet>(&()),
        pods_api: pods::api(),
        failures: Mutex::default(),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

/// By node: when a failed pod was last deleted, and the backoff after that.
type Failures = HashMap<String, (Timestamp, Duration)>;

struct DaemonSets {
    ctx: ControllerContext,
    creator: ChildCreator,
    sets: CacheOf<DaemonSet>,
    nodes: CacheOf<Node>,
    pods: Pods,
    history: RevisionHistory,
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
        if let Some(namespace) = controller_ref::orphans_namespace(&run.key) {
            self.offer_orphans(namespace);
            return Ok(Action::Wait);
        }
        let Some(set) = self.sets.get(&run.key)? else {
            self.failures.lock().remove(&run.key);
            return Ok(Action::Wait);
        };
        // A set that is being deleted is left alone: the garbage collector deletes or orphans its pods.
        if set.metadata.is_terminating() {
            return Ok(Action::Wait);
        }
        let selector = LabelSelector::from_object(&set.spec.selector).map_err(Error::permanent)?;
        let subject = Arc::new(set.metadata.subject(&self.api));
        if selector.is_everything() {
            let why = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.ctx.warning(&subject, "SelectingAll", why);
            return Ok(Action::Wait);
        }
        self.creator.check(&set.metadata, &selector, &set.spec.template, &subject)?;
        let mut revisions = self.history.of(&set.metadata, &selector).await?;
        let pods = self.claimed(&set, &selector).await?;
        let collisions = set.status.collision_count.unwrap_or_default();
        let template = &set.spec.template;
        let present = self.history.present(&set.metadata, template, &mut revisions, collisions).await?;
        let Some((present, collisions)) = present else { return Ok(Action::Wait) };
        let hash = present.metadata.labels.get(POD_REVISION).unwrap_or(&present.metadata.name);

        let plan = self.observe(&set, &pods, hash, plan::plan);
        let pod_creator = PodCreator {
            ctx: &self.ctx,
            creator: &self.creator,
            owner: &set.metadata,
            selector: &selector,
            subject: &subject,
        };
        let done = self.carry_out(&set, &plan, hash, pod_creator).await;
        // The cache already knows what was just created and deleted.
        let pods = controller_ref::sort(&set.metadata, &selector, self.pods.managed_by(&set.metadata.uid)).owned;
        let collisions = (collisions > 0).then_some(collisions);
        let status = self.observe(&set, &pods, hash, |observed| plan::status(observed, collisions));
        self.ctx.write_status(&self.api, &set.metadata, &set.status, &status).await?;
        done?;
        self.forget(&set, &present, &revisions, &pods).await?;
        Ok(plan.requeue_after.map_or(Action::Wait, Action::Requeue))
    }

    /// Calls the planner with what it reads.
    fn observe<T>(
        &self,
        set: &DaemonSet,
        pods: &[Arc<Pod>],
        hash: &str,
        planner: impl FnOnce(&Observed<'_>) -> T,
    ) -> T {
        let nodes = self.nodes.list(None, &LabelSelector::default());
        let nodes: Vec<Arc<Node>> = nodes.into_iter().flatten().collect();
        let now = self.ctx.now();
        let failures = self.failures.lock().get(&set.metadata.key()).cloned().unwrap_or_default();
        let failure_backoff = |node: &str| {
            let Some((when, wait)) = failures.get(node) else { return Duration::ZERO };
            let wait = SignedDuration::try_from(*wait).unwrap_or(SignedDuration::MAX);
            Duration::try_from(wait - now.duration_since(*when)).unwrap_or_default()
        };
        planner(&Observed { set, nodes: &nodes, pods, hash, failure_backoff: &failure_backoff, now })
    }

    async fn carry_out(&self, set: &DaemonSet, plan: &Plan, hash: &str, pod_creator: PodCreator<'_>) -> Result<()> {
        let subject = pod_creator.subject;
        for (pod, node) in &plan.ended {
            let name = pod.metadata.key();
            match pod.status.phase.as_str() {
                "Failed" => {
                    let message = format!("Found failed daemon pod {name} on node {node}, will try to kill it");
                    self.ctx.warning(subject, "FailedDaemonPod", message);
                    self.failed(&set.metadata.key(), node);
                }
                _ => {
                    let message = format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
                    self.ctx.event(subject, "SucceededDaemonPod", message);
                }
            }
        }
        let reference = set.metadata.as_controller(&self.api);
        let create = |node: &String| {
            let template = &set.spec.template;
            let pod = placement::pod(template, hash, &set.metadata, &reference, node, self.ctx.random());
            async move { pod_creator.create(&pod).await }
        };
        // The first pod alone, because a quota or an admission webhook that refuses one refuses all.
        if let Some((first, rest)) = plan.create.split_first()
            && (set.status.observed_generation == 0 || self.creator.owner_exists(&set.metadata).await?)
            && matches!(create(first).await?, Creation::Created(_))
        {
            self.ctx.in_parallel(rest.iter().map(create)).await.into_iter().collect::<Result<Vec<Creation>>>()?;
        }
        let deletes = plan.delete.iter().map(|pod| pods::delete(&self.ctx, &pod.metadata, subject));
        self.ctx.in_parallel(deletes).await.into_iter().collect()
    }

    /// Records that a pod failed on a node, which doubles the backoff of the next failure there.
    fn failed(&self, set: &ObjectKey, node: &str) {
        let mut failures = self.failures.lock();
        let nodes = failures.entry(set.clone()).or_default();
        let wait = match nodes.get(node) {
            Some((_, wait)) => (*wait * 2).min(MAX_BACKOFF),
            None => FIRST_BACKOFF,
        };
        nodes.insert(node.to_owned(), (self.ctx.now(), wait));
    }

    /// Deletes revisions beyond the history limit that no pod has.
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
        let many = old.saturating_sub(revision_history::limit(set.spec.revision_history_limit));
        self.history.forget(&revision_history::surplus(revisions, is_needed, many)).await
    }

    /// The pods of a DaemonSet, after it has adopted matching orphans and released those that do not match any more.
    async fn claimed(&self, set: &DaemonSet, selector: &LabelSelector) -> Result<Vec<Arc<Pod>>> {
        let candidates = self.pods.decoded(&controller_ref::candidates(self.pods.cache(), &set.metadata));
        let sorted = controller_ref::sort(&set.metadata, selector, candidates);
        controller_ref::claim(&self.ctx, &self.api, &set.metadata, &self.pods_api, sorted).await
    }

    /// Wakes every DaemonSet: each may have to create or delete a pod on this node.
    fn node_changed(&self, node: &ObjectKey) {
        for set in self.sets.cache().list(None, &LabelSelector::default()) {
            let resource_version = String::new();
            let cause = Cause { kind: "Node".into(), key: node.clone(), what: What::Resync, resource_version };
            self.controller.wake(&set.key(), cause);
        }
    }

    /// Wakes the DaemonSets whose selector matches orphaned pods or revisions.
    fn offer_orphans(&self, namespace: &str) {
        let sets = self.sets.list(Some(namespace), &LabelSelector::default());
        let sets: Vec<Arc<DaemonSet>> = sets.into_iter().flatten().collect();
        let orphans = self.pods.decoded(&controller_ref::orphans(self.pods.cache(), namespace));
        for set in &sets {
            controller_ref::offer(&self.controller, &set.metadata, &set.spec.selector, "Pod", &orphans);
        }
        let owners = sets.iter().map(|set| (&set.metadata, &set.spec.selector));
        self.history.offer_orphans(&self.controller, namespace, owners);
    }
}
