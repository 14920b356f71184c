//! What one request may cost: bytes, computing and time; and that others are served beside an expensive one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Request;
use http_body_util::StreamBody;
use serde_json::{Value, json};

use konverge_apiserver::{ApiServer, Options, RequestLimits};

use crate::cluster::{
    APPLY, AS_METADATA_LIST, AS_TABLE, CONFIG_MAPS, CRDS, Cluster, JSON_PATCH, MERGE, SECRETS, STRATEGIC, config_map,
    pod,
};

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

/// A definition of things with this schema.
fn things(schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn thing(name: &str, items: usize) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "l": vec![json!({}); items]})
}

fn list_of(items: &Value) -> Value {
    json!({"type": "object", "properties": {"l": {"type": "array", "items": items}}})
}

async fn cluster_with(request_limits: RequestLimits) -> Cluster {
    let cluster = Cluster::new().await;
    let server = ApiServer::open(Options { request_limits, ..Options::default() }).await.unwrap();
    Cluster { server, ..cluster }
}

#[tokio::test]
async fn data_is_limited_as_on_a_cluster() {
    let cluster = Cluster::new().await;
    let over = "x".repeat(1024 * 1024 + 1);
    let base64 = |bytes: usize| "eHh4".repeat(bytes / 3);
    let map = |fields: Value| {
        let mut object = config_map("c");
        for (name, value) in fields.as_object().unwrap() {
            object[name] = value.clone();
        }
        object
    };
    let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data});
    let long = "Too long: may not be more than 1048576 bytes";
    for (path, object, expect) in [
        (CONFIG_MAPS, map(json!({"data": {"a": &over[1..]}})), None),
        (CONFIG_MAPS, map(json!({"data": {"a": over}})), Some(format!("ConfigMap \"c\" is invalid: []: {long}"))),
        (
            CONFIG_MAPS,
            map(json!({"data": {"a": &over[524_288..]}, "binaryData": {"b": base64(524_289)}})),
            Some(format!("ConfigMap \"c\" is invalid: []: {long}")),
        ),
        // A MiB is more than a MiB in base64.
        (CONFIG_MAPS, map(json!({"data": {}, "binaryData": {"b": base64(1_048_575)}})), None),
        (SECRETS, secret(json!({"a": base64(1_048_575)})), None),
        (SECRETS, secret(json!({"a": base64(1_048_578)})), Some(format!("Secret \"s\" is invalid: data: {long}"))),
        (
            CONFIG_MAPS,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "annotations": {"a": &over[..262_144]}}}),
            Some(
                "ConfigMap \"c\" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes".into(),
            ),
        ),
    ] {
        let answer = cluster.post(&format!("{path}?dryRun=All"), &object).await;
        match expect {
            None => drop(answer.expect(201)),
            Some(message) => assert_eq!(answer.fails(422, "Invalid"), message),
        }
    }
}

#[tokio::test]
async fn objects_do_not_outgrow_what_a_cluster_keeps() {
    let cluster = Cluster::new().await;
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    cluster.post(CRDS, &things(&open)).await.expect(201);
    cluster
        .post(THINGS, &json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "g"}}))
        .await
        .expect(201);
    let path = format!("{THINGS}/g");
    let megabyte = "y".repeat(1_000_000);
    cluster.patch(&path, MERGE, &json!({"a": megabyte})).await.expect(200);
    let config = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "g"}, "b": megabyte});
    let mut whole = cluster.get(&path).await.json();
    whole["b"] = megabyte.as_str().into();
    for (kind, answer) in [
        ("merge", cluster.patch(&path, MERGE, &json!({"b": megabyte})).await),
        ("json", cluster.patch(&path, JSON_PATCH, &json!([{"op": "copy", "from": "/a", "path": "/b"}])).await),
        ("apply", cluster.patch(&format!("{path}?fieldManager=m"), APPLY, &config).await),
        ("put", cluster.put(&path, &whole).await),
    ] {
        let message = answer.fails(413, "RequestEntityTooLarge");
        assert!(message.starts_with("etcdserver: request is too large"), "{kind}: {message}");
    }
    // A patch that is larger than a body may be is refused before.
    let body = json!({"a": "z".repeat(3 * 1024 * 1024)});
    for kind in [MERGE, STRATEGIC, JSON_PATCH, APPLY] {
        cluster.patch(&path, kind, &body).await.fails(413, "RequestEntityTooLarge");
    }
    assert_eq!(cluster.get(&path).await.expect(200).get("b"), None);
    cluster.delete(&path).await.expect(200);
}

#[tokio::test]
async fn managers_are_forgotten_before_a_write_is_refused() {
    let cluster = Cluster::new().await;
    let managers: Vec<Value> = (0..8000)
        .map(|at| {
            json!({"manager": format!("m{at}"), "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                   "fieldsV1": {"f:data": {"f:another": {}}}})
        })
        .collect();
    let mut object = config_map("c");
    object["data"]["a"] = "x".repeat(1_000_000).into();
    object["metadata"]["managedFields"] = managers.into();
    let kept = cluster.post(CONFIG_MAPS, &object).await.expect(201);
    assert_eq!(kept["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn defaults_that_multiply_are_refused_and_left_out_of_reads() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &things(&list_of(&json!({"type": "object"})))).await.expect(201);
    cluster.post(THINGS, &thing("before", 2000)).await.expect(201);
    let long = json!({"type": "string", "default": "x".repeat(100_000)});
    let multiplying = list_of(&json!({"type": "object", "properties": {"long": long}}));
    let path = format!("{CRDS}/things.example.com");
    let schema = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": multiplying}]);
    cluster.patch(&path, JSON_PATCH, &schema).await.expect(200);
    cluster.post(THINGS, &thing("after", 2000)).await.fails(413, "RequestEntityTooLarge");
    cluster.post(THINGS, &thing("few", 2)).await.expect(201);
    assert_eq!(cluster.get(&format!("{THINGS}/before")).await.expect(200)["l"][0], json!({}));
    cluster.delete(&format!("{THINGS}/before")).await.expect(200);
}

fn nested(depth: usize) -> Value {
    if depth == 0 {
        return json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    }
    json!({"anyOf": vec![nested(depth - 1); 2], "allOf": vec![nested(depth - 1); 2]})
}

/// On a runtime with one thread: the cheap request is polled after the expensive one, and done before it.
#[tokio::test(flavor = "current_thread")]
async fn clauses_that_multiply_end_while_others_are_served() {
    let limits = RequestLimits { steps: 500_000, ..RequestLimits::default() };
    let cluster = cluster_with(limits).await;
    let mut item = nested(4);
    item["type"] = "object".into();
    cluster.post(CRDS, &things(&list_of(&item))).await.expect(201);
    let turn = AtomicUsize::new(0);
    let body = thing("t", 4000);
    let expensive = async {
        let answer = cluster.post(THINGS, &body).await;
        (answer, turn.fetch_add(1, Ordering::Relaxed))
    };
    let cheap = async {
        cluster.post(CONFIG_MAPS, &config_map("c")).await.expect(201);
        turn.fetch_add(1, Ordering::Relaxed)
    };
    let ((answer, expensive), cheap) = tokio::join!(expensive, cheap);
    assert!(answer.fails(400, "BadRequest").contains("simplify the schema"));
    assert_eq!((cheap, expensive), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_ended() {
    let cluster = cluster_with(RequestLimits::default()).await;
    let never = StreamBody::new(futures_util::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>());
    let began = tokio::time::Instant::now();
    let response = cluster.send(Request::post(CONFIG_MAPS).body(never).unwrap()).await;
    assert_eq!((response.status().as_u16(), began.elapsed().as_secs()), (504, 60));
    let mut watch = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true")).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    cluster.post(CONFIG_MAPS, &config_map("c")).await.expect(201);
    while watch.next_ever().await.expect("a watch goes on")["type"] != "ADDED" {}
}

/// On a runtime with one thread: how often another task runs while a long answer is made.
#[tokio::test(flavor = "current_thread")]
async fn long_reads_let_others_go_between() {
    let cluster = Cluster::new().await;
    for at in 0..40 {
        let mut object = config_map(&format!("c{at}"));
        object["metadata"]["labels"] = json!({"half": (at % 2).to_string()});
        object["data"]["k"] = "x".repeat(100_000).into();
        cluster.post(CONFIG_MAPS, &object).await.expect(201);
    }
    let turns = Arc::new(AtomicUsize::new(0));
    let others = tokio::spawn({
        let turns = turns.clone();
        async move {
            loop {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let selected = format!("{CONFIG_MAPS}?labelSelector=half%3D1");
    for (path, accept, items) in [
        (CONFIG_MAPS, "application/json", 40),
        (CONFIG_MAPS, AS_METADATA_LIST, 40),
        (CONFIG_MAPS, AS_TABLE, 40),
        (&selected, AS_METADATA_LIST, 20),
    ] {
        let before = turns.load(Ordering::Relaxed);
        let list = cluster.accept(path, accept).await.expect(200);
        let rows = list.get("items").or(list.get("rows")).and_then(Value::as_array).map(Vec::len);
        assert_eq!(rows, Some(items), "{path} {accept}");
        let given = turns.load(Ordering::Relaxed) - before;
        assert!(given >= 10, "{path} {accept}: {given} turns");
    }
    for (selector, events) in [("half%3D1", 20), ("half%3D2", 0)] {
        let before = turns.load(Ordering::Relaxed);
        let initial = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&allowWatchBookmarks=true";
        let mut watch = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&labelSelector={selector}&{initial}")).await;
        for _ in 0..events {
            assert_eq!(watch.next().await["type"], "ADDED", "{selector}");
        }
        assert_eq!(watch.next().await["type"], "BOOKMARK", "{selector}");
        let given = turns.load(Ordering::Relaxed) - before;
        assert!(given >= 10, "{selector}: {given} turns");
    }
    let before = turns.load(Ordering::Relaxed);
    cluster.delete(CONFIG_MAPS).await.expect(200);
    assert!(turns.load(Ordering::Relaxed) - before >= 3);
    others.abort();
}

/// Requests that wait for memory hold no text, and continue when another answer is dropped.
#[tokio::test]
async fn texts_that_nobody_reads_do_not_pile_up() {
    let cluster = Cluster::new().await;
    let mut large = config_map("large");
    large["data"] = json!({"a": "x".repeat(900_000)});
    cluster.post(CONFIG_MAPS, &large).await.expect(201);
    let short = config_map("short");
    cluster.post(CONFIG_MAPS, &short).await.expect(201);
    let get = |query: &str, accept: &str| {
        let request = Request::get(format!("{CONFIG_MAPS}{query}")).header("accept", accept);
        cluster.send(request.body(http_body_util::Full::new(Bytes::new())).unwrap())
    };
    for (query, accept) in [("/large?pretty=true", "application/json"), ("", "application/yaml")] {
        let mut asked: FuturesUnordered<_> = (0..60).map(|_| get(query, accept)).collect();
        let mut unread = Vec::new();
        let all = async {
            while let Some(response) = asked.next().await {
                assert_eq!(response.status(), 200);
                unread.push(response);
            }
        };
        let over = tokio::time::timeout(Duration::from_secs(5), all).await;
        assert!(over.is_err(), "{accept}: 60 answers of 900 kB were in memory together");
        assert!(unread.len() <= 40, "{accept}: {}", unread.len());
        // Short ones and those that need no other thread do not wait.
        assert_eq!(get("/short?pretty=true", accept).await.status(), 200);
        assert_eq!(get("/large", "application/json").await.status(), 200);
        drop(unread);
        while let Some(response) = asked.next().await {
            assert_eq!(response.status(), 200, "{accept}");
        }
    }
}

/// LimitRanges that others have stored are read with the budget of the pod that they concern, not with the time of everybody.
#[tokio::test]
async fn what_plugins_read_is_paid_for() {
    let cluster = cluster_with(RequestLimits { steps: 20_000, ..RequestLimits::default() }).await;
    for namespace in ["few", "many"] {
        cluster.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.expect(201);
    }
    let bounds: Value =
        (0..50).map(|at| (format!("example.com/r{at}"), json!("1"))).collect::<serde_json::Map<_, _>>().into();
    for at in 0..200 {
        let range =
            json!({"metadata": {"name": format!("r{at}")}, "spec": {"limits": [{"type": "Pod", "max": bounds}]}});
        cluster.post("/api/v1/namespaces/many/limitranges", &range).await.expect(201);
    }
    for (namespace, code) in [("few", 201), ("many", 400)] {
        let answer = cluster.post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod("p")).await;
        assert_eq!(answer.code, code, "{namespace}: {}", String::from_utf8_lossy(&answer.body));
    }
}
