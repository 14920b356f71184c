//! What a StatefulSet needs. In: the StatefulSet, its pods and claims, its revisions, the time. Out: pods and claims to
//! create, pods to delete, claims to hand over; what its status is, and when to look again. Pure.
//!
//! One after the other: pods come from the first on, each when those before it are available, and go from the last on. Or
//! all at once, if the StatefulSet says so. First come the replicas, then those that are too many, then the update.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::identity::{self, Owner, POD_NAME, belongs, claim_names, is_left_over, owner, pod_name};
use super::kind::{StatefulSet, StatefulSetStatus};
use crate::claims::Claim;
use crate::pods::{Pod, next_available};
use crate::revision_history::POD_REVISION;

/// When a claim that has to go first is looked at again: nothing that happens to it wakes the StatefulSet.
const CLAIM_GOES: Duration = Duration::from_secs(1);

/// What the planner reads.
pub(crate) struct Seen<'a> {
    pub set: &'a StatefulSet,
    pub pods: &'a [Arc<Pod>],
    /// The name of the revision that pods were at before the update.
    pub current: &'a str,
    /// The name of the revision of the present template.
    pub update: &'a str,
    /// A claim by its name.
    pub claim: &'a dyn Fn(&str) -> Option<Arc<Claim>>,
    /// The reference of a child to the StatefulSet.
    pub reference: &'a Value,
    /// The reference of a child to a pod.
    pub pod_reference: &'a dyn Fn(&Pod) -> Value,
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Of each pod what is to be done in this order; pods do not wait for each other.
    pub tasks: Vec<Task>,
    /// When to reconcile again if nothing changes.
    pub again: Option<Duration>,
}

/// What is to be done about one pod.
#[derive(Debug, PartialEq)]
pub(crate) struct Task {
    /// The name of the pod.
    pub pod: String,
    pub acts: Vec<Act>,
}

/// One thing to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Act {
    /// Create a claim.
    Claim(Value),
    /// Create the pod.
    Create { ordinal: i64, revision: Of },
    /// Delete the pod.
    Delete(Arc<Pod>),
    /// Give the pod the label with its name again.
    Label(Arc<Pod>),
    /// Change whom a claim belongs to.
    Own { claim: Arc<Claim>, patch: Value },
    /// The pod cannot be created, because of this.
    Refuse(String),
}

/// Of which revision a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Current,
    Update,
}

/// A plan while it is made.
struct Draft<'a> {
    seen: &'a Seen<'a>,
    plan: Plan,
}

/// Whether what comes after this pod has to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Go,
    Wait,
}

/// Makes the plan.
pub(crate) fn plan(seen: &Seen<'_>) -> Plan {
    let set = seen.set;
    let again = next_available(seen.pods, set.spec.min_ready_seconds, seen.now);
    let mut draft = Draft { seen, plan: Plan { tasks: Vec::new(), again } };
    if !set.metadata.is_terminating() {
        draft.fill();
    }
    draft.plan
}

/// What is true of a StatefulSet with these pods.
pub(crate) fn status(seen: &Seen<'_>, collisions: i32) -> StatefulSetStatus {
    let set = seen.set;
    let count = |test: &dyn Fn(&Pod) -> bool| {
        i32::try_from(seen.pods.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX)
    };
    let is_of = |pod: &Pod, name: &str| !pod.metadata.is_terminating() && revision(pod) == name;
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: count(&|_| true),
        ready_replicas: count(&is_running_and_ready),
        available_replicas: count(&|pod| {
            is_running_and_ready(pod) && pod.is_available(set.spec.min_ready_seconds, seen.now)
        }),
        current_replicas: count(&|pod| is_of(pod, seen.current)),
        updated_replicas: count(&|pod| is_of(pod, seen.update)),
        current_revision: seen.current.to_owned(),
        update_revision: seen.update.to_owned(),
        collision_count: collisions,
    };
    let all = [status.updated_replicas, status.ready_replicas, status.replicas];
    if set.is_rolling() && all.iter().all(|many| *many == set.replicas()) {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
    status
}

/// The revision a pod is of; empty if it does not say.
pub(crate) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.get(POD_REVISION).map(String::as_str).unwrap_or_default()
}

impl Draft<'_> {
    fn fill(&mut self) {
        let set = self.seen.set;
        let mut replicas: Vec<(i64, Option<Arc<Pod>>)> = set.ordinals().map(|ordinal| (ordinal, None)).collect();
        let mut surplus: Vec<(i64, Arc<Pod>)> = Vec::new();
        for pod in self.seen.pods {
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
        let (seen, set) = (self.seen, self.seen.set);
        let name = pod_name(set, ordinal);
        let claims: Vec<_> = claim_names(set, ordinal).map(|(_, name)| (seen.claim)(&name)).collect();
        let claims = claims.iter().flatten();
        if claims.clone().any(|claim| is_left_over(set, &claim.metadata, &name)) {
            self.plan.again = Some(self.plan.again.map_or(CLAIM_GOES, |again| again.min(CLAIM_GOES)));
            return Next::Wait;
        }
        if let Some(going) = claims.clone().find(|claim| claim.metadata.is_terminating()) {
            let why = format!("pvc {} is being deleted", going.metadata.name);
            self.task(&name, vec![Act::Refuse(why)]);
            return Next::Wait;
        }
        let mut acts = self.missing_claims(ordinal);
        // The pod is not there yet, so it owns nothing.
        acts.extend(self.handed_over(ordinal, &Value::Null));
        acts.push(Act::Create { ordinal, revision: self.revision_of_new(ordinal) });
        self.task(&name, acts);
        Next::Wait
    }

    /// A replica that is there.
    fn keep(&mut self, ordinal: i64, pod: &Arc<Pod>) -> Next {
        let (set, name) = (self.seen.set, &pod.metadata.name);
        if pod.is_finished() {
            // Whatever it ended with: another one takes its place when it is gone.
            let delete = (!pod.metadata.is_terminating()).then(|| Act::Delete(pod.clone()));
            self.task(name, delete.into_iter().collect());
            return Next::Wait;
        }
        let mut acts = match pod.status.phase.as_str() {
            "" | "Pending" => self.missing_claims(ordinal),
            _ => Vec::new(),
        };
        if set.is_ordered() && !self.is_available(pod) {
            self.task(name, acts);
            return Next::Wait;
        }
        if pod.metadata.labels.get(POD_NAME) != Some(name) {
            acts.push(Act::Label(pod.clone()));
        }
        acts.extend(self.handed_over(ordinal, &(self.seen.pod_reference)(pod)));
        self.task(name, acts);
        Next::Go
    }

    /// Pods that are too many, the last first.
    fn scale_down(&mut self, surplus: &[(i64, Arc<Pod>)]) -> Next {
        let first_unavailable =
            surplus.iter().rev().find(|(_, pod)| !self.is_available(pod)).map(|(ordinal, _)| *ordinal);
        let mut next = Next::Go;
        for (ordinal, pod) in surplus {
            let mut acts = self.handed_over(*ordinal, &(self.seen.pod_reference)(pod));
            let is_next = match self.seen.set.is_ordered() {
                // One goes at a time; one that ails waits for those that ail before it.
                true => next == Next::Go && (self.is_available(pod) || first_unavailable == Some(*ordinal)),
                false => true,
            };
            if is_next && !pod.metadata.is_terminating() {
                acts.push(Act::Delete(pod.clone()));
            }
            if self.seen.set.is_ordered() {
                next = Next::Wait;
            }
            self.task(&pod.metadata.name, acts);
        }
        next
    }

    /// Deletes pods that are not of the present template, the last first: they come back as they should be.
    fn update(&mut self, replicas: &[(i64, Option<Arc<Pod>>)]) {
        let set = self.seen.set;
        let is_well = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| self.is_available(pod));
        let unavailable = replicas.iter().filter(|(_, pod)| !is_well(pod)).count();
        let mut left = match set.max_unavailable() {
            Some(most) => most.saturating_sub(unavailable),
            None => 1,
        };
        let mut gone = Vec::new();
        for (_, pod) in replicas.iter().rev().take_while(|(ordinal, _)| *ordinal >= set.partition()) {
            if left == 0 {
                break;
            }
            let old = pod.as_ref().filter(|pod| revision(pod) != self.seen.update && !pod.metadata.is_terminating());
            match old {
                Some(old) if !old.is_finished() => {
                    gone.push(old.clone());
                    left -= 1;
                }
                // Without a limit of their own, pods wait for those after them.
                _ if set.max_unavailable().is_none() && !is_well(pod) => break,
                _ => {}
            }
        }
        for pod in gone {
            let name = pod.metadata.name.clone();
            self.task(&name, vec![Act::Delete(pod)]);
        }
    }

    fn revision_of_new(&self, ordinal: i64) -> Of {
        let set = self.seen.set;
        let stays = match &set.spec.update_strategy.rolling_update {
            Some(_) => set.partition(),
            None if set.is_rolling() => set.first() + i64::from(set.status.current_replicas),
            None => set.first(),
        };
        if ordinal < stays { Of::Current } else { Of::Update }
    }

    fn missing_claims(&self, ordinal: i64) -> Vec<Act> {
        let set = self.seen.set;
        let owner = (owner(set, ordinal) == Owner::Set).then(|| self.seen.reference.clone());
        let templates = set.spec.volume_claim_templates.iter().zip(claim_names(set, ordinal));
        let missing = templates.filter(|(_, (_, name))| (self.seen.claim)(name).is_none());
        missing.map(|(template, _)| Act::Claim(identity::claim(set, template, ordinal, owner.clone()))).collect()
    }

    fn handed_over(&self, ordinal: i64, pod: &Value) -> Vec<Act> {
        let wanted = owner(self.seen.set, ordinal);
        let claims = claim_names(self.seen.set, ordinal).filter_map(|(_, name)| (self.seen.claim)(&name));
        let own = |claim: Arc<Claim>| {
            let patch = belongs(&claim.metadata, wanted, self.seen.reference, pod)?;
            Some(Act::Own { claim, patch })
        };
        claims.filter_map(own).collect()
    }

    fn is_available(&self, pod: &Pod) -> bool {
        !pod.metadata.is_terminating()
            && is_running_and_ready(pod)
            && pod.is_available(self.seen.set.spec.min_ready_seconds, self.seen.now)
    }

    fn task(&mut self, pod: &str, acts: Vec<Act>) {
        if !acts.is_empty() {
            self.plan.tasks.push(Task { pod: pod.to_owned(), acts });
        }
    }
}

fn is_running_and_ready(pod: &Pod) -> bool {
    pod.status.phase == "Running" && pod.is_ready()
}

#[cfg(test)]
mod tests;
