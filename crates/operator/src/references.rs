//! Objects that the reconciled objects name. In: a function from a reconciled object to names. Out: a watch of the named
//! kind whose changes reconcile the objects that name the changed one, also in namespaces that are not watched otherwise.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use konverge_core::ObjectKey;
use konverge_runtime::{Cache, Change, Object, Predicate as EnginePredicate, Result, Subscription, Trigger};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::api_kind::ApiKind;
use crate::cached_client::{CachedClient, WatchReferenced};
use crate::index::Index;

/// The user's function: what an object names.
type Names<R> = Arc<dyn Fn(&R) -> Vec<String> + Send + Sync>;

/// The namespaces, besides the watched ones, in which an object names something.
type NamespacesBeyond<R> = Arc<dyn Fn(&R) -> BTreeSet<String> + Send + Sync>;

/// Watches the objects of `kind` that the reconciled objects name: a change of one that the predicate lets through reconciles
/// those that name it.
///
/// Other triggers never read a cache, because it may be behind. This one may: an object whose new name the cache does not
/// have yet is about to be reconciled because of that very change.
pub(crate) fn references<R: DeserializeOwned + 'static>(
    kind: ApiKind,
    names: impl Fn(&R) -> Vec<String> + Send + Sync + 'static,
    predicate: EnginePredicate,
) -> impl Fn(&CachedClient) -> Result<()> + Send + Sync + 'static {
    let names: Names<R> = Arc::new(names);
    let index = {
        let (kind, names) = (kind.clone(), names.clone());
        Index::over(move |object: &Object| {
            let Ok(decoded) = object.decode::<R>() else { return Vec::new() };
            let own = object.namespace().filter(|_| kind.is_namespaced());
            let full = |name: String| match own {
                Some(namespace) if !name.contains('/') => format!("{namespace}/{name}"),
                _ => name,
            };
            names(&decoded).into_iter().map(full).collect()
        })
    };
    move |cached| {
        let (index, primaries) = (index.clone(), cached.controller.primaries().to_vec());
        // Objects without a namespace are those of administrators.
        let across = cached.across_namespaces || !cached.kind.is_namespaced();
        let referrers = move |object: &Object| {
            let (key, namespace) = (object.key(), object.namespace());
            let name = key.to_string();
            let keys = primaries.iter().flat_map(|cache| index.find(cache, &name)).map(|object| object.key());
            // What an object names in another namespace counts only if the operator declares it.
            let counts = |key: &ObjectKey| {
                across || namespace.is_none() || key.namespace().is_none() || key.namespace() == namespace
            };
            keys.filter(counts).collect()
        };
        let trigger = Trigger::mapped(kind.name(), referrers).when(predicate.clone());
        for namespace in cached.watched_namespaces(&kind) {
            cached.controller.watch(cached.target(&kind, namespace), trigger.clone());
        }
        if across && !cached.namespaces.is_empty() && kind.is_namespaced() {
            cached.referenced.write().push(watch_beyond(cached, kind.clone(), names.clone(), trigger));
        }
        Ok(())
    }
}

/// For an operator that watches some namespaces: watches others in which an object names something, each from the first
/// such name until no object names anything there any more, and returns their caches.
fn watch_beyond<R: DeserializeOwned + 'static>(
    cached: &CachedClient,
    kind: ApiKind,
    names: Names<R>,
    trigger: Trigger,
) -> WatchReferenced {
    let watched = cached.namespaces.clone();
    let beyond: NamespacesBeyond<R> = Arc::new(move |object| {
        // A function that panics about an object names nothing, as in the index.
        let names = catch_unwind(AssertUnwindSafe(|| names(object))).unwrap_or_default();
        let namespaces = names.iter().filter_map(|name| name.split_once('/')).map(|(namespace, _)| namespace);
        namespaces.filter(|namespace| watched.iter().all(|one| one != namespace)).map(str::to_owned).collect()
    });
    let index = Index::new({
        let beyond = beyond.clone();
        move |object: &R| beyond(object).into_iter().collect()
    });
    let primaries = cached.controller.primaries().to_vec();
    let is_named = move |namespace: &str| primaries.iter().any(|cache| !index.find(cache, namespace).is_empty());
    let open: Arc<Mutex<HashMap<String, (Cache, Subscription)>>> = Arc::default();
    let close_unnamed = {
        let (open, beyond, is_named) = (open.clone(), beyond.clone(), is_named.clone());
        move |change: Change| {
            // Most operators name nothing in other namespaces.
            if open.lock().is_empty() {
                return;
            }
            let namespaces = |object: Option<&Arc<Object>>| -> BTreeSet<String> {
                object.and_then(|object| object.decode().ok()).map(|object| beyond(&object)).unwrap_or_default()
            };
            for namespace in &namespaces(change.before()) - &namespaces(change.after()) {
                // An object that names the namespace from now on finds its watch closed, and opens it again.
                let mut open = open.lock();
                if !is_named(&namespace) {
                    open.remove(&namespace);
                }
            }
        }
    };
    let subscriptions: Vec<Subscription> =
        cached.controller.primaries().iter().map(|cache| cache.subscribe(close_unnamed.clone())).collect();
    Box::new(move |cached, object| {
        // The subscriptions last as long as this closure.
        let _ = &subscriptions;
        let Some(object) = object.downcast_ref::<R>() else { return Vec::new() };
        let watch = |namespace: String| {
            let mut open = open.lock();
            if let Some((cache, _)) = open.get(&namespace) {
                return cache.clone();
            }
            let target = cached.target(&kind, Some(&namespace));
            let (cache, subscription) = cached.controller.watch_while(target, trigger.clone());
            // If the object has changed meanwhile, that change came before there was a watch to close.
            if is_named(&namespace) {
                open.insert(namespace, (cache.clone(), subscription));
            }
            cache
        };
        beyond(object).into_iter().map(watch).collect()
    })
}
