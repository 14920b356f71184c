//! Admission webhooks: functions outside of the server that refuse or change requests. In: webhook configurations as they are in the
//! store, and a request. Out: what the webhooks that concern it say.
//!
//! ```text
//! source    compiles configurations once, when they change, in the order of their names
//! review    the AdmissionReview that is sent, and the one that comes back
//! mutating  one after the other, each with the object that the one before it left
//! validating   all at the same time
//! metrics   how often, how long, how it ended
//! ```
//!
//! A webhook that cannot be asked refuses the request or is left out, by its failure policy. While one is waited for, the request
//! holds no lock, and no thread that others wait for.

mod metrics;
mod mutating;
mod review;
mod source;
mod validating;

use std::time::{Duration, Instant};

use serde_json::Value;

use konverge_cel::{Composer, Declared, Evaluation, Inputs, Permissions};
use konverge_core::Status;

use super::match_conditions::{MatchConditions, Matching};
use super::matching::{MatchResources, Through};
use super::policy::resource_check;
use super::versioned::Versioned;
use super::{Admission, Attributes, GROUP, Operation, RequestOptions, question};
use crate::resource::Resource;
use crate::server::Server;
use crate::subresource::Subresource;
use crate::webhook_client::{CallError, ClientConfig, TimeLimit};
use review::ReviewVersion;
use source::Source;

pub(crate) use metrics::WebhookMetrics;
pub(crate) use mutating::MutatingAdmissionWebhook;
pub(crate) use validating::ValidatingAdmissionWebhook;

/// What keys in the audit log begin with that say whether a webhook has changed the object.
pub(crate) const MUTATION: &str = "mutation.webhook.admission.k8s.io/";

/// What keys in the audit log begin with that show the patch of a webhook.
const PATCH: &str = "patch.webhook.admission.k8s.io/";

/// The webhooks of a server.
#[derive(Default)]
pub(crate) struct Webhooks {
    mutating: Source,
    validating: Source,
}

impl Webhooks {
    pub(crate) fn are_there(&self, server: &Server) -> bool {
        !self.mutating.hooks(server, WebhookType::Mutating).is_empty()
            || !self.validating.hooks(server, WebhookType::Validating).is_empty()
    }

    /// Whether a webhook has match conditions, which take computing.
    pub(crate) fn have_conditions(&self, server: &Server) -> bool {
        let all = [
            self.mutating.hooks(server, WebhookType::Mutating),
            self.validating.hooks(server, WebhookType::Validating),
        ];
        all.iter().flat_map(|hooks| hooks.iter()).any(|hook| hook.conditions.is_some())
    }

    /// Compiles configurations that were just written, so that their writer waits for it and nobody else.
    pub(crate) fn committed(server: &Server, resource: &Resource) {
        if &*resource.group == GROUP && resource.plural.ends_with("webhookconfigurations") {
            server.webhooks.mutating.hooks(server, WebhookType::Mutating);
            server.webhooks.validating.hooks(server, WebhookType::Validating);
        }
    }
}

/// Which of the two kinds of webhooks it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WebhookType {
    Mutating,
    Validating,
}

impl WebhookType {
    /// The plural name of its configurations.
    fn configurations(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }

    /// Its word in metrics.
    fn word(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }

    /// What keys in the audit log begin with.
    fn audit_prefix(self) -> &'static str {
        match self {
            Self::Mutating => MUTATION,
            Self::Validating => "validating.webhook.admission.k8s.io/",
        }
    }
}

/// One webhook of a configuration.
struct Webhook {
    ty: WebhookType,
    configuration: String,
    name: String,
    /// Tells it apart from all others.
    key: String,
    resources: MatchResources,
    conditions: Option<(Composer, MatchConditions)>,
    /// Whether failures refuse the request.
    fail: bool,
    timeout: Duration,
    /// Whether it may be called for a dry run.
    dry_runs: bool,
    version: Option<ReviewVersion>,
    if_needed: bool,
    client: ClientConfig,
}

impl Webhook {
    /// None for a webhook without rules: it concerns nothing.
    fn compile(ty: WebhookType, configuration: &str, at: usize, json: &Value) -> Option<Self> {
        if json["rules"].as_array().is_none_or(Vec::is_empty) {
            return None;
        }
        let name = json["name"].as_str().unwrap_or_default();
        let declared = Declared { params: false, authorizer: true, patches: false };
        let conditions = json["matchConditions"].as_array().filter(|conditions| !conditions.is_empty()).map(|_| {
            let composer = Composer::without_variables();
            let compiled = MatchConditions::compile(&composer, &json["matchConditions"], declared);
            (composer, compiled)
        });
        Some(Self {
            ty,
            configuration: configuration.to_owned(),
            name: name.to_owned(),
            key: format!("{configuration}/{name}/{at}"),
            resources: MatchResources::of_webhook(json),
            conditions,
            fail: json["failurePolicy"] != "Ignore",
            timeout: Duration::from_secs(json["timeoutSeconds"].as_u64().unwrap_or(10)),
            dry_runs: json["sideEffects"] == "None" || json["sideEffects"] == "NoneOnDryRun",
            version: ReviewVersion::first_known(&json["admissionReviewVersions"]),
            if_needed: json["reinvocationPolicy"] == "IfNeeded",
            client: ClientConfig::read(&json["clientConfig"]),
        })
    }

    /// Whether the webhook concerns a request, and through which resource.
    async fn concerns(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        permissions: &mut Permissions,
    ) -> Result<Option<Through>, Status> {
        let Some(through) = self.resources.matches(attributes, object)? else { return Ok(None) };
        let Some((composer, conditions)) = &self.conditions else { return Ok(Some(through)) };
        let versioned = versioned(attributes, object, &through).await?;
        let (request, check) = (versioned.unmatched_request(attributes), resource_check(attributes));
        let inputs = Inputs {
            object: versioned.object.as_deref(),
            old_object: versioned.old.as_deref(),
            request: &request,
            namespace: None,
            params: None,
            authorizer: Some(&check),
        };
        let matches = |asked: &Permissions| {
            conditions.matches(Evaluation::new(composer, &inputs, asked, attributes.budget), self.fail)
        };
        match question::evaluate(attributes, permissions, matches).await? {
            Matching::Yes => Ok(Some(through)),
            Matching::No => {
                let metrics = &attributes.server.webhook_metrics;
                metrics.excluded(&self.name, self.ty.word(), attributes.operation.name());
                Ok(None)
            }
            Matching::Failed(why) => {
                let Resource { group, plural, .. } = attributes.resource;
                Err(Status::forbidden(group, plural, attributes.name, &why))
            }
        }
    }

    /// Asks the webhook.
    async fn call(&self, attributes: &Attributes<'_>, versioned: &Versioned<'_>) -> Answer {
        match self.ask(attributes, versioned).await {
            Ok(answer) => answer,
            Err(failure) => Answer { remarks: Remarks::default(), patch: Err(failure) },
        }
    }

    async fn ask(&self, attributes: &Attributes<'_>, versioned: &Versioned<'_>) -> Result<Answer, Failure> {
        if attributes.context.dry_run && !self.dry_runs {
            let why = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Failure::Internal(Status::bad_request(why)));
        }
        let Some(version) = self.version else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Failure::Call { why: why.to_owned(), code: 400 });
        };
        let uid = uuid::Uuid::from_u128(attributes.server.env.random()).to_string();
        let body = version.request(&uid, &versioned.request(attributes), versioned);
        // The webhook may take as long as is left for the request.
        let left = attributes.context.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = left.map_or(self.timeout, |left| left.min(self.timeout));
        let clients = &attributes.server.webhook_clients;
        let called = clients.post(attributes.server, &self.client, body, TimeLimit::Told(limit)).await;
        let answered = called.map_err(|error| {
            if let Some(refused) = error.refusal() {
                return Failure::Internal(refused);
            }
            let why = match &error {
                CallError::Unusable(why) => format!("could not get REST client: {why}"),
                error => format!("failed to call webhook: {error}"),
            };
            Failure::Call { why, code: error.code() }
        })?;
        version.response(&uid, &answered, self)
    }

    /// What a failure of the webhook means for the request: a refusal, or nothing if failures are ignored.
    fn failed(
        &self,
        failure: Failure,
        at: &str,
        attributes: &Attributes<'_>,
        admission: &mut Admission,
    ) -> Result<(), Status> {
        match failure {
            Failure::Call { why, .. } if !self.fail => {
                tracing::warn!(webhook = self.name, why, "calling a webhook has failed, and its failures are ignored");
                attributes.server.webhook_metrics.failed_open(&self.name, self.ty.word());
                admission.annotate(&format!("failed-open.{}{at}", self.ty.audit_prefix()), self.name.clone());
                Ok(())
            }
            Failure::Call { why, .. } => {
                tracing::warn!(webhook = self.name, why, "calling a webhook has failed, and so does the request");
                Err(Status::internal(format!("failed calling webhook {:?}: {why}", self.name)))
            }
            Failure::Rejected(status) | Failure::Internal(status) => Err(status),
        }
    }

    /// Counts a call.
    fn observe(&self, attributes: &Attributes<'_>, took: Duration, failure: Option<&Failure>) {
        let (error, code) = match failure {
            None => (None, 200),
            Some(Failure::Call { code, .. }) => (self.fail.then_some("calling_webhook_error"), *code),
            Some(Failure::Rejected(status)) => (Some("no_error"), status.code),
            Some(Failure::Internal(_)) => (Some("apiserver_internal_error"), 0),
        };
        let (metrics, operation) = (&attributes.server.webhook_metrics, attributes.operation.name());
        metrics.called(&self.name, self.ty.word(), operation, took, code, error);
    }
}

/// The objects of a request in the version that a webhook is for. What cannot be converted is an internal error, whatever the
/// failure policy.
async fn versioned<'a>(
    attributes: &Attributes<'a>,
    object: Option<&'a Value>,
    through: &Through,
) -> Result<Versioned<'a>, Status> {
    let converted = Versioned::new(attributes, object, through).await;
    converted.map_err(|status| if status.reason.is_empty() { Status::internal(status.message) } else { status })
}

/// What a webhook answered.
struct Answer {
    remarks: Remarks,
    /// The operations of a JSON patch, if the request is allowed.
    patch: Result<Vec<Value>, Failure>,
}

/// What a webhook says besides yes and no.
#[derive(Debug, Default, PartialEq)]
struct Remarks {
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
}

impl Remarks {
    fn add_to(self, webhook: &Webhook, admission: &mut Admission) {
        for (key, value) in self.annotations {
            admission.annotate(&format!("{}/{key}", webhook.name), value);
        }
        for warning in self.warnings.into_iter().filter(|warning| !warning.is_empty()) {
            admission.warn(warning);
        }
    }
}

/// Why a request does not pass a webhook.
#[derive(Debug, PartialEq)]
enum Failure {
    /// It could not be asked, or its answer makes no sense: the failure policy decides.
    Call { why: String, code: u16 },
    /// It says no.
    Rejected(Status),
    /// Something that no failure policy is for.
    Internal(Status),
}

/// Whether webhooks are called for a request. They are not called for configurations of admission, and not for what the server
/// writes because of a request that they have seen, such as a binding or an eviction.
fn are_called(attributes: &Attributes<'_>) -> bool {
    let bound = attributes.operation == Operation::Update && attributes.subresource == Subresource::Binding;
    let of_a_request = attributes.context.deadline.is_some();
    let follows = bound || (of_a_request && matches!(attributes.options, RequestOptions::None));
    !follows && &*attributes.resource.group != GROUP
}
