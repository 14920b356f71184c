//! The CronJob controller. In: a CronJob, its Jobs and the time. Out: a Job for each scheduled time, old Jobs deleted, and a
//! status with the active Jobs. `plan` decides; this file reads caches and sends writes.

mod plan;
mod schedule;

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1 as batch;
use konverge_core::ObjectKey;
use konverge_runtime::{Action, CacheOf, Result, Run, Subject, Target, Trigger, WriteError};
use kube::core::ApiResource;
use serde_json::json;

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::job::{self, Job};
use crate::requests::DeleteOptions;

use plan::{CronJob, CronJobStatus, Observed, Plan};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "cronjob-controller";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(Target::of::<batch::CronJob>());
    let jobs = controller.watch(Target::of::<batch::Job>(), Trigger::owner("Job", "batch", "CronJob", true));
    let this = Arc::new(CronJobs {
        crons: CacheOf::new(controller.primary().clone()),
        jobs: CacheOf::new(jobs),
        api: ApiResource::erase::<batch::CronJob>(&()),
        jobs_api: job::api(),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct CronJobs {
    ctx: ControllerContext,
    crons: CacheOf<CronJob>,
    jobs: CacheOf<Job>,
    api: ApiResource,
    jobs_api: ApiResource,
}

impl CronJobs {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let Some(cron) = self.crons.get(&run.key)? else { return Ok(Action::Wait) };
        let mut jobs = self.jobs.by_owner(&cron.metadata.uid).into_iter().collect::<Result<Vec<_>, _>>()?;
        jobs.retain(|job| job.metadata.controller().is_some_and(|owner| owner.uid == cron.metadata.uid));
        let zone = zone(&cron);
        let now = self.ctx.now();
        let plan = plan::plan(&Observed { cron: &cron, jobs: &jobs, zone: zone.clone(), now });
        let subject = Arc::new(cron.metadata.subject(&self.api));
        for event in &plan.events {
            self.ctx.record(&subject, event);
        }
        self.carry_out(&cron, plan, zone.unwrap_or(TimeZone::UTC), &subject).await
    }

    async fn carry_out(&self, cron: &CronJob, plan: Plan, zone: TimeZone, subject: &Arc<Subject>) -> Result<Action> {
        let deletes = plan.delete.iter().map(|job| self.delete(job, subject));
        self.ctx.in_parallel(deletes).await.into_iter().collect::<Result<()>>()?;
        let mut status = plan.status;
        let created = match plan.create {
            Some(scheduled) => self.create(cron, &mut status, scheduled, &zone, subject).await,
            None => Ok(()),
        };
        self.ctx.write_status(&self.api, &cron.metadata, &cron.status, &status).await?;
        created?;
        Ok(plan.requeue_after.map_or(Action::Wait, Action::Requeue))
    }

    /// Creates the Job for a scheduled time. A Job of that name may exist already, if an earlier reconcile could not write the
    /// status after it created the Job.
    async fn create(
        &self,
        cron: &CronJob,
        status: &mut CronJobStatus,
        scheduled: Timestamp,
        zone: &TimeZone,
        subject: &Arc<Subject>,
    ) -> Result<()> {
        let mut object = plan::job(cron, scheduled, zone);
        object["metadata"]["ownerReferences"] = json!([cron.metadata.as_controller(&self.api)]);
        let key = ObjectKey::new(Some(&cron.metadata.namespace), &plan::job_name(cron, scheduled));
        let job = match self.ctx.create(&self.jobs_api, &object).await {
            Ok(job) => {
                self.ctx.event(subject, "SuccessfulCreate", format!("Created job {}", key.name()));
                Some(job)
            }
            Err(WriteError::Exists { .. }) => self.ctx.writer.get(&self.jobs_api, &key).await?,
            Err(error) if error.is_of_ending_namespace() => None,
            Err(error) => {
                self.ctx.warning(subject, "FailedCreate", format!("Error creating job: {error}"));
                return Err(error.into());
            }
        };
        let Some(job) = job else { return Ok(()) };
        let job: Job = serde_json::from_value(job)?;
        if job.metadata.controller().is_some_and(|owner| owner.uid == cron.metadata.uid) {
            status.started(&job.metadata, scheduled);
        }
        Ok(())
    }

    async fn delete(&self, job: &Job, subject: &Arc<Subject>) -> Result<()> {
        let options =
            DeleteOptions { uid: &job.metadata.uid, propagation: Some("Background"), ..DeleteOptions::default() };
        let name = &job.metadata.name;
        match self.ctx.delete(&self.jobs_api, &job.metadata.key(), &options).await {
            Ok(_) => {
                self.ctx.event(subject, "SuccessfulDelete", format!("Deleted job {name}"));
                Ok(())
            }
            Err(error) => {
                self.ctx.warning(subject, "FailedDelete", format!("Deleted job: {error}"));
                Err(error)
            }
        }
    }
}

/// The time zone of a CronJob; UTC if it names none.
fn zone(cron: &CronJob) -> Result<TimeZone, String> {
    match &cron.spec.time_zone {
        Some(name) => TimeZone::get(name).map_err(|error| error.to_string()),
        None => Ok(TimeZone::UTC),
    }
}
