//! How reports of failures are recognised. In: an object with its conditions. Out: whether its condition `Ready` is a report
//! of the framework, and whether two states of an object differ in nothing but such a report. Pure.
//!
//! A report has to be recognised after a restart of the operator, to be removed when a reconcile succeeds. Only its text can
//! tell, so its message begins with words that nothing but this file writes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use konverge_runtime::{Condition, Conditions, Error, Object, READY};
use serde_json::{Map, Value};

/// How the reports of every controller begin.
const PREFIX: &str = "reconcile ";

/// What marks a report as that of one controller.
#[derive(Clone, Debug)]
pub(crate) struct FailureMark {
    /// How the messages of its reports begin: `reconcile failed`. The reports of all controllers begin with [`PREFIX`].
    text: String,
    /// The defaults of the status: a server fills them in when a report creates the status.
    defaults: Map<String, Value>,
}

impl FailureMark {
    /// The mark of a controller. A controller that was given a name has a mark of its own, because another controller may
    /// reconcile the same objects.
    pub(crate) fn new(controller: Option<&str>, definition: Option<&CustomResourceDefinition>) -> Self {
        let text = match controller {
            Some(name) => format!("{PREFIX}of {name} failed"),
            None => format!("{PREFIX}failed"),
        };
        let mut defaults = Map::new();
        let versions = definition.into_iter().flat_map(|definition| &definition.spec.versions);
        for version in versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            let status = schema.and_then(|schema| schema.properties.as_ref()?.get("status")?.properties.as_ref());
            let default = |(name, field): (&String, &JSONSchemaProps)| Some((name.clone(), field.default.clone()?.0));
            defaults.extend(status.into_iter().flatten().filter_map(default));
        }
        Self { text, defaults }
    }

    /// The report of an error; `given_up` is the number of attempts after which no further one is made.
    pub(crate) fn condition(&self, error: &Error, given_up: Option<u32>) -> Condition {
        let often = given_up.map_or_else(String::new, |attempts| {
            format!(" {attempts} times in a row, and is not tried again until something changes")
        });
        Condition::no(READY, error.get_reason(), format!("{}{often}: {error:#}", self.text))
    }

    /// Whether the condition `Ready` of an object is a report of this controller.
    pub(crate) fn is_on(&self, object: &Value) -> bool {
        Conditions::of(object).get(READY).is_some_and(|ready| self.is_in(ready))
    }

    /// Whether a condition is a report of this controller.
    pub(crate) fn is_in(&self, condition: &Value) -> bool {
        condition["message"].as_str().is_some_and(|message| message.starts_with(&self.text))
    }

    /// Whether a report may be on an object. Most objects have none, and this tells without parsing them. It looks for the
    /// words that all reports share: JSON may escape the name of the controller in more than one way.
    pub(crate) fn may_be_on(&self, object: &Object) -> bool {
        object.json().contains(PREFIX)
    }

    /// Whether two states of an object differ only in a report that was added, changed or removed. Such a change does not
    /// reconcile the object: the reconcile would fail again, and the retries would never be given up. That holds for reports
    /// of all controllers: two that both fail would trigger each other for ever.
    pub(crate) fn is_only_difference(&self, before: &Object, after: &Object) -> bool {
        if !before.json().contains(PREFIX) && !after.json().contains(PREFIX) {
            return false;
        }
        let (before, mut after) = (before.value(), after.value());
        let was_removed = is_report(&before) && Conditions::of(&after).get(READY).is_none();
        if !was_removed && !is_report(&after) {
            return false;
        }
        if before["status"].is_null()
            && let Some(Value::Object(status)) = after.get_mut("status")
        {
            status.retain(|name, value| self.defaults.get(name) != Some(value));
        }
        without_ready(before) == without_ready(after)
    }
}

/// Whether the condition `Ready` of an object is a report of any controller.
fn is_report(object: &Value) -> bool {
    let conditions = Conditions::of(object);
    let message = conditions.get(READY).and_then(|ready| ready["message"].as_str()?.strip_prefix(PREFIX));
    message.is_some_and(|rest| rest.starts_with("failed") || rest.starts_with("of ") && rest.contains(" failed"))
}

/// An object without its condition `Ready` and without the fields that every write changes.
fn without_ready(mut object: Value) -> Value {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    if let Some(Value::Object(status)) = object.get_mut("status") {
        if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions.retain(|condition| condition["type"] != READY);
            if conditions.is_empty() {
                status.remove("conditions");
            }
        }
        if status.is_empty() {
            object.as_object_mut().expect("it has a status, so it is an object").remove("status");
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use konverge_runtime::Mode;
    use serde_json::json;

    use super::*;
    use crate::builders::ConfigMap;
    use crate::kind::Kind;

    /// An object with this version, spec and `Ready` message.
    fn object(version: u32, spec: u32, ready: Option<&str>) -> Object {
        let mut object = json!({"metadata": {"name": "a", "resourceVersion": version.to_string()}, "spec": spec});
        if let Some(message) = ready {
            let ready = json!({"type": READY, "status": "False", "reason": "Failed", "message": message});
            object["status"] = json!({"conditions": [ready]});
        }
        Object::parse(&ConfigMap::resource(), &object.to_string(), Mode::Full).unwrap()
    }

    #[test]
    fn reports_are_recognised_among_other_changes() {
        let (ours, later) = (Some("reconcile failed: no"), Some("reconcile failed: never"));
        let (theirs, other) = (Some("1 of 3"), Some("reconcile of gold failed: no"));
        let words = Some("reconcile of accounts begins");
        let mark = FailureMark::new(None, None);
        for (before, after, expect) in [
            ((1, None), (1, ours), true),
            ((1, ours), (1, later), true),
            ((1, ours), (1, None), true),
            ((1, theirs), (1, ours), true),
            ((1, ours), (1, theirs), false),
            ((1, None), (1, theirs), false),
            ((1, None), (1, other), true),
            ((1, ours), (1, other), true),
            ((1, other), (1, None), true),
            ((1, other), (1, theirs), false),
            ((1, None), (1, words), false),
            ((1, None), (2, other), false),
            ((1, None), (2, ours), false),
            ((1, ours), (2, ours), false),
            ((1, None), (2, None), false),
        ] {
            let (before, after) = (object(1, before.0, before.1), object(2, after.0, after.1));
            let (was, is) = (before.json(), after.json());
            assert_eq!(mark.is_only_difference(&before, &after), expect, "{was} → {is}");
        }
    }
}
