//! The garbage collector. In: the metadata of every object that can be deleted. Out: deletions, and patches of owner
//! references and finalizers. The caches are the dependency graph: each finds the dependents of an owner. `konverge_core`
//! decides what happens to an object, as it does for the API server's own collector; this file finds out which owners still
//! exist, and asks the server before it deletes anything.
//!
//! ```text
//! owner absent          → dependents that have no other owner are deleted
//! foregroundDeletion    → dependents are deleted first, then the finalizer is removed
//! orphan                → dependents lose their owner reference, then the finalizer is removed
//! ```
//!
//! The queue holds two sorts of keys. The name of a CustomResourceDefinition means that the set of kinds has changed; an
//! [`ObjectReference`] means that an object, its owner or its dependent has changed.

mod absent_owners;
mod graph;
mod object_reference;

use std::sync::Arc;
use std::time::Duration;

use konverge_core::{
    Decision, Deletion, Dependents, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ObjectKey, OwnerReference, OwnerState,
    Ownership,
};
use konverge_runtime::{Action, Cause, Controller, Error, Patch, Result, Run, What};
use serde_json::{Value, json};

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::discovery::{self, Kind, Kinds};
use crate::meta::Meta;
use crate::requests::DeleteOptions;

use absent_owners::AbsentOwners;
use graph::{Graph, GraphNode, concerned, ownership};
use object_reference::ObjectReference;

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "garbage-collector-controller";

/// How many objects are processed at once: most of the time each waits for its request.
const CONCURRENCY: usize = 32;

/// How soon an object is tried again while a cache is not synced yet.
const NOT_SYNCED: Duration = Duration::from_millis(100);

/// Discovery may show the kinds of a new definition a little after the definition itself, so it is read once more.
const DISCOVERY_LAG: Duration = Duration::from_secs(2);

/// Starts the collector.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let options = konverge_runtime::ControllerOptions {
        concurrency: CONCURRENCY,
        ..konverge_runtime::ControllerOptions::default()
    };
    let controller = ctx.controller_with(discovery::definitions(), options);
    let this = Arc::new(Collector {
        kinds: manager.kinds.clone(),
        graph: Graph::default(),
        absent: Arc::default(),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    // The first key makes the collector discover the kinds even if no CustomResourceDefinition is installed.
    controller.wake(&ObjectKey::new(None, ""), cause("CustomResourceDefinition", ObjectKey::new(None, "")));
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct Collector {
    ctx: ControllerContext,
    kinds: Kinds,
    graph: Graph,
    absent: Arc<AbsentOwners>,
    controller: Arc<Controller>,
}

impl Collector {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let Some(reference) = ObjectReference::from_key(&run.key) else {
            self.sync_kinds().await?;
            let late = run.causes.iter().any(|cause| cause.what != What::Resync);
            return Ok(if late { Action::requeue(DISCOVERY_LAG) } else { Action::Wait });
        };
        match self.graph.find(&reference) {
            Some(node) => self.process(&node).await,
            None => {
                self.graph.dependents(&reference.uid).iter().for_each(|node| self.wake(node));
                Ok(Action::Wait)
            }
        }
    }

    /// Watches every kind that the server has now, and stops watching those that are gone.
    async fn sync_kinds(&self) -> Result<()> {
        self.kinds.forget();
        let kinds = self.kinds.get(&self.ctx.caches).await?;
        let definitions = self.ctx.caches.open(discovery::definitions());
        // A definition goes after all of its objects, and its watch may end here before it has told of their deletions. A kind that is only
        // not served any more still has its objects.
        for (kind, objects) in self.graph.vanished(&kinds) {
            let name = ObjectKey::new(None, &kind.definition());
            if self.ctx.writer.get(&discovery::definitions().resource, &name).await?.is_some() {
                continue;
            }
            for reference in objects.iter().map(|object| ObjectReference::of(&kind.api, object)) {
                self.absent.insert(&reference);
                self.controller.wake(&reference.key(), cause(&kind.api.kind, reference.object));
            }
        }
        let is_defined = |kind: &Kind| definitions.get(&ObjectKey::new(None, &kind.definition())).is_some();
        let (controller, absent) = (Arc::downgrade(&self.controller), self.absent.clone());
        self.graph.update(&self.ctx.caches, &kinds, is_defined, move |api, change| {
            let Some(controller) = controller.upgrade() else { return };
            if change.is_delete() {
                absent.insert(&ObjectReference::of(api, change.object()));
            }
            for key in concerned(api, change) {
                controller.wake(&key, cause(&api.kind, key.clone()));
            }
        });
        Ok(())
    }

    /// Takes the next step for an object.
    async fn process(&self, node: &GraphNode) -> Result<Action> {
        let meta = node.meta()?;
        let this = ownership(&node.object);
        match this.deletion() {
            Deletion::None => self.process_owned(node, &meta, &this).await,
            Deletion::Terminating => Ok(Action::Wait),
            Deletion::Foreground => self.process_foreground(node, &meta, &this).await,
            Deletion::Orphan => self.process_orphan(node, &meta).await,
        }
    }

    /// Deletes an object if none of its owners is left.
    async fn process_owned(&self, node: &GraphNode, meta: &Meta, this: &Ownership) -> Result<Action> {
        let mut owners = Vec::with_capacity(this.owners.len());
        for owner in &this.owners {
            owners.push(self.state_of(node, meta, owner).await?);
        }
        // The object's own dependents matter only if one of its owners is deleted in the foreground, which is rare.
        let dependents = match owners.contains(&OwnerState::Waiting) {
            true => Dependents::of(&self.dependents(&meta.uid)),
            false => Dependents::None,
        };
        match this.decide(&owners, dependents) {
            Decision::Keep => {}
            Decision::Forget(uids) => {
                let kept = |owner: &Value| !uids.iter().any(|uid| owner["uid"] == uid.as_str());
                self.set_owners(node, meta, |owners| owners.retain(kept)).await?;
            }
            Decision::Delete { propagation, unblock } => {
                if unblock {
                    self.set_owners(node, meta, |owners| {
                        owners.iter_mut().for_each(|owner| owner["blockOwnerDeletion"] = false.into());
                    })
                    .await?;
                }
                // The delete names the resource version, because another owner may have adopted the object meanwhile.
                let version = (!unblock).then_some(meta.resource_version.as_str());
                let options = DeleteOptions {
                    uid: &meta.uid,
                    resource_version: version,
                    propagation: Some(propagation.as_str()),
                    ..DeleteOptions::default()
                };
                self.ctx.delete(&node.kind.api, &node.object.key(), &options).await?;
            }
        }
        Ok(Action::Wait)
    }

    /// Whether an owner exists and whether it waits for its dependents. An owner that is missing in a cache may still exist,
    /// so the server is asked.
    async fn state_of(&self, node: &GraphNode, meta: &Meta, owner: &OwnerReference) -> Result<OwnerState> {
        let beside = [node.object.namespace(), None].map(|namespace| ObjectReference::of_owner(owner, namespace));
        if beside.iter().any(|reference| self.absent.contains(reference)) {
            return Ok(OwnerState::Absent);
        }
        let Some(kind) = self.graph.kind(&owner.api_version, &owner.kind) else {
            // The kind may have been installed a moment ago, or may never be. The dependent is kept until that is clear.
            self.sync_kinds().await?;
            if self.graph.kind(&owner.api_version, &owner.kind).is_none() {
                let (kind, key) = (&owner.kind, node.object.key());
                return Err(Error::new(format!("{key} has an owner of kind {kind}, which the server does not serve")));
            }
            return Err(Error::new("the set of kinds has changed; trying again"));
        };
        if kind.namespaced && !node.kind.namespaced {
            let message = format!(
                "ownerRef [{}/{}, namespace: , name: {}, uid: {}] does not exist in namespace \"\"",
                owner.api_version, owner.kind, owner.name, owner.uid
            );
            let subject = Arc::new(meta.subject(&node.kind.api));
            self.ctx.warning(&subject, "OwnerRefInvalidNamespace", message);
            return Ok(OwnerState::Present);
        }
        let reference = ObjectReference::of_owner(owner, node.object.namespace().filter(|_| kind.namespaced));
        if let Some(there) = self.graph.find(&reference) {
            return Ok(ownership(&there.object).as_owner());
        }
        let fresh = self.ctx.writer.get(&kind.api, &reference.object).await?;
        let Some(fresh) = fresh.filter(|fresh| fresh["metadata"]["uid"] == owner.uid.as_str()) else {
            self.absent.insert(&reference);
            return Ok(OwnerState::Absent);
        };
        Ok(serde_json::from_value::<Ownership>(fresh["metadata"].clone())?.as_owner())
    }

    /// Foreground deletion: removes the finalizer once all blocking dependents are gone.
    async fn process_foreground(&self, node: &GraphNode, meta: &Meta, this: &Ownership) -> Result<Action> {
        if !self.graph.is_synced() {
            return Ok(Action::requeue(NOT_SYNCED));
        }
        let dependents = self.graph.dependents(&meta.uid);
        if !this.may_be_removed(&self.dependents(&meta.uid)) {
            dependents.iter().filter(|node| !node.object.is_terminating()).for_each(|node| self.wake(node));
            return Ok(Action::Wait);
        }
        self.remove_finalizer(node, meta, FOREGROUND_FINALIZER).await
    }

    /// Deletion with `orphan`: removes the owner references of all dependents, then the finalizer.
    async fn process_orphan(&self, node: &GraphNode, meta: &Meta) -> Result<Action> {
        if !self.graph.is_synced() {
            return Ok(Action::requeue(NOT_SYNCED));
        }
        let dependents = self.graph.dependents(&meta.uid);
        let releases = dependents.iter().map(|dependent| async move {
            let kept = |owner: &Value| owner["uid"] != meta.uid.as_str();
            self.set_owners(dependent, &dependent.meta()?, |owners| owners.retain(kept)).await
        });
        for released in self.ctx.in_parallel(releases).await {
            released?;
        }
        self.remove_finalizer(node, meta, ORPHAN_FINALIZER).await
    }

    /// Changes the owner references of an object; fails with a conflict if the object has changed since it was read.
    async fn set_owners(&self, node: &GraphNode, meta: &Meta, change: impl FnOnce(&mut Vec<Value>)) -> Result<()> {
        let mut owners = node.owners();
        change(&mut owners);
        let owners = if owners.is_empty() { Value::Null } else { owners.into() };
        let patch = json!({"metadata": {"uid": meta.uid, "ownerReferences": owners}});
        self.patch(node, meta, patch).await
    }

    async fn remove_finalizer(&self, node: &GraphNode, meta: &Meta, finalizer: &str) -> Result<Action> {
        let left: Vec<&String> = meta.finalizers.iter().filter(|there| *there != finalizer).collect();
        let left = if left.is_empty() { Value::Null } else { json!(left) };
        self.patch(node, meta, json!({"metadata": {"uid": meta.uid, "finalizers": left}})).await?;
        Ok(Action::Wait)
    }

    async fn patch(&self, node: &GraphNode, meta: &Meta, patch: Value) -> Result<()> {
        let patch = Patch::Merge { patch, resource_version: meta.resource_version.clone() };
        self.ctx.patch_if_exists(&node.kind.api, &node.object.key(), "", patch).await.map(drop)
    }

    fn dependents(&self, uid: &str) -> Vec<Ownership> {
        self.graph.dependents(uid).iter().map(|node| ownership(&node.object)).collect()
    }

    fn wake(&self, node: &GraphNode) {
        let key = ObjectReference::of(&node.kind.api, &node.object).key();
        self.controller.wake(&key, cause(&node.kind.api.kind, node.object.key()));
    }
}

fn cause(kind: &str, key: ObjectKey) -> Cause {
    Cause { kind: kind.into(), key, what: What::Resync, resource_version: String::new() }
}
