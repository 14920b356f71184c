//! Replicas on their way from old ReplicaSets to the new one. In: a draft. Out: the draft with other sizes. Pure.

use super::kind::Deployment;
use super::plan::{Draft, Set};
use super::revision;

/// How many replicas the new ReplicaSet gets, when all of them together ask for `asked_for` and itself for `present`.
pub(super) fn wanted_of_new(deployment: &Deployment, asked_for: i32, present: i32) -> i32 {
    if !deployment.is_rolling() {
        return deployment.replicas();
    }
    let room = deployment.replicas() + deployment.max_surge() - asked_for;
    if room <= 0 { present } else { present + room.min(deployment.replicas() - present) }
}

/// Whether the Deployment was scaled since its ReplicaSets were.
pub(super) fn is_scaling(draft: &Draft<'_>) -> bool {
    let active = draft.all().filter(|set| set.replicas > 0);
    active.filter_map(revision::desired).any(|desired| desired != draft.deployment.replicas())
}

/// One step of a rolling update: the new one grows as far as the surge allows, or else the old ones shrink as far as
/// enough pods stay available. Says whether anything moved.
pub(super) fn rolling(draft: &mut Draft<'_>) -> bool {
    let deployment = draft.deployment;
    let asked_for = draft.asked_for();
    let Some(new) = &draft.new else { return false };
    let (present, available_of_new) = (new.replicas, new.status.available_replicas);
    let wanted = match present > deployment.replicas() {
        true => deployment.replicas(),
        false => wanted_of_new(deployment, asked_for, present),
    };
    if present != deployment.replicas() && draft.resize_new(wanted) {
        return true;
    }
    let old_asked_for: i32 = draft.old.iter().map(|set| set.replicas).sum();
    if old_asked_for == 0 {
        return false;
    }
    let min_available = deployment.replicas() - deployment.max_unavailable();
    let unavailable_of_new = present - available_of_new;
    let may_go = asked_for - min_available - unavailable_of_new;
    if may_go <= 0 {
        return false;
    }
    // First what is of no use to anybody, then what is too much; the oldest first.
    let mut left = may_go;
    let mut moved = false;
    for at in 0..draft.old.len() {
        let set = &draft.old[at];
        let useless = (set.replicas - set.status.available_replicas).max(0).min(left);
        if useless > 0 {
            left -= useless;
            moved |= draft.resize_old(at, set.replicas - useless);
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

/// One step of a recreation: all old ones go, and when their pods are gone the new one comes. Says whether the old ones
/// moved or are waited for.
pub(super) fn recreate(draft: &mut Draft<'_>, old_pods_run: &dyn Fn(&str) -> bool) -> bool {
    let mut moved = false;
    for at in 0..draft.old.len() {
        moved |= draft.resize_old(at, 0);
    }
    if moved {
        return true;
    }
    let running = |set: &Set| {
        let uid = set.is.as_ref().map(|set| set.metadata.uid.as_str());
        set.status.replicas > 0 || uid.is_some_and(old_pods_run)
    };
    if draft.old.iter().any(running) {
        return true;
    }
    draft.need_new();
    draft.resize_new(draft.deployment.replicas());
    false
}

/// Brings the sizes to what the Deployment asks for now, without going on with a rollout: in proportion, so that neither
/// the new nor the old pods bear all of it.
pub(super) fn scale(draft: &mut Draft<'_>) {
    let deployment = draft.deployment;
    let wanted = deployment.replicas();
    let active: Vec<usize> = (0..draft.old.len()).filter(|at| draft.old[*at].replicas > 0).collect();
    let new_is_active = draft.new.as_ref().is_some_and(|new| new.replicas > 0);
    match (active.len(), new_is_active) {
        // One is active, or none: it, the new one or the latest takes all.
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
    let to_add = allowed - draft.asked_for();
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
    /// Gives an old ReplicaSet another size. Says whether it had one.
    pub(super) fn resize_old(&mut self, at: usize, size: i32) -> bool {
        let before = self.old[at].replicas;
        let name = self.old[at].name.clone();
        if before == size {
            return false;
        }
        self.old[at].replicas = size;
        revision::mark_size(self.deployment, &mut self.old[at]);
        self.tell_scaled(&name, before, size);
        true
    }

    /// Gives the new ReplicaSet another size. Says whether it had one.
    pub(super) fn resize_new(&mut self, size: i32) -> bool {
        let deployment = self.deployment;
        let Some(new) = self.new.as_mut().filter(|new| new.replicas != size) else { return false };
        let before = std::mem::replace(&mut new.replicas, size);
        revision::mark_size(deployment, new);
        let name = new.name.clone();
        self.tell_scaled(&name, before, size);
        true
    }
}
