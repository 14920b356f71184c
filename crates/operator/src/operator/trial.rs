//! One reconcile at a time, for tests. In: an operator, a client and a key. Out: what the reconcile answered. The same
//! steps as in an operator that runs (finalizer, cleanup, function, what becomes of an error), without its queue and
//! its workers: nothing is retried, and a panic is the test's.

use std::sync::Arc;

use konverge_core::ObjectKey;
use konverge_runtime::{Action, Cache, Cause, ControllerOptions, Error, Object, Result, Run, WatchState, What};
use kube::Client;

use super::life::Shared;
use super::steps::Steps;
use super::{Operator, configured};
use crate::kind::{Kind, Scope};
use crate::metrics::Metrics;
use crate::probes::Health;
use crate::settings::Settings;
use crate::testing::key_of;

/// Reconciles objects one by one, each time as an operator does that has just started: with caches that show what the
/// server has now. When a reconcile is over, its events are written and nothing of it is left running.
///
/// `konverge-testkit` wraps this; it is here for test kits of other kinds.
pub struct Trial<'a, R: Kind> {
    operator: &'a Operator<R>,
    client: Client,
    settings: Settings,
    metrics: Metrics,
}

impl<R: Kind> Operator<R> {
    /// The operator for a test: reconciles happen when they are asked for. Flags and environment are not read; other
    /// kinds ([`Operator::and`]) are not run.
    pub fn trial(&self, client: Client) -> Trial<'_, R> {
        let settings = configured(self.settings.clone().unwrap_or_default(), &self.configure);
        Trial { operator: self, client, settings, metrics: Metrics::default() }
    }

    /// The operator for a test that runs all of it: with this client, without listeners, flags and environment.
    /// Settings that were made in code stay.
    pub fn in_test(mut self, client: Client) -> Self {
        let mut settings = configured(self.settings.take().unwrap_or_default(), &std::mem::take(&mut self.configure));
        settings.metrics.enabled = false;
        settings.health.enabled = false;
        self.settings(settings).client(client)
    }
}

impl<R: Kind> Trial<'_, R> {
    /// One reconcile of the object `namespace/name`; without a slash, the one in `default` or in no namespace.
    pub async fn reconcile(&self, key: &str) -> Result<Action> {
        let key = key_of::<R>(key);
        let namespaces = self.namespaces(&key)?;
        let client = self.operator.layers.clone().around(self.client.clone());
        let log = self.operator.events.clone();
        let (shared, recording) = Shared::new(&self.settings, client, log, &self.metrics, Health::default());
        let walked = async {
            let timeout = self.operator.overrides.over(&self.settings.controller).reconcile_timeout;
            let options = ControllerOptions { timeout, ..ControllerOptions::default() };
            let steps = self.operator.steps(&shared, namespaces, options)?;
            self.walk(&steps, key).await
        };
        let walked = walked.await;
        shared.close(recording).await;
        walked
    }

    async fn walk(&self, steps: &Steps<R>, key: ObjectKey) -> Result<Action> {
        let primary = steps.engine.controller.primary();
        served(primary).await?;
        steps.engine.filled(primary).await?;
        let kind = &steps.engine.owner.kind;
        let Some(object) = primary.get(&key) else {
            return Err(Error::permanent(format!("there is no {kind} {key} that could be reconciled")));
        };
        let run = Run { causes: [Arc::new(seen(kind, &object))].into(), key, attempt: 0, is_last: false };
        steps.walk(run).await
    }

    /// The watched namespace that the object is in; none if all are watched.
    fn namespaces(&self, key: &ObjectKey) -> Result<Vec<String>> {
        let watched = &self.settings.namespaces;
        if watched.is_empty() || R::scope() == Scope::Cluster {
            return Ok(Vec::new());
        }
        match key.namespace().filter(|namespace| watched.iter().any(|one| one == namespace)) {
            Some(namespace) => Ok(vec![namespace.into()]),
            None => Err(Error::permanent(format!("{key} is in none of the namespaces that are watched: {watched:?}"))),
        }
    }
}

/// An operator waits for its kind to be installed, and for rules that allow to see it; a test wants to know at once.
async fn served(cache: &Cache) -> Result<()> {
    let mut states = cache.states();
    let decided = states.wait_for(|state| !matches!(state, WatchState::Starting));
    let kind = &cache.target().resource.kind;
    match decided.await.as_deref() {
        Ok(WatchState::NotInstalled) => {
            Err(Error::permanent(format!("the server does not know the kind {kind}: install its CRD first")))
        }
        Ok(WatchState::Forbidden(why)) => Err(Error::permanent(why.clone())),
        _ => Ok(()),
    }
}

/// The cause of a reconcile that nothing but the test asked for.
fn seen(kind: &str, object: &Object) -> Cause {
    let resource_version = object.resource_version().to_owned();
    Cause { kind: kind.into(), key: object.key(), what: What::Resync, resource_version }
}
