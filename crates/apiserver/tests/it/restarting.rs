//! Servers that are started again: clients remember resource versions for longer than that, and must not resume in another
//! history.

use std::time::Duration;

use serde_json::json;

use konverge_apiserver::Storage;

use crate::cluster::{CONFIG_MAPS, Cluster, config_map, names};

/// The answer to a client with a version of another server, which had the same objects up to some moment and then others.
async fn check_foreign_version(server: &Cluster, foreign: u64) {
    let begin = server.revision();
    assert!(begin > foreign, "{begin} is after whatever the other server handed out");
    let other = server.post(CONFIG_MAPS, &config_map("other")).await.expect(201);

    let mut lines = server.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={foreign}")).await;
    let event = lines.next().await;
    let told = (&event["type"], &event["object"]["code"], &event["object"]["reason"]);
    assert_eq!(told, (&json!("ERROR"), &json!(410), &json!("Expired")), "{event}");
    let exact = format!("{CONFIG_MAPS}?resourceVersion={foreign}&resourceVersionMatch=Exact");
    server.get(&exact).await.fails(410, "Expired");
    let page = format!("{CONFIG_MAPS}?limit=1&continue={foreign}%2Fa");
    server.get(&page).await.fails(410, "Expired");
    let mut replaced = other.clone();
    replaced["metadata"]["resourceVersion"] = json!(foreign.to_string());
    server.put(&format!("{CONFIG_MAPS}/other"), &replaced).await.fails(409, "Conflict");

    // A client that asks for a version that is at least as new gets the current objects, and can resume from there.
    let listed = server.get(&format!("{CONFIG_MAPS}?resourceVersion={foreign}")).await.expect(200);
    assert!(names(&listed).contains(&"other"));
    let version = listed["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut lines = server.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}")).await;
    server.post(CONFIG_MAPS, &config_map("more")).await.expect(201);
    assert_eq!(lines.next_brief().await, "ADDED more");
}

#[tokio::test]
async fn a_server_in_memory_that_starts_anew_repeats_no_version() {
    let first = Cluster::new().await;
    first.post(CONFIG_MAPS, &config_map("phantom")).await.expect(201);
    let seen = first.post(CONFIG_MAPS, &config_map("a")).await.version();
    first.world.pass(Duration::from_millis(1));
    check_foreign_version(&Cluster::open(first.world.clone(), Storage::Memory).await, seen).await;
}

#[tokio::test]
async fn a_data_directory_that_is_made_anew_repeats_no_version() {
    let home = tempfile::tempdir().unwrap();
    let storage = || Storage::Disk(home.path().join("data"));
    let first = Cluster::new().await;
    let world = first.world.clone();
    let first = Cluster::open(world.clone(), storage()).await;
    let seen = first.post(CONFIG_MAPS, &config_map("phantom")).await.version();
    first.stop().await;
    std::fs::remove_dir_all(home.path().join("data")).unwrap();
    world.pass(Duration::from_millis(1));
    check_foreign_version(&Cluster::open(world, storage()).await, seen).await;
}

#[tokio::test]
async fn a_data_directory_that_is_opened_again_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let storage = || Storage::Disk(home.path().join("data"));
    let world = Cluster::new().await.world.clone();
    let first = Cluster::open(world.clone(), storage()).await;
    let seen = first.post(CONFIG_MAPS, &config_map("a")).await.version();
    first.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    let newest = first.revision();
    first.stop().await;
    world.pass(Duration::from_secs(3600));
    let second = Cluster::open(world, storage()).await;
    assert_eq!(second.revision(), newest);
    let mut lines = second.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={seen}")).await;
    assert_eq!(lines.next_brief().await, "ADDED b");
}
