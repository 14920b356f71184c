//! Tests of `config`, as tables.

use serde_json::json;

use super::*;

fn api(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, "v1", kind))
}

fn config(api: &ApiResource, object: Value, manager: &str) -> Result<Config, WriteError> {
    Config::new(api, key_of(&object)?, object, &FieldManager::new(manager))
}

fn ready(api: &ApiResource, object: Value) -> Config {
    config(api, object, "m").expect("it has a name")
}

#[test]
fn nulls_and_what_only_servers_write_are_left_out() {
    let given = json!({
        "metadata": {
            "name": "c", "namespace": "n", "labels": {"a": "b"}, "uid": "u", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": null, "managedFields": [], "annotations": {"applied.konverge.dev/m": "old", "x": "y"},
        },
        "spec": {"size": null, "parts": [{"size": null}, null]},
        "status": {"phase": "x"},
    });
    let config = ready(&api("example.com", "WebApp"), given);
    let digest = config.digest.clone();
    let expect = json!({
        "apiVersion": "example.com/v1", "kind": "WebApp", "spec": {"parts": [{}, null]},
        "metadata": {
            "name": "c", "namespace": "n", "labels": {"a": "b"},
            "annotations": {"applied.konverge.dev/m": digest, "x": "y"},
        },
    });
    assert_eq!(config.object, expect);
    assert_eq!(config.key, ObjectKey::new(Some("n"), "c"));
    // What is applied twice has the same digest, also when read back.
    assert_eq!(ready(&api("example.com", "WebApp"), expect), config);
}

#[test]
fn another_configuration_or_manager_has_another_digest() {
    let object = |data: Value| json!({"metadata": {"name": "c"}, "data": data});
    let first = ready(&api("", "ConfigMap"), object(json!({"a": "1"})));
    assert_ne!(ready(&api("", "ConfigMap"), object(json!({"a": "2"}))).digest, first.digest);
    assert_ne!(ready(&api("", "ConfigMap"), object(json!({}))).digest, first.digest);
    let other = config(&api("", "ConfigMap"), object(json!({"a": "1"})), "n").unwrap();
    assert_ne!(other.digest, first.digest);
    assert_ne!(other.digest_annotation, first.digest_annotation);
}

#[test]
fn managers_with_any_name_have_an_annotation() {
    let cases = [("webapp-operator", "applied.konverge.dev/webapp-operator"), ("a.b_c", "applied.konverge.dev/a.b_c")];
    for (manager, expect) in cases {
        assert_eq!(&*FieldManager::new(manager).digest_annotation, expect);
    }
    for manager in ["a/b", "ä", "-a", "a b", &"x".repeat(64)] {
        let mark = FieldManager::new(manager).digest_annotation;
        let name = mark.strip_prefix("applied.konverge.dev/").unwrap();
        assert!(name.len() == 16 && name.chars().all(|c| c.is_ascii_hexdigit()), "{manager}: {mark}");
    }
}

#[test]
fn texts_of_a_secret_are_applied_as_the_server_shows_them() {
    let given = json!({"metadata": {"name": "s"}, "data": {"a": "eA=="}, "stringData": {"b": "secret123", "a": "zz"}});
    let config = ready(&api("", "Secret"), given);
    assert_eq!(config.object["data"], json!({"a": "eno=", "b": "c2VjcmV0MTIz"}));
    assert_eq!(config.object.get("stringData"), None);
}

#[test]
fn an_object_without_a_name_is_refused() {
    let api = api("", "ConfigMap");
    for object in [json!(null), json!({}), json!({"metadata": {}}), json!({"metadata": {"name": ""}}), json!([])] {
        let error = config(&api, object.clone(), "m").expect_err("it has no name");
        assert_eq!(error.to_string(), "metadata.name: an object to be written needs a name", "{object}");
    }
    let odd = json!({"metadata": {"name": "c", "annotations": "none"}});
    assert!(matches!(config(&api, odd, "m"), Err(WriteError::Invalid { .. })));
}
