//! CronJobs and the time, as tables.

use super::*;

fn at(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().unwrap()
}

/// Created at midnight.
fn cron(spec: Value, status: Value) -> CronJob {
    let metadata = json!({"name": "c", "namespace": "a", "uid": "u", "creationTimestamp": at("00:00:00").to_string()});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// A Job by its name, and how it ended: `Complete`, `Failed` or nothing.
fn job_of(name: &str, ending: &str, started: &str) -> Arc<Job> {
    let conditions = if ending.is_empty() { json!([]) } else { json!([{"type": ending, "status": "True"}]) };
    let completion = (ending == "Complete").then(|| at(started).to_string());
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "namespace": "a"},
            "status": {"conditions": conditions, "startTime": at(started).to_string(), "completionTime": completion},
        }))
        .unwrap(),
    )
}

fn made(cron: &CronJob, jobs: &[Arc<Job>], now: &str) -> Plan {
    plan(&Observed { cron, jobs, zone: Ok(TimeZone::UTC), now: at(now) })
}

fn reasons(plan: &Plan) -> Vec<&'static str> {
    plan.events.iter().map(|event| event.reason).collect()
}

#[test]
fn a_job_for_each_time() {
    let check = |spec: Value, last: Option<&str>, now: &str, expect: (Option<&str>, u64, &[&str])| {
        let cron = cron(spec.clone(), json!({"lastScheduleTime": last.map(|last| at(last).to_string())}));
        let plan = made(&cron, &[], now);
        let requeue_after = plan.requeue_after.map(|requeue_after| requeue_after.as_secs()).unwrap_or_default();
        assert_eq!(
            (plan.create, requeue_after, &*reasons(&plan)),
            (expect.0.map(at), expect.1, expect.2),
            "{spec} {last:?} {now}"
        );
    };
    let every = |minutes: &str| json!({"schedule": format!("{minutes} * * * *")});
    check(every("*/10"), None, "00:05:00", (None, 300, &[]));
    check(every("*/10"), None, "00:10:00", (Some("00:10:00"), 600, &[]));
    check(every("*/10"), None, "00:15:00", (Some("00:10:00"), 300, &[]));
    check(every("*/10"), Some("00:10:00"), "00:15:00", (None, 300, &[]));
    // Of several that were missed the latest counts.
    check(every("*/10"), Some("00:10:00"), "00:45:00", (Some("00:40:00"), 300, &[]));
    check(every("*"), None, "03:00:30", (Some("03:00:00"), 30, &["TooManyMissedTimes"]));
    check(json!({"schedule": "@every 7m"}), Some("00:10:00"), "00:25:00", (Some("00:24:00"), 360, &[]));
    // Too late.
    let deadline = json!({"schedule": "*/10 * * * *", "startingDeadlineSeconds": 60});
    check(deadline.clone(), None, "00:10:30", (Some("00:10:00"), 570, &[]));
    check(deadline.clone(), None, "00:12:00", (None, 480, &[]));
    check(deadline, None, "03:00:30", (Some("03:00:00"), 570, &[]));
    // Nothing is to be done.
    check(json!({"schedule": "* * * * *", "suspend": true}), None, "00:10:00", (None, 0, &[]));
    check(json!({"schedule": "often"}), None, "00:10:00", (None, 0, &["UnparseableSchedule"]));
    check(json!({"schedule": "0 0 30 2 *"}), None, "00:10:00", (None, 0, &["InvalidSchedule"]));
}

#[test]
fn a_time_zone_that_nobody_knows() {
    let cron = cron(json!({"schedule": "* * * * *", "timeZone": "Nowhere/Land"}), json!({}));
    let plan = plan(&Observed { cron: &cron, jobs: &[], zone: Err("unknown".into()), now: at("00:10:00") });
    assert_eq!((plan.create, &*reasons(&plan)), (None, &["UnknownTimeZone"][..]));
}

#[test]
fn one_that_still_runs() {
    let check = |policy: &str, expect: (bool, &[&str], &[&str])| {
        let active = json!([{"name": "c-1", "uid": "c-1", "namespace": "a"}]);
        let cron = cron(json!({"schedule": "* * * * *", "concurrencyPolicy": policy}), json!({"active": active}));
        let plan = made(&cron, &[job_of("c-1", "", "00:00:00")], "00:01:00");
        let gone: Vec<&str> = plan.delete.iter().map(|job| &*job.metadata.name).collect();
        assert_eq!((plan.create.is_some(), &*gone, &*reasons(&plan)), expect, "{policy}");
        assert_eq!(plan.status.active.len(), usize::from(gone.is_empty()), "{policy}");
    };
    check("Allow", (true, &[], &[]));
    check("Forbid", (false, &[], &["JobAlreadyActive"]));
    check("Replace", (true, &["c-1"], &[]));
}

#[test]
fn ends_are_seen_and_history_is_kept() {
    let active = json!([{"name": "c-3", "uid": "c-3"}, {"name": "lost", "uid": "lost"}, {"name": "c-9", "uid": "c-9"}]);
    let spec = json!({"schedule": "0 0 1 1 *", "successfulJobsHistoryLimit": 1});
    let cron = cron(spec, json!({"active": active}));
    let jobs = [
        job_of("c-3", "Complete", "00:03:00"),
        job_of("c-1", "Complete", "00:01:00"),
        job_of("c-2", "Complete", "00:02:00"),
        job_of("c-5", "Failed", "00:05:00"),
        job_of("c-4", "Failed", "00:04:00"),
        job_of("c-9", "", "00:06:00"),
        job_of("stranger", "", "00:06:00"),
    ];
    let plan = made(&cron, &jobs, "01:00:00");
    let gone: Vec<&str> = plan.delete.iter().map(|job| &*job.metadata.name).collect();
    assert_eq!(gone, ["c-1", "c-2", "c-4"]);
    assert_eq!(plan.status.active.iter().map(|active| &*active.name).collect::<Vec<_>>(), ["c-9"]);
    assert_eq!(plan.status.last_successful_time, Some(Time(at("00:03:00"))));
    assert_eq!(reasons(&plan), ["SawCompletedJob", "UnexpectedJob", "MissingJob"]);
    assert_eq!(plan.events[0].message, "Saw completed job: c-3, condition: Complete");
}

#[test]
fn jobs_are_named_for_their_minute() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"template": {}}});
    let cron = cron(json!({"jobTemplate": template}), json!({}));
    let made = job(&cron, at("00:10:00"), &TimeZone::get("Europe/Berlin").unwrap());
    assert_eq!(
        made,
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "c-29453770", "namespace": "a", "labels": {"a": "b"},
                "annotations": {SCHEDULED: "2026-01-01T01:10:00+01:00"},
            },
            "spec": {"template": {}},
        })
    );
    assert_eq!(
        job(&cron, at("00:10:00"), &TimeZone::UTC)["metadata"]["annotations"][SCHEDULED],
        "2026-01-01T00:10:00Z"
    );
}
