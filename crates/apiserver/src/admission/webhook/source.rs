//! The webhooks of one kind of configuration, as they are in the store. In: committed changes. Out: compiled webhooks, in the order
//! of their configurations' names. A configuration is compiled again only when its webhooks change.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::{Webhook, WebhookType};
use crate::admission::followed::Followed;
use crate::server::Server;

#[derive(Default)]
pub(super) struct Source(Mutex<State>);

#[derive(Default)]
struct State {
    configurations: Followed<Arc<Configuration>>,
    hooks: Arc<[Arc<Webhook>]>,
}

struct Configuration {
    /// What it was compiled from.
    webhooks: Value,
    compiled: Vec<Arc<Webhook>>,
}

impl Source {
    pub(super) fn hooks(&self, server: &Server, ty: WebhookType) -> Arc<[Arc<Webhook>]> {
        let mut state = self.0.lock();
        let State { configurations, hooks } = &mut *state;
        let read = |name: &str, configuration: &Value, before: Option<Arc<Configuration>>| {
            let webhooks = &configuration["webhooks"];
            let same = before.filter(|before| before.webhooks == *webhooks);
            same.unwrap_or_else(|| Arc::new(Configuration::compile(ty, name, webhooks)))
        };
        if configurations.follow(server, ty.configurations(), read) {
            *hooks = configurations.objects.values().flat_map(|one| one.compiled.iter().cloned()).collect();
        }
        hooks.clone()
    }
}

impl Configuration {
    fn compile(ty: WebhookType, name: &str, webhooks: &Value) -> Self {
        let hooks = webhooks.as_array().into_iter().flatten().enumerate();
        let compiled = hooks.filter_map(|(at, hook)| Webhook::compile(ty, name, at, hook)).map(Arc::new);
        Self { webhooks: webhooks.clone(), compiled: compiled.collect() }
    }
}
