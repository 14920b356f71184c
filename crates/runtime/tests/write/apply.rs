//! Applies: what is sent, and above all what is not.

use std::time::Duration;

use konverge_core::ObjectKey;
use konverge_runtime::{
    Applied, ApplyOptions, Conflicts, Deleted, FieldManager, OWNER_ANNOTATION, Owner, Patch, WriteError, Writer,
    WriterOptions,
};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::cluster::{Cluster, cached, config_map, key, kind, webapp, webapp_schema};

fn settings(data: Value) -> Value {
    json!({"metadata": {"name": "settings", "namespace": "default"}, "data": data})
}

fn deployment(replicas: u32) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{
                    "name": "app", "image": "nginx", "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "0.5", "memory": "1Gi"}},
                    "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                }]},
            },
        },
    })
}

async fn apply(cluster: &Cluster, api: &ApiResource, config: Value) -> Applied {
    apply_by(&cluster.writer, cluster, api, config).await
}

/// Applies with the object as a cache shows it that has caught up.
async fn apply_by(writer: &Writer, cluster: &Cluster, api: &ApiResource, config: Value) -> Applied {
    let live = cluster.see(api, config["metadata"]["name"].as_str().unwrap()).await;
    let live = live.map(|live| cached(api, &live));
    writer.apply(api, live.as_deref(), &config, ApplyOptions::default()).await.expect("it can be applied")
}

/// The objects are doctored: what they hold is not what their version says, so that one sees whether it was looked at.
#[tokio::test]
async fn a_version_is_compared_once() {
    let (cluster, api) = (Cluster::start().await, config_map());
    apply(&cluster, &api, settings(json!({"a": "1"}))).await;
    assert_eq!(cluster.methods(), "PATCH");
    let mut live = cluster.see(&api, "settings").await.unwrap();
    live["data"]["a"] = json!("2");
    let versions = [("uid", None, ""), ("resourceVersion", Some("1"), "PATCH"), ("uid", Some("other"), "PATCH")];
    for (field, other, expect) in versions {
        let mut live = live.clone();
        if let Some(other) = other {
            live["metadata"][field] = json!(other);
        }
        let config = settings(json!({"a": "1"}));
        let options = ApplyOptions::default();
        cluster.writer.apply(&api, Some(&cached(&api, &live)), &config, options).await.unwrap();
        assert_eq!(cluster.methods(), expect, "{field} {other:?}");
    }
    // Another configuration is another question.
    let options = ApplyOptions::default();
    cluster.writer.apply(&api, Some(&cached(&api, &live)), &settings(json!({"a": "3"})), options).await.unwrap();
    assert_eq!(cluster.methods(), "PATCH");
    assert_eq!(cluster.see(&api, "settings").await.unwrap()["data"]["a"], "3");
}

/// Everything that decides what is applied takes part in the question whether it was.
#[tokio::test]
async fn the_namespace_given_is_for_objects_that_name_none() {
    let (cluster, api) = (Cluster::start().await, config_map());
    let given = |namespace| ApplyOptions { namespace: Some(namespace), ..ApplyOptions::default() };
    let homeless = json!({"metadata": {"name": "settings"}});
    for (config, namespace, expect) in [
        (&homeless, "default", "default"),
        (&homeless, "kube-system", "kube-system"),
        (&settings(json!({})), "kube-system", "default"),
    ] {
        let applied = cluster.writer.apply(&api, None, config, given(namespace)).await.unwrap();
        let live = applied.object().unwrap();
        assert_eq!(live.namespace(), Some(expect), "{config} {namespace}");
        cluster.methods();
        let again = cluster.writer.apply(&api, Some(live), config, given(namespace)).await.unwrap();
        assert_eq!((again, cluster.methods().as_str()), (Applied::Unchanged, ""), "{config} {namespace}");
    }
}

#[tokio::test]
async fn a_steady_state_makes_no_call() {
    let kinds = [
        (config_map(), settings(json!({"a": "1"}))),
        (kind("apps", "v1", "Deployment"), deployment(3)),
        (
            kind("", "v1", "Secret"),
            json!({"metadata": {"name": "s", "namespace": "default"}, "stringData": {"password": "secret123"}}),
        ),
        (
            kind("", "v1", "Service"),
            json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
                "ports": [{"port": 80}], "selector": {"app": "web"}}}),
        ),
        (
            webapp(),
            json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {"on": false, "list": [{"a": 1}], "map": {}}}),
        ),
        (
            kind("rbac.authorization.k8s.io", "v1", "ClusterRole"),
            json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
    ];
    for (api, config) in kinds {
        let cluster = Cluster::start().await;
        assert!(matches!(apply(&cluster, &api, config.clone()).await, Applied::Created(_)), "{}", api.kind);
        assert_eq!(cluster.methods(), "PATCH", "{}", api.kind);
        for _ in 0..3 {
            assert_eq!(apply(&cluster, &api, config.clone()).await, Applied::Unchanged, "{}", api.kind);
        }
        // Also after a restart.
        let restarted = cluster.writer_with(WriterOptions::default());
        assert_eq!(apply_by(&restarted, &cluster, &api, config).await, Applied::Unchanged, "{}", api.kind);
        assert_eq!(cluster.methods(), "", "{}", api.kind);
    }
}

#[tokio::test]
async fn what_a_server_fills_in_later_is_no_drift() {
    let cluster = Cluster::start().await;
    let api = kind("apps", "v1", "Deployment");
    apply(&cluster, &api, deployment(3)).await;
    let container = json!({
        "name": "app", "image": "nginx", "terminationMessagePath": "/dev/termination-log",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP", "apiVersion": "v1"}}}],
    });
    let filled = json!({"spec": {
        "revisionHistoryLimit": 10, "strategy": {"type": "RollingUpdate"},
        "template": {"spec": {"containers": [container], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}},
    }});
    cluster.meddle(&api, "web", filled).await;
    cluster.meddle(&api, "web", json!({"status": {"replicas": 3, "observedGeneration": 2}})).await;
    cluster.methods();
    assert_eq!(apply(&cluster, &api, deployment(3)).await, Applied::Unchanged);
    assert_eq!(cluster.methods(), "");
}

#[tokio::test]
async fn drift_is_repaired_by_one_call_and_others_keep_their_fields() {
    let cluster = Cluster::start().await;
    let api = kind("apps", "v1", "Deployment");
    apply(&cluster, &api, deployment(3)).await;
    let meddled = json!({"metadata": {"labels": {"team": "x"}}, "spec": {"replicas": 7, "paused": true}});
    cluster.meddle(&api, "web", meddled).await;
    cluster.methods();

    let Applied::Updated(answer) = apply(&cluster, &api, deployment(3)).await else { panic!("it was put back") };
    let sent = cluster.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].path, "/apis/apps/v1/namespaces/default/deployments/web");
    assert_eq!(sent[0].query, "fieldManager=webapp-operator&force=true");
    assert_eq!(sent[0].content_type, "application/apply-patch+yaml");
    let live = cluster.see(&api, "web").await.unwrap();
    assert_eq!(live["spec"]["replicas"], 3);
    assert_eq!((&live["spec"]["paused"], &live["metadata"]["labels"]["team"]), (&json!(true), &json!("x")));
    assert_eq!(answer.resource_version(), live["metadata"]["resourceVersion"]);
    assert_eq!(apply(&cluster, &api, deployment(3)).await, Applied::Unchanged);
    assert_eq!(cluster.methods(), "");
}

#[tokio::test]
async fn what_is_no_longer_applied_goes() {
    let cluster = Cluster::start().await;
    let api = config_map();
    apply(&cluster, &api, settings(json!({"a": "1", "b": "2"}))).await;
    cluster.meddle(&api, "settings", json!({"data": {"theirs": "3"}})).await;
    assert!(matches!(apply(&cluster, &api, settings(json!({"a": "1"}))).await, Applied::Updated(_)));
    assert_eq!(cluster.see(&api, "settings").await.unwrap()["data"], json!({"a": "1", "theirs": "3"}));
    assert_eq!(apply(&cluster, &api, settings(json!({"a": "1"}))).await, Applied::Unchanged);
    assert_eq!(cluster.methods(), "PATCH PATCH");
}

#[tokio::test]
async fn two_controllers_apply_to_one_object_without_a_fight() {
    let cluster = Cluster::start().await;
    let api = config_map();
    let other = Writer::new(cluster.wired_client(), FieldManager::new("other/controller"), WriterOptions::default());
    for _ in 0..3 {
        apply(&cluster, &api, settings(json!({"a": "1"}))).await;
        apply_by(&other, &cluster, &api, settings(json!({"b": "2"}))).await;
    }
    assert_eq!(cluster.methods(), "PATCH PATCH");
    assert_eq!(cluster.see(&api, "settings").await.unwrap()["data"], json!({"a": "1", "b": "2"}));
}

#[tokio::test]
async fn what_a_server_insists_on_is_sent_once() {
    let cluster = Cluster::start().await;
    let api = webapp();
    // A default inside of a list that is owned whole: without a schema it looks like a change by somebody else.
    let config = json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {"a": 1, "hosts": [{"name": "x"}]}});
    apply(&cluster, &api, config.clone()).await;
    assert_eq!(apply(&cluster, &api, config.clone()).await, Applied::Unchanged);
    assert_eq!(cluster.methods(), "PATCH");
    // It does not hide real drift, in the same list or elsewhere.
    for drift in [json!({"spec": {"a": 2}}), json!({"spec": {"hosts": [{"name": "x", "tls": false}]}})] {
        cluster.meddle(&api, "w", drift).await;
        assert!(matches!(apply(&cluster, &api, config.clone()).await, Applied::Updated(_)));
        assert_eq!(apply(&cluster, &api, config.clone()).await, Applied::Unchanged);
    }
    assert_eq!(cluster.methods(), "PATCH PATCH");
    // After a restart it costs one call; with the schema at hand it costs none.
    let restarted = cluster.writer_with(WriterOptions::default());
    apply_by(&restarted, &cluster, &api, config.clone()).await;
    assert_eq!(apply_by(&restarted, &cluster, &api, config.clone()).await, Applied::Unchanged);
    assert_eq!(cluster.methods(), "PATCH");
    let learned = cluster.writer_with(WriterOptions::default());
    learned.learn(&api, &webapp_schema()).unwrap();
    assert_eq!(apply_by(&learned, &cluster, &api, config).await, Applied::Unchanged);
    assert_eq!(cluster.methods(), "");
}

#[tokio::test]
async fn a_field_that_is_not_declared_is_no_matter_of_retries() {
    let cluster = Cluster::start().await;
    let config = json!({"metadata": {"name": "w", "namespace": "default"}, "unknown": {"b": 1}});
    let error = cluster.writer.apply(&webapp(), None, &config, ApplyOptions::default()).await.unwrap_err();
    assert!(matches!(error, WriteError::Invalid { .. }), "{error:?}");
    assert!(error.to_string().ends_with(".unknown: field not declared in schema"), "{error}");
}

#[tokio::test]
async fn a_conflict_names_the_manager_and_the_field() {
    let cluster = Cluster::start().await;
    let api = config_map();
    cluster
        .create(&api, json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"a": "theirs"}}))
        .await;
    let live = cluster.see(&api, "settings").await.map(|live| cached(&api, &live));
    let refuse = ApplyOptions { conflicts: Conflicts::Refuse, ..ApplyOptions::default() };
    let error = cluster.writer.apply(&api, live.as_deref(), &settings(json!({"a": "ours"})), refuse).await.unwrap_err();
    let WriteError::Conflict { fields, .. } = &error else { panic!("{error:?}") };
    assert_eq!((fields[0].manager.as_str(), fields[0].field.as_str()), ("somebody", ".data.a"));
    // By default the controller's word counts.
    apply(&cluster, &api, settings(json!({"a": "ours"}))).await;
    assert_eq!(cluster.see(&api, "settings").await.unwrap()["data"]["a"], "ours");
}

#[tokio::test]
async fn children_refer_to_their_owner_and_go_with_it() {
    let cluster = Cluster::start().await;
    let parent = json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {}});
    let owner = Owner::of(&webapp(), &cluster.create(&webapp(), with_type(&webapp(), parent)).await).unwrap();
    let options = ApplyOptions { owner: Some(&owner), ..ApplyOptions::default() };
    let applied = cluster.writer.apply(&config_map(), None, &settings(json!({})), options).await.unwrap();
    let reference = &applied.object().unwrap().value()["metadata"]["ownerReferences"][0];
    assert_eq!((&reference["controller"], &reference["blockOwnerDeletion"]), (&json!(true), &json!(true)));
    assert_eq!(reference["uid"], json!(owner.uid));
    let live = cluster.see(&config_map(), "settings").await.map(|live| cached(&config_map(), &live));
    let again = cluster.writer.apply(&config_map(), live.as_deref(), &settings(json!({})), options).await.unwrap();
    assert_eq!(again, Applied::Unchanged);
    assert_eq!(cluster.methods(), "PATCH");

    // Where there can be no reference an annotation names the owner, and nobody else's child is taken.
    let elsewhere = || json!({"metadata": {"name": "settings", "namespace": "kube-system"}});
    let applied = cluster.writer.apply(&config_map(), None, &elsewhere(), options).await.unwrap();
    let child = applied.object().unwrap();
    assert_eq!(child.annotation(OWNER_ANNOTATION).as_deref(), Some("WebApp.example.com/default/w"));
    assert_eq!(cluster.methods(), "PATCH");
    let other = Owner { key: ObjectKey::new(Some("default"), "other"), ..owner.clone() };
    let options = ApplyOptions { owner: Some(&other), ..options };
    let error = cluster.writer.apply(&config_map(), Some(child), &elsewhere(), options).await.unwrap_err();
    assert!(error.to_string().contains("belongs to WebApp.example.com/default/w already"), "{error}");
    assert_eq!(cluster.methods(), "");

    cluster.writer.delete_named(&webapp(), &key(&webapp(), "w")).await.unwrap();
    let gone = async { while cluster.see(&config_map(), "settings").await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the child goes with its owner");
}

#[tokio::test]
async fn a_delete_names_the_uid_and_may_come_late() {
    let cluster = Cluster::start().await;
    let api = config_map();
    let Applied::Created(first) = apply(&cluster, &api, settings(json!({}))).await else { panic!("it is new") };
    let first = first.value();
    cluster.methods();
    assert_eq!(cluster.writer.delete(&api, &first).await.unwrap(), Deleted::Gone);
    let sent = cluster.sent();
    assert_eq!((sent.len(), &sent[0].body["preconditions"]["uid"]), (1, &first["metadata"]["uid"]));
    assert_eq!(cluster.writer.delete(&api, &first).await.unwrap(), Deleted::NotFound);
    assert_eq!(cluster.writer.delete_named(&api, &key(&api, "settings")).await.unwrap(), Deleted::NotFound);

    // Another object of the name is left alone.
    let Applied::Created(second) = apply(&cluster, &api, settings(json!({}))).await else { panic!("it is new") };
    let error = cluster.writer.delete(&api, &first).await.unwrap_err();
    assert!(matches!(error, WriteError::Conflict { .. }), "{error:?}");
    assert_eq!(cluster.see(&api, "settings").await.unwrap()["metadata"]["uid"], second.uid());

    // One that waits for its finalizers is told only once.
    cluster.meddle(&api, "settings", json!({"metadata": {"finalizers": ["example.com/wait"]}})).await;
    cluster.methods();
    let told = cluster.writer.delete_named(&api, &key(&api, "settings")).await.unwrap();
    assert!(matches!(told, Deleted::Terminating(_)), "{told:?}");
    let leaving = cluster.see(&api, "settings").await.unwrap();
    assert_eq!(cluster.writer.delete(&api, &leaving).await.unwrap(), Deleted::AlreadyTerminating);
    assert_eq!(cluster.methods(), "GET DELETE");
    let no_uid = json!({"metadata": {"name": "settings", "namespace": "default"}});
    assert!(matches!(cluster.writer.delete(&api, &no_uid).await, Err(WriteError::Invalid { .. })));
}

#[tokio::test]
async fn updates_say_which_version_they_mean() {
    let cluster = Cluster::start().await;
    let api = config_map();
    let created = cluster.writer.create(&api, &with_type(&api, settings(json!({"a": "1"})))).await.unwrap();
    let error = cluster.writer.create(&api, &with_type(&api, settings(json!({})))).await.unwrap_err();
    assert!(matches!(error, WriteError::Exists { .. }), "{error:?}");

    let mut changed = created.clone();
    changed["data"]["a"] = json!("2");
    let replaced = cluster.writer.replace(&api, &changed).await.unwrap();
    assert_eq!(replaced["data"]["a"], "2");
    let error = cluster.writer.replace(&api, &changed).await.unwrap_err();
    assert!(matches!(&error, WriteError::Conflict { fields, .. } if fields.is_empty()), "{error:?}");
    cluster.methods();
    let error = cluster.writer.replace(&api, &with_type(&api, settings(json!({})))).await.unwrap_err();
    assert_eq!(error.to_string(), "metadata.resourceVersion: a replaced object must be the one that was read");
    assert_eq!(cluster.methods(), "");

    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let merge = |resource_version: String| Patch::Merge { patch: json!({"data": {"a": "3"}}), resource_version };
    let key = key(&api, "settings");
    let error = cluster.writer.patch(&api, &key, "", merge(version(&created))).await.unwrap_err();
    assert!(matches!(error, WriteError::Conflict { .. }), "{error:?}");
    assert_eq!(cluster.writer.patch(&api, &key, "", merge(version(&replaced))).await.unwrap()["data"]["a"], "3");
    let json = json!([{"op": "test", "path": "/data/a", "value": "3"}, {"op": "remove", "path": "/data/a"}]);
    let patched = cluster.writer.patch(&api, &key, "", Patch::Json(json)).await.unwrap();
    assert!(patched.pointer("/data/a").is_none());
}

#[tokio::test]
async fn odd_names_arrive_as_they_are() {
    let cluster = Cluster::start().await;
    let api = kind("rbac.authorization.k8s.io", "v1", "ClusterRole");
    let config = json!({"metadata": {"name": "system:a b?c#d"}, "rules": []});
    let writer = Writer::new(cluster.wired_client(), FieldManager::new("a b&force=false"), WriterOptions::default());
    writer.apply(&api, None, &config, ApplyOptions::default()).await.unwrap();
    let found = writer.get(&api, &ObjectKey::new(None, "system:a b?c#d")).await.unwrap().unwrap();
    assert_eq!(found["metadata"]["managedFields"][0]["manager"], "a b&force=false");
}

fn with_type(api: &ApiResource, mut object: Value) -> Value {
    object["apiVersion"] = json!(api.api_version);
    object["kind"] = json!(api.kind);
    object
}

/// Zero is a value like any other where the server tells it from none: taken away by somebody, it is put back.
#[tokio::test]
async fn a_zero_that_somebody_took_away_is_put_back() {
    let (cluster, api) = (Cluster::start().await, kind("apps", "v1", "Deployment"));
    let mut wanted = deployment(2);
    let pod = &mut wanted["spec"]["template"]["spec"];
    pod["automountServiceAccountToken"] = json!(false);
    pod["containers"][0]["securityContext"] = json!({"allowPrivilegeEscalation": false, "runAsUser": 0});
    // The server leaves this one out.
    pod["hostNetwork"] = json!(false);
    apply(&cluster, &api, wanted.clone()).await;
    cluster.sent();
    assert_eq!(apply(&cluster, &api, wanted.clone()).await, Applied::Unchanged);
    for path in ["automountServiceAccountToken", "containers/0/securityContext/allowPrivilegeEscalation"] {
        let path = format!("/spec/template/spec/{path}");
        let meddler = Writer::new(cluster.client.clone(), FieldManager::new("meddler"), WriterOptions::default());
        let patch = Patch::Json(json!([{"op": "remove", "path": path}]));
        meddler.patch(&api, &key(&api, "web"), "", patch).await.unwrap();
        assert_eq!(cluster.see(&api, "web").await.unwrap().pointer(&path), None);
        apply(&cluster, &api, wanted.clone()).await;
        assert_eq!(cluster.see(&api, "web").await.unwrap().pointer(&path), Some(&json!(false)), "{path}");
        assert_eq!(cluster.methods(), "PATCH");
        assert_eq!(apply(&cluster, &api, wanted.clone()).await, Applied::Unchanged);
    }
}
