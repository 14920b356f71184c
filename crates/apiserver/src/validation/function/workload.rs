//! Workloads that make pods from a template: whether they select those pods, how fast they replace them, and what an update
//! may change. The controller of a workload that does not select its own pods would create pods without end.

use std::collections::BTreeMap;

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, LabelSelector, check_label_selector};

use super::super::walk::{Frame, Target, Walk, same, strings};
use super::{Function, field, has, number, text};

const NOT_SELECTED: &str = "`selector` does not match template `labels`";

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "selects-template" => selects_template,
        "selects-template-map" => selects_template_map,
        "non-empty-map" => non_empty_map,
        "empty-selector-deployment" => |walk, at, _| empty_selector(walk, at, "deployment"),
        "empty-selector-statefulset" => |walk, at, _| empty_selector(walk, at, "statefulset"),
        "empty-selector-daemonset" => |walk, at, _| empty_selector(walk, at, "daemonset"),
        "malformed-selector" => |walk, at, _| malformed_selector(walk, at, "invalid label selector"),
        "malformed-selector-dot" => |walk, at, _| malformed_selector(walk, at, "invalid label selector."),
        "malformed-selector-bare" => |walk, at, _| malformed_selector(walk, at, ""),
        "int-or-percent" => int_or_percent,
        "at-most-100-percent" => at_most_100_percent,
        "rolling-update-deployment" => rolling_update_deployment,
        "rolling-update-daemon-set" => rolling_update_daemon_set,
        "strategy-type-deployment" => |walk, at, _| strategy_type(walk, at, ["Recreate", "RollingUpdate"]),
        "strategy-type-daemon-set" => |walk, at, _| strategy_type(walk, at, ["RollingUpdate", "OnDelete"]),
        "stateful-strategy" => stateful_strategy,
        "stateful-set-update" => stateful_set_update,
        "progress-deadline" => progress_deadline,
        "collision-count" => collision_count,
        "revision-data" => revision_data,
        _ => return None,
    })
}

fn is_malformed(selector: &Value) -> bool {
    !selector.is_null() && !check_label_selector(selector, &FieldPath::root()).is_empty()
}

fn is_empty(selector: &Value) -> bool {
    let is_bare = |name| match field(selector, name) {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    };
    is_bare("matchLabels") && is_bare("matchExpressions")
}

fn template_labels(spec: &Value) -> &Value {
    field(field(field(spec, "template"), "metadata"), "labels")
}

/// A selector that is not there selects nothing; an empty one everything; a malformed one was reported.
fn selects_template(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let selector = field(at.value, "selector");
    if is_malformed(selector) {
        return;
    }
    let labels = template_labels(at.value);
    let given: BTreeMap<String, String> =
        strings(labels).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let found = !selector.is_null() && LabelSelector::from_object(selector).is_ok_and(|it| it.matches(&given));
    if !found {
        let path = at.place.child("template").child("metadata").child("labels");
        walk.push(FieldError::invalid(path, labels.clone(), NOT_SELECTED));
    }
}

fn selects_template_map(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let labels = template_labels(at.value);
    let mut selector = strings(field(at.value, "selector"));
    if has(at.value, "template") && selector.any(|(key, value)| text(labels, key) != value || !has(labels, key)) {
        let path = at.place.child("template").child("metadata").child("labels");
        walk.push(FieldError::invalid(path, labels.clone(), NOT_SELECTED));
    }
}

fn non_empty_map(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if at.value.as_object().is_none_or(|entries| entries.is_empty()) {
        walk.push(FieldError::required(at.place.path(), ""));
    }
}

/// ReplicaSets are called deployments here, in a cluster as well.
fn empty_selector(walk: &mut Walk<'_>, at: Target<'_>, kind: &str) {
    if is_empty(at.value) {
        walk.invalid(at.place, at.value.clone(), format!("empty selector is invalid for {kind}"));
    }
}

fn malformed_selector(walk: &mut Walk<'_>, at: Target<'_>, why: &str) {
    if is_malformed(at.value) {
        walk.invalid(at.place, at.value.clone(), why);
    }
}

fn percent(value: &Value) -> Option<i64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// The number of an integer or a percentage. Go reads other texts as the number that they begin with, or 0.
fn amount(value: &Value) -> i64 {
    let text = || value.as_str().and_then(|text| text.parse().ok());
    percent(value).or_else(|| value.as_i64()).or_else(text).unwrap_or_default()
}

fn int_or_percent(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if at.value.is_string() {
        if percent(at.value).is_none() {
            let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                       '93%', regex used for validation is '[0-9]+%')";
            walk.invalid(at.place, at.value.clone(), why);
        }
    } else if at.value.as_i64().unwrap_or_default() < 0 {
        walk.invalid(at.place, at.value.clone(), "must be greater than or equal to 0");
    }
}

fn at_most_100_percent(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if percent(at.value).is_some_and(|percent| percent > 100) {
        walk.invalid(at.place, at.value.clone(), "must not be greater than 100%");
    }
}

fn rolling_update_deployment(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let unavailable = field(at.value, "maxUnavailable");
    if amount(unavailable) == 0 && amount(field(at.value, "maxSurge")) == 0 {
        let path = at.place.child("maxUnavailable");
        walk.push(FieldError::invalid(path, unavailable.clone(), "may not be 0 when `maxSurge` is 0"));
    }
}

fn rolling_update_daemon_set(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let surge = field(at.value, "maxSurge");
    match (amount(field(at.value, "maxUnavailable")) != 0, amount(surge) != 0) {
        (true, true) => {
            let why = "may not be set when maxUnavailable is non-zero";
            walk.push(FieldError::invalid(at.place.child("maxSurge"), surge.clone(), why));
        }
        (false, false) => {
            let path = at.place.child("maxUnavailable");
            walk.push(FieldError::required(path, "cannot be 0 when maxSurge is 0"));
        }
        _ => {}
    }
}

fn strategy_type(walk: &mut Walk<'_>, at: Target<'_>, known: [&str; 2]) {
    walk.push(FieldError::not_supported(at.place.path(), at.value.clone(), known));
}

fn stateful_strategy(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let rolling = field(at.value, "rollingUpdate");
    let path = at.place.child("rollingUpdate");
    match text(at.value, "type") {
        "" => walk.push(FieldError::required(at.place.path(), "")),
        "OnDelete" => {
            if !rolling.is_null() {
                walk.push(FieldError::invalid(
                    path,
                    rolling.clone(),
                    "only allowed for updateStrategy 'RollingUpdate'",
                ));
            }
        }
        "RollingUpdate" => {
            let partition = number(rolling, "partition");
            if partition < 0 {
                let why = "must be greater than or equal to 0";
                walk.push(FieldError::invalid(path.child("partition"), partition.into(), why));
            }
        }
        _ => walk.invalid(at.place, at.value.clone(), "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// A StatefulSet says which of its fields may change, where other kinds name those that may not.
fn stateful_set_update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    const CHANGES: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let Some(old) = at.old else { return };
    let (old, new) = (field(old, "spec"), field(at.value, "spec"));
    let fixed = |spec: &Value, other: &Value| {
        let fields = spec.as_object().into_iter().flatten();
        fields
            .filter(|(name, _)| !CHANGES.contains(&name.as_str()))
            .all(|(name, value)| same(value, field(other, name)))
    };
    if !fixed(old, new) || !fixed(new, old) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        walk.push(FieldError::forbidden(FieldPath::new("spec"), why));
    }
}

fn progress_deadline(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let deadline = at.value.as_i64().unwrap_or_default();
    if deadline <= number(frame.value, "minReadySeconds") {
        walk.invalid(at.place, deadline, "must be greater than minReadySeconds");
    }
}

fn collision_count(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let count = |object: &Value| field(field(object, "status"), "collisionCount").as_i64();
    let (before, after) = (at.old.and_then(count), count(at.value));
    if before.is_some_and(|before| after.is_none_or(|after| after < before)) {
        let path = FieldPath::new("status").child("collisionCount");
        walk.push(FieldError::invalid(path, after.unwrap_or_default().into(), "cannot be decremented"));
    }
}

fn revision_data(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    match at.value {
        Value::Null => walk.push(FieldError::required(at.place.path(), "data is mandatory")),
        Value::Object(_) => {}
        _ => walk.push(FieldError::required(at.place.path(), "data must be a valid JSON object")),
    }
}
