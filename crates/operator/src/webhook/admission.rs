//! The handle of a webhook function: the object before and after, who asks for what, and reads of the cluster around it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Error, Result};
use kube::Client;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::request::{AdmissionRequest, Operation, UserInfo};
use crate::api_kind::ApiKind;
use crate::builders::Selector;
use crate::kind::Kind;
use crate::objects::{label_selector, no_namespace};
use crate::operator::CachedReads;
use crate::state::States;

/// What a webhook function is given: an object that somebody wants to create, change or delete. Clones are the same.
///
/// [`object`](Admission::object) is the object as it is to be stored, [`old`](Admission::old) as it is stored now. Reads of
/// the cluster ([`get`](Admission::get), [`list`](Admission::list), …) come from the caches of the operator where there are
/// some, and from the server otherwise. A cache may be a moment behind: two requests that come at the same time do not see
/// each other, so a webhook cannot guarantee that something is unique.
///
/// ```
/// use konverge::prelude::*;
/// use konverge::webhook::Admission;
///
/// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "WebApp", namespaced)]
/// # pub struct WebAppSpec { image: String, replicas: Option<i32> }
/// async fn validate(request: Admission<WebApp>) -> Result<()> {
///     let (app, mut errors) = (request.object(), FieldErrors::new());
///     if app.spec.replicas.is_some_and(|replicas| replicas > 100) {
///         errors.invalid("spec.replicas", app.spec.replicas, "must be at most 100");
///     }
///     if let Some(old) = request.old()? && old.spec.image != app.spec.image {
///         request.warn("a new image restarts all replicas");
///     }
///     Ok(errors.into_result()?)
/// }
///
/// async fn defaults(request: Admission<WebApp>) -> Result<WebApp> {
///     let mut app = request.object().clone();
///     app.spec.replicas.get_or_insert(1);
///     Ok(app)
/// }
///
/// Operator::<WebApp>::new().default_with(defaults).validate(validate);
/// ```
pub struct Admission<T>(Arc<Inner<T>>);

struct Inner<T> {
    request: AdmissionRequest,
    object: T,
    old: OnceLock<Result<Option<T>, String>>,
    cluster: Arc<Cluster>,
    remarks: Mutex<Remarks>,
}

/// What all webhooks of an operator share of the cluster.
pub(crate) struct Cluster {
    pub client: Client,
    pub reads: Arc<CachedReads>,
    pub states: States,
}

/// What a function says besides its verdict.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remarks {
    pub warnings: Vec<String>,
    pub audit: BTreeMap<String, String>,
}

impl<T: DeserializeOwned> Admission<T> {
    /// The error says which object does not decode, and where.
    pub(super) fn new(request: AdmissionRequest, cluster: Arc<Cluster>) -> Result<Self, String> {
        let given = match request.operation {
            Operation::Delete => (&request.old_object, "oldObject"),
            Operation::Create | Operation::Update | Operation::Connect => (&request.object, "object"),
        };
        let (Some(raw), _) = given else { return Err(format!("the request has no {}", given.1)) };
        let object = decode(raw, &request.kind.kind)?;
        let (old, remarks) = (OnceLock::new(), Mutex::default());
        Ok(Self(Arc::new(Inner { request, object, old, cluster, remarks })))
    }

    /// The object as it is stored now: for updates and deletes. Nothing if it is created.
    ///
    /// An object that was stored before and does not decode as `T` is an error. A function that does not look at the old
    /// object lets somebody repair it.
    pub fn old(&self) -> Result<Option<&T>> {
        let Inner { request, old, .. } = &*self.0;
        let read = || request.old_object.as_deref().map(|raw| decode(raw, &request.kind.kind)).transpose();
        old.get_or_init(read).as_ref().map(Option::as_ref).map_err(|why| Error::new(format!("oldObject: {why}")))
    }
}

fn decode<T: DeserializeOwned>(raw: &RawValue, kind: &str) -> Result<T, String> {
    serde_json::from_str(raw.get()).map_err(|error| format!("this operator cannot read the {kind}: {error}"))
}

impl<T> Admission<T> {
    /// The object that the request is about: as it is to be stored, or for a delete as it is stored now. For `CONNECT` it is
    /// the options of the connection, such as `PodExecOptions`.
    pub fn object(&self) -> &T {
        &self.0.object
    }

    /// What is to happen.
    pub fn operation(&self) -> Operation {
        self.0.request.operation
    }

    /// Who asks.
    pub fn user(&self) -> &UserInfo {
        &self.0.request.user_info
    }

    /// Whether nothing will be stored. A function that changes something besides the object must not do so then.
    pub fn is_dry_run(&self) -> bool {
        self.0.request.dry_run.unwrap_or(false)
    }

    /// The name of the object; empty if the server has still to make it up.
    pub fn name(&self) -> &str {
        &self.0.request.name
    }

    /// The namespace of the object; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        &self.0.request.namespace
    }

    /// Everything that the API server said.
    pub fn request(&self) -> &AdmissionRequest {
        &self.0.request
    }

    /// Shows a warning to the client, which `kubectl` prints. The request goes on. Keep it below 120 characters: API servers
    /// cut warnings that are long together.
    pub fn warn(&self, warning: impl Into<String>) {
        self.0.remarks.lock().warnings.push(warning.into());
    }

    /// Adds an annotation to the audit log of the API server. The server puts the name of the webhook before the key.
    pub fn audit(&self, key: impl Into<String>, value: impl Into<String>) {
        self.0.remarks.lock().audit.insert(key.into(), value.into());
    }

    /// A value that the operator was given by [`Operator::state`](crate::Operator::state). A type that was not given is an
    /// error which names the type.
    pub fn state<S: Send + Sync + 'static>(&self) -> Result<&S> {
        self.0.cluster.states.get(|| format!("the operator of the webhook for {}", self.0.request.kind.kind))
    }

    /// The client of the operator, for what this type has no method for.
    pub fn client(&self) -> Client {
        self.0.cluster.client.clone()
    }

    /// An object in the namespace of the request, or a cluster-scoped one, if it is there: from the cache of a kind that the
    /// operator watches, and from the server otherwise.
    pub async fn get<K: Kind>(&self, name: &str) -> Result<Option<K>> {
        self.here().get(name).await
    }

    /// The objects of a kind in the namespace of the request; for a cluster-scoped object, in all namespaces. The kind is
    /// watched from now on, so that the next list costs no request.
    pub async fn list<K: Kind>(&self) -> Result<Vec<K>> {
        self.here().list().await
    }

    /// The objects that have these labels; otherwise like [`Admission::list`].
    pub async fn list_by<K: Kind>(&self, selector: Selector) -> Result<Vec<K>> {
        self.here().list_by(selector).await
    }

    /// Another namespace, to read in.
    pub fn within<'a>(&'a self, namespace: &'a str) -> Reader<'a> {
        Reader { cluster: &self.0.cluster, namespace: Some(namespace) }
    }

    /// All namespaces that the operator watches, to list in.
    pub fn everywhere(&self) -> Reader<'_> {
        Reader { cluster: &self.0.cluster, namespace: None }
    }

    fn here(&self) -> Reader<'_> {
        Reader { cluster: &self.0.cluster, namespace: Some(self.namespace()).filter(|name| !name.is_empty()) }
    }

    /// The object as it was sent.
    pub(super) fn sent(&self) -> Option<&RawValue> {
        self.0.request.object.as_deref()
    }

    pub(super) fn remarks(&self) -> Remarks {
        self.0.remarks.lock().clone()
    }
}

/// One namespace, or all of them, as a webhook function reads it: see [`Admission::within`] and [`Admission::everywhere`].
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    cluster: &'a Cluster,
    namespace: Option<&'a str>,
}

impl Reader<'_> {
    /// One object, if it is there.
    pub async fn get<K: Kind>(self, name: &str) -> Result<Option<K>> {
        let kind = ApiKind::of::<K>();
        let namespace = self.namespace.filter(|_| kind.is_namespaced());
        if namespace.is_none() && kind.is_namespaced() {
            return Err(no_namespace(kind.name(), name));
        }
        self.cluster.reads.get(READER, &ObjectKey::new(namespace, name)).await
    }

    /// The objects of a kind.
    pub async fn list<K: Kind>(self) -> Result<Vec<K>> {
        self.cluster.reads.list(READER, self.namespace, &LabelSelector::default()).await
    }

    /// The objects of a kind that have these labels.
    pub async fn list_by<K: Kind>(self, selector: Selector) -> Result<Vec<K>> {
        self.cluster.reads.list(READER, self.namespace, &label_selector(&selector)?).await
    }
}

/// Who reads, for the log of a watch that fails.
const READER: &str = "webhooks";

impl<T> Clone for Admission<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Admission<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdmissionRequest { uid, kind, operation, .. } = &self.0.request;
        let key = ObjectKey::new(Some(self.namespace()).filter(|name| !name.is_empty()), self.name());
        f.debug_struct("Admission")
            .field("operation", operation)
            .field("kind", &kind.kind)
            .field("key", &key)
            .field("uid", uid)
            .finish()
    }
}
