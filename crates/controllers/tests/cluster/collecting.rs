//! What goes when its owner goes.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::*;

/// A ConfigMap that belongs to others.
fn config(name: &str, owners: &[&Value]) -> Value {
    let reference = |owner: &&Value| {
        json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"],
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
        })
    };
    json!({"metadata": {"name": name, "ownerReferences": owners.iter().map(reference).collect::<Vec<_>>()}})
}

fn owners(object: &Value) -> usize {
    object["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_owns_any_more_goes_and_what_nobody_owned_stays() {
    let stage = Stage::new().await;
    let one = stage.create(CONFIG_MAPS, config("one", &[])).await;
    let two = stage.create(CONFIG_MAPS, config("two", &[])).await;
    let both = stage.create(CONFIG_MAPS, config("both", &[&one, &two])).await;
    stage.create(CONFIG_MAPS, config("child", &[&both])).await;

    // The owner that is gone is forgotten, the other one still counts.
    stage.some(CONFIG_MAPS).delete("one", &DeleteParams::background()).await.unwrap();
    stage.until(CONFIG_MAPS, "both", |both| owners(both) == 1).await;
    assert!(stage.get(CONFIG_MAPS, "child").await.is_some());
    stage.some(CONFIG_MAPS).delete("two", &DeleteParams::background()).await.unwrap();
    let names = |all: &[Value]| {
        all.iter().filter(|one| ["both", "child"].iter().any(|n| one["metadata"]["name"] == *n)).count()
    };
    stage.until_all(CONFIG_MAPS, |all| (names(all) == 0).then_some(())).await;

    // An owner that never was is one that is gone; one elsewhere is none.
    let never = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never", "uid": "never"}});
    stage.create(CONFIG_MAPS, config("foundling", &[&never])).await;
    let mut elsewhere = config("elsewhere", &[]);
    elsewhere["metadata"]["namespace"] = "kube-public".into();
    let elsewhere = stage.create(CONFIG_MAPS, elsewhere).await;
    stage.create(CONFIG_MAPS, config("stranger", &[&elsewhere])).await;
    stage.until_none(CONFIG_MAPS).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreground_waits_and_orphan_leaves() {
    let stage = Stage::new().await;
    let owner = stage.create(CONFIG_MAPS, config("owner", &[])).await;
    let mut held = config("held", &[&owner]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    stage.create(CONFIG_MAPS, held).await;
    stage.create(CONFIG_MAPS, config("free", &[&owner])).await;
    stage.some(CONFIG_MAPS).delete("owner", &DeleteParams::foreground()).await.unwrap();
    // Both are asked to go; the owner stays as long as one does.
    let state = |all: &[Value]| {
        let held = all.iter().find(|one| one["metadata"]["name"] == "held")?;
        let free = all.iter().any(|one| one["metadata"]["name"] == "free");
        (!free && held["metadata"]["deletionTimestamp"].is_string()).then_some(())
    };
    stage.until_all(CONFIG_MAPS, state).await;
    let owner = stage.get(CONFIG_MAPS, "owner").await.expect("it waits");
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    stage.patch(CONFIG_MAPS, "held", json!({"metadata": {"finalizers": null}})).await;
    stage.until_none(CONFIG_MAPS).await;

    let owner = stage.create(CONFIG_MAPS, config("owner", &[])).await;
    stage.create(CONFIG_MAPS, config("left", &[&owner])).await;
    // Changes of one kind come in their order: the collector sees what is left before it sees the owner go.
    stage.some(CONFIG_MAPS).delete("owner", &DeleteParams::orphan()).await.unwrap();
    stage.until_all(CONFIG_MAPS, |all| (!all.iter().any(|one| one["metadata"]["name"] == "owner")).then_some(())).await;
    let left = stage.get(CONFIG_MAPS, "left").await.expect("it was left");
    assert_eq!(owners(&left), 0);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn circles_end() {
    let stage = Stage::new().await;
    // What goes in the foreground goes once every kind is known: from here on nothing is looked at again by chance.
    stage.create(CONFIG_MAPS, config("first", &[])).await;
    stage.some(CONFIG_MAPS).delete("first", &DeleteParams::foreground()).await.unwrap();
    stage.until_none(CONFIG_MAPS).await;
    let one = stage.create(CONFIG_MAPS, config("one", &[])).await;
    let two = stage.create(CONFIG_MAPS, config("two", &[&one])).await;
    let back = config("one", &[&two]);
    stage
        .patch(CONFIG_MAPS, "one", json!({"metadata": {"ownerReferences": back["metadata"]["ownerReferences"]}}))
        .await;
    stage.some(CONFIG_MAPS).delete("one", &DeleteParams::foreground()).await.unwrap();
    stage.until_none(CONFIG_MAPS).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_come_later_are_collected_too() {
    let stage = Stage::new().await;
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": names,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    stage.create(DEFINITIONS, definition).await;
    stage.until(DEFINITIONS, "widgets.example.com", |crd| condition(crd, "Established").0 == "True").await;
    const WIDGETS: &str = "example.com/v1 Widget widgets";
    let widget = stage.create(WIDGETS, json!({"metadata": {"name": "w"}})).await;
    stage.create(CONFIG_MAPS, config("child", &[&widget])).await;
    let child = stage.get(CONFIG_MAPS, "child").await.unwrap();
    stage.create(WIDGETS, config("grandchild", &[&child])).await;
    stage.some(WIDGETS).delete("w", &DeleteParams::background()).await.unwrap();
    stage.until_none(CONFIG_MAPS).await;
    stage.until_none(WIDGETS).await;

    // Objects that go with their kind take along what they own, although nobody can be asked for them any more.
    let widget = stage.create(WIDGETS, json!({"metadata": {"name": "w"}})).await;
    stage.create(CONFIG_MAPS, config("child", &[&widget])).await;
    // What comes after the widget is collected, so the widget was seen.
    let never = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never", "uid": "never"}});
    stage.create(WIDGETS, config("foundling", &[&never])).await;
    stage.until_all(WIDGETS, |all| (!all.iter().any(|one| one["metadata"]["name"] == "foundling")).then_some(())).await;
    stage.all(DEFINITIONS).delete("widgets.example.com", &DeleteParams::background()).await.unwrap();
    stage.until_none(CONFIG_MAPS).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_have_such_an_owner_stays_and_says_so() {
    let stage = Stage::new().await;
    let owner = stage.create(CONFIG_MAPS, config("owner", &[])).await;
    stage.create(NAMESPACES, config("shop", &[&owner])).await;
    let told = stage.events("shop", "OwnerRefInvalidNamespace").await;
    assert!(told[0].1.contains("does not exist in namespace"), "{told:?}");
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Nothing", "metadata": {"name": "n", "uid": "n"}});
    stage.create(CONFIG_MAPS, config("kept", &[&unknown])).await;
    // What comes after it is collected, so it was looked at; it is left alone.
    let never = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never", "uid": "never"}});
    stage.create(CONFIG_MAPS, config("foundling", &[&never])).await;
    stage
        .until_all(CONFIG_MAPS, |all| (!all.iter().any(|one| one["metadata"]["name"] == "foundling")).then_some(()))
        .await;
    assert!(stage.get(CONFIG_MAPS, "kept").await.is_some());
    assert!(stage.get(NAMESPACES, "shop").await.is_some());
    stage.stop().await;
}
