//! Pods whose resources change while they run.

use serde_json::{Value, json};

use super::{bind, binding};
use crate::cluster::{Cluster, MERGE, PODS, pod};

/// A pod whose container may use this, and which runs if it has a status.
fn sized(name: &str, resources: &Value) -> Value {
    let mut sized = pod(name);
    sized["spec"]["containers"][0]["resources"] = resources.clone();
    sized
}

#[tokio::test]
async fn resize_changes_cpu_and_memory() {
    let cluster = Cluster::new().await;
    let small = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}});
    let created = cluster.post(PODS, &sized("a", &small)).await.expect(201);
    let path = format!("{PODS}/a/resize");
    assert_eq!(cluster.get(&path).await.expect(200), created);
    let container = created["spec"]["containers"][0]["name"].clone();
    let resize = |resources: Value| {
        json!({"metadata": {"labels": {"not": "here"}},
               "spec": {"activeDeadlineSeconds": 5, "containers": [{"name": container, "image": "other", "resources": resources}]}})
    };
    let strategic = "application/strategic-merge-patch+json";
    let larger = json!({"requests": {"cpu": "150m", "memory": "64Mi"}, "limits": {"cpu": "300m"}});
    let resized = cluster.patch(&path, strategic, &resize(larger.clone())).await.expect(200);
    assert_eq!(resized["spec"]["containers"][0]["resources"], larger);
    // Nothing else changes, and the pod has a new generation.
    let mut expect = created.clone();
    expect["spec"]["containers"][0]["resources"] = larger.clone();
    for (field, value) in
        [("generation", json!(2)), ("resourceVersion", resized["metadata"]["resourceVersion"].clone())]
    {
        expect["metadata"][field] = value;
    }
    expect["metadata"]["managedFields"] = resized["metadata"]["managedFields"].clone();
    assert_eq!(resized, expect);

    let wide = json!({"requests": {"cpu": "150m", "memory": "64Mi", "example.com/gpu": "1"}, "limits": {"cpu": "300m", "example.com/gpu": "1"}});
    for (resources, expect) in [
        (
            json!({"requests": {"memory": null}}),
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ),
        (
            json!({"limits": {"cpu": null}}),
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        ),
        (wide, "spec: Forbidden: only cpu and memory resources are mutable"),
        (
            json!({"requests": {"cpu": "300m"}, "limits": {"memory": "64Mi"}}),
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
        ),
        (
            json!({"requests": {"cpu": "301m"}}),
            "spec.containers[0].resources.requests: Invalid value: \"301m\": must be less than or equal to cpu limit of 300m",
        ),
    ] {
        let why = cluster.patch(&path, strategic, &resize(resources)).await.fails(422, "Invalid");
        assert!(why.contains(expect), "{why}\n{expect}");
    }
    for (containers, expect) in [
        (json!([]), "spec.containers: Forbidden: containers may not be added or removed on resize"),
        (
            json!([{"name": "b", "image": "i"}]),
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
        ),
    ] {
        let mut object = cluster.get(&path).await.expect(200);
        object["spec"]["containers"] = containers;
        let why = cluster.put(&path, &object).await.fails(422, "Invalid");
        assert!(why.contains(expect), "{why}\n{expect}");
    }

    // The pod itself still does not take them.
    let why = cluster.patch(&format!("{PODS}/a"), strategic, &resize(small)).await.fails(422, "Invalid");
    assert!(why.contains("pod updates may not change fields other than"), "{why}");
}

#[tokio::test]
async fn not_every_pod_can_be_resized() {
    let cluster = Cluster::new().await;
    let resize = |name: &str| {
        let (path, cluster) = (format!("{PODS}/{name}/resize"), &cluster);
        async move {
            let mut object = cluster.get(&path).await.expect(200);
            object["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
            cluster.put(&path, &object).await
        }
    };
    let small = json!({"requests": {"cpu": "1"}});
    cluster.post(PODS, &sized("old-node", &small)).await.expect(201);
    let container = cluster.get(&format!("{PODS}/old-node")).await.expect(200)["spec"]["containers"][0]["name"].clone();
    let running = |more: Value| {
        let mut status = json!({"name": container, "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"status": {"containerStatuses": [status]}})
    };
    let status = format!("{PODS}/old-node/status");
    cluster.patch(&status, MERGE, &running(json!({}))).await.expect(200);
    let why = resize("old-node").await.fails(422, "Invalid");
    assert!(why.contains("spec: Forbidden: Pod running on node without support for resize"), "{why}");
    cluster.patch(&status, MERGE, &running(json!({"resources": small}))).await.expect(200);
    resize("old-node").await.expect(200);

    let mut windows = sized("windows", &small);
    windows["spec"]["os"] = json!({"name": "windows"});
    cluster.post(PODS, &windows).await.expect(201);
    let why = resize("windows").await.fails(422, "Invalid");
    assert!(why.contains("Forbidden: windows pods cannot be resized"), "{why}");

    // A pod is resized to no more than its node has.
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
                      "status": {"allocatable": {"cpu": "1500m"}, "capacity": {"cpu": "1500m"}}});
    cluster.post("/api/v1/nodes", &node).await.expect(201);
    cluster.patch("/api/v1/nodes/n/status", MERGE, &node).await.expect(200);
    cluster.post(PODS, &sized("placed", &small)).await.expect(201);
    bind(&cluster, "placed", &binding("placed", "n")).await.expect(201);
    let refused = resize("placed").await;
    assert_eq!(refused.json()["details"]["causes"], json!([{"reason": "NodeCapacity"}]));
    let why = refused.fails(403, "Forbidden");
    let expect = "node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1500";
    assert!(why.contains(expect), "{why}");

    // Quotas and limits count what a pod is resized to.
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "5"}}});
    cluster.post("/api/v1/namespaces/default/resourcequotas", &quota).await.expect(201);
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
                       "spec": {"limits": [{"type": "Container", "max": {"cpu": "1500m"}, "default": {"cpu": "1500m"}}]}});
    cluster.post("/api/v1/namespaces/default/limitranges", &range).await.expect(201);
    cluster.post(PODS, &sized("limited", &json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}))).await.expect(201);
    let mut object = cluster.get(&format!("{PODS}/limited/resize")).await.expect(200);
    object["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}});
    let why = cluster.put(&format!("{PODS}/limited/resize"), &object).await.fails(403, "Forbidden");
    assert!(why.contains("maximum cpu usage per Container is 1500m, but limit is 2"), "{why}");
}
