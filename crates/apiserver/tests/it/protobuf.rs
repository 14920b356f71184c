//! Protobuf, as Go clients send built-in kinds and prefer to read them: what is stored is what the same object as JSON would
//! be, and answers say the same as those in JSON.

use serde_json::{Value, json};

use konverge_store::{Commit, Write};

use crate::cluster::{
    APPLY, Answer, CONFIG_MAPS, CRDS, Cluster, DEPLOYMENTS, MERGE, PODS, PROTOBUF, SECRETS, WIDGETS, config_map, pod,
    widget,
};

/// What client-go's typed clients accept.
const ACCEPT: &str = "application/vnd.kubernetes.protobuf,application/json";

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field that is a number.
fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field that is a text.
fn text(field: u64, value: &str) -> Vec<u8> {
    message(field, &[value.as_bytes().to_vec()])
}

/// A field that is a message with these fields.
fn message(field: u64, fields: &[Vec<u8>]) -> Vec<u8> {
    let bytes = fields.concat();
    [varint(field << 3 | 2), varint(bytes.len() as u64), bytes].concat()
}

/// A whole body.
fn body(api_version: &str, kind: &str, fields: &[Vec<u8>]) -> Vec<u8> {
    let names = message(1, &[text(1, api_version), text(2, kind)]);
    [b"k8s\0".to_vec(), names, message(2, fields), text(3, ""), text(4, "")].concat()
}

fn metadata(name: &str) -> Vec<u8> {
    message(1, &[text(1, name), text(2, ""), text(3, ""), text(4, ""), text(5, ""), text(6, ""), number(7, 0)])
}

fn config_map_body(name: &str, value: &str) -> Vec<u8> {
    body("v1", "ConfigMap", &[metadata(name), message(2, &[text(1, "k"), text(2, value)])])
}

/// A deployment with a pointer to 0 and the empty structs that Go always sends.
fn deployment_body(name: &str) -> Vec<u8> {
    let labels = |field| message(field, &[text(1, "app"), text(2, "web")]);
    let container = message(2, &[text(1, "web"), text(2, "nginx"), text(5, ""), message(8, &[]), number(16, 0)]);
    let template = message(3, &[message(1, &[text(1, ""), labels(11)]), message(2, &[container, text(3, "")])]);
    let spec =
        message(2, &[number(1, 0), message(2, &[labels(1)]), template, message(4, &[text(1, "")]), number(7, 0)]);
    body("apps/v1", "Deployment", &[metadata(name), spec, message(3, &[number(1, 0), number(2, 0)])])
}

async fn send(cluster: &Cluster, method: &str, path: &str, body: Vec<u8>) -> Answer {
    cluster.ask(method, path, &[("content-type", PROTOBUF), ("accept", ACCEPT)], body).await
}

/// An object without what differs between any two objects.
fn alike(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["name", "uid", "resourceVersion"] {
        metadata.remove(field).unwrap();
    }
    object
}

#[tokio::test]
async fn an_object_is_the_same_however_it_was_sent() {
    let cluster = Cluster::new().await;
    let sent = send(&cluster, "POST", DEPLOYMENTS, deployment_body("a")).await;
    assert_eq!(sent.header("content-type"), PROTOBUF);
    let json = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b"},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "strategy": {},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx", "resources": {}}]},
            },
        },
        "status": {},
    });
    let (sent, json) = (sent.expect(201), cluster.post(DEPLOYMENTS, &json).await.expect(201));
    assert_eq!(sent["spec"]["replicas"], 0);
    assert_eq!(sent["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(alike(sent), alike(json));
}

#[tokio::test]
async fn every_write_of_a_typed_client() {
    let cluster = Cluster::new().await;
    let path = |name: &str| format!("{CONFIG_MAPS}/{name}");
    send(&cluster, "POST", CONFIG_MAPS, config_map_body("a", "1")).await.expect(201);
    let updated = send(&cluster, "PUT", &path("a"), config_map_body("a", "2")).await.expect(200);
    assert_eq!(updated["data"], json!({"k": "2"}));
    let dry = send(&cluster, "POST", &format!("{CONFIG_MAPS}?dryRun=All"), config_map_body("b", "1")).await;
    assert_eq!(dry.expect(201)["data"], json!({"k": "1"}));
    cluster.get(&path("b")).await.fails(404, "NotFound");

    // Replicas of a deployment through its scale.
    send(&cluster, "POST", DEPLOYMENTS, deployment_body("web")).await.expect(201);
    let scale = |name| body("autoscaling/v1", "Scale", &[metadata(name), message(2, &[number(1, 3)])]);
    let scaled = send(&cluster, "PUT", &format!("{DEPLOYMENTS}/web/scale"), scale("web")).await.expect(200);
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    let status = body("apps/v1", "Deployment", &[metadata("web"), message(3, &[number(1, 7)])]);
    let status = send(&cluster, "PUT", &format!("{DEPLOYMENTS}/web/status"), status).await.expect(200);
    assert_eq!((&status["status"]["observedGeneration"], &status["spec"]["replicas"]), (&json!(7), &json!(3)));

    // A pod gets its node, and is evicted.
    cluster.post(PODS, &pod("p")).await.expect(201);
    let binding = body("v1", "Binding", &[metadata("p"), message(2, &[text(1, "Node"), text(3, "n")])]);
    send(&cluster, "POST", &format!("{PODS}/p/binding"), binding).await.expect(201);
    assert_eq!(cluster.get(&format!("{PODS}/p")).await.expect(200)["spec"]["nodeName"], "n");
    let eviction = body("policy/v1", "Eviction", &[metadata("p"), message(2, &[number(1, 0)])]);
    send(&cluster, "POST", &format!("{PODS}/p/eviction"), eviction).await.expect(201);
    cluster.get(&format!("{PODS}/p")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn delete_options() {
    let cluster = Cluster::with_widgets().await;
    for name in ["a", "b"] {
        cluster.post(CONFIG_MAPS, &config_map(name)).await.expect(201);
    }
    cluster.post(WIDGETS, &widget("w")).await.expect(201);
    let options = |fields: &[Vec<u8>]| body("v1", "DeleteOptions", fields);
    let path = format!("{CONFIG_MAPS}/a");
    let stale = options(&[message(2, &[text(1, "another")])]);
    send(&cluster, "DELETE", &path, stale).await.fails(409, "Conflict");
    send(&cluster, "DELETE", &path, options(&[text(5, "All")])).await.expect(200);
    cluster.get(&path).await.expect(200);
    let refused = send(&cluster, "DELETE", &path, config_map_body("a", "1")).await.fails(400, "BadRequest");
    assert_eq!(refused, "decoded object cannot be converted to DeleteOptions");
    send(&cluster, "DELETE", &path, options(&[number(1, 0), text(4, "Background")])).await.expect(200);
    cluster.get(&path).await.fails(404, "NotFound");
    // Delete options are of a built-in kind, whatever they delete.
    send(&cluster, "DELETE", &format!("{WIDGETS}/w"), options(&[text(4, "Foreground")])).await.expect(200);
    send(&cluster, "DELETE", CONFIG_MAPS, options(&[])).await.expect(200);
    cluster.get(&format!("{CONFIG_MAPS}/b")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn what_the_envelope_says() {
    let cluster = Cluster::new().await;
    let fields = |name| [metadata(name), message(2, &[text(1, "k"), text(2, "v")])];
    // Nothing means what the path means.
    let made = send(&cluster, "POST", CONFIG_MAPS, body("", "", &fields("a"))).await.expect(201);
    assert_eq!((&made["apiVersion"], &made["kind"]), (&json!("v1"), &json!("ConfigMap")));
    for (api_version, kind, expect) in [
        (
            "v1",
            "Secret",
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown \
             conversion",
        ),
        (
            "apps/v1",
            "Deployment",
            "Deployment in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): \
             unknown conversion",
        ),
        (
            "v1",
            "Cat",
            "Cat in version \"v1\" cannot be handled as a ConfigMap: no kind \"Cat\" is registered for version \"v1\"",
        ),
    ] {
        let refused = send(&cluster, "POST", CONFIG_MAPS, body(api_version, kind, &[])).await;
        assert_eq!(refused.fails(400, "BadRequest"), expect);
    }
}

#[tokio::test]
async fn what_cannot_be_read() {
    let cluster = Cluster::with_widgets().await;
    let unrecognized = "the object provided is unrecognized (must be of type ConfigMap): ";
    let json = config_map("a").to_string();
    for (body, expect) in [
        (vec![], format!("{unrecognized}empty data (<empty>)")),
        (b"k8s\0\x0a\x05".to_vec(), format!("{unrecognized}unexpected EOF (6b3873000a05)")),
        (
            json.as_bytes().to_vec(),
            format!(
                "{unrecognized}provided data does not appear to be a protobuf message, \
                 expected prefix [107 56 115 0] ({} ...)",
                &json[..30]
            ),
        ),
        (
            body("v1", "ConfigMap", &[number(1, 1)]),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: \
             proto: wrong wireType = 0 for field metadata"
                .to_owned(),
        ),
    ] {
        assert_eq!(send(&cluster, "POST", CONFIG_MAPS, body).await.fails(400, "BadRequest"), expect);
    }
    // A quantity is checked after decoding, in the same words as in JSON.
    let limits = message(1, &[text(1, "cpu"), message(2, &[text(1, "much")])]);
    let container = message(2, &[text(1, "c"), text(2, "i"), message(8, &[limits])]);
    let pod = body("v1", "Pod", &[metadata("p"), message(2, &[container])]);
    assert_eq!(
        send(&cluster, "POST", PODS, pod).await.fails(400, "BadRequest"),
        "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    let custom = send(&cluster, "POST", WIDGETS, body("example.com/v1", "Widget", &[metadata("w")])).await;
    assert_eq!(
        custom.fails(415, "UnsupportedMediaType"),
        "the body of the request was in an unknown format - accepted media types include: \
         application/json, application/yaml"
    );
    let patch = send(&cluster, "PATCH", &format!("{CONFIG_MAPS}/a"), config_map_body("a", "1")).await;
    patch.fails(415, "UnsupportedMediaType");
    assert_eq!(cluster.get(CONFIG_MAPS).await.expect(200)["items"], json!([]));
}

/// A message does not name its fields, so a field that is not known can only be skipped.
#[tokio::test]
async fn strict_validation_has_nothing_to_refuse() {
    let cluster = Cluster::new().await;
    let sent = body("v1", "ConfigMap", &[metadata("a"), text(99, "from a newer release")]);
    let answer = send(&cluster, "POST", &format!("{CONFIG_MAPS}?fieldValidation=Strict"), sent).await;
    assert_eq!(answer.warnings(), Vec::<String>::new());
    answer.expect(201);
}

/// Metadata alone, as client-go's metadata client asks for it.
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                        application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                             application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

#[tokio::test]
async fn answers_are_what_the_client_prefers() {
    let cluster = Cluster::with_widgets().await;
    let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,\
                 application/json;as=Table;v=v1;g=meta.k8s.io";
    send(&cluster, "POST", CONFIG_MAPS, config_map_body("a", "1")).await.expect(201);
    cluster.post(WIDGETS, &widget("w")).await.expect(201);
    let (one, none, custom) = (&*format!("{CONFIG_MAPS}/a"), &*format!("{CONFIG_MAPS}/b"), &*format!("{WIDGETS}/w"));
    let json = "application/json";
    let group = "/apis/apps";
    for (path, accept, code, content_type, kind) in [
        (one, ACCEPT, 200, PROTOBUF, "ConfigMap"),
        (one, PROTOBUF, 200, PROTOBUF, "ConfigMap"),
        (one, "application/json,application/vnd.kubernetes.protobuf", 200, json, "ConfigMap"),
        (one, "application/vnd.kubernetes.protobuf;q=0.1,application/json", 200, json, "ConfigMap"),
        (CONFIG_MAPS, ACCEPT, 200, PROTOBUF, "ConfigMapList"),
        (CONFIG_MAPS, table, 200, json, "Table"),
        (none, ACCEPT, 404, PROTOBUF, "Status"),
        (one, METADATA, 200, PROTOBUF, "PartialObjectMetadata"),
        (CONFIG_MAPS, METADATA_LIST, 200, PROTOBUF, "PartialObjectMetadataList"),
        // Custom resources have no messages, but their metadata and their failures have.
        (custom, ACCEPT, 200, json, "Widget"),
        (custom, PROTOBUF, 406, PROTOBUF, "Status"),
        (WIDGETS, ACCEPT, 200, json, "WidgetList"),
        (custom, METADATA, 200, PROTOBUF, "PartialObjectMetadata"),
        (WIDGETS, METADATA_LIST, 200, PROTOBUF, "PartialObjectMetadataList"),
        (CRDS, ACCEPT, 200, PROTOBUF, "CustomResourceDefinitionList"),
        ("/apis", ACCEPT, 200, PROTOBUF, "APIGroupList"),
        (group, ACCEPT, 200, PROTOBUF, "APIGroup"),
        ("/apis/apps/v1", ACCEPT, 200, PROTOBUF, "APIResourceList"),
    ] {
        let answer = cluster.accept(path, accept).await;
        assert_eq!((answer.code, answer.header("content-type")), (code, content_type), "{path} {accept}");
        let (found, expect) = (answer.json(), cluster.accept(path, &accept.replace(PROTOBUF, json)).await.json());
        assert_eq!(found["kind"], kind, "{path} {accept}");
        assert_eq!(without_names(found), without_names(expect), "{path} {accept}");
    }
    assert_eq!(
        cluster.accept(custom, PROTOBUF).await.fails(406, "NotAcceptable"),
        "only the following media types are accepted: \
         application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
    // A failure is as readable as what was asked for.
    assert_eq!(cluster.accept(none, "application/yaml").await.header("content-type"), "application/yaml");
    assert_eq!(cluster.accept("/version", ACCEPT).await.header("content-type"), json);
    // The oldest document does not say its version, so nobody could find its message by it.
    let oldest = cluster.accept("/api", ACCEPT).await;
    assert_eq!((oldest.code, oldest.header("content-type")), (200, PROTOBUF));
    assert!(oldest.body.starts_with(b"k8s\0\x0a\x0f\x0a\0\x12\x0bAPIVersions\x12"), "{:?}", oldest.body);
}

/// An answer without what differs: in protobuf, items do not say what they are, and neither do all of the items in JSON. The
/// 406 and its text are of the answer that was asked for.
fn without_names(mut answer: Value) -> Value {
    if answer["code"] == 406 || answer["kind"] == "Widget" {
        return json!({});
    }
    for item in answer["items"].as_array_mut().into_iter().flatten() {
        item.as_object_mut().unwrap().retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
    }
    answer
}

#[tokio::test]
async fn watches_send_frames() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(WIDGETS, &widget("w")).await.expect(201);
    send(&cluster, "POST", CONFIG_MAPS, config_map_body("a", "1")).await.expect(201);
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("{CONFIG_MAPS}?{query}");
    let accept = "application/vnd.kubernetes.protobuf;stream=watch,application/json;stream=watch";
    let mut whole = [cluster.watch_as(&path, accept).await, cluster.watch_as(&path, "application/json").await];
    let mut metadata = cluster.watch_as(&path, METADATA).await;
    for events in &mut whole {
        assert_eq!(events.next_brief().await, "ADDED a");
        let bookmark = events.next().await;
        assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("ConfigMap")));
        assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
    assert_eq!(metadata.next().await["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(metadata.next_brief().await, "BOOKMARK ");

    send(&cluster, "PUT", &format!("{CONFIG_MAPS}/a"), config_map_body("a", "2")).await.expect(200);
    let [of_protobuf, of_json] = &mut whole;
    let (found, expect) = (of_protobuf.next().await, of_json.next().await);
    assert_eq!(found, expect);
    assert_eq!((&found["type"], &found["object"]["data"]), (&json!("MODIFIED"), &json!({"k": "2"})));
    let seen = metadata.next().await;
    assert_eq!((&seen["type"], seen["object"].get("data")), (&json!("MODIFIED"), None));
    assert_eq!(seen["object"]["metadata"], expect["object"]["metadata"]);
    cluster.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    assert_eq!((of_protobuf.next_brief().await, of_json.next_brief().await), ("DELETED a".into(), "DELETED a".into()));

    // A custom resource is watched as JSON, and its metadata in frames.
    let path = format!("{WIDGETS}?watch=true&resourceVersion=0");
    assert_eq!(cluster.watch_as(&path, accept).await.next().await["object"]["kind"], "Widget");
    let seen = cluster.watch_as(&path, METADATA).await.next().await;
    assert_eq!(
        (&seen["object"]["kind"], &seen["object"]["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("w"))
    );

    // An error comes as a frame, too.
    cluster.compact();
    let mut late = cluster.watch_as(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=1"), accept).await;
    let event = late.next().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    late.end().await;
}

/// A list that is too large to be kept is encoded twice, and is the same.
#[tokio::test]
async fn large_lists() {
    let cluster = Cluster::new().await;
    let large = "x".repeat(900 * 1024);
    for number in 0..12 {
        let mut object = config_map(&format!("c{number:02}"));
        object["data"]["large"] = large.as_str().into();
        cluster.post(CONFIG_MAPS, &object).await.expect(201);
    }
    for path in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}?limit=5")] {
        let (found, expect) = (cluster.accept(&path, PROTOBUF).await.expect(200), cluster.get(&path).await.expect(200));
        assert_eq!(found["metadata"], expect["metadata"], "{path}");
        assert!(without_names(found) == without_names(expect), "{path}");
    }
}

/// An object that got into the store though a value does not fit its type: whoever reads many objects learns which one it is, and
/// everything that speaks JSON works, so that it can be repaired.
#[tokio::test]
async fn an_object_that_cannot_be_encoded_is_named_and_can_be_repaired() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bad"}, "data": {"k": "aGk="}});
    let path = format!("{SECRETS}/bad");
    for (repair, content_type, body) in [
        ("PUT", "application/json", secret.clone()),
        ("PATCH", MERGE, json!({"data": {"k": "aGk="}})),
        ("PATCH", APPLY, secret.clone()),
        ("DELETE", "application/json", json!({})),
    ] {
        let cluster = Cluster::new().await;
        cluster.post(SECRETS, &secret).await.expect(201);
        let store = cluster.server.store();
        let entry = store.get("/registry/core/secrets/default/bad", None).unwrap().unwrap();
        let junk = String::from_utf8(entry.value.to_vec()).unwrap().replace("aGk=", "!!!");
        let writes = vec![Write::Put(entry.key, junk.into())];
        store.commit(Commit { conditions: Vec::new(), writes }).await.unwrap();

        let words = "Secret default/bad cannot be encoded to protobuf";
        let listed = cluster.accept("/api/v1/secrets", PROTOBUF).await.fails(500, "InternalError");
        assert!(listed.contains(words), "{listed}");
        let mut watch = cluster.watch_as("/api/v1/secrets?watch=true", PROTOBUF).await;
        let event = watch.next().await;
        assert_eq!(event["type"], "ERROR");
        assert!(event["object"]["message"].as_str().unwrap().contains(words), "{event}");
        assert_eq!(cluster.get(&path).await.expect(200)["data"]["k"], "!!!");

        let url = if content_type == APPLY { format!("{path}?fieldManager=me&force=true") } else { path.clone() };
        cluster.ask(repair, &url, &[("content-type", content_type)], body.to_string()).await.expect(200);
        cluster.accept("/api/v1/secrets", PROTOBUF).await.expect(200);
    }
}
