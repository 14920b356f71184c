//! The subresources of pods that do more than store what is sent: binding, eviction, log.

use serde_json::{Value, json};

use crate::cluster::{AS_TABLE, Answer, Cluster, MERGE, PODS, PROTOBUF, pod, version};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn binding(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
           "target": {"apiVersion": "v1", "kind": "Node", "name": node}})
}

async fn bind(cluster: &Cluster, name: &str, body: &Value) -> Answer {
    cluster.post(&format!("{PODS}/{name}/binding"), body).await
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

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}})
}

async fn evict(cluster: &Cluster, name: &str, body: &Value) -> Answer {
    cluster.post(&format!("{PODS}/{name}/eviction"), body).await
}

/// A pod on a node, in this phase, ready or not, that the budget selects.
async fn run(cluster: &Cluster, name: &str, phase: &str, ready: &str) -> Value {
    let mut object = pod(name);
    object["metadata"]["labels"] = json!({"app": "web"});
    cluster.post(PODS, &object).await.expect(201);
    bind(cluster, name, &binding(name, "node-1")).await.expect(201);
    let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
    cluster.patch(&format!("{PODS}/{name}/status"), MERGE, &status).await.expect(200)
}

/// A budget in this state.
async fn budget(cluster: &Cluster, name: &str, spec: &Value, status: &Value) {
    let mut wanted = json!({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1});
    wanted.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({"metadata": {"name": name}, "spec": wanted});
    cluster.post(BUDGETS, &object).await.expect(201);
    cluster.patch(&format!("{BUDGETS}/{name}/status"), MERGE, &json!({"status": status})).await.expect(200);
}

#[tokio::test]
async fn eviction_takes_from_the_budget() {
    let cluster = Cluster::new().await;
    run(&cluster, "a", "Running", "True").await;
    run(&cluster, "b", "Running", "True").await;
    let open = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1});
    budget(&cluster, "guard", &json!({}), &open).await;
    let path = format!("{BUDGETS}/guard");

    let before = (cluster.get(&path).await.expect(200), cluster.get(&format!("{PODS}/a")).await.expect(200));
    cluster.post(&format!("{PODS}/a/eviction?dryRun=All"), &eviction("a")).await.expect(201);
    let mut dry = eviction("a");
    dry["deleteOptions"] = json!({"dryRun": ["All"]});
    evict(&cluster, "a", &dry).await.expect(201);
    let after = (cluster.get(&path).await.expect(200), cluster.get(&format!("{PODS}/a")).await.expect(200));
    assert_eq!(before, after);

    let done = evict(&cluster, "a", &eviction("a")).await.expect(201);
    assert_eq!(done, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}));
    let going = cluster.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let target = going["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&target["type"], &target["reason"]), (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI")));
    let status = cluster.get(&path).await.expect(200)["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert_eq!(status["disruptedPods"], json!({"a": "2026-01-02T03:04:05Z"}));
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");

    let refused = evict(&cluster, "b", &eviction("b")).await;
    let message = refused.fails(429, "TooManyRequests");
    assert_eq!(message, "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(
        refused.json()["details"],
        json!({"causes": [{
            "reason": "DisruptionBudget",
            "message": "The disruption budget guard does not allow evicting pods currently",
        }]})
    );
    let stays = cluster.get(&format!("{PODS}/b")).await.expect(200);
    assert_eq!(stays["metadata"].get("deletionTimestamp"), None);
}

#[tokio::test]
async fn eviction_and_budgets() {
    let stale = json!({"observedGeneration": 0, "disruptionsAllowed": 1});
    let shut = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1});
    let short = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1});
    let always = json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
    let (plain, elsewhere) = (json!({}), json!({"selector": {"matchLabels": {"app": "other"}}}));
    let nothing = json!({"selector": null});
    for (what, phase, ready, spec, status, code) in [
        ("not up to date", "Running", "True", &plain, &stale, 429),
        ("used up", "Running", "True", &plain, &shut, 429),
        ("of other pods", "Running", "True", &elsewhere, &shut, 201),
        ("of no pods", "Running", "True", &nothing, &shut, 201),
        ("unhealthy, enough others", "Running", "False", &plain, &shut, 201),
        ("unhealthy, not enough others", "Running", "False", &plain, &short, 429),
        ("unhealthy, always allowed", "Running", "False", &always, &short, 201),
        ("ended", "Succeeded", "False", &plain, &short, 201),
        ("failed", "Failed", "False", &plain, &short, 201),
        ("not begun", "Pending", "False", &plain, &short, 201),
    ] {
        let cluster = Cluster::new().await;
        run(&cluster, "a", phase, ready).await;
        budget(&cluster, "guard", spec, status).await;
        let answer = evict(&cluster, "a", &eviction("a")).await;
        assert_eq!(answer.code, code, "{what}: {}", answer.json());
        let left = cluster.get(&format!("{PODS}/a")).await;
        let goes = left.code == 404 || left.json()["metadata"].get("deletionTimestamp").is_some();
        assert_eq!(goes, code == 201, "{what}");
        let retry = if what == "not up to date" { "10" } else { "" };
        assert_eq!(answer.header("retry-after"), retry, "{what}");
    }
}

#[tokio::test]
async fn eviction_is_refused() {
    let cluster = Cluster::new().await;
    let running = run(&cluster, "a", "Running", "True").await;
    let old = version(&running) - 1;
    let with = |options: Value| {
        let mut body = eviction("a");
        body["deleteOptions"] = options;
        body
    };
    for (name, body, code, reason) in [
        ("absent", eviction("absent"), 404, "NotFound"),
        ("a", eviction("b"), 400, "BadRequest"),
        ("a", json!({"kind": "Binding", "metadata": {"name": "a"}}), 400, "BadRequest"),
        ("a", json!({"apiVersion": "v1", "metadata": {"name": "a"}}), 400, "BadRequest"),
        ("a", with(json!({"preconditions": {"uid": "x"}})), 409, "Conflict"),
        ("a", with(json!({"preconditions": {"resourceVersion": old.to_string()}})), 409, "Conflict"),
        ("a", with(json!({"propagationPolicy": "Never"})), 422, "Invalid"),
    ] {
        evict(&cluster, name, &body).await.fails(code, reason);
    }
    for name in ["one", "two"] {
        budget(&cluster, name, &json!({}), &json!({"observedGeneration": 1, "disruptionsAllowed": 1})).await;
    }
    let status = evict(&cluster, "a", &eviction("a")).await.expect(500);
    assert_eq!(
        status["message"],
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.expect(200), running);

    // The version and the grace that were asked for count.
    cluster.delete(&format!("{BUDGETS}/two")).await.expect(200);
    let exact = json!({"gracePeriodSeconds": 5, "preconditions": {"resourceVersion": version(&running).to_string()}});
    evict(&cluster, "a", &with(exact)).await.expect(201);
    let going = cluster.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 5);
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
async fn logs_say_that_they_are_simulated() {
    let cluster = Cluster::new().await;
    let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
    with_states(&cluster, "a", &json!({"waiting": {"reason": "CrashLoopBackOff"}}), &ended).await;
    let simulated =
        "konverge: pod default/a is simulated: none of its containers runs, so there is no output of theirs to show\n";
    let main = "konverge: pod is Running on node node-1\n\
                konverge: container main has image web:1\n\
                konverge: container main runs since 2026-01-02T03:04:05Z, ready, 0 restarts\n";
    for (query, expect) in [
        ("container=main", format!("{simulated}{main}")),
        ("container=main&follow=false&sinceSeconds=3", format!("{simulated}{main}")),
        ("container=main&tailLines=3", main.to_owned()),
        ("container=main&tailLines=0", String::new()),
        ("container=main&limitBytes=9&follow=true", "konverge:".to_owned()),
        (
            "container=main&tailLines=1&timestamps=true",
            format!("2026-01-02T03:04:05.000000000Z {}\n", main.lines().last().unwrap()),
        ),
        ("container=side&tailLines=1", "konverge: container side waits: CrashLoopBackOff, 1 restarts\n".to_owned()),
        (
            "container=side&tailLines=1&previous=true",
            "konverge: before, it ended with exit code 3 (Error)\n".to_owned(),
        ),
    ] {
        let answer = cluster.get(&format!("{PODS}/a/log?{query}")).await;
        assert_eq!((answer.code, answer.header("content-type")), (200, "text/plain"), "{query}");
        assert_eq!(String::from_utf8_lossy(&answer.body), expect, "{query}");
    }
}

#[tokio::test]
async fn logs_that_are_not_there() {
    let cluster = Cluster::new().await;
    cluster.post(PODS, &pod("unplaced")).await.expect(201);
    cluster.post(PODS, &pod("placed")).await.expect(201);
    bind(&cluster, "placed", &binding("placed", "node-1")).await.expect(201);
    with_states(&cluster, "a", &json!({"waiting": {"reason": "ImagePullBackOff"}}), &json!({})).await;
    let empty = cluster.get(&format!("{PODS}/unplaced/log")).await;
    assert_eq!((empty.code, empty.body.len()), (204, 0));
    for (path, code, reason, expect) in [
        ("absent/log", 404, "NotFound", "pods \"absent\" not found"),
        ("unplaced/log?container=x", 400, "BadRequest", "container x is not valid for pod unplaced"),
        ("a/log", 400, "BadRequest", "a container name must be specified for pod a, choose one of: [main side]"),
        ("placed/log", 400, "BadRequest", "container \"main\" in pod \"placed\" is not available"),
        (
            "a/log?container=side",
            400,
            "BadRequest",
            "container \"side\" in pod \"a\" is waiting to start: trying and failing to pull image",
        ),
        (
            "a/log?container=main&previous=true",
            400,
            "BadRequest",
            "previous terminated container \"main\" in pod \"a\" not found",
        ),
        (
            "a/log?container=main&tailLines=-1",
            422,
            "Invalid",
            "PodLogOptions \"a\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
    ] {
        assert_eq!(cluster.get(&format!("{PODS}/{path}")).await.fails(code, reason), expect);
    }
}

#[tokio::test]
async fn a_followed_log_ends_with_its_container() {
    let cluster = Cluster::new().await;
    with_states(&cluster, "a", &json!({"running": {"startedAt": "2026-01-02T03:04:05Z"}}), &json!({})).await;
    let path = format!("{PODS}/a/log?container=side&follow=true&tailLines=1");
    let (followed, ()) = tokio::join!(cluster.get(&path), async {
        // The log was asked for before, for both are one task and it was first.
        let status = json!({"status": {"containerStatuses": [
            {"name": "side", "image": "log:1", "restartCount": 1, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        ]}});
        cluster
            .patch(&format!("{PODS}/a/status"), MERGE, &json!({"metadata": {"annotations": {"a": "b"}}}))
            .await
            .expect(200);
        cluster.patch(&format!("{PODS}/a/status"), MERGE, &status).await.expect(200);
    });
    assert_eq!(
        String::from_utf8_lossy(&followed.body),
        "konverge: container side runs since 2026-01-02T03:04:05Z, not ready, 1 restarts\n\
         konverge: container side ended with exit code 0 (Completed), 1 restarts\n"
    );
}

/// Prescribed lines are printed at their times after the start of the container, which is the time of the server here.
#[tokio::test]
async fn prescribed_logs() {
    let cluster = Cluster::new().await;
    let ended = json!({"terminated": {"exitCode": 1, "startedAt": "2026-01-02T03:00:00Z", "finishedAt": "2026-01-02T03:00:02Z"}});
    with_states(&cluster, "a", &json!({"running": {"startedAt": "2026-01-02T03:04:00Z"}}), &ended).await;
    let logs = "one\n+2s two\n+4s three\n+1h never";
    let annotations = json!({"metadata": {"annotations": {"simulate.konverge.dev/logs": logs}}});
    cluster.patch(&format!("{PODS}/a"), MERGE, &annotations).await.expect(200);
    for (query, expect) in [
        ("", "one\ntwo\nthree\n"),
        ("&tailLines=2", "two\nthree\n"),
        ("&sinceSeconds=2", "three\n"),
        ("&sinceTime=2026-01-02T03:04:02Z", "two\nthree\n"),
        ("&sinceTime=2026-01-02T03:04:02Z&tailLines=1", "three\n"),
        ("&sinceTime=2026-01-03T00:00:00Z", ""),
        ("&limitBytes=6", "one\ntw"),
        ("&limitBytes=6&follow=true", "one\ntw"),
        ("&timestamps=true&tailLines=1", "2026-01-02T03:04:04.000000000Z three\n"),
        ("&previous=true", "one\ntwo\n"),
    ] {
        let answer = cluster.get(&format!("{PODS}/a/log?container=side{query}")).await;
        assert_eq!(String::from_utf8_lossy(&answer.body), expect, "{query}");
    }
    for (query, code, expect) in [
        ("sinceTime=noon", 400, "unable to parse sinceTime \"noon\": it must be a time of RFC 3339"),
        (
            "sinceTime=2026-01-02T03:04:02Z&sinceSeconds=1",
            422,
            "PodLogOptions \"a\" is invalid: <nil>: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
    ] {
        let reason = if code == 400 { "BadRequest" } else { "Invalid" };
        assert_eq!(cluster.get(&format!("{PODS}/a/log?container=side&{query}")).await.fails(code, reason), expect);
    }
}

#[tokio::test]
async fn a_followed_prescribed_log_ends_with_its_container() {
    let cluster = Cluster::new().await;
    with_states(&cluster, "a", &json!({"running": {"startedAt": "2026-01-02T03:04:00Z"}}), &json!({})).await;
    let annotations = json!({"metadata": {"annotations": {"simulate.konverge.dev/logs": "one\n+8s last\n+1h never"}}});
    cluster.patch(&format!("{PODS}/a"), MERGE, &annotations).await.expect(200);
    let path = format!("{PODS}/a/log?container=side&follow=true");
    let (followed, ()) = tokio::join!(cluster.get(&path), async {
        let state = json!({"terminated": {"exitCode": 0, "startedAt": "2026-01-02T03:04:00Z", "finishedAt": "2026-01-02T03:04:08Z"}});
        let status = json!({"status": {"containerStatuses": [{"name": "side", "image": "log:1", "restartCount": 1, "state": state}]}});
        cluster.patch(&format!("{PODS}/a/status"), MERGE, &status).await.expect(200);
    });
    assert_eq!(String::from_utf8_lossy(&followed.body), "one\nlast\n");
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
