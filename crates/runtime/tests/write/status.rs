//! The status of an object on a server with other writers.

use jiff::Timestamp;
use konverge_runtime::{
    Condition, Conditions, Missing, OtherFields, PROGRESSING, READY, StatusUpdate, WriteError, WriterOptions, is_true,
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Fault, kind, meddle, set_status, webapp};

async fn resource(cluster: &Cluster) -> Value {
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "WebApp",
        "metadata": {"name": "w", "namespace": "default"}, "spec": {"size": 1},
    });
    cluster.create(&webapp(), object).await
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn then_meddle(patch: Value) -> Fault {
    Fault::After(Box::new(|client| {
        Box::pin(async {
            meddle(client, webapp(), "w".into(), patch).await;
        })
    }))
}

#[tokio::test]
async fn an_unchanged_status_writes_nothing() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster).await;
    let update = StatusUpdate {
        fields: json!({"phase": "Up", "ready": 1}),
        conditions: vec![Condition::yes(READY, "AllReady", "1 of 1")],
        ..StatusUpdate::default()
    };
    let written = set_status(&cluster.writer, &webapp(), &live, &update, at(0)).await.unwrap().expect("it is new");
    let sent = cluster.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].path, "/apis/example.com/v1/namespaces/default/webapps/w/status");
    assert_eq!(sent[0].body["metadata"]["resourceVersion"], live["metadata"]["resourceVersion"]);
    assert!(is_true(&written, READY));
    assert_eq!(written["status"]["conditions"][0]["observedGeneration"], 1);

    let restarted = cluster.writer_with(WriterOptions::default());
    for (second, writer) in [(1, &cluster.writer), (100, &restarted)] {
        assert_eq!(set_status(writer, &webapp(), &written, &update, at(second)).await.unwrap(), None);
    }
    assert_eq!(cluster.methods(), "");

    // One field has changed: only that is sent.
    let update = StatusUpdate::fields(json!({"phase": "Up", "ready": 2}), OtherFields::Stay);
    set_status(&cluster.writer, &webapp(), &written, &update, at(200)).await.unwrap().expect("it has changed");
    assert_eq!(cluster.sent()[0].body["status"], json!({"ready": 2}));
    let live = cluster.see(&webapp(), "w").await.unwrap();
    assert_eq!((&live["status"]["phase"], is_true(&live, READY)), (&json!("Up"), true));
}

#[tokio::test]
async fn others_may_write_at_the_same_time() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster).await;
    let theirs = json!({"type": "Theirs", "status": "True", "reason": "R", "message": ""});
    let meddled = json!({"status": {"phase": "Theirs", "conditions": [theirs]}});
    // Their spec moves the object to generation 2; what we saw was 1.
    cluster.break_next([then_meddle(meddled), then_meddle(json!({"spec": {"size": 2}}))]);
    let ours = StatusUpdate::conditions([Condition::no(READY, "Starting", "")]);
    let written = set_status(&cluster.writer, &webapp(), &live, &ours, at(0)).await.unwrap().unwrap();
    assert_eq!(cluster.methods(), "PATCH GET PATCH");
    assert_eq!(written["metadata"]["generation"], 2);
    assert_eq!(written["status"]["phase"], "Theirs");
    let conditions = Conditions::of(&written);
    assert_eq!(conditions.get("Theirs"), Some(&theirs));
    assert_eq!(conditions.get(READY).unwrap()["observedGeneration"], 1);
}

#[tokio::test]
async fn somebody_may_have_written_the_same() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster).await;
    cluster.break_next([then_meddle(json!({"status": {"phase": "Up"}}))]);
    let update = StatusUpdate::fields(json!({"phase": "Up"}), OtherFields::Stay);
    let seen = set_status(&cluster.writer, &webapp(), &live, &update, at(0)).await.unwrap();
    assert_eq!(seen.expect("it was read again")["status"]["phase"], "Up");
    assert_eq!(cluster.methods(), "PATCH GET");
}

#[tokio::test]
async fn the_time_of_a_transition_survives_other_changes() {
    let cluster = Cluster::start().await;
    let mut live = resource(&cluster).await;
    let steps = [
        (0, Condition::no(READY, "Starting", "0 of 3"), 0),
        (10, Condition::no(READY, "Starting", "1 of 3"), 0),
        (20, Condition::yes(READY, "AllReady", "3 of 3"), 20),
        (30, Condition::yes(READY, "AllReady", "3 of 4"), 20),
        (40, Condition::no(READY, "Down", ""), 40),
    ];
    for (second, condition, since) in steps {
        let update = StatusUpdate::conditions([condition, Condition::yes(PROGRESSING, "Always", "")]);
        live = set_status(&cluster.writer, &webapp(), &live, &update, at(second)).await.unwrap().expect("it changes");
        let conditions = Conditions::of(&live);
        let time = |type_: &str| conditions.get(type_).unwrap()["lastTransitionTime"].as_str().unwrap().parse().ok();
        assert_eq!((time(READY), time(PROGRESSING)), (Some(at(since)), Some(at(0))), "{second}");
    }
}

#[tokio::test]
async fn what_the_schema_does_not_declare_is_sent_once() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster).await;
    let update = StatusUpdate::fields(json!({"phase": "Up", "undeclared": {"a": 1}}), OtherFields::Stay);
    let written = set_status(&cluster.writer, &webapp(), &live, &update, at(0)).await.unwrap().unwrap();
    assert_eq!(written["status"], json!({"phase": "Up"}));
    assert_eq!(set_status(&cluster.writer, &webapp(), &written, &update, at(1)).await.unwrap(), None);
    assert_eq!(cluster.methods(), "PATCH");
    // What is declared is still written.
    let update = StatusUpdate::fields(json!({"phase": "Down", "undeclared": {"a": 1}}), OtherFields::Stay);
    let written = set_status(&cluster.writer, &webapp(), &written, &update, at(2)).await.unwrap().unwrap();
    assert_eq!(written["status"], json!({"phase": "Down"}));
}

#[tokio::test]
async fn an_object_that_is_gone_has_no_status() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster).await;
    cluster.writer.delete(&webapp(), &live).await.unwrap();
    let update = StatusUpdate::fields(json!({"phase": "Up"}), OtherFields::Stay);
    let error = set_status(&cluster.writer, &webapp(), &live, &update, at(0)).await.unwrap_err();
    assert!(matches!(error, WriteError::NotFound { missing: Missing::Object, .. }), "{error:?}");
    // Nor has another object of its name the status of the first.
    resource(&cluster).await;
    let error = set_status(&cluster.writer, &webapp(), &live, &update, at(0)).await.unwrap_err();
    assert!(matches!(error, WriteError::NotFound { missing: Missing::Object, .. }), "{error:?}");
    assert_eq!(cluster.see(&webapp(), "w").await.unwrap().get("status"), None);

    let map = kind("", "v1", "ConfigMap");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}});
    let live = cluster.create(&map, object).await;
    let error = set_status(&cluster.writer, &map, &live, &update, at(0)).await.unwrap_err();
    assert_eq!(error.to_string(), "ConfigMap has no status subresource: its CRD must declare one");
}

/// A cluster answers for a custom resource as if the object were not there.
#[tokio::test]
async fn a_missing_subresource_is_told_from_a_missing_object() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster).await;
    let update = StatusUpdate::fields(json!({"phase": "Up"}), OtherFields::Stay);
    let words = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "webapps.example.com \"w\" not found",
        "details": {"name": "w", "group": "example.com", "kind": "webapps"},
    });
    cluster.break_next([Fault::Answer(404, &[], words)]);
    let error = set_status(&cluster.writer, &webapp(), &live, &update, at(0)).await.unwrap_err();
    assert_eq!(error.to_string(), "WebApp has no status subresource: its CRD must declare one");
    assert_eq!(cluster.methods(), "PATCH GET");
}
