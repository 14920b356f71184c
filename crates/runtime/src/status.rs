//! The status of an object. In: the object as it was reconciled, and what is true of it now. Out: the smallest patch
//! that says so, guarded by the resource version; none at all if the object says so already.

mod conditions;

use std::sync::Arc;

use jiff::Timestamp;
use konverge_schema::merge_patch;
use kube::core::ApiResource;
use serde_json::{Map, Value, json};

pub use conditions::{Condition, ConditionStatus, Conditions, DEGRADED, PROGRESSING, READY, is_true};

use crate::error::{Missing, WriteError};
use crate::object::Object;
use crate::write::{Call, MERGE_PATCH, Operation, Writer, same_value};

/// What is true of an object now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusUpdate {
    /// Fields of the status, as an object. `conditions` in it are merged by their type.
    pub fields: Value,
    /// Conditions to set.
    pub conditions: Vec<Condition>,
    /// Types of conditions to take away.
    pub removed: Vec<String>,
    /// What becomes of fields that are not given.
    pub others: OtherFields,
    /// The generation that conditions were observed at; that of the object they are written to, if none is given.
    pub observed: Option<i64>,
}

/// What becomes of fields of the status that an update does not mention. Conditions always stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherFields {
    /// They stay; `null` takes one away. For several writers of one status.
    #[default]
    Stay,
    /// They go: what is given is the whole status. For a typed status, where an absent field means that it is unset.
    Go,
}

/// How often a status is tried on an object that changes all the time.
const ATTEMPTS: usize = 5;

impl StatusUpdate {
    /// Conditions only.
    pub fn conditions(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self { conditions: conditions.into_iter().collect(), ..Self::default() }
    }

    /// These fields, with or without conditions among them.
    pub fn fields(fields: Value, others: OtherFields) -> Self {
        Self { fields, others, ..Self::default() }
    }
}

impl Writer {
    /// Makes the object's status say what `update` says. `live` is the object as it was last seen: conditions say that
    /// they were observed at its generation, unless the update says which one it is about. Answers with the object, or
    /// nothing if nothing had to be written. Changes by others meanwhile are taken into account, not overwritten.
    pub async fn set_status(
        &self,
        api: &ApiResource,
        live: &Object,
        update: &StatusUpdate,
        now: Timestamp,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let (key, observed) = (live.key(), update.observed.or(live.generation()));
        let left_of = |object: &Object| plan(&status_of(object), update, observed, Timestamp::UNIX_EPOCH);
        let mut fresh: Option<Arc<Object>> = None;
        for _ in 0..ATTEMPTS {
            let current = fresh.as_deref().unwrap_or(live);
            let Some(status) = plan(&status_of(current), update, observed, now) else { return Ok(fresh) };
            if self.memory().is_refused_status(api, &key, || left_of(current)) {
                return Ok(fresh);
            }
            let patch = json!({"metadata": {"resourceVersion": current.resource_version()}, "status": status});
            let operation = Operation::Patch(MERGE_PATCH);
            match self.write(Call { operation, api, key: &key, subresource: "status", body: Some(&patch) }).await {
                Ok(object) => {
                    let left = left_of(&object);
                    if let Some(left) = &left {
                        tracing::warn!(kind = %api.kind, %key, dropped = %left, "the server dropped parts of the status");
                    }
                    self.memory().settle_status(api, &key, left);
                    return Ok(Some(object));
                }
                Err(WriteError::Conflict { .. }) => {}
                Err(WriteError::NotFound { missing: Missing::Kind, .. }) => return Err(no_subresource(api)),
                // Of custom resources a server says so, too, if only their status is missing.
                Err(WriteError::NotFound { missing: Missing::Object, message }) => {
                    let is_there = self.get_object(api, &key).await?.is_some_and(|object| object.uid() == live.uid());
                    let gone = WriteError::NotFound { missing: Missing::Object, message };
                    return Err(if is_there { no_subresource(api) } else { gone });
                }
                Err(error) => return Err(error),
            }
            fresh = match self.get_object(api, &key).await? {
                Some(object) if object.uid() == live.uid() => Some(object),
                _ => {
                    let message = format!("{} {key} is gone, or another object has its name now", api.kind);
                    return Err(WriteError::NotFound { missing: Missing::Object, message });
                }
            };
        }
        let message = format!("{} {key} changed {ATTEMPTS} times while its status was to be written", api.kind);
        Err(WriteError::Conflict { message, fields: Vec::new() })
    }
}

fn no_subresource(api: &ApiResource) -> WriteError {
    let message = format!("{} has no status subresource: its CRD must declare one", api.kind);
    WriteError::NotFound { missing: Missing::Kind, message }
}

/// What an object says now; of a large one nothing else is read.
fn status_of(object: &Object) -> Value {
    object.pointer("/status").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The merge patch that makes a status say what the update says; none if it does.
fn plan(before: &Value, update: &StatusUpdate, observed: Option<i64>, now: Timestamp) -> Option<Value> {
    let empty = Value::Object(Map::new());
    let before = if before.is_object() { before } else { &empty };
    let mut fields = update.fields.clone();
    let given = fields.as_object_mut().and_then(|fields| fields.remove("conditions"));

    let mut conditions = Conditions::from_list(before.get("conditions"));
    let given = given.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    let mut changed = false;
    for condition in given {
        changed |= conditions.put(condition.clone(), observed, now);
    }
    for condition in &update.conditions {
        changed |= conditions.set(condition, observed, now);
    }
    for type_ in &update.removed {
        changed |= conditions.remove(type_);
    }

    let mut after = match update.others {
        OtherFields::Stay => before.clone(),
        OtherFields::Go => match before.get("conditions") {
            Some(conditions) => json!({"conditions": conditions}),
            None => empty.clone(),
        },
    };
    if fields.is_object() {
        merge_patch(&mut after, &fields);
    }
    if changed {
        after["conditions"] = conditions.into_value();
    }
    difference(before, &after)
}

/// The merge patch from one value to another.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (!same_value(before, after)).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(old) => patch.extend(difference(old, value).map(|value| (name.clone(), value))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    let removed = old.keys().filter(|name| !new.contains_key(*name));
    patch.extend(removed.map(|name| (name.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests;
