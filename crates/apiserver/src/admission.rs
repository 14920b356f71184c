//! Admission: what is decided about a write between authorization and commit. In: who does what to which object. Out: the
//! object as the plugins change it, the conditions and further writes of its commit, warnings, or the `Status` of the plugin
//! that refuses. A plugin may wait and may fail. It never commits anything itself.
//!
//! ```text
//! create, update   default → manage fields → admit → assign → validate fields → validate → commit
//! delete           admit → validate → commit
//! ```
//!
//! `admit` runs all plugins that change objects, `validate` all that only refuse, both in the order of kube-apiserver. After
//! a conflict the write begins again and so does admission.

mod always_deny;
mod always_pull_images;
mod certificate_signers;
mod certificate_subject_restriction;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod extended_resource_toleration;
mod followed;
mod limit_pod_hard_anti_affinity_topology;
mod limit_ranger;
mod lookup;
mod match_conditions;
mod matching;
mod namespace_exists;
mod namespace_lifecycle;
mod no_effect;
mod node_restriction;
mod patched;
mod persistent_volume_claim_resize;
mod plugins;
mod pod_resize_validator;
mod pod_security;
mod pod_topology_labels;
mod policy;
mod priority;
mod question;
mod reinvocation;
mod resource_quota;
mod runtime_class;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
mod versioned;
mod webhook;
mod webhook_criteria;

use std::collections::BTreeMap;

use serde_json::Value;

use konverge_core::Status;
use konverge_schema::Budget;
use konverge_store::{BoxFuture, Condition, Write as StoreWrite};

use crate::context::RequestContext;
use crate::delete::DeleteOptions;
use crate::request::Query;
use crate::resource::Resource;
use crate::server::Server;
use crate::subresource::Subresource;
use crate::work::over_budget;

use no_effect::NoEffect;

pub(crate) use namespace_lifecycle::accepts as namespace_accepts;
pub use no_effect::AbsentPart;
pub use plugins::{AdmissionPlugins, PluginError};
pub(crate) use policy::{Policies, check_param_access, run as check_types};
pub(crate) use priority::{check_deletion, create_initial};
pub(crate) use reinvocation::Reinvocation;
pub(crate) use resource_quota::QuotaLocks;
pub(crate) use versioned::kind_of;
pub(crate) use webhook::{WebhookMetrics, Webhooks};
pub use webhook_criteria::{CriteriaError, WebhookCriteria};

/// The API group of policies and webhook configurations.
const GROUP: &str = "admissionregistration.k8s.io";

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// Opens a connection, as `exec` does.
    Connect,
}

impl Operation {
    /// As rules and requests name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// What a request says about how it is to be processed.
#[derive(Clone, Copy)]
pub(crate) enum RequestOptions<'a> {
    /// Nothing: the server itself writes.
    None,
    /// The query of a create or an update.
    Write(&'a Query),
    Delete(&'a DeleteOptions),
}

/// A request as plugins see it.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    pub server: &'a Server,
    /// Who asks, and whether it is a dry run.
    pub context: &'a RequestContext,
    pub operation: Operation,
    pub resource: &'a Resource,
    pub subresource: Subresource,
    pub namespace: Option<&'a str>,
    /// The name of the object; empty while a new object has none.
    pub name: &'a str,
    /// What the name of a new object will be generated from, while it has none: only for messages.
    pub name_prefix: &'a str,
    /// The object before an update or a deletion.
    pub old: Option<&'a Value>,
    pub options: RequestOptions<'a>,
    /// What the request may compute until it commits.
    pub budget: &'a Budget,
}

impl Attributes<'_> {
    /// Whether the request is about a whole object of this resource.
    pub(crate) fn is_about(&self, group: &str, plural: &str) -> bool {
        self.subresource == Subresource::Main && *self.resource.group == *group && *self.resource.plural == *plural
    }

    /// Whether the request does this to a whole object of this resource.
    pub(crate) fn is(&self, operation: Operation, group: &str, plural: &str) -> bool {
        self.operation == operation && self.is_about(group, plural)
    }

    /// Whether the request is about namespaces themselves.
    pub(crate) fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && &*self.resource.plural == "namespaces"
    }

    /// The namespace of the object, as policies and webhooks see it. A namespace is in itself.
    pub(crate) fn request_namespace(&self) -> &str {
        if self.is_namespace() { self.name } else { self.namespace.unwrap_or_default() }
    }

    /// Spends steps of what the request may compute. A plugin does so before work that grows with what others have stored.
    pub(crate) fn spend(&self, steps: usize) -> Result<(), Status> {
        self.budget.spend(steps as u64);
        self.budget.check().map_err(over_budget)
    }

    /// 403: a plugin refuses the request.
    pub(crate) fn forbidden(&self, why: impl AsRef<str>) -> Status {
        let name =
            [self.name, self.name_prefix, "Unknown"].into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        Status::forbidden(&self.resource.group, &self.resource.plural, name, why.as_ref())
    }
}

/// What admission adds to a write.
#[derive(Default)]
pub(crate) struct Admission {
    /// For the client.
    pub warnings: Vec<String>,
    /// Whether and how the plugins that change objects run a second time.
    pub reinvocation: Reinvocation,
    /// For the audit log.
    pub annotations: BTreeMap<String, String>,
    /// What has to be true when the object is committed. If it is not, the write begins again.
    pub conditions: Vec<Condition>,
    /// Whether the namespace has to accept new objects when the object is committed. The condition for that is taken last: a
    /// namespace changes while webhooks are asked, and none of them is to be asked again for that.
    pub in_namespace: bool,
    /// What is committed together with the object.
    pub writes: Vec<StoreWrite>,
    /// Held until the commit, so that writes which would only conflict with each other wait instead.
    pub turn: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Admission {
    /// Adds a warning that is not there yet.
    pub(crate) fn warn(&mut self, warning: impl Into<String>) {
        let warning = warning.into();
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Adds an annotation for the audit log. The first one of a name stays.
    pub(crate) fn annotate(&mut self, key: &str, value: String) {
        self.annotations.entry(key.to_owned()).or_insert(value);
    }
}

/// The decision of a plugin.
pub(crate) type Verdict<'a> = BoxFuture<'a, Result<(), Status>>;

/// One admission plugin.
pub(crate) trait Plugin: Send + Sync {
    /// Whether a request concerns the plugin. Every write asks, so this only compares names.
    fn handles(&self, attributes: &Attributes<'_>) -> bool;

    /// Changes the object, or refuses the request.
    fn admit<'a>(&'a self, _: &'a Attributes<'a>, _: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        allowed()
    }

    /// Refuses the request, or lets it pass. The object is as it will be stored; a deletion has the object as it is.
    fn validate<'a>(&'a self, _: &'a Attributes<'a>, _: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        allowed()
    }
}

/// The verdict of a plugin that has decided without waiting.
pub(crate) fn decided<'a>(verdict: Result<(), Status>) -> Verdict<'a> {
    Box::pin(std::future::ready(verdict))
}

fn allowed<'a>() -> Verdict<'a> {
    decided(Ok(()))
}

/// The items of a list in an object, to change. Indexing would add the list if it is not there.
pub(crate) fn items_mut<'v>(object: &'v mut Value, field: &str) -> impl Iterator<Item = &'v mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The plugins of a server, in the order in which they run.
pub(crate) struct Chain(Vec<Box<dyn Plugin>>);

impl Chain {
    /// The enabled plugins, and what warns of objects that have no effect without the absent parts.
    pub(crate) fn new(plugins: &AdmissionPlugins, absent: &[AbsentPart]) -> Self {
        let warns: Box<dyn Plugin> = Box::new(NoEffect::new(plugins, absent));
        Self(plugins.build().into_iter().chain([warns]).collect())
    }

    /// Runs the plugins that change objects.
    pub(crate) async fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        admission: &mut Admission,
    ) -> Result<(), Status> {
        let mut admitted = self.admit_once(attributes, object, admission).await;
        // A policy or a webhook has changed the object, so that the plugins before it look at it again.
        if admitted.is_ok() && admission.reinvocation.needed {
            admission.reinvocation.begun = true;
            admitted = self.admit_once(attributes, object, admission).await;
        }
        note_annotations(attributes, admission);
        admitted
    }

    async fn admit_once(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        admission: &mut Admission,
    ) -> Result<(), Status> {
        for plugin in self.0.iter().filter(|plugin| plugin.handles(attributes)) {
            plugin.admit(attributes, object, admission).await?;
        }
        Ok(())
    }

    /// Runs the plugins that only refuse.
    pub(crate) async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        admission: &mut Admission,
    ) -> Result<(), Status> {
        let mut validated = Ok(());
        for plugin in self.0.iter().filter(|plugin| plugin.handles(attributes)) {
            validated = plugin.validate(attributes, object, admission).await;
            if validated.is_err() {
                break;
            }
        }
        note_annotations(attributes, admission);
        validated
    }
}

/// Hands annotations over to the audit log, also those of a request that is refused. A request that is not audited has them in the
/// server's own log, but not what each call of a webhook notes.
fn note_annotations(attributes: &Attributes<'_>, admission: &mut Admission) {
    for (key, value) in std::mem::take(&mut admission.annotations) {
        match &attributes.context.audit {
            Some(audit) => audit.annotate(&key, value),
            None if key.starts_with(webhook::MUTATION) => {}
            None => tracing::info!(
                audit_id = &*attributes.context.audit_id,
                resource = &*attributes.resource.plural,
                name = attributes.name,
                key,
                value,
                "audit annotation"
            ),
        }
    }
}
