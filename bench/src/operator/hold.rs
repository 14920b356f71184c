//! A cache without a controller: ours, or kube's store. In: a kind and the number of objects. Out: the memory that the cache
//! takes when idle, and while everything is listed again.

use std::hash::Hash;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use konverge_runtime::{Cache, Caches, Mode, Target, WatchSettings};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use super::job::{Cost, Held, Implementation, TaskResult};
use super::kinds::Widget;
use super::replay;
use crate::invalid_run::{InvalidRun, expect};
use crate::process::Process;

/// How long to wait until freed memory is returned to the system.
const SETTLE: Duration = Duration::from_millis(500);

/// Fills a cache and measures its memory.
pub(super) async fn hold(
    implementation: Implementation,
    client: Client,
    objects: usize,
    kind: Held,
) -> Result<TaskResult, InvalidRun> {
    let own = Process::own();
    let base = own.memory()?.rss;
    let (begun, cpu) = (Instant::now(), own.cpu_exact()?);
    let cache = AnyCache::start(implementation, client.clone(), kind)?;
    cache.reach(objects).await;
    let cost = Cost { cpu: own.cpu_exact()?.saturating_sub(cpu), wall: begun.elapsed(), count: objects };
    tokio::time::sleep(SETTLE).await;
    let full = own.memory()?.rss;
    if objects == 0 {
        return Ok(TaskResult::Hold { base, full, peak: full, after: full, cost });
    }
    // Resets the peak of resident memory.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let path = if kind == Held::Pods { replay::PODS } else { replay::WIDGETS };
    replay::expire(&client, path).await.map_err(|error| InvalidRun::new(error.to_string()))?;
    // The second list has one more object than the first.
    cache.reach(objects + 1).await;
    tokio::time::sleep(SETTLE).await;
    expect("objects in the cache", cache.len(), objects + 1)?;
    let memory = own.memory()?;
    Ok(TaskResult::Hold { base, full, peak: memory.peak, after: memory.rss, cost })
}

/// A cache of one implementation.
enum AnyCache {
    Ours(Cache),
    Widgets(Store<Widget>),
    Pods(Store<Pod>),
    Metadata(Store<PartialObjectMeta<Widget>>),
}

impl AnyCache {
    fn start(implementation: Implementation, client: Client, kind: Held) -> Result<Self, InvalidRun> {
        let config = watcher::Config::default().streaming_lists();
        Ok(match (implementation, kind) {
            (Implementation::Engine | Implementation::Operator, kind) => {
                let target = match kind {
                    Held::Widgets => Target::of::<Widget>(),
                    Held::Pods => Target::of::<Pod>(),
                    Held::WidgetMetadata => Target::of::<Widget>().mode(Mode::Metadata),
                };
                Self::Ours(Caches::new(client, WatchSettings::default()).open(target))
            }
            (Implementation::Kube, Held::Widgets) => {
                Self::Widgets(reflect(watcher(Api::<Widget>::all(client), config)))
            }
            (Implementation::Kube, Held::Pods) => Self::Pods(reflect(watcher(Api::<Pod>::all(client), config))),
            (Implementation::Kube, Held::WidgetMetadata) => {
                Self::Metadata(reflect(watcher(Api::<PartialObjectMeta<Widget>>::all(client), config)))
            }
            (Implementation::Bare, _) => return Err(InvalidRun::new("the bare writes have no cache")),
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

    /// Waits until the cache has this number of objects.
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
