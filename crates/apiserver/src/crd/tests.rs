//! What a change of one definition costs the others, and what does not count as a change.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use konverge_store::Commit;
use serde_json::{Value, json};
use tower_service::Service;

use crate::record;
use crate::resource::Resource;
use crate::server::{ApiServer, Options};
use crate::tasks::tests::yields_during;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn ask(api: &ApiServer, method: &str, path: &str, body: Value) -> Value {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let answer = api.clone().call(request.body(Full::new(body)).unwrap()).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    assert!(status.is_success(), "{method} {path}: {status} {body}");
    body
}

fn definition(plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.to_uppercase()},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    })
}

fn resource(api: &ApiServer, plural: &str) -> Arc<Resource> {
    api.0.registry.find("example.com", "v1", plural).expect("the kind is served")
}

#[tokio::test]
async fn only_what_changes_how_objects_are_kept_makes_old_ones_be_converted() {
    let api = ApiServer::open(Options::default()).await.unwrap();
    ask(&api, "POST", CRDS, definition("widgets")).await;
    let path = format!("{CRDS}/widgets.example.com");
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
    let version = |schema: Value, column: &str| {
        json!({"spec": {"versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [{"name": column, "type": "string", "jsonPath": ".spec.a"}],
        }]}})
    };
    // What is written, whether rows are made anew, and whether objects of before are converted when read.
    for (patch, made_anew, converted) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), false, false),
        (json!({"metadata": {"annotations": {"a": "b"}}}), false, false),
        (json!({"spec": {"names": {"shortNames": ["wdg"]}}}), true, false),
        (version(json!({"type": "object"}), "One"), true, false),
        (version(schema.clone(), "One"), true, true),
        (version(schema, "Two"), true, false),
    ] {
        let before = resource(&api, "widgets");
        ask(&api, "PATCH", &path, patch.clone()).await;
        let after = resource(&api, "widgets");
        assert_eq!(!Arc::ptr_eq(&before, &after), made_anew, "{patch}");
        assert_eq!(after.storage.since != before.storage.since, converted, "{patch}");
        // New objects are taken without reading the definition again.
        let newest =
            api.0.store.get("/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com", None);
        let confirmed = after.lifetime.as_ref().unwrap().is_confirmed(newest.unwrap().unwrap().revision);
        assert!(confirmed, "{patch}");
    }
}

#[tokio::test]
async fn the_end_of_one_definition_is_not_felt_by_others() {
    let api = ApiServer::open(Options::default()).await.unwrap();
    let plurals: Vec<String> = (0..50).map(|at| format!("kind{at}")).collect();
    for plural in &plurals {
        ask(&api, "POST", CRDS, definition(plural)).await;
    }
    let before: Vec<_> = plurals.iter().map(|plural| resource(&api, plural)).collect();
    ask(&api, "DELETE", &format!("{CRDS}/kind7.example.com"), Value::Null).await;
    assert!(api.0.registry.find("example.com", "v1", "kind7").is_none());
    assert!(!api.0.registry.is_listed(), "nobody went through all resources");
    for (plural, before) in plurals.iter().zip(&before).filter(|(plural, _)| *plural != "kind7") {
        assert!(Arc::ptr_eq(&resource(&api, plural), before), "{plural} was made anew");
    }
}

/// The end of the first definition's step is known only after the second of the same name was deleted.
#[tokio::test]
async fn a_second_definition_of_a_name_goes_as_well() {
    let api = ApiServer::open(Options::default()).await.unwrap();
    ask(&api, "POST", CRDS, definition("widgets")).await;
    // The server's own task ends, so that the one below does its work.
    api.shutdown();
    tokio::task::yield_now().await;
    let path = format!("{CRDS}/widgets.example.com");
    ask(&api, "DELETE", &path, Value::Null).await;
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com";
    assert!(api.0.store.get(key, None).unwrap().is_some(), "nobody has cleaned up");
    let (_closing, closing) = tokio::sync::watch::channel(false);
    let following = super::lifecycle::follow_after_a_step("widgets.example.com", Arc::downgrade(&api.0), closing);
    let gone = async {
        while api.0.store.get(key, None).unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = following => panic!("nothing closes"),
        outcome = tokio::time::timeout(std::time::Duration::from_secs(60), gone) => outcome.expect("it should go"),
    }
}

#[tokio::test(flavor = "current_thread")]
async fn others_get_their_turn_while_the_objects_of_a_definition_go() {
    let api = ApiServer::open(Options::default()).await.unwrap();
    ask(&api, "POST", CRDS, definition("widgets")).await;
    let resource = resource(&api, "widgets");
    let mut all = Commit::default();
    for at in 0..1600 {
        let name = format!("w{at}");
        let widget = json!({"apiVersion": "example.com/v1", "kind": "WIDGETS", "metadata": {
            "name": name, "namespace": "default",
        }});
        all = all.put(resource.key(Some("default"), &name), record::encode(&widget));
    }
    api.0.store.commit(all).await.unwrap();
    let path = format!("{CRDS}/widgets.example.com");
    let turns = yields_during(ask(&api, "DELETE", &path, Value::Null)).await;
    assert!(api.0.registry.find("example.com", "v1", "widgets").is_none(), "all are deleted");
    assert!(turns >= 100, "{turns} turns");
}

/// The clean-up stores an object again that others hold by a finalizer. It must store it in the version it is stored in now.
#[tokio::test]
async fn objects_stored_in_an_older_version_can_be_changed_while_their_definition_is_deleted() {
    let api = ApiServer::open(Options::default()).await.unwrap();
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
               "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let mut widgets = definition("widgets");
    widgets["spec"]["versions"] = json!([version("v1", true), version("v2", false)]);
    ask(&api, "POST", CRDS, widgets).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "WIDGETS",
                        "metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    ask(&api, "POST", "/apis/example.com/v1/namespaces/default/widgets", widget).await;
    let path = format!("{CRDS}/widgets.example.com");
    let switch = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    ask(&api, "PATCH", &path, switch).await;
    ask(&api, "DELETE", &path, Value::Null).await;
    let widget = "/apis/example.com/v2/namespaces/default/widgets/a";
    let held = ask(&api, "GET", widget, Value::Null).await;
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    assert_eq!(held["apiVersion"], "example.com/v2");
    let stored = api.0.store.get("/registry/example.com/widgets/default/a", None).unwrap().unwrap();
    assert_eq!(record::decode(&stored)["apiVersion"], "example.com/v2");
    ask(&api, "PATCH", widget, json!({"metadata": {"finalizers": null}})).await;
    let gone = async {
        while api.0.registry.find("example.com", "v2", "widgets").is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.expect("the definition should go");
}
