//! One reconcile of one object, without the object's Rust type: what [`Context`](crate::Context) and
//! [`Objects`](crate::Objects) are handles of. In: the object and why it is reconciled. Out: whom children belong to, where
//! they go, and writes to the object's own status.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_core::ObjectKey;
use konverge_runtime::{
    Adopt, Cause, Condition, Error, Object, Owner, OwnerCheck, READY, Result, StatusUpdate, WriteError,
};
use serde::Serialize;
use serde_json::Value;

use crate::api_kind::ApiKind;
use crate::cached_client::CachedClient;
use crate::kind::Scope;
use crate::objects::{Absence, no_namespace};

/// The field of a status that says which generation of the object it describes.
const OBSERVED_GENERATION: &str = "observedGeneration";

pub(crate) struct Reconciliation {
    /// The object as the reconcile began with it.
    pub object: Arc<Object>,
    pub key: ObjectKey,
    pub causes: Arc<[Arc<Cause>]>,
    pub cached: Arc<CachedClient>,
    /// Whether the operator's code set or removed the condition `Ready` in this reconcile: then the framework leaves that
    /// condition alone.
    sets_ready: AtomicBool,
    /// Whether the object may still adopt others, asked of the server when it first would.
    owner_check: OwnerCheck,
}

impl Reconciliation {
    pub(crate) fn new(cached: Arc<CachedClient>, object: Arc<Object>, causes: Arc<[Arc<Cause>]>) -> Self {
        let (key, sets_ready, owner_check) = (object.key(), AtomicBool::new(false), OwnerCheck::default());
        Self { object, key, causes, cached, sets_ready, owner_check }
    }

    /// The object with what was written to it in this reconcile.
    pub(crate) fn current(&self) -> Arc<Object> {
        let current = self.cached.controller.primary_of(&self.key).get(&self.key);
        current.filter(|current| current.uid() == self.object.uid()).unwrap_or_else(|| self.object.clone())
    }

    /// Whether the operator's code set or removed the condition `Ready` in this reconcile.
    pub(crate) fn sets_ready(&self) -> bool {
        self.sets_ready.load(Relaxed)
    }

    /// The reconciled object as an owner.
    pub(crate) fn owner(&self) -> Owner {
        let api = self.cached.kind.resource();
        Owner {
            api_version: api.api_version.clone(),
            kind: api.kind.clone(),
            key: self.key.clone(),
            uid: self.object.uid().to_owned(),
        }
    }

    /// Whether children may be adopted that exist already. Nothing at all may be applied by a reconcile during which the
    /// deletion of the object began: only its cleanup knows which children are still needed.
    pub(crate) fn adopt(&self) -> Result<Adopt<'_>> {
        if self.object.is_terminating() {
            return Ok(Adopt::Never);
        }
        self.refuse_if_deleting()?;
        Ok(Adopt::IfAlive { api: self.cached.kind.resource(), check: &self.owner_check })
    }

    /// Refuses if the deletion of the object began since this reconcile did.
    pub(crate) fn refuse_if_deleting(&self) -> Result<()> {
        if self.object.is_terminating() || !self.current().is_terminating() {
            return Ok(());
        }
        let (kind, key) = (self.cached.kind.name(), &self.key);
        let message = format!("{kind} {key} is being deleted since this reconcile began, so nothing is applied for it");
        Err(WriteError::Conflict { message, fields: Vec::new() }.into())
    }

    /// Refuses to reach from the namespace of the object into another one, unless the operator declares that it does.
    pub(crate) fn may_reach(&self, namespace: Option<&str>) -> Result<()> {
        let (Some(own), Some(other)) = (self.key.namespace(), namespace) else { return Ok(()) };
        if own == other || self.cached.across_namespaces {
            return Ok(());
        }
        let (kind, key) = (self.cached.kind.name(), &self.key);
        let refused = Error::permanent(format!(
            "{kind} {key} reaches into the namespace {other:?}, where its author may have no rights; if that is meant, \
             declare .across_namespaces() on the controller"
        ));
        Err(refused.reason("OtherNamespace"))
    }

    /// Where an object goes: its own namespace if it names one, else `default`.
    pub(crate) fn namespace_of<'a>(
        &self,
        kind: &ApiKind,
        default: Option<&'a str>,
        meta: &'a ObjectMeta,
    ) -> Result<Option<&'a str>> {
        let named = meta.namespace.as_deref().filter(|text| !text.is_empty());
        match (kind.scope(), named.or(default)) {
            (Scope::Cluster, _) => Ok(None),
            (Scope::Namespaced, Some(namespace)) => self.may_reach(Some(namespace)).map(|()| Some(namespace)),
            (Scope::Namespaced, None) => {
                Err(no_namespace(kind.name(), meta.name.as_deref().unwrap_or("without a name")))
            }
        }
    }

    /// The key of an object that is to be applied; without a namespace of its own it goes into `default`.
    pub(crate) fn key_of(&self, kind: &ApiKind, default: Option<&str>, meta: &ObjectMeta) -> Result<ObjectKey> {
        let Some(name) = meta.name.as_deref().filter(|text| !text.is_empty()) else {
            return Err(Error::permanent(format!("a {} has to have a name; give it one", kind.name())));
        };
        Ok(ObjectKey::new(self.namespace_of(kind, default, meta)?, name))
    }

    /// A cleanup is done once, so it does not take a cache's word for it that something is not there.
    pub(crate) fn absence(&self) -> Absence {
        if self.object.is_terminating() { Absence::Doubted } else { Absence::Believed }
    }

    /// A status as JSON, with the generation that it describes, if it has a field for that.
    pub(crate) fn with_observed_generation(&self, status: impl Serialize) -> Result<Value> {
        let mut fields = serde_json::to_value(status)?;
        if let (Some(generation), Some(all)) = (self.object.generation(), fields.as_object_mut()) {
            // A status that was read and changed brings the old generation along.
            let read = self.object.pointer("/status/observedGeneration").and_then(|text| text.parse::<i64>().ok());
            let is_unset = |given: &Value| given.is_null() || given == 0 || read.is_some() && given.as_i64() == read;
            let is_unset = all.get(OBSERVED_GENERATION).is_none_or(is_unset);
            if is_unset && (self.cached.observes_generation || all.contains_key(OBSERVED_GENERATION)) {
                all.insert(OBSERVED_GENERATION.to_owned(), generation.into());
            }
        }
        Ok(fields)
    }

    /// Writes a status that the operator's code sets.
    pub(crate) async fn write_status(&self, update: StatusUpdate) -> Result<()> {
        if is_about_ready(&update) {
            self.sets_ready.store(true, Relaxed);
        }
        self.send_status(update).await
    }

    /// Sets a condition that the operator's code did not ask for.
    pub(crate) async fn set_framework_condition(&self, condition: Condition) -> Result<()> {
        self.send_status(StatusUpdate::conditions([condition])).await
    }

    /// Removes a condition that the operator's code did not ask for.
    pub(crate) async fn remove_framework_condition(&self, type_: &str) -> Result<()> {
        self.send_status(StatusUpdate { removed: vec![type_.to_owned()], ..StatusUpdate::default() }).await
    }

    async fn send_status(&self, update: StatusUpdate) -> Result<()> {
        let Self { cached, object, .. } = self;
        let api = cached.kind.resource();
        // The update goes on top of earlier writes of this reconcile, but describes the generation that was reconciled.
        let update = StatusUpdate { observed: object.generation(), ..update };
        if let Some(written) = cached.writer.set_status(api, &self.current(), &update, Timestamp::now()).await? {
            cached.wrote(api, &written)?;
        }
        Ok(())
    }
}

/// Whether an update sets or removes the condition `Ready`.
fn is_about_ready(update: &StatusUpdate) -> bool {
    let mut given = update.fields["conditions"].as_array().into_iter().flatten();
    update.conditions.iter().any(|condition| condition.type_ == READY)
        || update.removed.iter().any(|type_| type_ == READY)
        || given.any(|condition| condition["type"] == READY)
}
