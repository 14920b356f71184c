//! Requests to a server in this process. An input is `METHOD PATH CONTENT-TYPE`, a line break, and the body. Writes are dry runs, so
//! that no input depends on one before it.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use konverge_apiserver::{ApiServer, Options};
use serde_json::{Value, json};
use tower_service::Service;

use crate::target::Runner;

const CORE: &str = "/api/v1/namespaces/default";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "x-kubernetes-validations": [
                        {"rule": "self.size > 0"}, {"rule": "!has(self.parts) || self.parts.all(p, p.name != '')"}],
                        "properties": {
                            "size": {"type": "integer", "default": 1, "maximum": 100},
                            "color": {"type": "string", "enum": ["red", "blue"], "pattern": "^[a-z]*$"},
                            "parts": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"],
                                "properties": {"name": {"type": "string", "maxLength": 30}, "count": {"type": "integer"}}}},
                            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                            "either": {"x-kubernetes-int-or-string": true},
                        }},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
            }}}],
        },
    })
}

fn widget() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
           "spec": {"size": 3, "color": "red", "parts": [{"name": "x", "count": 1}], "either": "5%"}})
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"a": "b"}}, "data": {"k": "v"}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [{"name": "main", "image": "x", "ports": [{"containerPort": 80}]}, {"name": "side", "image": "y"}]}}}})
}

fn input(method: &str, path: &str, content_type: &str, body: &str) -> Vec<u8> {
    format!("{method} {path} {content_type}\n{body}").into_bytes()
}

pub(super) fn json() -> Vec<Vec<u8>> {
    let json = "application/json";
    let crd = definition()
        .to_string()
        .replace("widgets.example.com", "others.example.com")
        .replace("\"widgets\"", "\"others\"");
    vec![
        input("POST", &format!("{CORE}/configmaps"), json, &config_map().to_string().replace("\"a\"", "\"new\"")),
        input("PUT", &format!("{CORE}/configmaps/a"), json, &config_map().to_string()),
        input(
            "POST",
            "/apis/apps/v1/namespaces/default/deployments?fieldValidation=Strict",
            json,
            &deployment().to_string().replace("\"name\":\"a\"", "\"name\":\"n\""),
        ),
        input("POST", WIDGETS, json, &widget().to_string().replace("\"name\":\"a\"", "\"generateName\":\"n-\"")),
        input("PUT", &format!("{WIDGETS}/a/status"), json, &widget().to_string()),
        input(
            "PUT",
            "/apis/apps/v1/namespaces/default/deployments/a/scale",
            json,
            r#"{"kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":3}}"#,
        ),
        input("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json, &crd),
        input(
            "DELETE",
            &format!("{CORE}/configmaps/a"),
            json,
            r#"{"propagationPolicy":"Foreground","preconditions":{"uid":"x"},"gracePeriodSeconds":5}"#,
        ),
        input(
            "POST",
            &format!("{CORE}/pods/p/eviction"),
            json,
            r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}"#,
        ),
    ]
}

pub(super) fn yaml() -> Vec<Vec<u8>> {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\n  labels: {a: b}\ndata:\n  k: |\n    text\n  l: &x v\n  m: *x\n  n: !!str 5\n";
    let merged = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: &s\n  size: 0x10\n  free:\n    <<: *s\n    a: [1, 2.5, ~, on, 2001-01-01]\n";
    vec![
        input("POST", &format!("{CORE}/configmaps"), "application/yaml", text),
        input("POST", WIDGETS, "application/yaml", merged),
        input(
            "PATCH",
            &format!("{CORE}/configmaps/a?fieldManager=me"),
            "application/apply-patch+yaml",
            &text.replace("name: y", "name: a"),
        ),
    ]
}

pub(super) fn patches() -> Vec<Vec<u8>> {
    let (json, merge, strategic) =
        ("application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json");
    let deployment = "/apis/apps/v1/namespaces/default/deployments/a";
    vec![
        input(
            "PATCH",
            &format!("{CORE}/configmaps/a"),
            json,
            r#"[{"op":"test","path":"/kind","value":"ConfigMap"},{"op":"add","path":"/data/x","value":"1"},{"op":"copy","from":"/data","path":"/metadata/annotations"},{"op":"remove","path":"/data/k"}]"#,
        ),
        input(
            "PATCH",
            &format!("{CORE}/configmaps/a"),
            merge,
            r#"{"data":{"k":null,"x":"y"},"metadata":{"labels":{"a":"b"}}}"#,
        ),
        input(
            "PATCH",
            deployment,
            strategic,
            r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"side"},{"name":"main"}],"containers":[{"name":"main","image":"z","ports":[{"$patch":"replace"},{"containerPort":1}]},{"$patch":"delete","name":"side"}]}}}}"#,
        ),
        input(
            "PATCH",
            deployment,
            strategic,
            r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}},"metadata":{"$deleteFromPrimitiveList/finalizers":["x"]}}"#,
        ),
        input("PATCH", &format!("{deployment}/scale"), merge, r#"{"spec":{"replicas":3}}"#),
        input(
            "PATCH",
            &format!("{WIDGETS}/a"),
            json,
            r#"[{"op":"move","from":"/spec/parts/0","path":"/spec/parts/-"},{"op":"replace","path":"","value":{}}]"#,
        ),
        input("PATCH", &format!("{WIDGETS}/a/status"), merge, r#"{"status":{"x":[1,{"y":null}]}}"#),
    ]
}

pub(super) fn applies() -> Vec<Vec<u8>> {
    let apply = "application/apply-patch+yaml";
    let managed = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:k":{}},"f:metadata":{"f:labels":{"f:a":{}},"f:finalizers":{"v:\"x\"":{}},"k:{\"uid\":\"u\"}":{}}}}]},"data":{"k":"v"}}"#;
    vec![
        input("PATCH", &format!("{WIDGETS}/a?fieldManager=me&force=true"), apply, &widget().to_string()),
        input(
            "PATCH",
            &format!("{WIDGETS}/new?fieldManager=me"),
            apply,
            &widget().to_string().replace("\"name\":\"a\"", "\"name\":\"new\""),
        ),
        input(
            "PATCH",
            "/apis/apps/v1/namespaces/default/deployments/a?fieldManager=me",
            apply,
            &deployment().to_string(),
        ),
        input("PUT", &format!("{CORE}/configmaps/a"), "application/json", managed),
    ]
}

pub(super) fn lists() -> Vec<Vec<u8>> {
    let json = "application/json";
    vec![
        input(
            "GET",
            &format!("{CORE}/configmaps?limit=1&labelSelector=a+in+(b,c),!d&fieldSelector=metadata.name%3Da"),
            json,
            "",
        ),
        input(
            "GET",
            "/api/v1/configmaps?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
            json,
            "",
        ),
        input("GET", "/api/v1/configmaps?limit=1&continue=17%2Fm1&resourceVersion=0", json, ""),
        input(
            "GET",
            &format!("{WIDGETS}?resourceVersion=1&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"),
            json,
            "",
        ),
        input("GET", &format!("{CORE}/configmaps/a?pretty=true"), "application/yaml", ""),
        input("GET", "/openapi/v3/apis/apps/v1?hash=X", json, ""),
    ]
}

/// Runs requests against a server that has an object of each kind.
pub(super) fn server() -> Runner {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut server = runtime.block_on(ApiServer::open(Options::default())).expect("a server");
    for (path, object) in [
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()),
        (&format!("{CORE}/configmaps"), config_map()),
        ("/apis/apps/v1/namespaces/default/deployments", deployment()),
        (WIDGETS, widget()),
    ] {
        let body = object.to_string();
        let (code, answer) =
            runtime.block_on(ask(&mut server, "POST", path, "application/json", body.into())).expect("a request");
        assert_eq!(code, 201, "{path}: {answer}");
    }
    Box::new(move |input| {
        let (head, body) = match input.iter().position(|byte| *byte == b'\n') {
            Some(end) => (&input[..end], &input[end + 1..]),
            None => (input, &[][..]),
        };
        let Ok(head) = std::str::from_utf8(head) else { return "not a request".into() };
        let mut words = head.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (method, path, content_type) = (word(), word(), word());
        // A watch has no end to wait for, and neither has a log.
        if path.contains("watch") || path.contains("follow") {
            return "not asked".into();
        }
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = if method == "GET" { path.to_owned() } else { format!("{path}{separator}dryRun=All") };
        let body = Bytes::copy_from_slice(body);
        let Some((code, answer)) = runtime.block_on(ask(&mut server, method, &path, content_type, body)) else {
            return "not a request".into();
        };
        // kube-apiserver answers 500 without a reason to some patches that do not fit; a fault of ours has this one.
        assert!(!answer.contains("\"reason\":\"InternalError\""), "{method} {path} {content_type}: {answer}");
        if code < 400 {
            return format!("{code} {}", path.split(['/', '?']).take(6).collect::<String>());
        }
        match serde_json::from_str::<Value>(&answer) {
            Ok(status) => {
                assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(code)), "{answer}");
                format!("{code} {}", status["message"].as_str().unwrap_or_default())
            }
            Err(_) => {
                assert_eq!(answer, "404 page not found\n", "{code} is answered with a Status");
                answer
            }
        }
    })
}

/// The code and the text of an answer; nothing if this cannot be sent at all.
async fn ask(
    server: &mut ApiServer,
    method: &str,
    path: &str,
    content_type: &str,
    body: Bytes,
) -> Option<(u16, String)> {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let request = request.body(Full::new(body)).ok().filter(|request| request.uri().path().starts_with('/'))?;
    let response = server.call(request).await.expect("a server always answers");
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body comes whole").to_bytes();
    Some((code, String::from_utf8_lossy(&body).into_owned()))
}
