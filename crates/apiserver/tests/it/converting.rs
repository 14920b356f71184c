//! Conversion webhooks, through requests: objects are stored in one version and served in several. The words of failures are those
//! of kube-apiserver.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};

use konverge_apiserver::LocalWebhook;

use crate::cluster::{APPLY, AT_MOST, CRDS, Cluster, MERGE};

const V1: &str = "/apis/example.com/v1/namespaces/default/gadgets";
const V2: &str = "/apis/example.com/v2/namespaces/default/gadgets";

/// In v1 a gadget has a size, in v2, which is stored, the same is called length.
fn gadgets() -> Value {
    let version = |name: &str, field: &str, storage: bool| {
        let spec = json!({"type": "object", "properties": {field: {"type": "integer"}}});
        let status = json!({"type": "object", "properties": {"seen": {"type": "integer"}}});
        let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}}})
    };
    json!({"metadata": {"name": "gadgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [version("v1", "size", false), version("v2", "length", true)],
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "converter", "path": "/convert"}},
        }},
    }})
}

fn gadget(version: &str, name: &str, field: &str) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Gadget", "metadata": {"name": name}, "spec": {field: 3}})
}

/// How many objects each call had.
type Calls = Arc<Mutex<Vec<usize>>>;

/// Registers a webhook that renames the field, and then changes its answer.
fn serve(cluster: &Cluster, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Calls {
    let calls = Calls::default();
    let counted = calls.clone();
    let handler: LocalWebhook = Arc::new(move |request: Request<Bytes>| {
        let mut review: Value = serde_json::from_slice(request.body()).unwrap();
        let (to, uid) = (review["request"]["desiredAPIVersion"].clone(), review["request"]["uid"].clone());
        let mut objects = review["request"]["objects"].take();
        counted.lock().unwrap().push(objects.as_array().unwrap().len());
        for object in objects.as_array_mut().unwrap() {
            object["apiVersion"] = to.clone();
            let (from, to) = if to == "example.com/v1" { ("length", "size") } else { ("size", "length") };
            if let Some(spec) = object["spec"].as_object_mut()
                && let Some(value) = spec.remove(from)
            {
                spec.insert(to.to_owned(), value);
            }
        }
        let response = json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}});
        let mut answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
        change(&mut answer);
        Box::pin(std::future::ready(Response::new(Bytes::from(answer.to_string()))))
    });
    cluster.server.register_webhooks("converter.default.svc", Some(handler));
    calls
}

/// Other writes that are charged to the same quota do not wait for a converter.
#[tokio::test]
async fn a_slow_converter_holds_no_quota() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &gadgets()).await.expect(201);
    let hard = json!({"count/gadgets.example.com": "5"});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    cluster.post(quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.expect(201);
    let status = json!({"status": {"hard": hard, "used": {"count/gadgets.example.com": "0"}}});
    cluster.patch(&format!("{quotas}/q/status"), MERGE, &status).await.expect(200);
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let waiting = both.clone();
    let slow: LocalWebhook = Arc::new(move |request: Request<Bytes>| {
        let waiting = waiting.clone();
        Box::pin(async move {
            let mut review: Value = serde_json::from_slice(request.body()).unwrap();
            let mut objects = review["request"]["objects"].take();
            for object in objects.as_array_mut().unwrap() {
                object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
            }
            waiting.wait().await;
            review["response"] = json!({"uid": review["request"]["uid"], "convertedObjects": objects,
                "result": {"status": "Success"}});
            Response::new(Bytes::from(review.to_string()))
        })
    });
    cluster.server.register_webhooks("converter.default.svc", Some(slow));
    let passes = async {
        // Stored in the version that it is sent in.
        cluster.post(V2, &gadget("v2", "quick", "length")).await.expect(201);
        // For the conversion to the stored version, and for that of the answer.
        both.wait().await;
        both.wait().await;
    };
    let slow = gadget("v1", "slow", "size");
    let waits = cluster.post(V1, &slow);
    let (slow, ()) = tokio::time::timeout(AT_MOST, async { tokio::join!(waits, passes) }).await.unwrap();
    slow.expect(201);
    let used = cluster.get(&format!("{quotas}/q")).await.expect(200);
    assert_eq!(used["status"]["used"]["count/gadgets.example.com"], "2");
}

#[tokio::test]
async fn every_verb_speaks_every_version() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &gadgets()).await.expect(201);
    serve(&cluster, |_| {});
    let made = cluster.post(V1, &gadget("v1", "a", "size")).await.expect(201);
    assert_eq!(made["spec"], json!({"size": 3}));
    let (old, new) = (format!("{V1}/a"), format!("{V2}/a"));
    assert_eq!(cluster.get(&new).await.expect(200)["spec"], json!({"length": 3}));
    let mut watch = cluster.watch(&format!("{V1}?watch=1&resourceVersion={}", cluster.revision())).await;
    let patched = cluster.patch(&new, MERGE, &json!({"spec": {"length": 5}})).await.expect(200);
    assert_eq!(patched["spec"], json!({"length": 5}));
    assert_eq!(watch.next().await["object"]["spec"], json!({"size": 5}));
    let mut object = cluster.get(&old).await.expect(200);
    object["spec"]["size"] = 7.into();
    assert_eq!(cluster.put(&old, &object).await.expect(200)["spec"], json!({"size": 7}));
    let seen = cluster.patch(&format!("{old}/status"), MERGE, &json!({"status": {"seen": 1}})).await.expect(200);
    assert_eq!((&seen["spec"], &seen["status"]), (&json!({"size": 7}), &json!({"seen": 1})));
    let applied =
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "b"}, "spec": {"size": 1}});
    let path = format!("{V1}/b?fieldManager=m");
    cluster.patch(&path, APPLY, &applied).await.expect(201);
    let b = cluster.get(&format!("{V2}/b")).await.expect(200);
    assert_eq!(b["spec"], json!({"length": 1}));
    let managers = b["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers[0]["apiVersion"], "example.com/v1", "{managers:?}");
    // What the same manager no longer applies is gone.
    let without = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "b"}, "spec": {}});
    assert_eq!(cluster.patch(&path, APPLY, &without).await.expect(200)["spec"]["size"], Value::Null);
    let listed = cluster.get(V2).await.expect(200);
    assert_eq!(listed["items"][0]["spec"], json!({"length": 7}));
    assert_eq!(cluster.delete(&old).await.expect(200)["status"], "Success");
}

/// A list is converted in bounded batches, and not at all in the version that is stored.
#[tokio::test]
async fn lists_are_converted_in_batches() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &gadgets()).await.expect(201);
    for at in 0..1_000 {
        cluster.post(V2, &gadget("v2", &format!("g{at}"), "length")).await.expect(201);
    }
    let calls = serve(&cluster, |_| {});
    assert_eq!(cluster.get(V2).await.expect(200)["items"].as_array().unwrap().len(), 1_000);
    assert_eq!(*calls.lock().unwrap(), [0; 0]);
    let listed = cluster.get(V1).await.expect(200);
    let items = listed["items"].as_array().unwrap();
    assert!(items.len() == 1_000 && items.iter().all(|item| item["spec"] == json!({"size": 3})));
    assert_eq!(*calls.lock().unwrap(), [500, 500]);
}

/// A webhook that is down or answers nonsense fails the request, in words that say which.
#[tokio::test]
async fn nothing_wrong_is_served() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &gadgets()).await.expect(201);
    cluster.post(V2, &gadget("v2", "a", "length")).await.expect(201);
    let path = format!("{V1}/a");
    let start = "conversion webhook for example.com/v2, Kind=Gadget";
    let down = cluster.get(&path).await.expect(500);
    let url = "https://converter.default.svc:443/convert";
    assert_eq!(down["message"], format!("{start} failed: Post {url:?}: service \"converter\" not found"));
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 6] = [
        (|answer| answer["response"]["convertedObjects"] = json!([]), "returned 0 objects, expected 1"),
        (
            |answer| answer["response"]["result"] = json!({"status": "Failure", "message": "too hard"}),
            "failed: too hard",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["name"] = "b".into(),
            "returned invalid object: must have the same name: a != b",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["apiVersion"] = "example.com/v3".into(),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v1, received example.com/v3)",
        ),
        (|answer| answer["response"] = Value::Null, "failed: no response provided"),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"-": "x"}),
            "returned invalid metadata: metadata.labels: Invalid value: \"-\": name part must consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
             'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ];
    for (change, words) in changes {
        serve(&cluster, change);
        assert_eq!(cluster.get(&path).await.expect(500)["message"], format!("{start} {words}"));
        // What is stored is served all the same.
        assert_eq!(cluster.get(&format!("{V2}/a")).await.expect(200)["spec"], json!({"length": 3}));
    }
    // All of it is counted.
    serve(&cluster, |_| {});
    cluster.get(&path).await.expect(200);
    let page = cluster.get("/metrics").await;
    let page = String::from_utf8_lossy(&page.body).into_owned();
    for (failure, result, count) in [
        ("", "success", 1),
        ("conversion_webhook_call_failure", "failure", 1),
        ("conversion_webhook_malformed_response_failure", "failure", 2),
        ("conversion_webhook_partial_response_failure", "failure", 1),
        ("conversion_webhook_invalid_converted_object_failure", "failure", 3),
    ] {
        let labels = format!("{{failure_type=\"{failure}\",result=\"{result}\"}} {count}\n");
        for family in ["request_total", "duration_seconds_count"] {
            let line = format!("\napiserver_conversion_webhook_{family}{labels}");
            assert!(page.contains(&line), "{line} is not in {page}");
        }
    }
    for (succeeded, count) in [(false, 7), (true, 1)] {
        let labels = format!(
            "{{crd_name=\"gadgets.example.com\",from_version=\"v2\",succeeded=\"{succeeded}\",to_version=\"v1\"}} {count}\n"
        );
        assert!(page.contains(&format!("apiserver_crd_conversion_webhook_duration_seconds_count{labels}")), "{page}");
    }
}

#[tokio::test]
async fn the_strategy_is_checked() {
    let cluster = Cluster::new().await;
    let check = async |conversion: Value, expect: &str| {
        let mut definition = gadgets();
        definition["spec"]["conversion"] = conversion;
        let said = cluster.post(CRDS, &definition).await.fails(422, "Invalid");
        assert!(said.contains(expect), "{said}");
    };
    let path = "spec.conversion.webhookClientConfig";
    let webhook = |config: Value| json!({"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]}});
    check(
        json!({"strategy": "Magic"}),
        "spec.conversion.strategy: Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\"",
    )
    .await;
    check(json!({"strategy": "Webhook"}), &format!("{path}: Required value: required when strategy is set to Webhook"))
        .await;
    check(webhook(json!({})), &format!("{path}: Required value: exactly one of url or service is required")).await;
    check(
        webhook(json!({"url": "http://a"})),
        &format!("{path}.url: Invalid value: \"http\": 'https' is the only allowed URL scheme"),
    )
    .await;
    let unset = json!({"strategy": "None", "webhook": {"clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]}});
    check(unset, &format!("{path}: Forbidden: should not be set when strategy is not set to Webhook")).await;
    let mut unknown = webhook(json!({"url": "https://a"}));
    unknown["webhook"]["conversionReviewVersions"] = json!(["v7"]);
    check(
        unknown,
        "spec.conversion.conversionReviewVersions: Invalid value: [\"v7\"]: must include at least one of v1, v1beta1",
    )
    .await;
    // A bundle that cannot be read is refused once the kind is served.
    let made = cluster.post(CRDS, &gadgets()).await.expect(201);
    assert_eq!(made["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"], 443);
    let change = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "bm9uc2Vuc2U="}}}}});
    let said = cluster.patch(&format!("{CRDS}/gadgets.example.com"), MERGE, &change).await.fails(422, "Invalid");
    assert!(said.contains("unable to load root certificates: unable to parse bytes as PEM block"), "{said}");
}
