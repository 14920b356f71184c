//! Jobs and their pods, as tables.

use serde_json::{Value, json};

use super::super::kind::COMPLETION_INDEX;
use super::super::tracking::TRACKING;
use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn job(spec: Value, status: Value) -> Job {
    let metadata = json!({"name": "j", "namespace": "a", "uid": "u"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// A pod by what it is: `run`, `ok` or `bad`; `:2` is its index, `-` in front says that it is being deleted, `~` that it is
/// not held.
fn pod(name: usize, what: &str) -> Arc<Pod> {
    let (what, index) = what.split_once(':').unwrap_or((what, ""));
    let (going, tracked) = (what.starts_with('-'), !what.starts_with('~'));
    let (phase, code) = match what.trim_start_matches(['-', '~']) {
        "ok" => ("Succeeded", Some(0)),
        "bad" => ("Failed", Some(1)),
        "run" => ("Running", None),
        other => panic!("{other}"),
    };
    let state = match code {
        Some(code) => json!({"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:59:55Z"}}),
        None => json!({"running": {}}),
    };
    let ready = if code.is_none() { "True" } else { "False" };
    let annotations = if index.is_empty() { json!({}) } else { json!({COMPLETION_INDEX: index}) };
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("p{name}"), "uid": format!("p{name}"), "annotations": annotations,
                "deletionTimestamp": going.then_some(NOW), "finalizers": if tracked { vec![TRACKING] } else { vec![] },
            },
            "spec": {"nodeName": "n"},
            "status": {
                "phase": phase, "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": [{"name": "c", "restartCount": 0, "state": state}],
            },
        }))
        .unwrap(),
    )
}

fn pods(what: &str) -> Vec<Arc<Pod>> {
    what.split_whitespace().enumerate().map(|(name, what)| pod(name, what)).collect()
}

fn made(job: &Job, pods: &[Arc<Pod>]) -> Plan {
    let first_wait = Duration::from_secs(10);
    plan(&Observed { job, pods, failures: Failures::default(), first_wait, now: now() })
}

/// A plan in short: the step, and how it ends.
fn short(plan: &Plan) -> String {
    let step = match &plan.step {
        Step::Nothing => "rest".into(),
        Step::Create(new) if new.iter().all(Option::is_none) => format!("create {}", new.len()),
        Step::Create(new) => format!("create {:?}", new.iter().flatten().collect::<Vec<_>>()),
        Step::DeleteSurplus(pods) => format!("spare {}", pods.len()),
        Step::Terminate(pods) => format!("end {}", pods.len()),
    };
    match &plan.outcome {
        Some(outcome) => format!("{step}, {}", outcome.reason),
        None => step,
    }
}

#[test]
fn pods_run_until_enough_have_succeeded() {
    let check = |spec: Value, status: Value, what: &str, expect: &str| {
        let job = job(spec.clone(), status.clone());
        assert_eq!(short(&made(&job, &pods(what))), expect, "{spec} {status} {what}");
    };
    let none = json!({});
    check(json!({}), none.clone(), "", "create 1");
    check(json!({}), none.clone(), "run", "rest");
    check(json!({}), none.clone(), "ok", "rest, CompletionsReached");
    check(json!({"completions": 5, "parallelism": 2}), none.clone(), "", "create 2");
    check(json!({"completions": 5, "parallelism": 2}), none.clone(), "run ok", "create 1");
    check(json!({"completions": 5, "parallelism": 2}), json!({"succeeded": 4}), "run", "rest");
    check(json!({"completions": 5, "parallelism": 3}), json!({"succeeded": 4}), "run run", "spare 1");
    check(json!({"completions": 5}), json!({"succeeded": 5}), "run", "spare 1, CompletionsReached");
    check(json!({"completions": 0}), none.clone(), "", "rest, CompletionsReached");
    // Those that were written down but are not counted yet have succeeded, too.
    let written = json!({"succeeded": 3, "uncountedTerminatedPods": {"succeeded": ["p0"]}});
    check(json!({"completions": 5, "parallelism": 5}), written, "ok ok", "rest, CompletionsReached");
    // Without completions one success is enough, and the others may finish.
    check(json!({"parallelism": 3}), none.clone(), "", "create 3");
    check(json!({"parallelism": 3}), none.clone(), "run run ok", "rest");
    check(json!({"parallelism": 3}), none.clone(), "bad ok", "rest, CompletionsReached");
    // What is deleted is replaced, or not until it has ended.
    check(json!({}), none.clone(), "-run", "rest");
    check(json!({"podReplacementPolicy": "Failed"}), none.clone(), "-run", "rest");
    check(json!({"parallelism": 2, "completions": 2}), none.clone(), "~run", "create 1");
    // Suspended.
    check(json!({"suspend": true}), none.clone(), "", "rest");
    check(json!({"suspend": true, "parallelism": 3}), none.clone(), "run run", "spare 2");
    check(json!({"parallelism": 1000, "completions": 1000}), none, "", "create 500");
}

#[test]
fn indexed_jobs_have_each_index_once() {
    let check = |status: Value, what: &str, expect: &str| {
        let job = job(json!({"completionMode": "Indexed", "completions": 4, "parallelism": 3}), status.clone());
        assert_eq!(short(&made(&job, &pods(what))), expect, "{status} {what}");
    };
    check(json!({}), "", "create [0, 1, 2]");
    check(json!({}), "run:1", "create [0, 2]");
    check(json!({}), "ok:1 run:0", "create [2, 3]");
    check(json!({"completedIndexes": "0,1"}), "run:3", "create [2]");
    check(json!({"completedIndexes": "0,1"}), "run:3 run:3 run:9 run", "spare 3");
    check(json!({"completedIndexes": "0-2"}), "ok:3", "rest, CompletionsReached");
}

#[test]
fn failures_make_it_wait_and_then_fail() {
    let check = |spec: Value, status: Value, what: &str, expect: (&str, Option<u64>)| {
        let job = job(spec.clone(), status.clone());
        let plan = made(&job, &pods(what));
        let got = (short(&plan), plan.requeue_after.map(|requeue_after| requeue_after.as_secs()));
        assert_eq!((got.0.as_str(), got.1), expect, "{spec} {status} {what}");
    };
    let none = json!({});
    check(json!({}), none.clone(), "bad", ("rest", Some(5)));
    check(json!({}), none.clone(), "bad bad", ("rest", Some(15)));
    check(json!({"backoffLimit": 0}), none.clone(), "bad", ("rest, BackoffLimitExceeded", None));
    check(json!({"backoffLimit": 1}), json!({"failed": 1}), "~bad", ("create 1", None));
    check(
        json!({"backoffLimit": 1, "parallelism": 2}),
        json!({"failed": 1}),
        "bad run",
        ("end 1, BackoffLimitExceeded", None),
    );
    check(json!({"backoffLimit": 0}), none.clone(), "-run", ("rest, BackoffLimitExceeded", None));
    // What was decided stays decided.
    let decided = json!({"conditions": [{"type": "FailureTarget", "status": "True", "reason": "Why"}]});
    check(json!({}), decided, "run", ("end 1, Why", None));
    // A deadline.
    let started = |at: &str| json!({"startTime": format!("2026-01-01T{at}Z")});
    check(json!({"activeDeadlineSeconds": 60}), started("00:59:30"), "run", ("rest", Some(30)));
    check(json!({"activeDeadlineSeconds": 60}), started("00:59:00"), "run", ("end 1, DeadlineExceeded", None));
    check(json!({"activeDeadlineSeconds": 60, "suspend": true}), started("00:59:00"), "", ("rest", None));
    // A policy.
    let policy = |action: &str| json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [1]}}]}});
    check(policy("FailJob"), none.clone(), "bad", ("rest, PodFailurePolicy", None));
    check(policy("Ignore"), none.clone(), "bad", ("rest", Some(5)));
    check(policy("Count"), none.clone(), "bad", ("rest, BackoffLimitExceeded", None));
}

#[test]
fn containers_that_restart_in_place_count() {
    let check = |limit: i32, restarts: i32, expect: &str| {
        let job = job(json!({"backoffLimit": limit, "template": {"spec": {"restartPolicy": "OnFailure"}}}), json!({}));
        let mut pod = Arc::unwrap_or_clone(pod(0, "run"));
        pod.status.container_statuses[0].restart_count = restarts;
        assert_eq!(short(&made(&job, &[Arc::new(pod)])), expect, "{limit} {restarts}");
    };
    check(0, 0, "rest");
    check(0, 1, "end 1, BackoffLimitExceeded");
    check(2, 1, "rest");
    check(2, 2, "end 1, BackoffLimitExceeded");
}

/// From the first look to the end: what is written down, who may go, what is counted.
#[test]
fn each_end_is_written_down_then_counted() {
    let check = |spec: Value, status: Value, before: &str, gone: &str, tallied: Value, count_untracked: Value| {
        let job = job(spec, status);
        let before = pods(before);
        let plan = made(&job, &before);
        let tally = tally(&job, &plan, &before, Failures::default(), now());
        let (status, _) = finish(&job, &plan, &tally, &pods(gone), now());
        let look = |status: &JobStatus| {
            let all = serde_json::to_value(status).unwrap();
            let types: Vec<&str> = status.conditions.iter().map(|condition| &*condition.type_).collect();
            json!({
                "active": status.active, "succeeded": status.succeeded, "failed": status.failed,
                "uncounted": all["uncountedTerminatedPods"], "conditions": types, "indexes": status.completed_indexes,
            })
        };
        assert_eq!((look(&tally.status), look(&status)), (tallied, count_untracked));
    };
    let look = |active: i32, succeeded: i32, failed: i32, uncounted: Value, conditions: &[&str], indexes: &str| json!({"active": active, "succeeded": succeeded, "failed": failed, "uncounted": uncounted, "conditions": conditions, "indexes": indexes});
    let all = json!({});
    check(
        json!({}),
        all.clone(),
        "ok",
        "~ok",
        look(0, 0, 0, json!({"succeeded": ["p0"]}), &["SuccessCriteriaMet"], ""),
        look(0, 1, 0, json!({}), &["SuccessCriteriaMet", "Complete"], ""),
    );
    // One could not be let go: it stays written down, and the end waits.
    check(
        json!({"completions": 2}),
        all.clone(),
        "ok ok",
        "~ok ok",
        look(0, 0, 0, json!({"succeeded": ["p0", "p1"]}), &["SuccessCriteriaMet"], ""),
        look(0, 1, 0, json!({"succeeded": ["p1"]}), &["SuccessCriteriaMet"], ""),
    );
    // Those that run when it fails have failed, and the end waits until they are gone.
    check(
        json!({"backoffLimit": 0, "parallelism": 2, "completions": 2}),
        all.clone(),
        "bad -run",
        "~bad ~-run",
        look(0, 0, 0, json!({"failed": ["p0", "p1"]}), &["FailureTarget"], ""),
        look(0, 0, 2, json!({}), &["FailureTarget", "Failed"], ""),
    );
    check(
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2}),
        json!({"completedIndexes": "0", "succeeded": 1}),
        "ok:2 run:1",
        "~ok:2 run:1",
        look(1, 2, 0, json!({}), &[], "0,2"),
        look(1, 2, 0, json!({}), &[], "0,2"),
    );
    check(
        json!({"suspend": true}),
        all,
        "",
        "",
        look(0, 0, 0, json!({}), &["Suspended"], ""),
        look(0, 0, 0, json!({}), &["Suspended"], ""),
    );
}

#[test]
fn what_ends_after_the_plan_is_counted_with_it() {
    let job = job(json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3}), json!({}));
    let plan = made(&job, &pods("run:0 run:1 run:2"));
    let check = |what: &str, expect: (usize, &str, u32)| {
        let tally = tally(&job, &plan, &pods(what), Failures::default(), now());
        assert_eq!((tally.untrack.len(), &*tally.status.completed_indexes, tally.failures.many), expect, "{what}");
    };
    check("run:0 ok:1 run:2", (1, "1", 0));
    check("run:0 run:1 bad:2", (1, "", 1));
}

/// A pod that is told to go because the Job has failed may say that it succeeded.
#[test]
fn what_is_told_to_go_has_not_ended_by_itself() {
    let check = |spec: Value, status: Value, before: &str, after: &str, expect: (&[&str], &[&str])| {
        let job = job(spec, status);
        let plan = made(&job, &pods(before));
        let tally = tally(&job, &plan, &pods(after), Failures::default(), now());
        let uncounted = tally.status.uncounted_terminated_pods.unwrap();
        let (succeeded, failed): (Vec<&str>, Vec<&str>) = (
            uncounted.succeeded.iter().map(|uid| &**uid).collect(),
            uncounted.failed.iter().map(|uid| &**uid).collect(),
        );
        assert_eq!((&*succeeded, &*failed), expect, "{before}: {after}");
        assert_eq!(tally.untrack.len(), pods(after).len());
    };
    let late = json!({"startTime": "2026-01-01T00:00:00Z"});
    let limited = json!({"activeDeadlineSeconds": 1, "parallelism": 2, "completions": 2});
    check(limited.clone(), late.clone(), "run run", "-ok -run", (&[], &["p0", "p1"]));
    check(limited, late, "ok run", "ok -ok", (&["p0"], &["p1"]));
    let met = json!({"conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy"}]});
    check(json!({"completions": 2}), met, "ok run", "ok -ok", (&["p0"], &[]));
}

#[test]
fn a_status_takes_so_many_at_once() {
    let job = job(json!({"completions": 2000, "parallelism": 2000}), json!({}));
    let many: Vec<Arc<Pod>> = (0..BURST + 5).map(|at| pod(at, "ok")).collect();
    let plan = made(&job, &many);
    let tally = tally(&job, &plan, &many, Failures::default(), now());
    assert_eq!((tally.untrack.len(), tally.more), (BURST, true));
}

#[test]
fn what_is_resumed_starts_its_time_again() {
    let suspended = json!({"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]});
    let job = job(json!({}), suspended);
    let plan = made(&job, &[]);
    let tally = tally(&job, &plan, &[], Failures::default(), now());
    assert_eq!(tally.status.start_time, Some(seconds(now())));
    assert_eq!(tally.event, Some(("Resumed", "Job resumed")));
    assert_eq!(tally.status.conditions[0].status, "False");
}
