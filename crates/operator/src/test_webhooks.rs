//! The webhooks of an operator without a listener, for tests. In: AdmissionReviews. Out: what would be sent back, by the same
//! code that serves API servers.

use std::sync::Arc;

use konverge_runtime::{Error, EventLog, Result};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::controller::{AnyController, Controller};
use crate::metrics::Metrics;
use crate::operator::{CachedReads, Clients, Manager, Phase, Process};
use crate::probes::Health;
use crate::settings::Settings;
use crate::state::States;
use crate::test_reconciler::InProcess;
use crate::webhook::{self, Cluster, Endpoint, Operation, Served, WebhookSpec};

/// Reviews one request at a time, each time like an operator that has just started.
///
/// `konverge-testkit` wraps this; it is public for other test kits.
pub struct TestWebhooks {
    webhooks: Vec<Served>,
    client: Client,
    settings: Settings,
}

/// A webhook that an API server would call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestWebhook {
    /// Its name: `validate.shop.example.com`.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Whether it changes objects; otherwise it only judges them.
    pub is_mutating: bool,
    /// Which requests it is called for besides: `namespaceSelector`, `objectSelector`, `matchConditions` and `failurePolicy` as in its
    /// configuration.
    pub criteria: Value,
}

impl<R: DeserializeOwned + Send + Sync + 'static, P: InProcess> Controller<R, P> {
    /// The webhooks for a test that reviews single requests, with those of controllers that were added by
    /// [`Operator::and`](crate::Operator::and). Flags and environment are not read.
    pub fn test_webhooks(&self, client: Client) -> TestWebhooks {
        let process = self.process.process();
        let mut webhooks = AnyController::webhooks(&self.spec, &self.spec.states);
        webhooks.extend(process.into_iter().flat_map(|process| process.webhooks(&self.spec.states)));
        TestWebhooks {
            webhooks,
            client: process.map(Process::layers).cloned().unwrap_or_default().around(client),
            settings: process.map(Process::settings_from_code).unwrap_or_default(),
        }
    }
}

impl TestWebhooks {
    /// The webhooks that are about this, in the order of an API server: those that change objects come first. Whether one is called
    /// also depends on its [`criteria`](TestWebhook::criteria), which are not looked at here.
    pub fn called_for(&self, group: &str, plural: &str, subresource: &str, operation: Operation) -> Vec<TestWebhook> {
        let specs = || self.webhooks.iter().map(|served| served.webhook.spec());
        let ordered = specs().filter(|spec| spec.is_mutating).chain(specs().filter(|spec| !spec.is_mutating));
        let is_called = ordered.filter(|spec| {
            let api = spec.kind.resource();
            (api.group.as_str(), api.plural.as_str(), spec.subresource.as_str()) == (group, plural, subresource)
                && spec.operations.contains(&operation)
        });
        let found = |spec: &WebhookSpec| TestWebhook {
            name: spec.name(),
            path: spec.path(),
            is_mutating: spec.is_mutating,
            criteria: webhook::criteria(spec).into(),
        };
        is_called.map(found).collect()
    }

    /// What is sent back for an AdmissionReview that is sent to a path. An answer that is none, because the review cannot be
    /// read or the webhook failed and is to be ignored then, is an error.
    pub async fn review(&self, path: &str, review: &Value) -> Result<Value> {
        webhook::check(self.webhooks.iter().map(|served| &served.webhook))?;
        let Some(served) = self.webhooks.iter().find(|served| served.webhook.spec().path() == path) else {
            return Err(Error::permanent(format!("there is no webhook at {path}")));
        };
        let (clients, metrics) = (Clients::of_only(self.client.clone()), Metrics::default());
        let (health, states) = (Health::default(), States::default());
        let (manager, recording) =
            Manager::start(&self.settings, clients, EventLog::default(), &metrics, health, states);
        let (_running, phase) = watch::channel(Phase::Running);
        let cluster = Cluster {
            client: manager.client.clone(),
            reads: Arc::new(CachedReads::new(&manager, phase)),
            states: served.states.clone(),
        };
        let endpoint = Endpoint::new(served.webhook.clone(), Arc::new(cluster), metrics.webhook(path));
        let answer = endpoint.answer(review.to_string().as_bytes()).await;
        drop(endpoint);
        manager.stop(recording).await;
        if !answer.code.is_success() {
            let why = String::from_utf8_lossy(&answer.body).trim_end().to_owned();
            return Err(Error::permanent(format!("{}: {why}", answer.code)));
        }
        Ok(serde_json::from_slice(&answer.body)?)
    }
}
