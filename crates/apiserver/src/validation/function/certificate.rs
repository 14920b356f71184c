//! Certificate signing requests: whether the request is signed, who shall sign it, and which conditions an endpoint may set.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use konverge_core::{FieldError, FieldPath, NameRule, check_name};

use super::super::walk::{Frame, Target, Walk};
use super::{Function, field, list, text};
use crate::certificate::{CertificateRequest, check_certificates};

/// The conditions that nobody takes back; only an approval may add or change the first two.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];

const MAX_DOMAIN: usize = 253;
const MAX_SIGNER: usize = MAX_DOMAIN + 1 + MAX_DOMAIN + 63 + 1;

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "certificate-request" => certificate_request,
        "signer-name" => signer_name,
        "certificate-conditions" => conditions,
        "certificate-data" => certificate_data,
        "certificate-update" => |walk, at, _| update(walk, at, Endpoint::Main),
        "certificate-status" => |walk, at, _| update(walk, at, Endpoint::Status),
        "certificate-approval" => |walk, at, _| update(walk, at, Endpoint::Approval),
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Main,
    Status,
    Approval,
}

fn certificate_request(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let encoded = at.value.as_str().unwrap_or_default();
    let pem = STANDARD.decode(encoded).unwrap_or_default();
    let checked = CertificateRequest::of_pem(&pem).map_err(str::to_owned).and_then(|request| request.check_signature());
    if let Err(why) = checked {
        // Bytes that are not there are null, as Go shows them.
        walk.invalid(at.place, at.value.clone(), why);
    }
}

/// `example.com/signer-name`
fn signer_name(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default();
    if name.is_empty() {
        return walk.push(FieldError::required(at.place.path(), ""));
    }
    if name == "kubernetes.io/legacy-unknown" {
        return walk.invalid(at.place, name, "the legacy signerName is not allowed via this API version");
    }
    let Some((domain, path)) = name.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return walk.invalid(at.place, name, why);
    };
    if domain.len() > MAX_DOMAIN {
        walk.push(FieldError::too_long(at.place.path(), MAX_DOMAIN));
    }
    check_parts(walk, at, domain, NameRule::Label);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        walk.invalid(at.place, domain, why);
    }
    check_parts(walk, at, path, NameRule::Subdomain);
    if name.len() > MAX_SIGNER {
        walk.push(FieldError::too_long(at.place.path(), MAX_SIGNER));
    }
}

/// Checks what is between the dots. One bad part is enough, because further errors would look the same.
fn check_parts(walk: &mut Walk<'_>, at: Target<'_>, whole: &str, rule: NameRule) {
    for part in whole.split('.') {
        let errors = check_name(part, rule, false);
        for why in &errors {
            walk.invalid(at.place, whole, format!("validating label {part:?}: {why}"));
        }
        if !errors.is_empty() {
            return;
        }
    }
}

fn of_type<'v>(status: &'v Value, kind: &str) -> Vec<&'v Value> {
    list(status, "conditions").iter().filter(|condition| text(condition, "type") == kind).collect()
}

fn conditions(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.child("conditions");
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in list(at.value, "conditions").iter().enumerate() {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        let here = |field: &str| path.index(index).child(field);
        if kind.is_empty() {
            walk.push(FieldError::required(here("type"), ""));
        }
        let allowed: &[&str] = if FINAL.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        match status {
            "" => walk.push(FieldError::required(here("status"), "")),
            status if !allowed.contains(&status) => {
                walk.push(FieldError::not_supported(here("status"), status.into(), allowed.iter().copied()));
            }
            _ => {}
        }
        let other = FINAL[..2].iter().find(|other| **other != kind).filter(|_| FINAL[..2].contains(&kind));
        if other.is_some_and(|other| seen.contains(other)) {
            let why = "Approved and Denied conditions are mutually exclusive";
            walk.push(FieldError::invalid(path.clone(), kind.into(), why));
        }
        if seen.contains(&kind) {
            walk.push(FieldError::duplicate(here("type"), kind.into()));
        }
        seen.push(kind);
    }
}

fn certificate_data(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let pem = STANDARD.decode(at.value.as_str().unwrap_or_default()).unwrap_or_default();
    if let Err(why) = check_certificates(&pem) {
        walk.invalid(at.place, "<certificate data>", why);
    }
}

/// What an endpoint may change in a status.
fn update(walk: &mut Walk<'_>, at: Target<'_>, endpoint: Endpoint) {
    let (old, new) = (at.old.map_or(&Value::Null, |old| field(old, "status")), field(at.value, "status"));
    let path = |name: &str| FieldPath::new("status").child(name);
    let mut forbid = |name: &str, why: String| walk.push(FieldError::forbidden(path(name), why));
    for kind in FINAL {
        if of_type(new, kind).len() < of_type(old, kind).len() {
            forbid("conditions", format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in FINAL[..2].iter().filter(|_| endpoint != Endpoint::Approval) {
        if of_type(new, kind).len() > of_type(old, kind).len() {
            forbid("conditions", format!("updates may not add a condition of type {kind:?}"));
        }
    }
    let (before, after) = (text(old, "certificate"), text(new, "certificate"));
    if before != after && endpoint != Endpoint::Status {
        forbid("certificate", "updates may not set certificate content".to_owned());
    } else if before != after && !before.is_empty() {
        forbid("certificate", "updates may not modify existing certificate content".to_owned());
    }
}
