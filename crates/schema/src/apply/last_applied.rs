//! Migration from client-side to server-side apply, by the annotation in which `kubectl apply` stores what it applied.
//! In: the live object and its annotation. Out: the fields that kubectl may take over without a conflict, and the updated
//! annotation.

use serde_json::{Map, Value};

use super::compare::compare;
use super::owned_fields::fields_of;
use super::type_ref::{TypeRef, check};
use crate::field_set::FieldSet;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The limit of the total size of all annotations of an object.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// The fields that kubectl applied client-side and that have not changed since. `None` if the annotation is missing or
/// cannot be used.
pub(super) fn fields_to_take_over(type_ref: TypeRef<'_>, live: &Value, api_version: &str) -> Option<FieldSet> {
    let text = annotations(live)?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    check(type_ref, live).ok()?;
    check(type_ref, &applied).ok()?;
    let changes = compare(type_ref, &applied, live);
    let fields = fields_of(type_ref, &applied);
    Some(fields.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

/// Updates the annotation, if the object has one, to the configuration that kubectl applied server-side.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(given) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        given.remove(ANNOTATION);
    }
    annotations.insert(ANNOTATION.into(), go_json(&config).into());
    let length: usize = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if length > MAX_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.pointer("/metadata/annotations")?.as_object()
}

/// JSON as Go's encoder writes it: sorted, safe inside HTML, with a newline at the end.
fn go_json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out.push('\n');
    out
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (at, (name, value)) in fields.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_string(out, name);
                out.push(':');
                write_json(out, value);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::String(text) => write_string(out, text),
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn write_string(out: &mut String, text: &str) {
    for c in Value::from(text).to_string().chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
}
