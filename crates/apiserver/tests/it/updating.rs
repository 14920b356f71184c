//! Replacing and patching objects: versions, generations, isolation of the status, and writes that change nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{
    APPLY, CONFIG_MAPS, CRDS, Cluster, DEPLOYMENTS, JSON_PATCH, LEASES, MERGE, PODS, STRATEGIC, WIDGETS, brief,
    config_map, deployment, pod, version, widget,
};

#[tokio::test]
async fn which_kinds_may_be_replaced_without_their_version() {
    let cluster = Cluster::with_widgets().await;
    for (path, object, code) in [
        (CONFIG_MAPS, config_map("a"), 200),
        (DEPLOYMENTS, deployment("a"), 200),
        (WIDGETS, widget("a"), 422),
        (LEASES, json!({"metadata": {"name": "a"}}), 422),
    ] {
        cluster.post(path, &object).await.expect(201);
        assert_eq!(cluster.put(&format!("{path}/a"), &object).await.code, code, "{path}");
    }
    let definition = format!("{CRDS}/widgets.example.com");
    assert_eq!(cluster.put(&definition, &crate::cluster::widgets()).await.code, 422);
    let zero = json!({"metadata": {"name": "a", "resourceVersion": "0"}, "data": {"k": "zero"}});
    cluster.put(&format!("{CONFIG_MAPS}/a"), &zero).await.expect(200);
}

#[tokio::test]
async fn a_patch_cannot_take_the_version_away_where_a_kind_needs_it() {
    let cluster = Cluster::with_widgets().await;
    for (path, object, code) in [
        (CONFIG_MAPS, config_map("a"), 200),
        (WIDGETS, widget("a"), 422),
        (LEASES, json!({"metadata": {"name": "a"}}), 422),
    ] {
        cluster.post(path, &object).await.expect(201);
        let versionless = json!({"metadata": {"resourceVersion": null, "labels": {"a": "b"}}});
        assert_eq!(cluster.patch(&format!("{path}/a"), MERGE, &versionless).await.code, code, "{path}");
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        cluster.patch(&format!("{path}/a"), MERGE, &labelled).await.expect(200);
    }
}

#[tokio::test]
async fn an_empty_list_of_managed_fields_forgets_all_managers() {
    let cluster = Cluster::new().await;
    let made = cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    assert!(made["metadata"]["managedFields"].is_array());
    let path = format!("{CONFIG_MAPS}/a");
    let forgotten = cluster.patch(&path, MERGE, &json!({"metadata": {"managedFields": []}})).await.expect(200);
    assert_eq!(forgotten["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn an_empty_policy_for_families_is_none() {
    let cluster = Cluster::new().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, policy: Value| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "ipFamilyPolicy": policy}});
    let refused = cluster.post(services, &service("a", "".into())).await.fails(422, "Invalid");
    assert!(refused.contains("spec.ipFamilyPolicy: Unsupported value: \"\""), "{refused}");
    cluster.post(services, &service("a", Value::Null)).await.expect(201);
    let (empty, none) = (json!({"spec": {"ipFamilyPolicy": ""}}), json!({"spec": {"ipFamilyPolicy": null}}));
    let one = format!("{services}/a");
    let refused = cluster.patch(&one, MERGE, &empty).await.fails(422, "Invalid");
    assert!(refused.contains("spec.ipFamilyPolicy: Unsupported value: \"\""), "{refused}");
    assert_eq!(cluster.patch(&one, MERGE, &none).await.expect(200)["spec"]["ipFamilyPolicy"], "SingleStack");
}

#[tokio::test]
async fn finalizers_of_an_update_do_not_contradict_each_other() {
    let cluster = Cluster::with_widgets().await;
    for (path, object) in [(CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))] {
        cluster.post(path, &object).await.expect(201);
        let both = json!({"metadata": {"finalizers": ["orphan", "foregroundDeletion"]}});
        let message = cluster.patch(&format!("{path}/a"), MERGE, &both).await.fails(422, "Invalid");
        assert!(message.ends_with("finalizer orphan and foregroundDeletion cannot be both set"), "{message}");
    }
}

#[tokio::test]
async fn what_an_update_cannot_change() {
    let cluster = Cluster::new().await;
    let made = cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let mut sent = made.clone();
    sent["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    sent["metadata"]["generation"] = 9.into();
    sent["metadata"]["selfLink"] = "/here".into();
    assert_eq!(cluster.put(&path, &sent).await.expect(200), made, "all of it is ignored");

    let mut other = made.clone();
    other["metadata"]["uid"] = "5a1c7f0e-0000-4000-8000-000000000000".into();
    let message = cluster.put(&path, &other).await.fails(409, "Conflict");
    assert!(message.contains("Precondition failed: UID in precondition: 5a1c7f0e"), "{message}");
    let patch = json!({"metadata": {"uid": "5a1c7f0e-0000-4000-8000-000000000000"}});
    let message = cluster.patch(&path, MERGE, &patch).await.fails(422, "Invalid");
    assert!(
        message.contains("metadata.uid: Invalid value: \"5a1c7f0e-0000-4000-8000-000000000000\": field is immutable")
    );
    let patch = json!({"metadata": {"namespace": "other"}});
    cluster.patch(&path, MERGE, &patch).await.fails(400, "BadRequest");
    // Only a DELETE begins a deletion.
    let patch = json!({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}});
    assert_eq!(
        cluster.patch(&path, MERGE, &patch).await.fails(422, "Invalid"),
        "ConfigMap \"a\" is invalid: [metadata.deletionTimestamp: Invalid value: \"2001-01-01T00:00:00Z\": field is \
         immutable, metadata.deletionGracePeriodSeconds: Invalid value: 0: field is immutable]"
    );
    assert_eq!(cluster.get(&path).await.json(), made);
}

#[tokio::test]
async fn a_deletion_goes_on_whatever_an_update_says() {
    let cluster = Cluster::new().await;
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.post(CONFIG_MAPS, &held).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    cluster.delete(&path).await.expect(200);
    let going = cluster.get(&path).await.json();
    let patch = json!({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": null}});
    assert_eq!(cluster.patch(&path, MERGE, &patch).await.expect(200), going);
    let patch = json!({"metadata": {"deletionGracePeriodSeconds": 7}});
    cluster.patch(&path, MERGE, &patch).await.fails(422, "Invalid");
}

#[tokio::test]
async fn owners_that_are_there_twice_are_stored_once() {
    let cluster = Cluster::new().await;
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "u"});
    let mut object = config_map("a");
    object["metadata"]["ownerReferences"] = json!([owner("x"), owner("y"), owner("x"), owner("x")]);
    let kept = json!([owner("x"), owner("y")]);
    let warning = |when: &str| {
        format!(
            "\".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u, u\""
        )
    };
    let path = format!("{CONFIG_MAPS}/a");
    let patch = json!({"metadata": object["metadata"]});
    for (answer, code, when) in [
        (cluster.post(CONFIG_MAPS, &object).await, 201, ""),
        (cluster.put(&path, &object).await, 200, ""),
        (cluster.patch(&path, MERGE, &patch).await, 200, " after mutating admission happens"),
    ] {
        assert_eq!(answer.expect(code)["metadata"]["ownerReferences"], kept);
        assert_eq!(answer.warnings(), [warning(when)]);
    }
}

#[tokio::test]
async fn generations() {
    let cluster = Cluster::with_widgets().await;
    let no_status = {
        let mut definition = crate::cluster::widgets();
        definition["metadata"]["name"] = "gadgets.example.com".into();
        definition["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
        definition["spec"]["versions"][0]["subresources"] = json!({});
        definition
    };
    cluster.post(CRDS, &no_status).await.expect(201);
    let gadgets = WIDGETS.replace("widgets", "gadgets");
    let mut gadget = widget("a");
    gadget["kind"] = "Gadget".into();
    for (path, object) in [
        (DEPLOYMENTS, deployment("a")),
        (WIDGETS, widget("a")),
        (&gadgets, gadget),
        (CONFIG_MAPS, config_map("a")),
        (PODS, pod("a")),
    ] {
        cluster.post(path, &object).await.expect(201);
    }
    let steps: [(&str, Value, Option<i64>); 12] = [
        (DEPLOYMENTS, json!({"spec": {"replicas": 3}}), Some(2)),
        (DEPLOYMENTS, json!({"metadata": {"labels": {"x": "y"}}}), Some(2)),
        (DEPLOYMENTS, json!({"metadata": {"annotations": {"x": "y"}}}), Some(3)),
        (DEPLOYMENTS, json!({"status": {"replicas": 3}}), Some(3)),
        (WIDGETS, json!({"metadata": {"annotations": {"x": "y"}}}), Some(1)),
        (WIDGETS, json!({"status": {"phase": "x"}}), Some(1)),
        (WIDGETS, json!({"spec": {"size": 2}}), Some(2)),
        (WIDGETS, json!({"spec": {"size": 2}}), Some(2)),
        // Without a status subresource, the status counts for the generation like every other field.
        (&gadgets, json!({"status": {"phase": "x"}}), Some(2)),
        (&gadgets, json!({"metadata": {"labels": {"x": "y"}}}), Some(2)),
        (CONFIG_MAPS, json!({"data": {"k": "w"}}), None),
        (PODS, json!({"metadata": {"labels": {"x": "y"}}}), Some(1)),
    ];
    for (path, patch, expect) in steps {
        let patched = cluster.patch(&format!("{path}/a"), MERGE, &patch).await.expect(200);
        assert_eq!(patched["metadata"].get("generation").and_then(Value::as_i64), expect, "{path} {patch}");
    }
    let status = json!({"status": {"observedGeneration": 3}});
    let patched = cluster.patch(&format!("{DEPLOYMENTS}/a/status"), MERGE, &status).await.expect(200);
    assert_eq!(patched["metadata"]["generation"], 3);
}

#[tokio::test]
async fn status_and_the_rest_do_not_touch_each_other() {
    let cluster = Cluster::with_widgets().await;
    for (path, object) in [(DEPLOYMENTS, deployment("a")), (WIDGETS, widget("a"))] {
        let made = cluster.post(path, &object).await.expect(201);
        let status = format!("{path}/a/status");
        let both = json!({
            "metadata": {"labels": {"by": "status"}, "annotations": {"by": "status"}},
            "spec": {"replicas": 9, "size": 9}, "status": {"replicas": 4},
        });
        for (kind, change) in [
            (MERGE, both.clone()),
            (
                JSON_PATCH,
                json!([
                    {"op": "replace", "path": "/spec/replicas", "value": 9},
                    {"op": "add", "path": "/status", "value": {"replicas": 5}},
                ]),
            ),
        ] {
            if kind == JSON_PATCH && path == WIDGETS {
                continue;
            }
            let patched = cluster.patch(&status, kind, &change).await.expect(200);
            assert_eq!(patched["spec"], made["spec"], "{path}");
            assert!(patched["status"]["replicas"].as_i64() >= Some(4), "{path}");
            assert_eq!(patched["metadata"]["generation"], 1, "{path}");
        }
        let after = cluster.get(&format!("{path}/a")).await.json();
        let held = path == WIDGETS;
        let annotated = after["metadata"]["annotations"].get("by").is_some();
        assert_eq!(annotated, !held, "{path}: metadata written through status");
        assert_eq!(after["metadata"]["labels"].get("by"), None, "{path}");
        assert_eq!(cluster.get(&status).await.json(), after, "{path}: GET of the status shows the whole object");

        let mut sent = after.clone();
        sent["status"] = json!({"replicas": 77});
        sent["metadata"]["labels"] = json!({"by": "main"});
        let replaced = cluster.put(&format!("{path}/a"), &sent).await.expect(200);
        assert_eq!(replaced["status"], after["status"], "{path}");
        assert_eq!(replaced["metadata"]["labels"]["by"], "main", "{path}");
        let managers: Vec<_> = replaced["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| &entry["subresource"])
            .collect();
        assert!(managers.contains(&&json!("status")), "{path}: {managers:?}");
    }
    cluster.put(&format!("{WIDGETS}/nobody/status"), &widget("nobody")).await.fails(404, "NotFound");
    cluster.post(&format!("{WIDGETS}/a/status"), &widget("a")).await.fails(405, "MethodNotAllowed");
    cluster.delete(&format!("{WIDGETS}/a/status")).await.fails(405, "MethodNotAllowed");
}

/// Writes that change nothing keep the version and send no event, however they are made.
#[tokio::test]
async fn writes_that_change_nothing() {
    let cluster = Cluster::with_widgets().await;
    for (path, object) in [(CONFIG_MAPS, config_map("a")), (DEPLOYMENTS, deployment("a")), (WIDGETS, widget("a"))] {
        cluster.post(path, &object).await.expect(201);
        let one = format!("{path}/a");
        let applied = format!("{one}?fieldManager=applier");
        cluster.patch(&applied, APPLY, &object).await.expect(200);
        if path != CONFIG_MAPS {
            let status = json!({"status": {"replicas": 1}});
            cluster.patch(&format!("{one}/status"), MERGE, &status).await.expect(200);
        }
        let now = cluster.get(&one).await.expect(200);
        let mut lines = cluster.watch(&format!("{path}?watch=true&resourceVersion={}", version(&now))).await;
        // A later time alone is not a change.
        cluster.world.pass(Duration::from_secs(3600));
        let unchanged = |answer: crate::cluster::Answer| {
            assert_eq!(answer.expect(200), now, "{}", answer.what);
        };
        unchanged(cluster.put(&one, &now).await);
        unchanged(cluster.patch(&one, MERGE, &json!({})).await);
        unchanged(cluster.patch(&one, MERGE, &json!({"metadata": {"labels": {"not-there": null}}})).await);
        unchanged(cluster.patch(&one, JSON_PATCH, &json!([])).await);
        unchanged(
            cluster.patch(&one, JSON_PATCH, &json!([{"op": "test", "path": "/kind", "value": now["kind"]}])).await,
        );
        unchanged(cluster.patch(&applied, APPLY, &object).await);
        if path != WIDGETS {
            unchanged(cluster.patch(&one, STRATEGIC, &json!({})).await);
            let mut bare = object.clone();
            bare["metadata"]["managedFields"] = now["metadata"]["managedFields"].clone();
            unchanged(cluster.put(&one, &bare).await);
        }
        if path != CONFIG_MAPS {
            let status = json!({"status": {"replicas": 1}});
            unchanged(cluster.patch(&format!("{one}/status"), MERGE, &status).await);
            unchanged(cluster.put(&format!("{one}/status"), &now).await);
            let field = if path == WIDGETS { "size" } else { "replicas" };
            let scale = json!({"spec": {"replicas": now["spec"][field]}});
            let scaled = cluster.patch(&format!("{one}/scale"), MERGE, &scale).await.expect(200);
            assert_eq!(version(&scaled), version(&now));
        }
        let marker = cluster.patch(&one, MERGE, &json!({"metadata": {"labels": {"marker": "x"}}})).await.expect(200);
        let event = lines.next().await;
        assert_eq!((brief(&event).as_str(), version(&event["object"])), ("MODIFIED a", version(&marker)), "{path}");
    }
}

/// Server-side apply of a Scale owns the number in the object, under the name of the subresource.
async fn scale_by_apply(cluster: &Cluster) {
    for (path, field, group) in [(DEPLOYMENTS, "replicas", "apps/v1"), (WIDGETS, "size", "example.com/v1")] {
        let one = format!("{path}/a/scale");
        let scale = |replicas: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": replicas});
        let wanted = scale(json!({"replicas": 5}));
        let refused = cluster.patch(&format!("{one}?fieldManager=me"), APPLY, &wanted).await;
        let message = refused.fails(409, "Conflict");
        assert!(message.starts_with("Apply failed with 1 conflict: conflict with "), "{message}");
        let forced = cluster.patch(&format!("{one}?fieldManager=me&force=true"), APPLY, &wanted).await.expect(200);
        assert_eq!((&forced["kind"], &forced["spec"]["replicas"]), (&json!("Scale"), &json!(5)));

        let object = cluster.get(&format!("{path}/a")).await.json();
        assert_eq!(object["spec"][field], 5);
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let mine = entries.iter().find(|entry| entry["manager"] == "me").unwrap();
        assert_eq!(mine["fieldsV1"], json!({"f:spec": {format!("f:{field}"): {}}}));
        assert_eq!(
            (&mine["operation"], &mine["subresource"], &mine["apiVersion"]),
            (&json!("Apply"), &json!("scale"), &json!(group))
        );
        let again = cluster.patch(&format!("{one}?fieldManager=me"), APPLY, &wanted).await.expect(200);
        assert_eq!(version(&again), version(&object));

        // Whoever gives the number up leaves none, which a Scale shows as zero.
        let given_up = cluster.patch(&format!("{one}?fieldManager=me"), APPLY, &scale(json!({}))).await.expect(200);
        assert_eq!(given_up["spec"]["replicas"], Value::Null);
        assert_eq!(cluster.get(&format!("{path}/a")).await.json()["spec"][field], 0);
        cluster.patch(&one, MERGE, &json!({"spec": {"replicas": 7}})).await.expect(200);
    }
}

#[tokio::test]
async fn scale() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    cluster.post(WIDGETS, &widget("a")).await.expect(201);
    for (path, field) in [(DEPLOYMENTS, "replicas"), (WIDGETS, "size")] {
        let one = format!("{path}/a/scale");
        let scale = cluster.get(&one).await.expect(200);
        assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
        let scaled = cluster.patch(&one, MERGE, &json!({"spec": {"replicas": 7}})).await.expect(200);
        assert_eq!(scaled["spec"]["replicas"], 7);
        let object = cluster.get(&format!("{path}/a")).await.json();
        assert_eq!((&object["spec"][field], &object["metadata"]["generation"]), (&json!(7), &json!(2)));
        assert_eq!(version(&object), version(&scaled));
        let stale = cluster.put(&one, &scale).await;
        stale.fails(409, "Conflict");
        let negative = cluster.patch(&one, MERGE, &json!({"spec": {"replicas": -1}})).await;
        assert_eq!(
            negative.fails(422, "Invalid"),
            "Scale.autoscaling \"a\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        cluster.patch(&one, MERGE, &json!({"spec": {"replicas": "many"}})).await.fails(400, "BadRequest");
        for (metadata, code, expect) in [
            (json!({"labels": {"a": "b c"}}), 422, "metadata.labels: Invalid value: \"b c\""),
            (json!({"finalizers": ["bad"]}), 422, "metadata.finalizers"),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "u"}]}),
                422,
                "not be empty",
            ),
            (json!({"uid": "other"}), 409, "/scale"),
            (json!({"name": null}), 400, "name must be provided"),
            (json!({"labels": {"a": "b"}}), 200, ""),
        ] {
            let answer = cluster.patch(&one, MERGE, &json!({"metadata": metadata})).await;
            assert_eq!(answer.code, code, "{metadata}: {}", answer.json());
            let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
            assert!(message.contains(expect), "{metadata}: {message}");
        }
        cluster.get(&format!("{path}/nobody/scale")).await.fails(404, "NotFound");
        for (sent, expect) in [
            (json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}), "the kind in the data (Pod)"),
            (json!({"kind": "Scale", "metadata": {"name": "b"}}), "the name of the object (b) does not match"),
            (
                json!({"kind": "Scale", "apiVersion": "extensions/v1beta1", "metadata": {"name": "a"}}),
                "the API version in the data (extensions/v1beta1) does not match the expected API version (autoscaling/v1)",
            ),
            (
                json!({"kind": "Scale", "apiVersion": "autoscaling/v9", "metadata": {"name": "a"}}),
                "Scale in version \"v9\" cannot be handled as a Scale: no kind \"Scale\" is registered for version",
            ),
            (
                json!({"kind": "Scale", "metadata": {"name": "a", "namespace": "b"}}),
                "the namespace of the provided object",
            ),
            (
                json!({"kind": "Scale", "metadata": "a"}),
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal string into Go struct field \
                 Scale.metadata of type v1.ObjectMeta",
            ),
            (json!({"kind": "Scale", "spec": [1]}), "Scale in version \"v1\" cannot be handled as a Scale: json"),
        ] {
            let refused = cluster.put(&one, &sent).await;
            let message = refused.fails(400, "BadRequest");
            assert!(message.starts_with(expect), "{message}");
        }
        assert_eq!(cluster.get(&one).await.json()["spec"]["replicas"], 7);
    }
    scale_by_apply(&cluster).await;
    // A scale is checked like any change of the object.
    let large = cluster.patch(&format!("{WIDGETS}/a/scale"), MERGE, &json!({"spec": {"replicas": 1000}})).await;
    let message = large.fails(422, "Invalid");
    assert!(message.contains("spec.size in body should be less than or equal to 100"), "{message}");
    cluster.get(&format!("{CONFIG_MAPS}/a/scale")).await.fails(404, "NotFound");
}
