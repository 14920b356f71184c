//! The kinds of a server. In: its discovery documents. Out: the kinds that can be listed, watched and deleted. They are read
//! once, and again after a CustomResourceDefinition was created, changed or deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{Caches, Mode, Result, Subscription, Target};
use kube::Client;
use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope, verbs};
use parking_lot::Mutex;

/// One kind, in the version the server likes best.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub api: ApiResource,
    pub namespaced: bool,
    /// Whether all of a namespace can be deleted at once.
    pub in_bulk: bool,
}

impl Kind {
    /// The name of the CustomResourceDefinition that it has if it is not built in.
    pub(crate) fn definition(&self) -> String {
        format!("{}.{}", self.api.plural, self.api.group)
    }
}

/// The kinds of a server. Clones are the same.
#[derive(Clone)]
pub(crate) struct Kinds(Arc<Inner>);

struct Inner {
    client: Client,
    /// Locked while the server is asked, so that concurrent callers wait for the same answer.
    known: tokio::sync::Mutex<Arc<Vec<Kind>>>,
    stale: Arc<AtomicBool>,
    /// Held so that the definitions are watched.
    watching: Mutex<Option<Subscription>>,
}

/// All CustomResourceDefinitions; their metadata tells that something changed.
pub(crate) fn definitions() -> Target {
    Target::of::<CustomResourceDefinition>().mode(Mode::Metadata)
}

impl Kinds {
    /// The kinds of the server of a client.
    pub(crate) fn new(client: Client) -> Self {
        Self(Arc::new(Inner {
            client,
            known: tokio::sync::Mutex::default(),
            stale: Arc::new(AtomicBool::new(true)),
            watching: Mutex::default(),
        }))
    }

    /// The kinds that can be listed, watched and deleted, as of now.
    pub(crate) async fn get(&self, caches: &Caches) -> Result<Arc<Vec<Kind>>> {
        self.watch(caches);
        let mut known = self.0.known.lock().await;
        // Cleared before asking: what changes meanwhile is asked for again.
        if self.0.stale.swap(false, Ordering::AcqRel) {
            *known = Arc::new(discover(&self.0.client).await.inspect_err(|_| self.forget())?);
        }
        Ok(known.clone())
    }

    /// What is known is old.
    pub(crate) fn forget(&self) {
        self.0.stale.store(true, Ordering::Release);
    }

    fn watch(&self, caches: &Caches) {
        let mut watching = self.0.watching.lock();
        if watching.is_none() {
            let stale = self.0.stale.clone();
            let subscription = caches.open(definitions()).subscribe(move |_| stale.store(true, Ordering::Release));
            *watching = Some(subscription);
        }
    }
}

/// Asks for the kinds; in two requests if the server knows how.
async fn discover(client: &Client) -> Result<Vec<Kind>> {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(discovery) if discovery.groups().next().is_some() => discovery,
        Ok(_) | Err(_) => Discovery::new(client.clone()).run().await?,
    };
    let resources = discovery.groups().flat_map(|group| group.resources_by_stability());
    let wanted = [verbs::LIST, verbs::WATCH, verbs::DELETE];
    let kinds =
        resources.filter(|(api, can)| wanted.iter().all(|verb| can.supports_operation(verb)) && !is_passing(api));
    Ok(kinds
        .map(|(api, can)| Kind {
            api,
            namespaced: can.scope == Scope::Namespaced,
            in_bulk: can.supports_operation(verbs::DELETE_COLLECTION),
        })
        .collect())
}

/// Events of the group `events.k8s.io` are the same objects as those of the core group, so one of the two is left out.
fn is_passing(api: &ApiResource) -> bool {
    api.kind == "Event" && api.group == "events.k8s.io"
}
