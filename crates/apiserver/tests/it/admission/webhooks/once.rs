//! How often webhooks are asked: once for each request of a client, and not for what the server does by itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tower_service::Service;

use konverge_apiserver::{ApiServer, Collector, LocalWebhook, Options};

use crate::cluster::{
    AT_MOST, CONFIG_MAPS, CRDS, Cluster, NAMESPACES, PODS, WIDGETS, config_map, pod, widget, widgets,
};

use super::{Hook, MUTATING, VALIDATING, configuration, hook};

fn rule(group: &str, resource: &str, operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": operations})
}

fn deny(_: &Value) -> Value {
    json!({"allowed": false})
}

/// A definition goes with its objects although webhooks refuse that, as in Kubernetes.
#[tokio::test]
async fn nobody_is_asked_about_the_objects_of_a_deleted_definition() {
    for kind in [VALIDATING, MUTATING] {
        let cluster = Cluster::with_widgets().await;
        cluster.post(WIDGETS, &widget("a")).await.expect(201);
        let refusing = Hook::serve(&cluster, "h", deny);
        let rules = json!([
            rule("example.com", "widgets", &["DELETE"]),
            rule("apiextensions.k8s.io", "customresourcedefinitions", &["UPDATE"]),
        ]);
        cluster.post(kind, &configuration("c", &[hook("h", &json!({"rules": rules}))])).await.expect(201);
        let path = format!("{CRDS}/widgets.example.com");
        cluster.delete(&path).await.expect(200);
        cluster.get(&path).await.fails(404, "NotFound");
        assert_eq!(refusing.times(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_about_events_that_expire() {
    let cluster = Cluster::new().await;
    let refusing = Hook::serve(&cluster, "h", deny);
    let more = json!({"rules": [rule("*", "events", &["DELETE"])]});
    cluster.post(VALIDATING, &configuration("c", &[hook("h", &more)])).await.expect(201);
    let events = "/api/v1/namespaces/default/events";
    let about = json!({"kind": "Pod", "namespace": "default", "name": "a"});
    cluster.post(events, &json!({"metadata": {"name": "e"}, "involvedObject": about})).await.expect(201);
    cluster.world.pass(Duration::from_secs(2 * 3600));
    tokio::time::sleep(Duration::from_secs(61)).await;
    cluster.get(&format!("{events}/e")).await.fails(404, "NotFound");
    assert_eq!(refusing.times(), 0);
}

/// A request that computes for long moves to a thread of its own before it asks, not afterwards.
#[tokio::test]
async fn large_objects_are_sent_once() {
    let positive = json!({"type": "integer", "anyOf": [{"minimum": 3}, {"minimum": 2}, {"minimum": 1}]});
    let sizes = json!({"type": "array", "items": positive});
    let mut definition = widgets();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["sizes"] = sizes;
    for kind in [VALIDATING, MUTATING] {
        let cluster = Cluster::new().await;
        cluster.post(CRDS, &definition).await.expect(201);
        let asked = Hook::serve(&cluster, "h", super::allow);
        let more = json!({"rules": [rule("example.com", "widgets", &["*"])]});
        cluster.post(kind, &configuration("c", &[hook("h", &more)])).await.expect(201);
        for (at, length) in [10, 100, 200, 400, 800, 1200, 1600, 2000, 3000, 4000, 6000, 9000].into_iter().enumerate() {
            let mut large = widget(&format!("w{length}"));
            large["spec"]["sizes"] = vec![1; length].into();
            cluster.post(WIDGETS, &large).await.expect(201);
            assert_eq!(asked.times(), at + 1, "{kind} {length}");
        }
    }
}

/// Answers with a warning, after a patch of this object.
fn patching(server: &ApiServer, path: &str, patch: fn(usize) -> Value) -> Counted {
    let (server, path, times) = (server.clone(), path.to_owned(), Arc::<Mutex<usize>>::default());
    let counted = times.clone();
    let handler: LocalWebhook = Arc::new(move |request: Request<Bytes>| {
        let time = {
            let mut times = counted.lock().unwrap();
            *times += 1;
            *times
        };
        let patch = Request::patch(&*path)
            .header("content-type", "application/merge-patch+json")
            .body(Full::new(Bytes::from(patch(time).to_string())))
            .unwrap();
        let mut server = server.clone();
        Box::pin(async move {
            assert_eq!(server.call(patch).await.unwrap().status(), 200);
            let review: Value = serde_json::from_slice(request.body()).unwrap();
            let response = json!({"uid": review["request"]["uid"], "allowed": true, "warnings": ["w"]});
            let body = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
            Response::new(Bytes::from(body.to_string()))
        })
    });
    (handler, times)
}

type Counted = (LocalWebhook, Arc<Mutex<usize>>);

fn label(time: usize) -> Value {
    json!({"metadata": {"labels": {"a": time.to_string()}}})
}

/// The same at each time.
fn names(_: usize) -> Value {
    json!({"spec": {"names": {"shortNames": ["w1"]}}})
}

/// What a create depends on may change while webhooks are asked. Only a change of the schema makes the request begin again.
#[tokio::test]
async fn a_create_goes_on_after_changes_of_what_it_depends_on() {
    let definition = format!("{CRDS}/widgets.example.com");
    let namespace = format!("{NAMESPACES}/default");
    for (path, patch, expect) in
        [(&namespace, label as fn(usize) -> Value, 1), (&definition, label, 1), (&definition, names, 2)]
    {
        let cluster = Cluster::with_widgets().await;
        let (handler, times) = patching(&cluster.server, path, patch);
        cluster.server.register_webhooks("h", Some(handler));
        let more = json!({"rules": [rule("example.com", "widgets", &["*"])]});
        cluster.post(VALIDATING, &configuration("c", &[hook("h", &more)])).await.expect(201);
        cluster.post(WIDGETS, &widget("a")).await.expect(201);
        assert_eq!(*times.lock().unwrap(), expect, "{path}");
    }
}

/// What webhooks are told of deletions.
#[tokio::test]
async fn deletions_that_do_nothing_ask_nobody_and_collections_have_no_name() {
    let cluster = Cluster::new().await;
    let asked = Hook::serve(&cluster, "h", super::allow);
    let rules = json!([rule("", "pods", &["DELETE"]), rule("", "configmaps", &["DELETE"])]);
    cluster.post(VALIDATING, &configuration("c", &[hook("h", &json!({"rules": rules}))])).await.expect(201);
    let mut placed = pod("a");
    placed["spec"]["nodeName"] = "n".into();
    cluster.post(PODS, &placed).await.expect(201);
    let path = format!("{PODS}/a");
    for (query, expect) in [("", 1), ("", 1), ("?gracePeriodSeconds=60", 1), ("?gracePeriodSeconds=5", 2)] {
        cluster.delete(&format!("{path}{query}")).await.expect(200);
        assert_eq!(asked.times(), expect, "{query}");
    }
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    cluster.delete(CONFIG_MAPS).await.expect(200);
    let request = asked.asked().pop().unwrap();
    assert_eq!((&request["name"], &request["oldObject"]["metadata"]["name"]), (&Value::Null, &json!("a")));
}

/// The garbage collector goes on with other objects while a webhook is asked about one.
#[tokio::test]
async fn a_slow_webhook_delays_only_its_own_object() {
    let cluster = Cluster::with(|options| Options { collector: Collector::Inside, ..options }).await;
    for name in ["slow", "quick"] {
        let owner = cluster.post(CONFIG_MAPS, &config_map(&format!("{name}-owner"))).await.expect(201);
        let mut owned = config_map(name);
        let (uid, name) = (&owner["metadata"]["uid"], &owner["metadata"]["name"]);
        owned["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}]);
        cluster.post(CONFIG_MAPS, &owned).await.expect(201);
    }
    let called = Arc::new(tokio::sync::Notify::new());
    let notified = called.clone();
    let stuck: LocalWebhook = Arc::new(move |_| {
        notified.notify_one();
        Box::pin(std::future::pending())
    });
    cluster.server.register_webhooks("h", Some(stuck));
    let only = json!([{"name": "c", "expression": "request.operation == 'DELETE' && request.name == 'slow'"}]);
    let more = json!({"matchConditions": only, "timeoutSeconds": 30});
    cluster.post(VALIDATING, &configuration("c", &[hook("h", &more)])).await.expect(201);
    let revision = cluster.revision();
    let mut lines = cluster
        .watch(&format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name=quick&resourceVersion={revision}"))
        .await;
    cluster.delete(&format!("{CONFIG_MAPS}/slow-owner")).await.expect(200);
    tokio::time::timeout(AT_MOST, called.notified()).await.unwrap();
    cluster.delete(&format!("{CONFIG_MAPS}/quick-owner")).await.expect(200);
    assert_eq!(lines.next_brief().await, "DELETED quick");
    cluster.get(&format!("{CONFIG_MAPS}/slow")).await.expect(200);
}
