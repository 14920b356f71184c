//! The state that an operator leaves behind, for comparing two runs. In: objects. Out: what differs between two states. What has to differ from run to run
//! is left out: identities, times, counters of writes, addresses that a server gives, and the values of Secrets, which are often made by chance. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::manifests::called;

/// How many differences are told.
const MOST_DIFFERENCES: usize = 20;

/// Fields that differ from run to run, wherever they are.
const BY_RUN: [&str; 12] = [
    "uid",
    "resourceVersion",
    "generation",
    "observedGeneration",
    "managedFields",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
    "caBundle",
    "selfLink",
    "deployment.kubernetes.io/revision",
];

/// Annotations in which this framework notes what it applied; they depend on identities.
const NOTES: &str = "applied.konverge.dev/";

/// Objects by their kinds and names, without what differs from run to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EndState(BTreeMap<String, Value>);

impl EndState {
    /// The state of samples, and of what was made for them. The status of the latter is not the operator's, so it is left out.
    pub(super) fn of(samples: &[Value], children: &[Value]) -> Self {
        let samples = samples.iter().map(|object| (called(object), comparable(object)));
        let children = children.iter().map(|object| {
            let mut comparable = comparable(object);
            if let Some(fields) = comparable.as_object_mut() {
                fields.remove("status");
            }
            (called(object), comparable)
        });
        Self(samples.chain(children).collect())
    }

    /// What is different in another state, as sentences.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, expect) in &self.0 {
            match other.0.get(name) {
                None => found.push(format!("{name} is missing")),
                Some(got) => compare(name, "", expect, got, &mut found),
            }
        }
        for name in other.0.keys().filter(|name| !self.0.contains_key(*name)) {
            found.push(format!("{name} is there only after the disturbed run"));
        }
        if found.len() > MOST_DIFFERENCES {
            let more = found.len() - MOST_DIFFERENCES;
            found.truncate(MOST_DIFFERENCES);
            found.push(format!("and {more} more"));
        }
        found
    }
}

/// An object without what differs from run to run.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if object["kind"] == "Secret" {
        for field in ["data", "stringData"] {
            for value in object[field].as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
                *value = "(a secret)".into();
            }
        }
    }
    strip(&mut object);
    object
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_kept = |name: &str| !BY_RUN.contains(&name) && !name.starts_with(NOTES);
            fields.retain(|name, value| is_kept(name) && !is_time(value));
            // Conditions are a set.
            if let Some(conditions) = fields.get_mut("conditions").and_then(Value::as_array_mut) {
                conditions.sort_by_key(|condition| condition["type"].to_string());
            }
            fields.values_mut().for_each(strip);
            // Annotations that had only notes are none.
            fields.retain(|name, value| name != "annotations" || !value.as_object().is_some_and(Map::is_empty));
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() >= 20 && text.parse::<Timestamp>().is_ok())
}

fn compare(name: &str, path: &str, expect: &Value, got: &Value, found: &mut Vec<String>) {
    match (expect, got) {
        (Value::Object(expect), Value::Object(got)) => {
            for (field, value) in expect {
                let path = format!("{path}.{field}");
                compare(name, &path, value, got.get(field).unwrap_or(&Value::Null), found);
            }
            let added = |field: &&String| !expect.contains_key(*field);
            for field in got.keys().filter(added) {
                found.push(format!("{name}: {path}.{field} is {} instead of nothing", short(&got[field])));
            }
        }
        (expect, got) if expect == got => {}
        (expect, got) => found.push(format!("{name}: {path} is {} instead of {}", short(got), short(expect))),
    }
}

fn short(value: &Value) -> String {
    let text = if value.is_null() { "nothing".to_owned() } else { value.to_string() };
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Whether everything in `part` is also in `whole`: the first field that is not, or nothing.
pub(super) fn missing(part: &Value, whole: &Value) -> Option<String> {
    fn look(path: &str, part: &Value, whole: &Value) -> Option<String> {
        match (part, whole) {
            (Value::Object(part), Value::Object(whole)) => lost(path, part, whole),
            (part, whole) if part == whole => None,
            (part, whole) => Some(format!("{path} was {} and is {}", short(part), short(whole))),
        }
    }
    fn lost(path: &str, part: &Map<String, Value>, whole: &Map<String, Value>) -> Option<String> {
        let nothing = Value::Null;
        part.iter()
            .find_map(|(field, value)| look(&format!("{path}.{field}"), value, whole.get(field).unwrap_or(&nothing)))
    }
    look("", part, whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, rest: Value) -> Value {
        let mut object = json!({"kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}});
        for (field, value) in rest.as_object().expect("an object") {
            object[field] = value.clone();
        }
        object
    }

    #[track_caller]
    fn check(before: &[Value], after: &[Value], expect: &[&str]) {
        assert_eq!(EndState::of(before, &[]).differences(&EndState::of(after, &[])), expect);
    }

    #[test]
    fn what_differs() {
        let one = |data: Value| object("x", json!({"data": data}));
        check(&[one(json!({"a": "1"}))], &[one(json!({"a": "1"}))], &[]);
        check(
            &[one(json!({"a": "1"}))],
            &[one(json!({"a": "2"}))],
            &["ConfigMap a/x: .data.a is \"2\" instead of \"1\""],
        );
        check(&[one(json!({"a": "1"}))], &[one(json!({}))], &["ConfigMap a/x: .data.a is nothing instead of \"1\""]);
        check(&[one(json!({}))], &[one(json!({"b": 1}))], &["ConfigMap a/x: .data.b is 1 instead of nothing"]);
        check(&[one(json!({}))], &[], &["ConfigMap a/x is missing"]);
        check(&[], &[one(json!({}))], &["ConfigMap a/x is there only after the disturbed run"]);
    }

    #[test]
    fn what_may_differ() {
        let run = |uid: &str, time: &str, ip: &str| {
            object("x", json!({"status": {"uid": uid, "at": time, "clusterIP": ip, "observedGeneration": uid.len()}}))
        };
        check(&[run("1", "2026-01-01T00:00:00Z", "10.0.0.1")], &[run("22", "2026-01-02T00:00:00Z", "10.0.0.2")], &[]);
        let noted = |hash: &str| json!({"kind": "Pod", "metadata": {"name": "x", "annotations": {"applied.konverge.dev/shop": hash}}});
        check(&[noted("1")], &[json!({"kind": "Pod", "metadata": {"name": "x"}})], &[]);
        let conditions = |types: [&str; 2]| {
            let conditions = types.map(|name| json!({"type": name}));
            json!({"kind": "Shop", "metadata": {"name": "x"}, "status": {"conditions": conditions}})
        };
        check(&[conditions(["A", "B"])], &[conditions(["B", "A"])], &[]);
        check(
            &[conditions(["A", "B"])],
            &[conditions(["A", "C"])],
            &[
                "Shop x: .status.conditions is [{\"type\":\"A\"},{\"type\":\"C\"}] instead of [{\"type\":\"A\"},{\"type\":\"B\"}]",
            ],
        );
        // The status of a child is that of its controllers.
        let child =
            |ready: i64| [json!({"kind": "Deployment", "metadata": {"name": "x"}, "status": {"readyReplicas": ready}})];
        assert_eq!(EndState::of(&[], &child(1)), EndState::of(&[], &child(2)));
        let secret = |value: &str| json!({"kind": "Secret", "metadata": {"name": "x"}, "data": {"password": value}});
        check(&[secret("YQ==")], &[secret("Yg==")], &[]);
    }

    #[test]
    fn what_is_lost() {
        for (part, whole, expect) in [
            (json!({"a": 1}), json!({"a": 1, "b": 2}), None),
            (json!({"a": {"b": 1}}), json!({"a": {}}), Some(".a.b was 1 and is nothing")),
            (json!({"a": [1]}), json!({"a": [1, 2]}), Some(".a was [1] and is [1,2]")),
        ] {
            assert_eq!(missing(&part, &whole).as_deref(), expect);
        }
    }
}
