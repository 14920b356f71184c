//! The garbage collector: what goes when its owner goes. In: the metadata of every object that can be deleted. Out: deletions
//! and small patches. The caches are the graph: each finds what an owner has. What becomes of an object is decided by
//! `konverge_core`, as for the collector of the API server; here is how its owners stand, which is asked of the server before
//! anything is deleted.
//!
//! ```text
//! owner gone            → what depends on it and on nobody else is deleted
//! foregroundDeletion    → what depends on it goes first, then the finalizer
//! orphan                → what depends on it forgets it, then the finalizer
//! ```
//!
//! Keys are of two kinds. The name of a CustomResourceDefinition says that there are other kinds now; a [`Place`] says that
//! something happened to an object, or to one that it knows.

mod gone;
mod place;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use konverge_core::{
    Decision, Deletion, Dependents, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ObjectKey, OwnerReference, OwnerState,
    Ownership,
};
use konverge_runtime::{Action, Cause, Controller, Error, Patch, Result, Run, What};
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::kinds::{self, Kinds};
use crate::meta::Meta;
use crate::plane::{Plane, Task};
use crate::requests::DeleteOptions;

use gone::Gone;
use place::Place;
use watched::{Found, Watched, concerned, ownership};

/// As kube-controller-manager calls it.
pub(crate) const NAME: &str = "garbage-collector-controller";

/// How many objects are looked at at once: most of the time each waits for its request.
const CONCURRENCY: usize = 32;

/// When to look again while a cache is being filled.
const NOT_FILLED: Duration = Duration::from_millis(100);

/// A server may show the kinds of a new definition a little after the definition itself.
const SHOWN_LATE: Duration = Duration::from_secs(2);

/// Starts the collector.
pub(crate) fn start(plane: &Plane) -> Task {
    let desk = plane.desk(NAME);
    let options = konverge_runtime::ControllerOptions {
        concurrency: CONCURRENCY,
        ..konverge_runtime::ControllerOptions::default()
    };
    let controller = desk.controller_with(kinds::definitions(), options);
    let this = Arc::new(Collector {
        kinds: plane.kinds.clone(),
        watched: Watched::default(),
        gone: Arc::default(),
        controller: controller.clone(),
        desk: desk.clone(),
    });
    // Nobody has to install a kind of their own before anything is collected.
    controller.wake(&ObjectKey::new(None, ""), cause("CustomResourceDefinition", ObjectKey::new(None, "")));
    desk.work(controller, move |run| this.clone().reconcile(run))
}

struct Collector {
    desk: Desk,
    kinds: Kinds,
    watched: Watched,
    gone: Arc<Gone>,
    controller: Arc<Controller>,
}

impl Collector {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let Some(place) = Place::read(&run.key) else {
            self.learn_kinds().await?;
            let late = run.causes.iter().any(|cause| cause.what != What::Resync);
            return Ok(if late { Action::requeue(SHOWN_LATE) } else { Action::Wait });
        };
        match self.watched.find(&place) {
            Some(found) => self.look(&found).await,
            None => {
                self.watched.dependents(&place.uid).iter().for_each(|found| self.wake(found));
                Ok(Action::Wait)
            }
        }
    }

    /// Watches every kind there is, and no other.
    async fn learn_kinds(&self) -> Result<()> {
        self.kinds.forget();
        let kinds = self.kinds.get(&self.desk.caches).await?;
        let (controller, gone) = (Arc::downgrade(&self.controller), self.gone.clone());
        self.watched.update(&self.desk.caches, &kinds, move |api, change| {
            let Some(controller) = controller.upgrade() else { return };
            if change.is_delete() {
                gone.note(&Place::of(api, change.object()));
            }
            for key in concerned(api, change) {
                controller.wake(&key, cause(&api.kind, key.clone()));
            }
        });
        Ok(())
    }

    /// Does the next thing for an object.
    async fn look(&self, found: &Found) -> Result<Action> {
        let meta = found.meta()?;
        let this = ownership(&found.object);
        match this.deletion() {
            Deletion::None => self.owned(found, &meta, &this).await,
            Deletion::Under => Ok(Action::Wait),
            Deletion::Foreground => self.foreground(found, &meta, &this).await,
            Deletion::Orphan => self.orphan(found, &meta).await,
        }
    }

    /// An object that stays as long as one of its owners does.
    async fn owned(&self, found: &Found, meta: &Meta, this: &Ownership) -> Result<Action> {
        let mut owners = Vec::with_capacity(this.owners.len());
        for owner in &this.owners {
            owners.push(self.state_of(found, meta, owner).await?);
        }
        // What depends on an object counts only if one of its owners waits, which is rare.
        let dependents = match owners.contains(&OwnerState::Waiting) {
            true => Dependents::of(&self.dependents(&meta.uid)),
            false => Dependents::None,
        };
        match this.decide(&owners, dependents) {
            Decision::Keep => {}
            Decision::Forget(uids) => {
                let kept = |owner: &Value| !uids.iter().any(|uid| owner["uid"] == uid.as_str());
                self.set_owners(found, meta, |owners| owners.retain(kept)).await?;
            }
            Decision::Delete { propagation, unblock } => {
                if unblock {
                    self.set_owners(found, meta, |owners| {
                        owners.iter_mut().for_each(|owner| owner["blockOwnerDeletion"] = false.into());
                    })
                    .await?;
                }
                // Not if it has changed since: somebody may have taken it.
                let version = (!unblock).then_some(meta.resource_version.as_str());
                let options = DeleteOptions {
                    uid: &meta.uid,
                    resource_version: version,
                    propagation: Some(propagation.as_str()),
                    ..DeleteOptions::default()
                };
                self.desk.delete(&found.kind.api, &found.object.key(), &options).await?;
            }
        }
        Ok(Action::Wait)
    }

    /// How an owner stands. That it is not in a cache proves nothing, so the server is asked.
    async fn state_of(&self, found: &Found, meta: &Meta, owner: &OwnerReference) -> Result<OwnerState> {
        let beside = [found.object.namespace(), None].map(|namespace| Place::of_owner(owner, namespace));
        if beside.iter().any(|place| self.gone.has(place)) {
            return Ok(OwnerState::Absent);
        }
        let Some(kind) = self.watched.kind(&owner.api_version, &owner.kind) else {
            // It may have been installed a moment ago, or never will be; what it owns stays.
            self.learn_kinds().await?;
            if self.watched.kind(&owner.api_version, &owner.kind).is_none() {
                let (kind, key) = (&owner.kind, found.object.key());
                return Err(Error::new(format!("{key} belongs to a {kind}, a kind that the server does not know")));
            }
            return Err(Error::new("the kinds have changed"));
        };
        if kind.namespaced && !found.kind.namespaced {
            let message = format!(
                "ownerRef [{}/{}, namespace: , name: {}, uid: {}] does not exist in namespace \"\"",
                owner.api_version, owner.kind, owner.name, owner.uid
            );
            let subject = Arc::new(meta.subject(&found.kind.api));
            self.desk.warning(&subject, "OwnerRefInvalidNamespace", message);
            return Ok(OwnerState::Solid);
        }
        let place = Place::of_owner(owner, found.object.namespace().filter(|_| kind.namespaced));
        if let Some(there) = self.watched.find(&place) {
            return Ok(ownership(&there.object).as_owner());
        }
        let fresh = self.desk.writer.get(&kind.api, &place.object).await?;
        let Some(fresh) = fresh.filter(|fresh| fresh["metadata"]["uid"] == owner.uid.as_str()) else {
            self.gone.note(&place);
            return Ok(OwnerState::Absent);
        };
        Ok(serde_json::from_value::<Ownership>(fresh["metadata"].clone())?.as_owner())
    }

    /// An object that goes after what depends on it.
    async fn foreground(&self, found: &Found, meta: &Meta, this: &Ownership) -> Result<Action> {
        if !self.watched.is_filled() {
            return Ok(Action::requeue(NOT_FILLED));
        }
        let dependents = self.watched.dependents(&meta.uid);
        if !this.may_go(&self.dependents(&meta.uid)) {
            dependents.iter().filter(|found| !found.object.is_terminating()).for_each(|found| self.wake(found));
            return Ok(Action::Wait);
        }
        self.remove_finalizer(found, meta, FOREGROUND_FINALIZER).await
    }

    /// An object that goes and leaves what depends on it.
    async fn orphan(&self, found: &Found, meta: &Meta) -> Result<Action> {
        if !self.watched.is_filled() {
            return Ok(Action::requeue(NOT_FILLED));
        }
        let dependents = self.watched.dependents(&meta.uid);
        let releases = dependents.iter().map(|dependent| async move {
            let kept = |owner: &Value| owner["uid"] != meta.uid.as_str();
            self.set_owners(dependent, &dependent.meta()?, |owners| owners.retain(kept)).await
        });
        for released in self.desk.together(releases).await {
            released?;
        }
        self.remove_finalizer(found, meta, ORPHAN_FINALIZER).await
    }

    /// Gives an object other owners, if it has not changed since.
    async fn set_owners(&self, found: &Found, meta: &Meta, change: impl FnOnce(&mut Vec<Value>)) -> Result<()> {
        let mut owners = found.owners();
        change(&mut owners);
        let owners = if owners.is_empty() { Value::Null } else { owners.into() };
        let patch = json!({"metadata": {"uid": meta.uid, "ownerReferences": owners}});
        self.patch(found, meta, patch).await
    }

    async fn remove_finalizer(&self, found: &Found, meta: &Meta, finalizer: &str) -> Result<Action> {
        let left: Vec<&String> = meta.finalizers.iter().filter(|there| *there != finalizer).collect();
        let left = if left.is_empty() { Value::Null } else { json!(left) };
        self.patch(found, meta, json!({"metadata": {"uid": meta.uid, "finalizers": left}})).await?;
        Ok(Action::Wait)
    }

    async fn patch(&self, found: &Found, meta: &Meta, patch: Value) -> Result<()> {
        let patch = Patch::Merge { patch, resource_version: meta.resource_version.clone() };
        self.desk.patch_if_there(&found.kind.api, &found.object.key(), "", patch).await.map(drop)
    }

    fn dependents(&self, uid: &str) -> Vec<Ownership> {
        self.watched.dependents(uid).iter().map(|found| ownership(&found.object)).collect()
    }

    fn wake(&self, found: &Found) {
        let key = Place::of(&found.kind.api, &found.object).key();
        self.controller.wake(&key, cause(&found.kind.api.kind, found.object.key()));
    }
}

fn cause(kind: &str, key: ObjectKey) -> Cause {
    Cause { kind: kind.into(), key, what: What::Resync, resource_version: String::new() }
}
