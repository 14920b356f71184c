//! Custom resources from the first moment of their definition to its last.

use futures_util::TryStreamExt;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;
use tokio::time::timeout;

use super::{Definition, Setup, flows, refused};
use crate::cluster::AT_MOST;

flows![usable_at_once, established, gone_with_its_objects, watches_end_with_it];

async fn usable_at_once(setup: Setup) {
    let (widgets, resource) = setup.widgets().await;
    let object = DynamicObject::new("w", &resource).data(json!({"spec": {"size": 3, "secret": true}}));
    let made = widgets.create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(made.data["spec"], json!({"size": 3, "color": "red"}), "pruned and defaulted");
    assert_eq!(made.metadata.generation, Some(1));
    let wrong = DynamicObject::new("x", &resource).data(json!({"spec": {"size": 300, "color": "pink"}}));
    let status = refused(widgets.create(&PostParams::default(), &wrong).await, 422);
    assert_eq!(status.details.unwrap().causes.len(), 2);
    let red = ListParams::default().fields("spec.color=red");
    assert_eq!(widgets.list(&red).await.unwrap().items.len(), 1);
    let everywhere: Api<DynamicObject> = Api::all_with(setup.client.clone(), &resource);
    assert_eq!(everywhere.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

async fn established(setup: Setup) {
    let definitions: Api<Definition> = setup.cluster_api();
    let waiting = await_condition(definitions.clone(), "widgets.example.com", conditions::is_crd_established());
    let (waited, _) = tokio::join!(timeout(AT_MOST, waiting), setup.widgets());
    let found = waited.expect("it should be established").unwrap().expect("it should be there");
    assert_eq!(found.name_any(), "widgets.example.com");
}

async fn gone_with_its_objects(setup: Setup) {
    let (widgets, resource) = setup.widgets().await;
    for name in ["a", "b"] {
        widgets.create(&PostParams::default(), &DynamicObject::new(name, &resource)).await.unwrap();
    }
    let definitions: Api<Definition> = setup.cluster_api();
    let uid = definitions.get("widgets.example.com").await.unwrap().uid().unwrap();
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(definitions.clone(), "widgets.example.com", conditions::is_deleted(&uid));
    timeout(AT_MOST, gone).await.expect("it should go").unwrap();
    refused(widgets.get("a").await, 404);
    // A new definition of the same name has no objects.
    let (widgets, _) = setup.widgets().await;
    assert!(widgets.list(&ListParams::default()).await.unwrap().items.is_empty());
}

async fn watches_end_with_it(setup: Setup) {
    let (widgets, resource) = setup.widgets().await;
    widgets.create(&PostParams::default(), &DynamicObject::new("a", &resource)).await.unwrap();
    let events = widgets.watch(&WatchParams::default(), "0").await.unwrap();
    let definitions: Api<Definition> = setup.cluster_api();
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    // A watch that does not end cleanly would be an error here.
    let events: Vec<_> = timeout(AT_MOST, events.try_collect()).await.expect("the watch should end").unwrap();
    assert!(
        matches!(&events[..], [WatchEvent::Added(_), WatchEvent::Bookmark(_), WatchEvent::Deleted(_)]),
        "{events:?}"
    );
    refused(widgets.watch(&WatchParams::default(), "0").await.map(drop), 404);
}
