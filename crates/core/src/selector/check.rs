//! What is wrong with a `LabelSelector` object, in Kubernetes' words. In: the object and where it is. Out: field errors. Pure.

use serde_json::Value;

use crate::field::{FieldError, FieldPath};
use crate::name::{check_label_key, check_label_value, check_labels};

/// Checks a `LabelSelector` object: keys, operators and values. An empty selector has nothing wrong with it here.
pub fn check_label_selector(selector: &Value, path: &FieldPath) -> Vec<FieldError> {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    let mut errors = check_labels(labels, &path.child("matchLabels"));
    for (at, requirement) in selector["matchExpressions"].as_array().into_iter().flatten().enumerate() {
        check_requirement(&mut errors, requirement, &path.child("matchExpressions").index(at));
    }
    errors
}

fn check_requirement(errors: &mut Vec<FieldError>, requirement: &Value, path: &FieldPath) {
    let text = |field: &str| requirement[field].as_str().unwrap_or_default();
    let values = requirement["values"].as_array().map(Vec::as_slice).unwrap_or_default();
    match text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(path.child("values"), why));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(path.child("values"), why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            errors.push(FieldError::invalid(path.child("operator"), other.into(), "not a valid selector operator"))
        }
    }
    let key = text("key");
    let invalid_key = |why| FieldError::invalid(path.child("key"), key.into(), why);
    errors.extend(check_label_key(key).into_iter().map(invalid_key));
    for (at, value) in values.iter().filter_map(Value::as_str).enumerate() {
        let invalid_value = |why| FieldError::invalid(path.child("values").index(at), value.into(), why);
        errors.extend(check_label_value(value).into_iter().map(invalid_value));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_checked_by_key_operator_and_values() {
        let check = |selector: Value, expect: &[&str]| {
            let errors = check_label_selector(&selector, &FieldPath::new("s"));
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), expect.len(), "{selector}: {errors:?}");
            for (error, expect) in errors.iter().zip(expect) {
                assert!(error.starts_with(expect), "{selector}: {error}");
            }
        };
        let one = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({}), &[]);
        check(json!({"matchLabels": {"example.com/app": "web"}}), &[]);
        check(
            json!({"matchLabels": {"app": "a b"}}),
            &["s.matchLabels: Invalid value: \"a b\": a valid label must be"],
        );
        check(json!({"matchLabels": {"a b": "c"}}), &["s.matchLabels: Invalid value: \"a b\": name part must consist"]);
        check(one("app", "In", json!(["a", "b"])), &[]);
        check(one("app", "Exists", json!([])), &[]);
        check(
            one("app", "NotIn", json!([])),
            &["s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
        );
        check(
            one("app", "DoesNotExist", json!(["a"])),
            &["s.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or"],
        );
        check(
            one("app", "Near", json!(["a"])),
            &["s.matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator"],
        );
        check(
            one("", "In", json!(["-"])),
            &[
                "s.matchExpressions[0].key: Invalid value: \"\": name part must be non-empty",
                "s.matchExpressions[0].key: Invalid value: \"\": name part must consist",
                "s.matchExpressions[0].values[0]: Invalid value: \"-\": a valid label must be",
            ],
        );
    }
}
