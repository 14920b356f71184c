//! The subresources of pods that do more than store what is sent: binding, eviction, log.

mod eviction;
mod logs;
mod resize;

use serde_json::{Value, json};

use crate::cluster::{AS_TABLE, Answer, Cluster, MERGE, PODS, PROTOBUF, pod};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn binding(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
           "target": {"apiVersion": "v1", "kind": "Node", "name": node}})
}

async fn bind(cluster: &Cluster, name: &str, body: &Value) -> Answer {
    cluster.post(&format!("{PODS}/{name}/binding"), body).await
}

/// A pod with two containers, the second of them in this state.
async fn with_states(cluster: &Cluster, name: &str, state: &Value, last: &Value) {
    let mut object = pod(name);
    object["spec"]["containers"] = json!([{"name": "main", "image": "web:1"}, {"name": "side", "image": "log:1"}]);
    cluster.post(PODS, &object).await.expect(201);
    bind(cluster, name, &binding(name, "node-1")).await.expect(201);
    let running = json!({"running": {"startedAt": "2026-01-02T03:04:05Z"}});
    let statuses = json!([
        {"name": "main", "image": "web:1", "ready": true, "restartCount": 0, "state": running},
        {"name": "side", "image": "log:1", "ready": false, "restartCount": 1, "state": state, "lastState": last},
    ]);
    let status = json!({"status": {"phase": "Running", "containerStatuses": statuses}});
    cluster.patch(&format!("{PODS}/{name}/status"), MERGE, &status).await.expect(200);
}

#[tokio::test]
async fn binding_places_a_pod() {
    let cluster = Cluster::new().await;
    let made = cluster.post(PODS, &pod("a")).await.expect(201);
    let mut body = binding("a", "node-1");
    body["metadata"]["annotations"] = json!({"why": "room"});
    body["metadata"]["labels"] = json!({"zone": "z"});

    let dry = cluster.post(&format!("{PODS}/a/binding?dryRun=All"), &body).await.expect(201);
    assert_eq!(dry, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}));
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.expect(200), made);

    bind(&cluster, "a", &body).await.expect(201);
    let bound = cluster.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "node-1");
    assert_eq!(
        bound["status"]["conditions"],
        json!([{"type": "PodScheduled", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": "2026-01-02T03:04:05Z"}])
    );
    assert_eq!(bound["metadata"]["annotations"], json!({"why": "room"}));
    assert_eq!(bound["metadata"]["labels"], json!({"zone": "z"}));
    for unchanged in ["generation", "managedFields", "uid"] {
        assert_eq!(bound["metadata"][unchanged], made["metadata"][unchanged], "{unchanged}");
    }
}

#[tokio::test]
async fn binding_is_refused() {
    let cluster = Cluster::new().await;
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "wait"}]);
    let mut going = pod("going");
    going["metadata"]["finalizers"] = json!(["example.com/stay"]);
    for object in [pod("a"), pod("bound"), gated, going] {
        cluster.post(PODS, &object).await.expect(201);
    }
    bind(&cluster, "bound", &binding("bound", "node-1")).await.expect(201);
    cluster.delete(&format!("{PODS}/going")).await.expect(200);

    let with = |name: &str, path: &str, value: Value| {
        let mut body = binding(name, "n");
        *body.pointer_mut(path).unwrap_or(&mut Value::Null) = value.clone();
        if let Some(field) = path.strip_prefix("/metadata/") {
            body["metadata"][field] = value;
        }
        body
    };
    let conflict = |name: &str, why: &str| format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
    for (name, body, code, reason, expect) in [
        ("absent", binding("absent", "n"), 404, "NotFound", "pods \"absent\" not found".to_owned()),
        (
            "bound",
            binding("bound", "n"),
            409,
            "Conflict",
            conflict("bound", "pod bound is already assigned to node \"node-1\""),
        ),
        (
            "gated",
            binding("gated", "n"),
            409,
            "Conflict",
            conflict("gated", "pod gated has non-empty .spec.schedulingGates"),
        ),
        (
            "going",
            binding("going", "n"),
            409,
            "Conflict",
            conflict("going", "pod going is being deleted, cannot be assigned to a host"),
        ),
        ("a", binding("b", "n"), 400, "BadRequest", "name in URL does not match name in Binding object".into()),
        (
            "a",
            with("a", "/kind", json!("Pod")),
            400,
            "BadRequest",
            "the kind in the data (Pod) does not match the expected kind (Binding)".into(),
        ),
        (
            "a",
            with("a", "/apiVersion", json!("apps/v1")),
            400,
            "BadRequest",
            "the API version in the data (apps/v1) does not match the expected API version (v1)".into(),
        ),
        (
            "a",
            with("a", "/metadata/namespace", json!("other")),
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request".into(),
        ),
        (
            "a",
            with("a", "/metadata/uid", json!("not-this-one")),
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on pods \"a\": Precondition failed: UID in precondition: not-this-one, UID in object meta: {}",
                cluster.get(&format!("{PODS}/a")).await.json()["metadata"]["uid"].as_str().unwrap()
            ),
        ),
    ] {
        assert_eq!(bind(&cluster, name, &body).await.fails(code, reason), expect);
    }
    for (body, expect) in [
        (with("a", "/target/name", json!("")), "target.name: Required value"),
        (
            with("a", "/target/kind", json!("Pod")),
            "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"",
        ),
    ] {
        let status = bind(&cluster, "a", &body).await.expect(500);
        assert_eq!(status["message"], expect);
    }
    let unbound = cluster.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(unbound["spec"].get("nodeName"), None);
}

/// What is refused before a connection is upgraded.
#[tokio::test]
async fn connections_that_are_refused() {
    let cluster = Cluster::new().await;
    cluster.post(PODS, &pod("unplaced")).await.expect(201);
    with_states(&cluster, "a", &json!({"running": {}}), &json!({})).await;
    for (path, code, reason, expect) in [
        ("absent/exec?command=ls&stdout=true", 404, "NotFound", "pods \"absent\" not found"),
        ("absent/portforward", 404, "NotFound", "pods \"absent\" not found"),
        ("unplaced/exec?stdout=true", 400, "BadRequest", "pod unplaced does not have a host assigned"),
        ("unplaced/portforward", 400, "BadRequest", "pod unplaced does not have a host assigned"),
        (
            "a/exec?stdout=true",
            400,
            "BadRequest",
            "a container name must be specified for pod a, choose one of: [main side]",
        ),
        ("a/attach?container=x&stdout=true", 400, "BadRequest", "container x is not valid for pod a"),
        ("a/exec?container=main&stdout=true", 400, "BadRequest", "Upgrade request required"),
        ("a/portforward", 400, "BadRequest", "Upgrade request required"),
    ] {
        assert_eq!(cluster.get(&format!("{PODS}/{path}")).await.fails(code, reason), expect, "{path}");
        assert_eq!(cluster.post(&format!("{PODS}/{path}"), &json!({})).await.fails(code, reason), expect, "{path}");
    }
}

#[tokio::test]
async fn requests_are_passed_on_to_pods() {
    let cluster = Cluster::new().await;
    let mut object = pod("web");
    object["metadata"]["annotations"] =
        json!({"simulate.konverge.dev/http": r#"[{"path": "/a*", "status": 418, "body": "short and stout"}]"#});
    object["spec"]["containers"] = json!([{"name": "main", "image": "web:1", "ports": [{"containerPort": 8080}]}]);
    cluster.post(PODS, &object).await.expect(201);
    let refused = cluster.get(&format!("{PODS}/web/proxy/")).await.fails(400, "BadRequest");
    assert_eq!(refused, "address not allowed");
    let running = json!({"status": {"phase": "Running", "podIP": "10.244.0.7", "containerStatuses": [
        {"name": "main", "image": "web:1", "restartCount": 0, "state": {"running": {}}},
    ]}});
    cluster.patch(&format!("{PODS}/web/status"), MERGE, &running).await.expect(200);
    for (path, code, begins) in [
        ("web/proxy/a/b?c", 418, "short and stout"),
        ("web:8080/proxy/", 200, "konverge: pod default/web is simulated"),
        ("http:web:8080/proxy/x?y", 200, "konverge: pod default/web is simulated"),
        ("web/proxy", 301, ""),
    ] {
        let answer = cluster.get(&format!("{PODS}/{path}")).await;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.code == code && body.starts_with(begins), "{path}: {} {body}", answer.code);
    }
    let why = cluster.get(&format!("{PODS}/web:81/proxy/")).await.fails(503, "ServiceUnavailable");
    assert_eq!(why, "error trying to reach service: dial tcp 10.244.0.7:81: connect: connection refused");
    cluster.get(&format!("{PODS}/ftp:web:81/proxy/")).await.fails(400, "BadRequest");
    cluster.get("/api/v1/nodes/n/proxy/metrics").await.fails(404, "NotFound");
    cluster.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    let node = cluster.get("/api/v1/nodes/n/proxy/metrics").await.fails(503, "ServiceUnavailable");
    assert_eq!(node, "error trying to reach service: node n is simulated, and there is no kubelet that could answer");

    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let service =
        json!({"metadata": {"name": "shop"}, "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}});
    cluster.post(SERVICES, &service).await.expect(201);
    let endpoints = json!({"metadata": {"name": "shop"}, "subsets": [{
        "addresses": [{"ip": "10.244.0.7", "targetRef": {"kind": "Pod", "name": "web", "namespace": "default"}}],
        "ports": [{"name": "http", "port": 8080}],
    }]});
    cluster.get(&format!("{SERVICES}/shop:80/proxy/")).await.fails(404, "NotFound");
    cluster.post("/api/v1/namespaces/default/endpoints", &endpoints).await.expect(201);
    for name in ["shop:80", "shop:http"] {
        assert_eq!(cluster.get(&format!("{SERVICES}/{name}/proxy/a")).await.code, 418, "{name}");
    }
    let why = cluster.get(&format!("{SERVICES}/shop:81/proxy/")).await.fails(503, "ServiceUnavailable");
    assert_eq!(why, "no service port 81 found for service \"shop\"");
    let why = cluster.get(&format!("{SERVICES}/shop/proxy/")).await.fails(503, "ServiceUnavailable");
    assert_eq!(why, "no endpoints available for service \"shop\"");
}

#[tokio::test]
async fn ephemeral_containers_are_added() {
    let cluster = Cluster::new().await;
    cluster.post(PODS, &pod("a")).await.expect(201);
    let path = format!("{PODS}/a/ephemeralcontainers");
    let debug = json!({"name": "debug", "image": "busybox", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
        "terminationMessagePath": "/dev/termination-log"});
    let add = json!({"metadata": {"labels": {"not": "here"}}, "spec": {"activeDeadlineSeconds": 5, "ephemeralContainers": [debug]}});
    let added = cluster.patch(&path, MERGE, &add).await.expect(200);
    assert_eq!(added["spec"]["ephemeralContainers"][0]["name"], "debug");
    assert_eq!((&added["metadata"]["labels"], &added["spec"]["activeDeadlineSeconds"]), (&Value::Null, &Value::Null));
    assert_eq!(added["metadata"]["generation"], 2);
    assert_eq!(cluster.get(&path).await.expect(200), added);
    for (containers, expect) in [
        (json!([]), "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be removed"),
        (
            json!([{"name": "debug", "image": "other"}]),
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be changed",
        ),
        (
            json!([debug, {"name": "Bad Name", "image": "x"}]),
            "spec.ephemeralContainers[1].name: Invalid value: \"Bad Name\": a lowercase RFC 1123 label must consist of",
        ),
    ] {
        let change = json!({"spec": {"ephemeralContainers": containers}});
        let why = cluster.patch(&path, MERGE, &change).await.fails(422, "Invalid");
        assert!(why.contains(expect), "{why}");
    }
    // The pod itself does not take them.
    let why = cluster
        .patch(&format!("{PODS}/a"), MERGE, &json!({"spec": {"ephemeralContainers": []}}))
        .await
        .fails(422, "Invalid");
    assert!(why.contains("pod updates may not change fields other than"), "{why}");
}

#[tokio::test]
async fn app_armor_annotations_become_fields() {
    let cluster = Cluster::new().await;
    let key = "container.apparmor.security.beta.kubernetes.io/c";
    let warning =
        format!("metadata.annotations[{key}]: deprecated since v1.30; use the \\\"appArmorProfile\\\" field instead");
    let ours = |profile: &str| json!({"type": "Localhost", "localhostProfile": profile});
    for (name, annotation, of_pod, of_container, expect, warned) in [
        ("a", "unconfined", Value::Null, Value::Null, json!({"type": "Unconfined"}), true),
        ("b", "localhost/p", Value::Null, Value::Null, ours("p"), true),
        ("c", "runtime/default", json!({"type": "RuntimeDefault"}), Value::Null, Value::Null, false),
        ("d", "localhost/p", Value::Null, ours("p"), ours("p"), false),
        ("e", "localhost/ p", Value::Null, Value::Null, Value::Null, true),
    ] {
        let mut object = pod(name);
        object["metadata"]["annotations"] = json!({key: annotation});
        object["spec"]["containers"][0]["name"] = "c".into();
        for (place, profile) in [("/spec", of_pod), ("/spec/containers/0", of_container)] {
            if !profile.is_null() {
                object.pointer_mut(place).unwrap()["securityContext"] = json!({"appArmorProfile": profile});
            }
        }
        let answer = cluster.post(PODS, &object).await;
        let made = answer.expect(201);
        assert_eq!(made["spec"]["containers"][0]["securityContext"]["appArmorProfile"], expect, "{name}");
        let told = answer.warnings().iter().any(|told| *told == format!("\"{warning}\""));
        assert_eq!(told, warned, "{name}: {:?}", answer.warnings());
    }
}

#[tokio::test]
async fn annotations_and_fields_about_security_match() {
    let cluster = Cluster::new().await;
    let (armor, seccomp) =
        ("container.apparmor.security.beta.kubernetes.io/c", "container.seccomp.security.alpha.kubernetes.io/c");
    let file = |name: &str| json!({"type": "Localhost", "localhostProfile": name});
    for (annotation, value, field, profile, expect) in [
        (armor, "unconfined", "appArmorProfile", json!({"type": "RuntimeDefault"}), "type: Forbidden: apparmor type"),
        (armor, "localhost/a", "appArmorProfile", file("b"), "localhostProfile: Forbidden: apparmor profile"),
        (seccomp, "unconfined", "seccompProfile", file("b"), "type: Forbidden: seccomp type"),
        (seccomp, "localhost/a", "seccompProfile", file("b"), "localhostProfile: Forbidden: seccomp profile"),
        (seccomp, "docker/default", "seccompProfile", json!({"type": "RuntimeDefault"}), ""),
    ] {
        let mut object = pod("a");
        object["metadata"]["annotations"] = json!({annotation: value});
        object["spec"]["containers"][0]["name"] = "c".into();
        object["spec"]["containers"][0]["securityContext"] = json!({field: profile});
        let answer = cluster.post(&format!("{PODS}?dryRun=All"), &object).await;
        if expect.is_empty() {
            answer.expect(201);
            continue;
        }
        let message = answer.fails(422, "Invalid");
        assert!(message.contains(&format!("spec.containers[0].securityContext.{field}.{expect}")), "{message}");
        let template = json!({"metadata": {"name": "a"}, "template": object});
        let message = cluster.post("/api/v1/namespaces/default/podtemplates", &template).await.fails(422, "Invalid");
        assert!(
            message.contains(&format!("template.spec.containers[0].securityContext.{field}.{expect}")),
            "{message}"
        );
    }
}

#[tokio::test]
async fn the_oldest_way_to_bind_names_the_pod_in_the_body() {
    let cluster = Cluster::new().await;
    cluster.post(PODS, &pod("a")).await.expect(201);
    let bindings = "/api/v1/namespaces/default/bindings";
    assert_eq!(cluster.post(bindings, &binding("a", "n")).await.expect(201)["status"], "Success");
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.expect(200)["spec"]["nodeName"], "n");
    cluster.post(bindings, &binding("a", "m")).await.fails(409, "Conflict");
    cluster.post(bindings, &binding("b", "n")).await.fails(404, "NotFound");
    cluster.get(bindings).await.fails(405, "MethodNotAllowed");
    for nameless in [json!({}), json!({"metadata": null}), json!({"metadata": {"name": ""}})] {
        assert_eq!(cluster.post(bindings, &nameless).await.fails(400, "BadRequest"), "Name parameter required.");
    }
}

#[tokio::test]
async fn component_statuses_tell_of_the_store() {
    let cluster = Cluster::new().await;
    let path = "/api/v1/componentstatuses";
    let list = cluster.get(path).await;
    assert_eq!(list.warnings(), ["\"v1 ComponentStatus is deprecated in v1.19+\""]);
    let condition = json!({"type": "Healthy", "status": "True", "message": "ok"});
    assert_eq!(
        list.expect(200),
        json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {},
               "items": [{"metadata": {"name": "etcd-0"}, "conditions": [condition]}]})
    );
    assert_eq!(cluster.accept(path, PROTOBUF).await.expect(200)["items"][0]["conditions"], json!([condition]));
    assert_eq!(
        cluster.accept(path, AS_TABLE).await.expect(200)["rows"][0]["cells"],
        json!(["etcd-0", "Healthy", "ok", ""])
    );
    assert_eq!(cluster.get(&format!("{path}/etcd-0")).await.expect(200)["conditions"], json!([condition]));
    cluster.get(&format!("{path}/scheduler")).await.fails(404, "NotFound");
    cluster.delete(&format!("{path}/etcd-0")).await.fails(405, "MethodNotAllowed");
}

#[tokio::test]
async fn discovery_lists_them() {
    let cluster = Cluster::new().await;
    let list = cluster.get("/api/v1").await.expect(200);
    let verbs = |name: &str| {
        let rows = list["resources"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}"));
        (row["kind"].clone(), row["verbs"].clone())
    };
    assert_eq!(verbs("pods/binding"), (json!("Binding"), json!(["create"])));
    assert_eq!(verbs("pods/eviction"), (json!("Eviction"), json!(["create"])));
    assert_eq!(verbs("pods/log"), (json!("Pod"), json!(["get"])));
    assert_eq!(verbs("namespaces/finalize"), (json!("Namespace"), json!(["update"])));
    cluster.get(&format!("{PODS}/a/eviction")).await.fails(405, "MethodNotAllowed");
    cluster.post(&format!("{PODS}/a/log"), &json!({})).await.fails(405, "MethodNotAllowed");
    for (name, kind) in
        [("exec", "PodExecOptions"), ("attach", "PodAttachOptions"), ("portforward", "PodPortForwardOptions")]
    {
        assert_eq!(verbs(&format!("pods/{name}")), (json!(kind), json!(["create", "get"])));
        cluster.delete(&format!("{PODS}/a/{name}")).await.fails(405, "MethodNotAllowed");
    }
    for name in ["ephemeralcontainers", "resize"] {
        assert_eq!(verbs(&format!("pods/{name}")), (json!("Pod"), json!(["get", "patch", "update"])));
    }
    let proxy = json!(["create", "delete", "get", "patch", "update"]);
    assert_eq!(verbs("pods/proxy"), (json!("PodProxyOptions"), proxy.clone()));
    assert_eq!(verbs("services/proxy"), (json!("ServiceProxyOptions"), proxy));
}
