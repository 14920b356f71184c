//! Fields of features that are off by default are dropped, unless the object has them.

use serde_json::{Value, json};

use konverge_store::{Commit, Write};

use crate::cluster::{Cluster, DEPLOYMENTS, LEASES, MERGE, PODS, deployment, pod};

const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";

/// Fields that are set, where they are, and what is left of them.
fn pod_fields() -> Vec<(Value, &'static str, Value)> {
    let source = |source: Value| json!({"volumes": [{"name": "v", "projected": {"sources": [source]}}]});
    let container = |lifecycle: Value| json!({"os": {"name": "linux"}, "containers": [{"name": "main", "image": "i", "lifecycle": lifecycle}]});
    let sleep = json!({"preStop": {"sleep": {"seconds": 1}}});
    let mut both = sleep.clone();
    both["stopSignal"] = "SIGTERM".into();
    vec![
        (container(json!({"stopSignal": "SIGTERM"})), "/containers/0/lifecycle", Value::Null),
        (container(both), "/containers/0/lifecycle", sleep),
        (json!({"schedulingGroup": {"podGroupName": "g"}}), "/schedulingGroup", Value::Null),
        (
            source(json!({"podCertificate": {"signerName": "a/b", "keyType": "ED25519", "credentialBundlePath": "x"}})),
            "/volumes/0/projected/sources/0/podCertificate",
            Value::Null,
        ),
        (
            source(json!({"clusterTrustBundle": {"signerName": "a/b", "path": "p", "labelSelector": {}}})),
            "/volumes/0/projected/sources/0/clusterTrustBundle",
            Value::Null,
        ),
    ]
}

fn put(object: &mut Value, fields: Value) {
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
}

#[tokio::test]
async fn fields_of_pods_are_dropped() {
    let cluster = Cluster::new().await;
    for (fields, at, expect) in pod_fields() {
        let mut object = pod("a");
        put(&mut object["spec"], fields.clone());
        let made = cluster.post(&format!("{PODS}?dryRun=All"), &object).await;
        // A source of which nothing is left is refused.
        if at.contains("projected") {
            let spec = if made.code == 201 { made.json()["spec"].clone() } else { made.json()["message"].clone() };
            assert!(!spec.to_string().contains(at.rsplit('/').next().unwrap()), "{spec}");
        } else {
            let spec = made.expect(201)["spec"].clone();
            assert_eq!(spec.pointer(at).cloned().unwrap_or_default(), expect, "{fields}");
        }
        let mut object = deployment("a");
        put(&mut object["spec"]["template"]["spec"], fields.clone());
        let made = cluster.post(&format!("{DEPLOYMENTS}?dryRun=All"), &object).await;
        if !at.contains("projected") {
            let spec = made.expect(201)["spec"]["template"]["spec"].clone();
            assert_eq!(spec.pointer(at).cloned().unwrap_or_default(), expect, "{fields}");
        }
    }
}

#[tokio::test]
async fn fields_that_an_object_has_stay() {
    let cluster = Cluster::new().await;
    let lease = |name: &str, spec: Value| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec});
    let driver = |name: &str, spec: Value| json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name}, "spec": spec});
    let group = json!({"podGroupName": "g"});
    let mut gated = deployment("d.x");
    gated["spec"]["template"]["spec"]["schedulingGroup"] = group.clone();
    for (path, key, object, at, value) in [
        (
            LEASES,
            "/registry/coordination.k8s.io/leases/default/d.x",
            lease("d.x", json!({"preferredHolder": "x"})),
            "/spec/preferredHolder",
            json!("x"),
        ),
        (
            DRIVERS,
            "/registry/storage.k8s.io/csidrivers/d.x",
            driver("d.x", json!({"preventPodSchedulingIfMissing": true})),
            "/spec/preventPodSchedulingIfMissing",
            json!(true),
        ),
        (DEPLOYMENTS, "/registry/apps/deployments/default/d.x", gated, "/spec/template/spec/schedulingGroup", group),
    ] {
        let made = cluster.post(path, &object).await.expect(201);
        assert_eq!(made.pointer(at), None, "{path}");
        let patch =
            at.rsplit('/').filter(|name| !name.is_empty()).fold(value.clone(), |inner, name| json!({name: inner}));
        let patched = cluster.patch(&format!("{path}/d.x"), MERGE, &patch).await.expect(200);
        assert_eq!(patched.pointer(at), None, "{path}");
        // As if the feature had been on when the object was written.
        let mut stored = patched;
        stored["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let (parent, name) = at.rsplit_once('/').unwrap();
        stored.pointer_mut(parent).unwrap()[name] = value.clone();
        let writes = vec![Write::Put(key.into(), stored.to_string().into())];
        cluster.server.store().commit(Commit { conditions: Vec::new(), writes }).await.unwrap();
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        let patched = cluster.patch(&format!("{path}/d.x"), MERGE, &labelled).await.expect(200);
        assert_eq!(patched.pointer(at), Some(&value), "{path}");
    }
}
