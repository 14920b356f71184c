//! Jobs: how they run, end, fail and go.

use std::time::Duration;

use konverge_apiserver::ApiServer;
use konverge_controllers::Options;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::*;

fn job(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "job:1"}]}}},
    });
    merge_patch(&mut object["spec"], &spec);
    object
}

/// How the pods of a Job behave.
fn behaving(words: Value) -> Value {
    let words = words.as_object().unwrap().iter();
    let words: serde_json::Map<String, Value> =
        words.map(|(name, value)| (format!("simulate.konverge.dev/{name}"), value.clone())).collect();
    json!({"template": {"metadata": {"annotations": words}}})
}

async fn impatient() -> Stage {
    Stage::with(Options { pod_failure_backoff: Duration::from_millis(1), ..Options::default() }).await
}

fn is_complete(job: &Value) -> bool {
    condition(job, "Complete").0 == "True"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_to_its_end() {
    let stage = Stage::new().await;
    stage.create(JOBS, job("once", json!({}))).await;
    let once = stage.until(JOBS, "once", is_complete).await;
    assert_eq!(condition(&once, "SuccessCriteriaMet"), is("True", "CompletionsReached"));
    assert_eq!(condition(&once, "Complete"), is("True", "CompletionsReached"));
    let status = &once["status"];
    assert_eq!((&status["succeeded"], &status["ready"], &status["terminating"]), (&json!(1), &json!(0), &json!(0)));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert!(status["startTime"].is_string() && status["completionTime"].is_string());
    let pods = stage.list(PODS).await;
    assert_eq!((pods.len(), &pods[0]["status"]["phase"]), (1, &json!("Succeeded")));
    assert!(pods[0]["metadata"].get("finalizers").is_none_or(|all| all == &json!([])), "{}", pods[0]);
    assert_eq!(pods[0]["metadata"]["labels"]["batch.kubernetes.io/job-name"], "once");
    let told = stage.events("once", "Completed").await;
    assert!(told.iter().any(|(reason, note)| reason == "SuccessfulCreate" && note.starts_with("Created pod: once-")));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_completions_are_counted_exactly() {
    let stage = Stage::new().await;
    stage.create(JOBS, job("many", json!({"completions": 40, "parallelism": 7}))).await;
    let many = stage.until(JOBS, "many", is_complete).await;
    assert_eq!(many["status"]["succeeded"], 40);
    assert!(many["status"].get("failed").is_none(), "{many}");
    assert_eq!(stage.list(PODS).await.len(), 40);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_control_plane_counts_on() {
    let server = ApiServer::open(konverge_apiserver::Options::default()).await.unwrap();
    let mut stage = Stage::on(server.clone(), Options::default());
    let indexed = json!({"completions": 60, "parallelism": 6, "completionMode": "Indexed"});
    stage.create(JOBS, job("each", indexed)).await;
    stage.create(JOBS, job("many", json!({"completions": 60, "parallelism": 6}))).await;
    for succeeded in [5, 20, 40] {
        let so_far = |job: &Value| job["status"]["succeeded"].as_i64().unwrap_or_default() >= succeeded;
        stage.until(JOBS, "many", so_far).await;
        stage.stop().await;
        stage = Stage::on(server.clone(), Options::default());
    }
    let each = stage.until(JOBS, "each", is_complete).await;
    let many = stage.until(JOBS, "many", is_complete).await;
    assert_eq!((&each["status"]["succeeded"], &each["status"]["completedIndexes"]), (&json!(60), &json!("0-59")));
    assert_eq!((&many["status"]["succeeded"], many["status"].get("failed")), (&json!(60), None));
    assert_eq!(stage.list(PODS).await.len(), 120, "nobody ran twice");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexed_jobs_run_each_index() {
    let stage = Stage::new().await;
    let indexed = json!({"completions": 5, "parallelism": 2, "completionMode": "Indexed"});
    stage.create(JOBS, job("each", indexed)).await;
    let each = stage.until(JOBS, "each", is_complete).await;
    assert_eq!((&each["status"]["completedIndexes"], &each["status"]["succeeded"]), (&json!("0-4"), &json!(5)));
    let mut indexes: Vec<String> = Vec::new();
    for pod in stage.list(PODS).await {
        let index =
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str().unwrap().to_owned();
        assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"], index.as_str());
        assert_eq!(pod["spec"]["hostname"], format!("each-{index}"));
        assert_eq!(pod["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
        indexes.push(index);
    }
    indexes.sort();
    assert_eq!(indexes, ["0", "1", "2", "3", "4"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_fails_too_often_has_failed() {
    let stage = impatient().await;
    let mut spec = behaving(json!({"exit-code": "3"}));
    merge_patch(&mut spec, &json!({"backoffLimit": 2}));
    stage.create(JOBS, job("bad", spec)).await;
    let bad = stage.until(JOBS, "bad", |job| condition(job, "Failed").0 == "True").await;
    assert_eq!(condition(&bad, "Failed"), is("True", "BackoffLimitExceeded"));
    assert_eq!(condition(&bad, "FailureTarget"), is("True", "BackoffLimitExceeded"));
    assert_eq!(bad["status"]["failed"], 3);
    let told = stage.events("bad", "BackoffLimitExceeded").await;
    let note = ("BackoffLimitExceeded".to_owned(), "Job has reached the specified backoff limit".to_owned());
    assert!(told.contains(&note), "{told:?}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_fails_a_job_at_once() {
    let stage = impatient().await;
    let mut spec = behaving(json!({"exit-code": "42"}));
    let rule = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}});
    merge_patch(&mut spec, &json!({"podFailurePolicy": {"rules": [rule]}}));
    stage.create(JOBS, job("bad", spec)).await;
    let bad = stage.until(JOBS, "bad", |job| condition(job, "Failed").0 == "True").await;
    assert_eq!((condition(&bad, "Failed"), &bad["status"]["failed"]), (is("True", "PodFailurePolicy"), &json!(1)));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_jobs_wait_and_deadlines_end_them() {
    let stage = Stage::new().await;
    let mut spec = behaving(json!({"run-time": "1h"}));
    merge_patch(&mut spec, &json!({"parallelism": 2, "completions": 2, "activeDeadlineSeconds": 100_000}));
    stage.create(JOBS, job("slow", spec)).await;
    stage.until(JOBS, "slow", |job| job["status"]["ready"] == 2).await;
    stage.patch(JOBS, "slow", json!({"spec": {"suspend": true}})).await;
    let slow = stage.until(JOBS, "slow", |job| condition(job, "Suspended").0 == "True").await;
    assert_eq!((slow["status"].get("active"), slow["status"].get("failed")), (None, None));
    stage.until_none(PODS).await;

    stage.patch(JOBS, "slow", json!({"spec": {"suspend": false}})).await;
    let slow = stage.until(JOBS, "slow", |job| job["status"]["ready"] == 2).await;
    assert_eq!(condition(&slow, "Suspended"), is("False", "JobResumed"));

    stage.patch(JOBS, "slow", json!({"spec": {"activeDeadlineSeconds": 1}})).await;
    let slow = stage.until(JOBS, "slow", |job| condition(job, "Failed").0 == "True").await;
    assert_eq!(condition(&slow, "Failed"), is("True", "DeadlineExceeded"));
    assert_eq!(slow["status"]["failed"], 2);
    stage.until_none(PODS).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_job_takes_its_pods_with_it() {
    let stage = Stage::new().await;
    stage.create(JOBS, job("slow", behaving(json!({"run-time": "1h"})))).await;
    stage.until(JOBS, "slow", |job| job["status"]["ready"] == 1).await;
    stage.some(JOBS).delete("slow", &DeleteParams::background()).await.unwrap();
    stage.until_none(JOBS).await;
    stage.until_none(PODS).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_are_orphaned_are_let_go() {
    let stage = Stage::new().await;
    stage.create(JOBS, job("slow", behaving(json!({"run-time": "1h"})))).await;
    stage.until(JOBS, "slow", |job| job["status"]["ready"] == 1).await;
    stage.some(JOBS).delete("slow", &DeleteParams::orphan()).await.unwrap();
    stage.until_none(JOBS).await;
    let free = |pod: &Value| pod["metadata"].get("finalizers").is_none_or(|all| all == &json!([]));
    stage.until_all(PODS, |pods| (pods.len() == 1 && free(&pods[0])).then_some(())).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_ended_goes_after_its_time() {
    let stage = Stage::new().await;
    stage.create(JOBS, job("short", json!({"ttlSecondsAfterFinished": 0}))).await;
    stage.until_none(JOBS).await;
    stage.until_none(PODS).await;
    stage.stop().await;
}
