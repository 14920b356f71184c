//! Kinds with two versions.

use serde_json::{Value, json};

use super::with;
use crate::cluster::{CRDS, Cluster, MERGE, WIDGETS, names, widget};

fn two_versions() -> Value {
    with(|it| {
        let mut second = it["spec"]["versions"][0].clone();
        second["name"] = "v2".into();
        second["storage"] = false.into();
        it["spec"]["versions"].as_array_mut().unwrap().push(second);
    })
}

#[tokio::test]
async fn two_versions_of_one_object() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &two_versions()).await.expect(201);
    let second = WIDGETS.replace("/v1/", "/v2/");
    let made = cluster.post(WIDGETS, &widget("a")).await.expect(201);
    let shown = cluster.get(&format!("{second}/a")).await.expect(200);
    assert_eq!(shown["apiVersion"], "example.com/v2");
    let same = |one: &Value, other: &Value| {
        let bare = |object: &Value| {
            let mut object = object.clone();
            object["apiVersion"].take();
            object["metadata"]["managedFields"].take();
            object
        };
        assert_eq!(bare(one), bare(other));
    };
    same(&made, &shown);
    let mut sent = widget("b");
    sent["apiVersion"] = "example.com/v2".into();
    let made = cluster.post(&second, &sent).await.expect(201);
    assert_eq!(made["apiVersion"], "example.com/v2");
    same(&made, &cluster.get(&format!("{WIDGETS}/b")).await.expect(200));
    cluster.post(WIDGETS, &sent).await.fails(400, "BadRequest");

    let mut first = cluster.watch(&format!("{WIDGETS}?watch=true")).await;
    let mut other = cluster.watch(&format!("{second}?watch=true")).await;
    assert_eq!(first.next_briefs(2).await, other.next_briefs(2).await);
    cluster.patch(&format!("{second}/a"), MERGE, &json!({"spec": {"size": 9}})).await.expect(200);
    let (one, two) = (first.next().await, other.next().await);
    assert_eq!(
        (&one["object"]["apiVersion"], &two["object"]["apiVersion"]),
        (&json!("example.com/v1"), &json!("example.com/v2"))
    );
    same(&one["object"], &two["object"]);
    let groups = cluster.get("/apis/example.com").await.expect(200);
    assert_eq!(groups["preferredVersion"]["version"], "v2");
}

#[tokio::test]
async fn the_version_objects_are_kept_in_can_change() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &two_versions()).await.expect(201);
    cluster.post(WIDGETS, &widget("a")).await.expect(201);
    let path = format!("{CRDS}/widgets.example.com");
    let switch = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
    ]);
    let switched = cluster.patch(&path, crate::cluster::JSON_PATCH, &switch).await.expect(200);
    assert_eq!(switched["status"]["storedVersions"], json!(["v1", "v2"]));
    cluster.post(WIDGETS, &widget("b")).await.expect(201);
    let second = WIDGETS.replace("/v1/", "/v2/");
    for place in [WIDGETS, &second] {
        let list = cluster.get(place).await.expect(200);
        assert_eq!(names(&list), ["a", "b"]);
        let versions: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["apiVersion"]).collect();
        let expect = json!(if place == WIDGETS { "example.com/v1" } else { "example.com/v2" });
        assert_eq!(versions, [&expect, &expect]);
    }
    let drop_first = json!([{"op": "remove", "path": "/spec/versions/0"}]);
    let refused = cluster.patch(&path, crate::cluster::JSON_PATCH, &drop_first).await;
    let message = refused.fails(422, "Invalid");
    assert!(
        message.contains("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions"),
        "{message}"
    );
    // Once the old objects are written again, the old version can be removed.
    let unserve = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]);
    cluster.patch(&path, crate::cluster::JSON_PATCH, &unserve).await.expect(200);
    assert_eq!(cluster.get(WIDGETS).await.code, 404);
    let status = json!({"status": {"storedVersions": ["v2"]}});
    cluster.patch(&format!("{path}/status"), MERGE, &status).await.expect(200);
    cluster.patch(&path, crate::cluster::JSON_PATCH, &drop_first).await.expect(200);
    assert_eq!(names(&cluster.get(&second).await.expect(200)), ["a", "b"]);
}
