//! Every write an operator makes to objects. In: what should be, and the object as the cache has it. Out: the object as
//! the server answered, for the cache to show until the watch brings it. Never reads where the cache has the answer,
//! never writes what would change nothing. Whether this instance may write at all is decided in the client (`gate.rs`).
//!
//! ```text
//! apply    server-side apply, if it would change something
//! config   what is to be applied, marked with a digest of itself
//! skip     would it change anything?          (pure; types, equal, digest help)
//! owner    whom it belongs to                 (pure)
//! adopt    may it be taken over, if it exists already?
//! memory   what was compared or written before
//! send     one request and its answer
//! finalizer, set                              what takes more than one request
//! ```

mod adopt;
mod apply;
mod config;
mod digest;
mod equal;
mod finalizer;
mod manager;
mod memory;
mod owner;
mod send;
mod set;
mod skip;
mod types;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use konverge_core::{FieldError, FieldPath, ObjectKey};
use konverge_schema::CompileError;
use kube::Client;
use kube::core::ApiResource;
use serde_json::{Value, json};

pub use adopt::{Adopt, OwnerCheck};
pub use apply::{Applied, ApplyOptions, Conflicts};
pub(crate) use config::key_of;
use config::key_to_create;
pub(crate) use digest::Digest;
pub(crate) use equal::same_value;
pub use finalizer::Finalized;
pub(crate) use finalizer::{is_deleting, uid};
pub use manager::FieldManager;
pub(crate) use memory::Memory;
use memory::Slot;
pub use owner::{OWNER_ANNOTATION, Owner};
pub(crate) use owner::{annotation_prefix, group_of};
pub(crate) use send::{Call, JSON_PATCH, MERGE_PATCH, Operation};
pub use set::{Child, Member, OWNER_LABEL, SET_LABEL, SetReport, SetStep};
use types::Types;

use crate::error::{FieldErrors, Missing, WriteError};
use crate::object::Object;

/// Writes objects. Clones share everything.
#[derive(Clone)]
pub struct Writer(Arc<Inner>);

struct Inner {
    client: Client,
    manager: FieldManager,
    timeout: Duration,
    types: Types,
    memory: Memory,
}

/// How a [`Writer`] writes.
pub struct WriterOptions {
    /// How long an answer may take. After that the outcome of a write is unknown.
    pub timeout: Duration,
}

/// What became of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// The deletion has begun; this is the object until its finalizers are done.
    Terminating(Value),
    /// Its deletion had begun before: nothing was sent.
    AlreadyTerminating,
    /// There was no such object any more.
    NotFound,
}

/// A patch, with what it expects to find.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
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
        Self(Arc::new(Inner { client, manager, timeout, types: Types::default(), memory: Memory::default() }))
    }

    /// The name under which this writer owns fields.
    pub fn manager(&self) -> &FieldManager {
        &self.0.manager
    }

    /// What this writer remembers of the objects it wrote.
    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Learns the schema of a custom resource (a CRD's `openAPIV3Schema`), so that its lists are compared item by item
    /// and its defaults are known. Without it lists are compared whole, which is right but for lists that several
    /// managers share.
    pub fn learn(&self, api: &ApiResource, schema: &Value) -> Result<(), CompileError> {
        self.0.types.learn(api, schema)
    }

    /// Reads an object from the server, past the cache.
    pub async fn get(&self, api: &ApiResource, key: &ObjectKey) -> Result<Option<Value>, WriteError> {
        if_there(self.send(Call::get(api, key)).await)?.map(|answer| answer.value()).transpose()
    }

    /// Reads an object from the server, as a cache would show it.
    pub(crate) async fn get_object(
        &self,
        api: &ApiResource,
        key: &ObjectKey,
    ) -> Result<Option<Arc<Object>>, WriteError> {
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
        self.send(Call { operation: Operation::Create, api, key: &key, subresource: "", body: Some(object) })
            .await?
            .value()
    }

    /// Replaces an object, which must carry the resource version it was read at.
    pub async fn replace(&self, api: &ApiResource, object: &Value) -> Result<Value, WriteError> {
        let key = key_of(object)?;
        if object.pointer("/metadata/resourceVersion").and_then(Value::as_str).is_none_or(str::is_empty) {
            let path = FieldPath::new("metadata").child("resourceVersion");
            let error = FieldError::required(path, "a replaced object must be the one that was read");
            return Err(WriteError::invalid(&FieldErrors::from(error)));
        }
        self.send(Call { operation: Operation::Update, api, key: &key, subresource: "", body: Some(object) })
            .await?
            .value()
    }

    /// Patches an object, or one of its subresources (`"status"`, `"scale"`; `""` for the object itself). A merge patch
    /// without a resource version, or that is no JSON object, is refused as invalid.
    pub async fn patch(
        &self,
        api: &ApiResource,
        key: &ObjectKey,
        subresource: &str,
        patch: Patch,
    ) -> Result<Value, WriteError> {
        let (operation, body) = match patch {
            Patch::Merge { mut patch, resource_version } => {
                check_merge(&patch, &resource_version)?;
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
            return Ok(Deleted::AlreadyTerminating);
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
                self.0.memory.remember_remaining_differences(Slot::new(api, &key, false), None);
                self.0.memory.remember_remaining_differences(Slot::new(api, &key, true), None);
                let answer = answer.value()?;
                // Servers answer with the object as it was, or with a Status, when it is gone at once.
                Ok(if is_deleting(&answer) { Deleted::Terminating(answer) } else { Deleted::Gone })
            }
            Err(WriteError::NotFound { missing: Missing::Object | Missing::Namespace, .. }) => Ok(Deleted::NotFound),
            Err(error) => Err(error),
        }
    }

    /// Deletes the object of this name, which is read first: a delete names its uid.
    pub async fn delete_named(&self, api: &ApiResource, key: &ObjectKey) -> Result<Deleted, WriteError> {
        match self.get(api, key).await? {
            Some(live) => self.delete(api, &live).await,
            None => Ok(Deleted::NotFound),
        }
    }
}

/// Refuses a merge patch that guards nothing, and one that is none.
fn check_merge(patch: &Value, resource_version: &str) -> Result<(), WriteError> {
    let path = FieldPath::new("metadata").child("resourceVersion");
    let error = match patch {
        Value::Object(_) if !resource_version.is_empty() => return Ok(()),
        Value::Object(_) => FieldError::required(path, "a merge patch must name the version that it was made for"),
        _ => {
            FieldError::invalid(FieldPath::new("patch"), patch.clone(), "a merge patch of an object must be an object")
        }
    };
    Err(WriteError::invalid(&FieldErrors::from(error)))
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

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("manager", &self.0.manager).finish_non_exhaustive()
    }
}
