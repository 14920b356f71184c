//! Webhooks: their names, how they are reached, and which versions of a review they read. The last two are the same for the conversion
//! webhooks of definitions.

use serde_json::Value;

use konverge_cel::UrlParts;
use konverge_core::{FieldError, FieldPath, NameRule, check_name};

use super::super::walk::{Frame, Target, Walk};
use super::{Function, field, has, number, text};

/// The versions of a review that a cluster can send.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
const URL_FORM: &str = "; desired format: https://host[/path]";

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "webhook-name" => webhook_name,
        "webhook-client" => |walk, at, _| walk.errors.extend(client_config(&at.place.path(), at.value)),
        "review-versions" => |walk, at, _| {
            let missing = format!("must specify one of {}", REVIEWS.join(", "));
            walk.errors.extend(review_versions(&at.place.path(), at.value, &missing));
        },
        _ => return None,
    })
}

fn webhook_name(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default();
    if name.is_empty() {
        return walk.push(FieldError::required(at.place.path(), ""));
    }
    let errors = check_name(name, NameRule::Subdomain, false);
    if !errors.is_empty() {
        walk.invalid(at.place, name, errors.join(","));
    } else if name.split('.').count() < 3 {
        walk.invalid(at.place, name, "should be a domain with at least three segments separated by dots");
    }
}

/// The errors of a `clientConfig`.
pub(crate) fn client_config(path: &FieldPath, config: &Value) -> Vec<FieldError> {
    match (has(config, "url"), has(config, "service")) {
        (true, false) => check_url(&path.child("url"), text(config, "url")),
        (false, true) => check_service(&path.child("service"), field(config, "service")),
        _ => vec![FieldError::required(path.clone(), "exactly one of url or service is required")],
    }
}

fn check_url(path: &FieldPath, url: &str) -> Vec<FieldError> {
    let url = match UrlParts::parse(url) {
        Ok(url) => url,
        Err(why) => {
            let why = format!("url must be a valid URL: {why}{URL_FORM}");
            return vec![FieldError::required(path.clone(), why)];
        }
    };
    let mut errors = Vec::new();
    let mut invalid = |value: &str, why: String| errors.push(FieldError::invalid(path.clone(), value.into(), why));
    if url.scheme != "https" {
        invalid(&url.scheme, format!("'https' is the only allowed URL scheme{URL_FORM}"));
    }
    if url.host.is_empty() {
        invalid("", format!("host must be specified{URL_FORM}"));
    }
    if let Some(user) = &url.user {
        invalid(user, "user information is not permitted in the URL".to_owned());
    }
    if !url.fragment.is_empty() {
        invalid(&url.fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !url.query.is_empty() {
        invalid(&url.query, "query parameters are not permitted in the URL".to_owned());
    }
    errors
}

/// Kubernetes takes the name for the namespace here and the other way round, so the name is asked for when the namespace is missing.
fn check_service(path: &FieldPath, service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (asked, missing) in [("name", "namespace"), ("namespace", "name")] {
        if text(service, missing).is_empty() {
            errors.push(FieldError::required(path.child(asked), ""));
        }
    }
    let port = number(service, "port");
    if !(1..=65535).contains(&port) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(path.child("port"), port.into(), why));
    }
    let called = text(service, "path");
    if matches!(called, "" | "/") {
        return errors;
    }
    let mut invalid = |why: String| errors.push(FieldError::invalid(path.child("path"), called.into(), why));
    if called == "//" {
        invalid("segment[0] may not be empty".to_owned());
        return errors;
    }
    if !called.starts_with('/') {
        invalid("must start with a '/'".to_owned());
    }
    // The first byte is dropped even where it is no slash; a character of several bytes leaves its rest, which is no name.
    let rest = called.char_indices().nth(1).map_or("", |(at, _)| &called[at..]);
    for (at, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            invalid(format!("segment[{at}] may not be empty"));
            continue;
        }
        for why in check_name(segment, NameRule::Subdomain, false) {
            invalid(format!("segment[{at}]: {why}"));
        }
    }
    errors
}

/// The errors of a list of versions of reviews. `missing` says what to do about an empty one.
pub(crate) fn review_versions(path: &FieldPath, versions: &Value, missing: &str) -> Vec<FieldError> {
    let list: Vec<&str> = versions.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if list.is_empty() {
        return vec![FieldError::required(path.clone(), missing)];
    }
    let mut errors = Vec::new();
    for (index, version) in list.iter().enumerate() {
        if list[..index].contains(version) {
            errors.push(FieldError::invalid(path.index(index), (*version).into(), "duplicate version"));
            continue;
        }
        for why in check_name(version, NameRule::Label1035, false) {
            errors.push(FieldError::invalid(path.index(index), (*version).into(), why));
        }
    }
    if !list.iter().any(|version| REVIEWS.contains(version)) {
        let why = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.push(FieldError::invalid(path.clone(), versions.clone(), why));
    }
    errors
}
