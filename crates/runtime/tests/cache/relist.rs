//! Watches that fall behind at every turn: nothing is lost, nothing is a phantom, and each deletion is told once, also
//! those that happened while nobody looked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apiserver::{ApiServer, Options, Versions};
use konverge_core::LabelSelector;
use konverge_runtime::{Cache, Lists, Target, WatchSettings};
use kube::Client;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::Body;
use parking_lot::Mutex;
use tower_service::Service;

use crate::faults::{Asked, Faults, Line, Random, Verdict, tries};
use crate::kinds::{config_map, config_maps};

/// What a subscriber was told.
#[derive(Default)]
struct Told {
    /// Name to uid and version.
    objects: BTreeMap<String, (String, String)>,
    known: BTreeSet<String>,
    deleted: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

fn listen(cache: &Cache) -> (Arc<Mutex<Told>>, konverge_runtime::Subscription) {
    let told = Arc::new(Mutex::new(Told::default()));
    let hears = told.clone();
    let subscription = cache.subscribe(move |change| {
        let mut told = hears.lock();
        let name = change.object().name().to_owned();
        match change.after() {
            Some(after) => {
                let known = told.objects.get(&name).cloned();
                if change.before().map(|before| (before.uid().to_owned(), before.resource_version().to_owned()))
                    != known
                {
                    told.wrong.push(format!("{change:?} but {known:?} was known"));
                }
                if told.deleted.contains_key(after.uid()) {
                    told.wrong.push(format!("{change:?} is a phantom"));
                }
                told.known.insert(after.uid().to_owned());
                told.objects.insert(name, (after.uid().to_owned(), after.resource_version().to_owned()));
            }
            None => {
                let uid = change.object().uid().to_owned();
                *told.deleted.entry(uid).or_default() += 1;
                told.objects.remove(&name);
            }
        }
    });
    (told, subscription)
}

/// One of the ways a watch can end.
fn ending(random: u64) -> Line {
    match random % 4 {
        0 => Line::Break,
        1 => Line::End,
        _ => Line::Error(410),
    }
}

/// How bad it gets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    /// Watches end in all ways, sooner or later.
    Mixed,
    /// No watch brings an event: each ends with 410 where its first one would be.
    Always,
}

/// How many lists were begun.
async fn check(seed: u64, lists: Lists, trouble: Trouble, rounds: usize) -> usize {
    let faults = Faults::new().await;
    let client = faults.client();
    let maps = config_maps(&client);
    faults.plan(move |asked, before| {
        let mut random = Random::new(seed << 32 | before as u64);
        match asked {
            // Some pages come too late.
            Asked::List { continues: true } if random.below(5) == 0 => Verdict::Answer(410, None),
            Asked::List { continues: false } if random.below(9) == 0 => Verdict::Answer(500, None),
            Asked::Streamed | Asked::Watch => {
                // A list of up to eight objects and its end, and then a few changes.
                let mut left = match (asked, random.below(5)) {
                    (Asked::Watch, _) if trouble == Trouble::Always => 0,
                    (Asked::Watch, _) => random.below(4),
                    (_, 0) => random.below(8),
                    _ => 9 + random.below(4),
                };
                let end = random.below(1 << 32);
                let mut initial = asked == Asked::Streamed;
                Verdict::Lines(Box::new(move |line| match left {
                    _ if trouble == Trouble::Always && asked == Asked::Streamed && left > 8 => {
                        let listed = initial;
                        initial &= !line.windows(18).any(|part| part == b"initial-events-end");
                        if listed { Line::Pass } else { Line::Error(410) }
                    }
                    0 if trouble == Trouble::Always => Line::Error(410),
                    0 => ending(end),
                    _ => {
                        left -= 1;
                        Line::Pass
                    }
                }))
            }
            _ => Verdict::Pass,
        }
    });
    let caches = faults.caches(WatchSettings { lists, page: 3, ..WatchSettings::default() });
    let cache = caches.open(Target::of::<ConfigMap>().within("default"));
    let (told, _subscription) = listen(&cache);
    let mut random = Random::new(seed);
    for _ in 0..rounds {
        for _ in 0..=random.below(6) {
            let name = format!("m{}", random.below(8));
            match (maps.get_opt(&name).await.unwrap(), random.below(3)) {
                (None, _) => drop(maps.create(&PostParams::default(), &config_map(&name, "a", None)).await.unwrap()),
                (Some(_), 0) => drop(maps.delete(&name, &DeleteParams::default()).await.unwrap()),
                (Some(mut map), _) => {
                    map.data.get_or_insert_default().insert("n".into(), random.below(1 << 40).to_string());
                    maps.replace(&name, &PostParams::default(), &map).await.unwrap();
                }
            }
        }
        // Sometimes the watch has time to come back, and sometimes not.
        let longest = if trouble == Trouble::Always { 60_000 } else { 4_000 };
        tokio::time::sleep(Duration::from_millis(random.below(longest))).await;
    }
    let lists_asked = faults
        .asked()
        .iter()
        .filter(|(_, asked)| matches!(asked, Asked::Streamed | Asked::List { continues: false }))
        .count();
    faults.plan(|_, _| Verdict::Pass);
    let server: BTreeMap<String, (String, String)> = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|map| {
            let metadata = map.metadata;
            (metadata.name.unwrap(), (metadata.uid.unwrap(), metadata.resource_version.unwrap()))
        })
        .collect();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while told.lock().objects != server && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let told = told.lock();
    assert_eq!(told.wrong, [] as [String; 0], "seed {seed}");
    assert_eq!(told.objects, server, "seed {seed}: lost");
    let everything = LabelSelector::default();
    let cached = cache.list(None, &everything).into_iter();
    let cached = cached.map(|o| (o.name().to_owned(), (o.uid().to_owned(), o.resource_version().to_owned())));
    assert_eq!(cached.collect::<BTreeMap<_, _>>(), server, "seed {seed}: the cache differs");
    let twice: Vec<_> = told.deleted.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "seed {seed}: deletions told twice: {twice:?}");
    let there: BTreeSet<&String> = server.values().map(|(uid, _)| uid).collect();
    let untold: Vec<_> =
        told.known.iter().filter(|uid| !there.contains(uid) && !told.deleted.contains_key(*uid)).collect();
    assert!(untold.is_empty(), "seed {seed}: deletions not told: {untold:?}");
    lists_asked
}

async fn run(lists: Lists, trouble: Trouble) {
    let rounds = tries(120, 2_500);
    let mut begun = 0;
    for seed in 1..=4 {
        begun += check(seed, lists, trouble, rounds).await;
    }
    println!("{begun} relists, {lists:?}, {trouble:?}");
    assert!(begun > rounds, "only {begun} lists in {} rounds", 4 * rounds);
}

#[tokio::test(start_paused = true)]
async fn relists_of_streamed_lists_lose_nothing() {
    run(Lists::Streamed, Trouble::Mixed).await;
}

#[tokio::test(start_paused = true)]
async fn relists_in_pages_lose_nothing() {
    run(Lists::Paged, Trouble::Mixed).await;
}

#[tokio::test(start_paused = true)]
async fn a_410_at_every_event_of_streamed_lists_loses_nothing() {
    run(Lists::Streamed, Trouble::Always).await;
}

#[tokio::test(start_paused = true)]
async fn a_410_at_every_event_after_pages_loses_nothing() {
    run(Lists::Paged, Trouble::Always).await;
}

/// A cluster ends a streamed list up to a second after its last object, and what happens meanwhile comes before that end.
#[tokio::test(start_paused = true)]
async fn what_is_deleted_before_a_streamed_list_has_ended_is_gone() {
    let faults = Faults::new().await;
    let maps = config_maps(&faults.client());
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &config_map(name, "a", None)).await.unwrap();
    }
    let (gone, client) = (maps.get("a").await.unwrap(), faults.client());
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let line = |what: &str| format!("{{\"type\":\"{what}\",\"object\":{}}}\n", serde_json::to_string(&gone).unwrap());
    let (added, deleted) = (line("ADDED"), line("DELETED"));
    faults.plan(move |asked, before| match (asked, before) {
        (Asked::Streamed, 0) => {
            let mut extra = vec![deleted.clone(), added.clone()];
            Verdict::Lines(Box::new(move |_| extra.pop().map_or(Line::Pass, Line::After)))
        }
        _ => Verdict::Pass,
    });
    let cache = faults.caches(WatchSettings::default()).open(Target::of::<ConfigMap>().within("default"));
    let (told, _subscription) = listen(&cache);
    cache.synced().await;
    let names = |cache: &Cache| -> Vec<String> {
        cache.list(None, &LabelSelector::default()).iter().map(|object| object.name().to_owned()).collect()
    };
    assert_eq!(names(&cache), ["b"]);
    // The watch goes on.
    config_maps(&client).create(&PostParams::default(), &config_map("c", "a", None)).await.unwrap();
    while !told.lock().objects.contains_key("c") {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!told.lock().objects.contains_key("a"));
}

/// A way to a server that can be replaced by another one.
#[derive(Clone)]
struct Replaceable(Arc<Mutex<ApiServer>>);

impl Service<http::Request<Body>> for Replaceable {
    type Response = http::Response<konverge_apiserver::Body>;
    type Error = std::convert::Infallible;
    type Future = <ApiServer as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.lock().call(request)
    }
}

/// One whose clock was set back before it was restarted without its data, or that is not ours, counts from where it was
/// before.
#[tokio::test(start_paused = true)]
async fn after_a_server_went_back_in_time_reads_still_see_writes() {
    let options = || Options { versions: Versions::After(0), ..Options::default() };
    let server = async || ApiServer::open(options()).await.unwrap();
    let way = Replaceable(Arc::new(Mutex::new(server().await)));
    let maps = config_maps(&Client::new(way.clone(), "default"));
    let caches = konverge_runtime::Caches::new(Client::new(way.clone(), "default"), WatchSettings::default());
    let cache = caches.open(Target::of::<ConfigMap>().within("default"));
    for at in 0..50 {
        maps.create(&PostParams::default(), &config_map(&format!("m{at}"), "a", None)).await.unwrap();
    }
    while cache.list(None, &LabelSelector::default()).len() < 50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let new = server().await;
    *way.0.lock() = new;
    // The watch on the old one ends when its time is over.
    while !cache.list(None, &LabelSelector::default()).is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let written = maps.create(&PostParams::default(), &config_map("new", "a", None)).await.unwrap();
    let json = serde_json::to_string(&written).unwrap();
    caches.wrote(&cache.target().resource, &json).unwrap();
    assert!(cache.get(&crate::kinds::key("new")).is_some());
}
