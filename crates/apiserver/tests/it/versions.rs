//! Objects of a kind with several versions: whichever version they were written through, each version shows them with its own
//! fields and defaults.

use bytes::Bytes;
use futures_util::{poll, stream};
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::cluster::{CRDS, Cluster, MERGE};

const V1: &str = "/apis/example.com/v1/namespaces/default/gauges";
const V2: &str = "/apis/example.com/v2/namespaces/default/gauges";

fn version(name: &str, storage: bool, properties: Value) -> Value {
    let spec = json!({"type": "object", "properties": properties});
    json!({"name": name, "served": true, "storage": storage,
           "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
}

/// Objects are stored in `v1`, or in `v2`, which has a default and lacks a field.
fn versions(kept_in: &str) -> Value {
    let one = json!({"color": {"type": "string"}, "old": {"type": "string"}, "size": {"type": "integer"}});
    let two = json!({"color": {"type": "string"}, "size": {"type": "integer", "default": 3}});
    json!([version("v1", kept_in == "v1", one), version("v2", kept_in == "v2", two)])
}

fn definition(kept_in: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gauges.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "gauges", "kind": "Gauge"},
                 "versions": versions(kept_in)},
    })
}

fn gauge(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Gauge", "metadata": {"name": name},
           "spec": {"color": "red", "old": "x"}})
}

/// What `v2` shows of an object, alone and in a list.
async fn shown(cluster: &Cluster, name: &str) -> Value {
    let one = cluster.get(&format!("{V2}/{name}")).await.expect(200);
    let list = cluster.get(V2).await.expect(200);
    let listed = list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name).unwrap();
    assert_eq!((&listed["apiVersion"], &listed["spec"]), (&one["apiVersion"], &one["spec"]), "{name}");
    json!([one["apiVersion"], one["spec"]])
}

#[tokio::test]
async fn a_version_shows_its_defaults_whichever_an_object_was_written_through() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &definition("v2")).await.expect(201);
    cluster.post(V1, &gauge("made")).await.expect(201);
    assert_eq!(shown(&cluster, "made").await, json!(["example.com/v2", {"color": "red", "size": 3}]));
    let blue = json!({"spec": {"color": "blue", "size": null}});
    cluster.patch(&format!("{V1}/made"), MERGE, &blue).await.expect(200);
    assert_eq!(shown(&cluster, "made").await, json!(["example.com/v2", {"color": "blue", "size": 3}]));
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    cluster.patch(&format!("{V1}/made"), MERGE, &held).await.expect(200);
    cluster.delete(&format!("{V1}/made")).await.expect(200);
    assert_eq!(shown(&cluster, "made").await, json!(["example.com/v2", {"color": "blue", "size": 3}]));
}

/// A request that has looked up its resource and still sends its body when the storage version changes.
#[tokio::test]
async fn a_slow_write_is_kept_as_its_kind_is_by_then() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &definition("v1")).await.expect(201);
    cluster.post(V1, &gauge("changed")).await.expect(201);
    let send = |method: &str, path: &str, content_type: &str| {
        let (give, body) = oneshot::channel::<Value>();
        let body = stream::once(async move {
            Ok::<_, std::io::Error>(Frame::data(Bytes::from(body.await.expect("is given").to_string())))
        });
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        (give, Box::pin(cluster.send(request.body(StreamBody::new(body)).unwrap())))
    };
    let (give_new, mut creating) = send("POST", V1, "application/json");
    let (give_change, mut changing) = send("PATCH", &format!("{V1}/changed"), MERGE);
    assert!(poll!(&mut creating).is_pending());
    assert!(poll!(&mut changing).is_pending());
    let kept_in_v2 = json!({"spec": {"versions": versions("v2")}});
    cluster.patch(&format!("{CRDS}/gauges.example.com"), MERGE, &kept_in_v2).await.expect(200);
    give_new.send(gauge("late")).unwrap();
    give_change.send(json!({"spec": {"color": "blue"}})).unwrap();
    assert_eq!(creating.await.status().as_u16(), 201);
    assert_eq!(changing.await.status().as_u16(), 200);
    assert_eq!(shown(&cluster, "late").await, json!(["example.com/v2", {"color": "red", "size": 3}]));
    assert_eq!(shown(&cluster, "changed").await, json!(["example.com/v2", {"color": "blue", "size": 3}]));
}
