//! Watches, by hand and by `kube`'s watcher: initial objects, changes, resuming after a cut, relisting after 410.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PartialObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use konverge_apiserver::{ApiServer, Options};

use super::{Setup, flows, typed};
use crate::cluster::{AT_MOST, config_map};
use crate::network::Network;

flows![
    raw_watch,
    raw_watch_with_initial_events,
    watcher_lists_and_watches,
    watcher_streams_its_list,
    watcher_of_metadata,
    watcher_resumes_after_a_cut,
    watcher_relists_when_history_is_gone,
    watcher_follows_a_selector,
    reflector_sees_everything,
];

async fn make(maps: &Api<ConfigMap>, name: &str) -> ConfigMap {
    maps.create(&PostParams::default(), &typed(&config_map(name))).await.unwrap()
}

async fn touch(maps: &Api<ConfigMap>, name: &str, value: &str) {
    maps.patch(name, &PatchParams::default(), &Patch::Merge(json!({"data": {"k": value}}))).await.unwrap();
}

/// The next item of a stream that should have one.
async fn next<T>(stream: &mut (impl Stream<Item = T> + Unpin)) -> T {
    timeout(AT_MOST, stream.next()).await.expect("something should come").expect("the stream should go on")
}

fn told(event: &WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Added(object) => format!("added {}", object.name_any()),
        WatchEvent::Modified(object) => format!("modified {}", object.name_any()),
        WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
        WatchEvent::Bookmark(mark) if mark.metadata.annotations.contains_key("k8s.io/initial-events-end") => {
            "end".into()
        }
        WatchEvent::Bookmark(_) => "bookmark".into(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

/// A watcher without backoff: after a cut it tries again at once.
struct Soon;

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}

type Events = Pin<Box<dyn Stream<Item = watcher::Result<Event<ConfigMap>>> + Send>>;

async fn step(events: &mut Events) -> String {
    match next(events).await {
        Ok(Event::Init) => "init".into(),
        Ok(Event::InitApply(object)) => format!("init {}", object.name_any()),
        Ok(Event::InitDone) => "done".into(),
        Ok(Event::Apply(object)) => format!("apply {}", object.name_any()),
        Ok(Event::Delete(object)) => format!("delete {}", object.name_any()),
        Err(watcher::Error::WatchError(status)) => format!("error {}", status.code),
        Err(error) => format!("failed {error}"),
    }
}

async fn steps(events: &mut Events, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(step(events).await);
    }
    all
}

async fn raw_watch(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    make(&maps, "a").await;
    let mut from_zero = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let version = maps.get("a").await.unwrap().resource_version().unwrap();
    let mut from_now = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    assert_eq!(told(&next(&mut from_zero).await.unwrap()), "added a");
    // Here the objects end that were there at the begin.
    assert!(matches!(next(&mut from_zero).await, Ok(WatchEvent::Bookmark(_))));
    make(&maps, "b").await;
    touch(&maps, "a", "2").await;
    maps.delete("b", &Default::default()).await.unwrap();
    for events in [&mut from_zero, &mut from_now] {
        let mut versions = Vec::new();
        for expect in ["added b", "modified a", "deleted b"] {
            let event = next(events).await.unwrap();
            assert_eq!(told(&event), expect);
            let (WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) = event else {
                unreachable!()
            };
            versions.push(object.resource_version().unwrap().parse::<u64>().unwrap());
        }
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    }
}

async fn raw_watch_with_initial_events(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    make(&maps, "a").await;
    make(&maps, "b").await;
    let mut events = maps.watch(&WatchParams::streaming_lists(), "0").await.unwrap().boxed();
    for expect in ["added a", "added b", "end"] {
        assert_eq!(told(&next(&mut events).await.unwrap()), expect);
    }
    touch(&maps, "b", "2").await;
    assert_eq!(told(&next(&mut events).await.unwrap()), "modified b");
}

async fn watcher_lists_and_watches(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    for name in ["a", "b", "c"] {
        make(&maps, name).await;
    }
    let mut events: Events = watcher(maps.clone(), watcher::Config::default().page_size(2)).boxed();
    assert_eq!(steps(&mut events, 5).await, ["init", "init a", "init b", "init c", "done"]);
    make(&maps, "d").await;
    maps.delete("a", &Default::default()).await.unwrap();
    assert_eq!(steps(&mut events, 2).await, ["apply d", "delete a"]);
}

async fn watcher_streams_its_list(setup: Setup) {
    let (watched, maps): (Api<ConfigMap>, Api<ConfigMap>) = (setup.api(), Api::default_namespaced(setup.aside()));
    make(&maps, "a").await;
    make(&maps, "b").await;
    let mut events: Events = watcher(watched.clone(), watcher::Config::default().streaming_lists()).boxed();
    assert_eq!(steps(&mut events, 4).await, ["init", "init a", "init b", "done"]);
    touch(&maps, "a", "2").await;
    maps.delete("b", &Default::default()).await.unwrap();
    assert_eq!(steps(&mut events, 2).await, ["apply a", "delete b"]);
    setup.cut();
    make(&maps, "c").await;
    let next = step(&mut events).await;
    let next = if next.starts_with("failed") { step(&mut events).await } else { next };
    assert_eq!(next, "apply c", "a cut stream goes on and does not list again");
}

async fn watcher_of_metadata(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let metadata: Api<PartialObjectMeta<ConfigMap>> = setup.api();
    make(&maps, "a").await;
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut events = watcher(metadata.clone(), config).boxed();
        assert!(matches!(next(&mut events).await.unwrap(), Event::Init));
        let Event::InitApply(partial) = next(&mut events).await.unwrap() else { panic!("nothing is there") };
        assert_eq!(partial.name_any(), "a");
        assert!(matches!(next(&mut events).await.unwrap(), Event::InitDone));
        touch(&maps, "a", &partial.resource_version().unwrap()).await;
        let Event::Apply(partial) = next(&mut events).await.unwrap() else { panic!("nothing changed") };
        assert_eq!(partial.types.unwrap().kind, "PartialObjectMetadata");
    }
}

async fn watcher_resumes_after_a_cut(setup: Setup) {
    let (watched, maps): (Api<ConfigMap>, Api<ConfigMap>) = (setup.api(), Api::default_namespaced(setup.aside()));
    make(&maps, "a").await;
    let mut events: Events = watcher(watched.clone(), watcher::Config::default()).boxed();
    assert_eq!(steps(&mut events, 3).await, ["init", "init a", "done"]);
    make(&maps, "b").await;
    assert_eq!(step(&mut events).await, "apply b");
    for round in 0..5 {
        setup.cut();
        // Nobody listens now.
        make(&maps, &format!("c{round}")).await;
        maps.delete(&format!("c{round}"), &Default::default()).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let step = step(&mut events).await;
            if !step.starts_with("failed") {
                seen.push(step);
            }
        }
        assert_eq!(seen, [format!("apply c{round}"), format!("delete c{round}")]);
    }
}

async fn watcher_relists_when_history_is_gone(setup: Setup) {
    let (watched, maps): (Api<ConfigMap>, Api<ConfigMap>) = (setup.api(), Api::default_namespaced(setup.aside()));
    make(&maps, "a").await;
    make(&maps, "b").await;
    let mut events: Events = watcher(watched.clone(), watcher::Config::default()).boxed();
    assert_eq!(steps(&mut events, 4).await, ["init", "init a", "init b", "done"]);
    setup.cut();
    maps.delete("a", &Default::default()).await.unwrap();
    make(&maps, "c").await;
    let store = setup.server.store();
    store.compact(store.revision());
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "done") {
        let step = step(&mut events).await;
        if !step.starts_with("failed") {
            seen.push(step);
        }
    }
    assert_eq!(seen, ["error 410", "init", "init b", "init c", "done"]);
}

async fn watcher_follows_a_selector(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    make(&maps, "a").await;
    let mut events: Events = watcher(maps.clone(), watcher::Config::default().labels("in=yes")).boxed();
    assert_eq!(steps(&mut events, 2).await, ["init", "done"]);
    for (label, expect) in [("yes", "apply a"), ("no", "delete a"), ("yes", "apply a")] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"in": label}}}));
        maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(step(&mut events).await, expect);
    }
}

/// Many writers, and one reflector that starts in the middle and is cut again and again: in the end it has the same objects as
/// the server.
async fn reflector_sees_everything(setup: Setup) {
    const WRITERS: usize = 4;
    const WRITES: usize = 60;
    let (watched, maps): (Api<ConfigMap>, Api<ConfigMap>) = (setup.api(), Api::default_namespaced(setup.aside()));
    for config in [watcher::Config::default().page_size(7), watcher::Config::default().streaming_lists()] {
        let (reader, writer) = reflector::store();
        let events = watcher(watched.clone(), config).backoff(Soon).reflect(writer);
        let reflecting = tokio::spawn(events.for_each(|_| std::future::ready(())));
        let writing = (0..WRITERS).map(|writer| {
            let maps = maps.clone();
            tokio::spawn(async move {
                for at in 0..WRITES {
                    let name = format!("w{writer}-{}", at % 7);
                    match at % 3 {
                        0 => drop(maps.create(&PostParams::default(), &typed(&config_map(&name))).await),
                        1 => drop(maps.delete(&name, &Default::default()).await),
                        _ => {
                            let patch = Patch::Merge(json!({"data": {"k": at.to_string()}}));
                            drop(maps.patch(&name, &PatchParams::default(), &patch).await);
                        }
                    }
                }
            })
        });
        let writing: Vec<_> = writing.collect();
        for _ in 0..5 {
            tokio::task::yield_now().await;
            setup.cut();
        }
        for writer in writing {
            writer.await.unwrap();
        }
        let last = make(&maps, "last").await;
        let key = reflector::ObjectRef::from_obj(&last);
        let seen = async {
            while reader.get(&key).is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(AT_MOST, seen).await.expect("the last object should be seen");
        let by_name = |objects: Vec<ConfigMap>| -> BTreeMap<String, ConfigMap> {
            objects.into_iter().map(|object| (object.name_any(), object)).collect()
        };
        let seen = by_name(reader.state().iter().map(|object| (**object).clone()).collect());
        assert_eq!(seen, by_name(maps.list(&Default::default()).await.unwrap().items));
        reflecting.abort();
        maps.delete_collection(&Default::default(), &Default::default()).await.unwrap();
    }
}

/// A server without storage starts again with lower versions than its clients know. They have to notice and list again, or they
/// would wait forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watcher_recovers_when_the_server_begins_anew() {
    let first = ApiServer::open(Options::default()).await.unwrap();
    let network = Network::listen(first).await;
    let address = network.address;
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    for at in 0..20 {
        make(&maps, &format!("old-{at}")).await;
    }
    let mut events: Events = watcher(maps.clone(), watcher::Config::default()).backoff(Soon).boxed();
    while step(&mut events).await != "done" {}
    drop(network);

    let second = ApiServer::open(Options::default()).await.unwrap();
    let in_process: Api<ConfigMap> = Api::default_namespaced(Client::new(second.clone(), "default"));
    make(&in_process, "new").await;
    let _network = Network::listen_at(second, address).await;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "done") {
        let step = step(&mut events).await;
        if !step.starts_with("failed") {
            seen.push(step);
        }
    }
    assert_eq!(seen, ["error 410", "init", "init new", "done"]);
}
