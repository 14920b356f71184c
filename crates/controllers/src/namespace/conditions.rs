//! The conditions of a namespace that is being deleted. In: what was found in it. Out: a status, if it has to change. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use konverge_runtime::{Error, Result};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::meta::{Condition, condition};

/// A new message with the same reason is written only after the deletion has taken this long: earlier ones change too fast
/// to be read.
const NEW_MESSAGE_AFTER: SignedDuration = SignedDuration::from_secs(2);

/// The content that remains in a namespace.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    /// The number of objects, by kind.
    objects: BTreeMap<String, usize>,
    /// The number of objects, by finalizer.
    finalizers: BTreeMap<String, usize>,
    failures: Vec<String>,
}

impl Remaining {
    /// Adds the result for a kind: the finalizers of each remaining object, or the error.
    pub(super) fn add(&mut self, api: &ApiResource, found: Result<Vec<Vec<String>>>) {
        match found {
            Ok(objects) if objects.is_empty() => {}
            Ok(objects) => {
                self.objects.insert(format!("{}.{}", api.plural, api.group), objects.len());
                for finalizer in objects.into_iter().flatten() {
                    *self.finalizers.entry(finalizer).or_default() += 1;
                }
            }
            Err(error) => self.failures.push(format!("{error:#}")),
        }
    }

    /// Whether nothing remains and nothing failed.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.failures.is_empty()
    }

    /// The reason and the message of a condition that is true; `None` if it is false.
    fn problem(&self, type_: &str, undiscovered: Option<&Error>) -> Option<(&'static str, String)> {
        let list = |counts: &BTreeMap<String, usize>, verb: &str| {
            let words = counts.iter().map(|(name, many)| format!("{name} {verb} {many} resource instances"));
            words.collect::<Vec<_>>().join(", ")
        };
        match type_ {
            DISCOVERY => undiscovered.map(|error| ("DiscoveryFailed", format!("{error:#}"))),
            CONTENT if !self.failures.is_empty() => {
                let (many, why) = (self.failures.len(), self.failures.join(", "));
                let message = format!("Failed to delete all resource types, {many} remaining: {why}");
                Some(("ContentDeletionFailed", message))
            }
            REMAINING if !self.objects.is_empty() => {
                let message = format!("Some resources are remaining: {}", list(&self.objects, "has"));
                Some(("SomeResourcesRemain", message))
            }
            FINALIZERS if !self.finalizers.is_empty() => {
                let which = list(&self.finalizers, "in");
                let message = format!("Some content in the namespace has finalizers remaining: {which}");
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    }
}

const DISCOVERY: &str = "NamespaceDeletionDiscoveryFailure";
const CONTENT: &str = "NamespaceDeletionContentFailure";
const REMAINING: &str = "NamespaceContentRemaining";
const FINALIZERS: &str = "NamespaceFinalizersRemaining";

/// Every condition in its order, with the reason and the message if it is false.
const CONDITIONS: [(&str, &str, &str); 5] = [
    (DISCOVERY, "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (CONTENT, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    (REMAINING, "ContentRemoved", "All content successfully removed"),
    (FINALIZERS, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// The status with the conditions; `None` if it does not change. `since` is how long the deletion has taken so far.
pub(super) fn status(
    before: &Value,
    remaining: &Remaining,
    undiscovered: Option<&Error>,
    since: SignedDuration,
    now: Timestamp,
) -> Option<Value> {
    let mut conditions: Vec<Condition> = serde_json::from_value(before["conditions"].clone()).unwrap_or_default();
    let mut changed = false;
    for (type_, reason, message) in CONDITIONS {
        let mut new = match remaining.problem(type_, undiscovered) {
            Some((reason, message)) => Condition::new(type_, "True", reason, message, now),
            None => Condition::new(type_, "False", reason, message, now),
        };
        if let Some(old) = condition(&conditions, type_) {
            let same_reason = (&old.status, &old.reason) == (&new.status, &new.reason);
            if same_reason && (old.message == new.message || since < NEW_MESSAGE_AFTER) {
                continue;
            }
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
        }
        changed = true;
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            Some(old) => *old = new,
            None => conditions.push(new),
        }
    }
    changed.then(|| {
        let mut status = if before.is_object() { before.clone() } else { json!({}) };
        status["phase"] = "Terminating".into();
        status["conditions"] = json!(conditions);
        status
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};

    use super::*;

    #[test]
    fn conditions_say_what_is_left() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut remaining = Remaining::default();
        assert!(remaining.is_empty());
        remaining.add(&ApiResource::erase::<ConfigMap>(&()), Ok(vec![]));
        assert!(remaining.is_empty());
        remaining.add(&ApiResource::erase::<Pod>(&()), Ok(vec![vec![], vec!["example.com/wait".into()]]));
        assert!(!remaining.is_empty());
        let first = status(&json!({"phase": "Active"}), &remaining, None, SignedDuration::ZERO, now).unwrap();
        let words: Vec<String> = (first["conditions"].as_array().unwrap().iter())
            .map(|condition| format!("{} {} {}", condition["type"], condition["status"], condition["message"]))
            .collect();
        assert_eq!(first["phase"], "Terminating");
        assert_eq!(
            words.join("\n").replace('"', ""),
            "NamespaceDeletionDiscoveryFailure False All resources successfully discovered\n\
             NamespaceDeletionGroupVersionParsingFailure False All legacy kube types successfully parsed\n\
             NamespaceDeletionContentFailure False All content successfully deleted, may be waiting on finalization\n\
             NamespaceContentRemaining True Some resources are remaining: pods. has 2 resource instances\n\
             NamespaceFinalizersRemaining True Some content in the namespace has finalizers remaining: \
             example.com/wait in 1 resource instances"
        );
        assert_eq!(status(&first, &remaining, None, SignedDuration::from_secs(9), now), None);

        // Other words are told only when it takes long.
        let mut fewer = Remaining::default();
        fewer.add(&ApiResource::erase::<Pod>(&()), Ok(vec![vec!["example.com/wait".into()]]));
        assert_eq!(status(&first, &fewer, None, SignedDuration::from_secs(1), now), None);
        assert!(status(&first, &fewer, None, SignedDuration::from_secs(2), now).is_some());

        let mut failed = Remaining::default();
        failed.add(&ApiResource::erase::<Pod>(&()), Err(Error::new("no")));
        let status = status(&first, &failed, None, SignedDuration::ZERO, now).unwrap();
        assert_eq!(status["conditions"][2]["reason"], "ContentDeletionFailed");
        assert_eq!(status["conditions"][3]["reason"], "ContentRemoved");
    }
}
