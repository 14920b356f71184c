//! Every way to an object of another version, with a converter that renames a field, counts its calls, waits or fails.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, BodyStream, Full};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Semaphore;
use tower_service::Service;

use konverge_store::{Memory, Retention};

use super::*;
use crate::body::Body;
use crate::server::{ApiServer, Collector, Options};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/widgets";
const V2: &str = "/apis/example.com/v2/namespaces/default/widgets";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

/// What a test does to the objects that a converter gives back.
type Spoil = Box<dyn Fn(&mut Vec<Value>) + Send + Sync>;

/// In v1 a widget has a `color` and `replicas`, in v2 `paint` and `size`.
struct Renames {
    calls: AtomicUsize,
    /// Each conversion takes one.
    permits: Semaphore,
    fails: AtomicBool,
    /// What becomes of an object after it was converted.
    spoil: Mutex<Spoil>,
}

impl Default for Renames {
    fn default() -> Self {
        Self {
            calls: AtomicUsize::default(),
            permits: Semaphore::new(1000),
            fails: AtomicBool::default(),
            spoil: Mutex::new(Box::new(|_| {})),
        }
    }
}

impl Converter for Renames {
    fn convert<'a>(
        &'a self,
        mut objects: Vec<Value>,
        to: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, ConversionError>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Relaxed);
            self.permits.acquire().await.expect("never closed").forget();
            if self.fails.load(Relaxed) {
                let why = "Post \"https://hook/convert\": connection refused".into();
                return Err(ConversionError { why, failure: ConversionFailure::Call });
            }
            for object in &mut objects {
                object["apiVersion"] = to.into();
                let spec = object["spec"].as_object_mut().expect("widgets have a spec");
                for (in_v1, in_v2) in [("color", "paint"), ("replicas", "size")] {
                    let (from, into) = if to.ends_with("v2") { (in_v1, in_v2) } else { (in_v2, in_v1) };
                    if let Some(value) = spec.remove(from) {
                        spec.insert(into.to_owned(), value);
                    }
                }
                // A converter may change labels, and nothing else of the metadata.
                object["metadata"]["labels"] = json!({"version": to.rsplit('/').next()});
                object["metadata"]["generation"] = 1000.into();
            }
            (*self.spoil.lock())(&mut objects);
            Ok(objects)
        })
    }
}

struct Scene {
    api: ApiServer,
    converter: Arc<Renames>,
}

impl Scene {
    async fn new(collector: Collector) -> Self {
        let converter = Arc::new(Renames::default());
        let found = converter.clone();
        let converters = Arc::new(move |_: &Value| Some(found.clone() as Arc<dyn Converter>));
        let store = Arc::new(Memory::new(Retention::default(), Revision(0)));
        let options = Options { collector, ..Options::default() };
        let api = ApiServer::start_with(store, options, |_| converters).await.unwrap();
        let scene = Self { api, converter };
        scene.expect("POST", CRDS, definition(), 201).await;
        scene
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Response<Body> {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.api.clone().call(request.body(Full::new(body)).unwrap()).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> (u16, Value) {
        let response = self.send(method, path, headers, body).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn expect(&self, method: &str, path: &str, body: Value, code: u16) -> Value {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let (found, answer) = self.ask(method, path, &[("content-type", kind)], body).await;
        assert_eq!(found, code, "{method} {path}: {answer}");
        answer
    }

    /// How often the converter was called since the last look.
    fn calls(&self) -> usize {
        self.converter.calls.swap(0, Relaxed)
    }
}

fn definition() -> Value {
    let version = |name: &str, color: &str, replicas: &str| {
        let spec = json!({"type": "object", "properties": {color: {"type": "string"}, replicas: {"type": "integer"}}});
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": spec, "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            }}},
            "selectableFields": [{"jsonPath": format!(".spec.{color}")}],
            "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": format!(".spec.{color}")}],
            "subresources": {
                "scale": {"specReplicasPath": format!(".spec.{replicas}"), "statusReplicasPath": ".status.replicas"},
            },
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            // The version that objects are not stored in comes first, as clients prefer it.
            "versions": [version("v2", "paint", "size"), version("v1", "color", "replicas")],
        },
    })
}

fn v1(name: &str, color: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
           "spec": {"color": color, "replicas": 3}})
}

fn v2(name: &str, paint: &str) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name}, "spec": {"paint": paint}})
}

#[tokio::test]
async fn reads_through_another_version_are_converted_at_once() {
    let scene = Scene::new(Collector::Elsewhere).await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        scene.expect("POST", V1, v1(name, color), 201).await;
    }
    scene.expect("GET", V1, Value::Null, 200).await;
    scene.expect("GET", &format!("{V1}/a?fieldSelector=spec.color%3Dred"), Value::Null, 200).await;
    assert_eq!(scene.calls(), 0, "the stored version needs no converter");

    let object = scene.expect("GET", &format!("{V2}/a"), Value::Null, 200).await;
    assert_eq!(
        (&object["apiVersion"], &object["spec"]),
        (&json!("example.com/v2"), &json!({"paint": "red", "size": 3}))
    );
    assert_eq!(object["metadata"]["labels"], json!({"version": "v2"}));
    assert_eq!(object["metadata"]["generation"], 1, "metadata other than labels and annotations stays");
    assert_eq!(scene.calls(), 1);

    let check = async |path: &str, accept: &str, pointer: &str, expect: Value| {
        let (code, answer) = scene.ask("GET", path, &[("accept", accept)], Value::Null).await;
        let items = answer.pointer("/items").or(answer.pointer("/rows")).cloned().unwrap_or(json!([answer]));
        let found: Value = items.as_array().unwrap().iter().map(|item| item.pointer(pointer).cloned()).collect();
        assert_eq!((code, found), (200, expect), "{path} {accept}");
        assert_eq!(scene.calls(), 1, "one call for all objects: {path} {accept}");
    };
    let json = "application/json";
    check(V2, json, "/spec/paint", json!(["red", "blue", "red"])).await;
    check(&format!("{V2}?fieldSelector=spec.paint%3Dred"), json, "/metadata/name", json!(["a", "c"])).await;
    check(&format!("{V2}?labelSelector=version%3Dv2"), json, "/metadata/name", json!(["a", "b", "c"])).await;
    check(&format!("{V2}?labelSelector=version%3Dv1"), json, "/metadata/name", json!([])).await;
    check(V2, TABLE, "/cells/1", json!(["red", "blue", "red"])).await;
    check(&format!("{V2}/a"), TABLE, "/cells/1", json!(["red"])).await;
    check(&format!("{V2}/a"), METADATA, "/metadata/labels/version", json!(["v2"])).await;
    check(&format!("{V2}/a/scale"), json, "/spec/replicas", json!([3])).await;
}

#[tokio::test]
async fn writes_through_another_version_are_stored_in_the_one_version() {
    let scene = Scene::new(Collector::Elsewhere).await;
    let spec = async |expect: Value| {
        let stored = scene.expect("GET", &format!("{V1}/a"), Value::Null, 200).await;
        assert_eq!(stored["spec"], expect);
    };
    let made = scene.expect("POST", V2, v2("a", "red"), 201).await;
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("example.com/v2"), &json!({"paint": "red"})));
    spec(json!({"color": "red"})).await;
    let mut replaced = made.clone();
    replaced["spec"]["paint"] = "blue".into();
    let replaced = scene.expect("PUT", &format!("{V2}/a"), replaced, 200).await;
    assert_eq!(replaced["spec"], json!({"paint": "blue"}));
    spec(json!({"color": "blue"})).await;
    scene.expect("PATCH", &format!("{V2}/a"), json!({"spec": {"size": 2}}), 200).await;
    spec(json!({"color": "blue", "replicas": 2})).await;
    let scale = scene.expect("PATCH", &format!("{V2}/a/scale"), json!({"spec": {"replicas": 5}}), 200).await;
    assert_eq!(scale["spec"], json!({"replicas": 5}));
    spec(json!({"color": "blue", "replicas": 5})).await;
    let headers = [("content-type", "application/apply-patch+yaml")];
    let (code, applied) =
        scene.ask("PATCH", &format!("{V2}/a?fieldManager=me&force=true"), &headers, v2("a", "green")).await;
    assert_eq!((code, &applied["spec"]), (200, &json!({"paint": "green", "size": 5})), "{applied}");
    spec(json!({"color": "green", "replicas": 5})).await;
    let dry = scene.expect("PATCH", &format!("{V2}/a?dryRun=All"), json!({"spec": {"size": 9}}), 200).await;
    assert_eq!(dry["spec"]["size"], 9);
    spec(json!({"color": "green", "replicas": 5})).await;
    scene.expect("DELETE", &format!("{V2}/a"), Value::Null, 200).await;
    scene.expect("GET", &format!("{V1}/a"), Value::Null, 404).await;
}

const FAILED: &str =
    "conversion webhook for example.com/v1, Kind=Widget failed: Post \"https://hook/convert\": connection refused";

#[tokio::test]
async fn a_failed_conversion_is_a_500_with_its_words() {
    let scene = Scene::new(Collector::Elsewhere).await;
    scene.expect("POST", V1, v1("a", "red"), 201).await;
    scene.converter.fails.store(true, Relaxed);
    let revision = scene.api.store().revision();
    for (method, path, body) in [
        ("GET", format!("{V2}/a"), Value::Null),
        ("GET", format!("{V2}/a/scale"), Value::Null),
        ("GET", V2.to_owned(), Value::Null),
        ("GET", format!("{V2}?fieldSelector=spec.paint%3Dred"), Value::Null),
        ("GET", format!("{V2}?limit=1"), Value::Null),
        (
            "PUT",
            format!("{V2}/a"),
            json!({"apiVersion": "example.com/v2", "kind": "Widget", "spec": {},
                                          "metadata": {"name": "a", "resourceVersion": revision.to_string()}}),
        ),
        ("PATCH", format!("{V2}/a"), json!({"spec": {"size": 2}})),
        ("PATCH", format!("{V2}/a/scale"), json!({"spec": {"replicas": 2}})),
        ("DELETE", format!("{V2}/a"), Value::Null),
        ("DELETE", V2.to_owned(), Value::Null),
    ] {
        let answer = scene.expect(method, &path, body, 500).await;
        assert_eq!((&answer["kind"], &answer["message"]), (&json!("Status"), &json!(FAILED)), "{method} {path}");
    }
    let refused = scene.expect("POST", V2, v2("b", "red"), 500).await;
    assert_eq!(refused["message"], FAILED.replace("/v1", "/v2"));
    let (code, table) = scene.ask("GET", V2, &[("accept", TABLE)], Value::Null).await;
    assert_eq!((code, &table["message"]), (500, &json!(FAILED)));
    assert_eq!(scene.api.store().revision(), revision, "nothing was written");
    // The version that objects are stored in is served all the same.
    scene.expect("PATCH", &format!("{V1}/a"), json!({"spec": {"replicas": 2}}), 200).await;
    scene.expect("DELETE", &format!("{V1}/a"), Value::Null, 200).await;
}

#[tokio::test]
async fn what_a_converter_gives_back_is_checked() {
    let scene = Scene::new(Collector::Elsewhere).await;
    scene.expect("POST", V1, v1("a", "red"), 201).await;
    let metadata = |field: &'static str, value: Value| -> Spoil {
        Box::new(move |objects| objects[0]["metadata"][field] = value.clone())
    };
    let cases: Vec<(Spoil, &str, &str)> = vec![
        (Box::new(|objects| drop(objects.pop())), "returned 0 objects, expected 1", "returned 0 objects, expected 1"),
        (
            Box::new(|objects| objects[0]["apiVersion"] = "example.com/v3".into()),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
            "returned invalid converted object at index 0: invalid groupVersion (expected example.com/v2, received \
             example.com/v3)",
        ),
        (
            Box::new(|objects| objects[0]["kind"] = "Gadget".into()),
            "returned invalid object at index 0: invalid kind (expected Widget, received Gadget)",
            "returned invalid converted object at index 0: invalid kind (expected Widget, received Gadget)",
        ),
        (
            metadata("name", "b".into()),
            "returned invalid object: must have the same name: a != b",
            "returned invalid converted object at index 0: must have the same name: a != b",
        ),
        (
            metadata("namespace", "x".into()),
            "returned invalid object: must have the same namespace: default != x",
            "returned invalid converted object at index 0: must have the same namespace: default != x",
        ),
        (
            Box::new(|objects| objects[0]["metadata"] = 7.into()),
            "returned invalid object: must have the same name: a != ",
            "returned invalid converted object at index 0: must have the same name: a != ",
        ),
        (
            metadata("labels", json!(["a"])),
            "returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
            "returned invalid metadata in object at index 0: invalid metadata.labels of type []interface {} in \
             converted object",
        ),
        (
            metadata("annotations", json!({"a": 1})),
            "returned invalid metadata: metadata.annotations[a] must be a string, but is int64 in converted object",
            "returned invalid metadata in object at index 0: metadata.annotations[a] must be a string, but is int64 in \
             converted object",
        ),
        (
            metadata("labels", json!({"a": "-"})),
            "returned invalid metadata: metadata.labels: Invalid value: \"-\": a valid label must be an empty string or \
             consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
             (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            "returned invalid metadata in object at index 0: metadata.labels: Invalid value: \"-\": a valid label must be \
             an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ];
    for (spoil, one, list) in cases {
        *scene.converter.spoil.lock() = spoil;
        for (path, expect) in [(format!("{V2}/a"), one), (V2.to_owned(), list)] {
            let answer = scene.expect("GET", &path, Value::Null, 500).await;
            assert_eq!(answer["message"], format!("conversion webhook for example.com/v1, Kind=Widget {expect}"));
        }
    }
    // Null is no label.
    *scene.converter.spoil.lock() = metadata("labels", Value::Null);
    let shown = scene.expect("GET", &format!("{V2}/a"), Value::Null, 200).await;
    assert_eq!(shown["metadata"].get("labels"), None);
}

/// The events of a watch, as far as they have come.
async fn events(body: Body, count: usize) -> Vec<Value> {
    let mut pieces = BodyStream::new(body);
    let mut events = Vec::new();
    while events.len() < count {
        let Some(piece) = pieces.next().await else { break };
        let piece = piece.unwrap().into_data().unwrap();
        let read = serde_json::Deserializer::from_slice(&piece).into_iter::<Value>();
        events.extend(read.map(Result::unwrap));
    }
    events
}

#[tokio::test]
async fn a_watch_shows_another_version_until_a_conversion_fails() {
    let scene = Scene::new(Collector::Elsewhere).await;
    for name in ["a", "b"] {
        scene.expect("POST", V1, v1(name, "red"), 201).await;
    }
    let watch = scene.send("GET", &format!("{V2}?watch=true"), &[], Value::Null).await;
    scene.expect("PATCH", &format!("{V1}/a"), json!({"spec": {"color": "blue"}}), 200).await;
    let seen = events(watch.into_body(), 3).await;
    let brief: Vec<Value> = seen.iter().map(|event| json!([event["type"], event["object"]["spec"]["paint"]])).collect();
    assert_eq!(brief, [json!(["ADDED", "red"]), json!(["ADDED", "red"]), json!(["MODIFIED", "blue"])]);
    assert_eq!(scene.calls(), 2, "one call for what was there, one for the change");

    // A selector compares what the client sees, before and after the change.
    let path =
        format!("{V2}?watch=true&fieldSelector=spec.paint%3Dblue&resourceVersion={}", scene.api.store().revision());
    let watch = scene.send("GET", &path, &[], Value::Null).await;
    scene.expect("PATCH", &format!("{V1}/a"), json!({"spec": {"color": "green"}}), 200).await;
    let seen = events(watch.into_body(), 1).await;
    assert_eq!(json!([seen[0]["type"], seen[0]["object"]["spec"]["paint"]]), json!(["DELETED", "blue"]));

    let error = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
                       "message": FAILED});
    let after = format!("{V2}?watch=true&resourceVersion={}", scene.api.store().revision());
    let watch = scene.send("GET", &after, &[], Value::Null).await;
    scene.converter.fails.store(true, Relaxed);
    scene.expect("PATCH", &format!("{V1}/b"), json!({"spec": {"color": "blue"}}), 200).await;
    assert_eq!(events(watch.into_body(), usize::MAX).await, [json!({"type": "ERROR", "object": error})]);
    let watch = scene.send("GET", &format!("{V2}?watch=true"), &[], Value::Null).await;
    assert_eq!(watch.status().as_u16(), 200);
    assert_eq!(events(watch.into_body(), usize::MAX).await, [json!({"type": "ERROR", "object": error})]);
}

/// On a runtime with one thread: others are served while a converter is waited for.
#[tokio::test(flavor = "current_thread")]
async fn nobody_else_waits_for_a_converter() {
    let scene = Scene::new(Collector::Elsewhere).await;
    scene.expect("POST", V1, v1("a", "red"), 201).await;
    let watch = scene.send("GET", &format!("{V2}?watch=true"), &[], Value::Null).await;
    let permits = scene.converter.permits.forget_permits(usize::MAX);
    let path = format!("{V2}/a");
    let slow = scene.expect("GET", &path, Value::Null, 200);
    let listed = scene.expect("GET", V2, Value::Null, 200);
    let watched = events(watch.into_body(), 1);
    let others = async {
        while scene.converter.calls.load(Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
        scene.expect("GET", &format!("{V1}/a"), Value::Null, 200).await;
        scene.expect("POST", V1, v1("b", "blue"), 201).await;
        scene.converter.permits.add_permits(permits);
    };
    let (slow, listed, watched, ()) = tokio::join!(slow, listed, watched, others);
    assert_eq!(slow["spec"]["paint"], "red");
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "a list shows the revision it was read at");
    assert_eq!(watched[0]["object"]["spec"]["paint"], "red");
}

/// The server's own tasks read objects in the version they are stored in.
#[tokio::test]
async fn a_failing_converter_stops_neither_namespaces_nor_definitions_from_being_deleted() {
    let scene = Scene::new(Collector::Inside).await;
    scene.expect("POST", "/api/v1/namespaces", json!({"metadata": {"name": "x"}}), 201).await;
    scene.expect("POST", &V1.replace("default", "x"), v1("a", "red"), 201).await;
    scene.expect("POST", V1, v1("a", "red"), 201).await;
    let (_, owner) = scene.ask("GET", &format!("{V1}/a"), &[], Value::Null).await;
    let mut dependent = v1("b", "red");
    dependent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "example.com/v2", "kind": "Widget", "name": "a", "uid": owner["metadata"]["uid"]}]);
    scene.expect("POST", V1, dependent, 201).await;
    scene.converter.fails.store(true, Relaxed);
    scene.expect("DELETE", "/api/v1/namespaces/x", Value::Null, 200).await;
    scene.expect("DELETE", &format!("{V1}/a"), Value::Null, 200).await;
    let gone = async |path: &str| {
        while scene.ask("GET", path, &[], Value::Null).await.0 != 404 {
            tokio::task::yield_now().await;
        }
    };
    let all = async {
        gone("/api/v1/namespaces/x").await;
        gone(&format!("{V1}/b")).await;
        scene.expect("POST", V1, v1("c", "red"), 201).await;
        scene.expect("DELETE", &format!("{CRDS}/widgets.example.com"), Value::Null, 200).await;
        gone(&format!("{CRDS}/widgets.example.com")).await;
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), all).await.expect("everything goes");
    assert_eq!(scene.calls(), 0);
}
