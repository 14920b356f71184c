//! Plans the next step of a CronJob. In: the CronJob, its Jobs, its time zone, the time. Out: the Job to create, the Jobs to
//! delete, the status, events, and when to reconcile again. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schedule::Schedule;
use crate::context::PlannedEvent;
use crate::job::{Ending, Job};
use crate::meta::{HasMeta, Meta, stamp};

/// The annotation of a Job with the time that it was scheduled for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// The annotation of a Job that a user created from a CronJob.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";

/// Above this many missed times a warning event is recorded.
const TOO_MANY_MISSED: i64 = 100;

/// The reconcile comes this much after the scheduled time, so that a slow clock does not find it too early.
const LATE: Duration = Duration::from_millis(100);

/// The defaults of the history limits in Kubernetes.
const SUCCESSFUL_KEPT: i32 = 3;
const FAILED_KEPT: i32 = 1;

/// A CronJob.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct CronJob {
    pub metadata: Meta,
    pub spec: CronJobSpec,
    pub status: CronJobStatus,
}

/// The spec of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CronJobSpec {
    pub schedule: String,
    pub time_zone: Option<String>,
    pub starting_deadline_seconds: Option<i64>,
    pub concurrency_policy: Option<String>,
    pub suspend: Option<bool>,
    pub successful_jobs_history_limit: Option<i32>,
    pub failed_jobs_history_limit: Option<i32>,
    pub job_template: Value,
}

/// The status of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CronJobStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,
}

/// A reference to an active Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub resource_version: String,
    pub uid: String,
}

/// What the planner reads.
pub(crate) struct Observed<'a> {
    pub cron: &'a CronJob,
    pub jobs: &'a [Arc<Job>],
    /// The time zone, or why it is invalid.
    pub zone: Result<TimeZone, String>,
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The status before a Job is created.
    pub status: CronJobStatus,
    /// Jobs to delete.
    pub delete: Vec<Arc<Job>>,
    /// The scheduled time of the Job to create.
    pub create: Option<Timestamp>,
    /// Events to record.
    pub events: Vec<PlannedEvent>,
    /// When to reconcile again if nothing changes.
    pub requeue_after: Option<Duration>,
}

/// The scheduled time that is due.
struct Due {
    /// The time from which the next scheduled time is computed.
    anchor: Timestamp,
    /// The latest scheduled time that has passed without a Job.
    latest: Option<Timestamp>,
    missed: i64,
}

impl HasMeta for CronJob {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Makes the plan.
pub(crate) fn plan(observed: &Observed<'_>) -> Plan {
    let cron = observed.cron;
    let mut plan = Plan { status: cron.status.clone(), ..Plan::default() };
    plan.update_active(cron, observed.jobs);
    if cron.metadata.is_terminating() {
        return plan;
    }
    plan.clean_up(cron, observed.jobs);
    plan.start(observed);
    plan
}

/// The Job for a scheduled time, without its owner reference.
pub(crate) fn job(cron: &CronJob, scheduled: Timestamp, zone: &TimeZone) -> Value {
    let template = &cron.spec.job_template;
    let mut metadata = json!({"name": job_name(cron, scheduled), "namespace": cron.metadata.namespace});
    for field in ["labels", "annotations"] {
        if let Some(texts) = template["metadata"].get(field).filter(|texts| texts.is_object()) {
            metadata[field] = texts.clone();
        }
    }
    let when = match *zone == TimeZone::UTC {
        true => stamp(scheduled),
        false => scheduled.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    };
    metadata["annotations"][SCHEDULED] = when.into();
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]})
}

/// The name of the Job for a scheduled time. It is the same for the same minute, so that the Job is created once.
pub(crate) fn job_name(cron: &CronJob, scheduled: Timestamp) -> String {
    format!("{}-{}", cron.metadata.name, scheduled.as_second().div_euclid(60))
}

impl CronJobStatus {
    /// Records that the Job for a scheduled time was started.
    pub(super) fn started(&mut self, job: &Meta, scheduled: Timestamp) {
        if !self.active.iter().any(|active| active.uid == job.uid) {
            self.active.push(Reference {
                api_version: "batch/v1".into(),
                kind: "Job".into(),
                name: job.name.clone(),
                namespace: job.namespace.clone(),
                resource_version: job.resource_version.clone(),
                uid: job.uid.clone(),
            });
        }
        self.last_schedule_time = Some(Time(scheduled));
    }
}

impl Plan {
    fn event(&mut self, reason: &'static str, message: String) {
        self.events.push(PlannedEvent { warning: false, reason, message });
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.events.push(PlannedEvent { warning: true, reason, message });
    }

    /// Updates the active Jobs and the time of the last success.
    fn update_active(&mut self, cron: &CronJob, jobs: &[Arc<Job>]) {
        for job in jobs {
            let (uid, name) = (&job.metadata.uid, &job.metadata.name);
            let at = self.status.active.iter().position(|active| active.uid == *uid);
            match (job.ending(), at) {
                (Some(ending), at) => {
                    if let Some(at) = at {
                        self.status.active.remove(at);
                        self.event("SawCompletedJob", format!("Saw completed job: {name}, condition: {ending}"));
                    }
                    let success = job.status.completion_time.as_ref().filter(|_| ending == Ending::Complete);
                    let last = self.status.last_successful_time.as_ref();
                    if success.is_some_and(|success| last.is_none_or(|last| success.0 > last.0)) {
                        self.status.last_successful_time = success.cloned();
                    }
                }
                // A Job that a user created is expected, and so is one of ours that could not be recorded in the status.
                (None, None)
                    if !job.metadata.annotations.contains_key(INSTANTIATE)
                        && !name.starts_with(&format!("{}-", cron.metadata.name)) =>
                {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.warn("UnexpectedJob", message);
                }
                (None, _) => {}
            }
        }
        let exists = |active: &Reference| jobs.iter().any(|job| job.metadata.uid == active.uid);
        let (existing, missing): (Vec<_>, Vec<_>) = self.status.active.drain(..).partition(exists);
        self.status.active = existing;
        for missing in missing {
            self.event("MissingJob", format!("Active job went missing: {}", missing.name));
        }
    }

    /// Deletes finished Jobs beyond the history limits, the oldest first.
    fn clean_up(&mut self, cron: &CronJob, jobs: &[Arc<Job>]) {
        let spec = &cron.spec;
        let limits = [
            (Ending::Complete, spec.successful_jobs_history_limit.unwrap_or(SUCCESSFUL_KEPT)),
            (Ending::Failed, spec.failed_jobs_history_limit.unwrap_or(FAILED_KEPT)),
        ];
        for (ending, kept) in limits {
            let ended = |job: &&Arc<Job>| job.ending() == Some(ending) && !job.metadata.is_terminating();
            let mut ended: Vec<&Arc<Job>> = jobs.iter().filter(ended).collect();
            let started = |job: &Job| job.status.start_time.as_ref().map_or(Timestamp::MAX, |start| start.0);
            ended.sort_by(|a, b| started(a).cmp(&started(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name)));
            let surplus = ended.len().saturating_sub(usize::try_from(kept).unwrap_or_default());
            self.delete.extend(ended.into_iter().take(surplus).cloned());
        }
    }

    /// Creates a Job if one is due.
    fn start(&mut self, observed: &Observed<'_>) {
        let (cron, now) = (observed.cron, observed.now);
        let zone = match &observed.zone {
            Ok(zone) => zone,
            Err(why) => {
                let name = cron.spec.time_zone.as_deref().unwrap_or_default();
                return self.warn("UnknownTimeZone", format!("invalid timeZone: {name:?}: {why}"));
            }
        };
        if cron.spec.suspend.unwrap_or_default() {
            return;
        }
        let text = &cron.spec.schedule;
        let schedule = match Schedule::parse(text) {
            Ok(schedule) => schedule,
            Err(why) => return self.warn("UnparseableSchedule", format!("unparseable schedule: {text:?} : {why}")),
        };
        let deadline = cron.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
        let Some(due) = due(cron, &schedule, zone, deadline, now) else {
            let why = "time difference between two schedules is less than 1 second";
            return self.warn("InvalidSchedule", format!("invalid schedule: {text} : {why}"));
        };
        self.requeue_after = until_next(cron, &schedule, zone, now);
        let Some(scheduled) = due.latest else { return };
        if due.missed > TOO_MANY_MISSED {
            let advice =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.warn("TooManyMissedTimes", advice.into());
        }
        if deadline.is_some_and(|deadline| now.duration_since(scheduled) > deadline) {
            let when = scheduled.strftime("%a, %d %b %Y %H:%M:%S +0000");
            return self.warn("MissSchedule", format!("Missed scheduled time to start a job: {when}"));
        }
        let name = job_name(cron, scheduled);
        let done = cron.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == scheduled);
        if done || self.status.active.iter().any(|active| active.name == name) {
            return;
        }
        match cron.spec.concurrency_policy.as_deref() {
            Some("Forbid") if !self.status.active.is_empty() => {
                let why = "Not starting job because prior execution is running and concurrency policy is Forbid";
                return self.event("JobAlreadyActive", why.into());
            }
            Some("Replace") => {
                let active = std::mem::take(&mut self.status.active);
                let is_active = |job: &&Arc<Job>| active.iter().any(|active| active.uid == job.metadata.uid);
                self.delete.extend(observed.jobs.iter().filter(is_active).cloned());
            }
            _ => {}
        }
        self.create = Some(scheduled);
    }
}

/// The latest scheduled time since the last one; `None` if the schedule is invalid.
fn due(
    cron: &CronJob,
    schedule: &Schedule,
    zone: &TimeZone,
    deadline: Option<SignedDuration>,
    now: Timestamp,
) -> Option<Due> {
    let last = cron.status.last_schedule_time.as_ref().map(|time| time.0);
    let since = last.or_else(|| cron.metadata.created()).unwrap_or(now);
    let anchor = match deadline.and_then(|deadline| now.checked_sub(deadline).ok()) {
        Some(earliest) => since.max(earliest),
        None => since,
    };
    let first = schedule.next(anchor, zone)?;
    if now < first {
        return Some(Due { anchor, latest: None, missed: 0 });
    }
    let second = schedule.next(first, zone)?;
    if now < second {
        return Some(Due { anchor, latest: Some(first), missed: 0 });
    }
    let between = second.duration_since(first).as_secs();
    if between < 1 {
        return None;
    }
    // The number of missed times is an estimate, so the schedule itself is asked from a little before the latest one.
    let missed = now.duration_since(first).as_secs() / between + 1;
    let mut at = first.checked_add(SignedDuration::from_secs((missed - 2) * between)).ok()?;
    let mut latest = None;
    while let Some(next) = schedule.next(at, zone).filter(|next| *next <= now) {
        (at, latest) = (next, Some(next));
    }
    Some(Due { anchor, latest, missed })
}

/// How long it takes until the next scheduled time.
fn until_next(cron: &CronJob, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Option<Duration> {
    let from = match due(cron, schedule, zone, None, now) {
        Some(Due { latest: Some(latest), .. }) => latest,
        Some(Due { anchor, missed: 0, .. }) => anchor,
        _ => now,
    };
    let wait = schedule.next(from, zone)?.duration_since(now);
    Some(Duration::try_from(wait).unwrap_or_default() + LATE)
}

#[cfg(test)]
mod tests;
