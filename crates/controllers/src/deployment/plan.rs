//! Plans the next step of a Deployment. In: the Deployment, its ReplicaSets, whether pods of old ones still run, the time. Out:
//! the ReplicaSet to create, those to change and to delete, the status, and when to reconcile again. Pure: `rollout` scales
//! ReplicaSets, `revision` sets annotations, `progress` makes the status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use konverge_core::LabelSelector;
use serde_json::{Value, json};

use super::kind::{Deployment, DeploymentStatus};
use super::{progress, revision, rollout};
use crate::hash::template_hash;
use crate::meta::{Condition, StringMap, condition, set_condition};
use crate::replicaset::{ReplicaSet, ReplicaSetStatus};
use crate::template::{TEMPLATE_HASH, same_template};

/// The limit of the length of a name.
const MAX_NAME_LENGTH: usize = 253;

/// What the planner reads.
pub(crate) struct Observed<'a> {
    pub deployment: &'a Deployment,
    pub sets: &'a [Arc<ReplicaSet>],
    /// Whether pods of this old ReplicaSet, by uid, still run.
    pub old_pods_run: &'a dyn Fn(&str) -> bool,
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// A ReplicaSet for the current template.
    pub create: Option<NewSet>,
    /// ReplicaSets to change.
    pub change: Vec<SetChange>,
    /// Old ReplicaSets beyond the history limit.
    pub delete: Vec<Arc<ReplicaSet>>,
    /// The revision of the Deployment, if its annotation has to change.
    pub revision: Option<String>,
    /// The status after that.
    pub status: DeploymentStatus,
    /// Events to record: a reason and a message.
    pub events: Vec<(&'static str, String)>,
    /// When to reconcile again if nothing changes.
    pub requeue_after: Option<Duration>,
}

/// A ReplicaSet to create.
#[derive(Debug, PartialEq)]
pub(crate) struct NewSet {
    pub name: String,
    /// The object, without its owner reference.
    pub object: Value,
    /// Whether a failure to create it is reported in the condition `Progressing`: only with a progress deadline.
    pub reports_progress: bool,
}

/// A change to a ReplicaSet.
#[derive(Debug, PartialEq)]
pub(crate) struct SetChange {
    pub set: Arc<ReplicaSet>,
    pub replicas: Option<i32>,
    pub min_ready_seconds: Option<i32>,
    /// Annotations that are new or different.
    pub annotations: StringMap,
}

/// A ReplicaSet while the plan is made.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub name: String,
    pub replicas: i32,
    pub min_ready_seconds: i32,
    pub annotations: StringMap,
    pub created: Option<Timestamp>,
    pub status: ReplicaSetStatus,
    /// The existing object; `None` if it is to be created.
    pub existing: Option<Arc<ReplicaSet>>,
}

/// A plan while it is made.
pub(super) struct Draft<'a> {
    pub deployment: &'a Deployment,
    pub now: Timestamp,
    /// The old ReplicaSets, by their age.
    pub old: Vec<Set>,
    pub new: Option<Set>,
    /// The status before the plan, with new conditions.
    pub status: DeploymentStatus,
    pub events: Vec<(&'static str, String)>,
    pub delete: Vec<Arc<ReplicaSet>>,
    created: Option<Value>,
    revision: Option<String>,
}

/// Makes the plan.
pub(crate) fn plan(observed: &Observed<'_>) -> Plan {
    let deployment = observed.deployment;
    if LabelSelector::from_object(&deployment.spec.selector).is_ok_and(|selector| selector.is_everything()) {
        let status =
            DeploymentStatus { observed_generation: deployment.metadata.generation, ..deployment.status.clone() };
        let why = "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
        return Plan { status, events: vec![("SelectingAll", why)], ..Plan::default() };
    }
    let mut draft = Draft::new(observed);
    if deployment.metadata.is_terminating() {
        let status = progress::counted(&draft);
        return draft.finish(status, None);
    }
    progress::note_pause(&mut draft);
    draft.keep_revision();
    if deployment.spec.paused || rollout::is_scaling(&draft) {
        rollout::scale(&mut draft);
        if deployment.spec.paused {
            draft.clean_up();
        }
        let status = progress::counted(&draft);
        return draft.finish(status, None);
    }
    let moved = match deployment.is_rolling() {
        true => {
            draft.ensure_new();
            rollout::rolling(&mut draft)
        }
        false => rollout::recreate(&mut draft, observed.old_pods_run),
    };
    if !moved && progress::is_complete(deployment, &deployment.status) {
        draft.clean_up();
    }
    let (status, requeue_after) = progress::of_rollout(&draft);
    draft.finish(status, requeue_after)
}

impl<'a> Draft<'a> {
    fn new(observed: &Observed<'a>) -> Self {
        let mut sets: Vec<&Arc<ReplicaSet>> = observed.sets.iter().collect();
        sets.sort_by(|a, b| {
            let by_age = a.metadata.created().cmp(&b.metadata.created());
            by_age.then_with(|| a.metadata.name.cmp(&b.metadata.name))
        });
        // Of several with the same template the oldest counts, so that every reconcile picks the same one.
        let new = sets.iter().position(|set| same_template(&set.spec.template, &observed.deployment.spec.template));
        let new = new.map(|at| sets.remove(at)).map(Set::of);
        Self {
            deployment: observed.deployment,
            now: observed.now,
            old: sets.into_iter().map(Set::of).collect(),
            new,
            status: observed.deployment.status.clone(),
            events: Vec::new(),
            delete: Vec::new(),
            created: None,
            revision: None,
        }
    }

    /// All ReplicaSets.
    pub(super) fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }

    /// The sum of the desired replicas of all ReplicaSets.
    pub(super) fn total_replicas(&self) -> i32 {
        self.all().map(|set| set.replicas).sum()
    }

    /// Sets a condition of the Deployment.
    pub(super) fn set_condition(&mut self, type_: &str, status: &str, reason: &str, message: String) {
        set_condition(&mut self.status.conditions, progress::condition(type_, status, reason, message, self.now));
    }

    /// Gives the current ReplicaSet the newest revision, and the Deployment the same.
    fn keep_revision(&mut self) {
        let newest = revision::newest(&self.old) + 1;
        let Some(new) = &mut self.new else { return };
        revision::mark(self.deployment, new, newest);
        new.min_ready_seconds = self.deployment.spec.min_ready_seconds;
        let (name, marked) = (new.name.clone(), new.annotations.get(revision::REVISION).cloned());
        self.revision = marked;
        let watched = self.deployment.progress_deadline().is_some();
        if watched && condition(&self.status.conditions, progress::PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{name}\"");
            self.set_condition(progress::PROGRESSING, "True", "FoundNewReplicaSet", message);
        }
    }

    /// Plans a ReplicaSet for the current template if there is none.
    pub(super) fn ensure_new(&mut self) {
        if self.new.is_some() {
            return;
        }
        let spec = &self.deployment.spec;
        let hash = template_hash(&spec.template, self.deployment.status.collision_count);
        let name = set_name(&self.deployment.metadata.name, &hash);
        let mut template = spec.template.clone();
        template["metadata"]["labels"][TEMPLATE_HASH] = hash.clone().into();
        let mut selector = spec.selector.clone();
        selector["matchLabels"][TEMPLATE_HASH] = hash.into();

        let mut set = Set {
            name: name.clone(),
            replicas: 0,
            min_ready_seconds: spec.min_ready_seconds,
            annotations: StringMap::new(),
            created: None,
            status: ReplicaSetStatus::default(),
            existing: None,
        };
        set.replicas = rollout::new_replicas(self.deployment, self.total_replicas(), 0);
        let newest = revision::newest(&self.old) + 1;
        revision::mark(self.deployment, &mut set, newest);
        revision::mark_size(self.deployment, &mut set);
        self.created = Some(json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": self.deployment.metadata.namespace,
                "labels": template["metadata"]["labels"],
            },
            "spec": {"selector": selector, "template": template},
        }));
        self.revision = set.annotations.get(revision::REVISION).cloned();
        if set.replicas > 0 {
            self.record_scaled(&name, 0, set.replicas);
        }
        self.new = Some(set);
        if self.deployment.progress_deadline().is_some() {
            let message = format!("Created new replica set \"{name}\"");
            self.set_condition(progress::PROGRESSING, "True", "NewReplicaSetCreated", message);
        }
    }

    /// Adds the event that a ReplicaSet is scaled.
    pub(super) fn record_scaled(&mut self, name: &str, from: i32, to: i32) {
        let direction = if from < to { "up" } else { "down" };
        self.events.push(("ScalingReplicaSet", format!("Scaled {direction} replica set {name} from {from} to {to}")));
    }

    /// Deletes old ReplicaSets beyond the history limit that have no replicas, the oldest revisions first.
    pub(super) fn clean_up(&mut self) {
        let Some(limit) = self.deployment.history_limit() else { return };
        let mut old: Vec<&Set> = self.old.iter().filter(|set| !set.is_terminating()).collect();
        let Some(surplus) = old.len().checked_sub(limit) else { return };
        old.sort_by_key(|set| (revision::of(&set.annotations), set.created));
        let deleted = old.into_iter().take(surplus).filter(|set| set.is_empty()).filter_map(|set| set.existing.clone());
        self.delete = deleted.collect();
    }

    fn finish(self, status: DeploymentStatus, requeue_after: Option<Duration>) -> Plan {
        let deployment = self.deployment;
        let current = deployment.metadata.annotations.get(revision::REVISION);
        let revision = self.revision.filter(|revision| current != Some(revision));
        let sets = self.old.iter().chain(&self.new);
        let change = sets.filter_map(Set::change).collect();
        let create = self.created.zip(self.new).map(|(mut object, set)| {
            object["metadata"]["annotations"] = json!(set.annotations);
            object["spec"]["replicas"] = set.replicas.into();
            if set.min_ready_seconds > 0 {
                object["spec"]["minReadySeconds"] = set.min_ready_seconds.into();
            }
            NewSet { name: set.name, object, reports_progress: deployment.progress_deadline().is_some() }
        });
        Plan { create, change, delete: self.delete, revision, status, events: self.events, requeue_after }
    }
}

impl Set {
    fn of(set: &Arc<ReplicaSet>) -> Self {
        Self {
            name: set.metadata.name.clone(),
            replicas: set.replicas(),
            min_ready_seconds: set.spec.min_ready_seconds,
            annotations: set.metadata.annotations.clone(),
            created: set.metadata.created(),
            status: set.status.clone(),
            existing: Some(set.clone()),
        }
    }

    fn is_terminating(&self) -> bool {
        self.existing.as_ref().is_some_and(|set| set.metadata.is_terminating())
    }

    /// Whether it has no replicas, and its status is up to date.
    fn is_empty(&self) -> bool {
        let observed =
            self.existing.as_ref().is_some_and(|set| set.metadata.generation <= set.status.observed_generation);
        observed && self.replicas == 0 && self.status.replicas == 0
    }

    /// What has to change in the existing object.
    fn change(&self) -> Option<SetChange> {
        let set = self.existing.clone()?;
        let replicas = (set.replicas() != self.replicas).then_some(self.replicas);
        let min_ready_seconds =
            (set.spec.min_ready_seconds != self.min_ready_seconds).then_some(self.min_ready_seconds);
        let changed =
            self.annotations.iter().filter(|(name, value)| set.metadata.annotations.get(*name) != Some(*value));
        let annotations: StringMap = changed.map(|(name, value)| (name.clone(), value.clone())).collect();
        let differs = replicas.is_some() || min_ready_seconds.is_some() || !annotations.is_empty();
        differs.then_some(SetChange { set, replicas, min_ready_seconds, annotations })
    }
}

impl Plan {
    /// The status if the new ReplicaSet could not be created.
    pub(super) fn failed(
        deployment: &Deployment,
        new: &NewSet,
        error: &str,
        now: Timestamp,
    ) -> (DeploymentStatus, String) {
        let mut status = deployment.status.clone();
        let message = format!("Failed to create new replica set \"{}\": {error}", new.name);
        if new.reports_progress {
            let condition: Condition =
                progress::condition(progress::PROGRESSING, "False", "ReplicaSetCreateError", message.clone(), now);
            set_condition(&mut status.conditions, condition);
        }
        (status, message)
    }
}

/// The name of a Deployment's ReplicaSet.
fn set_name(deployment: &str, hash: &str) -> String {
    let room = MAX_NAME_LENGTH - 1 - hash.len();
    format!("{}-{hash}", deployment.get(..room).unwrap_or(deployment))
}

#[cfg(test)]
mod tests;
