//! CRDs without a cluster: a registry that judges objects as the server does. In: CRDs, then objects of any kind. Out: each object
//! with its defaults, or every field that is wrong. It is the server itself, over a store in memory that nobody else sees, and
//! every question is a dry run.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, header};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tower_service::Service;

use konverge_core::Status;

use crate::admission::AdmissionPlugins;
use crate::body::Body;
use crate::server::{ApiServer, OpenError, Options};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Plugins that refuse objects because others are not there, which says nothing about the object.
const NEED_OTHERS: [&str; 4] = ["Priority", "RuntimeClass", "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];

/// Metadata that a server sets.
const OF_THE_SERVER: [&str; 6] =
    ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"];

/// CRDs, and objects judged by them, without a cluster.
///
/// Objects are judged exactly as the server judges them when they are created or changed: names and labels, unknown fields
/// (strictly, as `kubectl` has it), the schema of their version, defaults, rules in CEL. Objects of built-in kinds are judged, too.
/// What depends on other objects is not: admission webhooks, quotas, whether a namespace exists. Versions are not converted.
///
/// ```
/// use konverge_apiserver::CrdRegistry;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = CrdRegistry::new().await?;
/// registry.register(&json!({
///     "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
///     "metadata": {"name": "shops.example.com"},
///     "spec": {
///         "group": "example.com", "scope": "Namespaced", "names": {"plural": "shops", "kind": "Shop"},
///         "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
///             "type": "object",
///             "properties": {"spec": {"type": "object", "properties": {
///                 "size": {"type": "integer", "maximum": 10, "default": 1},
///             }}},
///         }}}],
///     },
/// })).await?;
///
/// let shop = json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a"}, "spec": {}});
/// assert_eq!(registry.check(&shop).await?.object["spec"]["size"], 1);
///
/// let shop = json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a"}, "spec": {"size": 11}});
/// let refused = registry.check(&shop).await.unwrap_err();
/// assert!(refused.message.contains("spec.size: Invalid value: 11"), "{}", refused.message);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CrdRegistry {
    server: ApiServer,
    /// Locked while an object is judged, because objects of one name would meet in the store.
    stored: Arc<Mutex<StoredVersions>>,
}

/// The version that each CRD stores, by the name of the CRD. The server has another one while it judges objects of that one.
type StoredVersions = BTreeMap<String, String>;

/// A kind in one version, as a registered CRD has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredKind {
    /// The name of the CRD: `shops.example.com`.
    pub definition: String,
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub is_namespaced: bool,
    /// Whether objects can be read and written in this version.
    pub is_served: bool,
    /// Whether objects are stored in this version.
    pub is_stored: bool,
}

/// An object that a server would take.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Checked {
    /// The object with its defaults, without what only a server can give it.
    pub object: Value,
    /// What a client would be warned of.
    pub warnings: Vec<String>,
}

/// Where the objects of a kind are.
struct Found {
    plural: String,
    is_namespaced: bool,
    has_status: bool,
}

impl CrdRegistry {
    /// A registry without CRDs; built-in kinds are known.
    pub async fn new() -> Result<Self, OpenError> {
        let admission = AdmissionPlugins::default().with(&[], &NEED_OTHERS).unwrap_or_default();
        let server = ApiServer::open(Options { admission, ..Options::default() }).await?;
        Ok(Self { server, stored: Arc::default() })
    }

    /// Adds a CRD, or replaces the one of its name, and returns the warnings about it. The error is the server's: what is wrong
    /// with the CRD, also with its schema and its rules.
    pub async fn register(&self, definition: &Value) -> Result<Vec<String>, Status> {
        let mut definition = definition.clone();
        // Nobody could be asked to convert. Objects are judged in the version they have.
        if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("conversion");
        }
        if let Some(fields) = definition.as_object_mut() {
            fields.remove("status");
        }
        without_server_metadata(&mut definition);
        let name = text(&definition["metadata"], "name");
        let mut stored = self.stored.lock().await;
        let strict = "fieldValidation=Strict";
        let found = self.ask(Method::GET, &format!("{CRDS}/{}", encoded(&name)), None).await;
        let answer = match found {
            Ok(known) if !name.is_empty() => {
                definition["metadata"]["resourceVersion"] = known.object["metadata"]["resourceVersion"].clone();
                let path = format!("{CRDS}/{}?{strict}", encoded(&name));
                self.ask(Method::PUT, &path, Some(&definition)).await?
            }
            _ => self.ask(Method::POST, &format!("{CRDS}?{strict}"), Some(&definition)).await?,
        };
        let mut versions = definition["spec"]["versions"].as_array().into_iter().flatten();
        let version = versions.find(|version| version["storage"] == true).map(|version| text(version, "name"));
        stored.insert(name, version.unwrap_or_default());
        Ok(answer.warnings)
    }

    /// The kinds of all registered CRDs, version by version.
    pub async fn list(&self) -> Vec<RegisteredKind> {
        let stored = self.stored.lock().await;
        let Ok(list) = self.ask(Method::GET, CRDS, None).await else { return Vec::new() };
        let definitions = list.object["items"].as_array().into_iter().flatten();
        let kinds = definitions.flat_map(|definition| {
            let spec = &definition["spec"];
            let versions = spec["versions"].as_array().into_iter().flatten();
            versions.map(|version| RegisteredKind {
                definition: text(&definition["metadata"], "name"),
                group: text(spec, "group"),
                version: text(version, "name"),
                kind: text(&spec["names"], "kind"),
                is_namespaced: spec["scope"] == "Namespaced",
                is_served: version["served"] == true,
                is_stored: stored.get(&text(&definition["metadata"], "name")) == Some(&text(version, "name")),
            })
        });
        kinds.collect()
    }

    /// Judges an object as if it was created. Its status is judged, too.
    pub async fn check(&self, object: &Value) -> Result<Checked, Status> {
        let mut object = object.clone();
        let status = object.get("status").filter(|status| !status.is_null()).cloned();
        let (found, path) = self.path_of(&mut object).await?;
        let _alone = self.stored.lock().await;
        self.namespace(&object, found.is_namespaced).await?;
        let dry = format!("{path}?dryRun=All&fieldValidation=Strict");
        let Some(status) = status.filter(|_| found.has_status) else {
            return Ok(self.ask(Method::POST, &dry, Some(&object)).await?.tidied());
        };
        self.store_in(&object, &found).await?;
        // A server ignores the status of an object that is created, so that it has to be there before its status is judged.
        let made = self.ask(Method::POST, &format!("{path}?fieldValidation=Strict"), Some(&storable(&object))).await?;
        let mut whole = made.object.clone();
        whole["status"] = status;
        let of_one = format!("{path}/{}", encoded(&text(&made.object["metadata"], "name")));
        let judged =
            self.ask(Method::PUT, &format!("{of_one}/status?dryRun=All&fieldValidation=Strict"), Some(&whole)).await;
        self.ask(Method::DELETE, &of_one, None).await?;
        let mut judged = judged?;
        judged.warnings.splice(0..0, made.warnings);
        Ok(judged.tidied())
    }

    /// Judges a change of an object: what must not change, rules about the old and the new value, and that nobody has to mend
    /// what was wrong before.
    pub async fn check_update(&self, old: &Value, new: &Value) -> Result<Checked, Status> {
        let (mut old, mut new) = (storable(old), new.clone());
        let (found, path) = self.path_of(&mut old).await?;
        self.path_of(&mut new).await?;
        let _alone = self.stored.lock().await;
        self.namespace(&old, found.is_namespaced).await?;
        self.store_in(&old, &found).await?;
        let made = self.ask(Method::POST, &path, Some(&old)).await?;
        without_server_metadata(&mut new);
        new["metadata"]["resourceVersion"] = made.object["metadata"]["resourceVersion"].clone();
        let of_one = format!("{path}/{}", encoded(&text(&made.object["metadata"], "name")));
        let judged = self.ask(Method::PUT, &format!("{of_one}?dryRun=All&fieldValidation=Strict"), Some(&new)).await;
        self.ask(Method::DELETE, &of_one, None).await?;
        Ok(judged?.tidied())
    }

    /// Where an object belongs. An object that belongs into a namespace and names none gets one.
    async fn path_of(&self, object: &mut Value) -> Result<(Found, String), Status> {
        without_server_metadata(object);
        let (api_version, kind) = (text(object, "apiVersion"), text(object, "kind"));
        if api_version.is_empty() || kind.is_empty() {
            return Err(Status::bad_request("an object needs an apiVersion and a kind"));
        }
        let root = match api_version.split_once('/') {
            Some((group, version)) => format!("/apis/{}/{}", encoded(group), encoded(version)),
            None => format!("/api/{}", encoded(&api_version)),
        };
        let unknown = || {
            let why = format!("no matches for kind {kind:?} in version {api_version:?}; register its CRD first");
            Status::failure(404, "NotFound", why)
        };
        let served = self.ask(Method::GET, &root, None).await.map_err(|_| unknown())?;
        let resources = || served.object["resources"].as_array().into_iter().flatten();
        let is_whole = |resource: &&Value| resource["kind"] == kind.as_str() && !text(resource, "name").contains('/');
        let resource = resources().find(is_whole).ok_or_else(unknown)?;
        let plural = text(resource, "name");
        let has_status = resources().any(|part| part["name"] == format!("{plural}/status"));
        let found = Found { plural, is_namespaced: resource["namespaced"] == true, has_status };
        if !found.is_namespaced {
            let path = format!("{root}/{}", found.plural);
            return Ok((found, path));
        }
        let namespace = match text(&object["metadata"], "namespace") {
            named if named.is_empty() => "default".to_owned(),
            named => named,
        };
        if object["metadata"].is_object() {
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        let path = format!("{root}/namespaces/{}/{}", encoded(&namespace), found.plural);
        Ok((found, path))
    }

    /// Stores objects in the version of this one: nobody converts here, so that another version would drop its fields.
    async fn store_in(&self, object: &Value, found: &Found) -> Result<(), Status> {
        let api_version = text(object, "apiVersion");
        let Some((group, wanted)) = api_version.split_once('/') else { return Ok(()) };
        let path = format!("{CRDS}/{}.{}", encoded(&found.plural), encoded(group));
        // Built-in kinds have no CRD, and nothing to drop.
        let Ok(mut definition) = self.ask(Method::GET, &path, None).await else { return Ok(()) };
        let mut is_changed = false;
        for version in definition.object["spec"]["versions"].as_array_mut().into_iter().flatten() {
            let is_stored = Value::from(text(version, "name") == wanted);
            is_changed |= version["storage"] != is_stored;
            version["storage"] = is_stored;
        }
        if is_changed {
            self.ask(Method::PUT, &path, Some(&definition.object)).await?;
        }
        Ok(())
    }

    /// Makes the namespace of an object, if there is none.
    async fn namespace(&self, object: &Value, is_namespaced: bool) -> Result<(), Status> {
        if !is_namespaced {
            return Ok(());
        }
        let name = text(&object["metadata"], "namespace");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        match self.ask(Method::POST, "/api/v1/namespaces", Some(&namespace)).await {
            Err(status) if status.code != 409 => Err(status),
            _ => Ok(()),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Checked, Status> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::full(body.map(Value::to_string).unwrap_or_default()));
        let request = request.map_err(|error| Status::bad_request(format!("{path} is no path: {error}")))?;
        let Ok(response) = self.server.clone().call(request).await;
        let (code, warnings) = (response.status(), warnings(response.headers()));
        let Ok(body) = response.into_body().collect().await;
        let body = body.to_bytes();
        if code.is_success() {
            let object = serde_json::from_slice(&body).map_err(Status::internal)?;
            return Ok(Checked { object, warnings });
        }
        let plain = || Status::failure(code.as_u16(), "", String::from_utf8_lossy(&body).trim().to_owned());
        Err(serde_json::from_slice(&body).unwrap_or_else(|_| plain()))
    }
}

impl Checked {
    /// An object that was judged elsewhere.
    pub fn new(object: Value, warnings: Vec<String>) -> Self {
        Self { object, warnings }
    }

    fn tidied(mut self) -> Self {
        without_server_metadata(&mut self.object);
        self
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// A part of a path. Names may be anything, because it is the server that judges them.
fn encoded(part: &str) -> String {
    percent_encoding::utf8_percent_encode(part, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn without_server_metadata(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        OF_THE_SERVER.iter().for_each(|field| drop(metadata.remove(*field)));
    }
}

/// The object as it can be stored for a moment: nothing holds it when it is deleted.
fn storable(object: &Value) -> Value {
    let mut object = object.clone();
    without_server_metadata(&mut object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let held: &mut Map<String, Value> = metadata;
        ["finalizers", "ownerReferences", "deletionTimestamp"].iter().for_each(|field| drop(held.remove(*field)));
    }
    object
}

/// The texts of `Warning` headers: `299 - "text"`.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let texts = headers.get_all(header::WARNING).iter().filter_map(|value| value.to_str().ok());
    let quoted = texts.filter_map(|text| text.split_once('"')?.1.strip_suffix('"'));
    quoted.map(|text| text.replace("\\\"", "\"").replace("\\\\", "\\")).collect()
}
