//! Defaults: every way to write an object sets them, they have no field manager, and adding them is not a change.

use serde_json::{Value, json};

use konverge_store::{Commit, Write};

use crate::cluster::{APPLY, Cluster, DEPLOYMENTS, JSON_PATCH, MERGE, STRATEGIC};

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";

fn bare(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

fn version(object: &Value) -> &Value {
    &object["metadata"]["resourceVersion"]
}

/// The fields of a manager, as text.
fn fields_of(object: &Value, manager: &str) -> String {
    let managed = object["metadata"]["managedFields"].as_array().unwrap();
    managed.iter().find(|entry| entry["manager"] == manager).map(|entry| entry["fieldsV1"].to_string()).unwrap()
}

#[tokio::test]
async fn every_way_in_has_them() {
    let cluster = Cluster::new().await;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    let expect = |made: &Value, what: &str| {
        assert_eq!(made["spec"]["strategy"], strategy, "{what}");
        assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "Always", "{what}");
    };
    expect(&cluster.post(DEPLOYMENTS, &bare("a")).await.expect(201), "create");
    expect(&cluster.patch(&format!("{DEPLOYMENTS}/b?fieldManager=me"), APPLY, &bare("b")).await.expect(201), "apply");
    let dry = cluster.post(&format!("{DEPLOYMENTS}?dryRun=All"), &bare("c")).await;
    expect(&dry.expect(201), "dry run");
    let mut recreate = bare("a");
    recreate["spec"]["strategy"] = json!({"type": "Recreate"});
    let path = format!("{DEPLOYMENTS}/a");
    assert_eq!(cluster.put(&path, &recreate).await.expect(200)["spec"]["strategy"], json!({"type": "Recreate"}));
    for (kind, patch) in [
        (MERGE, json!({"spec": {"strategy": null}})),
        (STRATEGIC, json!({"spec": {"strategy": null}})),
        (JSON_PATCH, json!([{"op": "remove", "path": "/spec/strategy"}])),
    ] {
        expect(&cluster.patch(&path, kind, &patch).await.expect(200), kind);
        cluster.put(&path, &recreate).await.expect(200);
    }
    expect(&cluster.put(&path, &bare("a")).await.expect(200), "replace");
}

#[tokio::test]
async fn a_write_that_leaves_them_out_changes_nothing() {
    let cluster = Cluster::new().await;
    let path = format!("{DEPLOYMENTS}/a");
    let made = cluster.post(DEPLOYMENTS, &bare("a")).await.expect(201);
    assert_eq!(made["metadata"]["generation"], 1);
    for again in [
        cluster.put(&path, &bare("a")).await,
        cluster.patch(&path, MERGE, &bare("a")).await,
        cluster.patch(&path, STRATEGIC, &json!({"spec": {"strategy": null, "replicas": null}})).await,
    ] {
        assert_eq!(again.expect(200), made);
    }
    let path = format!("{DEPLOYMENTS}/b?fieldManager=me");
    let applied = cluster.patch(&path, APPLY, &bare("b")).await.expect(201);
    assert_eq!(cluster.patch(&path, APPLY, &bare("b")).await.expect(200), applied);
}

#[tokio::test]
async fn what_was_kept_without_them_stays_as_it_is_until_it_changes() {
    let cluster = Cluster::new().await;
    let path = format!("{DEPLOYMENTS}/old");
    let mut old = bare("old");
    for (field, value) in [("namespace", json!("default")), ("uid", json!("u")), ("generation", json!(1))] {
        old["metadata"][field] = value;
    }
    let writes = vec![Write::Put("/registry/apps/deployments/default/old".into(), old.to_string().into())];
    cluster.server.store().commit(Commit { conditions: Vec::new(), writes }).await.unwrap();
    let kept = cluster.get(&path).await.expect(200);
    let same = cluster.patch(&path, MERGE, &json!({"spec": {"template": {}}})).await.expect(200);
    assert_eq!(version(&same), version(&kept));
    let changed = cluster.patch(&path, MERGE, &json!({"metadata": {"labels": {"x": "y"}}})).await.expect(200);
    assert_eq!((&changed["spec"]["replicas"], &changed["metadata"]["generation"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn they_are_in_the_charge_of_who_creates_and_not_of_who_applies() {
    let cluster = Cluster::new().await;
    let path = format!("{DEPLOYMENTS}/a?fieldManager=me");
    let applied = cluster.patch(&path, APPLY, &bare("a")).await.expect(201);
    for absent in ["f:strategy", "f:dnsPolicy", "f:imagePullPolicy", "f:replicas"] {
        assert!(!fields_of(&applied, "me").contains(absent), "{absent}");
    }
    // So another manager can set them without force.
    let mut other = bare("a");
    other["spec"] = json!({"strategy": {"rollingUpdate": {"maxSurge": 3}}});
    let other = cluster.patch(&format!("{DEPLOYMENTS}/a?fieldManager=you"), APPLY, &other).await;
    assert_eq!(other.expect(200)["spec"]["strategy"]["rollingUpdate"]["maxSurge"], 3);

    let made = cluster.post(&format!("{DEPLOYMENTS}?fieldManager=me"), &bare("b")).await.expect(201);
    for owned in ["f:strategy", "f:dnsPolicy", "f:imagePullPolicy", "f:replicas"] {
        assert!(fields_of(&made, "me").contains(owned), "{owned}");
    }
}

#[tokio::test]
async fn defaults_do_not_hide_what_is_missing_or_unknown() {
    let cluster = Cluster::new().await;
    let empty = json!({"metadata": {"name": "a"}});
    cluster.post(DEPLOYMENTS, &empty).await.fails(422, "Invalid");
    cluster.post(STATEFUL_SETS, &empty).await.fails(422, "Invalid");
    let mut typo = bare("a");
    typo["spec"]["stratgy"] = json!({});
    let refused = cluster.post(&format!("{DEPLOYMENTS}?fieldValidation=Strict"), &typo).await;
    assert!(refused.fails(400, "BadRequest").contains("unknown field \"spec.stratgy\""));
}

#[tokio::test]
async fn who_applies_to_what_is_there_need_not_name_it() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(DEPLOYMENTS, &bare("a")).await.expect(201);
    let nameless = |spec: Value, status: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec, "status": status});
    let path = format!("{DEPLOYMENTS}/a/status?fieldManager=me");
    let done = cluster.patch(&path, APPLY, &nameless(Value::Null, json!({"replicas": 2}))).await;
    assert_eq!(done.expect(200)["status"], json!({"replicas": 2}));
    let path = format!("{DEPLOYMENTS}/a?fieldManager=me");
    let done = cluster.patch(&path, APPLY, &nameless(json!({"minReadySeconds": 3}), Value::Null)).await.expect(200);
    assert_eq!((&done["spec"]["minReadySeconds"], &done["metadata"]["name"]), (&json!(3), &json!("a")));
    let absent =
        cluster.patch(&format!("{DEPLOYMENTS}/new?fieldManager=me"), APPLY, &nameless(json!({}), Value::Null)).await;
    assert_eq!(
        absent.fails(400, "BadRequest"),
        "the name of the object (new based on URL) was undeterminable: name must be provided"
    );
    let other = cluster.patch(&format!("{DEPLOYMENTS}/a?fieldManager=me"), APPLY, &bare("b")).await;
    assert_eq!(other.fails(400, "BadRequest"), "the name of the object (b) does not match the name on the URL (a)");
}

/// `kubectl get events --sort-by=.lastTimestamp` refuses objects without the field, and takes null.
#[tokio::test]
async fn times_of_events_are_there() {
    let cluster = Cluster::new().await;
    let core = "/api/v1/namespaces/default/events";
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let about = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default"});
    let event = json!({"metadata": {"name": "a"}, "involvedObject": about, "reason": "Began", "type": "Normal"});
    let made = cluster.post(core, &event).await.expect(201);
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        assert_eq!(made.get(field), Some(&Value::Null), "{field}: {made}");
    }
    let shown = cluster.get(&format!("{events}/a")).await.expect(200);
    for field in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime"] {
        assert_eq!(shown.get(field), Some(&Value::Null), "{field}: {shown}");
    }
    let mut other = event;
    other["metadata"]["name"] = "b".into();
    other["lastTimestamp"] = "2026-01-02T03:04:05Z".into();
    let made = cluster.post(core, &other).await.expect(201);
    assert_eq!(made["lastTimestamp"], "2026-01-02T03:04:05Z");
}
