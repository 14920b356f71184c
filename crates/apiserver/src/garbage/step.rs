//! The next step for one object: nothing, a deletion, or a small patch. In: an object and the graph. Out: whether the step was
//! done. Each step is idempotent.

use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

use konverge_core::{
    Decision, Deletion, Dependents, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, OwnerReference, OwnerState, Ownership,
    Status,
};
use konverge_store::Entry;

use super::graph::{Found, Graph, find, ownership};
use super::{graph, namespace};
use crate::context::RequestContext;
use crate::delete::{DeleteOptions, delete};
use crate::meta;
use crate::resource::Resource;
use crate::server::Server;
use crate::tasks::{TaskStep, run_concurrently};
use crate::write::{WriteOutcome, WriteRequest};

/// Does the next step for one object.
pub(super) async fn process(
    graph: &RwLock<Graph>,
    server: &Arc<Server>,
    context: &RequestContext,
    namespaces: &RequestContext,
    key: &str,
) -> Result<(), Status> {
    let Some((resource, entry)) = graph::read(server, key) else { return Ok(()) };
    let this = Object { server, context, resource: &resource, entry: &entry, ownership: ownership(&entry) };
    let deletion = this.ownership.deletion();
    let is_namespace = &*resource.kind == "Namespace" && resource.group.is_empty();
    let emptied = match deletion {
        Deletion::Terminating | Deletion::Foreground | Deletion::Orphan if is_namespace => {
            namespace::empty(server, namespaces, this.identity().1).await
        }
        _ => Ok(()),
    };
    // A namespace waits for its content and for objects that have it as an owner.
    let processed = match deletion {
        Deletion::None => this.owned(graph).await,
        Deletion::Terminating => Ok(()),
        Deletion::Foreground => this.foreground(graph).await,
        Deletion::Orphan => this.orphan(graph).await,
    };
    emptied.and(processed)
}

/// The object to process.
struct Object<'a> {
    server: &'a Arc<Server>,
    context: &'a RequestContext,
    resource: &'a Arc<Resource>,
    entry: &'a Entry,
    ownership: Ownership,
}

impl Object<'_> {
    /// Deletes an object whose owners are all deleted.
    async fn owned(&self, graph: &RwLock<Graph>) -> Result<(), Status> {
        let (namespace, name) = self.identity();
        let state = |owner: &OwnerReference| match find(self.server, namespace, owner) {
            _ if graph.read().is_deleted(&owner.uid) => OwnerState::Absent,
            Found::Present(_, owner) => owner.as_owner(),
            Found::Absent => OwnerState::Absent,
            // The kind of the owner is unknown, or it cannot own this object: the object is kept.
            Found::Unknown => OwnerState::Present,
        };
        let owners: Vec<OwnerState> = self.ownership.owners.iter().map(state).collect();
        let dependents = match owners.contains(&OwnerState::Waiting) {
            true => Dependents::of(&graph.read().dependents(self.server, &self.ownership.uid)),
            false => Dependents::None,
        };
        match self.ownership.decide(&owners, dependents) {
            Decision::Keep => Ok(()),
            Decision::Forget(uids) => self.change(|object| remove_owners(object, &uids)).await,
            Decision::Delete { propagation, unblock } => {
                let mut options = DeleteOptions::of(&self.ownership.uid, propagation);
                match unblock {
                    true => self.change(unblock_owners).await?,
                    // Only if the object has not changed since: it may have another owner now.
                    false => options = options.pinned(&self.entry.revision.0.to_string()),
                }
                ignore_not_found(delete(self.server, self.context, self.resource, namespace, name, &options).await)
            }
        }
    }

    /// Foreground deletion: deletes the dependents, then removes the finalizer.
    async fn foreground(&self, graph: &RwLock<Graph>) -> Result<(), Status> {
        let dependents = graph.read().dependents_by_key(self.server, &self.ownership.uid);
        if self.ownership.may_be_removed(dependents.values()) {
            return self.change(|object| drop_finalizer(object, FOREGROUND_FINALIZER)).await;
        }
        let mut outcome = Ok(());
        let alive = dependents.iter().filter(|(_, dependent)| !dependent.is_terminating);
        let mut steps: Vec<TaskStep<'_, _>> = Vec::new();
        for (key, _) in alive {
            steps.push(Box::pin(async move {
                let Some((resource, entry)) = graph::read(self.server, key) else { return Ok(()) };
                self.other(&resource, &entry).owned(graph).await
            }));
        }
        for processed in run_concurrently(steps).await {
            outcome = outcome.and(processed);
        }
        // When a dependent is deleted or changes its owner, that change leads back to this object.
        outcome
    }

    /// Orphaning deletion: removes this owner from the dependents, then removes the finalizer.
    async fn orphan(&self, graph: &RwLock<Graph>) -> Result<(), Status> {
        let uid = [self.ownership.uid.clone()];
        let dependents = graph.read().dependents_by_key(self.server, &self.ownership.uid);
        let mut releases: Vec<TaskStep<'_, _>> = Vec::new();
        for key in dependents.keys() {
            releases.push(Box::pin(async {
                let Some((resource, entry)) = graph::read(self.server, key) else { return Ok(()) };
                self.other(&resource, &entry).change(|object| remove_owners(object, &uid)).await
            }));
        }
        for released in run_concurrently(releases).await {
            released?;
        }
        self.change(|object| drop_finalizer(object, ORPHAN_FINALIZER)).await
    }

    /// Another object, with the same server and context.
    fn other<'o>(&'o self, resource: &'o Arc<Resource>, entry: &'o Entry) -> Object<'o> {
        Object { server: self.server, context: self.context, resource, entry, ownership: ownership(entry) }
    }

    /// Changes the object, also if another writer changed it in the meantime.
    async fn change(&self, with: impl Fn(&mut Value) + Send + Sync) -> Result<(), Status> {
        let (namespace, name) = self.identity();
        let write = WriteRequest { namespace, ..self.server.internal_write(self.context, self.resource) };
        let changed = |object: &Value| {
            let mut object = object.clone();
            // An object of the same name with another uid is left alone.
            if meta::text(&object, "uid") == self.ownership.uid {
                with(&mut object);
            }
            Ok(object)
        };
        ignore_not_found(write.patch(name, &mut Vec::new(), changed).await)
    }

    fn identity(&self) -> (Option<&str>, &str) {
        self.resource.identity(&self.entry.key)
    }
}

/// Removes the references to these owners.
fn remove_owners(object: &mut Value, uids: &[String]) {
    let metadata = meta::of_mut(object);
    let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) else { return };
    owners.retain(|owner| !uids.iter().any(|uid| owner["uid"] == uid.as_str()));
    if owners.is_empty() {
        metadata.remove("ownerReferences");
    }
}

/// Lets the owners be deleted before the object.
fn unblock_owners(object: &mut Value) {
    let owners = meta::of_mut(object).get_mut("ownerReferences").and_then(Value::as_array_mut);
    owners.into_iter().flatten().for_each(|owner| owner["blockOwnerDeletion"] = false.into());
}

fn drop_finalizer(object: &mut Value, finalizer: &str) {
    let names: Vec<String> = meta::finalizers(object).into_iter().map(str::to_owned).collect();
    let left: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != finalizer).collect();
    meta::set_finalizers(object, &left);
}

/// Not finding the object is a success.
pub(super) fn ignore_not_found(outcome: Result<WriteOutcome, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(()),
    }
}
