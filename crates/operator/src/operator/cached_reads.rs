//! Reads of background tasks and webhooks. In: a kind, and a key or a namespace. Out: objects, from the caches of the operator where they
//! are filled. `list` watches a kind from then on, in the namespaces that the operator watches; all other reads ask the
//! server. What a controller would wait for is waited for. Never writes.

use std::sync::Arc;
use std::time::Duration;

use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Cache, Caches, Error, Object, Result, Writer, explain_not_served};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Manager, Phase};
use crate::api_kind::ApiKind;
use crate::cached_client::{list_from_server, namespace_to_watch, namespaces_to_watch, stopping};
use crate::kind::Kind;

/// How often a kind that is not served is asked for again; watches do the same.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// In how many of these reads the log says it again: once a minute.
const LOG_EVERY: usize = 12;

pub(crate) struct CachedReads {
    client: Client,
    caches: Caches,
    writer: Writer,
    /// The namespaces that the operator watches; empty means all of them.
    namespaces: Vec<String>,
    phase: watch::Receiver<Phase>,
    /// The caches that lists have opened: a watch ends when nobody keeps its cache. At most one for each kind and watched
    /// namespace.
    opened: Mutex<Vec<Cache>>,
}

impl CachedReads {
    pub(crate) fn new(manager: &Manager<'_>, phase: watch::Receiver<Phase>) -> Self {
        Self {
            client: manager.client.clone(),
            caches: manager.caches.clone(),
            writer: manager.writer.clone(),
            namespaces: manager.settings.namespaces.clone(),
            phase,
            opened: Mutex::default(),
        }
    }

    pub(crate) async fn get<T: Kind>(&self, reader: &str, key: &ObjectKey) -> Result<Option<T>> {
        let kind = ApiKind::of::<T>();
        let watched = namespace_to_watch(&self.namespaces, &kind, key.namespace());
        // A watch that is not filled says nothing about the object, and may never be filled. The server tells.
        if let Some(cache) = self.caches.find(&kind.target(watched)).filter(Cache::is_synced) {
            return Ok(cache.get(key).map(|object| object.decode()).transpose()?);
        }
        let mut wait = Wait::new(reader, &kind, key.namespace());
        loop {
            match self.writer.get(kind.resource(), key).await.map_err(Error::from) {
                Err(error) if is_not_served(&error) => self.pause(&mut wait).await?,
                found => return Ok(found?.map(serde_json::from_value).transpose()?),
            }
        }
    }

    pub(crate) async fn list<T: Kind>(
        &self,
        reader: &str,
        namespace: Option<&str>,
        selector: &LabelSelector,
    ) -> Result<Vec<T>> {
        let kind = ApiKind::of::<T>();
        let found = match namespace {
            Some(namespace) if self.is_elsewhere(&kind, namespace) => {
                self.list_elsewhere(reader, &kind, namespace, selector).await?
            }
            _ => {
                let namespaces = match namespace {
                    Some(_) => vec![namespace_to_watch(&self.namespaces, &kind, namespace)],
                    None => namespaces_to_watch(&self.namespaces, &kind),
                };
                let mut found = Vec::new();
                for watched in namespaces {
                    let cache = self.open(reader, &kind, watched);
                    self.filled(&cache).await?;
                    found.extend(cache.list(namespace, selector));
                }
                found
            }
        };
        found.iter().map(|object| Ok(object.decode()?)).collect()
    }

    /// Whether the operator watches other namespaces, and not this one.
    fn is_elsewhere(&self, kind: &ApiKind, namespace: &str) -> bool {
        kind.is_namespaced() && !self.namespaces.is_empty() && self.namespaces.iter().all(|one| one != namespace)
    }

    /// What is in a namespace that the operator does not watch. There may be any number of those, so none is watched for
    /// this: its watch would stay for ever.
    async fn list_elsewhere(
        &self,
        reader: &str,
        kind: &ApiKind,
        namespace: &str,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Object>>> {
        if let Some(cache) = self.caches.find(&kind.target(Some(namespace))).filter(Cache::is_synced) {
            return Ok(cache.list(Some(namespace), selector));
        }
        let mut wait = Wait::new(reader, kind, Some(namespace));
        loop {
            match list_from_server(&self.client, kind, Some(namespace), selector).await {
                Err(error) if is_not_served(&error) => self.pause(&mut wait).await?,
                found => return found,
            }
        }
    }

    fn open(&self, reader: &str, kind: &ApiKind, namespace: Option<&str>) -> Cache {
        let cache = self.caches.open(kind.target(namespace));
        // The log of a watch that fails says who waits for it.
        cache.add_user(reader);
        let mut opened = self.opened.lock();
        if opened.iter().all(|known| known.target() != cache.target()) {
            opened.push(cache.clone());
        }
        cache
    }

    /// Waits until a cache has been filled by its first list: for a kind that is not installed yet, for a missing rule, for
    /// a server that is away. The watch logs which. That the operator stops is an error.
    async fn filled(&self, cache: &Cache) -> Result<()> {
        tokio::select! {
            biased;
            () = cache.synced() => Ok(()),
            () = self.stopped() => Err(stopping(cache.waiting_for())),
        }
    }

    /// A pause before a kind that the server does not serve is asked for again. That the operator stops is an error.
    async fn pause(&self, wait: &mut Wait<'_>) -> Result<()> {
        let Wait { reader, kind, namespace, pauses, why } = wait;
        if *pauses % LOG_EVERY == 0 {
            *why = explain_not_served(&self.client, kind.resource(), *namespace).await;
            tracing::warn!(reader, kind = kind.name(), why, "a read waits until the kind is served");
        }
        *pauses += 1;
        tokio::select! {
            () = tokio::time::sleep(ASK_AGAIN_AFTER) => Ok(()),
            () = self.stopped() => {
                let api_version = &kind.resource().api_version;
                Err(stopping(Some(format!("{} of {api_version}: {why}", kind.name()))))
            }
        }
    }

    async fn stopped(&self) {
        let mut phase = self.phase.clone();
        // The sender is gone only when the operator is, too.
        let _ = phase.wait_for(|phase| *phase >= Phase::Stopping).await;
    }
}

/// A reader that waits for a kind.
struct Wait<'a> {
    reader: &'a str,
    kind: &'a ApiKind,
    namespace: Option<&'a str>,
    pauses: usize,
    why: String,
}

impl<'a> Wait<'a> {
    fn new(reader: &'a str, kind: &'a ApiKind, namespace: Option<&'a str>) -> Self {
        Self { reader, kind, namespace, pauses: 0, why: String::new() }
    }
}

fn is_not_served(error: &Error) -> bool {
    error.get_reason() == "NotServed"
}
