//! CRDs and objects without a cluster: the same verdicts as those of the server.

use konverge_apiserver::CrdRegistry;
use serde_json::{Value, json};

fn definition() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["image"],
        "properties": {
            "image": {"type": "string"},
            "size": {"type": "integer", "minimum": 1, "default": 1},
            "max": {"type": "integer"},
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.max) || self.size <= self.max", "message": "size is more than max"},
            {"rule": "self.image == oldSelf.image", "message": "image is immutable"},
        ],
    });
    let status = json!({"type": "object", "properties": {"ready": {"type": "integer"}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shops.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "shops", "kind": "Shop"},
            // Nobody is there to convert, and nobody is asked.
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://nowhere.example.com/convert"},
            }},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema":
                    {"type": "object", "properties": {"spec": spec, "status": status}}}},
                {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            ],
        },
    })
}

fn shop(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a", "namespace": "far"}, "spec": spec})
}

#[tokio::test]
async fn objects_are_judged_without_a_cluster() {
    let registry = CrdRegistry::new().await.unwrap();
    let unknown = registry.check(&shop(json!({}))).await.unwrap_err();
    assert_eq!(unknown.code, 404);
    assert!(unknown.message.starts_with("no matches for kind \"Shop\" in version \"example.com/v1\""), "{unknown}");
    for _ in 0..2 {
        registry.register(&definition()).await.unwrap();
    }
    let kinds = registry.list().await;
    let brief: Vec<_> = kinds.iter().map(|kind| (kind.version.as_str(), kind.is_stored, kind.is_namespaced)).collect();
    assert_eq!(brief, [("v1", true, true), ("v1beta1", false, true)]);

    let good = registry.check(&shop(json!({"image": "i"}))).await.unwrap();
    assert_eq!(good.object, shop(json!({"image": "i", "size": 1})));
    let old = json!({"apiVersion": "example.com/v1beta1", "kind": "Shop", "metadata": {"name": "a"}});
    assert_eq!(
        registry.check(&old).await.unwrap().warnings,
        ["example.com/v1beta1 Shop is deprecated; use example.com/v1 Shop"]
    );

    let mut with_status = shop(json!({"image": "i"}));
    with_status["status"] = json!({"ready": 1});
    assert_eq!(registry.check(&with_status).await.unwrap().object["status"], json!({"ready": 1}));
    // A version that is not stored keeps its own fields, also beside a status.
    let beta = json!({"apiVersion": "example.com/v1beta1", "kind": "Shop", "metadata": {"name": "a", "namespace": "far"},
                      "spec": {"only": "beta"}, "status": {"ready": 2}});
    assert_eq!(registry.check(&beta).await.unwrap().object, beta);
    assert!(registry.list().await[0].is_stored);
    with_status["status"] = json!({"ready": "no"});
    let mut bad_name = shop(json!({"image": "i"}));
    bad_name["metadata"]["name"] = json!("A/b");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                     "spec": {"containers": [], "priorityClassName": "not-here"}});
    for (object, code, expect) in [
        (shop(json!({})), 422, "spec.image: Required value"),
        (shop(json!({"image": "i", "size": 0})), 422, "spec.size: Invalid value: 0"),
        (shop(json!({"image": "i", "size": 3, "max": 2})), 422, "size is more than max"),
        (shop(json!({"image": "i", "sise": 3})), 400, "unknown field \"spec.sise\""),
        (with_status, 422, "status.ready: Invalid value"),
        (bad_name, 422, "metadata.name: Invalid value"),
        (pod, 422, "spec.containers: Required value"),
        (json!({"kind": "Shop"}), 400, "an object needs an apiVersion and a kind"),
    ] {
        let refused = registry.check(&object).await.unwrap_err();
        assert_eq!(refused.code, code, "{object}: {refused}");
        assert!(refused.message.contains(expect), "{object}: {refused}");
    }
    let (before, after) = (shop(json!({"image": "i"})), shop(json!({"image": "j"})));
    let refused = registry.check_update(&before, &after).await.unwrap_err();
    assert!(refused.message.contains("image is immutable"), "{refused}");
    assert!(registry.check_update(&before, &shop(json!({"image": "i", "size": 2}))).await.is_ok());
    // Nothing is left behind.
    assert!(registry.check_update(&before, &before).await.is_ok());
}

#[tokio::test]
async fn definitions_are_judged_without_a_cluster() {
    let registry = CrdRegistry::new().await.unwrap();
    let mut bad = definition();
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"][0]["rule"] =
        json!("self.nothing");
    let refused = registry.register(&bad).await.unwrap_err();
    assert_eq!(refused.code, 422, "{refused}");
    assert!(refused.message.contains("undefined field 'nothing'"), "{refused}");
}
