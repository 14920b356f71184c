//! From a builder to a running controller. In: what the controller was told, and what the process shares. Out: a future that
//! works until it is told to stop.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{
    Action, Backoff, Change, Controller as EngineController, ControllerOptions, Error, Object, QueueOptions, Rate,
    Result, Run, Writer, panic_message,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ControllerSpec;
use super::trigger::Source;
use crate::api_kind::ApiKind;
use crate::kind::Scope;
use crate::meter::ControllerMeter;
use crate::metrics::KindMetrics;
use crate::operator::{EVENT_VERBS, ElectionGroup, Manager, Phase};
use crate::rules::Rules;
use crate::settings::{ControllerSettings, Settings};
use crate::state::States;
use crate::versions::Versions;
use crate::webhook::{AnyWebhook, Served};

/// The controller of one kind of an operator, whatever the kind.
pub(crate) trait AnyController: Send + Sync {
    /// Its name in the log and in metrics.
    fn name(&self) -> String;

    /// The kind of the objects that it reconciles.
    fn kind(&self) -> &ApiKind;

    /// The finalizer that it keeps on its objects, if it keeps one.
    fn finalizer(&self) -> Option<&str>;

    /// Begins to watch, and returns the work. It finishes its reconciles in the phase `Stopping`, takes keys from its trigger
    /// streams until the background tasks have ended, and ends then; or with an error before.
    fn start(
        self: Box<Self>,
        manager: &Manager<'_>,
        writer: Writer,
        phase: watch::Receiver<Phase>,
    ) -> Result<BoxFuture<'static, Result<()>>>;

    /// The rules that it needs.
    fn rules(&self) -> Rules;

    /// The CRD of its kind, if the kind's type knows it.
    fn definition(&self) -> Option<CustomResourceDefinition>;

    /// Its webhooks, each with the state that it sees: that of the controller, and of the operator (`shared`) what the
    /// controller does not have.
    fn webhooks(&self, shared: &States) -> Vec<Served>;

    /// The group that it is elected in, if that is not the operator's own election.
    fn election_group(&self) -> Option<&ElectionGroup> {
        None
    }

    /// The versions of its kind, if there are several.
    fn versions(&self) -> Option<&Versions> {
        None
    }
}

impl<R: DeserializeOwned + Send + Sync + 'static> AnyController for ControllerSpec<R> {
    fn name(&self) -> String {
        self.controller_name()
    }

    fn kind(&self) -> &ApiKind {
        &self.kind
    }

    fn finalizer(&self) -> Option<&str> {
        self.finalizer.as_deref()
    }

    fn start(
        mut self: Box<Self>,
        manager: &Manager<'_>,
        writer: Writer,
        mut phase: watch::Receiver<Phase>,
    ) -> Result<BoxFuture<'static, Result<()>>> {
        let (name, sources) = (self.controller_name(), std::mem::take(&mut self.sources));
        let settings = self.overrides.over(&manager.settings.controller);
        // An override may be as wrong as a setting.
        Settings { controller: settings.clone(), ..manager.settings.clone() }.check()?;
        let metrics = manager.metrics.controller(&name);
        metrics.set_max_concurrent(settings.max_concurrent_reconciles);
        let ready = Arc::new(AtomicBool::new(false));
        let options = ControllerOptions {
            concurrency: settings.max_concurrent_reconciles,
            timeout: settings.reconcile_timeout,
            resync: manager.settings.sync_period,
            drain: manager.settings.graceful_shutdown_timeout,
            queue: self.queue_options(&settings),
            predicate: self.predicate.engine(),
            urgent: self.urgent.clone(),
            leadership: manager.elected(self.group.as_ref().map(ElectionGroup::name)).leadership,
            shards: manager.shards.clone(),
            meter: Arc::new(ControllerMeter { metrics, ready: ready.clone() }),
            ..ControllerOptions::default()
        };
        // Each namespace is a watch of its own, so that nothing outside of them is read.
        let mut namespaces = if self.kind.is_namespaced() { manager.settings.namespaces.clone() } else { Vec::new() };
        // A namespace that the settings have twice is watched once.
        namespaces.sort();
        namespaces.dedup();
        let reconciler = Arc::new(self.reconciler(manager, writer, namespaces, options)?);
        let controller = reconciler.cached.controller.clone();
        let api = self.kind.resource();
        let kind = manager.metrics.kind(&api.group, &api.kind);
        controller.primaries().iter().for_each(|cache| manager.count_once(cache, count(&kind)));
        let reconcile = move |run: Run| -> BoxFuture<'static, Result<Action>> {
            let reconciler = reconciler.clone();
            Box::pin(async move { reconciler.reconcile(run).await })
        };
        let waiting = Arc::downgrade(&controller);
        manager.health.readiness_from(&name, move || {
            if ready.load(Ordering::Relaxed) {
                return Ok(());
            }
            Err(not_ready(&waiting.upgrade().map(|controller| controller.waiting_for()).unwrap_or_default()))
        });
        let workers = Arc::downgrade(&controller);
        manager.health.liveness_from(&format!("workers-{name}"), move || {
            workers.upgrade().map_or(Ok(()), |controller| controller.liveness())
        });
        Ok(Box::pin(async move {
            let mut failed = None;
            let mut feeding = pin!(feed(&name, &controller, sources));
            let stopped = async {
                tokio::select! {
                    () = async { drop(phase.wait_for(|phase| *phase >= Phase::Stopping).await) } => {}
                    error = &mut feeding => failed = Some(error),
                }
            };
            controller.run(Arc::new(reconcile), stopped).await;
            if let Some(error) = failed {
                return Err(error);
            }
            // A background task may be sending a key, and must not be refused because it is a moment late.
            drop(phase.wait_for(|phase| *phase == Phase::BackgroundEnded).await);
            Ok(())
        }))
    }

    fn rules(&self) -> Rules {
        let kind = &self.kind;
        let own = Rules::new().allow_dynamic(kind, "", ["get", "list", "watch"]);
        let own = own.allow_dynamic(kind, "status", ["patch"]);
        // An owner reference that blocks the owner's deletion takes the right to change the owner's finalizers.
        let own = own.allow_dynamic(kind, "finalizers", ["update"]);
        // Objects that are stored in an old version are written anew.
        let own = if self.versions().is_some() { own.allow_dynamic(kind, "", ["update"]) } else { own };
        let own = if self.finalizer.is_some() { own.allow_dynamic(kind, "", ["patch"]) } else { own };
        // Reconciles that fail write events.
        let own = self.rules.clone().and_together(own.allow::<Event>(EVENT_VERBS));
        match kind.scope() {
            // Objects in no namespace may have children in every namespace.
            Scope::Cluster => own.everywhere(),
            Scope::Namespaced => own,
        }
    }

    fn definition(&self) -> Option<CustomResourceDefinition> {
        let definition = (self.definition)()?;
        Some(match &self.versions {
            Some(versions) => versions.definition(definition),
            None => definition,
        })
    }

    fn versions(&self) -> Option<&Versions> {
        self.versions.as_ref().filter(|versions| !versions.is_single())
    }

    fn election_group(&self) -> Option<&ElectionGroup> {
        self.group.as_ref()
    }

    fn webhooks(&self, shared: &States) -> Vec<Served> {
        let served =
            |webhook: &Arc<dyn AnyWebhook>| Served { webhook: webhook.clone(), states: self.states.over(shared) };
        self.webhooks.iter().map(served).collect()
    }
}

impl<R> ControllerSpec<R> {
    /// The name of the controller in the log and in metrics.
    pub(super) fn controller_name(&self) -> String {
        let api = self.kind.resource();
        match &self.name {
            Some(name) => name.clone(),
            None if api.group.is_empty() => api.kind.to_lowercase(),
            None => format!("{}.{}", api.kind.to_lowercase(), api.group),
        }
    }

    fn queue_options(&self, settings: &ControllerSettings) -> QueueOptions {
        let mut backoff = Backoff {
            initial: settings.backoff.initial,
            max: settings.backoff.max,
            multiplier: settings.backoff.multiplier,
            max_retries: settings.backoff.max_retries,
            jitter: settings.backoff.jitter,
        };
        if let Some(pause) = self.error_requeue {
            backoff = Backoff { initial: pause, max: pause, jitter: 0.0, ..backoff };
        }
        let rate = (settings.rate_limit.per_second > 0.0).then(|| Rate {
            // A rate so small that its pause does not fit lets one reconcile through, and then none.
            every: Duration::try_from_secs_f64(1.0 / settings.rate_limit.per_second).unwrap_or(Duration::MAX),
            burst: settings.rate_limit.burst,
        });
        QueueOptions { backoff, rate, ..QueueOptions::default() }
    }
}

/// Why a controller is not ready, for the readiness probe.
fn not_ready(waiting_for: &[String]) -> String {
    if waiting_for.is_empty() { "not yet".to_owned() } else { format!("waiting for {}", waiting_for.join("; ")) }
}

/// Feeds the controller from its trigger streams, each in a task of its own. Streams that end are waited for no longer;
/// this returns only if one panics.
async fn feed(name: &str, controller: &Arc<EngineController>, sources: Vec<Source>) -> Error {
    let mut feeding = JoinSet::new();
    for source in sources {
        feeding.spawn(source.feed(controller.clone()));
    }
    while let Some(ended) = feeding.join_next().await {
        if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
            return Error::new(format!("a trigger stream of {name} panicked: {}", panic_message(&*panic)));
        }
    }
    std::future::pending().await
}

/// Counts the objects of a kind by namespace and phase.
fn count(kind: &KindMetrics) -> impl FnMut(Change) + Send + use<> {
    let kind = kind.clone();
    move |change| {
        let phase = |object: &Object| {
            let phase = object.pointer("/status/phase").and_then(|json| serde_json::from_str::<String>(json).ok());
            phase.unwrap_or_default()
        };
        let namespace = change.object().namespace().unwrap_or_default();
        match (change.before(), change.after()) {
            (None, Some(after)) => kind.added(namespace, &phase(after)),
            (Some(before), Some(after)) => kind.moved(namespace, &phase(before), &phase(after)),
            (Some(before), None) => kind.removed(namespace, &phase(before)),
            (None, None) => {}
        }
    }
}
