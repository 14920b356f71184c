//! The metadata of any object as controllers read it: identity, owners, deletion; and the conditions of built-in kinds. In:
//! JSON. Out: small values, and patches of owner references and annotations. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use konverge_core::ObjectKey;
use konverge_runtime::Subject;
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Labels or annotations.
pub(crate) type StringMap = BTreeMap<String, String>;

/// The metadata of an object, as much as controllers look at.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub labels: StringMap,
    pub annotations: StringMap,
    pub owner_references: Vec<OwnerReference>,
    pub finalizers: Vec<String>,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub deletion_grace_period_seconds: Option<i64>,
}

/// One owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

/// An object with metadata.
pub(crate) trait HasMeta {
    /// Its metadata.
    fn meta(&self) -> &Meta;
}

impl Meta {
    /// Its namespace and name.
    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty()), &self.name)
    }

    /// The owner that manages it.
    pub(crate) fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// Whether it is being deleted.
    pub(crate) fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// When it was created.
    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.creation_timestamp.as_ref().map(|time| time.0)
    }

    /// As what an event is about.
    pub(crate) fn subject(&self, api: &ApiResource) -> Subject {
        Subject { api_version: api.api_version.clone(), kind: api.kind.clone(), key: self.key(), uid: self.uid.clone() }
    }

    /// The reference of a child to this object as the one that manages it.
    pub(crate) fn as_controller(&self, api: &ApiResource) -> Value {
        json!({
            "apiVersion": api.api_version,
            "kind": api.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    /// The first operation of every patch: it is for this object, not for another one of its name.
    pub(crate) fn uid_test(&self) -> Value {
        json!({"op": "test", "path": "/metadata/uid", "value": self.uid})
    }
}

/// A condition as most built-in kinds have it. Those of Deployments have a `lastUpdateTime`, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    /// Only conditions of Jobs have this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Condition {
    /// A condition that came about now.
    pub(crate) fn new(type_: &str, status: &str, reason: &str, message: impl Into<String>, now: Timestamp) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            last_probe_time: None,
            last_update_time: None,
            last_transition_time: Some(seconds(now)),
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// The condition of a type.
pub(crate) fn condition<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Puts a condition at the end of the others, unless one with the same status and reason is there: its words and times
/// stay then. The time of its last transition stays with its status.
pub(crate) fn set_condition(conditions: &mut Vec<Condition>, mut condition: Condition) {
    if let Some(at) = conditions.iter().position(|other| other.type_ == condition.type_) {
        let before = &conditions[at];
        if (&before.status, &before.reason) == (&condition.status, &condition.reason) {
            return;
        }
        if before.status == condition.status {
            condition.last_transition_time = before.last_transition_time.clone();
        }
        conditions.remove(at);
    }
    conditions.push(condition);
}

/// A time as objects carry it: whole seconds.
pub(crate) fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// The text of a time as objects carry it.
pub(crate) fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A name as a step of a JSON pointer.
pub(crate) fn pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Operations that set annotations of an object that has those of `meta`.
pub(crate) fn set_annotations<'t>(
    meta: &Meta,
    annotations: impl IntoIterator<Item = (&'t String, &'t String)>,
) -> Vec<Value> {
    let changed: Vec<_> =
        annotations.into_iter().filter(|(name, value)| meta.annotations.get(*name) != Some(*value)).collect();
    if changed.is_empty() {
        return Vec::new();
    }
    if meta.annotations.is_empty() {
        let all: StringMap = changed.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        return vec![json!({"op": "add", "path": "/metadata/annotations", "value": all})];
    }
    let add = |(name, value): (&String, &String)| json!({"op": "add", "path": format!("/metadata/annotations/{}", pointer_step(name)), "value": value});
    changed.into_iter().map(add).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_move_only_when_they_change() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut conditions = vec![Condition::new("A", "True", "Fine", "first", at(1))];
        set_condition(&mut conditions, Condition::new("A", "True", "Fine", "second", at(2)));
        assert_eq!((&*conditions[0].message, &conditions[0].last_transition_time), ("first", &Some(Time(at(1)))));
        set_condition(&mut conditions, Condition::new("A", "True", "Better", "third", at(3)));
        assert_eq!((&*conditions[0].message, &conditions[0].last_transition_time), ("third", &Some(Time(at(1)))));
        set_condition(&mut conditions, Condition::new("B", "True", "", "", at(3)));
        set_condition(&mut conditions, Condition::new("A", "False", "Bad", "fourth", at(4)));
        let types: Vec<_> = conditions.iter().map(|condition| &*condition.type_).collect();
        assert_eq!((types, &conditions[1].last_transition_time), (vec!["B", "A"], &Some(Time(at(4)))));
    }

    #[test]
    fn annotations_are_added_one_by_one_or_all_at_once() {
        let wanted = StringMap::from([("a/b".to_owned(), "1".to_owned())]);
        let none = Meta::default();
        assert_eq!(
            set_annotations(&none, &wanted),
            [json!({"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}})]
        );
        let other = Meta { annotations: StringMap::from([("x".into(), "y".into())]), ..Meta::default() };
        assert_eq!(
            set_annotations(&other, &wanted),
            [json!({"op": "add", "path": "/metadata/annotations/a~1b", "value": "1"})]
        );
        let same = Meta { annotations: wanted.clone(), ..Meta::default() };
        assert!(set_annotations(&same, &wanted).is_empty());
    }
}
