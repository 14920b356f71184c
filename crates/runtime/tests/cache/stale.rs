//! Reads after writes, while the watch is late by up to thirty seconds: they see at least what was written.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Caches, Lists, Mode, Target, WatchSettings};
use kube::api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::faults::{Asked, Faults, Line, Verdict};
use crate::kinds::{config_map, config_maps, key};

fn resource() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

/// Writes as the engine does: and tells the caches.
struct Writer {
    client: Client,
    caches: Caches,
}

impl Writer {
    fn wrote(&self, map: &ConfigMap) {
        self.caches.wrote(&resource(), &serde_json::to_string(map).unwrap()).unwrap();
    }

    async fn create(&self, map: &ConfigMap) -> ConfigMap {
        let map = config_maps(&self.client).create(&PostParams::default(), map).await.unwrap();
        self.wrote(&map);
        map
    }

    async fn label(&self, name: &str, app: &str) -> ConfigMap {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
        let map = config_maps(&self.client).patch(name, &PatchParams::default(), &patch).await.unwrap();
        self.wrote(&map);
        map
    }

    async fn delete(&self, name: &str, uid: &str) {
        config_maps(&self.client).delete(name, &DeleteParams::default()).await.unwrap();
        self.caches.removed(&resource(), &key(name), uid);
    }
}

async fn late() -> (Faults, Writer) {
    let faults = Faults::new().await;
    faults.plan(|asked, before| match asked {
        Asked::Streamed | Asked::Watch => {
            let (mut count, mut initial) = (before as u64, asked == Asked::Streamed);
            Verdict::Lines(Box::new(move |line| {
                count += 1;
                let text = std::str::from_utf8(&line).unwrap();
                if initial {
                    initial = !text.contains("initial-events-end");
                    return Line::Pass;
                }
                // Late, and now and then the watch loses what it was late with.
                match count * 7919 % 61 {
                    60 => Line::Error(410),
                    seconds => Line::Late(Duration::from_millis(seconds * 500)),
                }
            }))
        }
        _ => Verdict::Pass,
    });
    let caches = faults.caches(WatchSettings::default());
    let client = faults.client();
    (faults, Writer { client, caches })
}

/// Whoever finds no child creates one; with names of their own, so that the server would not notice a second.
#[tokio::test(start_paused = true)]
async fn no_duplicate_children() {
    let (_faults, writer) = late().await;
    let cache = writer.caches.open(Target::of::<ConfigMap>().within("default"));
    cache.synced().await;
    let mut ahead = 0;
    for round in 0..3000u64 {
        let parent = format!("parent-{}", round * 31 % 40);
        let children = cache.by_owner(&parent);
        assert!(children.len() <= 1, "{children:?}");
        match children.first() {
            None => drop(writer.create(&config_map(&format!("child-{round}"), "web", Some(&parent))).await),
            Some(child) if round % 7 == 0 => {
                let (name, uid) = (child.name().to_owned(), child.uid().to_owned());
                writer.delete(&name, &uid).await;
                assert!(cache.by_owner(&parent).is_empty() && cache.get(&key(&name)).is_none());
            }
            Some(child) => {
                let name = child.name().to_owned();
                let app = format!("app-{round}");
                let written = writer.label(&name, &app).await;
                let read = cache.get(&key(&name)).unwrap();
                assert_eq!(Some(read.resource_version()), written.resource_version().as_deref());
                let selector = LabelSelector::parse(&format!("app={app}")).unwrap();
                assert_eq!(cache.list(Some("default"), &selector).len(), 1);
            }
        }
        ahead = ahead.max(cache.figures().ahead);
        tokio::time::sleep(Duration::from_millis(round % 5 * 100)).await;
    }
    assert!(ahead > 20, "the watch was hardly ever late: {ahead}");
    let mut owners = BTreeMap::<String, usize>::new();
    for map in config_maps(&writer.client).list(&ListParams::default()).await.unwrap() {
        *owners.entry(map.owner_references()[0].uid.clone()).or_default() += 1;
    }
    assert!(owners.values().all(|children| *children == 1), "{owners:?}");
    // In the end the watch has it all.
    for owner in owners.keys() {
        let child = cache.by_owner(owner).remove(0);
        cache.caught_up(&child.key(), Duration::from_secs(3000)).await.unwrap();
        cache.seen(&child.key(), child.resource_version(), Duration::from_secs(1)).await.unwrap();
    }
}

/// Who would rather wait can.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_write() {
    let (_faults, writer) = late().await;
    let cache = writer.caches.open(Target::of::<ConfigMap>());
    cache.synced().await;
    let map = config_maps(&writer.client).create(&PostParams::default(), &config_map("a", "web", None)).await.unwrap();
    let version = map.resource_version().unwrap();
    assert!(cache.get(&key("a")).is_none(), "nobody told the cache");
    cache.seen(&key("a"), &version, Duration::from_secs(120)).await.unwrap();
    assert_eq!(cache.get(&key("a")).unwrap().resource_version(), version);
    let error = cache.seen(&key("a"), &u64::MAX.to_string(), Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.to_string(), "the cache of ConfigMap did not catch up within 5s");
}

/// A write reaches the caches it belongs to, each in its own form, and no other.
#[tokio::test(start_paused = true)]
async fn writes_reach_the_caches_they_belong_to() {
    let (_faults, writer) = late().await;
    let target = Target::of::<ConfigMap>;
    let web = LabelSelector::parse("app=web").unwrap();
    let all = writer.caches.open(target());
    let labelled = writer.caches.open(target().labelled(&web));
    let named = writer.caches.open(target().fielded("metadata.name=a"));
    let metadata = writer.caches.open(target().mode(Mode::Metadata));
    let elsewhere = writer.caches.open(target().within("kube-system"));
    let caches = [&all, &labelled, &named, &metadata, &elsewhere];
    for cache in caches {
        cache.synced().await;
    }
    let seen = |name: &str| caches.map(|cache| cache.get(&key(name)).is_some());
    writer.create(&config_map("a", "web", None)).await;
    writer.create(&config_map("b", "db", None)).await;
    assert_eq!(seen("a"), [true, true, true, true, false]);
    assert_eq!(seen("b"), [true, false, false, true, false]);
    assert!(metadata.get(&key("a")).unwrap().pointer("/data").is_none());
    writer.label("a", "db").await;
    assert_eq!(seen("a"), [true, false, true, true, false], "it has left the selection");
    writer.label("a", "web").await;
    assert_eq!(seen("a"), [true, true, true, true, false], "and is back");
    let uid = all.get(&key("a")).unwrap().uid().to_owned();
    writer.delete("a", &uid).await;
    assert_eq!(seen("a"), [false; 5]);
    writer.create(&config_map("a", "web", None)).await;
    assert_eq!(seen("a"), [true, true, true, true, false], "another one of that name");
    for cache in caches {
        cache.caught_up(&ObjectKey::new(Some("default"), "a"), Duration::from_secs(600)).await.unwrap();
    }
    assert_eq!(seen("a"), [true, true, true, true, false]);
}

/// We make an object while a list is on its way to the server, and somebody deletes it before the list is taken. No watch
/// will ever tell of it.
#[tokio::test(start_paused = true)]
async fn what_somebody_deleted_before_a_list_was_taken_is_not_seen() {
    for lists in [Lists::Streamed, Lists::Paged] {
        let faults = Faults::new().await;
        faults.plan(|asked, _| match asked {
            Asked::Streamed | Asked::List { .. } => Verdict::Delayed(Duration::from_secs(5)),
            _ => Verdict::Pass,
        });
        let caches = faults.caches(WatchSettings { lists, ..WatchSettings::default() });
        let (client, cache) = (faults.client(), caches.open(Target::of::<ConfigMap>()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let writer = Writer { client: client.clone(), caches };
        writer.create(&config_map("stays", "a", None)).await;
        writer.create(&config_map("ghost", "a", None)).await;
        config_maps(&client).delete("ghost", &DeleteParams::default()).await.unwrap();
        cache.synced().await;
        let seen: Vec<_> =
            cache.list(Some("default"), &LabelSelector::default()).iter().map(|map| map.name().to_owned()).collect();
        assert_eq!(seen, ["stays"], "{lists:?}");
        assert!(cache.get(&key("ghost")).is_none(), "{lists:?}");
    }
}
