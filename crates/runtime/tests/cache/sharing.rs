//! Who shares a watch, what it brings, and when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_core::LabelSelector;
use konverge_runtime::{CacheOf, Change, Lists, Mode, Target, WatchSettings, WatchState};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use serde_json::json;

use crate::faults::{Asked, Faults, Line, Verdict};
use crate::kinds::{config_map, config_maps, create, create_widget, install_widgets, key, widgets};

/// A subscriber that writes down what it is told.
fn diary() -> (Arc<Mutex<Vec<String>>>, impl FnMut(Change) + Send + 'static) {
    let diary = Arc::new(Mutex::new(Vec::new()));
    let writes = diary.clone();
    let handler = move |change: Change| {
        let what = match (change.before(), change.after()) {
            (None, _) => "created",
            (_, None) => "deleted",
            _ => "updated",
        };
        writes.lock().push(format!("{what} {} {:?}", change.object().name(), change.origin()));
    };
    (diary, handler)
}

async fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was never so");
}

#[tokio::test(start_paused = true)]
async fn one_watch_for_all_its_users() {
    for lists in [Lists::Streamed, Lists::Paged] {
        let faults = Faults::new().await;
        let client = faults.client();
        create(&client, "a", "web").await;
        let caches = faults.caches(WatchSettings { lists, ..WatchSettings::default() });
        let first = caches.open(Target::of::<ConfigMap>());
        let (one, handler) = diary();
        let subscription = first.subscribe(handler);
        first.synced().await;
        let second = caches.open(Target::of::<ConfigMap>());
        let (two, handler) = diary();
        let late = second.subscribe(handler);
        second.synced().await;
        create(&client, "b", "web").await;
        until(|| two.lock().len() == 2 && one.lock().len() == 2).await;
        assert_eq!(*one.lock(), ["created a Initial", "created b Watch"]);
        assert_eq!(*two.lock(), ["created a Initial", "created b Watch"]);
        let asked: Vec<Asked> = faults.asked().into_iter().map(|(_, asked)| asked).collect();
        let expect = match lists {
            Lists::Streamed => vec![Asked::Streamed],
            Lists::Paged => vec![Asked::List { continues: false }, Asked::Watch],
        };
        assert_eq!(asked, expect);
        assert_eq!((faults.open_watches(), caches.all().len()), (1, 1));
        // It lives as long as one of them does.
        drop((first, subscription));
        create(&client, "c", "web").await;
        until(|| two.lock().len() == 3).await;
        assert_eq!(one.lock().len(), 2, "who has left is told nothing");
        drop(second);
        create(&client, "d", "web").await;
        until(|| two.lock().len() == 4).await;
        drop(late);
        until(|| faults.open_watches() == 0).await;
        assert!(caches.all().is_empty());
        // And can be opened again.
        let again = caches.open(Target::of::<ConfigMap>());
        again.synced().await;
        assert_eq!(again.list(None, &LabelSelector::default()).len(), 4);
        caches.shutdown().await;
        assert_eq!((faults.open_watches(), again.state()), (0, WatchState::Stopped));
        assert!(again.get(&key("a")).is_some(), "what was known stays known");
    }
}

/// A reconcile that was cut off may still ask for a cache. Nobody would end its watch.
#[tokio::test(start_paused = true)]
async fn nothing_is_watched_after_the_shutdown() {
    let faults = Faults::new().await;
    let caches = faults.caches(WatchSettings::default());
    let first = caches.open(Target::of::<ConfigMap>());
    first.synced().await;
    caches.shutdown().await;
    let late = caches.open(Target::all(widgets()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((late.state(), late.is_synced()), (WatchState::Stopped, false));
    assert_eq!(late.waiting_for().as_deref(), Some("Widget of example.org/v1: its watch has ended"));
    assert_eq!((faults.asked().len(), faults.open_watches()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_asks_for_nothing() {
    let faults = Faults::new().await;
    let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>());
    cache.synced().await;
    tokio::time::sleep(Duration::from_secs(250)).await;
    assert_eq!(faults.asked().len(), 1);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let asked = faults.asked().len();
    assert!((12..=17).contains(&asked), "{asked} requests in an hour");
}

#[tokio::test(start_paused = true)]
async fn selectors_namespaces_and_modes() {
    let faults = Faults::new().await;
    let client = faults.client();
    create(&client, "a", "web").await;
    create(&client, "b", "db").await;
    let system: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    system.create(&PostParams::default(), &config_map("c", "web", None)).await.unwrap();
    let web = LabelSelector::parse("app=web").unwrap();
    let target = Target::of::<ConfigMap>;
    for lists in [Lists::Streamed, Lists::Paged] {
        let caches = faults.caches(WatchSettings { lists, page: 1, ..WatchSettings::default() });
        for (target, expect, after) in [
            (target(), "default/a default/b kube-system/c", "default/a default/b default/d kube-system/c"),
            (target().within("default"), "default/a default/b", "default/a default/b default/d"),
            (target().within("kube-system"), "kube-system/c", "kube-system/c"),
            (target().labelled(&web), "default/a kube-system/c", "default/a default/d kube-system/c"),
            (target().labelled(&web).within("default"), "default/a", "default/a default/d"),
            (target().fielded("metadata.name=b"), "default/b", "default/b"),
            (
                target().mode(Mode::Metadata),
                "default/a default/b kube-system/c",
                "default/a default/b default/d kube-system/c",
            ),
        ] {
            let cache = caches.open(target.clone());
            let keys = || {
                let mut keys: Vec<_> =
                    cache.list(None, &LabelSelector::default()).iter().map(|object| object.key().to_string()).collect();
                keys.sort();
                keys.join(" ")
            };
            cache.synced().await;
            assert_eq!(keys(), expect, "{target:?}");
            create(&client, "d", "web").await;
            until(|| keys() == after).await;
            config_maps(&client).delete("d", &kube::api::DeleteParams::default()).await.unwrap();
            until(|| keys() == expect).await;
            let some = cache.list(None, &LabelSelector::default()).remove(0);
            assert_eq!(some.pointer("/data").is_some(), target.mode == Mode::Full);
            assert_eq!((some.pointer("/kind"), some.pointer("/metadata/managedFields")), (Some("\"ConfigMap\""), None));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_and_indexes_of_users() {
    let faults = Faults::new().await;
    let client = faults.client();
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        create(&client, name, app).await;
    }
    let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>().within("default"));
    cache.add_index("app", |object| object.label("app").into_iter().map(Into::into).collect());
    cache.add_index("broken", |object| match object.name() {
        "b" => panic!("a bad function"),
        name => vec![name.to_owned()],
    });
    cache.synced().await;
    cache.add_index("late", |object| vec![object.pointer("/data/n").unwrap_or_default().to_owned()]);
    let names = |objects: Vec<Arc<konverge_runtime::Object>>| {
        let mut names: Vec<_> = objects.iter().map(|object| object.name().to_owned()).collect();
        names.sort();
        names.join(" ")
    };
    let selector = |text: &str| LabelSelector::parse(text).unwrap();
    for (found, expect) in [
        (cache.by_index("app", "web"), "a c"),
        (cache.by_index("app", "db"), "b"),
        (cache.by_index("app", "none"), ""),
        (cache.by_index("none", "web"), ""),
        (cache.by_index("broken", "a"), "a"),
        (cache.by_index("broken", "b"), ""),
        (cache.by_index("late", "\"0\""), "a b c"),
        (cache.list(None, &selector("app!=db")), "a c"),
        (cache.list(Some("default"), &selector("app in (db,x)")), "b"),
        (cache.list(Some("kube-system"), &selector("")), ""),
    ] {
        assert_eq!(names(found), expect);
    }
}

#[tokio::test(start_paused = true)]
async fn a_poison_object_harms_no_other() {
    #[derive(serde::Deserialize, Debug)]
    struct Widget {
        spec: Spec,
    }
    #[derive(serde::Deserialize, Debug)]
    struct Spec {
        size: u32,
    }
    let faults = Faults::new().await;
    let client = faults.client();
    install_widgets(&client).await;
    create_widget(&client, "good", json!({"size": 1})).await;
    create_widget(&client, "poison", json!({"size": "large"})).await;
    for (lists, good) in [(Lists::Streamed, 1), (Lists::Paged, 2)] {
        // And one that has not even a name.
        faults.plan(|asked, _| match asked {
            Asked::Streamed | Asked::Watch => {
                let mut first = true;
                Verdict::Lines(Box::new(move |_| match std::mem::take(&mut first) {
                    true => Line::After(
                        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n".into(),
                    ),
                    false => Line::Pass,
                }))
            }
            _ => Verdict::Pass,
        });
        let caches = faults.caches(WatchSettings { lists, ..WatchSettings::default() });
        let cache = CacheOf::<Widget>::new(caches.open(Target::all(widgets())));
        cache.cache().synced().await;
        assert_eq!(cache.get(&key("good")).unwrap().unwrap().spec.size, 1);
        let error = cache.get(&key("poison")).unwrap_err();
        assert_eq!((error.kind.as_str(), error.key.to_string().as_str()), ("Widget", "default/poison"));
        assert!(cache.get(&key("none")).unwrap().is_none());
        let all = cache.list(None, &LabelSelector::default());
        assert_eq!((all.iter().flatten().count(), all.len()), (good, good + 1));
        let name = format!("more-{lists:?}").to_lowercase();
        create_widget(&client, &name, json!({"size": 2})).await;
        until(|| cache.get(&key(&name)).unwrap().is_some()).await;
        assert_eq!(cache.cache().figures().unreadable, 1);
        let (one, two) = (cache.get(&key("good")).unwrap().unwrap(), cache.get(&key("good")).unwrap().unwrap());
        assert!(Arc::ptr_eq(&one, &two), "what was decoded is kept for a while");
    }
}

/// Two that read the same type share what is decoded; a third object makes the first forget; and what was decoded of a
/// deleted object goes with it, although nobody reads anything any more.
#[tokio::test]
async fn what_is_decoded_goes_with_its_object() {
    let faults = Faults::new().await;
    let client = faults.client();
    for name in ["a", "b", "c"] {
        create(&client, name, "web").await;
    }
    let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>().within("default"));
    cache.synced().await;
    let (one, other) = (CacheOf::<ConfigMap>::keeping(cache.clone(), 2), CacheOf::<ConfigMap>::new(cache.clone()));
    let read = |of: &CacheOf<ConfigMap>, name: &str| of.get(&key(name)).unwrap().unwrap();
    let (a, b) = (read(&one, "a"), read(&one, "b"));
    assert!(Arc::ptr_eq(&a, &read(&other, "a")) && Arc::ptr_eq(&b, &read(&one, "b")));
    read(&one, "c");
    assert!(!Arc::ptr_eq(&a, &read(&one, "a")), "the oldest of three is decoded anew where two are kept");
    let last = Arc::downgrade(&read(&one, "a"));
    assert!(last.upgrade().is_some(), "it is kept with its object");
    config_maps(&client).delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    until(|| cache.get(&key("a")).is_none()).await;
    until(|| last.upgrade().is_none()).await;
}

/// A handler that never returns holds up neither the watch nor another handler, and what it misses is summed up.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_handler_holds_up_nobody() {
    let faults = Faults::new().await;
    let client = faults.client();
    create(&client, "a", "web").await;
    let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>().within("default"));
    cache.synced().await;
    let (let_go, hold) = std::sync::mpsc::channel::<()>();
    let (slow, mut writes) = diary();
    let subscription = cache.subscribe(move |change| {
        writes(change);
        hold.recv().ok();
    });
    let (fast, handler) = diary();
    let _other = cache.subscribe(handler);
    until(|| slow.lock().len() == 1).await;
    let maps = config_maps(&client);
    for round in 0..50 {
        create(&client, "b", "web").await;
        let mut map = maps.get("a").await.unwrap();
        map.data.get_or_insert_default().insert("n".into(), round.to_string());
        let written = maps.replace("a", &PostParams::default(), &map).await.unwrap();
        maps.delete("b", &kube::api::DeleteParams::default()).await.unwrap();
        cache.seen(&key("a"), &written.metadata.resource_version.unwrap(), Duration::from_secs(30)).await.unwrap();
    }
    until(|| fast.lock().iter().filter(|line| line.starts_with("deleted b")).count() == 50).await;
    assert_eq!(subscription.waiting(), 2);
    drop(let_go);
    until(|| subscription.waiting() == 0 && slow.lock().len() == 102).await;
    let lines = slow.lock().clone();
    assert_eq!(lines[0], "created a Initial");
    assert_eq!(lines.iter().filter(|line| *line == "updated a Watch").count(), 1, "fifty updates became one");
    assert_eq!(lines.iter().filter(|line| *line == "deleted b Watch").count(), 50, "each deletion is told");
    assert_eq!(lines.iter().filter(|line| *line == "created b Watch").count(), 50, "and what was deleted");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_loses_one_change() {
    let faults = Faults::new().await;
    let client = faults.client();
    let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>().within("default"));
    let (told, mut writes) = diary();
    let _subscription = cache.subscribe(move |change| {
        assert_ne!(change.object().name(), "bad");
        writes(change);
    });
    cache.synced().await;
    for name in ["a", "bad", "c"] {
        create(&client, name, "web").await;
    }
    until(|| told.lock().len() == 2).await;
    assert_eq!(*told.lock(), ["created a Watch", "created c Watch"]);
}

/// An index function is a user's: it may be slow, and it may look into the very cache that it is of.
#[tokio::test(start_paused = true)]
async fn index_functions_run_once_for_each_version_and_hold_no_lock() {
    let faults = Faults::new().await;
    let client = faults.client();
    create(&client, "a", "web").await;
    create(&client, "b", "db").await;
    let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>());
    cache.synced().await;
    let (calls, inner) = (Arc::new(AtomicUsize::new(0)), cache.clone());
    let counts = calls.clone();
    cache.add_index("app", move |object| {
        counts.fetch_add(1, Ordering::SeqCst);
        inner.list(Some("default"), &LabelSelector::default());
        object.label("app").into_iter().map(Into::into).collect()
    });
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    for _ in 0..3 {
        assert_eq!(cache.by_index("app", "web").len(), 1);
        assert_eq!(cache.list(Some("default"), &LabelSelector::default()).len(), 2);
        assert!(cache.list(Some("elsewhere"), &LabelSelector::default()).is_empty());
    }
    assert_eq!(calls.load(Ordering::SeqCst), 2, "who looks asks nobody");
    create(&client, "c", "web").await;
    until(|| cache.by_index("app", "web").len() == 2).await;
    // What is deleted is not asked about again.
    config_maps(&client).delete("a", &Default::default()).await.unwrap();
    until(|| cache.by_index("app", "web").len() == 1).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}
