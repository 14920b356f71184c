//! The status of a job. Controllers outside of the cluster write it as well, so the server makes sure of what clients rely on:
//! which conditions, times and counters go together, and that a job which has ended stays so. Most rules look only at writes
//! that change what they are about, so that one fault does not block every later write.

use jiff::Timestamp;
use serde_json::Value;

use konverge_core::{FieldError, FieldErrorKind, FieldPath};

use super::super::walk::{Frame, Target, Walk, same};
use super::job::{count_indexes, first_overlap};
use super::{field, has, list, number, text};

const DISABLED: [&str; 3] = ["Failed", "Complete", "FailureTarget"];

pub(super) fn check(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    let (old, new) = (Job::of(old), Job::of(at.value));
    conditions_and_times(walk, &old, &new);
    pods_of_finished(walk, &old, &new);
    indexes(walk, &old, &new);
    if (new.changes(&old, "ready") || new.changes(&old, "active"))
        && field(new.status, "ready").as_i64().is_some_and(|ready| ready > number(new.status, "active"))
    {
        new.invalid(walk, "ready", "cannot set more ready pods than active");
    }
    success_criteria(walk, &new);
    transition(walk, &old, &new);
}

/// A job with what its conditions say.
struct Job<'a> {
    spec: &'a Value,
    status: &'a Value,
    complete: bool,
    failed: bool,
    failure_target: bool,
    success_criteria_met: bool,
}

impl<'a> Job<'a> {
    fn of(object: &'a Value) -> Self {
        let (spec, status) = (field(object, "spec"), field(object, "status"));
        let is = |kind: &str| has_condition(status, kind, "True");
        Self {
            spec,
            status,
            complete: is("Complete"),
            failed: is("Failed"),
            failure_target: is("FailureTarget"),
            success_criteria_met: is("SuccessCriteriaMet"),
        }
    }

    fn finished(&self) -> bool {
        self.complete || self.failed
    }

    /// Whether a field of the status is another one than before.
    fn changes(&self, old: &Self, name: &str) -> bool {
        !same(field(old.status, name), field(self.status, name))
    }

    fn is_indexed(&self) -> bool {
        text(self.spec, "completionMode") == "Indexed"
    }

    fn invalid(&self, walk: &mut Walk<'_>, name: &str, why: impl Into<String>) {
        walk.push(FieldError::invalid(path(name), field(self.status, name).clone(), why));
    }
}

fn path(name: &str) -> FieldPath {
    FieldPath::new("status").child(name)
}

fn has_condition(status: &Value, kind: &str, value: &str) -> bool {
    let is_one = |condition: &Value| text(condition, "type") == kind && text(condition, "status") == value;
    list(status, "conditions").iter().any(is_one)
}

/// An error about conditions, which a cluster shows without them.
fn wrong_conditions(walk: &mut Walk<'_>, why: &str) {
    walk.push(FieldError::new(FieldErrorKind::Invalid, path("conditions"), None, why));
}

fn conditions_and_times(walk: &mut Walk<'_>, old: &Job<'_>, new: &Job<'_>) {
    let (completes, fails) = (old.complete != new.complete, old.failed != new.failed);
    let (starts, ends) = (new.changes(old, "startTime"), new.changes(old, "completionTime"));
    let (start, end) = (text(new.status, "startTime"), text(new.status, "completionTime"));
    if (completes || fails) && new.complete && new.failed {
        wrong_conditions(walk, "cannot set Complete=True and Failed=true conditions");
    }
    if (completes || old.failure_target != new.failure_target) && new.complete && new.failure_target {
        wrong_conditions(walk, "cannot set Complete=True and FailureTarget=true conditions");
    }
    if (completes || ends) && !end.is_empty() && !new.complete {
        new.invalid(walk, "completionTime", "cannot set completionTime when there is no Complete=True condition");
    }
    if (completes || ends) && end.is_empty() && new.complete {
        walk.push(FieldError::required(path("completionTime"), "completionTime is required for Complete jobs"));
    }
    let moment = |text: &str| text.parse::<Timestamp>().ok();
    if (starts || ends) && moment(start).zip(moment(end)).is_some_and(|(start, end)| end < start) {
        new.invalid(walk, "completionTime", "must be equal to or after `startTime`");
    }
    if (fails || new.changes(old, "failedIndexes")) && new.failed && !new.failure_target {
        wrong_conditions(walk, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    let meets = old.success_criteria_met != new.success_criteria_met;
    if (completes || meets) && new.complete && !new.success_criteria_met {
        wrong_conditions(walk, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
}

fn pods_of_finished(walk: &mut Walk<'_>, old: &Job<'_>, new: &Job<'_>) {
    let finished = new.finished();
    let finishes = old.finished() != finished;
    if (finishes || new.changes(old, "active")) && finished && number(new.status, "active") > 0 {
        new.invalid(walk, "active", "active>0 is invalid for finished job");
    }
    // A job without completions can end before it starts.
    let empty = field(new.spec, "suspend") == true && field(new.spec, "completions") == 0;
    if (finishes || new.changes(old, "startTime")) && !empty && finished && !has(new.status, "startTime") {
        walk.push(FieldError::required(path("startTime"), "startTime is required for finished job"));
    }
    let uncounted = field(new.status, "uncountedTerminatedPods");
    let some = ["failed", "succeeded"].iter().any(|name| !list(uncounted, name).is_empty());
    if (finishes || new.changes(old, "uncountedTerminatedPods")) && finished && some {
        new.invalid(walk, "uncountedTerminatedPods", "must be empty for finished job");
    }
}

fn indexes(walk: &mut Walk<'_>, old: &Job<'_>, new: &Job<'_>) {
    let (completed, failed) = (text(new.status, "completedIndexes"), text(new.status, "failedIndexes"));
    let (completes, fails) = (new.changes(old, "completedIndexes"), new.changes(old, "failedIndexes"));
    let completions = field(new.spec, "completions").as_i64();
    let has_limit = has(new.spec, "backoffLimitPerIndex");
    let has_failed = has(new.status, "failedIndexes");
    if let Some(completions) = completions {
        for (name, indexes, checked) in
            [("completedIndexes", completed, completes), ("failedIndexes", failed, fails && has_limit && has_failed)]
        {
            if checked && let Err(why) = count_indexes(indexes, completions) {
                let why = format!("error parsing {name}: {why}");
                walk.push(FieldError::invalid(path(name), indexes.into(), why));
            }
        }
    }
    if completes && !completed.is_empty() && !new.is_indexed() {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        new.invalid(walk, "completedIndexes", why);
    }
    if fails && !has_limit && has_failed {
        new.invalid(walk, "failedIndexes", "cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    if (completes || fails)
        && let Some(index) = completions.and_then(|completions| first_overlap(completed, failed, completions))
    {
        let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
        new.invalid(walk, "failedIndexes", why);
    }
    let finishes = old.finished() != new.finished();
    if (finishes || new.changes(old, "terminating")) && new.finished() && number(new.status, "terminating") > 0 {
        new.invalid(walk, "terminating", "terminating>0 is invalid for finished job");
    }
}

fn success_criteria(walk: &mut Walk<'_>, new: &Job<'_>) {
    if new.success_criteria_met && new.failed {
        wrong_conditions(walk, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if new.success_criteria_met && new.failure_target {
        wrong_conditions(walk, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if has(new.spec, "successPolicy") && !new.success_criteria_met && new.complete {
        let why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        wrong_conditions(walk, why);
    }
}

/// What never goes back.
fn transition(walk: &mut Walk<'_>, old: &Job<'_>, new: &Job<'_>) {
    for kind in DISABLED {
        if has_condition(old.status, kind, "True") && !has_condition(new.status, kind, "True") {
            wrong_conditions(walk, &format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    // A job that has as many pods at a time as completions can be scaled down.
    let can_shrink = new.is_indexed() && field(new.spec, "completions") == field(new.spec, "parallelism");
    for (name, checked) in [("failed", true), ("succeeded", !can_shrink)] {
        let count = number(new.status, name);
        if checked && count < number(old.status, name) {
            let why = format!("cannot decrease the {name} counter");
            walk.push(FieldError::invalid(path(name), count.into(), why));
        }
    }
    if new.changes(old, "completionTime") && has(old.status, "completionTime") && has(new.status, "completionTime") {
        new.invalid(walk, "completionTime", "field is immutable");
    }
    let resumes = has_condition(old.status, "Suspended", "True") && has_condition(new.status, "Suspended", "False");
    let runs = field(new.spec, "suspend") != true;
    if new.changes(old, "startTime") && has(old.status, "startTime") && runs && !resumes {
        new.invalid(walk, "startTime", "field is immutable for unsuspended job once set");
    }
    if old.success_criteria_met && !new.success_criteria_met {
        wrong_conditions(walk, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if old.complete && !old.success_criteria_met && new.success_criteria_met {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        wrong_conditions(walk, why);
    }
}
