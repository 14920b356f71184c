//! Whether a workload selects the pods that it makes. In: a workload before and after a write. Out: the errors of its selector
//! and template, in Kubernetes' words. The controller of a workload that does not select its own pods would create pods without
//! end.

use std::collections::BTreeMap;

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, LabelSelector, check_label_selector, check_labels};

use crate::behaviour::Workload;
use crate::meta;

const NOT_SELECTED: &str = "`selector` does not match template `labels`";

/// The errors of a workload. If selector and template are unchanged, nothing is checked: objects that were stored before there
/// was a rule can still be scaled, labelled and deleted.
pub(crate) fn check(workload: Option<Workload>, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let Some(workload) = workload else { return Vec::new() };
    let path = FieldPath::new("spec");
    let spec = &new["spec"];
    if workload == Workload::CronJob {
        let is_new = old.is_none_or(|old| old["spec"]["jobTemplate"] != spec["jobTemplate"]);
        return if is_new { check_job_template(&spec["jobTemplate"]["spec"], &path) } else { Vec::new() };
    }
    let fixed = match (workload, old) {
        (Workload::StatefulSet, Some(old)) => check_fixed(&old["spec"], spec, &path),
        _ => None,
    };
    if old.is_some_and(|old| ["selector", "template"].iter().all(|field| old["spec"][field] == spec[field])) {
        return fixed.into_iter().collect();
    }
    let mut errors = match (workload, old) {
        (Workload::Job, None) => check_generated(new),
        _ => Vec::new(),
    };
    errors.extend(match workload {
        Workload::ReplicationController => check_map(spec, &path),
        _ => check_selector(workload, spec, &path),
    });
    if spec["template"].is_object() {
        let labels = labels(&spec["template"]);
        errors.extend(check_labels(&labels, &path.child("template").child("labels")));
        errors.extend(check_restart_policy(workload, &spec["template"], &path.child("template")));
    }
    errors.extend(fixed);
    errors
}

/// A `LabelSelector`, and whether it finds the template. That a required one is missing is said by its type.
fn check_selector(workload: Workload, spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (selector, at) = (&spec["selector"], path.child("selector"));
    if selector.is_null() {
        let mut errors = Vec::new();
        if workload == Workload::Job {
            errors.push(FieldError::required(at, ""));
        }
        // No selector at all finds nothing.
        errors.push(not_selected(spec, path));
        return errors;
    }
    let mut errors = check_label_selector(selector, &at);
    let malformed = !errors.is_empty();
    // ReplicaSets are called deployments here, in a cluster as well. A Job may select all pods if it insists.
    let (kind, malformed_is) = match workload {
        Workload::StatefulSet => (Some("statefulset"), Some("")),
        Workload::DaemonSet => (Some("daemonset"), None),
        Workload::Job => (None, None),
        _ => (Some("deployment"), Some("invalid label selector")),
    };
    let is_empty = ["matchLabels", "matchExpressions"].iter().all(|field| is_unset(&selector[field]));
    if let Some(kind) = kind.filter(|_| is_empty) {
        let why = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid(at.clone(), selector.clone(), why));
    }
    if malformed {
        errors.extend(malformed_is.map(|why| FieldError::invalid(at, selector.clone(), why)));
    } else if !finds(selector, &spec["template"]) {
        errors.push(not_selected(spec, path));
    }
    errors
}

/// A plain map of labels, which the server fills from the template if it is empty.
fn check_map(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let wanted = spec["selector"].as_object();
    if wanted.is_none_or(|wanted| wanted.is_empty()) {
        errors.push(FieldError::required(path.child("selector"), ""));
    }
    if !spec["template"].is_object() {
        errors.push(FieldError::required(path.child("template"), ""));
    } else if wanted.into_iter().flatten().any(|(key, value)| spec["template"]["metadata"]["labels"][key] != *value) {
        errors.push(not_selected(spec, path));
    }
    errors
}

/// What a Job was given by the server must be as it was given, unless its writer selects by hand.
fn check_generated(job: &Value) -> Vec<FieldError> {
    if job["spec"]["manualSelector"] == true || job["spec"]["selector"].is_null() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let path = FieldPath::new("spec").child("template").child("metadata").child("labels");
    let (uid, name) = (meta::text(job, "uid"), meta::text(job, "name"));
    let given = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (label, value) in given {
        if labels[label].is_null() {
            errors.push(FieldError::required(path.key(label), format!("must be '{value}'")));
        } else if labels[label] != value {
            errors.push(FieldError::invalid(path.key(label), labels.clone(), format!("must be '{value}'")));
        }
    }
    let given: BTreeMap<String, String> =
        given.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    let selector = &job["spec"]["selector"];
    if LabelSelector::from_object(selector).is_ok_and(|selector| !selector.matches(&given)) {
        let path = FieldPath::new("spec").child("selector");
        errors.push(FieldError::invalid(path, selector.clone(), "`selector` not auto-generated"));
    }
    errors
}

/// The Jobs of a CronJob get their selectors from the server.
fn check_job_template(job: &Value, spec: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = spec.child("jobTemplate").child("spec");
    if job["template"].is_object() {
        errors.extend(check_labels(&labels(&job["template"]), &path.child("template").child("labels")));
        errors.extend(check_restart_policy(Workload::Job, &job["template"], &path.child("template")));
    }
    if !job["selector"].is_null() {
        let why = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(path.child("selector"), job["selector"].clone(), why));
    }
    if job["manualSelector"] == true {
        errors.push(FieldError::not_supported(path.child("manualSelector"), true.into(), ["nil", "false"]));
    }
    errors
}

/// Pods of a Job come to an end, all others are started again.
fn check_restart_policy(workload: Workload, template: &Value, path: &FieldPath) -> Option<FieldError> {
    let policy = template["spec"]["restartPolicy"].as_str().unwrap_or_default();
    let path = path.child("spec").child("restartPolicy");
    match (workload, policy) {
        (Workload::Job, "" | "Always") => Some(FieldError::required(path, "valid values: \"OnFailure\", \"Never\"")),
        (Workload::Job, "OnFailure" | "Never") => None,
        (Workload::Job, other) => Some(FieldError::not_supported(path, other.into(), ["OnFailure", "Never"])),
        (_, "Always") => None,
        (_, other) => Some(FieldError::not_supported(path, other.into(), ["Always"])),
    }
}

/// A StatefulSet says which of its fields may change, where other kinds name those that may not.
fn check_fixed(old: &Value, new: &Value, path: &FieldPath) -> Option<FieldError> {
    let changes = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |spec: &Value| -> BTreeMap<String, Value> {
        let fields = spec.as_object().into_iter().flatten();
        let fixed = fields.filter(|(name, value)| !changes.contains(&name.as_str()) && !is_unset(value));
        fixed.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    (fixed(old) != fixed(new)).then(|| {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        FieldError::forbidden(path.clone(), why)
    })
}

/// Whether a field is empty: null and an empty list or map mean the same as an absent field.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn finds(selector: &Value, template: &Value) -> bool {
    LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(&labels(template)))
}

fn labels(template: &Value) -> BTreeMap<String, String> {
    let labels = template["metadata"]["labels"].as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn not_selected(spec: &Value, path: &FieldPath) -> FieldError {
    let path = path.child("template").child("metadata").child("labels");
    FieldError::invalid(path, spec["template"]["metadata"]["labels"].clone(), NOT_SELECTED)
}
