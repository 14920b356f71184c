//! The names of kinds, each of which belongs to the definition that had it first. In: the names that a definition asks for,
//! those it has, and the registry. Out: the names that are accepted, and why others are not.

use serde_json::{Value, json};

use crate::registry::{NameScope, Registry};

/// Which names of a definition are accepted.
pub(super) struct NameDecision {
    /// The accepted names. For each that is refused, the one from before, if any.
    pub accepted: Value,
    /// Reason and message of a conflict. Of several, Kubernetes reports the last one.
    pub refused: Option<(&'static str, String)>,
}

/// Decides which names of a definition are accepted, given those that it had before.
pub(super) fn decide(registry: &Registry, definition: &Value, before: Option<&Value>) -> NameDecision {
    let spec = &definition["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    let texts = |value: &Value| -> Vec<String> {
        let several = value.as_array().into_iter().flatten().chain(value.is_string().then_some(value));
        several.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    // Kubernetes shows these two fields even when they are empty.
    let none = json!({"plural": "", "kind": ""});
    let mut decision =
        NameDecision { accepted: before.filter(|before| before.is_object()).cloned().unwrap_or(none), refused: None };
    for (field, named, reason) in [
        ("plural", NameScope::Resource, "PluralConflict"),
        ("singular", NameScope::Resource, "SingularConflict"),
        ("shortNames", NameScope::Resource, "ShortNamesConflict"),
        ("kind", NameScope::Kind, "KindConflict"),
        ("listKind", NameScope::Kind, "ListKindConflict"),
    ] {
        let wanted = &spec["names"][field];
        let has = texts(&decision.accepted[field]);
        let taken: Vec<String> = texts(wanted)
            .into_iter()
            .filter(|name| !has.contains(name) && registry.is_taken(group, named, name, plural))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match &*taken {
            [] if wanted.is_null() => drop(decision.accepted.as_object_mut().and_then(|names| names.remove(field))),
            [] => decision.accepted[field] = wanted.clone(),
            [one] => decision.refused = Some((reason, one.clone())),
            several => decision.refused = Some((reason, format!("[{}]", several.join(", ")))),
        }
    }
    match spec["names"].get("categories") {
        Some(categories) => decision.accepted["categories"] = categories.clone(),
        None => drop(decision.accepted.as_object_mut().and_then(|names| names.remove("categories"))),
    }
    decision
}
