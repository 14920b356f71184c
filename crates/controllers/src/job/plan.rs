//! What a Job needs. In: the Job, its pods, its failures so far, the time. Out: pods to create or to delete, whether it has
//! come to its end and why, what its status is, which pods may go, when to look again. Pure.
//!
//! ```text
//! plan     what to do with pods, and how it ends
//! tally    what is true after that: pods that ended are written down, then they may go
//! settle   those that went are counted; when all are, the end is written
//! ```
//!
//! A pod stays (see `tracking`) until its uid is written down, and leaves the list of uids in the same write that counts
//! it. So each pod counts once, whenever the controller dies.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::backoff::Failures;
use super::indexes::Indexes;
use super::kind::{COMPLETE, FAILED, Job, JobStatus, index_of};
use super::policy::Verdict;
use super::tracking::is_tracked;
use crate::meta::{Condition, condition, seconds};
use crate::pods::Pod;
use crate::replicaset::{Ranked, first_to_go};

/// The most pods that are created or deleted in one go, and the most whose end is written down at once: their uids must
/// not make the status heavy.
const BURST: usize = 500;

const SUCCESS_MET: &str = "SuccessCriteriaMet";
const FAILURE_MET: &str = "FailureTarget";
const SUSPENDED: &str = "Suspended";

/// What the planner reads.
pub(crate) struct Seen<'a> {
    pub job: &'a Job,
    pub pods: &'a [Arc<Pod>],
    pub failures: Failures,
    /// How long the first failure waits.
    pub first_wait: Duration,
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    pub step: Step,
    /// How it ends, if it does.
    pub outcome: Option<Outcome>,
    /// When to reconcile again if nothing changes.
    pub again: Option<Duration>,
}

/// What to do with pods.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// They are as they should be.
    Rest,
    /// So many are missing; those of an indexed Job have a number.
    Create(Vec<Option<u32>>),
    /// These are too many: they go, and do not count.
    Spare(Vec<Arc<Pod>>),
    /// These are ended, and count.
    End(Vec<Arc<Pod>>),
}

/// How a Job ends.
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
    /// Pods that may go once the status is written.
    pub release: Vec<Arc<Pod>>,
    /// Whether there are more pods to count than one status takes.
    pub more: bool,
    /// Failures with those that are new.
    pub failures: Failures,
    /// What to tell: a reason, a message.
    pub event: Option<(&'static str, &'static str)>,
}

/// Pods that have ended and are not written down yet.
struct Ended {
    succeeded: Vec<Arc<Pod>>,
    failed: Vec<Arc<Pod>>,
    /// All indexes that have succeeded, of a Job that has them.
    indexes: Option<Indexes>,
}

/// Makes the plan.
pub(crate) fn plan(seen: &Seen<'_>) -> Plan {
    let job = seen.job;
    let uncounted = job.status.uncounted_terminated_pods.clone().unwrap_or_default();
    let Ended { succeeded, failed, indexes } = Ended::of(job, seen.pods);
    let failures = seen.failures.with(&succeeded, &failed);
    let counting = failed.iter().filter(|pod| verdict(job, pod) != Verdict::Ignore).count();
    let successes = match &indexes {
        Some(indexes) => as_count(indexes.total() as usize),
        None => job.status.succeeded + as_count(succeeded.len() + uncounted.succeeded.len()),
    };
    let failed = job.status.failed + as_count(counting + uncounted.failed.len());
    let active: Vec<Arc<Pod>> = seen.pods.iter().filter(|pod| pod.is_active()).cloned().collect();

    let mut again = None;
    let mut outcome = decided(job)
        .or_else(|| failure(seen, failed, &mut again))
        .or_else(|| Some(completed("SuccessPolicy", success_policy(job, indexes.as_ref())?)));
    let step = match &outcome {
        Some(_) if active.is_empty() => Step::Rest,
        Some(_) => Step::End(active),
        None => {
            let (step, wait) = manage(seen, &active, successes, indexes.as_ref(), failures);
            again = [again, wait].into_iter().flatten().min();
            let spared = if let Step::Spare(pods) = &step { pods.len() } else { 0 };
            let enough = job.completions().map_or(successes > 0, |wanted| successes >= wanted);
            if enough && active.len() == spared {
                outcome = Some(completed("CompletionsReached", "Reached expected number of succeeded pods".into()));
            }
            step
        }
    };
    let again = again.filter(|_| outcome.is_none());
    Plan { step, outcome, again }
}

/// What is true of a Job, given its pods after the step was taken: some may have ended since the plan was made.
pub(crate) fn tally(job: &Job, plan: &Plan, pods: &[Arc<Pod>], failures: Failures, now: Timestamp) -> Tally {
    // Those that the step told to go did not end by themselves, however they took it.
    let told: HashSet<&str> = match &plan.step {
        Step::End(pods) => pods.iter().map(|pod| pod.metadata.uid.as_str()).collect(),
        Step::Rest | Step::Create(_) | Step::Spare(_) => HashSet::new(),
    };
    let by_themselves = pods.iter().filter(|pod| !told.contains(pod.metadata.uid.as_str()));
    let ended = Ended::of(job, &by_themselves.cloned().collect::<Vec<_>>());
    let failures = failures.with(&ended.succeeded, &ended.failed);
    let mut status = settled(job, job.status.clone(), pods);
    if status.start_time.is_none() && !job.is_suspended() {
        status.start_time = Some(seconds(now));
    }
    let count = |test: &dyn Fn(&Pod) -> bool| as_count(pods.iter().filter(|pod| test(pod)).count());
    status.active = count(&Pod::is_active);
    status.ready = Some(count(&|pod| pod.is_active() && pod.is_ready()));
    status.terminating = Some(count(&Pod::is_leaving));

    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let ends = plan.outcome.is_some() || job.metadata.is_terminating();
    let all_fail = plan.outcome.as_ref().is_some_and(|outcome| !outcome.success);
    let (mut release, mut new_indexes) = (Vec::new(), 0);
    let mut more = false;
    for pod in pods.iter().filter(|pod| is_tracked(&pod.metadata)) {
        let told = told.contains(pod.metadata.uid.as_str());
        let (success, failed) = (pod.status.phase == "Succeeded" && !told, job.is_failed(pod) && !told);
        if !(ends || success || failed) {
            continue;
        }
        if uncounted.len() + new_indexes >= BURST {
            more = true;
            break;
        }
        release.push(pod.clone());
        let uid = &pod.metadata.uid;
        match () {
            () if uncounted.failed.contains(uid) || uncounted.succeeded.contains(uid) => {}
            () if success && job.indexes().is_some() => new_indexes += 1,
            () if success => uncounted.succeeded.push(uid.clone()),
            () if (failed || all_fail) && has_a_place(job, pod) && verdict(job, pod) != Verdict::Ignore => {
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
    Tally { status, release, more, failures, event }
}

/// The status after pods went: they are counted, and when all are, the end is written. Answers with how it ended, too.
pub(crate) fn settle(
    job: &Job,
    plan: &Plan,
    tally: &Tally,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (JobStatus, Option<Outcome>) {
    let mut status = settled(job, tally.status.clone(), pods);
    let all_counted = status.uncounted_terminated_pods.as_ref().is_none_or(|uncounted| uncounted.len() == 0);
    let none_left = !pods.iter().any(|pod| pod.is_leaving());
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
                is_tracked(&pod.metadata) && !known.contains(&pod.metadata.uid) && has_a_place(job, pod) && test(pod)
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

/// How it ends, if that was written before.
fn decided(job: &Job) -> Option<Outcome> {
    let met = |type_| condition(&job.status.conditions, type_).filter(|met| met.status == "True");
    let outcome =
        |success, met: &Condition| Outcome { success, reason: met.reason.clone(), message: met.message.clone() };
    (met(SUCCESS_MET).map(|met| outcome(true, met))).or_else(|| met(FAILURE_MET).map(|met| outcome(false, met)))
}

/// Why it fails, if it does; else when to see whether its time is over.
fn failure(seen: &Seen<'_>, failed: i32, again: &mut Option<Duration>) -> Option<Outcome> {
    let job = seen.job;
    let outcome =
        |reason: &str, message: &str| Some(Outcome { success: false, reason: reason.into(), message: message.into() });
    let judged = seen.pods.iter().filter(|pod| job.is_failed(pod)).find_map(|pod| match verdict(job, pod) {
        Verdict::FailJob(why) => Some(why),
        Verdict::Count | Verdict::Ignore => None,
    });
    if let Some(why) = judged {
        return outcome("PodFailurePolicy", &why);
    }
    if failed > job.backoff_limit() || restarted_too_often(job, seen.pods) {
        return outcome("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    let limit = SignedDuration::from_secs(job.spec.active_deadline_seconds.filter(|_| !job.is_suspended())?);
    let since = job.status.start_time.as_ref().map_or(seen.now, |start| start.0);
    let left = limit - seen.now.duration_since(since);
    if !left.is_positive() {
        return outcome("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    *again = Duration::try_from(left).ok();
    None
}

/// Whether containers that restart in place did so too often.
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

/// Pods to create or to delete, or how long to wait before some are created.
fn manage(
    seen: &Seen<'_>,
    active: &[Arc<Pod>],
    succeeded: i32,
    indexes: Option<&Indexes>,
    failures: Failures,
) -> (Step, Option<Duration>) {
    let job = seen.job;
    if job.metadata.is_terminating() {
        return (Step::Rest, None);
    }
    let running = as_count(active.len());
    let wanted = match job.completions() {
        _ if job.is_suspended() => 0,
        // One has said that all is done: the others may finish, and nobody is added.
        None if succeeded > 0 => running,
        None => job.parallelism(),
        Some(completions) => job.parallelism().min(completions - succeeded).max(0),
    };
    let spare = spare(job, active, usize::try_from(running - wanted).unwrap_or_default(), seen.now);
    if !spare.is_empty() {
        return (Step::Spare(spare), None);
    }
    let leaving = seen.pods.iter().filter(|pod| pod.is_leaving() && job.waits_for_the_end());
    let leaving: Vec<&Arc<Pod>> = leaving.collect();
    let missing = usize::try_from(wanted - running - as_count(leaving.len())).unwrap_or_default().min(BURST);
    if missing == 0 {
        return (Step::Rest, None);
    }
    if let Some(wait) = failures.wait(seen.first_wait, seen.now) {
        return (Step::Rest, Some(wait));
    }
    let new: Vec<Option<u32>> = match indexes.zip(job.indexes()) {
        Some((done, limit)) => {
            let taken = done.with(active.iter().chain(leaving).filter_map(|pod| index_of(pod)));
            taken.missing(missing, limit).into_iter().map(Some).collect()
        }
        None => vec![None; missing],
    };
    (if new.is_empty() { Step::Rest } else { Step::Create(new) }, None)
}

/// Which pods are too many: those without an index of their own, and then as many as there are too many.
fn spare(job: &Job, active: &[Arc<Pod>], surplus: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut ranked: Vec<Ranked<'_>> = active.iter().map(|pod| Ranked { pod, neighbours: 0 }).collect();
    ranked.sort_by(|a, b| first_to_go(a, b, now));
    let mut order: Vec<&Arc<Pod>> = ranked.into_iter().map(|ranked| ranked.pod).collect();
    let mut misplaced = Vec::new();
    if let Some(limit) = job.indexes() {
        // Of two with the same index the one that would go last stays.
        let mut keeps: BTreeMap<u32, &str> = BTreeMap::new();
        for pod in &order {
            keeps.extend(index_of(pod).filter(|index| *index < limit).map(|index| (index, pod.metadata.uid.as_str())));
        }
        let stays = |pod: &Arc<Pod>| index_of(pod).is_some_and(|index| keeps.get(&index) == Some(&&*pod.metadata.uid));
        let (placed, others): (Vec<_>, Vec<_>) = order.into_iter().partition(|pod| stays(pod));
        (order, misplaced) = (placed, others);
    }
    let more = surplus.saturating_sub(misplaced.len());
    misplaced.into_iter().chain(order.into_iter().take(more)).take(BURST).cloned().collect()
}

/// Says whether it is suspended. What starts again starts its time again.
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

/// Counts the pods that were written down and are held no more.
fn settled(job: &Job, mut status: JobStatus, pods: &[Arc<Pod>]) -> JobStatus {
    let held = pods.iter().filter(|pod| is_tracked(&pod.metadata));
    let held: HashSet<&str> = held.map(|pod| pod.metadata.uid.as_str()).collect();
    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let count = |uids: &mut Vec<String>| {
        let before = uids.len();
        uids.retain(|uid| held.contains(uid.as_str()));
        as_count(before - uids.len())
    };
    let succeeded = count(&mut uncounted.succeeded);
    status.failed += count(&mut uncounted.failed);
    // Those with an index are counted by it.
    if job.indexes().is_none() {
        status.succeeded += succeeded;
    }
    status.uncounted_terminated_pods = Some(uncounted);
    status
}

/// Whether a pod works on something: of an indexed Job it needs an index that exists.
fn has_a_place(job: &Job, pod: &Pod) -> bool {
    job.indexes().is_none_or(|limit| index_of(pod).is_some_and(|index| index < limit))
}

fn verdict(job: &Job, pod: &Pod) -> Verdict {
    job.spec.pod_failure_policy.as_ref().map_or(Verdict::Count, |policy| policy.judge(pod))
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
