//! One reconcile at a time, for tests. In: a controller, a client and a key. Out: what the reconcile returned. It is the
//! reconcile of a running operator (finalizer, cleanup, the user's function, the report of an error) without its queue and
//! its workers: nothing is retried, and a panic is the test's.

use std::sync::Arc;

use konverge_core::ObjectKey;
use konverge_runtime::{
    Action, Cache, Cause, ControllerOptions, Error, EventLog, NotServed, Object, Result, Run, WatchState, What,
};
use kube::Client;
use serde::de::DeserializeOwned;

use crate::api_kind::ApiKind;
use crate::controller::{Controller, ControllerSpec, ObjectReconciler};
use crate::metrics::Metrics;
use crate::operator::{Clients, Manager, Process};
use crate::probes::Health;
use crate::settings::Settings;
use crate::state::States;

/// Reconciles objects one by one, each time like an operator that has just started: with caches that show what the server
/// has now. When a reconcile is over, its events are written and nothing of it is left running.
///
/// `konverge-testkit` wraps this; it is public for other test kits.
pub struct TestReconciler<'a, R> {
    spec: &'a ControllerSpec<R>,
    client: Client,
    settings: Settings,
    events: EventLog,
    metrics: Metrics,
}

/// What a controller brings along of a process: nothing (`()`), or all of it ([`Process`]).
pub trait InProcess {
    #[doc(hidden)]
    fn process(&self) -> Option<&Process>;
}

impl InProcess for () {
    fn process(&self) -> Option<&Process> {
        None
    }
}

impl InProcess for Process {
    fn process(&self) -> Option<&Process> {
        Some(self)
    }
}

impl<R: DeserializeOwned + Send + Sync + 'static, P: InProcess> Controller<R, P> {
    /// The controller for a test that runs single reconciles. Flags and environment are not read; controllers that were added
    /// by [`Operator::and`](crate::Operator::and) and background tasks do not run.
    pub fn test_reconciler(&self, client: Client) -> TestReconciler<'_, R> {
        let process = self.process.process();
        TestReconciler {
            spec: &self.spec,
            client: process.map(Process::layers).cloned().unwrap_or_default().around(client),
            settings: process.map(Process::settings_from_code).unwrap_or_default(),
            events: process.map(Process::event_log).cloned().unwrap_or_default(),
            metrics: Metrics::default(),
        }
    }
}

impl<R: DeserializeOwned + Send + Sync + 'static> TestReconciler<'_, R> {
    /// One reconcile of the object `namespace/name`; without a slash, of the one in `default` or in no namespace.
    pub async fn reconcile(&self, key: &str) -> Result<Action> {
        let key = self.spec.kind().key_of(key);
        let namespaces = self.namespaces(&key)?;
        let (clients, events) = (Clients::of_only(self.client.clone()), self.events.clone());
        let (manager, recording) =
            Manager::start(&self.settings, clients, events, &self.metrics, Health::default(), States::default());
        let reconciled = async {
            let timeout = self.spec.overrides.over(&self.settings.controller).reconcile_timeout;
            let options = ControllerOptions { timeout, ..ControllerOptions::default() };
            reconcile_once(&self.spec.reconciler(&manager, manager.writer.clone(), namespaces, options)?, key).await
        };
        let reconciled = reconciled.await;
        manager.stop(recording).await;
        reconciled
    }

    /// The watched namespace that the object is in; none if all are watched.
    fn namespaces(&self, key: &ObjectKey) -> Result<Vec<String>> {
        let watched = &self.settings.namespaces;
        if watched.is_empty() || !self.spec.kind().is_namespaced() {
            return Ok(Vec::new());
        }
        match key.namespace().filter(|namespace| watched.iter().any(|one| one == namespace)) {
            Some(namespace) => Ok(vec![namespace.into()]),
            None => Err(Error::permanent(format!("{key} is in none of the namespaces that are watched: {watched:?}"))),
        }
    }
}

async fn reconcile_once<R>(reconciler: &ObjectReconciler<R>, key: ObjectKey) -> Result<Action>
where
    R: DeserializeOwned + Send + Sync + 'static,
{
    let cached = &reconciler.cached;
    let primary = cached.controller.primary();
    served(primary).await?;
    cached.synced(primary).await?;
    let Some(object) = primary.get(&key) else {
        let kind = cached.kind.name();
        return Err(Error::permanent(format!("there is no {kind} {key} that could be reconciled")));
    };
    let cause = Arc::new(asked_for(&cached.kind, &object));
    reconciler.reconcile(Run { causes: [cause].into(), key, attempt: 1, is_last: false }).await
}

/// An operator waits for its kind to be installed, and for rules that allow to watch it; a test fails at once.
async fn served(cache: &Cache) -> Result<()> {
    let mut states = cache.states();
    let decided = states.wait_for(|state| !matches!(state, WatchState::Starting));
    match decided.await.as_deref() {
        Ok(WatchState::NotInstalled(why)) => Err(NotServed::new(&cache.target().resource, why.clone()).into()),
        Ok(WatchState::Forbidden(why)) => Err(Error::permanent(why.clone())),
        _ => Ok(()),
    }
}

/// The cause of a reconcile that only the test asked for.
fn asked_for(kind: &ApiKind, object: &Object) -> Cause {
    let resource_version = object.resource_version().to_owned();
    Cause { kind: kind.name().into(), key: object.key(), what: What::Resync, resource_version }
}
