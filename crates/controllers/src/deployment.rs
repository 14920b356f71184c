//! The Deployment controller. In: a Deployment, its ReplicaSets and, for a recreation, their pods. Out: ReplicaSets created,
//! scaled and deleted, and a status with the progress. `plan` decides; this file reads caches and sends writes.

mod kind;
mod plan;
mod progress;
mod revision;
mod rollout;

use std::sync::Arc;

use k8s_openapi::api::apps::v1 as apps;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Action, CacheOf, Controller, Error, Patch, Result, Run, Subject, Target, Trigger, WriteError};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::child_creator::{ChildCreator, Creation};
use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::controller_ref;
use crate::meta::{StringMap, set_annotations};
use crate::pods::{self, Pods};
use crate::replicaset::{self, ReplicaSet};
use crate::requests::DeleteOptions;
use crate::template::same_template;

use kind::{Deployment, DeploymentStatus};
use plan::{NewSet, Observed, Plan, SetChange};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "deployment-controller";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(Target::of::<apps::Deployment>());
    let sets =
        controller.watch(Target::of::<apps::ReplicaSet>(), controller_ref::trigger("ReplicaSet", "apps", "Deployment"));
    controller_ref::index_orphans(&sets);
    let pods = Pods::new(&ctx);
    // Pods are only read for a recreation; the status of their ReplicaSet changes when the last one is gone.
    controller.watch(pods::target(), Trigger::mapped("Pod", |_| Vec::new()));
    let this = Arc::new(Deployments {
        creator: ChildCreator::new(&ctx, ApiResource::erase::<apps::Deployment>(&()), controller.primary().clone()),
        deployments: CacheOf::new(controller.primary().clone()),
        sets: CacheOf::new(sets),
        pods,
        api: ApiResource::erase::<apps::Deployment>(&()),
        sets_api: replicaset::api(),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct Deployments {
    ctx: ControllerContext,
    creator: ChildCreator,
    deployments: CacheOf<Deployment>,
    sets: CacheOf<ReplicaSet>,
    pods: Pods,
    api: ApiResource,
    sets_api: ApiResource,
    controller: Arc<Controller>,
}

impl Deployments {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if let Some(namespace) = controller_ref::orphans_namespace(&run.key) {
            self.offer_orphans(namespace);
            return Ok(Action::Wait);
        }
        let Some(deployment) = self.deployments.get(&run.key)? else { return Ok(Action::Wait) };
        let selector = LabelSelector::from_object(&deployment.spec.selector).map_err(Error::permanent)?;
        let subject = Arc::new(deployment.metadata.subject(&self.api));
        // For a Deployment that selects everything the plan only records an event.
        if !deployment.metadata.is_terminating() && !selector.is_everything() {
            self.creator.check(&deployment.metadata, &selector, &deployment.spec.template, &subject)?;
        }
        let sets = self.claimed(&deployment, &selector).await?;
        let runs = |uid: &str| self.pods.managed_by(uid).iter().any(|pod| !pod.is_finished());
        let now = self.ctx.now();
        let plan = plan::plan(&Observed { deployment: &deployment, sets: &sets, old_pods_run: &runs, now });
        self.carry_out(&deployment, &selector, plan, &subject).await
    }

    async fn carry_out(
        &self,
        deployment: &Deployment,
        selector: &LabelSelector,
        plan: Plan,
        subject: &Arc<Subject>,
    ) -> Result<Action> {
        if let Some(new) = &plan.create
            && let Err(refused) = self.create(deployment, selector, new, subject).await
        {
            return refused;
        }
        let changes = plan.change.iter().map(|change| self.change(change));
        self.ctx.in_parallel(changes).await.into_iter().collect::<Result<Vec<()>>>()?;
        for (reason, message) in plan.events {
            match reason {
                "SelectingAll" => self.ctx.warning(subject, reason, message),
                _ => self.ctx.event(subject, reason, message),
            }
        }
        let deletes = plan.delete.iter().map(|set| async move {
            let options = DeleteOptions { uid: &set.metadata.uid, ..DeleteOptions::default() };
            self.ctx.delete(&self.sets_api, &set.metadata.key(), &options).await
        });
        for deleted in self.ctx.in_parallel(deletes).await {
            deleted?;
        }
        self.write_status(deployment, plan.revision, &plan.status).await?;
        Ok(plan.requeue_after.map_or(Action::Wait, Action::Requeue))
    }

    /// Creates the new ReplicaSet. The error is the result with which the reconcile ends.
    async fn create(
        &self,
        deployment: &Deployment,
        selector: &LabelSelector,
        new: &NewSet,
        subject: &Arc<Subject>,
    ) -> Result<(), Result<Action>> {
        let meta = &deployment.metadata;
        if deployment.status.observed_generation > 0 && !self.creator.owner_exists(meta).await.map_err(Err)? {
            return Err(Ok(Action::Wait));
        }
        let mut object = new.object.clone();
        object["metadata"]["ownerReferences"] = json!([deployment.metadata.as_controller(&self.api)]);
        let error = match self.creator.create(meta, selector, &self.sets_api, &object).await {
            Ok(Creation::Created(_)) => return Ok(()),
            Ok(Creation::NotNeeded) => return Err(Ok(Action::Wait)),
            Err(error) => error,
        };
        if matches!(error.find(), Some(WriteError::Exists { .. })) {
            return Err(self.collided(deployment, new, error).await);
        }
        let (status, message) = Plan::failed(deployment, new, &error.to_string(), self.ctx.now());
        self.ctx.warning(subject, "ReplicaSetCreateError", message);
        let written = self.write_status(deployment, None, &status).await;
        Err(written.and(Err(error)))
    }

    /// A ReplicaSet of this name exists. If it is ours, the next reconcile finds it in the cache; if not, the next reconcile
    /// uses another hash.
    async fn collided(&self, deployment: &Deployment, new: &NewSet, error: Error) -> Result<Action> {
        let key = ObjectKey::new(Some(&deployment.metadata.namespace), &new.name);
        let Some(there) = self.ctx.writer.get(&self.sets_api, &key).await? else { return Err(error) };
        self.ctx.observe(&self.sets_api, &there.to_string());
        let there: ReplicaSet = serde_json::from_value(there)?;
        let ours = there.metadata.controller().is_some_and(|owner| owner.uid == deployment.metadata.uid);
        if !ours || !same_template(&there.spec.template, &deployment.spec.template) {
            let collisions = deployment.status.collision_count.unwrap_or_default() + 1;
            tracing::info!(deployment = %deployment.metadata.key(), collisions, "a hash is taken; trying another");
            let status = DeploymentStatus { collision_count: Some(collisions), ..deployment.status.clone() };
            self.write_status(deployment, None, &status).await?;
        }
        Err(error)
    }

    async fn change(&self, change: &SetChange) -> Result<()> {
        let meta = &change.set.metadata;
        let mut patch = vec![meta.uid_test()];
        let mut add = |path: &str, value: Option<i32>| {
            patch.extend(value.map(|value| json!({"op": "add", "path": path, "value": value})));
        };
        add("/spec/replicas", change.replicas);
        add("/spec/minReadySeconds", change.min_ready_seconds);
        patch.extend(set_annotations(meta, &change.annotations));
        self.ctx.patch_if_exists(&self.sets_api, &meta.key(), "", Patch::Json(Value::Array(patch))).await.map(drop)
    }

    /// Writes status and revision in one request: a write of the status does not change the generation.
    async fn write_status(
        &self,
        deployment: &Deployment,
        revision: Option<String>,
        status: &DeploymentStatus,
    ) -> Result<()> {
        let meta = &deployment.metadata;
        let revision: StringMap =
            revision.into_iter().map(|revision| (revision::REVISION.to_owned(), revision)).collect();
        let mut patch = set_annotations(meta, &revision);
        if *status != deployment.status {
            patch.push(json!({"op": "add", "path": "/status", "value": status}));
        }
        if patch.is_empty() {
            return Ok(());
        }
        patch.insert(0, meta.uid_test());
        self.ctx.patch_if_exists(&self.api, &meta.key(), "status", Patch::Json(Value::Array(patch))).await.map(drop)
    }

    /// The ReplicaSets of a Deployment, after it has adopted matching orphans and released those that do not match any more.
    async fn claimed(&self, deployment: &Deployment, selector: &LabelSelector) -> Result<Vec<Arc<ReplicaSet>>> {
        let candidates = controller_ref::candidates(self.sets.cache(), &deployment.metadata);
        let candidates = candidates.iter().filter_map(|set| self.sets.decoded(set).ok()).collect();
        let sorted = controller_ref::sort(&deployment.metadata, selector, candidates);
        controller_ref::claim(&self.ctx, &self.api, &deployment.metadata, &self.sets_api, sorted).await
    }

    /// Wakes the Deployments whose selector matches orphaned ReplicaSets.
    fn offer_orphans(&self, namespace: &str) {
        let orphans = controller_ref::orphans(self.sets.cache(), namespace);
        let orphans: Vec<Arc<ReplicaSet>> = orphans.iter().filter_map(|set| self.sets.decoded(set).ok()).collect();
        if orphans.is_empty() {
            return;
        }
        for deployment in self.deployments.list(Some(namespace), &LabelSelector::default()).into_iter().flatten() {
            controller_ref::offer(
                &self.controller,
                &deployment.metadata,
                &deployment.spec.selector,
                "ReplicaSet",
                &orphans,
            );
        }
    }
}
