//! The ReplicaSet controller. In: a ReplicaSet, its pods and orphaned pods. Out: pods created and deleted, adopted and released,
//! and a status that counts them. `plan` decides; this file reads caches and sends writes.

mod plan;
mod ranking;

use std::sync::Arc;

use k8s_openapi::api::apps::v1 as apps;
use konverge_core::LabelSelector;
use konverge_runtime::{Action, CacheOf, Controller, Error, Result, Run, Subject, Target};
use kube::core::ApiResource;

use crate::child_creator::{ChildCreator, Creation};
use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::controller_ref;
use crate::meta::HasMeta;
use crate::pods::{self, Pod, PodCreator, Pods};
use crate::template;

use plan::{Failure, Step};
pub(crate) use plan::{ReplicaSet, ReplicaSetStatus, is_zero};
pub(crate) use ranking::{Ranked, by_deletion_order};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "replicaset-controller";

/// The kind.
pub(crate) fn api() -> ApiResource {
    ApiResource::erase::<apps::ReplicaSet>(&())
}

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(Target::of::<apps::ReplicaSet>());
    let pods = Pods::new(&ctx);
    controller.watch(pods::target(), controller_ref::trigger("Pod", "apps", "ReplicaSet"));
    let sets = CacheOf::new(controller.primary().clone());
    let api = api();
    let this = Arc::new(ReplicaSets {
        ctx: ctx.clone(),
        creator: ChildCreator::new(&ctx, api.clone(), controller.primary().clone()),
        sets,
        pods,
        api,
        pods_api: pods::api(),
        controller: controller.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct ReplicaSets {
    ctx: ControllerContext,
    creator: ChildCreator,
    sets: CacheOf<ReplicaSet>,
    pods: Pods,
    api: ApiResource,
    pods_api: ApiResource,
    controller: Arc<Controller>,
}

impl ReplicaSets {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if let Some(namespace) = controller_ref::orphans_namespace(&run.key) {
            self.offer_orphans(namespace);
            return Ok(Action::Wait);
        }
        let Some(set) = self.sets.get(&run.key)? else { return Ok(Action::Wait) };
        let selector = LabelSelector::from_object(&set.spec.selector).map_err(Error::permanent)?;
        let subject = Arc::new(set.metadata.subject(&self.api));

        let failure = match set.metadata.is_terminating() {
            true => self.claimed(&set, &selector).await.map(|_| None)?,
            false => match self.creator.check(&set.metadata, &selector, &set.spec.template, &subject) {
                Ok(()) => {
                    let mine = self.claimed(&set, &selector).await?;
                    self.manage(&set, &selector, &mine, &subject).await.err()
                }
                Err(error) => Some(Failure { reason: "FailedCreate", error }),
            },
        };
        // The cache already knows what was just created and deleted.
        let mine = controller_ref::sort(&set.metadata, &selector, self.pods.managed_by(&set.metadata.uid)).owned;
        let now = self.ctx.now();
        let status = plan::status(&set, &mine, failure.as_ref(), now);
        self.ctx.write_status(&self.api, &set.metadata, &set.status, &status).await?;
        match failure {
            Some(failure) => Err(failure.error),
            None => Ok(plan::requeue_after(&set, &mine, now).map_or(Action::Wait, Action::Requeue)),
        }
    }

    /// The pods of a ReplicaSet, after it has adopted matching orphans and released those that do not match any more.
    async fn claimed(&self, set: &ReplicaSet, selector: &LabelSelector) -> Result<Vec<Arc<Pod>>> {
        let candidates = self.pods.decoded(&controller_ref::candidates(self.pods.cache(), &set.metadata));
        let candidates: Vec<Arc<Pod>> = candidates.into_iter().filter(|pod| pod.is_active()).collect();
        let sorted = controller_ref::sort(&set.metadata, selector, candidates);
        controller_ref::claim(&self.ctx, &self.api, &set.metadata, &self.pods_api, sorted).await
    }

    /// Creates missing pods, or deletes surplus ones.
    async fn manage(
        &self,
        set: &ReplicaSet,
        selector: &LabelSelector,
        mine: &[Arc<Pod>],
        subject: &Arc<Subject>,
    ) -> Result<(), Failure> {
        let on_nodes = |node: &str| self.related_on(set, node);
        match plan::step(set, mine, on_nodes, self.ctx.now()) {
            Step::Nothing => Ok(()),
            Step::Create(many) => {
                let created = self.create(set, selector, many, subject).await;
                created.map_err(|error| Failure { reason: "FailedCreate", error })
            }
            Step::Delete(pods) => self.delete(&pods, subject).await,
        }
    }

    /// How many ready pods of the same deployment are on a node.
    fn related_on(&self, set: &ReplicaSet, node: &str) -> usize {
        let siblings: Vec<String> = match set.metadata.controller() {
            Some(owner) => {
                let sets = self.sets.cache().by_owner(&owner.uid);
                sets.iter().map(|set| set.uid().to_owned()).collect()
            }
            None => vec![set.metadata.uid.clone()],
        };
        let pods = siblings.iter().flat_map(|uid| self.pods.managed_by(uid));
        pods.filter(|pod| pod.spec.node_name == node && pod.is_active() && pod.is_ready()).count()
    }

    /// Creates pods: the first alone, because a quota that refuses one refuses all, then the rest in parallel.
    async fn create(
        &self,
        set: &ReplicaSet,
        selector: &LabelSelector,
        many: usize,
        subject: &Arc<Subject>,
    ) -> Result<()> {
        if set.status.observed_generation > 0 && !self.creator.owner_exists(&set.metadata).await? {
            return Ok(());
        }
        let pod_creator =
            PodCreator { ctx: &self.ctx, creator: &self.creator, owner: &set.metadata, selector, subject };
        let reference = set.metadata.as_controller(&self.api);
        let one = || {
            let pod = template::pod(&set.spec.template, &set.metadata, &reference, self.ctx.random());
            async move { pod_creator.create(&pod).await }
        };
        if matches!(one().await?, Creation::NotNeeded) {
            return Ok(());
        }
        let rest: Vec<_> = (1..many).map(|_| one()).collect();
        self.ctx.in_parallel(rest).await.into_iter().try_for_each(|created| created.map(drop))
    }

    async fn delete(&self, pods: &[Arc<Pod>], subject: &Arc<Subject>) -> Result<(), Failure> {
        let deletes = pods.iter().map(|pod| async move {
            let deleted = pods::delete(&self.ctx, &pod.metadata, subject).await;
            deleted.map_err(|error| Failure { reason: "FailedDelete", error })
        });
        self.ctx.in_parallel(deletes).await.into_iter().collect()
    }

    /// Wakes the ReplicaSets whose selector matches orphaned pods.
    fn offer_orphans(&self, namespace: &str) {
        let orphans = self.pods.decoded(&controller_ref::orphans(self.pods.cache(), namespace));
        if orphans.is_empty() {
            return;
        }
        for set in self.sets.list(Some(namespace), &LabelSelector::default()).into_iter().flatten() {
            controller_ref::offer(&self.controller, &set.metadata, &set.spec.selector, "Pod", &orphans);
        }
    }
}

impl HasMeta for ReplicaSet {
    fn meta(&self) -> &crate::meta::Meta {
        &self.metadata
    }
}
