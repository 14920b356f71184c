//! Bad days: refusals, silence, and answers that never arrive.

use std::time::Duration;

use konverge_core::Status;
use konverge_runtime::{
    Applied, ApplyOptions, Condition, DEGRADED, Error, Missing, Retry, StatusUpdate, WriteError, WriterOptions,
    is_true, retry,
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Fault, cached, config_map, key, kind, set_status, webapp};

fn settings(value: &str) -> Value {
    json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"a": value}})
}

async fn refused(cluster: &Cluster, fault: Fault) -> WriteError {
    cluster.break_next([fault]);
    let writer = cluster.hasty_writer(Duration::from_millis(50));
    let error = writer.apply(&config_map(), None, &settings("1"), ApplyOptions::default()).await.unwrap_err();
    assert_eq!(cluster.methods(), "PATCH", "one request, no retry behind the back of the queue");
    error
}

fn body(status: Status) -> Value {
    serde_json::to_value(status).unwrap()
}

#[tokio::test]
async fn each_fault_is_told_by_what_to_do() {
    let cluster = Cluster::start().await;
    let second = |seconds| Retry::Hold(Duration::from_secs(seconds));
    let shed = json!("Too many requests, please try again later.");
    let cases = [
        (Fault::Answer(409, &[], body(Status::modified("", "configmaps", "settings"))), "Conflict", Retry::Fresh),
        (Fault::Answer(429, &[("retry-after", "11")], shed), "Throttled", second(11)),
        (Fault::Answer(503, &[("retry-after", "2")], json!("")), "Throttled", second(2)),
        (Fault::Answer(500, &[], body(Status::internal("etcd"))), "Unknown", Retry::Outage),
        (Fault::Hang, "Unknown", Retry::Outage),
        (Fault::Refused, "Unreachable", Retry::Outage),
        (Fault::ResetAfter, "Unknown", Retry::Outage),
        (Fault::Truncated, "Unknown", Retry::Outage),
    ];
    for (fault, reason, policy) in cases {
        let error = Error::from(refused(&cluster, fault).await);
        assert_eq!((error.get_reason(), retry(&error)), (reason, policy), "{error:?}");
    }
}

#[tokio::test]
async fn a_missing_rule_is_named() {
    let cluster = Cluster::start().await;
    let why = r#"User "op" cannot patch resource "configmaps" in API group "" in the namespace "default""#;
    let status = Status::forbidden("", "configmaps", "settings", why);
    let error = refused(&cluster, Fault::Answer(403, &[], body(status))).await;
    let rule = r#"verbs: ["patch"], apiGroups: [""], resources: ["configmaps"], in namespace default"#;
    assert!(error.to_string().starts_with(&format!("an RBAC rule is missing: {rule}")), "{error}");
}

#[tokio::test]
async fn what_is_not_there_is_told_apart() {
    let cluster = Cluster::start().await;
    let options = ApplyOptions::default;
    let foreign = kind("example.com", "v1", "Gadget");
    let object = json!({"metadata": {"name": "g", "namespace": "default"}});
    let error = cluster.writer.apply(&foreign, None, &object, options()).await.unwrap_err();
    assert!(matches!(error, WriteError::NotFound { missing: Missing::Kind, .. }), "{error:?}");
    assert_eq!(error.to_string(), "the API server does not know gadgets.example.com: is its CRD installed?");
    assert!(cluster.writer.get(&foreign, &key(&foreign, "g")).await.is_err());

    let elsewhere = json!({"metadata": {"name": "c", "namespace": "nowhere"}});
    let error = cluster.writer.apply(&config_map(), None, &elsewhere, options()).await.unwrap_err();
    assert!(matches!(error, WriteError::NotFound { missing: Missing::Namespace, .. }), "{error:?}");
    assert!(cluster.writer.get(&config_map(), &key(&config_map(), "none")).await.unwrap().is_none());
}

/// A child that makes no sense: a condition and an event tell of it, and nobody tries again until something changes.
#[tokio::test]
async fn an_invalid_child_becomes_a_condition_and_no_loop() {
    let cluster = Cluster::start().await;
    let parent = json!({"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "w", "namespace": "default"}, "spec": {}});
    let parent = cluster.create(&webapp(), parent).await;
    let child = json!({"metadata": {"name": "web", "namespace": "default", "labels": {"bad label": "x"}}});
    let refused = cluster.writer.apply(&config_map(), None, &child, ApplyOptions::default()).await.unwrap_err();
    let WriteError::Invalid { causes, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!(causes[0].field, "metadata.labels");

    let error = Error::from(refused);
    assert_eq!((retry(&error), error.get_reason()), (Retry::Backoff, "Invalid"));
    let degraded = StatusUpdate::conditions([Condition::yes(DEGRADED, error.get_reason(), error.to_string())]);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let told = set_status(&cluster.writer, &webapp(), &parent, &degraded, now).await.unwrap().unwrap();
    assert!(is_true(&told, DEGRADED));
    assert!(told["status"]["conditions"][0]["message"].as_str().unwrap().contains("bad label"));
    // The same failure again writes nothing.
    cluster.methods();
    assert_eq!(set_status(&cluster.writer, &webapp(), &told, &degraded, now).await.unwrap(), None);
    assert_eq!(cluster.methods(), "");
}

/// The answer to a write is lost after the server has done it: the next attempt finds it done.
#[tokio::test]
async fn a_write_whose_answer_was_lost_is_not_done_twice() {
    for fault in [Fault::ResetAfter, Fault::Truncated] {
        let cluster = Cluster::start().await;
        assert!(matches!(refused(&cluster, fault).await, WriteError::Unknown { .. }));
        // The cache has not seen it yet: the apply is repeated, which changes nothing.
        let first = cluster.see(&config_map(), "settings").await.expect("it was done");
        let restarted = cluster.writer_with(WriterOptions::default());
        let again = restarted.apply(&config_map(), None, &settings("1"), ApplyOptions::default()).await.unwrap();
        assert_eq!(again.object().unwrap().resource_version(), first["metadata"]["resourceVersion"]);
        // Now it has: nothing is sent.
        cluster.methods();
        let first = cached(&config_map(), &first);
        let steady =
            restarted.apply(&config_map(), Some(&first), &settings("1"), ApplyOptions::default()).await.unwrap();
        assert_eq!((steady, cluster.methods().as_str()), (Applied::Unchanged, ""));
    }
}

#[tokio::test]
async fn a_replace_or_delete_whose_answer_was_lost_does_no_harm() {
    let cluster = Cluster::start().await;
    let api = config_map();
    let mut object = settings("1");
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("ConfigMap");
    let mut live = cluster.create(&api, object).await;
    live["data"]["a"] = json!("2");
    cluster.break_next([Fault::ResetAfter]);
    assert!(matches!(cluster.writer.replace(&api, &live).await, Err(WriteError::Unknown { .. })));
    // Done once: the second attempt is refused, because it names the version from before.
    assert!(matches!(cluster.writer.replace(&api, &live).await, Err(WriteError::Conflict { .. })));
    assert_eq!(cluster.see(&api, "settings").await.unwrap()["data"]["a"], "2");

    cluster.break_next([Fault::ResetAfter]);
    assert!(matches!(cluster.writer.delete(&api, &live).await, Err(WriteError::Unknown { .. })));
    assert_eq!(cluster.writer.delete(&api, &live).await.unwrap(), konverge_runtime::Deleted::NotFound);
}
