//! ReplicaSets: so many pods of one template. In: a ReplicaSet, its pods and those nobody manages. Out: pods created and
//! deleted, adopted and released, and a status that counts them. `plan` decides; here is only who asks and who acts.

mod plan;
mod ranking;

use std::sync::Arc;

use k8s_openapi::api::apps::v1 as apps;
use konverge_core::LabelSelector;
use konverge_runtime::{Action, CacheOf, Controller, Error, Result, Run, Subject, Target};
use kube::core::ApiResource;

use crate::adopt;
use crate::desk::Desk;
use crate::guard::Guard;
use crate::meta::HasMeta;
use crate::plane::{Plane, Task};
use crate::pods::{self, Created, Maker, Pod, Pods};
use crate::template;

use plan::{Failure, Step};
pub(crate) use plan::{ReplicaSet, ReplicaSetStatus, is_zero};
pub(crate) use ranking::{Ranked, first_to_go};

/// As kube-controller-manager calls it.
pub(crate) const NAME: &str = "replicaset-controller";

/// The kind.
pub(crate) fn api() -> ApiResource {
    ApiResource::erase::<apps::ReplicaSet>(&())
}

/// Starts the controller.
pub(crate) fn start(plane: &Plane) -> Task {
    let desk = plane.desk(NAME);
    let controller = desk.controller(Target::of::<apps::ReplicaSet>());
    let pods = Pods::new(&desk);
    controller.watch(pods::target(), adopt::managed("Pod", "apps", "ReplicaSet"));
    let sets = CacheOf::new(controller.primary().clone());
    let api = api();
    let this = Arc::new(ReplicaSets {
        desk: desk.clone(),
        guard: Guard::new(&desk, api.clone(), controller.primary().clone()),
        sets,
        pods,
        api,
        pods_api: pods::api(),
        controller: controller.clone(),
    });
    desk.work(controller, move |run| this.clone().reconcile(run))
}

struct ReplicaSets {
    desk: Desk,
    guard: Guard,
    sets: CacheOf<ReplicaSet>,
    pods: Pods,
    api: ApiResource,
    pods_api: ApiResource,
    controller: Arc<Controller>,
}

impl ReplicaSets {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if let Some(namespace) = adopt::strays_of(&run.key) {
            self.offer_strays(namespace);
            return Ok(Action::Wait);
        }
        let Some(set) = self.sets.get(&run.key)? else { return Ok(Action::Wait) };
        let selector = LabelSelector::from_object(&set.spec.selector).map_err(Error::permanent)?;
        let subject = Arc::new(set.metadata.subject(&self.api));

        let failure = match set.metadata.is_terminating() {
            true => self.claimed(&set, &selector).await.map(|_| None)?,
            false => match self.guard.check(&set.metadata, &selector, &set.spec.template, &subject) {
                Ok(()) => {
                    let mine = self.claimed(&set, &selector).await?;
                    self.manage(&set, &selector, &mine, &subject).await.err()
                }
                Err(error) => Some(Failure { reason: "FailedCreate", error }),
            },
        };
        // What was just created and deleted counts: the cache knows.
        let mine = adopt::claim(&set.metadata, &selector, self.pods.managed_by(&set.metadata.uid)).mine;
        let now = self.desk.now();
        let status = plan::status(&set, &mine, failure.as_ref(), now);
        self.desk.write_status(&self.api, &set.metadata, &set.status, &status).await?;
        match failure {
            Some(failure) => Err(failure.error),
            None => Ok(plan::next_look(&set, &mine, now).map_or(Action::Wait, Action::Requeue)),
        }
    }

    /// The pods of a ReplicaSet, after it took those nobody had and let those go that it no longer selects.
    async fn claimed(&self, set: &ReplicaSet, selector: &LabelSelector) -> Result<Vec<Arc<Pod>>> {
        let candidates = self.pods.decoded(&adopt::candidates(self.pods.cache(), &set.metadata));
        let candidates: Vec<Arc<Pod>> = candidates.into_iter().filter(|pod| pod.is_active()).collect();
        let claim = adopt::claim(&set.metadata, selector, candidates);
        adopt::take(&self.desk, &self.api, &set.metadata, &self.pods_api, claim).await
    }

    /// Creates what is missing, or deletes what is too much.
    async fn manage(
        &self,
        set: &ReplicaSet,
        selector: &LabelSelector,
        mine: &[Arc<Pod>],
        subject: &Arc<Subject>,
    ) -> Result<(), Failure> {
        let on_nodes = |node: &str| self.related_on(set, node);
        match plan::step(set, mine, on_nodes, self.desk.now()) {
            Step::Rest => Ok(()),
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

    /// Creates pods: the first alone, because what refuses one refuses all, then the rest at once.
    async fn create(
        &self,
        set: &ReplicaSet,
        selector: &LabelSelector,
        many: usize,
        subject: &Arc<Subject>,
    ) -> Result<()> {
        if set.status.observed_generation > 0 && !self.guard.is_wanted(&set.metadata).await? {
            return Ok(());
        }
        let maker = Maker { desk: &self.desk, guard: &self.guard, owner: &set.metadata, selector, subject };
        let reference = set.metadata.as_controller(&self.api);
        let one = || {
            let pod = template::pod(&set.spec.template, &set.metadata, &reference, self.desk.random());
            async move { maker.create(&pod).await }
        };
        if one().await? == Created::NoNeed {
            return Ok(());
        }
        let rest: Vec<_> = (1..many).map(|_| one()).collect();
        self.desk.together(rest).await.into_iter().try_for_each(|created| created.map(drop))
    }

    async fn delete(&self, pods: &[Arc<Pod>], subject: &Arc<Subject>) -> Result<(), Failure> {
        let deletes = pods.iter().map(|pod| async move {
            let deleted = pods::delete(&self.desk, &pod.metadata, subject).await;
            deleted.map_err(|error| Failure { reason: "FailedDelete", error })
        });
        self.desk.together(deletes).await.into_iter().collect()
    }

    /// Wakes the ReplicaSets that may want pods which nobody manages.
    fn offer_strays(&self, namespace: &str) {
        let strays = self.pods.decoded(&adopt::unmanaged(self.pods.cache(), namespace));
        if strays.is_empty() {
            return;
        }
        for set in self.sets.list(Some(namespace), &LabelSelector::default()).into_iter().flatten() {
            adopt::offer(&self.controller, &set.metadata, &set.spec.selector, "Pod", &strays);
        }
    }
}

impl HasMeta for ReplicaSet {
    fn meta(&self) -> &crate::meta::Meta {
        &self.metadata
    }
}
