//! Plans the next step of a StatefulSet. In: the StatefulSet, its pods and claims, its revisions, the time. Out: pods and claims
//! to create, pods to delete, claims that change their owner, the status, and when to reconcile again. Pure.
//!
//! With the policy `OrderedReady` pods are created from the first to the last, each when those before it are available, and
//! deleted from the last to the first; with `Parallel`, all at once. Missing replicas come first, then surplus pods, then the
//! update.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::identity::{self, Owner, POD_NAME, claim_names, is_stale, owner, owner_reference_patch, pod_name};
use super::kind::{StatefulSet, StatefulSetStatus};
use crate::persistent_volume_claims::Claim;
use crate::pods::{Pod, next_available};
use crate::revision_history::POD_REVISION;

/// How soon a stale claim is checked again, because its deletion does not wake the StatefulSet.
const STALE_CLAIM_RECHECK: Duration = Duration::from_secs(1);

/// What the planner reads.
pub(crate) struct Observed<'a> {
    pub set: &'a StatefulSet,
    pub pods: &'a [Arc<Pod>],
    /// The name of the revision before the update.
    pub current: &'a str,
    /// The name of the revision of the current template.
    pub update: &'a str,
    /// A claim by its name.
    pub claim: &'a dyn Fn(&str) -> Option<Arc<Claim>>,
    /// The owner reference to the StatefulSet.
    pub reference: &'a Value,
    /// The owner reference to a pod.
    pub pod_reference: &'a dyn Fn(&Pod) -> Value,
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// What to do for each pod. Tasks are independent of each other.
    pub tasks: Vec<Task>,
    /// When to reconcile again if nothing changes.
    pub requeue_after: Option<Duration>,
}

/// What to do for one pod, in order.
#[derive(Debug, PartialEq)]
pub(crate) struct Task {
    /// The name of the pod.
    pub pod: String,
    pub actions: Vec<PodAction>,
}

/// One action for a pod.
#[derive(Debug, PartialEq)]
pub(crate) enum PodAction {
    /// Create a claim.
    CreateClaim(Value),
    /// Create the pod.
    CreatePod { ordinal: i64, revision: RevisionKind },
    /// Delete the pod.
    DeletePod(Arc<Pod>),
    /// Restore the label with the name of the pod.
    LabelPod(Arc<Pod>),
    /// Change the owner reference of a claim.
    SetClaimOwner { claim: Arc<Claim>, patch: Value },
    /// Report why the pod cannot be created.
    Fail(String),
}

/// The revision of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevisionKind {
    Current,
    Update,
}

/// A plan while it is made.
struct Draft<'a> {
    observed: &'a Observed<'a>,
    plan: Plan,
}

/// Whether the following pods have to wait for this one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Go,
    Wait,
}

/// Makes the plan.
pub(crate) fn plan(observed: &Observed<'_>) -> Plan {
    let set = observed.set;
    let requeue_after = next_available(observed.pods, set.spec.min_ready_seconds, observed.now);
    let mut draft = Draft { observed, plan: Plan { tasks: Vec::new(), requeue_after } };
    if !set.metadata.is_terminating() {
        draft.fill();
    }
    draft.plan
}

/// The status of a StatefulSet with these pods.
pub(crate) fn status(observed: &Observed<'_>, collisions: i32) -> StatefulSetStatus {
    let set = observed.set;
    let count = |test: &dyn Fn(&Pod) -> bool| {
        i32::try_from(observed.pods.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX)
    };
    let is_of = |pod: &Pod, name: &str| !pod.metadata.is_terminating() && revision(pod) == name;
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: count(&|_| true),
        ready_replicas: count(&is_running_and_ready),
        available_replicas: count(&|pod| {
            is_running_and_ready(pod) && pod.is_available(set.spec.min_ready_seconds, observed.now)
        }),
        current_replicas: count(&|pod| is_of(pod, observed.current)),
        updated_replicas: count(&|pod| is_of(pod, observed.update)),
        current_revision: observed.current.to_owned(),
        update_revision: observed.update.to_owned(),
        collision_count: collisions,
    };
    let all = [status.updated_replicas, status.ready_replicas, status.replicas];
    if set.is_rolling() && all.iter().all(|many| *many == set.replicas()) {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
    status
}

/// The revision of a pod; empty if it has no such label.
pub(crate) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.get(POD_REVISION).map(String::as_str).unwrap_or_default()
}

impl Draft<'_> {
    fn fill(&mut self) {
        let set = self.observed.set;
        let mut replicas: Vec<(i64, Option<Arc<Pod>>)> = set.ordinals().map(|ordinal| (ordinal, None)).collect();
        let mut surplus: Vec<(i64, Arc<Pod>)> = Vec::new();
        for pod in self.observed.pods {
            let Some(ordinal) = set.ordinal(&pod.metadata.name) else { continue };
            let at = usize::try_from(ordinal - set.first()).ok();
            match at.and_then(|at| replicas.get_mut(at)) {
                Some((_, place)) => *place = Some(pod.clone()),
                None => surplus.push((ordinal, pod.clone())),
            }
        }
        surplus.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        for (ordinal, pod) in &replicas {
            let next = match pod {
                Some(pod) => self.keep(*ordinal, pod),
                None => self.create(*ordinal),
            };
            if next == Next::Wait && set.is_ordered() {
                return;
            }
        }
        if self.scale_down(&surplus) == Next::Go && set.is_rolling() {
            self.update(&replicas);
        }
    }

    /// A replica that is missing.
    fn create(&mut self, ordinal: i64) -> Next {
        let (observed, set) = (self.observed, self.observed.set);
        let name = pod_name(set, ordinal);
        let claims: Vec<_> = claim_names(set, ordinal).map(|(_, name)| (observed.claim)(&name)).collect();
        let claims = claims.iter().flatten();
        if claims.clone().any(|claim| is_stale(set, &claim.metadata, &name)) {
            self.plan.requeue_after = Some(
                self.plan
                    .requeue_after
                    .map_or(STALE_CLAIM_RECHECK, |requeue_after| requeue_after.min(STALE_CLAIM_RECHECK)),
            );
            return Next::Wait;
        }
        if let Some(terminating) = claims.clone().find(|claim| claim.metadata.is_terminating()) {
            let why = format!("pvc {} is being deleted", terminating.metadata.name);
            self.task(&name, vec![PodAction::Fail(why)]);
            return Next::Wait;
        }
        let mut actions = self.missing_claims(ordinal);
        // The pod does not exist yet, so it owns nothing.
        actions.extend(self.claim_owner_changes(ordinal, &Value::Null));
        actions.push(PodAction::CreatePod { ordinal, revision: self.revision_of_new(ordinal) });
        self.task(&name, actions);
        Next::Wait
    }

    /// A replica that exists.
    fn keep(&mut self, ordinal: i64, pod: &Arc<Pod>) -> Next {
        let (set, name) = (self.observed.set, &pod.metadata.name);
        if pod.is_finished() {
            // A finished pod is deleted; another one replaces it when it is gone.
            let delete = (!pod.metadata.is_terminating()).then(|| PodAction::DeletePod(pod.clone()));
            self.task(name, delete.into_iter().collect());
            return Next::Wait;
        }
        let mut actions = match pod.status.phase.as_str() {
            "" | "Pending" => self.missing_claims(ordinal),
            _ => Vec::new(),
        };
        if set.is_ordered() && !self.is_available(pod) {
            self.task(name, actions);
            return Next::Wait;
        }
        if pod.metadata.labels.get(POD_NAME) != Some(name) {
            actions.push(PodAction::LabelPod(pod.clone()));
        }
        actions.extend(self.claim_owner_changes(ordinal, &(self.observed.pod_reference)(pod)));
        self.task(name, actions);
        Next::Go
    }

    /// Deletes surplus pods, the last first.
    fn scale_down(&mut self, surplus: &[(i64, Arc<Pod>)]) -> Next {
        let first_unavailable =
            surplus.iter().rev().find(|(_, pod)| !self.is_available(pod)).map(|(ordinal, _)| *ordinal);
        let mut next = Next::Go;
        for (ordinal, pod) in surplus {
            let mut actions = self.claim_owner_changes(*ordinal, &(self.observed.pod_reference)(pod));
            let is_next = match self.observed.set.is_ordered() {
                // One is deleted at a time. An unavailable pod waits for unavailable pods with a lower ordinal.
                true => next == Next::Go && (self.is_available(pod) || first_unavailable == Some(*ordinal)),
                false => true,
            };
            if is_next && !pod.metadata.is_terminating() {
                actions.push(PodAction::DeletePod(pod.clone()));
            }
            if self.observed.set.is_ordered() {
                next = Next::Wait;
            }
            self.task(&pod.metadata.name, actions);
        }
        next
    }

    /// Deletes pods of an old template, the last first: they are created again from the current one.
    fn update(&mut self, replicas: &[(i64, Option<Arc<Pod>>)]) {
        let set = self.observed.set;
        let is_up = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| self.is_available(pod));
        let unavailable = replicas.iter().filter(|(_, pod)| !is_up(pod)).count();
        let mut left = match set.max_unavailable() {
            Some(most) => most.saturating_sub(unavailable),
            None => 1,
        };
        let mut outdated = Vec::new();
        for (_, pod) in replicas.iter().rev().take_while(|(ordinal, _)| *ordinal >= set.partition()) {
            if left == 0 {
                break;
            }
            let old =
                pod.as_ref().filter(|pod| revision(pod) != self.observed.update && !pod.metadata.is_terminating());
            match old {
                Some(old) if !old.is_finished() => {
                    outdated.push(old.clone());
                    left -= 1;
                }
                // Without maxUnavailable, a pod waits for those with a higher ordinal.
                _ if set.max_unavailable().is_none() && !is_up(pod) => break,
                _ => {}
            }
        }
        for pod in outdated {
            let name = pod.metadata.name.clone();
            self.task(&name, vec![PodAction::DeletePod(pod)]);
        }
    }

    fn revision_of_new(&self, ordinal: i64) -> RevisionKind {
        let set = self.observed.set;
        let first_updated = match &set.spec.update_strategy.rolling_update {
            Some(_) => set.partition(),
            None if set.is_rolling() => set.first() + i64::from(set.status.current_replicas),
            None => set.first(),
        };
        if ordinal < first_updated { RevisionKind::Current } else { RevisionKind::Update }
    }

    fn missing_claims(&self, ordinal: i64) -> Vec<PodAction> {
        let set = self.observed.set;
        let owner = (owner(set, ordinal) == Owner::Set).then(|| self.observed.reference.clone());
        let templates = set.spec.volume_claim_templates.iter().zip(claim_names(set, ordinal));
        let missing = templates.filter(|(_, (_, name))| (self.observed.claim)(name).is_none());
        missing
            .map(|(template, _)| PodAction::CreateClaim(identity::claim(set, template, ordinal, owner.clone())))
            .collect()
    }

    fn claim_owner_changes(&self, ordinal: i64, pod: &Value) -> Vec<PodAction> {
        let wanted = owner(self.observed.set, ordinal);
        let claims = claim_names(self.observed.set, ordinal).filter_map(|(_, name)| (self.observed.claim)(&name));
        let own = |claim: Arc<Claim>| {
            let patch = owner_reference_patch(&claim.metadata, wanted, self.observed.reference, pod)?;
            Some(PodAction::SetClaimOwner { claim, patch })
        };
        claims.filter_map(own).collect()
    }

    fn is_available(&self, pod: &Pod) -> bool {
        !pod.metadata.is_terminating()
            && is_running_and_ready(pod)
            && pod.is_available(self.observed.set.spec.min_ready_seconds, self.observed.now)
    }

    fn task(&mut self, pod: &str, actions: Vec<PodAction>) {
        if !actions.is_empty() {
            self.plan.tasks.push(Task { pod: pod.to_owned(), actions });
        }
    }
}

fn is_running_and_ready(pod: &Pod) -> bool {
    pod.status.phase == "Running" && pod.is_ready()
}

#[cfg(test)]
mod tests;
