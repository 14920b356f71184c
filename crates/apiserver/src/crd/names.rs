//! The names of kinds, each of which belongs to whoever had it first. In: the names that a definition wants, those it has,
//! and the table of kinds. Out: the names it may have, and which it may not.

use serde_json::{Value, json};

use crate::kinds::{KindTable, Named};

/// What was decided about the names of a definition.
pub(super) struct Judged {
    /// The names it has: for each that is refused, the one it had before, if any.
    pub accepted: Value,
    /// Reason and message. Of several, Kubernetes names the last it finds.
    pub refused: Option<(&'static str, String)>,
}

/// Decides about the names that a definition asks for, given those that it had before.
pub(super) fn judge(kinds: &KindTable, definition: &Value, before: Option<&Value>) -> Judged {
    let spec = &definition["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    let texts = |value: &Value| -> Vec<String> {
        let several = value.as_array().into_iter().flatten().chain(value.is_string().then_some(value));
        several.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    // Kubernetes shows these two even when there is none.
    let none = json!({"plural": "", "kind": ""});
    let mut judged =
        Judged { accepted: before.filter(|before| before.is_object()).cloned().unwrap_or(none), refused: None };
    for (field, named, reason) in [
        ("plural", Named::Resource, "PluralConflict"),
        ("singular", Named::Resource, "SingularConflict"),
        ("shortNames", Named::Resource, "ShortNamesConflict"),
        ("kind", Named::Kind, "KindConflict"),
        ("listKind", Named::Kind, "ListKindConflict"),
    ] {
        let wanted = &spec["names"][field];
        let has = texts(&judged.accepted[field]);
        let taken: Vec<String> = texts(wanted)
            .into_iter()
            .filter(|name| !has.contains(name) && kinds.is_taken(group, named, name, plural))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match &*taken {
            [] if wanted.is_null() => drop(judged.accepted.as_object_mut().and_then(|names| names.remove(field))),
            [] => judged.accepted[field] = wanted.clone(),
            [one] => judged.refused = Some((reason, one.clone())),
            several => judged.refused = Some((reason, format!("[{}]", several.join(", ")))),
        }
    }
    match spec["names"].get("categories") {
        Some(categories) => judged.accepted["categories"] = categories.clone(),
        None => drop(judged.accepted.as_object_mut().and_then(|names| names.remove("categories"))),
    }
    judged
}
