//! Flow schemas and priority levels: which requests they name, how they queue, and what the two that every cluster has must be.

use serde_json::{Value, json};

use konverge_core::{FieldError, NameRule, check_name};

use super::super::walk::{Frame, Target, Walk, same};
use super::{Function, field, has, number, text};

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
/// How many bits the hash of a flow has, from which its queues are dealt.
const MAX_HASH_BITS: f64 = 60.0;

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "flow-verbs" => flow_verbs,
        "flow-namespaces" => flow_namespaces,
        "flow-paths" => flow_paths,
        "flow-groups" => |walk, at, _| lone_wildcard(walk, at, "api groups"),
        "flow-resources" => |walk, at, _| lone_wildcard(walk, at, "resources"),
        "flow-distinguisher" => flow_distinguisher,
        "flow-schema-fixed" => flow_schema_fixed,
        "priority-level-fixed" => priority_level_fixed,
        "hand-size" => hand_size,
        _ => return None,
    })
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Refuses `*` beside others, and says whether it is there at all.
fn lone_wildcard(walk: &mut Walk<'_>, at: Target<'_>, others: &str) {
    let words = words(at.value);
    if words.len() > 1 && words.contains(&"*") {
        walk.invalid(at.place, at.value.clone(), format!("if '*' is present, must not specify other {others}"));
    }
}

fn flow_verbs(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    lone_wildcard(walk, at, "verbs");
    let words = words(at.value);
    if !words.contains(&"*") && words.iter().any(|verb| !VERBS.contains(verb)) {
        walk.push(FieldError::not_supported(at.place.path(), at.value.clone(), VERBS));
    }
}

fn flow_namespaces(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    lone_wildcard(walk, at, "namespaces");
    let words = words(at.value);
    if words.contains(&"*") {
        return;
    }
    for (index, namespace) in words.into_iter().enumerate() {
        for why in check_name(namespace, NameRule::Label, false) {
            let why = format!("each member of this list must be '*' or a DNS-1123 label; {why}");
            walk.push(FieldError::invalid(at.place.path().index(index), namespace.into(), why));
        }
    }
}

fn flow_paths(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    lone_wildcard(walk, at, "non-resource URLs");
    let words = words(at.value);
    if words.contains(&"*") {
        return;
    }
    for (index, path) in words.into_iter().enumerate() {
        let wildcards = path.matches('*').count();
        let why = match path {
            "" => "must not be empty",
            "/" => continue,
            path if !path.starts_with('/') => "must start with slash",
            path if path.contains(' ') => "must not contain white-space",
            path if path.contains("//") => "must not contain double slash",
            path if wildcards > 1 || wildcards == 1 && !path.ends_with("/*") => "wildcard can only do suffix matching",
            _ => continue,
        };
        walk.push(FieldError::invalid(at.place.path().index(index), path.into(), why));
    }
}

/// The error is about the type and shows the struct.
fn flow_distinguisher(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let known = ["ByNamespace", "ByUser"];
    if !known.contains(&text(at.value, "type")) {
        walk.push(FieldError::not_supported(at.place.child("type"), at.value.clone(), known));
    }
}

fn name_of<'v>(walk: &Walk<'v>) -> &'v str {
    text(field(walk.object, "metadata"), "name")
}

fn flow_schema_fixed(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let name = name_of(walk).to_owned();
    let (level, precedence, groups): (_, _, &[&str]) = match name.as_str() {
        "exempt" => ("exempt", 1, &["system:masters"]),
        "catch-all" => ("catch-all", 10_000, &["system:unauthenticated", "system:authenticated"]),
        _ => return,
    };
    let subjects: Vec<Value> = groups.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect();
    let every = ["*"];
    let mut fixed = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [{
            "subjects": subjects,
            "resourceRules": [
                {"verbs": every, "apiGroups": every, "resources": every, "namespaces": every, "clusterScope": true},
            ],
            "nonResourceRules": [{"verbs": every, "nonResourceURLs": every}],
        }],
    });
    if name == "catch-all" {
        fixed["distinguisherMethod"] = json!({"type": "ByUser"});
    }
    if !same(at.value, &fixed) {
        walk.invalid(at.place, at.value.clone(), format!("spec of '{name}' must equal the fixed value"));
    }
}

fn priority_level_fixed(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let name = name_of(walk).to_owned();
    match name.as_str() {
        // What is exempt may have a share, which an administrator sets.
        "exempt" if text(at.value, "type") != "Exempt" || has(at.value, "limited") => {
            let why = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value";
            walk.invalid(at.place, at.value.clone(), why);
        }
        "catch-all" => {
            let limited = json!({
                "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"},
            });
            if !same(at.value, &json!({"type": "Limited", "limited": limited})) {
                walk.invalid(at.place, at.value.clone(), "spec of 'catch-all' must equal the fixed value");
            }
        }
        _ => {}
    }
}

/// How many queues a flow may use.
fn hand_size(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let (hand, queues) = (at.value.as_i64().unwrap_or_default(), number(frame.value, "queues"));
    let why = if hand <= 0 {
        "must be positive".to_owned()
    } else if hand > queues {
        format!("should not be greater than queues ({queues})")
    } else if ((queues as f64).log2() * hand as f64).ceil() > MAX_HASH_BITS {
        format!("required entropy bits of deckSize {queues} and handSize {hand} should not be greater than 60")
    } else {
        return;
    };
    walk.invalid(at.place, hand, why);
}
