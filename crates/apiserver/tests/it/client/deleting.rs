//! Deleting as the client does it: preconditions, propagation, finalizers, whole collections.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::{await_condition, conditions, delete::delete_and_finalize};
use serde_json::json;
use tokio::time::timeout;

use super::{Setup, flows, refused, typed};
use crate::cluster::{AT_MOST, config_map, deployment, pod};

flows![preconditions, propagation, finalizers, waiting_for_the_end, collections, pods_take_their_time, namespaces];

async fn preconditions(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let made = maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    let only = |uid: Option<&str>, version: Option<String>| {
        let wanted = Preconditions { uid: uid.map(str::to_owned), resource_version: version };
        DeleteParams::default().preconditions(wanted)
    };
    let status = refused(maps.delete("a", &only(Some("other"), None)).await, 409);
    assert!(status.message.contains("the UID in the precondition (other) does not match"), "{}", status.message);
    let status = refused(maps.delete("a", &only(None, Some("1".into()))).await, 409);
    assert!(status.message.contains("the ResourceVersion in the precondition (1) does not"), "{}", status.message);
    maps.delete("a", &only(made.uid().as_deref(), made.resource_version())).await.unwrap();
}

async fn propagation(setup: Setup) {
    let deployments: Api<Deployment> = setup.api();
    for (name, params, expect) in [
        ("fore", DeleteParams::foreground(), Some("foregroundDeletion")),
        ("orphan", DeleteParams::orphan(), Some("orphan")),
        ("back", DeleteParams::background(), None),
    ] {
        deployments.create(&PostParams::default(), &typed(&deployment(name))).await.unwrap();
        let answer = deployments.delete(name, &params).await.unwrap();
        match expect {
            Some(expect) => {
                let going = answer.left().expect("it is still there");
                assert_eq!(going.finalizers(), [expect]);
                assert!(going.metadata.deletion_timestamp.is_some());
                assert_eq!(going.metadata.generation, Some(2));
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                deployments.patch(name, &PatchParams::default(), &none).await.unwrap();
            }
            None => assert!(answer.is_right()),
        }
        assert!(deployments.get_opt(name).await.unwrap().is_none(), "{name}");
    }
}

async fn finalizers(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let made = maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reconcile = async |object: ConfigMap| {
        let seen = seen.clone();
        finalizer(&maps, "example.com/cleanup", Arc::new(object), |event| async move {
            seen.lock().unwrap().push(match event {
                Event::Apply(_) => "apply",
                Event::Cleanup(_) => "cleanup",
            });
            Ok::<_, std::io::Error>(Action::await_change())
        })
        .await
        .unwrap();
    };
    reconcile(made).await;
    let held = maps.get("a").await.unwrap();
    assert_eq!(held.finalizers(), ["example.com/cleanup"]);
    reconcile(held).await;
    let going = maps.delete("a", &Default::default()).await.unwrap().left().expect("the finalizer holds it");
    assert!(going.metadata.deletion_timestamp.is_some());
    let added = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/cleanup", "example.com/more"]}}));
    let status = refused(maps.patch("a", &PatchParams::default(), &added).await, 422);
    assert!(status.message.contains("no new finalizers can be added if the object is being deleted"), "{status:?}");
    reconcile(maps.get("a").await.unwrap()).await;
    assert!(maps.get_opt("a").await.unwrap().is_none());
    assert_eq!(*seen.lock().unwrap(), ["apply", "cleanup"]);
}

async fn waiting_for_the_end(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let made = maps.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let uid = made.uid().unwrap();
    let deleted = await_condition(maps.clone(), "a", conditions::is_deleted(&uid));
    let params = DeleteParams::default();
    let going = delete_and_finalize(maps.clone(), "a", &params);
    let release = async {
        let doomed = |object: Option<&ConfigMap>| object.is_some_and(|it| it.metadata.deletion_timestamp.is_some());
        await_condition(maps.clone(), "a", doomed).await.unwrap();
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        maps.patch("a", &PatchParams::default(), &none).await.unwrap();
    };
    let all = async { tokio::join!(deleted, going, release) };
    let (deleted, going, ()) = timeout(AT_MOST, all).await.expect("the end should come");
    deleted.unwrap();
    going.unwrap();
    // A new object of that name is not the one that was waited for.
    maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    timeout(AT_MOST, await_condition(maps, "a", conditions::is_deleted(&uid))).await.unwrap().unwrap();
}

async fn collections(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    for at in 0..6 {
        let mut object = config_map(&format!("m{at}"));
        object["metadata"]["labels"] = json!({"odd": (at % 2 == 1).to_string()});
        maps.create(&PostParams::default(), &typed(&object)).await.unwrap();
    }
    let odd = ListParams::default().labels("odd=true");
    let deleted = maps.delete_collection(&DeleteParams::default(), &odd).await.unwrap();
    assert_eq!(deleted.left().expect("a list of what went").items.len(), 3);
    let left = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["m0", "m2", "m4"]);
    maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    assert!(maps.list(&ListParams::default()).await.unwrap().items.is_empty());
}

async fn pods_take_their_time(setup: Setup) {
    let pods: Api<Pod> = setup.api();
    let mut object = pod("p");
    object["spec"]["nodeName"] = "node".into();
    pods.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let going = pods.delete("p", &DeleteParams::default()).await.unwrap().left().expect("it runs somewhere");
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(30));
    let gone = pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(gone.left().expect("pods are answered with the pod").name_any(), "p");
    assert!(pods.get_opt("p").await.unwrap().is_none());
}

async fn namespaces(setup: Setup) {
    let namespaces: Api<Namespace> = setup.cluster_api();
    let object = json!({"metadata": {"name": "team"}});
    namespaces.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(setup.client.clone(), "team");
    maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    let going = namespaces.delete("team", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(going.status.unwrap().phase.as_deref(), Some("Terminating"));
    let status = refused(maps.create(&PostParams::default(), &typed(&config_map("b"))).await, 403);
    assert_eq!(status.details.unwrap().causes[0].reason, "NamespaceTerminating");
    let nowhere: Api<ConfigMap> = Api::namespaced(setup.client.clone(), "nowhere");
    let status = refused(nowhere.create(&PostParams::default(), &typed(&config_map("b"))).await, 404);
    assert_eq!(status.message, "namespaces \"nowhere\" not found");
}
