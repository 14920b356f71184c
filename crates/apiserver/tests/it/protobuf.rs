//! Bodies in protobuf, as Go clients send built-in kinds: what is stored is what the same object as JSON would be, and
//! answers are JSON.

use serde_json::{Value, json};

use crate::cluster::{Answer, CONFIG_MAPS, Cluster, DEPLOYMENTS, PODS, WIDGETS, config_map, pod, widget};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

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
    assert_eq!(sent.header("content-type"), "application/json");
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
        ("v1", "Secret", "the kind in the data (Secret) does not match the expected kind (ConfigMap)"),
        ("apps/v1", "Deployment", "the API version in the data (apps/v1) does not match the expected API version (v1)"),
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

#[tokio::test]
async fn answers_are_json() {
    let cluster = Cluster::new().await;
    let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,\
                 application/json;as=Table;v=v1;g=meta.k8s.io";
    send(&cluster, "POST", CONFIG_MAPS, config_map_body("a", "1")).await.expect(201);
    for (path, accept, code, kind) in [
        (&*format!("{CONFIG_MAPS}/a"), ACCEPT, 200, "ConfigMap"),
        (CONFIG_MAPS, ACCEPT, 200, "ConfigMapList"),
        (CONFIG_MAPS, table, 200, "Table"),
        (&format!("{CONFIG_MAPS}/b"), ACCEPT, 404, "Status"),
        ("/apis", ACCEPT, 200, "APIGroupList"),
    ] {
        let answer = cluster.ask("GET", path, &[("accept", accept)], "").await;
        assert_eq!((answer.code, answer.header("content-type")), (code, "application/json"), "{path} {accept}");
        assert_eq!(answer.json()["kind"], kind, "{path} {accept}");
    }
    let mut events = cluster
        .watch_as(
            &format!("{CONFIG_MAPS}?watch=true&resourceVersion=0"),
            &ACCEPT.replace("protobuf,", "protobuf;stream=watch,"),
        )
        .await;
    assert_eq!(events.next_brief().await, "ADDED a");
}
