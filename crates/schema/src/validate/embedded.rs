//! Validation of embedded resources. In: the fields of a value with `x-kubernetes-embedded-resource`. Out: errors in its
//! apiVersion and kind. The server checks its metadata.

use konverge_core::{FieldError, FieldPath};
use serde_json::{Map, Value};

use crate::budget::{Budget, size};
use crate::path::Path;

/// Checks `apiVersion` and `kind` of an embedded resource.
pub(super) fn check(
    map: &Map<String, Value>,
    path: &Path<'_>,
    prefix: &FieldPath,
    budget: &Budget,
    errors: &mut Vec<FieldError>,
) {
    let at = |name: &str| Path::Field(path, name).keyed(prefix);
    // A long path or value is repeated in every error.
    let mut report = |error: FieldError| {
        if budget.produce(error.path.as_str().len() + error.value.as_ref().map_or(0, size)) {
            errors.push(error);
        }
    };
    for name in ["apiVersion", "kind"] {
        if !map.contains_key(name) {
            report(FieldError::required(at(name), ""));
        }
    }
    for name in ["apiVersion", "kind"] {
        let Some(value) = map.get(name) else { continue };
        let complaint = match value.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => Some("must not be empty".to_owned()),
            Some(version) if name == "apiVersion" => {
                // Go reads a lone slash as an empty version.
                let known = version == "/" || version.matches('/').count() < 2;
                (!known).then(|| format!("unexpected GroupVersion string: {version}"))
            }
            Some(kind) => kind_complaint(kind),
        };
        if let Some(complaint) = complaint {
            report(FieldError::invalid(at(name), value.clone(), complaint));
        }
    }
}

fn kind_complaint(kind: &str) -> Option<String> {
    let lower = kind.to_lowercase();
    let bytes = lower.as_bytes();
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let shaped = bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|b| inner(*b))
        && bytes.iter().all(|b| inner(*b) || *b == b'-');
    let mut complaints = Vec::new();
    if bytes.len() > 63 {
        complaints.push("must be no more than 63 bytes".to_owned());
    }
    if !shaped {
        complaints.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    let wrong = !complaints.is_empty();
    wrong.then(|| format!("may have mixed case, but should otherwise match: {}", complaints.join(",")))
}
