//! Scales the ReplicaSets of a rollout. In: a draft of the plan. Out: the draft with new sizes. Pure.

use super::kind::Deployment;
use super::plan::{Draft, Set};
use super::revision;

/// The size of the new ReplicaSet, if it has `present` replicas and all ReplicaSets together have `total_replicas`.
pub(super) fn new_replicas(deployment: &Deployment, total_replicas: i32, present: i32) -> i32 {
    if !deployment.is_rolling() {
        return deployment.replicas();
    }
    let room = deployment.replicas() + deployment.max_surge() - total_replicas;
    if room <= 0 { present } else { present + room.min(deployment.replicas() - present) }
}

/// Whether the Deployment was scaled after its ReplicaSets were.
pub(super) fn is_scaling(draft: &Draft<'_>) -> bool {
    let active = draft.all().filter(|set| set.replicas > 0);
    active.filter_map(revision::desired).any(|desired| desired != draft.deployment.replicas())
}

/// One step of a rolling update: scales the new ReplicaSet up as far as the surge allows, or else the old ones down as far as
/// enough pods stay available. Returns whether a size changed.
pub(super) fn rolling(draft: &mut Draft<'_>) -> bool {
    let deployment = draft.deployment;
    let total_replicas = draft.total_replicas();
    let Some(new) = &draft.new else { return false };
    let (present, available_of_new) = (new.replicas, new.status.available_replicas);
    let wanted = match present > deployment.replicas() {
        true => deployment.replicas(),
        false => new_replicas(deployment, total_replicas, present),
    };
    if present != deployment.replicas() && draft.resize_new(wanted) {
        return true;
    }
    let old_replicas: i32 = draft.old.iter().map(|set| set.replicas).sum();
    if old_replicas == 0 {
        return false;
    }
    let min_available = deployment.replicas() - deployment.max_unavailable();
    let unavailable_of_new = present - available_of_new;
    let may_shrink = total_replicas - min_available - unavailable_of_new;
    if may_shrink <= 0 {
        return false;
    }
    // First unavailable replicas, then surplus ones; the oldest ReplicaSet first.
    let mut left = may_shrink;
    let mut moved = false;
    for at in 0..draft.old.len() {
        let set = &draft.old[at];
        let unhealthy = (set.replicas - set.status.available_replicas).max(0).min(left);
        if unhealthy > 0 {
            left -= unhealthy;
            moved |= draft.resize_old(at, set.replicas - unhealthy);
        }
    }
    let available: i32 = draft.all().map(|set| set.status.available_replicas).sum();
    let mut surplus = available - min_available;
    for at in 0..draft.old.len() {
        let gone = draft.old[at].replicas.min(surplus);
        if gone > 0 {
            surplus -= gone;
            moved |= draft.resize_old(at, draft.old[at].replicas - gone);
        }
    }
    moved
}

/// One step of a recreation: scales the old ReplicaSets down, and when their pods are gone, the new one up. Returns whether
/// the old ones were scaled or still have pods.
pub(super) fn recreate(draft: &mut Draft<'_>, old_pods_run: &dyn Fn(&str) -> bool) -> bool {
    let mut moved = false;
    for at in 0..draft.old.len() {
        moved |= draft.resize_old(at, 0);
    }
    if moved {
        return true;
    }
    let running = |set: &Set| {
        let uid = set.existing.as_ref().map(|set| set.metadata.uid.as_str());
        set.status.replicas > 0 || uid.is_some_and(old_pods_run)
    };
    if draft.old.iter().any(running) {
        return true;
    }
    draft.ensure_new();
    draft.resize_new(draft.deployment.replicas());
    false
}

/// Scales the ReplicaSets to the size of the Deployment without continuing a rollout: in proportion to their sizes, so that the
/// change is spread over new and old pods.
pub(super) fn scale(draft: &mut Draft<'_>) {
    let deployment = draft.deployment;
    let wanted = deployment.replicas();
    let active: Vec<usize> = (0..draft.old.len()).filter(|at| draft.old[*at].replicas > 0).collect();
    let new_is_active = draft.new.as_ref().is_some_and(|new| new.replicas > 0);
    match (active.len(), new_is_active) {
        // At most one is active: the active, the new or else the latest one gets all replicas.
        (0, true) => {
            draft.resize_new(wanted);
        }
        (1, false) => {
            draft.resize_old(active[0], wanted);
        }
        (0, false) if draft.new.is_some() => {
            draft.resize_new(wanted);
        }
        (0, false) => {
            if let Some(latest) = draft.old.len().checked_sub(1) {
                draft.resize_old(latest, wanted);
            }
        }
        _ if draft.new.as_ref().is_some_and(|new| is_saturated(deployment, new)) => {
            for at in active {
                draft.resize_old(at, 0);
            }
        }
        _ if deployment.is_rolling() => in_proportion(draft),
        _ => {}
    }
}

/// Shares what is to be added or taken among all that are active.
fn in_proportion(draft: &mut Draft<'_>) {
    let deployment = draft.deployment;
    let allowed = if deployment.replicas() > 0 { deployment.replicas() + deployment.max_surge() } else { 0 };
    let to_add = allowed - draft.total_replicas();
    let old = draft.old.len();
    let get = |draft: &Draft<'_>, at: usize| match at < old {
        true => Some(draft.old[at].clone()),
        false => draft.new.clone(),
    };
    let mut active: Vec<(usize, Set)> = (0..=old).filter_map(|at| Some((at, get(draft, at)?))).collect();
    active.retain(|(_, set)| set.replicas > 0);
    // The largest first; of equals the newer grows first and the older shrinks first.
    active.sort_by(|(_, a), (_, b)| {
        let by_age = if to_add > 0 { b.created.cmp(&a.created) } else { a.created.cmp(&b.created) };
        b.replicas.cmp(&a.replicas).then(by_age).then_with(|| a.name.cmp(&b.name))
    });
    let mut added = 0;
    let mut sizes: Vec<i32> = Vec::with_capacity(active.len());
    for (_, set) in &active {
        let left = to_add - added;
        let share = match to_add {
            0 => 0,
            _ if left == 0 => 0,
            1.. => fraction(deployment, set).min(left),
            _ => fraction(deployment, set).max(left),
        };
        added += share;
        sizes.push(set.replicas + share);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    for ((at, _), size) in active.into_iter().zip(sizes) {
        let set = if at < old { Some(&mut draft.old[at]) } else { draft.new.as_mut() };
        // What is as large as it should be is still marked: it was scaled for the Deployment of now.
        set.into_iter().for_each(|set| revision::mark_size(deployment, set));
        match at < old {
            true => draft.resize_old(at, size),
            false => draft.resize_new(size),
        };
    }
}

/// By how much a ReplicaSet grows or shrinks if all keep their proportions.
fn fraction(deployment: &Deployment, set: &Set) -> i32 {
    if deployment.replicas() == 0 {
        return -set.replicas;
    }
    let before = revision::most(set).filter(|most| *most > 0).unwrap_or(deployment.status.replicas);
    if before == 0 {
        return 0;
    }
    let most = deployment.replicas() + deployment.max_surge();
    let size = f64::from(set.replicas) * f64::from(most) / f64::from(before);
    size.round() as i32 - set.replicas
}

fn is_saturated(deployment: &Deployment, new: &Set) -> bool {
    let wanted = deployment.replicas();
    new.replicas == wanted && revision::desired(new) == Some(wanted) && new.status.available_replicas == wanted
}

impl Draft<'_> {
    /// Gives an old ReplicaSet another size. Returns whether the size changed.
    pub(super) fn resize_old(&mut self, at: usize, size: i32) -> bool {
        let before = self.old[at].replicas;
        let name = self.old[at].name.clone();
        if before == size {
            return false;
        }
        self.old[at].replicas = size;
        revision::mark_size(self.deployment, &mut self.old[at]);
        self.record_scaled(&name, before, size);
        true
    }

    /// Gives the new ReplicaSet another size. Returns whether the size changed.
    pub(super) fn resize_new(&mut self, size: i32) -> bool {
        let deployment = self.deployment;
        let Some(new) = self.new.as_mut().filter(|new| new.replicas != size) else { return false };
        let before = std::mem::replace(&mut new.replicas, size);
        revision::mark_size(deployment, new);
        let name = new.name.clone();
        self.record_scaled(&name, before, size);
        true
    }
}
