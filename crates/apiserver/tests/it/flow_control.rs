//! FlowSchemas and PriorityLevelConfigurations: those that every cluster has, and what the server says of their references.

use serde_json::{Value, json};

use konverge_apiserver::Storage;

use crate::cluster::{AS_TABLE, Cluster, MERGE, names};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

/// Waits until an object is as wanted: the server's own tasks write a moment after the request.
async fn settled(cluster: &Cluster, kind: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut lines = cluster.watch(&format!("{kind}?watch=true&fieldSelector=metadata.name%3D{name}")).await;
    loop {
        let event = lines.next().await;
        if wanted(&event["object"]) {
            return event["object"].clone();
        }
    }
}

fn dangling(schema: &Value) -> (&str, &str, &str) {
    let condition = &schema["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    assert!(condition.is_null() || condition["type"] == "Dangling", "{schema}");
    (text("status"), text("reason"), text("message"))
}

#[tokio::test]
async fn every_cluster_has_some() {
    let cluster = Cluster::new().await;
    let listed = cluster.get(SCHEMAS).await.expect(200);
    assert_eq!(
        names(&listed),
        [
            "catch-all",
            "exempt",
            "global-default",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-system-service-accounts",
            "probes",
            "service-accounts",
            "system-leader-election",
            "system-node-high",
            "system-nodes"
        ]
    );
    let levels = cluster.get(LEVELS).await.expect(200);
    assert_eq!(
        names(&levels),
        [
            "catch-all",
            "exempt",
            "global-default",
            "leader-election",
            "node-high",
            "system",
            "workload-high",
            "workload-low"
        ]
    );
    let leases = cluster.get(&format!("{SCHEMAS}/system-leader-election")).await.expect(200);
    let rule = json!({
        "subjects": [
            {"kind": "User", "user": {"name": "system:kube-controller-manager"}},
            {"kind": "User", "user": {"name": "system:kube-scheduler"}},
            {"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}},
        ],
        "resourceRules": [{
            "verbs": ["get", "create", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "namespaces": ["*"],
        }],
    });
    assert_eq!(
        leases["spec"],
        json!({
            "priorityLevelConfiguration": {"name": "leader-election"}, "matchingPrecedence": 100,
            "distinguisherMethod": {"type": "ByUser"}, "rules": [rule],
        })
    );
    assert_eq!(leases["metadata"]["generation"], 1);
    assert_eq!(leases["metadata"]["annotations"], json!({"apf.kubernetes.io/autoupdate-spec": "true"}));
    let managers: Vec<_> = leases["metadata"]["managedFields"].as_array().unwrap().iter().collect();
    let told = |at: usize| (&managers[at]["manager"], &managers[at]["operation"], &managers[at]["subresource"]);
    let name = |role: &str| json!(format!("api-priority-and-fairness-config-{role}-v1"));
    let mut expect =
        [(name("producer"), json!("Update"), Value::Null), (name("consumer"), json!("Apply"), json!("status"))];
    expect.sort_by_key(|(_, operation, _)| operation.to_string());
    for (at, (manager, operation, subresource)) in expect.iter().enumerate() {
        assert_eq!(told(at), (manager, operation, subresource));
    }
    let system = cluster.get(&format!("{LEVELS}/system")).await.expect(200);
    let queuing = json!({"queues": 64, "handSize": 6, "queueLengthLimit": 50});
    assert_eq!(
        system["spec"],
        json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": 30, "lendablePercent": 33,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        }})
    );
    // What the validation of users' objects says of them: nothing.
    for (path, listed) in [(SCHEMAS, &listed), (LEVELS, &levels)] {
        for object in listed["items"].as_array().unwrap() {
            let name = object["metadata"]["name"].as_str().unwrap();
            let kept = cluster.put(&format!("{path}/{name}?dryRun=All"), object).await.expect(200);
            assert_eq!(kept["spec"], object["spec"], "{path}/{name}: nothing is defaulted that was not there");
        }
    }
    let table = cluster.accept(SCHEMAS, AS_TABLE).await.expect(200);
    let missing =
        table["columnDefinitions"].as_array().unwrap().iter().position(|column| column["name"] == "MissingPL");
    let mut shown = Vec::new();
    for row in table["rows"].as_array().unwrap() {
        assert_eq!(row["cells"][missing.unwrap()], "False", "{row}");
        shown.push(row["cells"][0].as_str().unwrap());
    }
    assert_eq!((shown[0], shown[1], shown.last()), ("exempt", "probes", Some(&"catch-all")), "as requests meet them");
}

#[tokio::test]
async fn what_was_deleted_or_changed_comes_back_at_the_next_start() {
    let home = tempfile::tempdir().unwrap();
    let storage = || Storage::Disk(home.path().join("data"));
    let world = Cluster::new().await.world;
    let cluster = Cluster::open(world.clone(), storage()).await;
    cluster.delete(&format!("{SCHEMAS}/probes")).await.expect(200);
    let changed = json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}});
    cluster.patch(&format!("{LEVELS}/catch-all"), MERGE, &changed).await.fails(422, "Invalid");
    cluster.patch(&format!("{LEVELS}/system"), MERGE, &changed).await.expect(200);
    let kept = json!({
        "metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"limited": {"nominalConcurrencyShares": 8}},
    });
    cluster.patch(&format!("{LEVELS}/workload-low"), MERGE, &kept).await.expect(200);
    cluster.stop().await;

    let cluster = Cluster::open(world, storage()).await;
    cluster.get(&format!("{SCHEMAS}/probes")).await.expect(200);
    for (name, shares) in [("catch-all", 5), ("system", 30), ("workload-low", 8)] {
        settled(&cluster, LEVELS, name, |level| level["spec"]["limited"]["nominalConcurrencyShares"] == shares).await;
    }
}

#[tokio::test]
async fn a_schema_says_whether_its_level_exists() {
    let cluster = Cluster::new().await;
    let schema = json!({
        "metadata": {"name": "mine"},
        "spec": {"priorityLevelConfiguration": {"name": "gold"}, "matchingPrecedence": 500, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "alice"}}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
        }]},
    });
    cluster.post(SCHEMAS, &schema).await.expect(201);
    let reference = "This FlowSchema references the PriorityLevelConfiguration object named \"gold\"";
    let found = settled(&cluster, SCHEMAS, "mine", |schema| !dangling(schema).0.is_empty()).await;
    assert_eq!(dangling(&found), ("True", "NotFound", &*format!("{reference} but there is no such object")));
    let level = json!({"metadata": {"name": "gold"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"},
    }}});
    cluster.post(LEVELS, &level).await.expect(201);
    let found = settled(&cluster, SCHEMAS, "mine", |schema| dangling(schema).0 == "False").await;
    assert_eq!(dangling(&found), ("False", "Found", &*format!("{reference} and it exists")));
    cluster.delete(&format!("{LEVELS}/gold")).await.expect(200);
    settled(&cluster, SCHEMAS, "mine", |schema| dangling(schema).0 == "True").await;
}
