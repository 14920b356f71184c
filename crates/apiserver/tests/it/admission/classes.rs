//! Classes and finalizers: what objects of storage, ingresses, nodes and pods get.

use serde_json::{Value, json};

use super::{CLAIMS, pod_with};
use crate::cluster::{Cluster, MERGE, PODS};

const STORAGE: &str = "/apis/storage.k8s.io/v1/storageclasses";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const INGRESS_CLASSES: &str = "/apis/networking.k8s.io/v1/ingressclasses";
const RUNTIMES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

fn claim(name: &str, spec: Value) -> Value {
    let mut claim = json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    claim["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    claim
}

#[tokio::test]
async fn a_claim_gets_the_newest_default_class() {
    let cluster = Cluster::new().await;
    let class = |name: &str, annotation: &str| json!({"metadata": {"name": name, "annotations": {annotation: "true"}}, "provisioner": "x"});
    let of = async |name: &str, spec: Value| {
        cluster.post(CLAIMS, &claim(name, spec)).await.expect(201)["spec"]["storageClassName"].clone()
    };
    assert_eq!(of("none", json!({})).await, json!(null));
    cluster.post(STORAGE, &class("old", "storageclass.beta.kubernetes.io/is-default-class")).await.expect(201);
    assert_eq!(of("old", json!({})).await, json!("old"));
    cluster.world.pass(std::time::Duration::from_secs(5));
    for name in ["b", "a"] {
        cluster.post(STORAGE, &class(name, "storageclass.kubernetes.io/is-default-class")).await.expect(201);
    }
    assert_eq!(of("new", json!({})).await, json!("a"), "of the same age, the first by name");
    assert_eq!(of("empty", json!({"storageClassName": ""})).await, json!(""));
    assert_eq!(of("own", json!({"storageClassName": "b"})).await, json!("b"));
}

#[tokio::test]
async fn storage_in_use_is_protected() {
    let cluster = super::cluster(&[]).await;
    let made = cluster.post(CLAIMS, &claim("c", json!({}))).await.expect(201);
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let volume = json!({"metadata": {"name": "v", "finalizers": ["a/b"]}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
    }});
    let made = cluster.post("/api/v1/persistentvolumes", &volume).await.expect(201);
    assert_eq!(made["metadata"]["finalizers"], json!(["a/b", "kubernetes.io/pv-protection"]));
}

#[tokio::test]
async fn a_claim_grows_only_where_that_is_allowed() {
    let cluster = Cluster::new().await;
    let class = |name: &str, grows: bool| json!({"metadata": {"name": name}, "provisioner": "x", "allowVolumeExpansion": grows});
    for (name, grows) in [("fixed", false), ("growing", true)] {
        cluster.post(STORAGE, &class(name, grows)).await.expect(201);
        cluster.post(CLAIMS, &claim(name, json!({"storageClassName": name}))).await.expect(201);
    }
    let grow = async |name: &str| {
        let patch = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        cluster.patch(&format!("{CLAIMS}/{name}"), MERGE, &patch).await
    };
    for name in ["fixed", "growing"] {
        let bound = json!({"status": {"phase": "Bound"}});
        cluster.patch(&format!("{CLAIMS}/{name}/status"), MERGE, &bound).await.expect(200);
    }
    assert_eq!(
        grow("fixed").await.fails(403, "Forbidden"),
        "persistentvolumeclaims \"fixed\" is forbidden: only dynamically provisioned pvc can be resized and the \
         storageclass that provisions the pvc must support resize"
    );
    grow("growing").await.expect(200);
}

#[tokio::test]
async fn an_ingress_gets_the_default_class() {
    let cluster = Cluster::new().await;
    let backend = json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}});
    let ingress = |name: &str| json!({"metadata": {"name": name}, "spec": backend});
    let made = cluster.post(INGRESSES, &ingress("before")).await.expect(201);
    assert!(made["spec"].get("ingressClassName").is_none());
    let annotations = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
    let class = json!({"metadata": {"name": "front", "annotations": annotations}, "spec": {"controller": "x.io/y"}});
    cluster.post(INGRESS_CLASSES, &class).await.expect(201);
    let made = cluster.post(INGRESSES, &ingress("after")).await.expect(201);
    assert_eq!(made["spec"]["ingressClassName"], "front");
    let mut annotated = ingress("annotated");
    annotated["metadata"]["annotations"] = json!({"kubernetes.io/ingress.class": "mine"});
    let made = cluster.post(INGRESSES, &annotated).await.expect(201);
    assert!(made["spec"].get("ingressClassName").is_none());
}

#[tokio::test]
async fn a_new_node_is_tainted() {
    let cluster = Cluster::new().await;
    let made = cluster.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    assert_eq!(made["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
}

#[tokio::test]
async fn a_runtime_class_has_overhead_and_scheduling() {
    let cluster = Cluster::new().await;
    let class = json!({
        "metadata": {"name": "heavy"}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kind": "heavy"}, "tolerations": [{"key": "heavy", "operator": "Exists"}]},
    });
    cluster.post(RUNTIMES, &class).await.expect(201);
    let of = |spec: Value| pod_with("p", spec);
    let heavy = |more: Value| {
        let mut spec = json!({"runtimeClassName": "heavy"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let made = cluster.post(&format!("{PODS}?dryRun=All"), &of(heavy(json!({})))).await.expect(201);
    assert_eq!(made["spec"]["overhead"], json!({"cpu": "250m"}));
    assert_eq!(made["spec"]["nodeSelector"], json!({"kind": "heavy"}));
    let tolerations: Vec<&str> =
        made["spec"]["tolerations"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert!(tolerations.contains(&"heavy"), "{tolerations:?}");
    for (spec, expect) in [
        (json!({"runtimeClassName": "none"}), "pod rejected: RuntimeClass \"none\" not found"),
        (
            heavy(json!({"overhead": {"cpu": "1"}})),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            heavy(json!({"nodeSelector": {"kind": "light"}})),
            "conflict: runtimeClass.scheduling.nodeSelector[kind] = heavy; pod.spec.nodeSelector[kind] = light",
        ),
    ] {
        let refused = cluster.post(PODS, &of(spec)).await.fails(403, "Forbidden");
        assert_eq!(refused, format!("pods \"p\" is forbidden: {expect}"));
    }
    cluster.post(PODS, &of(heavy(json!({"overhead": {"cpu": "0.25"}})))).await.expect(201);
}

#[tokio::test]
async fn the_classes_of_system_pods_stay() {
    let cluster = Cluster::new().await;
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    cluster.post(CLASSES, &json!({"metadata": {"name": "own"}, "value": 1})).await.expect(201);
    for (name, stays) in [("system-cluster-critical", true), ("system-node-critical", true), ("own", false)] {
        let path = format!("{CLASSES}/{name}");
        let deleted = cluster.delete(&path).await;
        if stays {
            let why = "this is a system priority class and cannot be deleted";
            let expect = format!("priorityclasses.scheduling.k8s.io {name:?} is forbidden: {why}");
            assert_eq!(deleted.fails(403, "Forbidden"), expect);
        } else {
            deleted.expect(200);
        }
        assert_eq!(cluster.get(&path).await.code == 200, stays, "{name}");
    }
}
