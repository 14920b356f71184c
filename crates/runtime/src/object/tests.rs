//! Tests of objects: how they are read from JSON, and what is kept of them.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;

use super::*;

fn pods() -> ApiResource {
    ApiResource::erase::<Pod>(&())
}

fn web() -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "spec": {"containers": [{"name": "web", "image": "web:1", "args": ["--a=\"b\"", "{}"]}]},
        "metadata": {
            "name": "web", "namespace": "default", "uid": "0b5c", "resourceVersion": "412", "generation": 3,
            "labels": {"app": "web", "tier": "front"}, "annotations": {"note": "says \"hi\"\n", "a/b": ""},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u2", "controller": true}],
            "finalizers": ["a.example.org/x", "b"],
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:containers": {}}}}],
            "deletionTimestamp": "2026-01-01T00:00:00Z"
        },
        "status": {"phase": "Running"}
    })
}

#[test]
fn metadata_fields() {
    for json in [web().to_string(), serde_json::to_string_pretty(&web()).unwrap()] {
        let object = Object::parse(&pods(), &json, Mode::Full).unwrap();
        assert_eq!(object.key(), ObjectKey::new(Some("default"), "web"));
        assert_eq!((object.uid(), object.resource_version(), object.revision()), ("0b5c", "412", Some(412)));
        assert_eq!((object.generation(), object.is_terminating()), (Some(3), true));
        assert_eq!(
            object.labels().collect::<Vec<_>>(),
            [("app".into(), "web".into()), ("tier".into(), "front".into())]
        );
        assert_eq!((object.label("tier").as_deref(), object.label("none")), (Some("front"), None));
        assert_eq!(object.annotation("note").as_deref(), Some("says \"hi\"\n"));
        assert_eq!(object.annotations().count(), 2);
        assert_eq!(object.finalizers().collect::<Vec<_>>(), ["a.example.org/x", "b"]);
        assert_eq!(object.owners().map(|owner| owner.uid.into_owned()).collect::<Vec<_>>(), ["u1", "u2"]);
        let owner = object.controller().unwrap();
        assert_eq!((&*owner.api_version, &*owner.kind, &*owner.name), ("apps/v1", "ReplicaSet", "web-1"));
        assert!(object.matches(&LabelSelector::parse("app in (web),tier").unwrap()));
        assert!(!object.matches(&LabelSelector::parse("!tier").unwrap()));
        assert_eq!(object.pointer("/spec/containers/0/image"), Some("\"web:1\""));
        assert_eq!(object.pointer("/metadata/managedFields"), None);
        let pod: Pod = object.decode().unwrap();
        assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
        assert_eq!(format!("{object:?}"), "Object(default/web @412)");
    }
}

/// The kept JSON has the same content as the source, without what the mode leaves out.
#[test]
fn kept_json() {
    let mut cut = web();
    cut["metadata"].as_object_mut().unwrap().remove("managedFields");
    let metadata = json!({"apiVersion": "v1", "kind": "Pod", "metadata": cut["metadata"]});
    for (mode, expect) in [(Mode::Full, &cut), (Mode::WithManagedFields, &web()), (Mode::Metadata, &metadata)] {
        let object = Object::parse(&pods(), &web().to_string(), mode).unwrap();
        assert_eq!(&object.value(), expect, "{mode:?}");
        assert_eq!(object.json.len(), object.json().len());
    }
    // The items of a list of a built-in kind have no type; metadata comes as PartialObjectMetadata.
    for (mut sent, mode) in [(web(), Mode::Full), (web(), Mode::Metadata)] {
        sent.as_object_mut().unwrap().remove("apiVersion");
        sent["kind"] = "PartialObjectMetadata".into();
        let object = Object::parse(&pods(), &sent.to_string(), mode).unwrap();
        assert_eq!((object.pointer("/apiVersion"), object.pointer("/kind")), (Some("\"v1\""), Some("\"Pod\"")));
    }
}

#[test]
fn absent_metadata_fields() {
    for (json, key) in [
        (r#"{"metadata":{"name":"a"}}"#, "a"),
        (r#"{"metadata":{"name":"a","namespace":""}}"#, "a"),
        (r#"{"metadata":{"name":"a","namespace":null,"uid":null,"labels":null,"deletionTimestamp":null}}"#, "a"),
        (
            r#"{"metadata":{"name":"a","uid":7,"labels":[],"finalizers":{},"ownerReferences":"x","generation":"y"}}"#,
            "a",
        ),
        (r#"{"x":1,"metadata":{"managedFields":[],"name":"\u0061","namespace":"b"}}"#, "b/a"),
    ] {
        let object = Object::parse(&pods(), json, Mode::Full).unwrap();
        assert_eq!(object.key().to_string(), key, "{json}");
        assert_eq!((object.uid(), object.resource_version(), object.revision()), ("", "", None), "{json}");
        assert_eq!((object.generation(), object.is_terminating()), (None, false), "{json}");
        assert_eq!(object.labels().count() + object.annotations().count(), 0, "{json}");
        assert_eq!(object.owners().count() + object.finalizers().count(), 0, "{json}");
    }
}

#[test]
fn metadata_may_come_anywhere_in_the_object() {
    let cases = [
        (r#"{"metadata":{"name":"a"},"spec":{"name":"b"}}"#, r#""metadata":{"name":"a"},"spec":{"name":"b"}}"#),
        (r#"{"spec":{"name":"b"},"metadata":{"name":"a"}}"#, r#""metadata":{"name":"a"},"spec":{"name":"b"}}"#),
        (r#"{"metadata":{"labels":{"x":"}"},"name":"a"}}"#, r#""metadata":{"labels":{"x":"}"},"name":"a"}}"#),
        // If metadata comes twice, the last one counts, as for other JSON readers.
        (r#"{"metadata":null,"metadata":{"name":"a"}}"#, r#""metadata":{"name":"a"}}"#),
        (r#"{"metadata":{"name":"b","uid":"u"},"metadata":{"name":"a"}}"#, r#""metadata":{"name":"a"}}"#),
    ];
    for (json, expect) in cases {
        let object = Object::parse(&pods(), json, Mode::Full).unwrap();
        assert_eq!(object.json().strip_prefix(r#"{"apiVersion":"v1","kind":"Pod","#), Some(expect), "{json}");
        assert_eq!((object.name(), object.uid()), ("a", ""), "{json}");
    }
}

#[test]
fn objects_without_a_name_are_refused() {
    for json in
        ["1", "null", "[]", "{}", r#"{"metadata":[]}"#, r#"{"metadata":{"name":""}}"#, r#"{"metadata":{"name":1}}"#]
    {
        assert!(matches!(Object::parse(&pods(), json, Mode::Full), Err(ParseError::Nameless(_))), "{json}");
    }
    assert!(matches!(Object::parse(&pods(), "{", Mode::Full), Err(ParseError::Syntax(_))));
}

/// A malformed object in a list affects neither the list nor the other objects.
#[test]
fn a_list_with_a_malformed_object() {
    let items = json!([{"metadata": {"name": "a"}}, 7, {"metadata": {}}, {"metadata": {"name": "b"}, "spec": 1}]);
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items});
    let list: kube::core::ObjectList<Wire<Full>> = serde_json::from_str(&list.to_string()).unwrap();
    let finished = |wire: Wire<Full>| wire.draft.map(|draft| draft.finish(&pods()).key().to_string());
    let names: Vec<_> = list.items.into_iter().map(finished).collect();
    assert_eq!(names.iter().map(|name| name.as_deref().ok()).collect::<Vec<_>>(), [Some("a"), None, None, Some("b")]);
}

/// Objects are stored as Go writes them, and in Go a null is an empty list.
#[test]
fn a_null_is_an_empty_list() {
    #[derive(serde::Deserialize)]
    struct Job {
        spec: Spec,
    }
    #[derive(serde::Deserialize)]
    struct Spec {
        #[serde(default)]
        rules: Vec<String>,
    }
    for (spec, expect) in [(r#"{"rules":null}"#, 0), (r#"{}"#, 0), (r#"{"rules":["a"]}"#, 1)] {
        let json = format!(r#"{{"metadata":{{"name":"a","namespace":"n"}},"spec":{spec}}}"#);
        let object = Object::parse(&ApiResource::erase::<ConfigMap>(&()), &json, Mode::Full).unwrap();
        assert_eq!(object.decode::<Job>().unwrap().spec.rules.len(), expect, "{spec}");
    }
}

#[test]
fn a_decode_error_names_the_object() {
    let json = r#"{"metadata":{"name":"a","namespace":"n"},"data":["not","a","map"]}"#;
    let object = Object::parse(&ApiResource::erase::<ConfigMap>(&()), json, Mode::Full).unwrap();
    let error = object.decode::<ConfigMap>().unwrap_err();
    assert_eq!((error.key.to_string().as_str(), error.kind.as_str()), ("n/a", "ConfigMap"));
}
