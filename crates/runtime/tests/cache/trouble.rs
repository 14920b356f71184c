//! Bad days: servers that refuse, hang, break off and fall silent.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_runtime::{Cache, Lists, Target, WatchSettings, WatchState};
use serde_json::json;
use tokio::time::Instant;

use crate::faults::{Asked, Faults, Line, Verdict};
use crate::kinds::{create, create_widget, install_widgets, key, widgets};

async fn see(cache: &Cache, name: &str) -> Duration {
    let start = Instant::now();
    while cache.get(&key(name)).is_none() {
        assert!(start.elapsed() < Duration::from_secs(600), "{name} is never seen: {:?}", cache.state());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}

async fn state_after(cache: &Cache, seconds: u64) -> WatchState {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    cache.state()
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_installed_later() {
    let faults = Faults::new().await;
    let client = faults.client();
    for lists in [Lists::Streamed, Lists::Paged] {
        let faults = if lists == Lists::Streamed { faults.clone() } else { Faults::new().await };
        let client = if lists == Lists::Streamed { client.clone() } else { faults.client() };
        let cache = faults.caches(WatchSettings { lists, ..WatchSettings::default() }).open(Target::all(widgets()));
        let state = state_after(&cache, 60).await;
        let WatchState::NotInstalled(why) = &state else { panic!("{state:?}") };
        let expect = "the server does not serve Widget of example.org/v1: there is no kind of the group example.org; install the \
                      CustomResourceDefinition widgets.example.org";
        assert_eq!(why, expect);
        assert_eq!(cache.waiting_for(), Some(format!("Widget of example.org/v1: {expect}")));
        assert!(!cache.is_synced());
        let asked = faults.asked().len();
        assert!((12..=25).contains(&asked), "{asked} requests in a minute");
        install_widgets(&client).await;
        create_widget(&client, "a", json!({})).await;
        let waited = see(&cache, "a").await;
        assert!(waited <= Duration::from_secs(6), "{waited:?}");
        cache.synced().await;
        assert_eq!(cache.state(), WatchState::Live);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_forbidden() {
    for (lists, verb) in [(Lists::Streamed, "watch"), (Lists::Paged, "list")] {
        for (namespace, place) in [(None, "a ClusterRole"), (Some("shop"), "a Role in namespace shop")] {
            let faults = Faults::new().await;
            faults.plan(|_, _| Verdict::Answer(403, None));
            let mut target = Target::all(widgets());
            target.namespace = namespace.map(str::to_owned);
            let cache = faults.caches(WatchSettings { lists, ..WatchSettings::default() }).open(target);
            let expect = format!(
                "{place} needs the rule: apiGroups: [\"example.org\"], resources: [\"widgets\"], \
                 verbs: [\"list\", \"watch\"]; refused was the verb {verb}; operators declare such rules with .owns, .watches or .needs"
            );
            assert_eq!(state_after(&cache, 10).await, WatchState::Forbidden(expect));
        }
    }
}

/// A kind without namespaces that is watched within one is served, but not there.
#[tokio::test(start_paused = true)]
async fn a_kind_without_namespaces_that_is_watched_in_one() {
    let faults = Faults::new().await;
    let nodes = Target::of::<k8s_openapi::api::core::v1::Node>().within("default");
    let cache = faults.caches(WatchSettings::default()).open(nodes);
    let expect = "the server does not serve Node of v1: its objects are in no namespace, but it was asked for in the namespace \
                  default; declare it as a cluster-scoped kind";
    assert_eq!(state_after(&cache, 10).await, WatchState::NotInstalled(expect.into()));
}

/// A list in pages takes its time; whoever waits for it reads that the server responded.
#[tokio::test(start_paused = true)]
async fn a_paged_list_that_is_being_read_says_so() {
    let faults = Faults::new().await;
    for name in ["a", "b"] {
        create(&faults.client(), name, "web").await;
    }
    faults.plan(|asked, _| match asked {
        Asked::List { continues: true } => Verdict::Delayed(Duration::from_secs(20)),
        Asked::List { .. } => Verdict::Delayed(Duration::from_secs(5)),
        _ => Verdict::Pass,
    });
    let settings = WatchSettings { lists: Lists::Paged, page: 1, ..WatchSettings::default() };
    let cache = faults.caches(settings).open(Target::of::<ConfigMap>());
    let waits = |why: &str| Some(format!("ConfigMap of v1: {why}"));
    assert_eq!(state_after(&cache, 2).await, WatchState::Starting);
    assert_eq!(cache.waiting_for(), waits("the server has not responded yet"));
    assert_eq!(state_after(&cache, 10).await, WatchState::Listing);
    assert_eq!(cache.waiting_for(), waits("its list is being read"));
    cache.synced().await;
    assert_eq!((state_after(&cache, 1).await, cache.waiting_for()), (WatchState::Live, None));
}

/// Whatever a server does, one watch asks at most once a second.
#[tokio::test(start_paused = true)]
async fn never_more_than_one_request_a_second() {
    fn ends_at(line: fn() -> Line) -> Verdict {
        Verdict::Lines(Box::new(move |_| line()))
    }
    type Plan = fn(Asked) -> Verdict;
    let plans: [(&str, Plan); 8] = [
        ("500", |_| Verdict::Answer(500, None)),
        ("429", |_| Verdict::Answer(429, None)),
        ("404", |_| Verdict::Answer(404, None)),
        ("410 at the door", |asked| if asked == Asked::Watch { Verdict::Answer(410, None) } else { Verdict::Pass }),
        ("hangs", |_| Verdict::Hang),
        ("ends at once", |_| ends_at(|| Line::End)),
        ("410 at once", |_| ends_at(|| Line::Error(410))),
        ("breaks at once", |_| ends_at(|| Line::Break)),
    ];
    for (name, plan) in plans {
        for lists in [Lists::Streamed, Lists::Paged] {
            let faults = Faults::new().await;
            create(&faults.client(), "a", "web").await;
            faults.plan(move |asked, _| plan(asked));
            let cache =
                faults.caches(WatchSettings { lists, ..WatchSettings::default() }).open(Target::of::<ConfigMap>());
            // So that watches have something to end at.
            for round in 0..60 {
                create(&faults.client(), &format!("r{round}"), "web").await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let asked = faults.asked().len();
            assert!(asked <= 60 + 3, "{name}, {lists:?}: {asked} requests in a minute");
            faults.plan(|_, _| Verdict::Pass);
            create(&faults.client(), "after", "web").await;
            let waited = see(&cache, "after").await;
            assert!(waited <= Duration::from_secs(35), "{name}, {lists:?}: back after {waited:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let faults = Faults::new().await;
    faults.plan(|_, before| match before {
        0..4 => Verdict::Answer(429, Some(17)),
        _ => Verdict::Pass,
    });
    let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>());
    cache.synced().await;
    let times: Vec<Instant> = faults.asked().into_iter().map(|(time, _)| time).collect();
    for pair in times.windows(2) {
        let waited = pair[1] - pair[0];
        assert!(waited >= Duration::from_secs(17), "{waited:?}");
    }
    assert_eq!(times.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn servers_that_do_not_stream_lists() {
    for code in [400, 422] {
        let faults = Faults::new().await;
        create(&faults.client(), "a", "web").await;
        faults.plan(move |asked, _| if asked == Asked::Streamed { Verdict::Answer(code, None) } else { Verdict::Pass });
        let start = Instant::now();
        let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>());
        cache.synced().await;
        assert!(start.elapsed() < Duration::from_secs(1) && cache.get(&key("a")).is_some());
        let asked: Vec<Asked> = faults.asked().into_iter().map(|(_, asked)| asked).collect();
        assert_eq!(asked[..2], [Asked::Streamed, Asked::List { continues: false }]);
    }
    // One that does not know the parameter starts a watch and never says that the list is over.
    let faults = Faults::new().await;
    create(&faults.client(), "a", "web").await;
    faults.plan(|asked, _| match asked {
        Asked::Streamed => Verdict::Lines(Box::new(|line| {
            if line.windows(8).any(|part| part == b"BOOKMARK") { Line::Drop } else { Line::Pass }
        })),
        _ => Verdict::Pass,
    });
    let start = Instant::now();
    let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>());
    cache.synced().await;
    assert!(start.elapsed() < Duration::from_secs(13), "{:?}", start.elapsed());
}

/// A connection that is dead without saying so.
#[tokio::test(start_paused = true)]
async fn a_half_open_connection_is_noticed_in_fifteen_seconds() {
    for lists in [Lists::Streamed, Lists::Paged] {
        let faults = Faults::new().await;
        let client = faults.client();
        create(&client, "a", "web").await;
        let settings = WatchSettings { timeout: Duration::from_secs(10), lists, ..WatchSettings::default() };
        let cache = faults.caches(settings).open(Target::of::<ConfigMap>());
        cache.synced().await;
        faults.plan(|asked, before| match (asked, before) {
            (Asked::Watch, 0) => Verdict::Lines(Box::new(|_| Line::Silence)),
            _ => Verdict::Pass,
        });
        // The watch that is open ends by itself; the next one is the dead one.
        while faults.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        create(&client, "b", "web").await;
        let waited = see(&cache, "b").await;
        assert!(waited <= Duration::from_millis(15_100), "{waited:?}");
    }
}

/// Lines that cannot be read may have been changes: the cache lists anew.
#[tokio::test(start_paused = true)]
async fn a_garbled_line_leads_to_a_list() {
    let faults = Faults::new().await;
    let client = faults.client();
    let cache = faults
        .caches(WatchSettings { lists: Lists::Paged, ..WatchSettings::default() })
        .open(Target::of::<ConfigMap>());
    faults.plan(|asked, before| match (asked, before) {
        (Asked::Watch, 0) => {
            let mut first = true;
            Verdict::Lines(Box::new(move |_| match std::mem::take(&mut first) {
                true => Line::After("{\"type\":\"ADDED\",\"object\":{\"metadata\":garbled}}\n".into()),
                false => Line::Drop,
            }))
        }
        _ => Verdict::Pass,
    });
    cache.synced().await;
    create(&client, "a", "web").await;
    let waited = see(&cache, "a").await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
    assert_eq!(cache.figures().restarts, 1);
}
