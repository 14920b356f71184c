//! Admission webhooks, through requests. The answers are those of kube-apiserver. Webhooks are handlers in this process; `tls` calls
//! them over the network.

mod changing;
mod hanging;
mod once;
mod tls;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};

use konverge_apiserver::LocalWebhook;

use crate::cluster::{AT_MOST, CONFIG_MAPS, CRDS, Cluster, MERGE, PODS, config_map, pod, widgets};

use super::policies::with;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// A webhook that keeps what it was asked, and answers what the test says.
struct Hook {
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    /// Answers for `https://HOST/`.
    fn serve(cluster: &Cluster, host: &str, answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = asked.clone();
        let handler: LocalWebhook = Arc::new(move |request: Request<Bytes>| {
            let review: Value = serde_json::from_slice(request.body()).unwrap();
            let request = review["request"].clone();
            let mut response = answer(&request);
            if response["uid"].is_null() {
                response["uid"] = request["uid"].clone();
            }
            kept.lock().unwrap().push(request);
            let body = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
            Box::pin(std::future::ready(Response::new(Bytes::from(body.to_string()))))
        });
        cluster.server.register_webhooks(host, Some(handler));
        Self { asked }
    }

    fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }

    fn times(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn allow(_: &Value) -> Value {
    json!({"allowed": true})
}

/// An answer that allows the request and changes its object.
fn patch(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(operations.to_string())})
}

/// A webhook at `https://HOST/check` about config maps, unless `more` says something else.
fn hook(host: &str, more: &Value) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]});
    let base = json!({
        "name": format!("{host}.example.com"), "clientConfig": {"url": format!("https://{host}/check")}, "rules": [rule],
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
    });
    with(base, more)
}

fn configuration(name: &str, webhooks: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "webhooks": webhooks})
}

#[tokio::test]
async fn a_webhook_sees_the_request_and_refuses() {
    let cluster = Cluster::new().await;
    let hook_of = Hook::serve(&cluster, "h", |request| {
        let name = request["object"]["metadata"]["name"].as_str().or(request["name"].as_str()).unwrap_or_default();
        match name {
            "bad" => json!({
                "allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "no"}, "warnings": ["careful"],
            }),
            "silent" => json!({"allowed": false}),
            _ => json!({"allowed": true, "warnings": ["well", "well"], "auditAnnotations": {"k": "v"}}),
        }
    });
    cluster.post(VALIDATING, &configuration("c", &[hook("h", &json!({}))])).await.expect(201);

    let refused = cluster.post(CONFIG_MAPS, &config_map("bad")).await;
    assert_eq!(refused.fails(403, "Forbidden"), "admission webhook \"h.example.com\" denied the request: no");
    assert_eq!(refused.warnings(), ["\"careful\""]);
    let silent = cluster.post(CONFIG_MAPS, &config_map("silent")).await.expect(400);
    let words = "admission webhook \"h.example.com\" denied the request without explanation";
    assert_eq!(silent["message"], words);

    let created = cluster.post(CONFIG_MAPS, &config_map("good")).await;
    created.expect(201);
    assert_eq!(created.warnings(), ["\"well\""]);
    let path = format!("{CONFIG_MAPS}/good");
    cluster.patch(&path, MERGE, &json!({"data": {"a": "b"}})).await.expect(200);
    cluster.delete(&path).await.expect(200);
    let asked = hook_of.asked();
    let [create, update, delete] = &asked[2..] else { panic!("{} requests", asked.len()) };
    for (request, operation, new, old) in
        [(create, "CREATE", true, false), (update, "UPDATE", true, true), (delete, "DELETE", false, true)]
    {
        assert_eq!(request["operation"], operation);
        assert_eq!((request["object"].is_object(), request["oldObject"].is_object()), (new, old), "{operation}");
        assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
        assert_eq!(request["requestResource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
        assert_eq!((&request["name"], &request["namespace"]), (&json!("good"), &json!("default")));
        assert_eq!(request["dryRun"], false);
        assert!(request["userInfo"]["username"].is_string(), "{request}");
    }
    assert_eq!((&update["object"]["data"]["a"], &update["oldObject"]["data"]["a"]), (&json!("b"), &Value::Null));
    assert_eq!(delete["options"]["kind"], "DeleteOptions");
}

/// What the failure policy says is done if a webhook gives no answer that makes sense.
#[tokio::test]
async fn failures_follow_the_failure_policy() {
    let cluster = Cluster::new().await;
    for (answer, why) in [
        (json!({"allowed": true, "uid": "x"}), "received invalid webhook response: expected response.uid="),
        (patch(&json!([])), "received invalid webhook response: validating webhook may not return response.patch"),
    ] {
        Hook::serve(&cluster, "h", move |_| answer.clone());
        for (policy, code) in [("Fail", 500), ("Ignore", 201)] {
            let made = configuration("c", &[hook("h", &json!({"failurePolicy": policy}))]);
            cluster.post(VALIDATING, &made).await.expect(201);
            let answer = cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(code);
            if code == 500 {
                let words = format!("Internal error occurred: failed calling webhook \"h.example.com\": {why}");
                assert!(answer["message"].as_str().unwrap().starts_with(&words), "{answer}");
            } else {
                cluster.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
            }
            cluster.delete(&format!("{VALIDATING}/c")).await.expect(200);
        }
    }
    // A webhook that answers with an HTTP error.
    let failing: LocalWebhook = Arc::new(|_| {
        let response = Response::builder().status(500).body(Bytes::from_static(b"oops\n")).unwrap();
        Box::pin(std::future::ready(response))
    });
    cluster.server.register_webhooks("h", Some(failing));
    cluster.post(VALIDATING, &configuration("c", &[hook("h", &json!({}))])).await.expect(201);
    assert_eq!(
        cluster.post(CONFIG_MAPS, &config_map("a")).await.fails(500, "InternalError"),
        "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: an error on the server \
         (\"oops\") has prevented the request from succeeding"
    );
    let page = String::from_utf8(cluster.get("/metrics").await.body.to_vec()).unwrap();
    let page: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("apiserver_admission_webhook_r") || line.contains("fail_open"))
        .collect();
    for line in [
        "apiserver_admission_webhook_fail_open_count{name=\"h.example.com\",type=\"validating\"} 4",
        "apiserver_admission_webhook_rejection_count{error_type=\"calling_webhook_error\",name=\"h.example.com\",\
         operation=\"CREATE\",rejection_code=\"503\",type=\"validating\"} 2",
        "apiserver_admission_webhook_request_total{code=\"500\",name=\"h.example.com\",operation=\"CREATE\",\
         rejected=\"true\",type=\"validating\"} 1",
    ] {
        assert!(page.contains(&line), "{line} in\n{page:#?}");
    }
}

/// Which requests a webhook is called for.
#[tokio::test]
async fn only_what_matches_is_sent() {
    let rule = |resources: &str, operations: &[&str]| json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resources], "operations": operations});
    let labelled = json!({"matchLabels": {"a": "b"}});
    let condition = |expression: &str| json!([{"name": "c", "expression": expression}]);
    for (more, expect) in [
        (json!({}), 2),
        (json!({"rules": []}), 0),
        (json!({"rules": [rule("configmaps", &["CREATE"])]}), 1),
        (json!({"rules": [rule("*", &["DELETE"])]}), 1),
        (json!({"rules": [rule("secrets", &["*"])]}), 0),
        (json!({"objectSelector": labelled}), 0),
        (json!({"namespaceSelector": labelled}), 0),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}), 2),
        (json!({"matchConditions": condition("request.operation == 'CREATE'")}), 1),
        (json!({"matchConditions": condition("object.metadata.name == 'other'"), "failurePolicy": "Ignore"}), 0),
    ] {
        let cluster = Cluster::new().await;
        let counted = Hook::serve(&cluster, "h", allow);
        cluster.post(VALIDATING, &configuration("c", &[hook("h", &more)])).await.expect(201);
        cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
        cluster.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
        assert_eq!(counted.times(), expect, "{more}");
    }
    let cluster = Cluster::new().await;
    let counted = Hook::serve(&cluster, "h", allow);
    let more = json!({"matchConditions": condition("object.nothing == 1")});
    cluster.post(VALIDATING, &configuration("c", &[hook("h", &more)])).await.expect(201);
    let refused = cluster.post(CONFIG_MAPS, &config_map("a")).await.fails(403, "Forbidden");
    assert!(refused.starts_with("configmaps \"a\" is forbidden: "), "{refused}");
    // Webhooks that change objects are asked before a name is generated.
    cluster.delete(&format!("{VALIDATING}/c")).await.expect(200);
    cluster.post(MUTATING, &configuration("c", &[hook("h", &more)])).await.expect(201);
    let generated = json!({"metadata": {"generateName": "a-"}});
    let refused = cluster.post(CONFIG_MAPS, &generated).await.fails(403, "Forbidden");
    assert!(refused.starts_with("configmaps is forbidden: "), "{refused}");
    cluster.delete(&format!("{MUTATING}/c")).await.expect(200);
    // Configurations themselves are never judged by webhooks.
    let all = configuration("all", &[hook("h", &json!({"rules": [rule("*", &["*"])]}))]);
    cluster.post(MUTATING, &all).await.expect(201);
    cluster.delete(&format!("{MUTATING}/all")).await.expect(200);
    assert_eq!(counted.times(), 0);
}

/// A rule for one version is about the same objects in all versions, which the webhook gets in the version of the rule.
#[tokio::test]
async fn equivalent_versions_are_converted() {
    let rule = json!({"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["horizontalpodautoscalers"]});
    let scaler = json!({"metadata": {"name": "a"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3}});
    for (policy, versions) in [("Equivalent", vec!["autoscaling/v1"]), ("Exact", vec![])] {
        let cluster = Cluster::new().await;
        let asked = Hook::serve(&cluster, "h", allow);
        let more = json!({"rules": [rule], "matchPolicy": policy});
        cluster.post(VALIDATING, &configuration("c", &[hook("h", &more)])).await.expect(201);
        let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
        cluster.post(path, &scaler).await.expect(201);
        let seen: Vec<Value> = asked.asked().iter().map(|request| request["object"]["apiVersion"].clone()).collect();
        assert_eq!(seen, versions, "{policy}");
        for request in asked.asked() {
            assert_eq!((&request["kind"]["version"], &request["requestKind"]["version"]), (&json!("v1"), &json!("v2")));
            assert_eq!(request["object"]["metadata"].get("resourceVersion"), None, "it is not stored yet");
        }
    }
}

/// What a webhook makes of an object in another version is created and updated in the version of the request.
#[tokio::test]
async fn equivalent_versions_are_changed() {
    let rule = json!({"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "operations": ["*"],
        "resources": ["horizontalpodautoscalers"]});
    let scaler = json!({"metadata": {"name": "a"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3}});
    let cluster = Cluster::new().await;
    let _hook = Hook::serve(&cluster, "h", |request| {
        let replicas = request["object"]["spec"]["maxReplicas"].as_i64().unwrap_or_default() + 1;
        patch(&json!([{"op": "replace", "path": "/spec/maxReplicas", "value": replicas}]))
    });
    let made = configuration("c", &[hook("h", &json!({"rules": [rule]}))]);
    cluster.post(MUTATING, &made).await.expect(201);
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let created = cluster.post(path, &scaler).await.expect(201);
    assert_eq!(created["spec"]["maxReplicas"], 4);
    let updated = cluster.put(&format!("{path}/a"), &created).await.expect(200);
    assert_eq!((&updated["spec"]["maxReplicas"], &updated["apiVersion"]), (&json!(5), &json!("autoscaling/v2")));
}

#[tokio::test]
async fn dry_runs_reach_only_webhooks_without_side_effects() {
    let cluster = Cluster::new().await;
    let asked = Hook::serve(&cluster, "h", allow);
    let made = configuration("c", &[hook("h", &json!({"sideEffects": "NoneOnDryRun"}))]);
    cluster.post(VALIDATING, &made).await.expect(201);
    cluster.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a")).await.expect(201);
    assert_eq!(asked.asked()[0]["dryRun"], true);
    let some = configuration("d", &[hook("h", &json!({"sideEffects": "Some"}))]);
    let refused = cluster.post(VALIDATING, &some).await.fails(422, "Invalid");
    assert!(refused.contains(
        "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\""
    ));
}

#[tokio::test]
async fn subresources_and_connections_are_sent() {
    let cluster = Cluster::new().await;
    let resources = ["pods/binding", "pods/status", "pods/exec", "pods/eviction"];
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": resources, "operations": ["*"]});
    let asked = Hook::serve(&cluster, "h", |request| json!({"allowed": request["subResource"] != "exec"}));
    let made = configuration("c", &[hook("h", &json!({"rules": [rule]}))]);
    cluster.post(VALIDATING, &made).await.expect(201);
    cluster.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    cluster.post(PODS, &pod("a")).await.expect(201);
    let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}});
    cluster.post(&format!("{PODS}/a/binding"), &binding).await.expect(201);
    cluster.patch(&format!("{PODS}/a/status"), MERGE, &json!({"status": {"phase": "Running"}})).await.expect(200);
    let refused = cluster.post(&format!("{PODS}/a/exec?command=sh&stdout=true"), &json!({})).await.expect(400);
    assert_eq!(refused["message"], "admission webhook \"h.example.com\" denied the request without explanation");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    cluster.post(&format!("{PODS}/a/eviction"), &eviction).await.expect(201);
    let seen: Vec<[Value; 3]> = asked
        .asked()
        .iter()
        .map(|request| [&request["operation"], &request["subResource"], &request["object"]["kind"]].map(Clone::clone))
        .collect();
    let expect = [
        ["CREATE", "binding", "Binding"],
        ["UPDATE", "status", "Pod"],
        ["CONNECT", "exec", "PodExecOptions"],
        ["CREATE", "eviction", "Eviction"],
    ];
    assert_eq!(seen, expect.map(|row| row.map(|text| json!(text))));
}

/// A binding is sent to the webhooks of the resource that it was posted to.
#[tokio::test]
async fn bindings_are_a_resource_of_their_own() {
    let cluster = Cluster::new().await;
    cluster.post(PODS, &pod("a")).await.expect(201);
    let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}});
    for resource in ["bindings", "pods/binding"] {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"]});
        let asked = Hook::serve(&cluster, "h", |_| json!({"allowed": false}));
        let made = configuration("c", &[hook("h", &json!({"rules": [rule]}))]);
        cluster.post(VALIDATING, &made).await.expect(201);
        for (path, of) in [
            ("/api/v1/namespaces/default/bindings".to_owned(), "bindings"),
            (format!("{PODS}/a/binding"), "pods/binding"),
        ] {
            let expect = if of == resource { 400 } else { 201 };
            cluster.post(&format!("{path}?dryRun=All"), &binding).await.expect(expect);
        }
        let [request] = &asked.asked()[..] else { panic!("{resource}") };
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        assert_eq!(request["resource"]["resource"], plural);
        assert_eq!(request["subResource"].as_str().unwrap_or_default(), subresource);
        assert_eq!((&request["name"], &request["object"]["kind"]), (&json!("a"), &json!("Binding")));
        cluster.delete(&format!("{VALIDATING}/c")).await.expect(200);
    }
}

/// All validating webhooks are asked at the same time: each waits until the other was asked.
#[tokio::test]
async fn validating_webhooks_are_called_at_the_same_time() {
    let cluster = Cluster::new().await;
    let both = Arc::new(tokio::sync::Barrier::new(2));
    for host in ["h1", "h2"] {
        cluster.server.register_webhooks(host, Some(waiting(both.clone())));
    }
    let made = configuration("c", &[hook("h1", &json!({})), hook("h2", &json!({}))]);
    cluster.post(VALIDATING, &made).await.expect(201);
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
}

/// Allows a request when as many requests have come as the barrier is for.
fn waiting(barrier: Arc<tokio::sync::Barrier>) -> LocalWebhook {
    Arc::new(move |request: Request<Bytes>| {
        let barrier = barrier.clone();
        Box::pin(async move {
            barrier.wait().await;
            let review: Value = serde_json::from_slice(request.body()).unwrap();
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            let body = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
            Response::new(Bytes::from(body.to_string()))
        })
    })
}

/// A slow webhook for one definition or service keeps nobody else waiting, and both get what they ask for.
#[tokio::test]
async fn a_slow_webhook_holds_no_lock() {
    let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    let mut other = widgets();
    other["metadata"]["name"] = "gadgets.example.com".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    let services = "/api/v1/namespaces/default/services";
    for (path, slow, quick) in [(services, service("slow"), service("quick")), (CRDS, widgets(), other)] {
        for kind in [VALIDATING, MUTATING] {
            let cluster = Cluster::new().await;
            let both = Arc::new(tokio::sync::Barrier::new(2));
            cluster.server.register_webhooks("h", Some(waiting(both.clone())));
            let name = slow["metadata"]["name"].as_str().unwrap();
            let only = json!([{"name": "c", "expression": format!("object.metadata.name == '{name}'")}]);
            let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"],
                "resources": ["services", "customresourcedefinitions"]});
            let more = json!({"rules": [rule], "matchConditions": only});
            cluster.post(kind, &configuration("c", &[hook("h", &more)])).await.expect(201);
            let waits = cluster.post(path, &slow);
            let passes = async {
                cluster.post(path, &quick).await.expect(201);
                both.wait().await;
            };
            let (slow, ()) = tokio::time::timeout(AT_MOST, async { tokio::join!(waits, passes) }).await.unwrap();
            let slow = slow.expect(201);
            if path == services {
                let quick = cluster.get(&format!("{services}/quick")).await.expect(200);
                assert_ne!(slow["spec"]["clusterIP"], quick["spec"]["clusterIP"]);
            } else {
                assert_eq!(slow["status"]["acceptedNames"]["plural"], "widgets");
            }
        }
    }
}

/// The time limit is told to the webhook, and is over after that time.
#[tokio::test(start_paused = true)]
async fn a_webhook_has_a_time_limit() {
    let cluster = Cluster::new().await;
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = asked.clone();
    let stuck: LocalWebhook = Arc::new(move |request: Request<Bytes>| {
        seen.lock().unwrap().push(request.uri().to_string());
        Box::pin(std::future::pending())
    });
    cluster.server.register_webhooks("w.shop.svc", Some(stuck));
    let service = json!({"service": {"namespace": "shop", "name": "w", "path": "/check"}});
    let more = json!({"clientConfig": service, "timeoutSeconds": 3});
    cluster.post(VALIDATING, &configuration("c", &[hook("h", &more)])).await.expect(201);
    let began = tokio::time::Instant::now();
    let url = "https://w.shop.svc:443/check?timeout=3s";
    assert_eq!(
        cluster.post(CONFIG_MAPS, &config_map("a")).await.fails(500, "InternalError"),
        format!(
            "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: Post {url:?}: context \
             deadline exceeded"
        )
    );
    assert_eq!(began.elapsed().as_secs(), Duration::from_secs(3).as_secs());
    assert_eq!(*asked.lock().unwrap(), [url]);
}

#[tokio::test]
async fn configurations_are_checked() {
    let cluster = Cluster::new().await;
    let check = async |more: Value, expect: &str| {
        let mut hook = hook("h", &more);
        hook.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let answer = cluster.post(VALIDATING, &configuration("c", &[hook])).await.fails(422, "Invalid");
        assert!(answer.contains(expect), "{more}: {answer}");
    };
    let three = "should be a domain with at least three segments separated by dots";
    check(json!({"name": "a.b"}), &format!("webhooks[0].name: Invalid value: \"a.b\": {three}")).await;
    check(json!({"timeoutSeconds": 31}), "the timeout value must be between 1 and 30 seconds").await;
    check(
        json!({"sideEffects": null}),
        "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
    )
    .await;
    check(json!({"admissionReviewVersions": ["v2"]}), "must include at least one of v1, v1beta1").await;
    check(
        json!({"clientConfig": {}}),
        "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
    )
    .await;
    check(json!({"clientConfig": {"url": "http://a"}}), "'https' is the only allowed URL scheme").await;
    check(json!({"clientConfig": {"url": "https://a?b"}}), "query parameters are not permitted in the URL").await;
    let service = json!({"service": {"name": "a", "namespace": "b", "path": "/a//b"}});
    check(json!({"clientConfig": service}), "segment[1] may not be empty").await;
    check(json!({"matchConditions": [{"name": "a", "expression": "1"}]}), "webhooks[0].matchConditions[0].expression")
        .await;
    let twice = configuration("c", &[hook("h", &json!({})), hook("h", &json!({}))]);
    let answer = cluster.post(VALIDATING, &twice).await.fails(422, "Invalid");
    assert!(answer.contains("webhooks[1].name: Duplicate value: \"h.example.com\""), "{answer}");
    cluster.post(VALIDATING, &configuration("c", &[hook("h", &json!({}))])).await.expect(201);
}
