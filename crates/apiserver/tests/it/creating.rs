//! Creating: what the server sets, what it refuses, generated names, and PUT that creates.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{
    CONFIG_MAPS, Cluster, DEPLOYMENTS, LEASES, NAMESPACES, PODS, WIDGETS, config_map, deployment, pod, widget,
};

#[tokio::test]
async fn what_only_the_server_sets() {
    let cluster = Cluster::with_widgets().await;
    for (path, object) in
        [(CONFIG_MAPS, config_map("a")), (PODS, pod("a")), (DEPLOYMENTS, deployment("a")), (WIDGETS, widget("a"))]
    {
        let mut sent = object.clone();
        for (field, value) in [
            ("uid", json!("mine")),
            ("creationTimestamp", json!("2001-01-01T00:00:00Z")),
            ("deletionTimestamp", json!("2001-01-01T00:00:00Z")),
            ("deletionGracePeriodSeconds", json!(5)),
            ("generation", json!(7)),
            ("selfLink", json!("/here")),
        ] {
            sent["metadata"][field] = value;
        }
        let made = cluster.post(path, &sent).await.expect(201);
        let metadata = &made["metadata"];
        let uid = metadata["uid"].as_str().unwrap();
        assert_eq!((uid.len(), uid.as_bytes()[14]), (36, b'4'), "{path}: a random uuid");
        assert_eq!(metadata["creationTimestamp"], "2026-01-02T03:04:05Z", "{path}");
        assert_eq!(metadata["namespace"], "default", "{path}");
        assert_eq!(metadata["resourceVersion"], cluster.revision().to_string(), "{path}");
        assert_eq!(metadata.get("deletionTimestamp"), None, "{path}");
        assert_eq!(metadata.get("deletionGracePeriodSeconds"), None, "{path}");
        assert_eq!(metadata.get("selfLink"), None, "{path}");
        let counted = path != CONFIG_MAPS;
        assert_eq!(metadata.get("generation"), counted.then_some(&json!(1)), "{path}");
        assert_eq!(
            cluster.get(&format!("{path}/a")).await.expect(200),
            made,
            "{path}: what was answered is what is there"
        );
    }
}

#[tokio::test]
async fn status_on_create() {
    let cluster = Cluster::with_widgets().await;
    for (path, mut object, expect) in [
        (PODS, pod("a"), json!({"phase": "Pending"})),
        (DEPLOYMENTS, deployment("a"), json!({})),
        (WIDGETS, widget("a"), Value::Null),
    ] {
        object["status"] = json!({"phase": "Running", "replicas": 5});
        let made = cluster.post(path, &object).await.expect(201);
        let status = made.get("status").cloned().unwrap_or_default();
        assert_eq!(status["phase"], expect["phase"], "{path}");
        assert_eq!(status.get("replicas"), None, "{path}");
    }
}

#[tokio::test]
async fn a_version_is_not_given_to_a_new_object() {
    let cluster = Cluster::new().await;
    let mut object = config_map("a");
    object["metadata"]["resourceVersion"] = "5".into();
    let answer = cluster.post(CONFIG_MAPS, &object).await;
    // The store of a cluster refuses it, and no 4xx is made of that.
    assert_eq!(answer.expect(500)["message"], "resourceVersion should not be set on objects to be created");
    // Only the store refuses it, and a dry run does not get that far.
    let answer = cluster.post(&format!("{CONFIG_MAPS}?dryRun=All"), &object).await;
    answer.expect(201);
}

#[tokio::test]
async fn names_the_server_makes_up() {
    let cluster = Cluster::new().await;
    let made = cluster.post(CONFIG_MAPS, &json!({"metadata": {"generateName": "job-"}})).await.expect(201);
    let name = made["metadata"]["name"].as_str().unwrap();
    let suffix = name.strip_prefix("job-").unwrap();
    assert!(suffix.len() == 5 && suffix.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte)), "{name}");
    assert_eq!(made["metadata"]["generateName"], "job-");

    let given = json!({"metadata": {"generateName": "job-", "name": "mine"}});
    assert_eq!(cluster.post(CONFIG_MAPS, &given).await.expect(201)["metadata"]["name"], "mine");
    let long = "x".repeat(100);
    let made = cluster.post(CONFIG_MAPS, &json!({"metadata": {"generateName": long}})).await.expect(201);
    assert_eq!(made["metadata"]["name"].as_str().unwrap().len(), 63);
    let wrong = cluster.post(CONFIG_MAPS, &json!({"metadata": {"generateName": "Über-"}})).await;
    let message = wrong.fails(422, "Invalid");
    assert!(message.contains("metadata.generateName: Invalid value: \"Über-\""), "{message}");
}

#[tokio::test]
async fn made_up_names_that_are_taken() {
    let cluster = Cluster::new().await;
    let object = json!({"metadata": {"generateName": "job-"}});
    // The first random number is for the request's audit id; then each attempt takes one for the name and one for the uid.
    cluster.world.load([1, 7, 1]);
    let first = cluster.post(CONFIG_MAPS, &object).await.expect(201);
    cluster.world.load([5, 7, 2, 7, 3, 8, 4]);
    let second = cluster.post(CONFIG_MAPS, &object).await.expect(201);
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"], "it was rolled again");

    cluster.world.load(std::iter::repeat_n(7, 17));
    let third = cluster.post(CONFIG_MAPS, &object).await;
    let name = first["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        third.fails(409, "AlreadyExists"),
        format!(
            "configmaps \"{name}\" already exists, the server was not able to generate a unique name for the object"
        )
    );
    assert_eq!(third.json()["details"]["retryAfterSeconds"], 1);
    assert_eq!(third.header("retry-after"), "1");
}

#[tokio::test]
async fn metadata_that_is_refused() {
    let cluster = Cluster::new().await;
    let long = |count: usize| "x".repeat(count);
    let cases = [
        (json!({"name": "Upper"}), "metadata.name"),
        (json!({"name": "a_b"}), "metadata.name"),
        (json!({"name": "-a"}), "metadata.name"),
        (json!({"name": "a."}), "metadata.name"),
        (json!({"name": long(254)}), "metadata.name"),
        (json!({"name": "a", "labels": {"k": "not ok"}}), "metadata.labels"),
        (json!({"name": "a", "labels": {"k": long(64)}}), "metadata.labels"),
        (json!({"name": "a", "labels": {"not ok": "v"}}), "metadata.labels"),
        (json!({"name": "a", "labels": {"a/b/c": "v"}}), "metadata.labels"),
        (json!({"name": "a", "labels": {"": "v"}}), "metadata.labels"),
        (json!({"name": "a", "annotations": {"not ok": "v"}}), "metadata.annotations"),
        (json!({"name": "a", "annotations": {"k": long(256 * 1024)}}), "metadata.annotations"),
        (json!({"name": "a", "finalizers": ["not ok"]}), "metadata.finalizers"),
        (json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}), "metadata.finalizers"),
        (
            json!({"name": "a", "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u", "apiVersion": ""}]}),
            "metadata.ownerReferences.apiVersion",
        ),
        (
            json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]}),
            "metadata.ownerReferences.uid",
        ),
        (
            json!({"name": "a", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true},
                {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "2", "controller": true},
            ]}),
            "metadata.ownerReferences",
        ),
        (
            json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]}),
            "metadata.ownerReferences",
        ),
    ];
    let before = cluster.revision();
    for (metadata, field) in cases {
        let answer = cluster.post(CONFIG_MAPS, &json!({"metadata": metadata})).await;
        answer.fails(422, "Invalid");
        let causes = answer.json()["details"]["causes"].clone();
        let here = |cause: &Value| cause["field"].as_str().unwrap().starts_with(field);
        assert!(causes.as_array().unwrap().iter().all(here), "{metadata}: {causes}");
    }
    assert_eq!(cluster.revision(), before);
    for metadata in [
        json!({"name": "a.b-c.0"}),
        json!({"name": long(253)}),
        json!({"name": "b", "labels": {"example.com/k": "", "k": long(63)}}),
        json!({"name": "c", "annotations": {"Example.Com/K": "any text\n"}}),
        json!({"name": "d", "finalizers": ["example.com/f", "orphan"]}),
    ] {
        cluster.post(CONFIG_MAPS, &json!({"metadata": metadata})).await.expect(201);
    }
}

#[tokio::test]
async fn kinds_have_rules_for_names() {
    let cluster = Cluster::new().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    for (path, name, code) in [
        (NAMESPACES, "a.b", 422),
        (NAMESPACES, "a-b", 201),
        (CONFIG_MAPS, "a.b", 201),
        (roles, "System:Any thing", 201),
        (roles, "a/b", 422),
        (roles, "..", 422),
        (roles, "a%b", 422),
    ] {
        let answer = cluster.post(path, &json!({"metadata": {"name": name}})).await;
        assert_eq!(answer.code, code, "{path} {name}: {}", String::from_utf8_lossy(&answer.body));
    }
    let found = cluster.get(&format!("{roles}/System:Any%20thing")).await.expect(200);
    assert_eq!(found["metadata"]["name"], "System:Any thing");
}

#[tokio::test]
async fn put_creates_some_kinds() {
    let cluster = Cluster::with_widgets().await;
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    let made = cluster.put(&format!("{LEASES}/l"), &lease).await.expect(201);
    assert_eq!(made["spec"]["holderIdentity"], "a");
    let again = cluster.put(&format!("{LEASES}/l"), &made).await;
    assert_eq!(again.expect(200), made, "now it is there");
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r";
    cluster.put(roles, &json!({"metadata": {"name": "r"}})).await.expect(201);
    for (path, object) in [(CONFIG_MAPS, config_map("x")), (DEPLOYMENTS, deployment("x")), (WIDGETS, widget("x"))] {
        cluster.put(&format!("{path}/x"), &object).await.fails(404, "NotFound");
    }
    // A PUT with a uid means an existing object, so it creates none.
    let meant = json!({"metadata": {"name": "m", "uid": "5a1c7f0e-0000-4000-8000-000000000000"}});
    cluster.put(&format!("{LEASES}/m"), &meant).await.fails(409, "Conflict");
    let nowhere = "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases/l";
    assert_eq!(cluster.put(nowhere, &lease).await.fails(404, "NotFound"), "namespaces \"nowhere\" not found");
}

#[tokio::test]
async fn kinds_and_versions_may_be_left_out_of_built_in_objects_only() {
    let cluster = Cluster::with_widgets().await;
    let made = cluster.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await.expect(201);
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let answer = cluster.post(WIDGETS, &json!({"metadata": {"name": "a"}})).await;
    let message = answer.fails(400, "BadRequest");
    assert!(message.contains("Object 'Kind' is missing") || message.contains("'apiVersion' is missing"), "{message}");
    for (path, object) in [
        (CONFIG_MAPS, json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "b"}})),
        (CONFIG_MAPS, json!({"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "b"}})),
        (WIDGETS, json!({"kind": "Widget", "apiVersion": "example.com/v9", "metadata": {"name": "b"}})),
        (WIDGETS, json!({"kind": "Gadget", "apiVersion": "example.com/v1", "metadata": {"name": "b"}})),
    ] {
        cluster.post(path, &object).await.fails(400, "BadRequest");
    }
}

#[tokio::test]
async fn a_namespace_on_what_has_none_is_dropped() {
    let cluster = Cluster::new().await;
    let made =
        cluster.post(NAMESPACES, &json!({"metadata": {"name": "a", "namespace": "elsewhere"}})).await.expect(201);
    assert_eq!(made["metadata"].get("namespace"), None);
}

#[tokio::test]
async fn time_is_what_the_environment_says() {
    let cluster = Cluster::new().await;
    cluster.world.pass(Duration::from_millis(3_999));
    let made = cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    assert_eq!(made["metadata"]["creationTimestamp"], "2026-01-02T03:04:08Z");
    assert_eq!(made["metadata"]["managedFields"][0]["time"], "2026-01-02T03:04:08Z");
}

#[tokio::test]
async fn managers_have_names() {
    let cluster = Cluster::new().await;
    for (name, query, agent, expect) in [
        ("a", "?fieldManager=me", "kubectl/v1", "me"),
        ("b", "", "kubectl/v1 (linux)", "kubectl"),
        ("c", "", "", "unknown"),
    ] {
        let headers = [("content-type", "application/json"), ("user-agent", agent)];
        let path = format!("{CONFIG_MAPS}{query}");
        let made = cluster.ask("POST", &path, &headers, config_map(name).to_string()).await.expect(201);
        let managed = &made["metadata"]["managedFields"][0];
        assert_eq!((&managed["manager"], &managed["operation"]), (&json!(expect), &json!("Update")));
        assert_eq!(managed["fieldsV1"], json!({"f:data": {".": {}, "f:k": {}}}));
    }
    for query in ["?fieldManager=a%0Ab".to_owned(), format!("?fieldManager={}", "m".repeat(129))] {
        cluster.post(&format!("{CONFIG_MAPS}{query}"), &config_map("x")).await.fails(422, "Invalid");
    }
}
