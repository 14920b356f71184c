//! The Job controller. In: a Job, its pods and orphaned pods. Out: pods created and deleted, and a status that counts every
//! finished pod exactly once. `plan` decides; this file reads caches and sends writes.

mod backoff;
mod indexes;
mod kind;
mod plan;
mod pod;
mod policy;
mod tracking;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1 as batch;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Action, CacheOf, Controller, Error, Object, Patch, Result, Run, Subject, Target, Trigger};
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde_json::Value;

use crate::child_creator::{ChildCreator, Creation};
use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::controller_ref;
use crate::meta::Meta;
use crate::pods::{self, Pod, PodCreator, Pods};

use backoff::Failures;
pub(crate) use kind::{Ending, Job, JobStatus};
use plan::{Observed, Outcome, Plan, Step};
use tracking::{TRACKING, is_tracked};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "job-controller";

/// The index of pods with the tracking finalizer, by the key of their Job.
const TRACKED: &str = "tracked-by-job";

/// The kind.
pub(crate) fn api() -> ApiResource {
    ApiResource::erase::<batch::Job>(&())
}

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(Target::of::<batch::Job>());
    let pods = Pods::new(&ctx);
    pods.cache().add_index(TRACKED, |pod| {
        let tracked = pod.finalizers().any(|finalizer| finalizer == TRACKING);
        job_of(pod).filter(|_| tracked).map(|job| job.to_string()).into_iter().collect()
    });
    controller.watch(pods::target(), Trigger::mapped("Pod", keys_of));
    let this = Arc::new(Jobs {
        creator: ChildCreator::new(&ctx, api(), controller.primary().clone()),
        jobs: CacheOf::new(controller.primary().clone()),
        pods,
        api: api(),
        pods_api: pods::api(),
        failures: Mutex::default(),
        first_wait: manager.options.pod_failure_backoff,
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct Jobs {
    ctx: ControllerContext,
    creator: ChildCreator,
    jobs: CacheOf<Job>,
    pods: Pods,
    api: ApiResource,
    pods_api: ApiResource,
    /// Failures since the last success, by Job and its uid. A restarted control plane begins
    /// with the first backoff again.
    failures: Mutex<HashMap<ObjectKey, (String, Failures)>>,
    first_wait: Duration,
    controller: Arc<Controller>,
}

impl Jobs {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if let Some(namespace) = controller_ref::orphans_namespace(&run.key) {
            self.offer_orphans(namespace).await?;
            return Ok(Action::Wait);
        }
        let job = self.jobs.get(&run.key)?;
        self.untrack_uncounted(&run.key, job.as_deref()).await?;
        // Pods that lost their owner before it went were kept for it.
        if let (None, Some(namespace)) = (&job, run.key.namespace()) {
            self.offer_orphans(namespace).await?;
        }
        let Some(job) = job.filter(|job| !job.is_managed_elsewhere() && job.finished().is_none()) else {
            self.failures.lock().remove(&run.key);
            return Ok(Action::Wait);
        };
        let selector = job.selector().map_err(Error::permanent)?;
        let subject = Arc::new(job.metadata.subject(&self.api));
        if !job.metadata.is_terminating() {
            self.creator.check(&job.metadata, &selector, &job.template(), &subject)?;
        }
        let pods = self.claimed(&job, &selector).await?;
        let now = self.ctx.now();
        let failures = self.failures_of(&job.metadata);
        let mut plan = plan::plan(&Observed { job: &job, pods: &pods, failures, first_wait: self.first_wait, now });
        let pod_creator = PodCreator {
            ctx: &self.ctx,
            creator: &self.creator,
            owner: &job.metadata,
            selector: &selector,
            subject: &subject,
        };
        let taken = self.take(&job, &plan.step, pod_creator).await;
        if taken.is_err() {
            // The Job has not finished while pods are left that should be deleted.
            plan.outcome = None;
        }
        self.account(&job, &selector, &plan, &subject).await?;
        taken?;
        Ok(plan.requeue_after.map_or(Action::Wait, Action::Requeue))
    }

    /// Records finished pods in the status, removes their finalizers, counts them, and writes the final condition.
    async fn account(&self, job: &Job, selector: &LabelSelector, plan: &Plan, subject: &Arc<Subject>) -> Result<()> {
        // The cache already knows what was just created and deleted.
        let mine = || controller_ref::sort(&job.metadata, selector, self.pods.managed_by(&job.metadata.uid)).owned;
        let now = self.ctx.now();
        let tally = plan::tally(job, plan, &mine(), self.failures_of(&job.metadata), now);
        self.ctx.write_status(&self.api, &job.metadata, &job.status, &tally.status).await?;
        self.failures.lock().insert(job.metadata.key(), (job.metadata.uid.clone(), tally.failures));
        if let Some((reason, message)) = tally.event {
            self.ctx.event(subject, reason, message);
        }
        let untracked = self.untrack(tally.untrack.iter().map(|pod| &pod.metadata)).await;
        let (status, ended) = plan::finish(job, plan, &tally, &mine(), now);
        self.ctx.write_status(&self.api, &job.metadata, &tally.status, &status).await?;
        if let Some(outcome) = ended {
            self.record_outcome(job, &status, &outcome, subject);
        }
        untracked
    }

    fn record_outcome(&self, job: &Job, status: &JobStatus, outcome: &Outcome, subject: &Arc<Subject>) {
        if !outcome.success {
            return self.ctx.warning(subject, &outcome.reason, &outcome.message);
        }
        if job.completions().is_some_and(|wanted| status.succeeded > wanted) {
            let message = "Too many succeeded pods running after completion count reached";
            self.ctx.warning(subject, "TooManySucceededPods", message);
        }
        self.ctx.event(subject, "Completed", "Job completed");
    }

    async fn take(&self, job: &Job, step: &Step, pod_creator: PodCreator<'_>) -> Result<()> {
        let subject = pod_creator.subject;
        match step {
            Step::Nothing => Ok(()),
            Step::Create(new) => self.create(job, new, pod_creator).await,
            Step::DeleteSurplus(pods) => {
                self.untrack(pods.iter().map(|pod| &pod.metadata)).await?;
                self.delete(pods, subject).await
            }
            Step::Terminate(pods) => self.delete(pods, subject).await,
        }
    }

    /// Creates pods: the first alone, because a quota that refuses one refuses all, then the rest in parallel.
    async fn create(&self, job: &Job, new: &[Option<u32>], pod_creator: PodCreator<'_>) -> Result<()> {
        if job.status.start_time.is_some() && !self.creator.owner_exists(&job.metadata).await? {
            return Ok(());
        }
        let template = pod::template(job);
        let reference = job.metadata.as_controller(&self.api);
        let one = |index: &Option<u32>| {
            let pod = pod::of(&template, &job.metadata, &reference, *index, self.ctx.random());
            async move { pod_creator.create(&pod).await }
        };
        let Some((first, rest)) = new.split_first() else { return Ok(()) };
        if matches!(one(first).await?, Creation::NotNeeded) {
            return Ok(());
        }
        let rest: Vec<_> = rest.iter().map(one).collect();
        self.ctx.in_parallel(rest).await.into_iter().try_for_each(|created| created.map(drop))
    }

    async fn delete(&self, pods: &[Arc<Pod>], subject: &Arc<Subject>) -> Result<()> {
        let deletes = pods.iter().map(|pod| pods::delete(&self.ctx, &pod.metadata, subject));
        self.ctx.in_parallel(deletes).await.into_iter().collect()
    }

    /// Removes the tracking finalizer from pods. A pod that is gone is no error.
    async fn untrack<'m>(&self, pods: impl Iterator<Item = &'m Meta>) -> Result<()> {
        self.patch(pods.filter_map(|pod| Some((pod.key(), tracking::untrack(pod)?))).collect()).await
    }

    /// Patches pods. A pod that is gone is no error.
    async fn patch(&self, patches: Vec<(ObjectKey, Value)>) -> Result<()> {
        let writes = patches.into_iter().map(|(key, patch)| async move {
            self.ctx.patch_if_exists(&self.pods_api, &key, "", Patch::Json(patch)).await.map(drop)
        });
        self.ctx.in_parallel(writes).await.into_iter().collect()
    }

    /// Removes the tracking finalizer from pods that will not be counted: their Job is gone, was replaced by another one of the
    /// same name, or has finished.
    async fn untrack_uncounted(&self, key: &ObjectKey, job: Option<&Job>) -> Result<()> {
        let counts = job.filter(|job| job.finished().is_none()).map(|job| job.metadata.uid.as_str());
        let tracked = self.pods.decoded(&self.pods.cache().by_index(TRACKED, &key.to_string()));
        let is_counted = |pod: &Pod| pod.metadata.controller().map(|owner| owner.uid.as_str()) == counts;
        self.untrack(tracked.iter().filter(|pod| !is_counted(pod)).map(|pod| &pod.metadata)).await
    }

    /// The pods of a Job, after it has adopted matching orphans and released those that do not match any more.
    async fn claimed(&self, job: &Job, selector: &LabelSelector) -> Result<Vec<Arc<Pod>>> {
        let candidates = self.pods.decoded(&controller_ref::candidates(self.pods.cache(), &job.metadata));
        let sorted = controller_ref::sort(&job.metadata, selector, candidates);
        if sorted.adopt.is_empty() && sorted.release.is_empty() {
            return Ok(sorted.owned);
        }
        // They get the finalizer first, so that none can finish without being counted.
        let holds = sorted.adopt.iter().filter_map(|pod| Some((pod.metadata.key(), tracking::track(&pod.metadata)?)));
        self.patch(holds.collect()).await?;
        self.untrack(sorted.release.iter().map(|pod| &pod.metadata)).await?;
        controller_ref::claim(&self.ctx, &self.api, &job.metadata, &self.pods_api, sorted).await?;
        Ok(controller_ref::sort(&job.metadata, selector, self.pods.managed_by(&job.metadata.uid)).owned)
    }

    fn failures_of(&self, job: &Meta) -> Failures {
        let known = self.failures.lock().get(&job.key()).cloned();
        known.filter(|(uid, _)| *uid == job.uid).map(|(_, failures)| failures).unwrap_or_default()
    }

    /// Wakes the Jobs whose selector matches orphaned pods. Orphans that no Job selects lose their finalizer.
    async fn offer_orphans(&self, namespace: &str) -> Result<()> {
        let orphans = self.pods.decoded(&controller_ref::orphans(self.pods.cache(), namespace));
        if orphans.is_empty() {
            return Ok(());
        }
        let jobs = self.jobs.list(Some(namespace), &LabelSelector::default()).into_iter().flatten();
        let jobs: Vec<Arc<Job>> =
            jobs.filter(|job| job.finished().is_none() && !job.metadata.is_terminating()).collect();
        let selectors: Vec<LabelSelector> = jobs.iter().filter_map(|job| job.selector().ok()).collect();
        for job in &jobs {
            controller_ref::offer(&self.controller, &job.metadata, &job.selector_object(), "Pod", &orphans);
        }
        let wanted = |pod: &Pod| {
            let selected = selectors.iter().any(|selector| selector.matches(&pod.metadata.labels));
            selected && !pod.metadata.is_terminating()
        };
        let unwanted = orphans.iter().filter(|pod| is_tracked(&pod.metadata) && !wanted(pod));
        self.untrack(unwanted.map(|pod| &pod.metadata)).await
    }
}

/// The keys that a changed pod wakes: its Job, or the orphans of its namespace if it has no controller.
fn keys_of(pod: &Object) -> Vec<ObjectKey> {
    let tracked = || pod.finalizers().any(|finalizer| finalizer == TRACKING);
    match pod.controller() {
        Some(_) => job_of(pod).into_iter().collect(),
        None if tracked() || (pod.labels().next().is_some() && !pod.is_terminating()) => {
            pod.namespace().map(controller_ref::orphans_key).into_iter().collect()
        }
        None => Vec::new(),
    }
}

/// The Job that manages a pod.
fn job_of(pod: &Object) -> Option<ObjectKey> {
    let owner = pod.controller().filter(|owner| owner.kind == "Job" && owner.api_version.starts_with("batch/"))?;
    Some(ObjectKey::new(pod.namespace(), &owner.name))
}
