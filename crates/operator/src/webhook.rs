//! Admission webhooks: functions that judge or change objects before an API server stores them. In: the user's functions.
//! Out: an HTTPS listener that API servers call, and the configurations that tell them to.
//!
//! ```text
//! server → endpoint → request → the user's function → verdict
//!        → conversion: objects of kinds with several versions
//!                                (admission: what it is given; denied: how it refuses; json_patch: what it changed)
//! options, configuration         what API servers are told
//! registration                   the listener, and the tasks beside it
//! registrar, trust               how API servers come to call and to trust it
//! ```

mod admission;
mod body_room;
mod callers;
mod configuration;
mod conversion;
mod denied;
mod endpoint;
mod json_patch;
mod manifests;
mod options;
mod registrar;
mod registration;
mod request;
mod server;
mod trust;
mod verdict;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use konverge_core::{NameRule, check_name};
use konverge_runtime::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use admission::{Admission, Reader};
pub use denied::Denied;
pub use options::{FailurePolicy, MatchPolicy, ReinvocationPolicy, SideEffects};
pub use request::{AdmissionKind, AdmissionRequest, AdmissionResource, Operation, UserInfo};

pub(crate) use admission::Cluster;
pub(crate) use configuration::criteria;
pub(crate) use conversion::convert;
pub(crate) use endpoint::{Endpoint, Reviewed};
pub(crate) use manifests::{conversion, manifests};
#[cfg(feature = "ha")]
pub(crate) use registration::shared_trust;
pub(crate) use registration::{CHECK, Served, ServedBy, WebhookServer};
pub use registration::{LocalHandler, LocalWebhooks, ServedLocally};
#[cfg(feature = "ha")]
pub(crate) use trust::Trust;

use admission::Remarks;
use options::{LONGEST_TIMEOUT, Options, SHORTEST_TIMEOUT};
use verdict::Verdict;

use crate::api_kind::ApiKind;
use crate::kind::Kind;

/// A webhook: a function that judges or changes the objects of one kind before they are stored, and when it is called.
///
/// [`Controller::validate`](crate::Controller::validate) and [`Controller::default_with`](crate::Controller::default_with)
/// make one for the kind that is reconciled. Use this type for options, and for other kinds:
///
/// ```
/// use konverge::prelude::*;
/// use konverge::webhook::{Admission, FailurePolicy, Operation, Webhook};
///
/// async fn no_latest(request: Admission<Pod>) -> Result<()> {
///     Ok(())
/// }
///
/// async fn keep(request: Admission<Namespace>) -> Result<()> {
///     Err(Error::permanent(format!("the namespace {} is not to be deleted", request.name())))
/// }
///
/// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "Policy", namespaced)]
/// # pub struct PolicySpec {}
/// Operator::<Policy>::new()
///     .webhook(
///         Webhook::validating(no_latest)
///             .match_condition("not-of-kubelet", "!request.userInfo.username.startsWith('system:node:')")
///             .failure_policy(FailurePolicy::Ignore),
///     )
///     .webhook(Webhook::validating(keep).operations([Operation::Delete]));
/// ```
///
/// # What the function returns
///
/// | | the client sees |
/// |---|---|
/// | `Ok` | its object is stored |
/// | [`FieldErrors`](crate::FieldErrors) | 422 `Invalid`, with every field and its cause |
/// | [`Denied`] | the sentence, with its code and reason |
/// | [`Error::permanent`] | 403 `Forbidden` with its text |
/// | another error, a panic, no answer in time | what the [`FailurePolicy`] says: 500, or as if there were no webhook |
///
/// An object that does not decode as `T` counts as a failure, too, with the code 400. Only a mutating webhook of the kind that the operator
/// reconciles lets it pass unchanged, because the API server judges it next by the schema of the CRD. A webhook that takes [`DynamicObject`](kube::core::DynamicObject) or
/// [`serde_json::Value`] decodes everything: see [`Webhook::validating_dynamic`].
#[must_use = "a webhook does nothing until an operator has it"]
pub struct Webhook<T> {
    spec: WebhookSpec,
    function: Function<T>,
}

/// What a webhook is besides its function.
#[derive(Clone, Debug)]
pub(crate) struct WebhookSpec {
    pub is_mutating: bool,
    pub kind: ApiKind,
    pub subresource: String,
    pub operations: Vec<Operation>,
    /// Whether the API server judges the objects by a schema that the operator wrote: they are of a kind that it reconciles.
    pub has_own_schema: bool,
    name: Option<String>,
    path: Option<String>,
    options: Options,
}

enum Function<T> {
    Validate(Arc<dyn Fn(Admission<T>) -> BoxFuture<'static, Result<()>> + Send + Sync>),
    Mutate {
        mutate: Arc<dyn Fn(Admission<T>) -> BoxFuture<'static, Result<T>> + Send + Sync>,
        to_text: fn(&T) -> serde_json::Result<String>,
    },
}

/// A webhook, whatever the type of its objects.
pub(crate) trait AnyWebhook: Send + Sync {
    fn spec(&self) -> &WebhookSpec;

    /// Calls the user's function. It may panic.
    fn review(&self, request: AdmissionRequest, cluster: Arc<Cluster>) -> BoxFuture<'_, Reviewed>;
}

impl<T: Kind> Webhook<T> {
    /// A function that refuses objects of the kind `T`, or lets them pass. It is called when an object is created or changed.
    ///
    /// kubebuilder has `ValidateCreate`, `ValidateUpdate` and `ValidateDelete` for this; here one function asks for the
    /// [`Operation`].
    pub fn validating<F, Fut>(validate: F) -> Self
    where
        F: Fn(Admission<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::over(ApiKind::of::<T>(), Function::validate(validate))
    }

    /// A function that returns the object as it is to be stored. It is called when an object is created or changed, before
    /// anything validates the object.
    ///
    /// Only what the function changed is sent to the API server, as a JSON Patch: fields that `T` does not know stay as they
    /// are, and defaults that decoding fills in are not stored. The function may be called again for the same object, so it
    /// has to be idempotent.
    pub fn mutating<F, Fut>(mutate: F) -> Self
    where
        F: Fn(Admission<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        Self::over(ApiKind::of::<T>(), Function::mutate(mutate))
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Webhook<T> {
    /// The same as [`Webhook::validating`] for a kind that is known only at run time. `T` is what its objects are decoded as:
    /// [`DynamicObject`](kube::core::DynamicObject), a [`serde_json::Value`] for subresources such as `pods/exec`, or a type of one's own.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// use konverge::serde_json::Value;
    /// use konverge::webhook::{Admission, Operation, Webhook};
    ///
    /// async fn no_shells(request: Admission<Value>) -> Result<()> {
    ///     Err(Error::permanent(format!("nobody runs {} in a Pod", request.object()["command"])))
    /// }
    ///
    /// let pods = ApiKind::of::<Pod>();
    /// Webhook::validating_dynamic(&pods, no_shells).subresource("exec").operations([Operation::Connect]);
    /// ```
    pub fn validating_dynamic<F, Fut>(kind: &ApiKind, validate: F) -> Self
    where
        F: Fn(Admission<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::over(kind.clone(), Function::validate(validate))
    }

    /// The same as [`Webhook::mutating`] for a kind that is known only at run time.
    pub fn mutating_dynamic<F, Fut>(kind: &ApiKind, mutate: F) -> Self
    where
        T: Serialize,
        F: Fn(Admission<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        Self::over(kind.clone(), Function::mutate(mutate))
    }

    fn over(kind: ApiKind, function: Function<T>) -> Self {
        let spec = WebhookSpec {
            is_mutating: matches!(function, Function::Mutate { .. }),
            kind,
            subresource: String::new(),
            operations: vec![Operation::Create, Operation::Update],
            has_own_schema: false,
            name: None,
            path: None,
            options: Options::default(),
        };
        Self { spec, function }
    }

    /// The name in the configuration and in messages to clients. It needs at least three parts with dots between them; the
    /// default is `validate.webapp.example.com`, or `mutate.…`, or `validate.delete.webapp.example.com` for one that is called neither
    /// for create nor for update.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.spec.name = Some(name.into());
        self
    }

    /// The path at which it is served. The default is that of controller-runtime: `/validate-example-com-v1-webapp`. One that is called
    /// neither for create nor for update has its operations at the end: `/validate-example-com-v1-webapp-delete`.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.spec.path = Some(path.into());
        self
    }

    /// What it is called for, instead of create and update.
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.spec.operations = operations.into_iter().collect();
        self
    }

    /// It is called for a part of the objects, such as `status`, `scale` or `exec`, and not for the objects themselves.
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.spec.subresource = subresource.into();
        self
    }

    /// It is called only for objects in namespaces with these labels. Webhooks for Pods leave out the namespace of the
    /// operator unless this is set: otherwise an operator whose last Pod is gone could not start again.
    pub fn namespaces(mut self, selector: LabelSelector) -> Self {
        self.spec.options.namespaces = Some(selector);
        self
    }

    /// It is called only for objects with these labels. Whoever may change the labels of an object gets around it.
    pub fn objects(mut self, selector: LabelSelector) -> Self {
        self.spec.options.objects = Some(selector);
        self
    }

    /// It is called only if this CEL expression is true; if there are several, only if all are. The API server evaluates them.
    pub fn match_condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.spec.options.conditions.push((name.into(), expression.into()));
        self
    }

    /// Which versions of the kind it is called for; [`MatchPolicy::Equivalent`] unless told.
    pub fn match_policy(mut self, policy: MatchPolicy) -> Self {
        self.spec.options.match_policy = policy;
        self
    }

    /// What becomes of a request if the webhook cannot decide; [`FailurePolicy::Fail`] unless told.
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.spec.options.failure_policy = policy;
        self
    }

    /// Whether the function changes something besides the object; [`SideEffects::None`] unless told. Without the right word
    /// here API servers refuse dry runs, or the function must not do what it does.
    pub fn side_effects(mut self, effects: SideEffects) -> Self {
        self.spec.options.side_effects = effects;
        self
    }

    /// Whether it is called again after other webhooks; [`ReinvocationPolicy::Never`] unless told. Only for webhooks that
    /// change objects.
    pub fn reinvocation(mut self, policy: ReinvocationPolicy) -> Self {
        self.spec.options.reinvocation = policy;
        self
    }

    /// How long the function may take: whole seconds from 1 to 30, and 10 unless told. It is cancelled a little before, so
    /// that the client reads why.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.options.timeout = timeout;
        self
    }

    /// Its objects are of the kind that the operator reconciles, whose schema is the operator's own.
    pub(crate) fn with_own_schema(mut self) -> Self {
        self.spec.has_own_schema = true;
        self
    }

    pub(crate) fn spec(&self) -> &WebhookSpec {
        &self.spec
    }

    pub(crate) fn erased(self) -> Arc<dyn AnyWebhook> {
        Arc::new(self)
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Function<T> {
    fn validate<F, Fut>(validate: F) -> Self
    where
        F: Fn(Admission<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::Validate(Arc::new(move |request| Box::pin(validate(request))))
    }

    fn mutate<F, Fut>(mutate: F) -> Self
    where
        T: Serialize,
        F: Fn(Admission<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let mutate: Arc<dyn Fn(Admission<T>) -> BoxFuture<'static, Result<T>> + Send + Sync> =
            Arc::new(move |request| Box::pin(mutate(request)));
        Self::Mutate { mutate, to_text: |object| serde_json::to_string(object) }
    }

    async fn call(&self, admission: Admission<T>) -> Result<Verdict> {
        let (mutate, to_text) = match self {
            Self::Validate(validate) => return validate(admission).await.map(|()| Verdict::Allowed),
            Self::Mutate { mutate, to_text } => (mutate, to_text),
        };
        let after = mutate(admission.clone()).await?;
        // A delete has no object that could be changed.
        let Some(sent) = admission.sent() else { return Ok(Verdict::Allowed) };
        let patch = json_patch::patch(sent.get(), &to_text(admission.object())?, &to_text(&after)?)?;
        Ok(if patch.is_empty() { Verdict::Allowed } else { Verdict::Patched(patch) })
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> AnyWebhook for Webhook<T> {
    fn spec(&self) -> &WebhookSpec {
        &self.spec
    }

    fn review(&self, request: AdmissionRequest, cluster: Arc<Cluster>) -> BoxFuture<'_, Reviewed> {
        Box::pin(async move {
            let operation = request.operation;
            let admission = match Admission::new(request, cluster) {
                Ok(admission) => admission,
                Err(why) => return self.spec.unreadable(operation, why),
            };
            let called = self.function.call(admission.clone()).await;
            let verdict = called.unwrap_or_else(|error| Verdict::of_error(&error, admission.request()));
            Reviewed { verdict, remarks: admission.remarks() }
        })
    }
}

impl WebhookSpec {
    /// `validate` or `mutate`, as controller-runtime's paths begin.
    fn verb(&self) -> &'static str {
        if self.is_mutating { "mutate" } else { "validate" }
    }

    /// Its name in the configuration: `validate.webapp.example.com`, `validate.pod.core`, `validate.delete.webapp.example.com`.
    pub(crate) fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.default_name(&self.part()))
    }

    fn default_name(&self, part: &str) -> String {
        let api = self.kind.resource();
        let group = if api.group.is_empty() { "core" } else { &api.group };
        let part = if part.is_empty() { String::new() } else { format!("{part}.") };
        format!("{}.{part}{}.{group}", self.verb(), api.kind.to_lowercase())
    }

    /// The path of its endpoint, made as controller-runtime makes it: `/validate-example-com-v1-webapp`.
    pub(crate) fn path(&self) -> String {
        self.path.clone().unwrap_or_else(|| self.default_path(&self.part()))
    }

    fn default_path(&self, part: &str) -> String {
        let api = self.kind.resource();
        let part = if part.is_empty() { String::new() } else { format!("-{part}") };
        let (verb, group) = (self.verb(), api.group.replace('.', "-"));
        format!("/{verb}-{group}-{}-{}{part}", api.version, api.kind.to_lowercase())
    }

    /// What the default name and path say besides the kind: the subresource; or, for a webhook that is called neither for create nor for update,
    /// what it is called for, so that it can stand beside the usual one of its kind.
    fn part(&self) -> String {
        let is_usual = |operation: &Operation| matches!(operation, Operation::Create | Operation::Update);
        if !self.subresource.is_empty() || self.operations.iter().any(is_usual) {
            return self.subresource.clone();
        }
        self.operations_in_words()
    }

    /// `delete`, `create-update`
    fn operations_in_words(&self) -> String {
        let words: Vec<String> = self.operations.iter().map(|operation| operation.as_str().to_lowercase()).collect();
        words.join("-")
    }

    /// What becomes of an object that does not decode. Before it is stored, the API server judges it by its schema, and says of every field
    /// what is wrong. It does so after the mutating webhooks, so a mutating one has to let the object pass to it.
    /// A schema that allows what the Rust type does not, such as that of an older CRD, lets it be stored without its defaults, so the client
    /// is warned.
    fn unreadable(&self, operation: Operation, why: String) -> Reviewed {
        let is_stored = self.subresource.is_empty() && matches!(operation, Operation::Create | Operation::Update);
        if self.is_mutating && self.has_own_schema && is_stored {
            let name = self.name();
            tracing::warn!(webhook = name, why, "an object that cannot be read was left to the schema of its CRD");
            let warnings = vec![format!("{name} has changed nothing: {why}")];
            return Reviewed { verdict: Verdict::LeftToSchema, remarks: Remarks { warnings, ..Remarks::default() } };
        }
        Reviewed { verdict: Verdict::Unreadable(why), remarks: Remarks::default() }
    }

    /// Whether an API server would take it. The error says what to change.
    fn check(&self) -> Result<(), String> {
        let (name, path) = (self.name(), self.path());
        let is_label = |part: &str| check_name(part, NameRule::Label, false).is_empty();
        if name.split('.').count() < 3 || !name.split('.').all(is_label) {
            return Err(format!(
                "{name:?} is no name of a webhook: it needs at least three parts of small letters, digits and hyphens with \
                 dots between them; give it one with .named(…)"
            ));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        if !path.starts_with('/') || path.ends_with('/') || path.contains("//") || !path.bytes().all(is_plain) {
            return Err(format!("{path:?} is no path of a webhook: it begins with a slash and has no empty parts"));
        }
        if self.operations.is_empty() {
            return Err(format!("the webhook {name} is called for nothing; .operations(…) says what for"));
        }
        let timeout = self.options.timeout;
        if !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&timeout) || timeout.subsec_nanos() > 0 {
            return Err(format!(
                "the webhook {name} has a timeout of {timeout:?}; it has to be whole seconds from 1 to 30"
            ));
        }
        Ok(())
    }
}

/// Whether an API server would take these webhooks, and can tell them apart.
pub(crate) fn check<'a>(webhooks: impl Iterator<Item = &'a Arc<dyn AnyWebhook>>) -> Result<()> {
    let specs: Vec<&WebhookSpec> = webhooks.map(|webhook| webhook.spec()).collect();
    specs.iter().try_for_each(|spec| spec.check()).map_err(Error::permanent)?;
    let clashes = specs.iter().enumerate().filter_map(|(at, spec)| clash(spec, &specs[..at], &specs));
    match clashes.collect::<Vec<String>>().join("; ") {
        clashes if clashes.is_empty() => Ok(()),
        clashes => Err(Error::permanent(clashes)),
    }
}

/// In what a webhook is the same as one of those before it, and what to add to its declaration.
fn clash(spec: &WebhookSpec, before: &[&WebhookSpec], all: &[&WebhookSpec]) -> Option<String> {
    let (name, path) = (spec.name(), spec.path());
    let same_path = before.iter().any(|other| other.path() == path);
    let same_name = before.iter().any(|other| (other.is_mutating, other.name()) == (spec.is_mutating, name.clone()));
    let words = match (same_path, same_name) {
        (false, false) => return None,
        (true, true) => format!("two webhooks are at the path {path} and called {name}"),
        (true, false) => format!("two webhooks are at the path {path}"),
        (false, true) => format!("two webhooks are called {name}"),
    };
    let is_free = |part: &String| {
        let (name, path) = (spec.default_name(part), spec.default_path(part));
        all.iter().all(|other| other.name() != name && other.path() != path)
    };
    let base = match spec.subresource.as_str() {
        "" => spec.operations_in_words(),
        part => format!("{part}-{}", spec.operations_in_words()),
    };
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let part = std::iter::once(base.clone()).chain(numbered).find(is_free).unwrap_or_default();
    let mut lines = String::new();
    if same_name {
        lines += &format!(".named({:?})", spec.default_name(&part));
    }
    if same_path {
        lines += &format!(".path({:?})", spec.default_path(&part));
    }
    let operations: Vec<&str> = spec.operations.iter().map(|operation| operation.as_str()).collect();
    Some(format!("{words}; add `{lines}` to the one for {}", operations.join(" and ")))
}
