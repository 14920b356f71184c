//! The controller of PodDisruptionBudgets. In: budgets, the pods that they select, and the controllers of those pods. Out: the
//! status that an eviction checks. `plan` decides; this file reads caches and sends writes.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::policy::v1 as policy;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Action, Cache, CacheOf, Controller, Error, Patch, Result, Run, Target, Trigger};
use kube::core::ApiResource;
use serde_json::json;

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::meta::OwnerReference;
use crate::pods::{self, Pod, Pods};
use crate::scale::{ScaleTarget, Scales};
use crate::selector_wakeups;

use plan::{Budget, BudgetStatus};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "disruption-controller";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(Target::of::<policy::PodDisruptionBudget>());
    let pods = Pods::new(&ctx);
    controller.watch(pods::target(), selector_wakeups::by_labels("Pod"));
    // Who owns a ReplicaSet is looked up; that the size changed shows in the pods.
    let sets = controller.watch(Target::of::<apps::ReplicaSet>(), Trigger::mapped("ReplicaSet", |_| Vec::new()));
    let this = Arc::new(Budgets {
        budgets: CacheOf::new(controller.primary().clone()),
        sets,
        pods,
        scales: Scales::new(ctx.clone()),
        api: ApiResource::erase::<policy::PodDisruptionBudget>(&()),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct Budgets {
    ctx: ControllerContext,
    budgets: CacheOf<Budget>,
    sets: Cache,
    pods: Pods,
    scales: Scales,
    api: ApiResource,
    controller: Arc<Controller>,
}

impl Budgets {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if let Some(labels) = selector_wakeups::labels_of(&run.key) {
            selector_wakeups::wake(&self.controller, &self.budgets, &run.key, "Pod", |budget| {
                selector(budget).is_ok_and(|selector| selector.is_some_and(|selector| selector.matches(&labels)))
            });
            return Ok(Action::Wait);
        }
        let Some(budget) = self.budgets.get(&run.key)?.filter(|budget| !budget.metadata.is_terminating()) else {
            return Ok(Action::Wait);
        };
        let selector = selector(&budget)?;
        let selected = |selector: &LabelSelector| self.pods.selected(&budget.metadata.namespace, selector);
        let pods = selector.as_ref().map(selected).unwrap_or_default();
        let subject = Arc::new(budget.metadata.subject(&self.api));
        if pods.is_empty() {
            self.ctx.event(&subject, "NoPods", "No matching pods found");
        }
        let scale = if budget.needs_scale() { self.expected(&budget, &pods).await } else { Ok(0) };
        let now = self.ctx.now();
        match scale {
            Ok(scale) => {
                let (status, requeue_after) = plan::status(&budget, &pods, scale, now);
                self.write(&budget, &status).await?;
                Ok(requeue_after.map_or(Action::Wait, Action::Requeue))
            }
            Err(error) => {
                let why = format!("Failed to calculate the number of expected pods: {error}");
                self.ctx.warning(&subject, "CalculateExpectedPodCountFailed", why);
                self.write(&budget, &plan::failed(&budget, error.to_string(), now)).await?;
                Err(error)
            }
        }
    }

    /// The number of pods that the controllers of these pods want.
    async fn expected(&self, budget: &Budget, pods: &[Arc<Pod>]) -> Result<i32> {
        let mut controllers: BTreeMap<String, (OwnerReference, &str)> = BTreeMap::new();
        for pod in pods {
            // Pods without a controller do not count, because the number of expected pods is unknown.
            let Some(owner) = pod.metadata.controller() else { continue };
            let top = self.top(&budget.metadata.namespace, owner);
            controllers.entry(top.uid.clone()).or_insert((top, &pod.metadata.name));
        }
        let mut expected = 0;
        for (owner, pod) in controllers.into_values() {
            let target = ScaleTarget { api_version: owner.api_version, kind: owner.kind, name: owner.name };
            let scale = self.scales.get(&budget.metadata.namespace, &target).await;
            let scale = scale.map_err(|error| Error::new(format!("found no controllers for pod {pod:?}: {error}")))?;
            expected += scale.spec.replicas;
        }
        Ok(expected)
    }

    /// Who says how large an owner is: of a ReplicaSet its Deployment, if it has one.
    fn top(&self, namespace: &str, owner: &OwnerReference) -> OwnerReference {
        if owner.kind != "ReplicaSet" {
            return owner.clone();
        }
        let set = self.sets.get(&ObjectKey::new(Some(namespace), &owner.name)).filter(|set| set.uid() == owner.uid);
        let above = set.as_deref().and_then(|set| set.controller()).map(|above| OwnerReference {
            api_version: above.api_version.into(),
            kind: above.kind.into(),
            name: above.name.into(),
            uid: above.uid.into(),
            ..OwnerReference::default()
        });
        above.unwrap_or_else(|| owner.clone())
    }

    /// Writes a status, if the budget has not changed: evictions write the status, too.
    async fn write(&self, budget: &Budget, status: &BudgetStatus) -> Result<()> {
        if *status == budget.status {
            return Ok(());
        }
        let meta = &budget.metadata;
        let patch = json!([
            meta.uid_test(),
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]);
        self.ctx.patch_if_exists(&self.api, &meta.key(), "status", Patch::Json(patch)).await.map(drop)
    }
}

/// The selector of a budget; without one it selects no pod.
fn selector(budget: &Budget) -> Result<Option<LabelSelector>> {
    let selector = budget.spec.selector.as_ref().map(LabelSelector::from_object).transpose();
    selector.map_err(Error::permanent)
}
