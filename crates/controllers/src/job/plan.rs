//! Plans the next step of a Job. In: the Job, its pods, its failures so far, the time. Out: pods to create or to delete,
//! whether the Job has finished and why, the status, which pods lose their finalizer, when to reconcile again. Pure.
//!
//! ```text
//! plan     which pods to create or delete, and whether the Job finishes
//! tally    the status after that, with the uids of finished pods; then these pods lose their finalizer
//! finish   the status that counts the pods without a finalizer; when all are counted, it has the final condition
//! ```
//!
//! A finished pod keeps its finalizer (see `tracking`) until its uid is in the status, and the write that counts it removes
//! the uid. So each pod is counted once, even if the controller crashes in between.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::backoff::Failures;
use super::indexes::Indexes;
use super::kind::{COMPLETE, FAILED, Job, JobStatus, index_of};
use super::policy::FailureAction;
use super::tracking::is_tracked;
use crate::meta::{Condition, condition, seconds};
use crate::pods::Pod;
use crate::replicaset::{Ranked, by_deletion_order};

/// The most pods that one reconcile creates or deletes, and the most uids of finished pods in the status.
const BURST: usize = 500;

const SUCCESS_MET: &str = "SuccessCriteriaMet";
const FAILURE_MET: &str = "FailureTarget";
const SUSPENDED: &str = "Suspended";

/// What the planner reads.
pub(crate) struct Observed<'a> {
    pub job: &'a Job,
    pub pods: &'a [Arc<Pod>],
    pub failures: Failures,
    /// The backoff after the first failure.
    pub first_wait: Duration,
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    pub step: Step,
    /// How the Job finishes, if it does.
    pub outcome: Option<Outcome>,
    /// When to reconcile again if nothing changes.
    pub requeue_after: Option<Duration>,
}

/// What to do with pods.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// There are as many as there should be.
    Nothing,
    /// Create these pods; pods of an indexed Job have an index.
    Create(Vec<Option<u32>>),
    /// Delete these pods; they do not count as failed.
    DeleteSurplus(Vec<Arc<Pod>>),
    /// Delete these pods, because the Job has finished; they count as failed if it failed.
    Terminate(Vec<Arc<Pod>>),
}

/// How a Job finishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub success: bool,
    pub reason: String,
    pub message: String,
}

/// The status of a Job.
#[derive(Debug, PartialEq)]
pub(crate) struct Tally {
    pub status: JobStatus,
    /// Pods that lose their finalizer once the status is written.
    pub untrack: Vec<Arc<Pod>>,
    /// Whether there are more finished pods than one status may list.
    pub more: bool,
    /// The failures, with the new ones.
    pub failures: Failures,
    /// An event to record: a reason and a message.
    pub event: Option<(&'static str, &'static str)>,
}

/// Finished pods whose uids are not in the status yet.
struct Ended {
    succeeded: Vec<Arc<Pod>>,
    failed: Vec<Arc<Pod>>,
    /// All succeeded indexes, for an indexed Job.
    indexes: Option<Indexes>,
}

/// Makes the plan.
pub(crate) fn plan(observed: &Observed<'_>) -> Plan {
    let job = observed.job;
    let uncounted = job.status.uncounted_terminated_pods.clone().unwrap_or_default();
    let Ended { succeeded, failed, indexes } = Ended::of(job, observed.pods);
    let failures = observed.failures.with(&succeeded, &failed);
    let counting = failed.iter().filter(|pod| failure_action(job, pod) != FailureAction::Ignore).count();
    let successes = match &indexes {
        Some(indexes) => as_count(indexes.total() as usize),
        None => job.status.succeeded + as_count(succeeded.len() + uncounted.succeeded.len()),
    };
    let failed = job.status.failed + as_count(counting + uncounted.failed.len());
    let active: Vec<Arc<Pod>> = observed.pods.iter().filter(|pod| pod.is_active()).cloned().collect();

    let mut requeue_after = None;
    let mut outcome = decided(job)
        .or_else(|| failure(observed, failed, &mut requeue_after))
        .or_else(|| Some(completed("SuccessPolicy", success_policy(job, indexes.as_ref())?)));
    let step = match &outcome {
        Some(_) if active.is_empty() => Step::Nothing,
        Some(_) => Step::Terminate(active),
        None => {
            let (step, wait) = manage(observed, &active, successes, indexes.as_ref(), failures);
            requeue_after = [requeue_after, wait].into_iter().flatten().min();
            let surplus = if let Step::DeleteSurplus(pods) = &step { pods.len() } else { 0 };
            let enough = job.completions().map_or(successes > 0, |wanted| successes >= wanted);
            if enough && active.len() == surplus {
                outcome = Some(completed("CompletionsReached", "Reached expected number of succeeded pods".into()));
            }
            step
        }
    };
    let requeue_after = requeue_after.filter(|_| outcome.is_none());
    Plan { step, outcome, requeue_after }
}

/// The status of a Job after the step was taken: pods may have finished since the plan was made.
pub(crate) fn tally(job: &Job, plan: &Plan, pods: &[Arc<Pod>], failures: Failures, now: Timestamp) -> Tally {
    // Pods that the step deleted did not finish by themselves, whatever their phase is now.
    let terminated: HashSet<&str> = match &plan.step {
        Step::Terminate(pods) => pods.iter().map(|pod| pod.metadata.uid.as_str()).collect(),
        Step::Nothing | Step::Create(_) | Step::DeleteSurplus(_) => HashSet::new(),
    };
    let by_themselves = pods.iter().filter(|pod| !terminated.contains(pod.metadata.uid.as_str()));
    let ended = Ended::of(job, &by_themselves.cloned().collect::<Vec<_>>());
    let failures = failures.with(&ended.succeeded, &ended.failed);
    let mut status = count_untracked(job, job.status.clone(), pods);
    if status.start_time.is_none() && !job.is_suspended() {
        status.start_time = Some(seconds(now));
    }
    let count = |test: &dyn Fn(&Pod) -> bool| as_count(pods.iter().filter(|pod| test(pod)).count());
    status.active = count(&Pod::is_active);
    status.ready = Some(count(&|pod| pod.is_active() && pod.is_ready()));
    status.terminating = Some(count(&Pod::is_terminating));

    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let ends = plan.outcome.is_some() || job.metadata.is_terminating();
    let all_fail = plan.outcome.as_ref().is_some_and(|outcome| !outcome.success);
    let (mut untrack, mut new_indexes) = (Vec::new(), 0);
    let mut more = false;
    for pod in pods.iter().filter(|pod| is_tracked(&pod.metadata)) {
        let terminated = terminated.contains(pod.metadata.uid.as_str());
        let (success, failed) = (pod.status.phase == "Succeeded" && !terminated, job.is_failed(pod) && !terminated);
        if !(ends || success || failed) {
            continue;
        }
        if uncounted.len() + new_indexes >= BURST {
            more = true;
            break;
        }
        untrack.push(pod.clone());
        let uid = &pod.metadata.uid;
        match () {
            () if uncounted.failed.contains(uid) || uncounted.succeeded.contains(uid) => {}
            () if success && job.indexes().is_some() => new_indexes += 1,
            () if success => uncounted.succeeded.push(uid.clone()),
            () if (failed || all_fail)
                && has_valid_index(job, pod)
                && failure_action(job, pod) != FailureAction::Ignore =>
            {
                uncounted.failed.push(uid.clone());
            }
            () => {}
        }
    }
    status.uncounted_terminated_pods = Some(uncounted);
    if let Some(succeeded) = &ended.indexes {
        status.succeeded = as_count(succeeded.total() as usize);
        status.completed_indexes = succeeded.to_string();
    }
    let event = match &plan.outcome {
        Some(outcome) => {
            let met = if outcome.success { SUCCESS_MET } else { FAILURE_MET };
            set(&mut status.conditions, met, "True", &outcome.reason, &outcome.message, now);
            None
        }
        None if job.metadata.is_terminating() => None,
        None => suspension(job, &mut status, now),
    };
    Tally { status, untrack, more, failures, event }
}

/// The status that counts the pods without a finalizer. When all are counted, it has the final condition, and the outcome is
/// returned as well.
pub(crate) fn finish(
    job: &Job,
    plan: &Plan,
    tally: &Tally,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (JobStatus, Option<Outcome>) {
    let mut status = count_untracked(job, tally.status.clone(), pods);
    let all_counted = status.uncounted_terminated_pods.as_ref().is_none_or(|uncounted| uncounted.len() == 0);
    let none_left = !pods.iter().any(|pod| pod.is_terminating());
    let Some(outcome) = plan.outcome.clone().filter(|_| all_counted && none_left && !tally.more) else {
        return (status, None);
    };
    let type_ = if outcome.success { COMPLETE } else { FAILED };
    set(&mut status.conditions, type_, "True", &outcome.reason, &outcome.message, now);
    status.terminating = Some(0);
    if outcome.success {
        status.completion_time = Some(seconds(now));
    }
    (status, Some(outcome))
}

impl Ended {
    fn of(job: &Job, pods: &[Arc<Pod>]) -> Self {
        let uncounted = job.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let new = |known: &[String], test: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
            let is_new = |pod: &&Arc<Pod>| {
                is_tracked(&pod.metadata)
                    && !known.contains(&pod.metadata.uid)
                    && has_valid_index(job, pod)
                    && test(pod)
            };
            pods.iter().filter(is_new).cloned().collect()
        };
        let succeeded = new(&uncounted.succeeded, &|pod| pod.status.phase == "Succeeded");
        let failed = new(&uncounted.failed, &|pod| job.is_failed(pod));
        let indexes = job.indexes().map(|limit| {
            let done = Indexes::parse(&job.status.completed_indexes, limit);
            done.with(succeeded.iter().filter_map(|pod| index_of(pod)))
        });
        Self { succeeded, failed, indexes }
    }
}

/// How the Job finishes, if an earlier reconcile decided that.
fn decided(job: &Job) -> Option<Outcome> {
    let met = |type_| condition(&job.status.conditions, type_).filter(|met| met.status == "True");
    let outcome =
        |success, met: &Condition| Outcome { success, reason: met.reason.clone(), message: met.message.clone() };
    (met(SUCCESS_MET).map(|met| outcome(true, met))).or_else(|| met(FAILURE_MET).map(|met| outcome(false, met)))
}

/// Why the Job fails, if it does; otherwise sets when its deadline has to be checked.
fn failure(observed: &Observed<'_>, failed: i32, requeue_after: &mut Option<Duration>) -> Option<Outcome> {
    let job = observed.job;
    let outcome =
        |reason: &str, message: &str| Some(Outcome { success: false, reason: reason.into(), message: message.into() });
    let fails_job =
        observed.pods.iter().filter(|pod| job.is_failed(pod)).find_map(|pod| match failure_action(job, pod) {
            FailureAction::FailJob(why) => Some(why),
            FailureAction::Count | FailureAction::Ignore => None,
        });
    if let Some(why) = fails_job {
        return outcome("PodFailurePolicy", &why);
    }
    if failed > job.backoff_limit() || restarted_too_often(job, observed.pods) {
        return outcome("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    let limit = SignedDuration::from_secs(job.spec.active_deadline_seconds.filter(|_| !job.is_suspended())?);
    let since = job.status.start_time.as_ref().map_or(observed.now, |start| start.0);
    let left = limit - observed.now.duration_since(since);
    if !left.is_positive() {
        return outcome("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    *requeue_after = Duration::try_from(left).ok();
    None
}

/// Whether containers that are restarted in place exceeded the backoff limit.
fn restarted_too_often(job: &Job, pods: &[Arc<Pod>]) -> bool {
    if !job.restarts_in_place() {
        return false;
    }
    let running = pods.iter().filter(|pod| matches!(pod.status.phase.as_str(), "Running" | "Pending"));
    let containers =
        running.flat_map(|pod| pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses));
    let restarts: i32 = containers.map(|container| container.restart_count).sum();
    restarts > 0 && restarts >= job.backoff_limit()
}

fn success_policy(job: &Job, succeeded: Option<&Indexes>) -> Option<String> {
    job.spec.success_policy.as_ref()?.met(succeeded?, job.indexes()?)
}

fn completed(reason: &str, message: String) -> Outcome {
    Outcome { success: true, reason: reason.into(), message }
}

/// Pods to create or to delete, or how long to back off before pods are created.
fn manage(
    observed: &Observed<'_>,
    active: &[Arc<Pod>],
    succeeded: i32,
    indexes: Option<&Indexes>,
    failures: Failures,
) -> (Step, Option<Duration>) {
    let job = observed.job;
    if job.metadata.is_terminating() {
        return (Step::Nothing, None);
    }
    let running = as_count(active.len());
    let wanted = match job.completions() {
        _ if job.is_suspended() => 0,
        // One pod succeeded, so the work is done: running pods may finish, and no pods are added.
        None if succeeded > 0 => running,
        None => job.parallelism(),
        Some(completions) => job.parallelism().min(completions - succeeded).max(0),
    };
    let surplus_pods = surplus_pods(job, active, usize::try_from(running - wanted).unwrap_or_default(), observed.now);
    if !surplus_pods.is_empty() {
        return (Step::DeleteSurplus(surplus_pods), None);
    }
    let leaving = observed.pods.iter().filter(|pod| pod.is_terminating() && job.replaces_after_termination());
    let leaving: Vec<&Arc<Pod>> = leaving.collect();
    let missing = usize::try_from(wanted - running - as_count(leaving.len())).unwrap_or_default().min(BURST);
    if missing == 0 {
        return (Step::Nothing, None);
    }
    if let Some(wait) = failures.wait(observed.first_wait, observed.now) {
        return (Step::Nothing, Some(wait));
    }
    let new: Vec<Option<u32>> = match indexes.zip(job.indexes()) {
        Some((done, limit)) => {
            let taken = done.with(active.iter().chain(leaving).filter_map(|pod| index_of(pod)));
            taken.missing(missing, limit).into_iter().map(Some).collect()
        }
        None => vec![None; missing],
    };
    (if new.is_empty() { Step::Nothing } else { Step::Create(new) }, None)
}

/// The pods to delete: those without a valid or with a duplicate index, then as many others as are surplus.
fn surplus_pods(job: &Job, active: &[Arc<Pod>], surplus: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut ranked: Vec<Ranked<'_>> = active.iter().map(|pod| Ranked { pod, neighbours: 0 }).collect();
    ranked.sort_by(|a, b| by_deletion_order(a, b, now));
    let mut order: Vec<&Arc<Pod>> = ranked.into_iter().map(|ranked| ranked.pod).collect();
    let mut without_index = Vec::new();
    if let Some(limit) = job.indexes() {
        // Of two pods with the same index, the one that ranks last is kept.
        let mut keeps: BTreeMap<u32, &str> = BTreeMap::new();
        for pod in &order {
            keeps.extend(index_of(pod).filter(|index| *index < limit).map(|index| (index, pod.metadata.uid.as_str())));
        }
        let stays = |pod: &Arc<Pod>| index_of(pod).is_some_and(|index| keeps.get(&index) == Some(&&*pod.metadata.uid));
        let (placed, others): (Vec<_>, Vec<_>) = order.into_iter().partition(|pod| stays(pod));
        (order, without_index) = (placed, others);
    }
    let more = surplus.saturating_sub(without_index.len());
    without_index.into_iter().chain(order.into_iter().take(more)).take(BURST).cloned().collect()
}

/// Updates the condition `Suspended`. A Job that is resumed gets a new start time.
fn suspension(job: &Job, status: &mut JobStatus, now: Timestamp) -> Option<(&'static str, &'static str)> {
    let is = condition(&status.conditions, SUSPENDED).is_some_and(|suspended| suspended.status == "True");
    match (is, job.is_suspended()) {
        (false, true) => {
            set(&mut status.conditions, SUSPENDED, "True", "JobSuspended", "Job suspended", now);
            status.start_time = None;
            Some(("Suspended", "Job suspended"))
        }
        (true, false) => {
            set(&mut status.conditions, SUSPENDED, "False", "JobResumed", "Job resumed", now);
            status.start_time = Some(seconds(now));
            Some(("Resumed", "Job resumed"))
        }
        _ => None,
    }
}

/// Counts the pods whose uids are in the status and that have no finalizer any more.
fn count_untracked(job: &Job, mut status: JobStatus, pods: &[Arc<Pod>]) -> JobStatus {
    let tracked = pods.iter().filter(|pod| is_tracked(&pod.metadata));
    let tracked: HashSet<&str> = tracked.map(|pod| pod.metadata.uid.as_str()).collect();
    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let count = |uids: &mut Vec<String>| {
        let before = uids.len();
        uids.retain(|uid| tracked.contains(uid.as_str()));
        as_count(before - uids.len())
    };
    let succeeded = count(&mut uncounted.succeeded);
    status.failed += count(&mut uncounted.failed);
    // Pods of an indexed Job are counted by their index.
    if job.indexes().is_none() {
        status.succeeded += succeeded;
    }
    status.uncounted_terminated_pods = Some(uncounted);
    status
}

/// Whether a pod counts: a pod of an indexed Job needs a valid index.
fn has_valid_index(job: &Job, pod: &Pod) -> bool {
    job.indexes().is_none_or(|limit| index_of(pod).is_some_and(|index| index < limit))
}

fn failure_action(job: &Job, pod: &Pod) -> FailureAction {
    job.spec.pod_failure_policy.as_ref().map_or(FailureAction::Count, |policy| policy.action_for(pod))
}

fn set(conditions: &mut Vec<Condition>, type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
    let new = Condition { last_probe_time: Some(seconds(now)), ..Condition::new(type_, status, reason, message, now) };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(before) if (&*before.status, &*before.reason) == (status, reason) => {}
        Some(before) => *before = new,
        None => conditions.push(new),
    }
}

fn as_count(many: usize) -> i32 {
    i32::try_from(many).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
