//! Deleting: at once, with a grace period, with finalizers, one object and collections, and the answers.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{
    CONFIG_MAPS, Cluster, DEPLOYMENTS, MERGE, NAMESPACES, PODS, SECRETS, WIDGETS, brief, config_map, deployment, names,
    pod, version, widget,
};

#[tokio::test]
async fn what_is_answered() {
    let cluster = Cluster::with_widgets().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    for (path, object, kind) in [
        (CONFIG_MAPS, config_map("a"), None),
        (SECRETS, json!({"metadata": {"name": "a"}}), None),
        (DEPLOYMENTS, deployment("a"), None),
        (WIDGETS, widget("a"), None),
        (PODS, pod("a"), Some("Pod")),
        (accounts, json!({"metadata": {"name": "a"}}), Some("ServiceAccount")),
        (services, service, Some("Service")),
    ] {
        let made = cluster.post(path, &object).await.expect(201);
        let gone = cluster.delete(&format!("{path}/a")).await.expect(200);
        match kind {
            Some(kind) => {
                assert_eq!((&gone["kind"], &gone["metadata"]["uid"]), (&json!(kind), &made["metadata"]["uid"]));
            }
            None => {
                assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")), "{path}");
                assert_eq!(
                    (&gone["details"]["name"], &gone["details"]["uid"]),
                    (&json!("a"), &made["metadata"]["uid"])
                );
            }
        }
        cluster.get(&format!("{path}/a")).await.fails(404, "NotFound");
    }
}

#[tokio::test]
async fn finalizers() {
    let cluster = Cluster::with_widgets().await;
    let mut object = widget("a");
    object["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    let path = format!("{WIDGETS}/a");
    let made = cluster.post(WIDGETS, &object).await.expect(201);
    let mut lines = cluster.watch(&format!("{WIDGETS}?watch=true&resourceVersion={}", version(&made))).await;
    let going = cluster.delete(&path).await.expect(200);
    assert_eq!(going["kind"], "Widget", "it is still there, so it is answered");
    assert_eq!(going["metadata"]["deletionTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(going["metadata"]["generation"], 2);
    assert_eq!(lines.next_brief().await, "MODIFIED a");
    // Again, later: nothing changes.
    cluster.world.pass(Duration::from_secs(60));
    assert_eq!(cluster.delete(&path).await.expect(200), going);

    let more = json!({"metadata": {"finalizers": ["example.com/one", "example.com/two", "example.com/three"]}});
    assert_eq!(
        cluster.patch(&path, MERGE, &more).await.fails(422, "Invalid"),
        "Widget.example.com \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the \
         object is being deleted, found new finalizers []string{\"example.com/three\"}"
    );
    // A deletion cannot be taken back.
    let revived = json!({"metadata": {"deletionTimestamp": null, "deletionGracePeriodSeconds": null}});
    let still = cluster.patch(&path, MERGE, &revived).await.expect(200);
    assert_eq!(still["metadata"]["deletionTimestamp"], "2026-01-02T03:04:05Z");

    let one = json!({"metadata": {"finalizers": ["example.com/two"]}, "spec": {"size": 5}});
    let left = cluster.patch(&path, MERGE, &one).await.expect(200);
    assert_eq!((&left["spec"]["size"], &left["metadata"]["generation"]), (&json!(5), &json!(3)));
    assert_eq!(lines.next_brief().await, "MODIFIED a");
    let last = cluster.patch(&path, MERGE, &json!({"metadata": {"finalizers": []}})).await.expect(200);
    assert_eq!(last["kind"], "Widget", "who removes the last one gets the object, not a status");
    let event = lines.next().await;
    assert_eq!((brief(&event).as_str(), version(&event["object"])), ("DELETED a", cluster.revision()));
    cluster.get(&path).await.fails(404, "NotFound");
}

#[tokio::test]
async fn propagation_policies() {
    let cluster = Cluster::new().await;
    let path = format!("{DEPLOYMENTS}/a");
    for (options, expect) in [
        (json!({}), None),
        (json!({"propagationPolicy": "Background"}), None),
        (json!({"propagationPolicy": "Foreground"}), Some("foregroundDeletion")),
        (json!({"propagationPolicy": "Orphan"}), Some("orphan")),
        (json!({"orphanDependents": true}), Some("orphan")),
        (json!({"orphanDependents": false}), None),
    ] {
        cluster.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
        let answer = cluster.delete_with(&path, &options).await.json();
        match expect {
            Some(expect) => {
                assert_eq!(answer["metadata"]["finalizers"], json!([expect]), "{options}");
                // Another policy replaces the first; with this one the object is removed at once.
                cluster.delete_with(&path, &json!({"propagationPolicy": "Background"})).await.expect(200);
            }
            None => assert_eq!(answer["status"], "Success", "{options}"),
        }
        cluster.get(&path).await.fails(404, "NotFound");
    }
    cluster.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    let by_query = cluster.delete(&format!("{path}?propagationPolicy=Foreground")).await.expect(200);
    assert_eq!(by_query["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    cluster.delete_with(&path, &both).await.fails(422, "Invalid");
}

#[tokio::test]
async fn a_body_replaces_the_options_of_the_query() {
    let cluster = Cluster::new().await;
    let one = format!("{CONFIG_MAPS}/a");
    let make = async || cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    make().await;
    for query in ["uid=other", "resourceVersion=1", "uid=other&dryRun=All"] {
        cluster.delete(&format!("{one}?{query}")).await.fails(409, "Conflict");
        cluster.delete(&format!("{CONFIG_MAPS}?{query}")).await.fails(409, "Conflict");
    }
    cluster.delete(&format!("{one}?dryRun=All")).await.expect(200);
    cluster.get(&one).await.expect(200);
    for query in ["dryRun=All", "dryRun=Some", "uid=other", "propagationPolicy=Foreground", "gracePeriodSeconds=x"] {
        let gone = cluster.delete_with(&format!("{one}?{query}"), &json!({})).await.expect(200);
        assert_eq!(gone["status"], "Success", "{query}");
        cluster.get(&one).await.fails(404, "NotFound");
        make().await;
    }
    cluster.delete_with(&one, &json!({"dryRun": ["All"]})).await.expect(200);
    let foreground = json!({"propagationPolicy": "Foreground"});
    let kept = cluster.delete_with(&format!("{one}?orphanDependents=true"), &foreground).await.expect(200);
    assert_eq!(kept["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

#[tokio::test]
async fn jobs_leave_their_pods_and_events_have_no_dependents() {
    let cluster = Cluster::new().await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "a"}, "spec": {"template": template}});
    let labelled = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let controller = json!({"metadata": {"name": "a"}, "spec": {"selector": {"a": "b"}, "template": labelled}});
    let (jobs, controllers) =
        ("/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/replicationcontrollers");
    for (path, object) in [(jobs, job), (controllers, controller)] {
        for (options, given, expect) in [
            (json!({}), json!([]), json!(["orphan"])),
            (json!({"gracePeriodSeconds": 0}), json!([]), json!(["orphan"])),
            (json!({"propagationPolicy": "Foreground"}), json!([]), json!(["foregroundDeletion"])),
            (json!({"propagationPolicy": "Background"}), json!([]), Value::Null),
            (json!({}), json!(["foregroundDeletion"]), json!(["foregroundDeletion"])),
        ] {
            let mut object = object.clone();
            object["metadata"]["finalizers"] = given.clone();
            cluster.post(path, &object).await.expect(201);
            let one = format!("{path}/a");
            let answer = cluster.delete_with(&one, &options).await.expect(200);
            assert_eq!(answer["metadata"]["finalizers"], expect, "{path} {options} {given}");
            if !expect.is_null() {
                cluster.delete_with(&one, &json!({"propagationPolicy": "Background"})).await.expect(200);
            }
        }
    }
    let events = "/api/v1/namespaces/default/events";
    let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    cluster.post(events, &json!({"metadata": {"name": "a"}, "involvedObject": about})).await.expect(201);
    let gone = cluster.delete_with(&format!("{events}/a"), &json!({"propagationPolicy": "Orphan"})).await.expect(200);
    assert_eq!(gone["status"], "Success");
}

#[tokio::test]
async fn pods_that_run_take_their_time() {
    let cluster = Cluster::new().await;
    let path = format!("{PODS}/a");
    let running = |grace: Option<i64>| {
        let mut object = pod("a");
        object["spec"]["nodeName"] = "node".into();
        if let Some(grace) = grace {
            object["spec"]["terminationGracePeriodSeconds"] = grace.into();
        }
        object
    };
    for (object, options, grace) in [
        (pod("a"), json!({}), None),
        (running(None), json!({}), Some(30)),
        (running(Some(60)), json!({}), Some(60)),
        (running(Some(60)), json!({"gracePeriodSeconds": 5}), Some(5)),
        (running(Some(60)), json!({"gracePeriodSeconds": 0}), None),
        (running(None), json!({"gracePeriodSeconds": -3}), Some(1)),
    ] {
        cluster.post(PODS, &object).await.expect(201);
        let answer = cluster.delete_with(&path, &options).await.expect(200);
        match grace {
            Some(grace) => {
                assert_eq!(answer["metadata"]["deletionGracePeriodSeconds"], grace, "{options}");
                assert_eq!(answer["metadata"]["generation"], 2, "{options}");
                cluster.delete_with(&path, &json!({"gracePeriodSeconds": 0})).await.expect(200);
            }
            None => assert_eq!(answer["kind"], "Pod"),
        }
        cluster.get(&path).await.fails(404, "NotFound");
    }
    // A pod that has ended has no grace period.
    cluster.post(PODS, &running(None)).await.expect(201);
    cluster.patch(&format!("{path}/status"), MERGE, &json!({"status": {"phase": "Succeeded"}})).await.expect(200);
    cluster.delete(&path).await.expect(200);
    cluster.get(&path).await.fails(404, "NotFound");
}

#[tokio::test]
async fn grace_can_only_be_shortened() {
    let cluster = Cluster::new().await;
    let path = format!("{PODS}/a");
    let mut object = pod("a");
    object["spec"]["nodeName"] = "node".into();
    cluster.post(PODS, &object).await.expect(201);
    let delete = async |grace: Option<i64>| {
        let options = grace.map_or(json!({}), |grace| json!({"gracePeriodSeconds": grace}));
        let metadata = cluster.delete_with(&path, &options).await.expect(200)["metadata"].clone();
        let field = |name: &str| metadata[name].clone();
        (field("deletionTimestamp"), field("deletionGracePeriodSeconds"), field("generation"))
    };
    let at = |time: &str, grace: i64| (json!(format!("2026-01-02T{time}Z")), json!(grace), json!(2));
    assert_eq!(delete(Some(100)).await, at("03:05:45", 100));
    cluster.world.pass(Duration::from_secs(10));
    assert_eq!(delete(None).await, at("03:05:45", 100), "who says nothing changes nothing");
    assert_eq!(delete(Some(200)).await, at("03:05:45", 100));
    assert_eq!(delete(Some(40)).await, at("03:04:45", 40), "counted from the beginning");
    cluster.world.pass(Duration::from_secs(20));
    assert_eq!(delete(Some(5)).await, at("03:04:35", 1), "over already, but others must see it");
    delete(Some(0)).await;
    cluster.get(&path).await.fails(404, "NotFound");
}

#[tokio::test]
async fn preconditions() {
    let cluster = Cluster::new().await;
    let made = cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let uid = &made["metadata"]["uid"];
    let rv = &made["metadata"]["resourceVersion"];
    for wanted in [json!({"uid": "x"}), json!({"resourceVersion": "1"}), json!({"uid": uid, "resourceVersion": "1"})] {
        cluster.delete_with(&path, &json!({"preconditions": wanted})).await.fails(409, "Conflict");
    }
    cluster.delete_with(&path, &json!({"preconditions": {"uid": uid, "resourceVersion": rv}})).await.expect(200);
}

#[tokio::test]
async fn collections() {
    let cluster = Cluster::new().await;
    let fill = async || {
        for at in 0..4 {
            let mut object = config_map(&format!("m{at}"));
            object["metadata"]["labels"] = json!({"odd": (at % 2 == 1).to_string()});
            cluster.post(CONFIG_MAPS, &object).await;
        }
    };
    for (query, expect) in [
        ("", vec![]),
        ("?labelSelector=odd%3Dtrue", vec!["m0", "m2"]),
        ("?fieldSelector=metadata.name%3Dm0", vec!["m1", "m2", "m3"]),
        ("?labelSelector=odd%3Dnever", vec!["m0", "m1", "m2", "m3"]),
        ("?dryRun=All", vec!["m0", "m1", "m2", "m3"]),
    ] {
        fill().await;
        let deleted = cluster.delete(&format!("{CONFIG_MAPS}{query}")).await.expect(200);
        assert_eq!(deleted["kind"], "ConfigMapList");
        assert_eq!(names(&cluster.get(CONFIG_MAPS).await.json()), expect, "{query}");
        if !query.contains("dryRun") {
            assert_eq!(names(&deleted).len(), 4 - expect.len(), "{query}");
        }
    }
    cluster.delete("/api/v1/configmaps").await.fails(405, "MethodNotAllowed");
    cluster.delete(NAMESPACES).await.fails(405, "MethodNotAllowed");
}

#[tokio::test]
async fn collections_keep_what_finalizers_hold() {
    let cluster = Cluster::new().await;
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.post(CONFIG_MAPS, &held).await.expect(201);
    cluster.post(CONFIG_MAPS, &config_map("free")).await.expect(201);
    cluster.delete(CONFIG_MAPS).await.expect(200);
    let left = cluster.get(CONFIG_MAPS).await.json();
    assert_eq!(names(&left), ["held"]);
    assert!(left["items"][0]["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn options_that_are_none() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    for body in ["[]", "\"Foreground\"", "{", "5"] {
        let answer = cluster.ask("DELETE", &path, &[("content-type", "application/json")], body).await;
        answer.fails(400, "BadRequest");
    }
    for (options, code) in [
        (json!({"dryRun": ["some"]}), 422),
        (json!({"gracePeriodSeconds": "soon"}), 400),
        (json!({"preconditions": {"uid": 5}}), 400),
        (json!({"propagationPolicy": 5}), 400),
    ] {
        let answer = cluster.delete_with(&path, &options).await;
        assert_eq!(answer.code, code, "{options}: {}", String::from_utf8_lossy(&answer.body));
    }
    cluster.get(&path).await.expect(200);
    let kind = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": Value::Null});
    cluster.delete_with(&path, &kind).await.expect(200);
}

/// Options in an unknown format are refused, not replaced by defaults.
#[tokio::test]
async fn options_are_read_by_their_content_type() {
    let cluster = Cluster::new().await;
    let path = format!("{}/a", crate::cluster::CONFIG_MAPS);
    let json = r#"{"dryRun": ["All"]}"#;
    for (content_type, body, code) in [
        ("application/json", json, 200),
        ("application/yaml", "dryRun: [All]", 200),
        ("application/json", "dryRun: [All]", 400),
        ("application/x-www-form-urlencoded", json, 415),
        ("text/plain", json, 415),
    ] {
        cluster.post(crate::cluster::CONFIG_MAPS, &crate::cluster::config_map("a")).await;
        let answer = cluster.ask("DELETE", &path, &[("content-type", content_type)], body).await;
        answer.expect(code);
        cluster.get(&path).await.expect(200);
        let many = cluster.ask("DELETE", crate::cluster::CONFIG_MAPS, &[("content-type", content_type)], body).await;
        many.expect(code);
        cluster.get(&path).await.expect(200);
    }
}
