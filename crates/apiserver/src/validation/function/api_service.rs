//! APIServices: their names, and what those without a service of their own may not have.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use konverge_core::{NameRule, check_name};

use super::super::walk::{Frame, Target, Walk};
use super::{Function, field, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "api-service-name" => api_service_name,
        "local-bundle" => local_bundle,
        _ => return None,
    })
}

fn api_service_name(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default();
    let spec = field(walk.object, "spec");
    let required = format!("{}.{}", text(spec, "version"), text(spec, "group"));
    // What is wrong with a name as such is said by the check of the metadata.
    if name != required && check_name(name, NameRule::PathSegment, false).is_empty() {
        walk.invalid(at.place, name, format!("must be `spec.version+\".\"+spec.group`: {required:?}"));
    }
}

/// The size is shown instead of the bytes.
fn local_bundle(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let bytes = STANDARD.decode(at.value.as_str().unwrap_or_default()).unwrap_or_default();
    walk.invalid(at.place, format!("{} bytes", bytes.len()), "local APIServices may not have a caBundle");
}
