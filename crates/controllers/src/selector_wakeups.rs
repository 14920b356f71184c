//! Wakes the objects that select a changed pod by its labels, such as Services and PodDisruptionBudgets. In: a change. Out: a
//! key that stands for the labels; the reconcile of that key wakes every object whose selector matches them. All pods of one
//! template have the same key, so a thousand changes are one search. Pure.

use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{CacheOf, Cause, Controller, Object, Trigger, What};
use serde::de::DeserializeOwned;

use crate::meta::{HasMeta, StringMap};

/// A changed object of a kind wakes the key of its labels.
pub(crate) fn by_labels(kind: &str) -> Trigger {
    Trigger::mapped(kind, |object: &Object| {
        let labels: StringMap = object.labels().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        key(object.namespace(), &labels).into_iter().collect()
    })
}

/// The labels a key stands for, if it stands for labels.
pub(crate) fn labels_of(key: &ObjectKey) -> Option<StringMap> {
    key.name().starts_with('{').then(|| serde_json::from_str(key.name()).ok()).flatten()
}

/// Wakes those of a namespace that select what a key of labels stands for.
pub(crate) fn wake<T: HasMeta + DeserializeOwned + Send + Sync + 'static>(
    controller: &Controller,
    all: &CacheOf<T>,
    because: &ObjectKey,
    kind: &str,
    selects: impl Fn(&T) -> bool,
) {
    let there = all.list(because.namespace(), &LabelSelector::default()).into_iter().flatten();
    for one in there.filter(|one| selects(one)) {
        let resource_version = one.meta().resource_version.clone();
        let cause = Cause { kind: kind.into(), key: because.clone(), what: What::Resync, resource_version };
        controller.wake(&one.meta().key(), cause);
    }
}

/// The key of labels. No object has such a name, because names do not begin with a brace. A pod without labels has a key as
/// well, because a selector may select everything.
fn key(namespace: Option<&str>, labels: &StringMap) -> Option<ObjectKey> {
    let name = serde_json::to_string(labels).ok()?;
    Some(ObjectKey::new(namespace, &name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_keys_and_come_back() {
        let check = |labels: &[(&str, &str)]| {
            let labels: StringMap = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            let key = key(Some("a"), &labels).unwrap();
            assert_eq!((key.namespace(), labels_of(&key)), (Some("a"), Some(labels)));
        };
        check(&[]);
        check(&[("app", "web"), ("example.com/tier", "front")]);
        assert_eq!(labels_of(&ObjectKey::new(Some("a"), "web")), None);
    }
}
