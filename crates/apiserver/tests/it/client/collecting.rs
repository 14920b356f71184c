//! Garbage collection of owners and namespaces, as a client sees it.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Resource, ResourceExt};
use tokio::time::timeout;

use super::{Definition, Setup, flows, refused, typed};
use crate::cluster::{AT_MOST, config_map, deployment};

flows![Inside:
    dependents_go_with_their_owner,
    dependents_go_with_the_kind_of_their_owner,
    circles_end,
    nobody_waits_for_what_another_owner_keeps,
    owners_that_an_update_adds_count,
    namespaces_go_with_their_content,
    namespaces_keep_the_finalizers_of_others,
];

async fn gone(maps: &Api<ConfigMap>, object: &ConfigMap) {
    let (name, uid) = (object.name_any(), object.uid().unwrap());
    let gone = await_condition(maps.clone(), &name, conditions::is_deleted(&uid));
    timeout(AT_MOST, gone).await.expect("it should go").unwrap();
}

async fn dependents_go_with_their_owner(setup: Setup) {
    let deployments: Api<Deployment> = setup.api();
    let maps: Api<ConfigMap> = setup.api();
    for (name, params, stays) in [
        ("back", DeleteParams::background(), false),
        ("fore", DeleteParams::foreground(), false),
        ("orphan", DeleteParams::orphan(), true),
    ] {
        let owner = deployments.create(&PostParams::default(), &typed(&deployment(name))).await.unwrap();
        let mut dependent: ConfigMap = typed(&config_map(name));
        dependent.meta_mut().owner_references = owner.controller_owner_ref(&()).map(|owner| vec![owner]);
        let dependent = maps.create(&PostParams::default(), &dependent).await.unwrap();
        deployments.delete(name, &params).await.unwrap();
        let uid = owner.uid().unwrap();
        let owner_gone = await_condition(deployments.clone(), name, conditions::is_deleted(&uid));
        timeout(AT_MOST, owner_gone).await.expect("the owner should go").unwrap();
        if stays {
            assert!(maps.get(name).await.unwrap().owner_references().is_empty(), "{name}");
        } else {
            gone(&maps, &dependent).await;
        }
    }
}

/// The kind of the owner does not exist any more when the owner is looked up, which alone would prove nothing.
async fn dependents_go_with_the_kind_of_their_owner(setup: Setup) {
    let (widgets, resource) = setup.widgets().await;
    let maps: Api<ConfigMap> = setup.api();
    let mut dependents = Vec::new();
    for name in ["a", "b"] {
        let owner = widgets.create(&PostParams::default(), &DynamicObject::new(name, &resource)).await.unwrap();
        let mut dependent: ConfigMap = typed(&config_map(name));
        dependent.meta_mut().owner_references = owner.controller_owner_ref(&resource).map(|owner| vec![owner]);
        dependents.push(maps.create(&PostParams::default(), &dependent).await.unwrap());
    }
    let definitions: Api<Definition> = setup.cluster_api();
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    for dependent in &dependents {
        gone(&maps, dependent).await;
    }
}

async fn circles_end(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let owned = |name: &str, owner: Option<&ConfigMap>| {
        let mut map: ConfigMap = typed(&config_map(name));
        let owner = owner.and_then(|owner| owner.controller_owner_ref(&()));
        let owner = owner.map(|owner| OwnerReference { block_owner_deletion: Some(true), ..owner });
        map.meta_mut().owner_references = owner.map(|owner| vec![owner]);
        map
    };
    for count in 2..=4 {
        let mut chain = vec![maps.create(&PostParams::default(), &owned("m0", None)).await.unwrap()];
        for at in 1..count {
            let next = owned(&format!("m{at}"), chain.last());
            chain.push(maps.create(&PostParams::default(), &next).await.unwrap());
        }
        maps.replace("m0", &PostParams::default(), &owned("m0", chain.last())).await.unwrap();
        maps.delete("m0", &DeleteParams::foreground()).await.unwrap();
        for map in &chain {
            gone(&maps, map).await;
        }
    }
}

/// A ConfigMap that blocks the deletion of its owners.
fn owned_by(name: &str, owners: &[&ConfigMap]) -> ConfigMap {
    let mut map: ConfigMap = typed(&config_map(name));
    let owners = owners.iter().filter_map(|owner| owner.owner_ref(&()));
    let owners = owners.map(|owner| OwnerReference { block_owner_deletion: Some(true), ..owner });
    map.meta_mut().owner_references = Some(owners.collect());
    map
}

async fn nobody_waits_for_what_another_owner_keeps(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let goes = maps.create(&PostParams::default(), &owned_by("goes", &[])).await.unwrap();
    let stays = maps.create(&PostParams::default(), &owned_by("stays", &[])).await.unwrap();
    maps.create(&PostParams::default(), &owned_by("shared", &[&goes, &stays])).await.unwrap();
    let alone = maps.create(&PostParams::default(), &owned_by("alone", &[&goes])).await.unwrap();
    maps.delete("goes", &DeleteParams::foreground()).await.unwrap();
    gone(&maps, &goes).await;
    gone(&maps, &alone).await;
    let left = maps.get("shared").await.unwrap();
    let uids: Vec<&str> = left.owner_references().iter().map(|owner| owner.uid.as_str()).collect();
    assert_eq!(uids, [stays.uid().unwrap()]);
}

async fn owners_that_an_update_adds_count(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let owner = maps.create(&PostParams::default(), &owned_by("owner", &[])).await.unwrap();
    let late = maps.create(&PostParams::default(), &owned_by("late", &[])).await.unwrap();
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    gone(&maps, &owner).await;
    maps.replace("late", &PostParams::default(), &owned_by("late", &[&owner])).await.unwrap();
    gone(&maps, &late).await;
}

async fn namespaces_keep_the_finalizers_of_others(setup: Setup) {
    let namespaces: Api<Namespace> = setup.cluster_api();
    let object = serde_json::json!({
        "metadata": {"name": "held"}, "spec": {"finalizers": ["kubernetes", "example.com/hold"]},
    });
    namespaces.create(&PostParams::default(), &typed(&object)).await.unwrap();
    namespaces.delete("held", &DeleteParams::default()).await.unwrap();
    let is_empty = |namespace: Option<&Namespace>| {
        let spec = namespace.and_then(|namespace| namespace.spec.as_ref());
        spec.and_then(|spec| spec.finalizers.as_deref()) == Some(&["example.com/hold".to_owned()])
    };
    timeout(AT_MOST, await_condition(namespaces, "held", is_empty)).await.expect("it is held by another").unwrap();
}

async fn namespaces_go_with_their_content(setup: Setup) {
    let namespaces: Api<Namespace> = setup.cluster_api();
    let object = serde_json::json!({"metadata": {"name": "team"}});
    let made = namespaces.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(setup.client.clone(), "team");
    let inside = maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let uid = made.uid().unwrap();
    let namespace_gone = await_condition(namespaces.clone(), "team", conditions::is_deleted(&uid));
    timeout(AT_MOST, namespace_gone).await.expect("the namespace should go").unwrap();
    gone(&maps, &inside).await;
    refused(maps.create(&PostParams::default(), &typed(&config_map("b"))).await, 404);
}
