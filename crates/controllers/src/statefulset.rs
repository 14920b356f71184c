//! The StatefulSet controller. In: a StatefulSet, its pods, claims and revisions. Out: pods and claims created and deleted, and
//! a status that counts them. `plan` decides; this file reads caches and sends writes.

mod identity;
mod kind;
mod plan;

use std::sync::Arc;

use k8s_openapi::api::apps::v1 as apps;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{
    Action, CacheOf, Controller, Error, Missing, Patch, Result, Run, Subject, Target, Trigger, WriteError,
};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::child_creator::{ChildCreator, Creation};
use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::controller_ref;
use crate::meta::pointer_step;
use crate::persistent_volume_claims::{self, Claim};
use crate::pods::{self, Pod, Pods};
use crate::requests::DeleteOptions;
use crate::revision_history::{self, Revision, RevisionHistory};

use identity::POD_NAME;
use kind::StatefulSet;
use plan::{Observed, PodAction, RevisionKind};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "statefulset-controller";

/// The label of a revision with its hash.
const REVISION_HASH: &str = "controller.kubernetes.io/hash";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(Target::of::<apps::StatefulSet>());
    let pods = Pods::new(&ctx);
    controller.watch(pods::target(), controller_ref::trigger("Pod", "apps", "StatefulSet"));
    // Claims are only read when a pod needs them, so their changes wake nothing.
    let claims =
        controller.watch(persistent_volume_claims::target(), Trigger::mapped("PersistentVolumeClaim", |_| Vec::new()));
    let this = Arc::new(StatefulSets {
        creator: ChildCreator::new(&ctx, ApiResource::erase::<apps::StatefulSet>(&()), controller.primary().clone()),
        sets: CacheOf::new(controller.primary().clone()),
        pods,
        claims: CacheOf::new(claims),
        history: RevisionHistory::new::<apps::StatefulSet>(&ctx, &controller, REVISION_HASH),
        api: ApiResource::erase::<apps::StatefulSet>(&()),
        pods_api: pods::api(),
        claims_api: persistent_volume_claims::api(),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct StatefulSets {
    ctx: ControllerContext,
    creator: ChildCreator,
    sets: CacheOf<StatefulSet>,
    pods: Pods,
    claims: CacheOf<Claim>,
    history: RevisionHistory,
    api: ApiResource,
    pods_api: ApiResource,
    claims_api: ApiResource,
    controller: Arc<Controller>,
}

/// A StatefulSet that is being reconciled, and its revisions.
struct Reconciled<'a> {
    set: &'a StatefulSet,
    current: &'a Revision,
    update: &'a Revision,
    reference: Value,
    selector: &'a LabelSelector,
    subject: Arc<Subject>,
}

impl StatefulSets {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if let Some(namespace) = controller_ref::orphans_namespace(&run.key) {
            self.offer_orphans(namespace);
            return Ok(Action::Wait);
        }
        let Some(set) = self.sets.get(&run.key)? else { return Ok(Action::Wait) };
        // A set that is being deleted is left alone: the garbage collector deletes or orphans its pods.
        if set.metadata.is_terminating() {
            return Ok(Action::Wait);
        }
        let selector = LabelSelector::from_object(&set.spec.selector).map_err(Error::permanent)?;
        let subject = Arc::new(set.metadata.subject(&self.api));
        self.creator.check(&set.metadata, &selector, &set.spec.template, &subject)?;
        let mut revisions = self.history.of(&set.metadata, &selector).await?;
        let pods = self.claimed(&set, &selector).await?;
        let collisions = set.status.collision_count;
        let template = &set.spec.template;
        let present = self.history.present(&set.metadata, template, &mut revisions, collisions).await?;
        let Some((update, collisions)) = present else { return Ok(Action::Wait) };
        let current = revisions.iter().find(|revision| revision.metadata.name == set.status.current_revision);
        let current = current.unwrap_or(&update).clone();
        let reconciled = Reconciled {
            set: &set,
            current: &current,
            update: &update,
            reference: set.metadata.as_controller(&self.api),
            selector: &selector,
            subject,
        };
        let plan = self.observe(&reconciled, &pods, plan::plan);
        let creates = plan
            .tasks
            .iter()
            .flat_map(|task| &task.actions)
            .any(|action| matches!(action, PodAction::CreatePod { .. }));
        if creates && set.status.observed_generation > 0 && !self.creator.owner_exists(&set.metadata).await? {
            return Ok(Action::Wait);
        }
        let done = self.ctx.in_parallel(plan.tasks.iter().map(|task| self.carry_out(&reconciled, task))).await;
        let done: Result<Vec<()>> = done.into_iter().collect();
        // The cache already knows what was just created and deleted.
        let pods = controller_ref::sort(&set.metadata, &selector, self.pods.managed_by(&set.metadata.uid)).owned;
        let status = self.observe(&reconciled, &pods, |observed| plan::status(observed, collisions));
        self.ctx.write_status(&self.api, &set.metadata, &set.status, &status).await?;
        done?;
        self.forget(&reconciled, &revisions, &pods).await?;
        Ok(plan.requeue_after.map_or(Action::Wait, Action::Requeue))
    }

    /// Calls the planner with what it reads.
    fn observe<T>(
        &self,
        reconciled: &Reconciled<'_>,
        pods: &[Arc<Pod>],
        planner: impl FnOnce(&Observed<'_>) -> T,
    ) -> T {
        let claim = |name: &str| {
            let key = ObjectKey::new(Some(&reconciled.set.metadata.namespace), name);
            self.claims.get(&key).ok().flatten()
        };
        planner(&Observed {
            set: reconciled.set,
            pods,
            current: &reconciled.current.metadata.name,
            update: &reconciled.update.metadata.name,
            claim: &claim,
            reference: &reconciled.reference,
            pod_reference: &|pod| pod.metadata.as_controller(&self.pods_api),
            now: self.ctx.now(),
        })
    }

    /// Carries out the actions for one pod, in order.
    async fn carry_out(&self, reconciled: &Reconciled<'_>, task: &plan::Task) -> Result<()> {
        for action in &task.actions {
            self.carry_out_action(reconciled, &task.pod, action).await?;
        }
        Ok(())
    }

    async fn carry_out_action(&self, reconciled: &Reconciled<'_>, pod: &str, action: &PodAction) -> Result<()> {
        match action {
            PodAction::CreateClaim(claim) => self.create_claim(reconciled, pod, claim).await,
            PodAction::CreatePod { ordinal, revision } => {
                let revision = if *revision == RevisionKind::Current { reconciled.current } else { reconciled.update };
                let name = &revision.metadata.name;
                let object = identity::pod(reconciled.set, &revision.template(), name, &reconciled.reference, *ordinal);
                match self.creator.create(&reconciled.set.metadata, reconciled.selector, &self.pods_api, &object).await
                {
                    // Another pod has the name and may be about to be deleted, so this is tried again.
                    Err(error) if matches!(error.find(), Some(WriteError::Exists { .. })) => Err(error),
                    Ok(Creation::NotNeeded) => Ok(()),
                    created => self.record(reconciled, "Create", pod, created),
                }
            }
            PodAction::DeletePod(deleted) => {
                let options = DeleteOptions { uid: &deleted.metadata.uid, ..DeleteOptions::default() };
                let result = self.ctx.delete(&self.pods_api, &deleted.metadata.key(), &options).await;
                self.record(reconciled, "Delete", pod, result)
            }
            PodAction::LabelPod(unlabelled) => {
                let meta = &unlabelled.metadata;
                let path = format!("/metadata/labels/{}", pointer_step(POD_NAME));
                let patch = json!([meta.uid_test(), {"op": "add", "path": path, "value": pod}]);
                let patched = self.ctx.patch(&self.pods_api, &meta.key(), "", Patch::Json(patch)).await;
                self.record(reconciled, "Update", pod, patched)
            }
            PodAction::SetClaimOwner { claim, patch } => {
                let key = claim.metadata.key();
                match self.ctx.patch(&self.claims_api, &key, "", Patch::Json(patch.clone())).await {
                    Ok(_) | Err(WriteError::NotFound { missing: Missing::Object, .. }) => Ok(()),
                    Err(error) => self.record(reconciled, "Update", pod, Err::<(), _>(error)),
                }
            }
            PodAction::Fail(why) => self.record(reconciled, "Create", pod, Err::<(), _>(Error::new(why.clone()))),
        }
    }

    async fn create_claim(&self, reconciled: &Reconciled<'_>, pod: &str, claim: &Value) -> Result<()> {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        let set = &reconciled.set.metadata.name;
        match self.ctx.create(&self.claims_api, claim).await {
            Ok(_) => {
                let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                self.ctx.event(&reconciled.subject, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) if error.is_of_ending_namespace() => Ok(()),
            Err(error @ WriteError::Exists { .. }) => Err(error.into()),
            Err(error) => {
                let message = format!("Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {error}");
                self.ctx.warning(&reconciled.subject, "FailedCreate", message);
                Err(error.into())
            }
        }
    }

    /// Records an event about what happened to a pod.
    fn record<T, E: Into<Error>>(
        &self,
        reconciled: &Reconciled<'_>,
        verb: &str,
        pod: &str,
        result: Result<T, E>,
    ) -> Result<()> {
        let set = &reconciled.set.metadata.name;
        match result.map_err(Into::into) {
            Ok(_) => {
                let message = format!("{verb} Pod {pod} in StatefulSet {set} successful");
                self.ctx.event(&reconciled.subject, &format!("Successful{verb}"), message);
                Ok(())
            }
            Err(error) => {
                let message = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {error}");
                self.ctx.warning(&reconciled.subject, &format!("Failed{verb}"), message);
                Err(error)
            }
        }
    }

    /// Deletes revisions beyond the history limit that no pod has.
    async fn forget(&self, reconciled: &Reconciled<'_>, revisions: &[Arc<Revision>], pods: &[Arc<Pod>]) -> Result<()> {
        let is_needed = |revision: &Revision| {
            let name = &revision.metadata.name;
            [reconciled.current, reconciled.update].iter().any(|live| live.metadata.name == *name)
                || pods.iter().any(|pod| plan::revision(pod) == name)
        };
        let old = revisions.iter().filter(|revision| !is_needed(revision)).count();
        let many = old.saturating_sub(revision_history::limit(reconciled.set.spec.revision_history_limit));
        self.history.forget(&revision_history::surplus(revisions, is_needed, many)).await
    }

    /// The pods of a StatefulSet, after it has adopted matching orphans and released those that do not match any more.
    async fn claimed(&self, set: &StatefulSet, selector: &LabelSelector) -> Result<Vec<Arc<Pod>>> {
        let mut candidates = self.pods.decoded(&controller_ref::candidates(self.pods.cache(), &set.metadata));
        candidates.retain(|pod| set.ordinal(&pod.metadata.name).is_some());
        let sorted = controller_ref::sort(&set.metadata, selector, candidates);
        controller_ref::claim(&self.ctx, &self.api, &set.metadata, &self.pods_api, sorted).await
    }

    /// Wakes the StatefulSets whose selector matches orphaned pods or revisions.
    fn offer_orphans(&self, namespace: &str) {
        let sets = self.sets.list(Some(namespace), &LabelSelector::default());
        let sets: Vec<Arc<StatefulSet>> = sets.into_iter().flatten().collect();
        let orphans = self.pods.decoded(&controller_ref::orphans(self.pods.cache(), namespace));
        for set in &sets {
            let mut orphans = orphans.clone();
            orphans.retain(|pod| set.ordinal(&pod.metadata.name).is_some());
            controller_ref::offer(&self.controller, &set.metadata, &set.spec.selector, "Pod", &orphans);
        }
        let owners = sets.iter().map(|set| (&set.metadata, &set.spec.selector));
        self.history.offer_orphans(&self.controller, namespace, owners);
    }
}
