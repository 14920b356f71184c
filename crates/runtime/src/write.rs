//! Every write an operator makes to objects. In: what should be, and the object as the cache has it. Out: the object as
//! the server answered, for the cache to show until the watch brings it. Never reads where the cache has the answer,
//! never writes what would change nothing. Whether this instance may write at all is decided in the client (`gate.rs`).
//!
//! ```text
//! config   what is to be applied, marked with a digest of itself
//! skip     would it change anything?          (pure; types, equal, digest help)
//! owner    whom it belongs to                 (pure)
//! adopt    may it be taken over, if it exists already?
//! send     one request and its answer
//! finalizer, set                              what takes more than one request
//! ```

mod adopt;
mod config;
mod digest;
mod equal;
mod finalizer;
mod owner;
mod send;
mod set;
mod skip;
mod types;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use konverge_core::{FieldError, FieldPath, ObjectKey};
use konverge_schema::CompileError;
use kube::Client;
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

pub use adopt::{Adopt, OwnerCheck};
pub(crate) use config::key_of;
use config::{Config, key_to_create};
pub(crate) use digest::Digest;
pub(crate) use equal::same_value;
pub use finalizer::Finalized;
pub(crate) use finalizer::{is_deleting, uid};
pub use owner::{OWNER_ANNOTATION, Owner};
pub(crate) use owner::{annotation_prefix, group_of};
pub(crate) use send::{Call, JSON_PATCH, MERGE_PATCH, Operation};
pub use set::{Child, Member, OWNER_LABEL, SET_LABEL, SetReport, SetStep};
use skip::{Decision, decide, differences};
use types::Types;

use crate::error::{FieldErrors, Missing, WriteError};
use crate::object::Object;

/// The name under which an operator owns fields: one for each controller, the same after every restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldManager {
    name: Arc<str>,
    /// The annotation that holds the digest of what this manager applied: each has its own, or two controllers that
    /// apply to one object would see each other's.
    mark: Arc<str>,
}

/// Writes objects. Clones share everything.
#[derive(Clone)]
pub struct Writer(Arc<Inner>);

struct Inner {
    client: Client,
    manager: FieldManager,
    timeout: Duration,
    types: Types,
    /// What servers insist on, by object: see [`decide`].
    settled: Mutex<HashMap<Slot, Digest>>,
    /// Which version of an object has what was to be applied, both as sums: what was compared is not compared again.
    known: Mutex<HashMap<Digest, Digest>>,
}

/// An object, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slot {
    group: String,
    kind: String,
    key: ObjectKey,
    status: bool,
}

/// How a [`Writer`] writes.
pub struct WriterOptions {
    /// How long an answer may take. After that the outcome of a write is unknown.
    pub timeout: Duration,
}

/// How to apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions<'a> {
    /// The namespace the object goes into, if it does not say so itself.
    pub namespace: Option<&'a str>,
    /// Whom the object belongs to: by a reference, or by an annotation where there can be no reference.
    pub owner: Option<&'a Owner>,
    /// Whether that owner may take over an object that exists and does not refer to it.
    pub adopt: Adopt<'a>,
    /// What to do about fields other managers own.
    pub conflicts: Conflicts,
}

/// What to do about fields that other managers own with other values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflicts {
    /// Take them. A controller knows what its children look like, and has nobody to ask; the other manager sees that
    /// it lost them. This is what Kubernetes advises for controllers.
    #[default]
    Take,
    /// Refuse with [`WriteError::Conflict`], which names managers and fields.
    Refuse,
}

/// What became of an apply.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// It was applied already: nothing was sent.
    Unchanged,
    /// The object did not exist.
    Created(Arc<Object>),
    /// The object was there.
    Updated(Arc<Object>),
}

/// What became of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// The server was told; this is the object until its finalizers are done.
    Going(Value),
    /// It was on its way already: nothing was sent.
    Leaving,
    /// It was gone already.
    Absent,
}

/// A patch, with what it expects to find.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 7386, refused if the object is not of this resource version any more.
    Merge {
        /// The patch.
        patch: Value,
        /// The version it was made for.
        resource_version: String,
    },
    /// RFC 6902, whose own `test` operations say what it expects.
    Json(Value),
}

/// How often an object is looked at again that changes while it is to be written.
const LOOKS: usize = 3;

/// More objects than this with something to remember are forgotten all at once, which costs one request for each.
const MOST_SETTLED: usize = 100_000;

/// More objects than this are forgotten all at once, which costs one comparison for each. So many take four megabytes.
const MOST_KNOWN: usize = 100_000;

impl FieldManager {
    /// The longest name a server takes.
    const MOST_BYTES: usize = 128;

    /// A name, cut to what servers accept: printable, at most 128 bytes.
    ///
    /// ```
    /// use konverge_runtime::FieldManager;
    /// assert_eq!(FieldManager::new("webapp-operator").as_str(), "webapp-operator");
    /// ```
    pub fn new(name: &str) -> Self {
        let mut printable: String = name.chars().filter(|c| !c.is_control()).collect();
        let cut = (0..=Self::MOST_BYTES.min(printable.len())).rev().find(|at| printable.is_char_boundary(*at));
        printable.truncate(cut.unwrap_or_default());
        if printable.is_empty() {
            printable.push_str("konverge");
        }
        Self { mark: mark(&printable).into(), name: printable.into() }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

/// The annotation of a manager of this name.
fn mark(name: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends_fine = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    if name.len() <= 63 && name.chars().all(is_fine) && ends_fine(name.chars().next()) && ends_fine(name.chars().last())
    {
        return format!("applied.konverge.dev/{name}");
    }
    format!("applied.konverge.dev/{}", sum(&[name]))
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            // Longer than an API server gives a request of its own (10 s for webhooks, and some to spare).
            timeout: Duration::from_secs(30),
        }
    }
}

impl Writer {
    /// A writer under this name.
    pub fn new(client: Client, manager: FieldManager, options: WriterOptions) -> Self {
        let WriterOptions { timeout } = options;
        let (types, settled, known) = (Types::default(), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { client, manager, timeout, types, settled, known }))
    }

    /// The name under which this writer owns fields.
    pub fn manager(&self) -> &FieldManager {
        &self.0.manager
    }

    /// Learns the schema of a custom resource (a CRD's `openAPIV3Schema`), so that its lists are compared item by item
    /// and its defaults are known. Without it lists are compared whole, which is right but for lists that several
    /// managers share.
    pub fn learn(&self, api: &ApiResource, schema: &Value) -> Result<(), CompileError> {
        self.0.types.learn(api, schema)
    }

    /// Makes an object look like `config`, by server-side apply. `live` is the object as the cache has it: when it
    /// shows that nothing would change, nothing is sent, and where that version was found to have just this before,
    /// neither of them is even taken apart. Fields that were applied before and are no longer in `config` go; fields of
    /// others stay; fields of ours that others changed are put back. A status in `config` is left out.
    ///
    /// Where [`ApplyOptions::adopt`] says that the owner may be going, an object that has changed since the cache saw it
    /// is read from the server and looked at again.
    pub async fn apply<C: Serialize + Sync + ?Sized>(
        &self,
        api: &ApiResource,
        live: Option<&Object>,
        config: &C,
        options: ApplyOptions<'_>,
    ) -> Result<Applied, WriteError> {
        // What the server showed of the object, once it had to be looked at.
        let mut fresh: Option<Option<Arc<Object>>> = None;
        let mut looks = 0;
        loop {
            let now = fresh.as_ref().map_or(live, Option::as_deref);
            match self.apply_to(api, now, config, options).await {
                Err(WriteError::Conflict { fields, .. })
                    if fields.is_empty() && looks < LOOKS && options.expects(now).is_some() => {}
                applied => {
                    return applied.map(|applied| match (applied, fresh.flatten()) {
                        // The caller has an older one, and nothing else tells it of this.
                        (Applied::Unchanged, Some(fresh)) => Applied::Updated(fresh),
                        (applied, _) => applied,
                    });
                }
            }
            let key = now.map(Object::key).expect("a version is only expected of an object that was seen");
            fresh = Some(self.see(api, &key).await?);
            looks += 1;
        }
    }

    /// Applies to an object that is, as far as the caller knows, as in `live`.
    async fn apply_to<C: Serialize + Sync + ?Sized>(
        &self,
        api: &ApiResource,
        live: Option<&Object>,
        config: &C,
        options: ApplyOptions<'_>,
    ) -> Result<Applied, WriteError> {
        let (adopts, expected, owner) = (options.adopts(live), options.expects(live), options.owner);
        let options = match options.adopt {
            Adopt::Never if adopts => ApplyOptions { owner: None, ..options },
            _ => options,
        };
        let given = given(api, config, options)?;
        if live.is_some_and(|live| self.is_known(given, live)) {
            return Ok(Applied::Unchanged);
        }
        let mut config = serde_json::to_value(config).map_err(unwritable)?;
        if let Some(namespace) = options.namespace {
            place(&mut config, namespace);
        }
        if let Some(owner) = options.owner {
            owner.put_into(&mut config)?;
        }
        let mut config = Config::new(api, config, &self.0.manager)?;
        if let (Some(owner), Some(live)) = (owner, live) {
            owner.may_take(&config.key, live)?;
        }
        let ty = self.0.types.of(api);
        let slot = Slot::new(api, &config.key, false);
        let settled = self.0.settled.lock().get(&slot).copied();
        match decide(&ty, live, &config, settled) {
            Decision::Skip => {
                if let Some(live) = live {
                    self.know(given, live);
                }
                return Ok(Applied::Unchanged);
            }
            Decision::Drift(paths) => {
                tracing::info!(kind = %api.kind, key = %config.key, fields = ?paths, "putting back what others changed");
            }
            Decision::Create | Decision::Changed => {}
        }
        if let (true, Some(owner), Adopt::IfAlive { api, check }) = (adopts, options.owner, options.adopt) {
            self.check_owner(api, owner, &config.key, check).await?;
        }
        let operation = Operation::Apply { force: options.conflicts == Conflicts::Take };
        config.expect(expected);
        let call = Call { operation, api, key: &config.key, subresource: "", body: Some(&config.object) };
        let answer = self.send(call).await?;
        let (code, object) = (answer.code, answer.object()?);
        config.expect(None);
        self.settle(slot, differences(&ty, &object.value(), &config.object).sum);
        if config.is_mark_of(&object) {
            self.know(given, &object);
        }
        Ok(match code {
            StatusCode::CREATED => Applied::Created(object),
            _ => Applied::Updated(object),
        })
    }

    /// Reads an object from the server, past the cache.
    pub async fn get(&self, api: &ApiResource, key: &ObjectKey) -> Result<Option<Value>, WriteError> {
        if_there(self.send(Call::get(api, key)).await)?.map(|answer| answer.value()).transpose()
    }

    /// The same, as a cache would show it.
    pub(crate) async fn see(&self, api: &ApiResource, key: &ObjectKey) -> Result<Option<Arc<Object>>, WriteError> {
        if_there(self.send(Call::get(api, key)).await)?.map(|answer| answer.object()).transpose()
    }

    /// Sends one request that is answered with an object.
    pub(crate) async fn write(&self, call: Call<'_>) -> Result<Arc<Object>, WriteError> {
        self.send(call).await?.object()
    }

    /// Creates an object that must not exist yet. With `generateName` the server makes its name up, and what it answers
    /// has it; if that answer is lost ([`WriteError::Unknown`]) only a look at the server tells whether there is one.
    pub async fn create(&self, api: &ApiResource, object: &Value) -> Result<Value, WriteError> {
        let key = key_to_create(object)?;
        self.send(Call { operation: Operation::Create, api, key: &key, subresource: "", body: Some(object) }).await?.value()
    }

    /// Replaces an object, which must carry the resource version it was read at.
    pub async fn replace(&self, api: &ApiResource, object: &Value) -> Result<Value, WriteError> {
        let key = key_of(object)?;
        if object.pointer("/metadata/resourceVersion").and_then(Value::as_str).is_none_or(str::is_empty) {
            let path = FieldPath::new("metadata").child("resourceVersion");
            let error = FieldError::required(path, "a replaced object must be the one that was read");
            return Err(WriteError::invalid(&FieldErrors::from(error)));
        }
        self.send(Call { operation: Operation::Update, api, key: &key, subresource: "", body: Some(object) }).await?.value()
    }

    /// Patches an object, or one of its subresources (`"status"`, `"scale"`; `""` for the object itself).
    pub async fn patch(
        &self,
        api: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        patch: Patch,
    ) -> Result<Value, WriteError> {
        let (operation, body) = match patch {
            Patch::Merge { mut patch, resource_version } => {
                if !patch["metadata"].is_object() {
                    patch["metadata"] = json!({});
                }
                patch["metadata"]["resourceVersion"] = json!(resource_version);
                (Operation::Patch(MERGE_PATCH), patch)
            }
            Patch::Json(patch) => (Operation::Patch(JSON_PATCH), patch),
        };
        self.send(Call { operation, api, key, subresource, body: Some(&body) }).await?.value()
    }

    /// Deletes just this object: not another one that has its name by now. That it is gone already is fine. Its
    /// dependents go in the background.
    pub async fn delete(&self, api: &ApiResource, live: &Value) -> Result<Deleted, WriteError> {
        let key = key_of(live)?;
        if uid(live).is_empty() {
            let path = FieldPath::new("metadata").child("uid");
            let error = FieldError::required(path, "only an object that was read can be deleted");
            return Err(WriteError::invalid(&FieldErrors::from(error)));
        }
        if is_deleting(live) {
            return Ok(Deleted::Leaving);
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid(live)},
            "propagationPolicy": "Background",
        });
        let call = Call { operation: Operation::Delete, api, key: &key, subresource: "", body: Some(&body) };
        match self.send(call).await {
            Ok(answer) => {
                self.settle(Slot::new(api, &key, false), None);
                self.settle(Slot::new(api, &key, true), None);
                let answer = answer.value()?;
                // Servers answer with the object as it was, or with a Status, when it is gone at once.
                Ok(if is_deleting(&answer) { Deleted::Going(answer) } else { Deleted::Gone })
            }
            Err(WriteError::NotFound { missing: Missing::Object | Missing::Namespace, .. }) => Ok(Deleted::Absent),
            Err(error) => Err(error),
        }
    }

    /// Deletes the object of this name, which is read first: a delete names its uid.
    pub async fn delete_named(&self, api: &ApiResource, key: &ObjectKey) -> Result<Deleted, WriteError> {
        match self.get(api, key).await? {
            Some(live) => self.delete(api, &live).await,
            None => Ok(Deleted::Absent),
        }
    }

    /// Remembers that this version of an object has what is to be applied. A version never changes, so that stays true.
    fn know(&self, given: Digest, live: &Object) {
        let (uid, version) = (live.uid(), live.resource_version());
        if uid.is_empty() || version.is_empty() {
            return;
        }
        let mut known = self.0.known.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(sum(&[uid]), given.and(version));
    }

    fn is_known(&self, given: Digest, live: &Object) -> bool {
        self.0.known.lock().get(&sum(&[live.uid()])) == Some(&given.and(live.resource_version()))
    }

    /// Remembers what is left of the differences after an apply.
    fn settle(&self, slot: Slot, left: Option<Digest>) {
        let mut settled = self.0.settled.lock();
        match left {
            Some(left) => {
                if settled.len() >= MOST_SETTLED {
                    settled.clear();
                }
                settled.insert(slot, left);
            }
            None => drop(settled.remove(&slot)),
        }
    }

    /// Remembers what the server does not take of a status.
    pub(crate) fn settle_status(&self, api: &ApiResource, key: &ObjectKey, left: Option<Value>) {
        self.settle(Slot::new(api, key, true), left.as_ref().map(Digest::of));
    }

    /// Whether the server did not take just this when it was last written.
    pub(crate) fn is_refused_status(
        &self,
        api: &ApiResource,
        key: &ObjectKey,
        patch: impl FnOnce() -> Option<Value>,
    ) -> bool {
        let settled = self.0.settled.lock();
        // Mostly nothing was refused, and nothing has to be summed up.
        let refused = if settled.is_empty() { None } else { settled.get(&Slot::new(api, key, true)).copied() };
        refused.is_some() && refused == patch().as_ref().map(Digest::of)
    }
}

/// The sum of all that decides what an apply makes of an object.
fn given<C: Serialize + ?Sized>(
    api: &ApiResource,
    config: &C,
    options: ApplyOptions<'_>,
) -> Result<Digest, WriteError> {
    let text = serde_json::to_string(config).map_err(unwritable)?;
    let mut given = sum(&[&api.api_version, options.namespace.unwrap_or_default(), &text]);
    if let Some(Owner { api_version, kind, key, uid }) = options.owner {
        let namespace = key.namespace().unwrap_or_default();
        [api_version, kind, namespace, key.name(), uid].iter().for_each(|text| given.text(text));
    }
    Ok(given)
}

/// Puts an object into a namespace, unless it says where it belongs.
fn place(config: &mut Value, namespace: &str) {
    if let Some(Value::Object(metadata)) = config.get_mut("metadata")
        && metadata.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty)
    {
        metadata.insert("namespace".into(), namespace.into());
    }
}

fn unwritable(error: serde_json::Error) -> WriteError {
    WriteError::Other { code: 0, message: error.to_string() }
}

/// An answer, unless what was asked for does not exist.
fn if_there<T>(answer: Result<T, WriteError>) -> Result<Option<T>, WriteError> {
    match answer {
        Err(WriteError::NotFound { missing: Missing::Object | Missing::Namespace, .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

/// The sum of some texts.
fn sum(texts: &[&str]) -> Digest {
    let mut sum = Digest::default();
    texts.iter().for_each(|text| sum.text(text));
    sum
}

impl Slot {
    fn new(api: &ApiResource, key: &ObjectKey, status: bool) -> Self {
        Self { group: api.group.clone(), kind: api.kind.clone(), key: key.clone(), status }
    }
}

impl Applied {
    /// The object as the server answered; none if nothing was sent.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Self::Unchanged => None,
            Self::Created(object) | Self::Updated(object) => Some(object),
        }
    }
}

impl fmt::Display for FieldManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("manager", &self.0.manager).finish_non_exhaustive()
    }
}
