//! Objects in memory and nothing else: our cache, or kube's store. In: a kind and how many. Out: what that takes, at rest
//! and while everything is listed once more.

use std::hash::Hash;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use konverge_runtime::{Cache, Caches, Mode, Target, WatchSettings};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use super::job::{Answer, Cost, Held, Who};
use super::kinds::Widget;
use super::replay;
use crate::process::Process;
use crate::void::{Void, expect};

/// How long memory may take to settle.
const SETTLE: Duration = Duration::from_millis(500);

/// Keeps objects.
pub async fn hold(who: Who, client: Client, objects: usize, kind: Held) -> Result<Answer, Void> {
    let own = Process::own();
    let base = own.memory()?.rss;
    let (begun, cpu) = (Instant::now(), own.cpu_exact()?);
    let keeper = Keeper::start(who, client.clone(), kind)?;
    keeper.reach(objects).await;
    let cost = Cost { cpu: own.cpu_exact()?.saturating_sub(cpu), wall: begun.elapsed(), count: objects };
    tokio::time::sleep(SETTLE).await;
    let full = own.memory()?.rss;
    if objects == 0 {
        return Ok(Answer::Hold { base, full, peak: full, after: full, cost });
    }
    // The highest mark begins anew here.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let path = if kind == Held::Pods { replay::PODS } else { replay::WIDGETS };
    replay::expire(&client, path).await.map_err(|error| Void::new(error.to_string()))?;
    // The second list ends with one that was not in the first.
    keeper.reach(objects + 1).await;
    tokio::time::sleep(SETTLE).await;
    expect("objects that are kept", keeper.len(), objects + 1)?;
    let memory = own.memory()?;
    Ok(Answer::Hold { base, full, peak: memory.peak, after: memory.rss, cost })
}

/// Who keeps them.
enum Keeper {
    Ours(Cache),
    Widgets(Store<Widget>),
    Pods(Store<Pod>),
    Metadata(Store<PartialObjectMeta<Widget>>),
}

impl Keeper {
    fn start(who: Who, client: Client, kind: Held) -> Result<Self, Void> {
        let config = watcher::Config::default().streaming_lists();
        Ok(match (who, kind) {
            (Who::Engine | Who::Operator, kind) => {
                let target = match kind {
                    Held::Widgets => Target::of::<Widget>(),
                    Held::Pods => Target::of::<Pod>(),
                    Held::WidgetMetadata => Target::of::<Widget>().mode(Mode::Metadata),
                };
                Self::Ours(Caches::new(client, WatchSettings::default()).open(target))
            }
            (Who::Kube, Held::Widgets) => Self::Widgets(reflect(watcher(Api::<Widget>::all(client), config))),
            (Who::Kube, Held::Pods) => Self::Pods(reflect(watcher(Api::<Pod>::all(client), config))),
            (Who::Kube, Held::WidgetMetadata) => {
                Self::Metadata(reflect(watcher(Api::<PartialObjectMeta<Widget>>::all(client), config)))
            }
            (Who::Bare, _) => return Err(Void::new("without a cache nothing is kept")),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Ours(cache) => cache.figures().objects,
            Self::Widgets(store) => store.len(),
            Self::Pods(store) => store.len(),
            Self::Metadata(store) => store.len(),
        }
    }

    /// Waits until there are so many.
    async fn reach(&self, count: usize) {
        while self.len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// kube's store, filled until the process ends.
fn reflect<K>(watch: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static) -> Store<K>
where
    K: Lookup + Clone + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
{
    let (store, writer) = reflector::store::<K>();
    tokio::spawn(reflector::reflector(writer, watch.default_backoff()).for_each(|_| std::future::ready(())));
    store
}
