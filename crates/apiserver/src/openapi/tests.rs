//! Tables of cases for `openapi.rs`: real built-in documents and CRDs, read back as a client would.

use super::*;
use crate::builtin::builtin;
use crate::resource::{ResourceSchema, SubresourceInfo};
use crate::verb::{Verb, Verbs};
use konverge_core::GroupVersionKind;
use konverge_schema::{OBJECT_META, compile, kubernetes};
use serde_json::Value;
use std::sync::LazyLock;

fn openapi() -> &'static OpenApi {
    static OPENAPI: LazyLock<OpenApi> = LazyLock::new(|| OpenApi::new(Arc::clone(kubernetes())));
    &OPENAPI
}

/// A CRD's row with this schema.
fn custom(schema: &Value, namespaced: bool) -> Resource {
    let mut arena = Arena::default();
    let meta = kubernetes().named(OBJECT_META).unwrap();
    arena.import(kubernetes(), meta);
    let root = compile(&mut arena, Some(schema)).unwrap();
    let gvk = |group: &str, version: &str, kind: &str| GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
    };
    let verbs: Verbs = [Verb::Get, Verb::Patch, Verb::Update].into_iter().collect();
    Resource {
        namespaced,
        subresources: vec![
            SubresourceInfo { name: "status".into(), gvk: gvk("example.com", "v1", "Widget"), verbs },
            SubresourceInfo { name: "scale".into(), gvk: gvk("autoscaling", "v1", "Scale"), verbs },
        ],
        schema: ResourceSchema { arena: Arc::new(arena), root, name: "com.example.v1.Widget".into(), rules: None },
        custom: true,
        ..Resource::plain("example.com", "v1", "Widget")
    }
}

fn parsed(document: &Document) -> Value {
    serde_json::from_slice(&document.body).unwrap()
}

/// The whole document of these rows.
fn document(resources: &[&Resource]) -> Document {
    let owned = resources.iter().map(|resource| Arc::new((*resource).clone())).collect();
    Document { body: openapi().pieces(owned).flatten().collect(), hash: openapi().hash(resources) }
}

fn of(group: &str, version: &str) -> Value {
    let table = builtin();
    let resources: Vec<&Resource> = table
        .iter()
        .map(|resource| &**resource)
        .filter(|resource| &*resource.group == group && &*resource.version == version)
        .collect();
    parsed(&document(&resources))
}

fn schema<'a>(document: &'a Value, name: &str) -> &'a Value {
    &document["components"]["schemas"][name]
}

/// A schema without its description.
fn undescribed(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let description = schema.as_object_mut().unwrap().remove("description");
    assert!(description.is_some_and(|text| text.as_str().is_some_and(|text| !text.is_empty())), "{schema}");
    schema
}

/// All references below a value.
fn walk(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| match (key.as_str(), value) {
            ("$ref", Value::String(target)) => found.push(target.clone()),
            _ => walk(value, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
        _ => {}
    }
}

#[test]
fn version_2_is_one_document_of_everything() {
    let mut table = builtin();
    table.push(Arc::new(custom(
        &json!({"type": "object", "properties": {"a": {"anyOf": [{"minimum": 1}], "type": "integer"}}}),
        true,
    )));
    let bytes: Vec<u8> = openapi().old_pieces(table.clone()).flatten().collect();
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["swagger"], "2.0");
    let mut references = Vec::new();
    walk(&document, &mut references);
    for reference in references {
        let name = reference.strip_prefix("#/definitions/").unwrap();
        assert!(document["definitions"][name].is_object(), "{name}");
    }
    for resource in &table {
        let gvk = &document["definitions"][&*resource.schema.name]["x-kubernetes-group-version-kind"];
        assert_eq!(*gvk, json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]));
    }
    let spec = &document["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"];
    assert_eq!(undescribed(spec), json!({"$ref": "#/definitions/io.k8s.api.core.v1.PodSpec"}));
    let create = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    assert_eq!(create["parameters"][0]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.Pod");
    assert_eq!(document["definitions"]["com.example.v1.Widget"]["properties"]["a"], json!({"type": "integer"}));
    let text = String::from_utf8(bytes).unwrap();
    for word in ["\"requestBody\"", "#/components"] {
        assert!(!text.contains(word), "{word}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let mut table = builtin();
    table.push(Arc::new(custom(&json!({"type": "object"}), true)));
    let catalog = Catalog::of(&table);
    let mut documents = 0;
    for (group, version, resources) in catalog.group_versions() {
        let document = parsed(&document(resources));
        let mut references = Vec::new();
        walk(&document, &mut references);
        assert!(!references.is_empty());
        for reference in references {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(schema(&document, name).is_object(), "{group}/{version}: {name}");
        }
        for resource in resources {
            let gvk = &schema(&document, &resource.schema.name)["x-kubernetes-group-version-kind"];
            assert_eq!(*gvk, json!([{"group": group, "version": version, "kind": resource.kind}]));
        }
        documents += 1;
    }
    assert!(documents > 15);
}

#[test]
fn root_names_each_document_by_its_hash() {
    let mut table = builtin();
    table.push(Arc::new(custom(&json!({"type": "object"}), true)));
    let catalog = Catalog::of(&table);
    let root = parsed(&openapi().root(&catalog));
    for (group, version, resources) in catalog.group_versions() {
        let path = OpenApi::path(group, version);
        let url = format!("/openapi/v3/{path}?hash={}", document(resources).hash);
        assert_eq!(root["paths"][&path]["serverRelativeURL"], url);
    }
    assert!(root["paths"]["api/v1"].is_object());
    assert!(root["paths"]["apis/apps/v1"].is_object());
}

#[test]
fn hashes_follow_content() {
    let hash = |schema: Value, namespaced| openapi().hash(&[&custom(&schema, namespaced)]);
    let plain = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
    assert_eq!(hash(plain.clone(), true), hash(plain.clone(), true));
    assert_ne!(hash(plain.clone(), true), hash(plain.clone(), false));
    let formatted = |format: &str| json!({"type": "object", "properties": {"s": {"type": "string", "format": format}}});
    assert_ne!(hash(formatted("uuid"), true), hash(plain, true));
    assert_eq!(hash(formatted("uuid"), true), hash(formatted("uuid"), true));
    assert_ne!(hash(formatted("uuid"), true), hash(formatted("date"), true));
}

#[test]
fn operations_of_a_builtin_kind() {
    let document = of("apps", "v1");
    let base = "/apis/apps/v1/namespaces/{namespace}/deployments";
    #[track_caller]
    fn check(document: &Value, path: &str, methods: &[&str]) {
        let mut found: Vec<&str> = document["paths"][path].as_object().unwrap().keys().map(String::as_str).collect();
        found.retain(|method| *method != "parameters");
        found.sort();
        assert_eq!(found, methods, "{path}");
    }
    check(&document, "/apis/apps/v1/deployments", &["get"]);
    check(&document, base, &["delete", "get", "post"]);
    check(&document, &format!("{base}/{{name}}"), &["delete", "get", "patch", "put"]);
    check(&document, &format!("{base}/{{name}}/scale"), &["get", "patch", "put"]);
    check(&document, &format!("{base}/{{name}}/status"), &["get", "patch", "put"]);

    let patch = &document["paths"][format!("{base}/{{name}}")]["patch"];
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    assert_eq!(patch["tags"], json!(["apps_v1"]));
    assert_eq!(patch["x-kubernetes-action"], "patch");
    let gvk = |group: &str, kind: &str| json!({"group": group, "version": "v1", "kind": kind});
    assert_eq!(patch["x-kubernetes-group-version-kind"], gvk("apps", "Deployment"));
    let names: Vec<&Value> = patch["parameters"].as_array().unwrap().iter().map(|found| &found["name"]).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let kinds: Vec<&String> = patch["requestBody"]["content"].as_object().unwrap().keys().collect();
    assert_eq!(kinds.len(), 4);
    let scale = &document["paths"][format!("{base}/{{name}}/scale")];
    assert_eq!(scale["get"]["x-kubernetes-group-version-kind"], gvk("autoscaling", "Scale"));
    assert_eq!(
        scale["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/io.k8s.api.autoscaling.v1.Scale"
    );
    assert_eq!(
        schema(&document, "io.k8s.api.autoscaling.v1.Scale")["x-kubernetes-group-version-kind"],
        json!([gvk("autoscaling", "Scale")])
    );

    let core = of("", "v1");
    check(&core, "/api/v1/namespaces/{name}", &["delete", "get", "patch", "put"]);
    check(&core, "/api/v1/namespaces/{namespace}/pods/{name}/eviction", &["post"]);
    check(&core, "/api/v1/namespaces/{namespace}/bindings", &["post"]);
    check(&core, "/api/v1/nodes/{name}/proxy", &["delete", "get", "patch", "post", "put"]);
    let exec = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/exec"]["post"];
    assert_eq!(exec["operationId"], "connectCoreV1PostNamespacedPodExec");
    assert_eq!(exec["x-kubernetes-action"], "connect");
    let many = &core["paths"]["/api/v1/namespaces/{namespace}/pods"]["delete"];
    assert_eq!(many["operationId"], "deleteCoreV1CollectionNamespacedPod");
    assert_eq!(
        undescribed(&schema(&core, "io.k8s.api.core.v1.PersistentVolumeSpec")["properties"]["claimRef"]),
        json!({
            "allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.ObjectReference"}],
            "x-kubernetes-map-type": "granular",
        })
    );
    assert!(core["paths"].get("/api/v1/namespaces/{namespace}/bindings/{name}").is_none());
}

#[test]
fn schemas_of_builtin_kinds() {
    let document = of("apps", "v1");
    let spec = &schema(&document, "io.k8s.api.apps.v1.DeploymentSpec");
    assert_eq!(spec["required"], json!(["selector", "template"]));
    assert_eq!(undescribed(&spec["properties"]["replicas"]), json!({"type": "integer", "format": "int32"}));
    assert_eq!(
        undescribed(&spec["properties"]["strategy"]),
        json!({
            "allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}],
            "x-kubernetes-patch-strategy": "retainKeys",
        })
    );
    let pod = schema(&document, "io.k8s.api.core.v1.PodSpec");
    assert_eq!(
        undescribed(&pod["properties"]["containers"]),
        json!({
            "type": "array", "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name",
        })
    );
    let selector = schema(&document, "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector");
    assert_eq!(selector["x-kubernetes-map-type"], "atomic");
    let port = schema(&document, "io.k8s.api.core.v1.ContainerPort");
    assert_eq!(port["properties"]["protocol"]["default"], "TCP");
    let time = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
    let meta = schema(&document, OBJECT_META);
    assert_eq!(meta["properties"]["creationTimestamp"]["allOf"][0]["$ref"], format!("#/components/schemas/{time}"));
    assert_eq!(undescribed(schema(&document, time)), json!({"type": "string", "format": "date-time"}));
    let list = schema(&document, "io.k8s.api.apps.v1.DeploymentList");
    assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "DeploymentList");
    assert_eq!(list["properties"]["items"]["items"]["$ref"], "#/components/schemas/io.k8s.api.apps.v1.Deployment");
}

#[test]
fn recursive_types_refer_to_themselves() {
    let document = of("apiextensions.k8s.io", "v1");
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let not = &schema(&document, name)["properties"]["not"];
    assert_eq!(not["$ref"], format!("#/components/schemas/{name}"));
}

#[test]
fn schemas_of_custom_resources() {
    #[track_caller]
    fn check(given: Value) {
        let schema_of = json!({"type": "object", "properties": {"spec": given}});
        let resource = custom(&schema_of, true);
        let document = parsed(&document(&[&resource]));
        let mut found = schema(&document, "com.example.v1.Widget")["properties"]["spec"].clone();
        if given.get("x-kubernetes-list-type").is_none() && found["x-kubernetes-list-type"] == "atomic" {
            // Said or not, it means the same.
            found.as_object_mut().unwrap().remove("x-kubernetes-list-type");
        }
        assert_eq!(found, given);
    }
    check(json!({"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a", "enum": ["a", "ab"]}));
    check(json!({"type": "string", "format": "uuid", "default": "x", "nullable": true}));
    check(json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 10, "exclusiveMaximum": true}));
    check(json!({"type": "integer", "multipleOf": 2}));
    check(json!({"type": "number", "minimum": 0.5}));
    check(json!({"type": "boolean", "default": false}));
    check(json!({"x-kubernetes-int-or-string": true}));
    check(json!({"x-kubernetes-preserve-unknown-fields": true}));
    check(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    check(json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 3}));
    check(json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}},
        "required": ["a"]}));
    check(json!({"type": "array", "items": {"type": "string"}, "maxItems": 2, "x-kubernetes-list-type": "set"}));
    check(json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}));
    check(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}}));
    check(json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"required": ["a", "b"]},
        "anyOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"b": {"enum": [1]}}}]}));
    check(json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.a > 0", "message": "no"}]}));
}

#[test]
fn custom_resources_look_like_builtin_ones() {
    let resource = custom(&json!({"type": "object"}), false);
    let document = parsed(&document(&[&resource]));
    let widget = schema(&document, "com.example.v1.Widget");
    let metadata = undescribed(&widget["properties"]["metadata"]);
    assert_eq!(metadata, json!({"allOf": [{"$ref": format!("#/components/schemas/{OBJECT_META}")}]}));
    assert_eq!(undescribed(&widget["properties"]["apiVersion"]), json!({"type": "string"}));
    assert_eq!(*schema(&document, OBJECT_META), *schema(&of("apps", "v1"), OBJECT_META));
    let list = schema(&document, "com.example.v1.WidgetList");
    assert_eq!(list["properties"]["items"]["items"]["$ref"], "#/components/schemas/com.example.v1.Widget");
    let item = &document["paths"]["/apis/example.com/v1/widgets/{name}"];
    assert_eq!(item["patch"]["operationId"], "patchExampleComV1Widget");
    let kinds: Vec<&String> = item["patch"]["requestBody"]["content"].as_object().unwrap().keys().collect();
    assert_eq!(kinds, ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]);
    assert!(document["paths"]["/apis/example.com/v1/widgets/{name}/scale"]["put"].is_object());
}

/// However many kinds a group has, only some of them are in memory while its document is written, and what one kind
/// says is put into words once for all hashes.
#[test]
fn the_document_of_many_kinds_comes_in_small_pieces() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
    let resources: Vec<Arc<Resource>> = (0..300)
        .map(|at| {
            let mut resource = custom(&schema, true);
            resource.plural = format!("kind{at}s").into();
            resource.kind = format!("Kind{at}").into();
            resource.list_kind = format!("Kind{at}List").into();
            resource.schema.name = format!("com.example.v1.Kind{at}").into();
            Arc::new(resource)
        })
        .collect();
    let mut whole = Vec::new();
    let mut longest = 0;
    for piece in openapi().pieces(resources.clone()) {
        longest = longest.max(piece.len());
        whole.extend_from_slice(&piece);
    }
    let one: usize = openapi().pieces(resources[..1].to_vec()).map(|piece| piece.len()).sum();
    assert!(longest <= 2 * one.max(64 * 1024), "a piece of {longest} bytes, where one kind takes {one}");
    assert!(whole.len() > 10 * longest, "{} bytes in pieces of {longest}", whole.len());
    let document: Value = serde_json::from_slice(&whole).unwrap();
    for resource in &resources {
        assert!(schema_of(&document, &resource.schema.name), "{}", resource.kind);
        let path = format!("/apis/example.com/v1/namespaces/{{namespace}}/{}", resource.plural);
        assert!(document["paths"][&path].is_object(), "{path}");
    }
    let resources: Vec<&Resource> = resources.iter().map(|resource| &**resource).collect();
    assert!(resources.iter().all(|resource| resource.published.get().is_none()));
    openapi().hash(&resources);
    assert!(resources.iter().all(|resource| resource.published.get().is_some()), "kept for the next hash");
}

fn schema_of(document: &Value, name: &str) -> bool {
    schema(document, name)["properties"]["metadata"]["allOf"][0]["$ref"].is_string()
        && schema(document, &format!("{name}List")).is_object()
}
