//! JSON merge patch, RFC 7386, and where that says nothing, what Kubernetes does: nulls in objects of a list that is new are
//! removed, those in a list that replaces the fields of an object stay.
//! In: a document and a patch. Out: the document changed in place. It works without types.

use serde_json::{Map, Value};

/// Applies a merge patch: objects merge, `null` removes, everything else replaces.
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return target.clone_from(patch) };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let field = target.entry(name.as_str()).or_insert(Value::Null);
        let replaces_fields = field.is_object();
        merge_patch(field, value);
        if value.is_array() && !replaces_fields {
            remove_nulls(field);
        }
    }
}

/// Removes the null fields of all objects in a list.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(target: Value, patch: Value, expect: Value) {
        let mut actual = target;
        merge_patch(&mut actual, &patch);
        assert_eq!(actual, expect);
    }

    #[test]
    fn nulls_in_lists() {
        let list = json!([1, null, {"r": null, "s": [{"t": null}]}]);
        let pruned = json!([1, null, {"s": [{}]}]);
        check(json!({}), json!({"a": list}), json!({"a": pruned}));
        check(json!({}), json!({"b": {"a": list}}), json!({"b": {"a": pruned}}));
        check(json!({"a": [{"r": 1}]}), json!({"a": list}), json!({"a": pruned}));
        check(json!({"a": {"b": 1}}), json!({"a": list}), json!({"a": list}));
    }

    #[test]
    fn the_cases_of_the_rfc() {
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}));
        check(json!({"a": "b"}), json!({"a": null}), json!({}));
        check(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}));
        check(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]}));
        check(json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}}));
        check(json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]}));
        check(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]));
        check(json!({"a": "b"}), json!(["c"]), json!(["c"]));
        check(json!({"a": "foo"}), json!(null), json!(null));
        check(json!({"a": "foo"}), json!("bar"), json!("bar"));
        check(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}));
        check(json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"}));
        check(json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}}));
    }
}
