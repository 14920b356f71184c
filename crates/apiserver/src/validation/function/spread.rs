//! How pods are spread over nodes: label keys of affinities and spread constraints.

use std::collections::HashSet;

use konverge_core::{FieldError, FieldPath, check_label_key};
use serde_json::Value;

use super::super::place::Place;
use super::super::walk::{Frame, Target, Walk};
use super::{Function, entries, field, list, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "label-keys" => label_keys,
        "spread-repeat" => spread_repeat,
        "min-domains" => min_domains,
        _ => return None,
    })
}

fn check_keys(walk: &mut Walk<'_>, at: Target<'_>, name: &str) {
    let keys = list(at.value, name);
    let path = at.place.child(name);
    if !keys.is_empty() && field(at.value, "labelSelector").is_null() {
        return walk.push(FieldError::forbidden(path, "must not be specified when labelSelector is not set"));
    }
    for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
        for why in check_label_key(key) {
            walk.push(FieldError::invalid(path.index(index), key.into(), why));
        }
    }
}

/// Keys whose values the server merges into a selector, which must not have them already.
fn label_keys(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    check_keys(walk, at, "matchLabelKeys");
    check_keys(walk, at, "mismatchLabelKeys");
    let keys: Vec<&str> = list(at.value, "matchLabelKeys").iter().filter_map(Value::as_str).collect();
    let mismatched: HashSet<&str> = list(at.value, "mismatchLabelKeys").iter().filter_map(Value::as_str).collect();
    if keys.is_empty() {
        return;
    }
    let selector = field(at.value, "labelSelector");
    let mut selected: HashSet<&str> = entries(selector, "matchLabels").map(|(key, _)| key.as_str()).collect();
    let path: FieldPath = at.place.path();
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        // The last of several equal keys counts.
        if let Some(index) = keys.iter().rposition(|known| *known == key).filter(|_| selected.contains(key)) {
            let why = "exists in both matchLabelKeys and labelSelector";
            walk.push(FieldError::invalid(path.index(index), key.into(), why));
        }
        selected.insert(key);
    }
    for (index, key) in keys.iter().enumerate().filter(|(_, key)| mismatched.contains(*key)) {
        let why = "exists in both matchLabelKeys and mismatchLabelKeys";
        walk.push(FieldError::invalid(path.child("matchLabelKeys").index(index), (*key).into(), why));
    }
}

fn spread_repeat(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let Place::Index(_, index) = at.place else { return };
    let all = frame.above.map(|pod| list(pod.value, "topologySpreadConstraints")).unwrap_or_default();
    let (key, action) = (text(at.value, "topologyKey"), text(at.value, "whenUnsatisfiable"));
    let later = all.iter().skip(index + 1);
    // Every constraint is compared with every later one, so each comparison is paid for.
    let repeated = later
        .take_while(|_| walk.budget.spend(1))
        .any(|other| text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action);
    if repeated {
        let path = at.place.child("{topologyKey, whenUnsatisfiable}");
        walk.push(FieldError::duplicate(path, format!("{{{key}, {action}}}").into()));
    }
}

fn min_domains(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let action = text(frame.value, "whenUnsatisfiable");
    if action != "DoNotSchedule" {
        let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        walk.invalid(at.place, at.value.clone(), why);
    }
}
