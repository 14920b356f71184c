//! Reads of a background task. In: a kind, and a key or a namespace. Out: objects from the caches of the operator. A kind that
//! nothing watches is read from the server by `get`, and is watched from then on by `list`. Never writes.

use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Cache, Caches, Result, Writer};
use parking_lot::Mutex;

use super::Manager;
use crate::api_kind::ApiKind;
use crate::cached_client::{filled, namespace_to_watch, namespaces_to_watch};
use crate::kind::Kind;

pub(super) struct CachedReads {
    caches: Caches,
    writer: Writer,
    /// The namespaces that the operator watches; empty means all of them.
    namespaces: Vec<String>,
    /// The caches that lists have opened: a watch ends when nobody keeps its cache.
    opened: Mutex<Vec<Cache>>,
}

impl CachedReads {
    pub(super) fn new(manager: &Manager<'_>) -> Self {
        let namespaces = manager.settings.namespaces.clone();
        Self { caches: manager.caches.clone(), writer: manager.writer.clone(), namespaces, opened: Mutex::default() }
    }

    pub(super) async fn get<T: Kind>(&self, key: &ObjectKey) -> Result<Option<T>> {
        let kind = ApiKind::of::<T>();
        let target = kind.target(namespace_to_watch(&self.namespaces, &kind, key.namespace()));
        if let Some(cache) = self.caches.find(&target) {
            filled(&cache).await?;
            return Ok(cache.get(key).map(|object| object.decode()).transpose()?);
        }
        let found = self.writer.get(kind.resource(), key).await?;
        Ok(found.map(serde_json::from_value).transpose()?)
    }

    pub(super) async fn list<T: Kind>(&self, namespace: Option<&str>) -> Result<Vec<T>> {
        let kind = ApiKind::of::<T>();
        let namespaces = match namespace {
            Some(_) => vec![namespace_to_watch(&self.namespaces, &kind, namespace)],
            None => namespaces_to_watch(&self.namespaces, &kind),
        };
        let mut found = Vec::new();
        for watched in namespaces {
            let cache = self.open(&kind, watched);
            filled(&cache).await?;
            found.extend(cache.list(namespace, &LabelSelector::default()));
        }
        found.iter().map(|object| Ok(object.decode()?)).collect()
    }

    fn open(&self, kind: &ApiKind, namespace: Option<&str>) -> Cache {
        let cache = self.caches.open(kind.target(namespace));
        let mut opened = self.opened.lock();
        if opened.iter().all(|known| known.target() != cache.target()) {
            opened.push(cache.clone());
        }
        cache
    }
}
