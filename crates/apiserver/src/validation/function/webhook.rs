//! Webhook configurations: names, where webhooks are, and which reviews they take. The same rules are for the conversion webhooks of
//! definitions.

use std::collections::BTreeSet;

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, NameRule, check_name};

use super::super::walk::{Frame, Target, Walk};
use super::{Function, admission, field, has, list, text};

const URL_FORM: &str = "; desired format: https://host[/path]";

/// The versions of reviews that are sent.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "webhook-name" => webhook_name,
        "webhook-timeout" => webhook_timeout,
        "webhook" => webhook,
        "webhook-versions" => webhook_versions,
        _ => return None,
    })
}

fn webhook_name(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let (path, name) = (at.place.path(), at.value.as_str().unwrap_or_default());
    let wrong = check_name(name, NameRule::Subdomain, false);
    if name.is_empty() {
        walk.push(FieldError::required(path, ""));
    } else if !wrong.is_empty() {
        walk.push(FieldError::invalid(path, name.into(), wrong.join(",")));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        walk.push(FieldError::invalid(path, name.into(), why));
    }
}

fn webhook_timeout(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if at.value.as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        walk.push(FieldError::invalid(at.place.path(), at.value.clone(), why));
    }
}

/// What is checked last of one webhook: where it is, and its match conditions.
fn webhook(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let (webhook, path) = (at.value, at.place.path());
    for error in client_config(&path.child("clientConfig"), field(webhook, "clientConfig")) {
        walk.push(error);
    }
    admission::webhook_conditions(walk, &path.child("matchConditions"), list(webhook, "matchConditions"));
}

/// What is checked of the webhooks together: the versions of reviews, and that no name is there twice.
fn webhook_versions(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let mut names = BTreeSet::new();
    for (index, webhook) in at.value.as_array().into_iter().flatten().enumerate() {
        let path = at.place.path().index(index);
        let missing = format!("must specify one of {}", VERSIONS.join(", "));
        let versions = path.child("admissionReviewVersions");
        for error in review_versions(&versions, field(webhook, "admissionReviewVersions"), &missing) {
            walk.push(error);
        }
        let name = text(webhook, "name");
        if !name.is_empty() && !names.insert(name) {
            walk.push(FieldError::duplicate(path.child("name"), name.into()));
        }
    }
}

/// The errors of a list of versions of reviews.
pub(crate) fn review_versions(path: &FieldPath, versions: &Value, missing: &str) -> Vec<FieldError> {
    let list: Vec<&str> = versions.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if list.is_empty() {
        return vec![FieldError::required(path.clone(), missing)];
    }
    let mut errors = Vec::new();
    for (index, version) in list.iter().enumerate() {
        let path = path.index(index);
        if list[..index].contains(version) {
            errors.push(FieldError::invalid(path, (*version).into(), "duplicate version"));
            continue;
        }
        for why in check_name(version, NameRule::Label1035, false) {
            errors.push(FieldError::invalid(path.clone(), (*version).into(), why));
        }
    }
    if !list.iter().any(|version| VERSIONS.contains(version)) {
        let why = format!("must include at least one of {}", VERSIONS.join(", "));
        errors.push(FieldError::invalid(path.clone(), versions.clone(), why));
    }
    errors
}

/// The errors of a `clientConfig`.
pub(crate) fn client_config(path: &FieldPath, config: &Value) -> Vec<FieldError> {
    match (has(config, "url"), has(config, "service")) {
        (true, false) => url(&path.child("url"), text(config, "url")),
        (false, true) => service(&path.child("service"), field(config, "service")),
        _ => vec![FieldError::required(path.clone(), "exactly one of url or service is required")],
    }
}

fn url(path: &FieldPath, url: &str) -> Vec<FieldError> {
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (before, query) = before.split_once('?').unwrap_or((before, ""));
    let (scheme, rest) = before.split_once("://").unwrap_or(("", before));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !scheme.is_empty() && url.parse::<http::Uri>().is_err() {
        let why = format!("url must be a valid URL: parse {url:?}: invalid character in it{URL_FORM}");
        return vec![FieldError::required(path.clone(), why)];
    }
    let mut errors = Vec::new();
    let mut invalid = |value: &str, why: &str| errors.push(FieldError::invalid(path.clone(), value.into(), why));
    if scheme != "https" {
        invalid(scheme, &format!("'https' is the only allowed URL scheme{URL_FORM}"));
    }
    if host.is_empty() {
        invalid(host, &format!("host must be specified{URL_FORM}"));
    }
    if !user.is_empty() {
        invalid(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        invalid(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        invalid(query, "query parameters are not permitted in the URL");
    }
    errors
}

fn service(path: &FieldPath, service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // kube-apiserver confuses the two fields in these errors.
    for (given, named) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, given).is_empty() {
            errors.push(FieldError::required(path.child(named), ""));
        }
    }
    let port = field(service, "port");
    if port.as_i64().is_some_and(|port| !(1..=65535).contains(&port)) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(path.child("port"), port.clone(), why));
    }
    let given = text(service, "path");
    let mut invalid = |why: &str| errors.push(FieldError::invalid(path.child("path"), given.into(), why));
    if given.is_empty() || given == "/" {
        return errors;
    }
    if given == "//" {
        invalid("segment[0] may not be empty");
        return errors;
    }
    if !given.starts_with('/') {
        invalid("must start with a '/'");
    }
    let rest = given.get(1..).unwrap_or_default();
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            invalid(&format!("segment[{index}] may not be empty"));
            continue;
        }
        for why in check_name(step, NameRule::Subdomain, false) {
            invalid(&format!("segment[{index}]: {why}"));
        }
    }
    errors
}
