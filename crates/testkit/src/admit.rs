//! Webhooks in tests, without sockets. In: what somebody wants to do to an object. Out: the object as it would be stored, or
//! why it would be refused. The webhooks are called as an API server calls them: in its order, and only if their selectors and match
//! conditions select the request.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use konverge::prelude::Namespace;
use konverge::testing::{InProcess, TestWebhook};
use konverge::webhook::Operation;
use konverge::{Controller, Error, Kind, Result, Scope};
use konverge_apiserver::{CriteriaError, WebhookCriteria};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// What somebody wants to do to an object: see [`Cluster::admit`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before Cluster::admit is called with it"]
pub struct Review<T> {
    operation: Operation,
    object: Option<T>,
    old: Option<T>,
    user: String,
    groups: Vec<String>,
    subresource: String,
    dry_run: bool,
}

impl<T: Kind> Review<T> {
    /// Somebody creates this object.
    pub fn create(object: T) -> Self {
        Self::new(Operation::Create, Some(object), None)
    }

    /// Somebody changes an object.
    pub fn update(old: T, object: T) -> Self {
        Self::new(Operation::Update, Some(object), Some(old))
    }

    /// Somebody deletes this object.
    pub fn delete(object: T) -> Self {
        Self::new(Operation::Delete, None, Some(object))
    }

    fn new(operation: Operation, object: Option<T>, old: Option<T>) -> Self {
        let (user, groups) = ("kubernetes-admin".to_owned(), vec!["system:authenticated".to_owned()]);
        Self { operation, object, old, user, groups, subresource: String::new(), dry_run: false }
    }

    /// Who does it, instead of `kubernetes-admin`.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// A part of the object, such as `status`.
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = subresource.into();
        self
    }

    /// Nothing would be stored.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            _ => return Value::Null,
        };
        let dry_run: &[&str] = if self.dry_run { &["All"] } else { &[] };
        json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "dryRun": dry_run})
    }

    /// The AdmissionReview with the object as it is now.
    fn body(&self, object: &Value, old: &Value) -> Value {
        let api = T::resource();
        let metadata = if object.is_null() { &old["metadata"] } else { &object["metadata"] };
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let kind = json!({"group": api.group, "version": api.version, "kind": api.kind});
        let resource = json!({"group": api.group, "version": api.version, "resource": api.plural});
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "a-review-of-a-test", "kind": kind, "resource": resource, "requestKind": kind,
                "requestResource": resource, "subResource": self.subresource, "requestSubResource": self.subresource,
                "name": text("name"), "options": self.options(),
                "namespace": text("namespace"), "operation": self.operation.as_str(), "dryRun": self.dry_run,
                "userInfo": {"username": self.user, "groups": self.groups}, "object": object, "oldObject": old,
            },
        })
    }
}

/// An object that all webhooks let pass.
#[derive(Clone, Debug)]
pub struct Admitted<T> {
    /// The object as it would be stored, or for a delete as it was.
    pub object: T,
    /// What the client would be warned of.
    pub warnings: Vec<String>,
}

/// Why an object would be refused. [`Error::find`] finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAdmitted {
    /// The webhook that refused it.
    pub webhook: String,
    /// The HTTP code that the client would get.
    pub code: u16,
    /// The reason, in one word.
    pub reason: String,
    /// What the webhook said.
    pub message: String,
    /// The fields that are wrong, each with what is wrong with it.
    pub fields: Vec<(String, String)>,
}

/// As API servers say it.
impl std::fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "admission webhook {:?} denied the request: {}", self.webhook, self.message)
    }
}

impl std::error::Error for NotAdmitted {}

impl Cluster {
    /// Calls the webhooks of an operator for a request, as an API server would: first those that change the object, then those
    /// that judge it. Returns the object as it would be stored, or an error with the cause [`NotAdmitted`]. Nothing is stored;
    /// what the functions read is in this cluster.
    ///
    /// A webhook is called if its selectors select the request and its match conditions are true; they are judged by the code of
    /// the API server. Labels of a namespace are those of the Namespace in this cluster; one that is not there has the label
    /// `kubernetes.io/metadata.name` only. Webhooks for Pods are called in every namespace, because a test is no operator with a namespace of
    /// its own. It is an error if a match condition asks the authorizer, which only [`Cluster::run`] has.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// use konverge_testkit::{Fake, NotAdmitted, Review};
    ///
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { replicas: i32 }
    /// async fn validate(request: Admission<Shop>) -> Result<()> {
    ///     let (replicas, mut errors) = (request.object().spec.replicas, FieldErrors::new());
    ///     if replicas < 0 {
    ///         errors.invalid("spec.replicas", replicas, "must not be negative");
    ///     }
    ///     Ok(errors.into_result()?)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let operator = Operator::<Shop>::new().validate(validate);
    /// let review = Review::create(Shop::new("s", ShopSpec { replicas: -1 }));
    ///
    /// let error = Fake::new().admit(&operator, review).await.unwrap_err();
    ///
    /// let denied = error.find::<NotAdmitted>().expect("the webhook refuses it");
    /// assert_eq!((denied.code, denied.fields[0].0.as_str()), (422, "spec.replicas"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn admit<T, R, P>(&self, operator: &Controller<R, P>, review: Review<T>) -> Result<Admitted<T>>
    where
        T: Kind,
        R: DeserializeOwned + Send + Sync + 'static,
        P: InProcess,
    {
        let webhooks = operator.test_webhooks(self.client());
        let (mut object, old) = (in_namespace(&review.object), in_namespace(&review.old));
        let (api, mut warnings) = (T::resource(), Vec::new());
        for webhook in webhooks.called_for(&api.group, &api.plural, &review.subresource, review.operation) {
            let body = review.body(&object, &old);
            if !self.is_called(&webhook, &body["request"], T::scope() == Scope::Namespaced).await? {
                continue;
            }
            let answer = webhooks.review(&webhook.path, &body).await?;
            let response = &answer["response"];
            let texts = response["warnings"].as_array().into_iter().flatten();
            warnings.extend(texts.filter_map(Value::as_str).map(str::to_owned));
            if response["allowed"] != json!(true) {
                return Err(Error::permanent(not_admitted(&webhook, &response["status"])));
            }
            if let Some(patch) = response["patch"].as_str() {
                let patch = BASE64_STANDARD.decode(patch)?;
                json_patch::patch(&mut object, &serde_json::from_slice::<json_patch::Patch>(&patch)?)?;
            }
        }
        let object = if object.is_null() { old } else { object };
        Ok(Admitted { object: serde_json::from_value(object)?, warnings })
    }

    /// Whether the selectors and match conditions of a webhook select a request.
    async fn is_called(&self, webhook: &TestWebhook, request: &Value, in_namespace: bool) -> Result<bool> {
        let failed = |error: CriteriaError| match error {
            CriteriaError::Refused(status) => Error::permanent(not_admitted(webhook, &json!(status))),
            error => Error::permanent(format!("the webhook {}: {error}", webhook.name)),
        };
        let criteria = WebhookCriteria::read(&webhook.criteria).map_err(failed)?;
        let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
        let is_namespace = request["kind"] == json!({"group": "", "version": "v1", "kind": "Namespace"});
        let namespace = match request["namespace"].as_str() {
            _ if is_namespace => Some(object.clone()),
            Some(name) if in_namespace && criteria.select_namespaces() => {
                let found = self.find::<Namespace>(name).await?.map(|namespace| json!(namespace));
                let labels = json!({"kubernetes.io/metadata.name": name});
                Some(found.unwrap_or_else(|| json!({"metadata": {"name": name, "labels": labels}})))
            }
            _ => None,
        };
        criteria.matches(request, namespace.as_ref()).map_err(failed)
    }
}

/// The object as an API server sends it: with its kind, and in a namespace if it belongs into one.
fn in_namespace<T: Kind>(object: &Option<T>) -> Value {
    let Some(object) = object else { return Value::Null };
    let mut sent = json!(object);
    let api = T::resource();
    sent["apiVersion"] = api.api_version.into();
    sent["kind"] = api.kind.into();
    if T::scope() == Scope::Namespaced && object.meta().namespace.is_none() {
        sent["metadata"]["namespace"] = "default".into();
    }
    sent
}

fn not_admitted(webhook: &TestWebhook, status: &Value) -> NotAdmitted {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    NotAdmitted {
        webhook: webhook.name.clone(),
        code: status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
        reason: text(&status["reason"]),
        message: text(&status["message"]),
        fields: causes.map(|cause| (text(&cause["field"]), text(&cause["message"]))).collect(),
    }
}
