//! The revision annotations of a Deployment and its ReplicaSets, and the sizes they were scaled for. In: annotations. Out: the
//! same, brought up to date. `kubectl rollout history` and `undo` read them. Pure.

use super::kind::Deployment;
use super::plan::Set;
use crate::meta::StringMap;

/// The revision of a ReplicaSet, and of its Deployment.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The revisions a ReplicaSet had before: it was rolled back to.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// How many replicas the Deployment asked for when the ReplicaSet was scaled.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The same with the surge.
const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of a Deployment that are not copied to its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
];

/// The limit of the length of the history annotation.
const MAX_HISTORY_LENGTH: usize = 2000;

/// The revision that annotations name; zero if they name none.
pub(super) fn of(annotations: &StringMap) -> i64 {
    annotations.get(REVISION).and_then(|revision| revision.parse().ok()).unwrap_or_default()
}

/// The newest revision of some ReplicaSets.
pub(super) fn newest(sets: &[Set]) -> i64 {
    sets.iter().map(|set| of(&set.annotations)).max().unwrap_or_default()
}

/// Updates the annotations of the ReplicaSet of the current template: those of the Deployment, and the newest revision if it
/// has an older one.
pub(super) fn mark(deployment: &Deployment, set: &mut Set, newest: i64) {
    for (name, value) in &deployment.metadata.annotations {
        if !NOT_COPIED.contains(&name.as_str()) && set.annotations.get(name) != Some(value) {
            set.annotations.insert(name.clone(), value.clone());
        }
    }
    let before = set.annotations.get(REVISION).cloned();
    // A revision that is not a number was set by someone else, and is kept.
    if before.as_ref().is_some_and(|before| before.parse::<i64>().is_err()) || of(&set.annotations) >= newest {
        return;
    }
    set.annotations.insert(REVISION.into(), newest.to_string());
    if let Some(before) = before {
        let history = set.annotations.remove(HISTORY).unwrap_or_default();
        set.annotations.insert(HISTORY.into(), with_revision(&history, &before));
    }
}

/// Adds a revision to the history, and drops the oldest ones if it gets too long.
fn with_revision(history: &str, revision: &str) -> String {
    let mut revisions: Vec<&str> = history.split(',').filter(|revision| !revision.is_empty()).collect();
    revisions.push(revision);
    let mut length: usize = revisions.iter().map(|revision| revision.len() + 1).sum::<usize>() - 1;
    let mut start = 0;
    while length > MAX_HISTORY_LENGTH && start + 1 < revisions.len() {
        length -= revisions[start].len() + 1;
        start += 1;
    }
    revisions[start..].join(",")
}

/// Records the size of the Deployment for which a ReplicaSet was scaled.
pub(super) fn mark_size(deployment: &Deployment, set: &mut Set) {
    set.annotations.insert(DESIRED.into(), deployment.replicas().to_string());
    set.annotations.insert(MAX.into(), (deployment.replicas() + deployment.max_surge()).to_string());
}

/// The size of the Deployment for which a ReplicaSet was scaled.
pub(super) fn desired(set: &Set) -> Option<i32> {
    count(set, DESIRED)
}

/// The same with the surge.
pub(super) fn most(set: &Set) -> Option<i32> {
    count(set, MAX)
}

fn count(set: &Set, name: &str) -> Option<i32> {
    set.annotations.get(name)?.parse().ok().filter(|count| *count >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_grow_and_are_cut() {
        assert_eq!(with_revision("", "1"), "1");
        assert_eq!(with_revision("1,3", "5"), "1,3,5");
        let long = vec!["1234567"; 250].join(",");
        let cut = with_revision(&long, "42");
        assert!(cut.len() <= MAX_HISTORY_LENGTH && cut.ends_with(",42"), "{}", cut.len());
    }
}
