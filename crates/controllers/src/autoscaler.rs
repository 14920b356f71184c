//! The HorizontalPodAutoscaler controller. In: autoscalers, the scales of their targets, and metric values that annotations
//! set, because nothing is measured here. Out: changed scales, and a status that says why. `plan` decides; this file reads
//! caches and sends writes.

mod behavior;
mod kind;
mod metrics;
mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2 as autoscaling;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Action, CacheOf, Controller, ControllerOptions, Predicate, Result, Run, Subject, Target};
use kube::core::ApiResource;
use parking_lot::Mutex;

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::pods::{self, Pods};
use crate::scale::{Scale, Scales};
use crate::selector_wakeups;

use behavior::ScalingHistory;
use kind::{Autoscaler, AutoscalerStatus};
use plan::{Observed, Plan};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "horizontal-pod-autoscaler-controller";

/// How often each autoscaler is reconciled without a change: windows pass, and others change its target.
const RESYNC: Duration = Duration::from_secs(15);

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    // A write of its own status must not wake it: each reconcile may change the size.
    let predicate = Predicate::spec_changed().or(Predicate::annotations_changed()).or(Predicate::terminating_changed());
    let options = ControllerOptions { predicate, ..ControllerOptions::default() };
    let controller = ctx.controller_with(Target::of::<autoscaling::HorizontalPodAutoscaler>(), options);
    let pods = Pods::new(&ctx);
    // Annotations of pods set metric values, so a change of annotations wakes the autoscaler at once.
    controller.watch(pods::target(), selector_wakeups::by_labels("Pod").when(Predicate::annotations_changed()));
    let this = Arc::new(Autoscalers {
        autoscalers: CacheOf::new(controller.primary().clone()),
        pods,
        scales: Scales::new(ctx.clone()),
        known: Mutex::default(),
        api: ApiResource::erase::<autoscaling::HorizontalPodAutoscaler>(&()),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

/// What the controller remembers of an autoscaler.
#[derive(Clone, Default)]
struct Known {
    uid: String,
    history: ScalingHistory,
    /// The selector of the pods of its target.
    selector: Option<LabelSelector>,
}

struct Autoscalers {
    ctx: ControllerContext,
    autoscalers: CacheOf<Autoscaler>,
    pods: Pods,
    scales: Scales,
    known: Mutex<HashMap<ObjectKey, Known>>,
    api: ApiResource,
    controller: Arc<Controller>,
}

impl Autoscalers {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if let Some(labels) = selector_wakeups::labels_of(&run.key) {
            selector_wakeups::wake(&self.controller, &self.autoscalers, &run.key, "Pod", |one| {
                let selector = self.known.lock().get(&one.metadata.key()).and_then(|known| known.selector.clone());
                selector.is_some_and(|selector| selector.matches(&labels))
            });
            return Ok(Action::Wait);
        }
        let Some(autoscaler) = self.autoscalers.get(&run.key)? else {
            self.known.lock().remove(&run.key);
            return Ok(Action::Wait);
        };
        if autoscaler.metadata.is_terminating() {
            return Ok(Action::Wait);
        }
        let subject = Arc::new(autoscaler.metadata.subject(&self.api));
        let target = &autoscaler.spec.scale_target_ref;
        let scale = match self.scales.get(&autoscaler.metadata.namespace, target).await {
            Ok(scale) => scale,
            Err(error) => {
                self.ctx.warning(&subject, "FailedGetScale", error.to_string());
                let why = format!("the HPA controller was unable to get the target's current scale: {error}");
                let status = plan::unable(autoscaler.status.clone(), "FailedGetScale", &why, self.ctx.now());
                self.ctx.write_status(&self.api, &autoscaler.metadata, &autoscaler.status, &status).await?;
                return Ok(Action::requeue(RESYNC));
            }
        };
        let plan = self.plan(&autoscaler, &scale);
        for (reason, message) in &plan.warn {
            self.ctx.warning(&subject, reason, message.clone());
        }
        let status = self.resize(&autoscaler, &scale, plan, &subject).await;
        self.ctx.write_status(&self.api, &autoscaler.metadata, &autoscaler.status, &status).await?;
        Ok(Action::requeue(RESYNC))
    }

    fn plan(&self, autoscaler: &Autoscaler, scale: &Scale) -> Plan {
        let selector = scale.selector();
        let selected = |selector: &LabelSelector| self.pods.selected(&autoscaler.metadata.namespace, selector);
        let pods = selector.as_ref().map(selected).unwrap_or_default();
        let mut all = self.known.lock();
        let known = all.entry(autoscaler.metadata.key()).or_default();
        if known.uid != autoscaler.metadata.uid {
            *known = Known { uid: autoscaler.metadata.uid.clone(), ..Known::default() };
        }
        known.selector = selector;
        plan::plan(&Observed { autoscaler, scale, pods: &pods, now: self.ctx.now() }, &mut known.history)
    }

    /// Changes the size if the plan says so. Returns the status after that.
    async fn resize(
        &self,
        autoscaler: &Autoscaler,
        scale: &Scale,
        plan: Plan,
        subject: &Arc<Subject>,
    ) -> AutoscalerStatus {
        let Some((to, why)) = plan.resize else { return plan.status };
        let now = self.ctx.now();
        match self.scales.set(&autoscaler.spec.scale_target_ref, scale, to).await {
            Ok(()) => {
                self.ctx.event(subject, "SuccessfulRescale", format!("New size: {to}; reason: {why}"));
                if let Some(known) = self.known.lock().get_mut(&autoscaler.metadata.key()) {
                    known.history.changed(autoscaler, scale.spec.replicas, to, now);
                }
                plan::resized(plan.status, to, now)
            }
            Err(error) => {
                let message = format!("New size: {to}; reason: {why}; error: {error}");
                self.ctx.warning(subject, "FailedRescale", message);
                let why = format!("the HPA controller was unable to update the target scale: {error}");
                let status = AutoscalerStatus { desired_replicas: scale.spec.replicas, ..plan.status };
                plan::unable(status, "FailedUpdateScale", &why, now)
            }
        }
    }
}
