//! Jobs and CronJobs: what the server gave a job, indexes, and what an update may change.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, LabelSelector, NameRule, check_name};

use super::super::walk::{Frame, Target, Walk, same};
use super::{Function, copy, field, has, job_status, list, number, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "generated-selector" => generated_selector,
        "indexed-name" => indexed_name,
        "job-update" => update,
        "job-status" => job_status::check,
        "job-template-update" => template_update,
        "failure-container" => failure_container,
        "exit-codes" => exit_codes,
        "success-indexes" => success_indexes,
        "schedule-zone" => schedule_zone,
        "manual-selector" => manual_selector,
        _ => return None,
    })
}

/// What a Job was given by the server must be as it was given, unless its writer selects by hand.
fn generated_selector(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let (spec, metadata) = (field(at.value, "spec"), field(at.value, "metadata"));
    let selector = field(spec, "selector");
    if field(spec, "manualSelector") == true || selector.is_null() {
        return;
    }
    let labels = field(field(field(spec, "template"), "metadata"), "labels");
    let (uid, name) = (text(metadata, "uid"), text(metadata, "name"));
    let given = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let had = |label| {
        at.old.is_none_or(|old| {
            let labels = field(field(field(field(old, "spec"), "template"), "metadata"), "labels");
            has(labels, label)
        })
    };
    // A job of before there were these labels does not need them.
    let prefixed = had("batch.kubernetes.io/job-name") && had("batch.kubernetes.io/controller-uid");
    let given = if prefixed { &given[..] } else { &given[..2] };
    let path = FieldPath::new("spec").child("template").child("metadata").child("labels");
    for (label, value) in given {
        if !has(labels, label) {
            walk.push(FieldError::required(path.key(label), format!("must be '{value}'")));
        } else if text(labels, label) != *value {
            walk.push(FieldError::invalid(path.key(label), labels.clone(), format!("must be '{value}'")));
        }
    }
    let given: BTreeMap<String, String> =
        given.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    if LabelSelector::from_object(selector).is_ok_and(|selector| !selector.matches(&given)) {
        let path = FieldPath::new("spec").child("selector");
        walk.push(FieldError::invalid(path, selector.clone(), "`selector` not auto-generated"));
    }
}

fn indexed_name(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let spec = field(at.value, "spec");
    let completions = number(spec, "completions");
    if text(spec, "completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = text(field(at.value, "metadata"), "name");
    let host = format!("{name}-{}", completions - 1);
    if !check_name(&host, NameRule::Label, false).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {host}");
        walk.push(FieldError::invalid(FieldPath::new("metadata").child("name"), name.into(), why));
    }
}

fn update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    let (before, after) = (field(old, "completions"), field(at.value, "completions"));
    if same(before, after) {
        return;
    }
    let path = at.place.child("completions");
    if text(at.value, "completionMode") != "Indexed" {
        walk.push(FieldError::invalid(path, after.clone(), "field is immutable"));
    } else if !after.is_null() && after != field(at.value, "parallelism") {
        let why = "can only be modified in tandem with spec.parallelism";
        walk.push(FieldError::invalid(path, after.clone(), why));
    }
}

/// The template of a job changes only while the job is suspended, and then only where scheduling and resources are concerned.
fn template_update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    let (template, mut before) = (field(at.value, "template"), field(old, "template").clone());
    let suspended = field(old, "suspend") == true;
    let is_true =
        |condition: &Value, kind: &str| text(condition, "type") == kind && text(condition, "status") == "True";
    let status = walk.before.map(|old| field(old, "status")).cloned().unwrap_or_default();
    let reported = list(&status, "conditions").iter().any(|condition| is_true(condition, "Suspended"));
    let mutable = suspended && (!has(&status, "startTime") || reported) && number(&status, "active") == 0;
    if !mutable {
        if !same(&before, template) {
            walk.push(FieldError::invalid(at.place.child("template"), template.clone(), "field is immutable"));
        }
        return;
    }
    let (spec, mut before) = (field(template, "spec"), before["spec"].take());
    for name in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy(spec, &mut before, name);
    }
    node_affinity_from(spec, &mut before);
    for name in ["containers", "initContainers"] {
        let now = list(spec, name);
        let then = before.get_mut(name).and_then(Value::as_array_mut);
        for (then, now) in then.filter(|then| then.len() == now.len()).into_iter().flatten().zip(now) {
            if then["name"] == now["name"] {
                copy(now, then, "resources");
            }
        }
    }
    if !same(&before, spec) {
        walk.push(FieldError::invalid(at.place.child("template.spec"), spec.clone(), "field is immutable"));
    }
}

/// Gives the spec of a pod the node affinity of another one, so that only the other rules of affinity are compared. An
/// affinity without rules is not the same as none, except where only node affinity made the difference.
fn node_affinity_from(spec: &Value, before: &mut Value) {
    let node_affinity = "nodeAffinity";
    let now = field(spec, "affinity");
    let then = field(before, "affinity");
    let mut affinity = if then.is_null() { serde_json::json!({}) } else { then.clone() };
    match (now.is_null(), then.is_null()) {
        (true, true) => return,
        (true, false) => {
            copy(&Value::Null, &mut affinity, node_affinity);
            if affinity.as_object().is_some_and(|rules| rules.is_empty()) {
                return copy(&Value::Null, before, "affinity");
            }
        }
        _ => copy(now, &mut affinity, node_affinity),
    }
    before["affinity"] = affinity;
}

fn failure_container(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let Some(job) = frame.up(2) else { return };
    let spec = field(field(job.value, "template"), "spec");
    let named = |name: &&str| list(spec, name).iter().any(|container| text(container, "name") == at.value);
    if !["containers", "initContainers"].iter().any(named) {
        let why = "must be one of the container or initContainer names in the pod template";
        walk.invalid(at.place, at.value.clone(), why);
    }
}

fn exit_codes(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let is_in = text(frame.value, "operator") == "In";
    let codes: Vec<i64> = at.value.as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    let mut seen = HashSet::new();
    for (index, code) in codes.iter().enumerate() {
        let path = at.place.path().index(index);
        if is_in && *code == 0 {
            walk.push(FieldError::invalid(path.clone(), 0.into(), "must not be 0 for the In operator"));
        }
        if !seen.insert(code) {
            walk.push(FieldError::duplicate(path, (*code).into()));
        }
    }
    if !codes.is_sorted() {
        walk.invalid(at.place, at.value.clone(), "must be ordered");
    }
}

fn success_indexes(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let Some(job) = frame.above else { return };
    let completions = number(job.value, "completions");
    let mut total = 0;
    if has(at.value, "succeededIndexes") {
        let path = at.place.child("succeededIndexes");
        let indexes = text(at.value, "succeededIndexes");
        if indexes.len() > 64 * 1024 {
            walk.push(FieldError::too_long(path.clone(), 64 * 1024));
        }
        match count_indexes(indexes, completions) {
            Ok(count) => total = count,
            Err(why) => {
                let why = format!("error parsing succeededIndexes: {why}");
                walk.push(FieldError::invalid(path, indexes.into(), why));
            }
        }
    }
    if !has(at.value, "succeededCount") {
        return;
    }
    let path = at.place.child("succeededCount");
    let count = number(at.value, "succeededCount");
    if count < 0 {
        walk.push(FieldError::invalid(path.clone(), count.into(), "must be greater than or equal to 0"));
    }
    if count > completions {
        let why = format!("must be less than or equal to {completions} (the number of specified completions)");
        walk.push(FieldError::invalid(path.clone(), count.into(), why));
    }
    if has(at.value, "succeededIndexes") && count > total {
        let why = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        walk.push(FieldError::invalid(path, count.into(), why));
    }
}

/// How many indexes a text such as `1,3-5` names.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last) = (0, None);
    for part in text.split(',') {
        let (begin, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= begin) {
            return Err(format!("non-increasing order, previous: {last}, current: {begin}"));
        }
        total += end - begin + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first index that two texts have in common.
pub(super) fn first_overlap(one: &str, other: &str, completions: i64) -> Option<i64> {
    // An interval that cannot be read is reported on its own.
    let read = |text: &'_ str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (one, other) = (read(one), read(other));
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    while let (Some((begin, end)), Some((from, to))) = (one.peek(), other.peek()) {
        if begin <= to && from <= end {
            return Some(*begin.max(from));
        }
        if begin <= from {
            one.next()
        } else {
            other.next()
        };
    }
    None
}

/// The first and the last index of a text such as `3-5`, or of `3`.
fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let parts: Vec<&str> = text.split('-').collect();
    if parts.len() > 2 {
        return Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        ));
    }
    let index = |part: &str| -> Result<i64, String> {
        let index: i64 = part.parse().map_err(|_| format!("cannot convert string to integer for index: {part:?}"))?;
        if index >= completions {
            return Err(format!("too large index: {part:?}"));
        }
        Ok(index)
    };
    let begin = index(parts[0])?;
    let end = if parts.len() == 2 { index(parts[1])? } else { begin };
    if parts.len() == 2 && begin >= end {
        return Err(format!("non-increasing order, previous: {begin}, current: {end}"));
    }
    Ok((begin, end))
}

fn schedule_zone(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let schedule = at.value.as_str().unwrap_or_default();
    if !schedule.contains("TZ") {
        return;
    }
    let had = at.old.and_then(Value::as_str).is_some_and(|before| before.contains("TZ"));
    if had && has(frame.value, "timeZone") {
        walk.invalid(at.place, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    } else if !had {
        walk.invalid(at.place, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    }
}

fn manual_selector(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if at.value == true {
        walk.push(FieldError::not_supported(at.place.path(), true.into(), ["nil", "false"]));
    }
}
