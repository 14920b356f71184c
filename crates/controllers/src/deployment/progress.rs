//! The status of a Deployment. In: a draft of the plan. Out: counts, and the conditions `Available`, `Progressing` and
//! `ReplicaFailure`. `kubectl rollout status` reads their reasons. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::kind::{Deployment, DeploymentStatus};
use super::plan::Draft;
use crate::meta::{self, Condition, seconds, set_condition};
use crate::replicaset::ReplicaSetStatus;

pub(super) const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// A condition of a Deployment with the current time.
pub(super) fn condition(type_: &str, status: &str, reason: &str, message: String, now: Timestamp) -> Condition {
    Condition { last_update_time: Some(seconds(now)), ..Condition::new(type_, status, reason, message, now) }
}

/// Updates the condition `Progressing` when the Deployment is paused or resumed.
pub(super) fn note_pause(draft: &mut Draft<'_>) {
    if draft.deployment.progress_deadline().is_none() {
        return;
    }
    let reason = meta::condition(&draft.status.conditions, PROGRESSING).map(|condition| condition.reason.clone());
    let reason = reason.unwrap_or_default();
    match (draft.deployment.spec.paused, reason.as_str()) {
        (_, TIMED_OUT) => {}
        (true, PAUSED) => {}
        (true, _) => draft.set_condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused".into()),
        (false, PAUSED) => {
            draft.set_condition(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed".into());
        }
        (false, _) => {}
    }
}

/// The counts and the condition `Available`.
pub(super) fn counted(draft: &Draft<'_>) -> DeploymentStatus {
    let deployment = draft.deployment;
    let sum = |count: fn(&ReplicaSetStatus) -> i32| draft.all().map(|set| count(&set.status)).sum::<i32>();
    let available = sum(|status| status.available_replicas);
    // A ReplicaSet that was never reconciled has none; if one does not report the number, the sum is unknown.
    let terminating = draft.all().map(|set| match set.status.terminating_replicas {
        None if set.status.observed_generation == 0 => Some(0),
        count => count,
    });
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: sum(|status| status.replicas),
        updated_replicas: draft.new.as_ref().map(|new| new.status.replicas).unwrap_or_default(),
        ready_replicas: sum(|status| status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: (draft.total_replicas() - available).max(0),
        terminating_replicas: terminating.sum(),
        conditions: draft.status.conditions.clone(),
        collision_count: draft.status.collision_count,
    };
    let (is, reason, message) = match available >= deployment.replicas() - deployment.max_unavailable() {
        true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
    };
    set_condition(&mut status.conditions, condition(AVAILABLE, is, reason, message.into(), draft.now));
    status
}

/// The status of a Deployment during a rollout, and when its progress deadline has to be checked.
pub(super) fn of_rollout(draft: &Draft<'_>) -> (DeploymentStatus, Option<Duration>) {
    let (deployment, now) = (draft.deployment, draft.now);
    let mut status = counted(draft);
    let deadline = deployment.progress_deadline();
    let before = meta::condition(&draft.status.conditions, PROGRESSING).cloned();
    let who = match &draft.new {
        Some(new) => format!("ReplicaSet \"{}\"", new.name),
        None => format!("Deployment \"{}\"", deployment.metadata.name),
    };
    let was_complete = status.replicas == status.updated_replicas
        && before.as_ref().is_some_and(|before| before.reason == NEW_AVAILABLE);
    match deadline {
        None => status.conditions.retain(|condition| condition.type_ != PROGRESSING),
        Some(_) if was_complete => {}
        Some(_) if is_complete(deployment, &status) => {
            let message = format!("{who} has successfully progressed.");
            set_condition(&mut status.conditions, condition(PROGRESSING, "True", NEW_AVAILABLE, message, now));
        }
        Some(_) if has_progressed(&deployment.status, &status) => {
            let message = format!("{who} is progressing.");
            let mut progressing = condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
            if let Some(before) = before.as_ref().filter(|before| before.status == "True") {
                progressing.last_transition_time = before.last_transition_time.clone();
            }
            // The condition is replaced, because each progress restarts the deadline.
            status.conditions.retain(|condition| condition.type_ != PROGRESSING);
            status.conditions.push(progressing);
        }
        Some(limit) if has_timed_out(before.as_ref(), limit, now) => {
            let message = format!("{who} has timed out progressing.");
            set_condition(&mut status.conditions, condition(PROGRESSING, "False", TIMED_OUT, message, now));
        }
        Some(_) => {}
    }
    status.conditions.retain(|condition| condition.type_ != REPLICA_FAILURE);
    if let Some(failure) = replica_failure(draft) {
        status.conditions.push(failure);
    }
    let requeue_after = deadline.and_then(|limit| requeue_after(deployment, &status, limit, now));
    (status, requeue_after)
}

/// Whether all replicas have the current template and are available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.replicas();
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}

fn has_progressed(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    now.updated_replicas > before.updated_replicas
        || now.replicas - now.updated_replicas < before.replicas - before.updated_replicas
        || now.ready_replicas > before.ready_replicas
        || now.available_replicas > before.available_replicas
}

fn has_timed_out(progressing: Option<&Condition>, limit: i32, now: Timestamp) -> bool {
    progressing.is_some_and(|condition| match condition.reason.as_str() {
        NEW_AVAILABLE => false,
        TIMED_OUT => true,
        _ => left(condition, limit, now).is_some_and(|left| left.is_negative()),
    })
}

/// How much time is left until the deadline.
fn left(progressing: &Condition, limit: i32, now: Timestamp) -> Option<SignedDuration> {
    let since = progressing.last_update_time.as_ref()?.0;
    Some(SignedDuration::from_secs(limit.into()) - now.duration_since(since))
}

/// One second after the deadline, unless the rollout is complete, paused or timed out.
fn requeue_after(deployment: &Deployment, status: &DeploymentStatus, limit: i32, now: Timestamp) -> Option<Duration> {
    let progressing = meta::condition(&status.conditions, PROGRESSING)?;
    if is_complete(deployment, status) || matches!(progressing.reason.as_str(), TIMED_OUT | PAUSED) {
        return None;
    }
    let left = left(progressing, limit, now)?.max(SignedDuration::ZERO) + SignedDuration::from_secs(1);
    Duration::try_from(left).ok()
}

/// The condition `ReplicaFailure` of the new ReplicaSet, or else of any other.
fn replica_failure(draft: &Draft<'_>) -> Option<Condition> {
    let sets = draft.new.iter().chain(&draft.old);
    let mut failures = sets.filter_map(|set| meta::condition(&set.status.conditions, REPLICA_FAILURE));
    failures
        .next()
        .map(|failure| Condition { last_update_time: failure.last_transition_time.clone(), ..failure.clone() })
}
