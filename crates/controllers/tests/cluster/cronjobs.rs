//! CronJobs, with a clock of the test's own: time passes when the test says so, and then the CronJob is touched, because
//! nobody waits for a clock that does not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use konverge_controllers::Options;
use serde_json::{Value, json};

use crate::stage::*;

/// How many minutes pass before the first time, which leaves the server time to create things, and from then on.
const FIRST: i64 = 2;
const STEP: i64 = 5;

/// A clock that stands still until it is set.
#[derive(Clone)]
struct StandingClock {
    began: i64,
    minute: Arc<AtomicI64>,
}

impl StandingClock {
    /// One that shows the minute it is: what the server creates is not older than that, and not much younger.
    fn new() -> Self {
        let began = Timestamp::now().as_second() / 60;
        Self { began, minute: Arc::new(AtomicI64::new(began)) }
    }

    /// The schedule whose times this clock comes by.
    fn schedule(&self) -> String {
        format!("{}-59/{STEP} * * * *", (self.began + FIRST) % STEP)
    }

    /// It is the next time of the schedule; the minute of it.
    fn pass(&self) -> i64 {
        let minutes = if self.minute.load(Ordering::SeqCst) == self.began { FIRST } else { STEP };
        self.minute.fetch_add(minutes, Ordering::SeqCst) + minutes
    }

    async fn stage(&self) -> Stage {
        let minute = self.minute.clone();
        let clock = Arc::new(move || Timestamp::from_second(minute.load(Ordering::SeqCst) * 60).unwrap());
        Stage::with(Options { clock, ..Options::default() }).await
    }
}

fn cron(name: &str, run_time: &str, spec: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {
            "schedule": "*/5 * * * *",
            "jobTemplate": {"spec": {"template": {
                "metadata": {"annotations": {"simulate.konverge.dev/run-time": run_time}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "job:1"}]},
            }}},
        },
    });
    merge_patch(&mut object["spec"], &spec);
    object
}

/// Lets the controller see what time it is.
async fn touch(stage: &Stage, name: &str, minute: i64) {
    stage.patch(CRON_JOBS, name, json!({"metadata": {"annotations": {"touched": minute.to_string()}}})).await;
}

fn names(jobs: &[Value]) -> Vec<String> {
    let mut names: Vec<String> = jobs.iter().map(|job| job["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_come_by_the_clock_and_old_ones_go() {
    let clock = StandingClock::new();
    let stage = clock.stage().await;
    stage
        .create(CRON_JOBS, cron("tick", "0s", json!({"schedule": clock.schedule(), "successfulJobsHistoryLimit": 2})))
        .await;
    let mut expect: Vec<String> = Vec::new();
    for _ in 0..3 {
        let minute = clock.pass();
        touch(&stage, "tick", minute).await;
        expect.push(format!("tick-{minute}"));
        let newest = expect.last().unwrap().clone();
        stage.until(JOBS, &newest, |job| condition(job, "Complete").0 == "True").await;
        let tick = stage.until(CRON_JOBS, "tick", |tick| tick["status"].get("active").is_none()).await;
        let last: Timestamp = tick["status"]["lastScheduleTime"].as_str().unwrap().parse().unwrap();
        assert_eq!(last.as_second() / 60, minute);
    }
    expect.remove(0);
    stage.until_all(JOBS, |jobs| (names(jobs) == expect).then_some(())).await;
    let tick = stage.until(CRON_JOBS, "tick", |tick| tick["status"]["lastSuccessfulTime"].is_string()).await;
    assert_eq!(tick["status"].get("active"), None);
    let told = stage.events("tick", "SawCompletedJob").await;
    assert!(told.iter().any(|(_, note)| note.starts_with("Created job tick-")), "{told:?}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_still_runs_is_waited_for_or_replaced() {
    for (policy, expect) in [("Forbid", [true, false]), ("Replace", [false, true]), ("Allow", [true, true])] {
        let clock = StandingClock::new();
        let stage = clock.stage().await;
        let spec = json!({"schedule": clock.schedule(), "concurrencyPolicy": policy});
        stage.create(CRON_JOBS, cron("tick", "1000h", spec)).await;
        let first = clock.pass();
        touch(&stage, "tick", first).await;
        stage.until(JOBS, &format!("tick-{first}"), |job| job["status"]["active"] == 1).await;
        let second = clock.pass();
        touch(&stage, "tick", second).await;
        if policy == "Forbid" {
            stage.events("tick", "JobAlreadyActive").await;
        }
        let wanted: Vec<String> = [first, second]
            .iter()
            .zip(expect)
            .filter(|(_, there)| *there)
            .map(|(minute, _)| format!("tick-{minute}"))
            .collect();
        stage.until_all(JOBS, |jobs| (names(jobs) == wanted).then_some(())).await;
        let active = |tick: &Value| tick["status"]["active"].as_array().map_or(0, Vec::len);
        stage.until(CRON_JOBS, "tick", |tick| active(tick) == wanted.len()).await;
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_that_cannot_be_read_is_refused() {
    let stage = Stage::new().await;
    let mut bad = cron("bad", "0s", json!({"schedule": "now and then"}));
    bad["apiVersion"] = "batch/v1".into();
    bad["kind"] = "CronJob".into();
    let bad = serde_json::from_value(bad).unwrap();
    let refused = stage.some(CRON_JOBS).create(&Default::default(), &bad).await.unwrap_err();
    assert!(refused.to_string().contains("expected exactly 5 fields"), "{refused}");
    assert!(stage.list(JOBS).await.is_empty());
    stage.stop().await;
}
