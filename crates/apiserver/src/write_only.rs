//! Write-only fields, such as `stringData` of a Secret. In: an object, and the behaviour of its kind. Out: the object with the
//! values in the field that stores them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::behaviour::Behaviour;

/// Moves the values of the kind's write-only field, if it has one.
pub(crate) fn merge(behaviour: &Behaviour, object: &mut Value) {
    if let Some((from, into)) = behaviour.folds {
        move_texts(object, from, into);
    }
}

/// Moves texts to the field that stores them as base64, where they replace values of the same name.
fn move_texts(object: &mut Value, from: &str, into: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = fields.remove(from) else { return };
    let stored = fields.entry(into).or_insert_with(|| Value::Object(Map::new()));
    if !stored.is_object() {
        *stored = Value::Object(Map::new());
    }
    for (name, text) in texts {
        stored[&name] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::behaviour::behaviour;

    #[test]
    fn kinds() {
        #[track_caller]
        fn check(group: &str, plural: &str, mut object: Value, expect: Value) {
            merge(behaviour(group, plural), &mut object);
            assert_eq!(object, expect);
        }
        check("", "configmaps", json!({"data": {"a": "b"}}), json!({"data": {"a": "b"}}));
        check("", "secrets", json!({}), json!({}));
        check(
            "",
            "secrets",
            json!({"type": "mine", "data": {"a": "eA=="}}),
            json!({"type": "mine", "data": {"a": "eA=="}}),
        );
        check(
            "",
            "secrets",
            json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "me", "c": ""}}),
            json!({"data": {"a": "bWU=", "b": "eQ==", "c": ""}}),
        );
        check("", "secrets", json!({"data": null, "stringData": {"a": "yes"}}), json!({"data": {"a": "eWVz"}}));
        check("", "secrets", json!({"stringData": null}), json!({}));
    }
}
