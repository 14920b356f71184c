//! The collector: what goes when its owner, or its namespace, goes. In: committed changes. Out: deletions and small
//! patches, made like anybody else's. What is to be done about an object is decided by `konverge_core`, as for the garbage
//! collector of the control plane; here is who depends on whom, and how the next step is done. Each step can be repeated
//! without harm, and one that failed is repeated.
//!
//! ```text
//! graph       changes → who depends on whom, and who is to be looked at
//! namespace   what is in a namespace that goes, then the namespace
//! ```

mod graph;
mod namespace;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use konverge_core::{
    Decision, Deletion, Dependents, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, OwnerReference, OwnerState, Ownership,
    Status,
};
use konverge_store::{Entry, ReadError};

use crate::change::{Done, Write};
use crate::context::RequestContext;
use crate::delete::{DeleteOptions, delete};
use crate::meta;
use crate::resource::Resource;
use crate::server::Server;
use crate::tasks::{Step, together};
use crate::user::SystemUser;

use graph::{Found, Graph, find, ownership};

/// How many changes are looked at together.
const BATCH: usize = 256;

/// How long a step that failed waits, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Follows the server's changes until it closes or is gone.
pub(crate) async fn run(server: Weak<Server>, mut closing: tokio::sync::watch::Receiver<bool>) {
    let Some((mut graph, mut watch)) = server.upgrade().map(|server| Graph::learn(&server)) else { return };
    // What happened while nobody followed.
    let Some(mut agenda) = server.upgrade().map(|server| Graph::everything(&server)) else { return };
    let mut retries = Retries::default();
    loop {
        {
            let Some(server) = server.upgrade() else { return };
            let failed = work(&graph, &server, &agenda).await;
            retries.note(failed, Instant::now());
        }
        tokio::select! {
            batch = watch.next(BATCH) => {
                let Some(server) = server.upgrade() else { return };
                agenda = match batch {
                    Ok(batch) => graph.follow(&server, &batch),
                    Err(ReadError::Compacted { .. } | ReadError::Future { .. }) => {
                        (graph, watch) = Graph::learn(&server);
                        Graph::everything(&server)
                    }
                };
            }
            () = tokio::time::sleep_until(retries.due), if !retries.agenda.is_empty() => agenda = retries.take(),
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
        }
    }
}

/// What is to be looked at: objects by their keys, and namespaces by their names.
#[derive(Clone, Debug, Default)]
struct Agenda {
    objects: BTreeSet<Arc<str>>,
    namespaces: BTreeSet<String>,
}

impl Agenda {
    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.namespaces.is_empty()
    }
}

/// What failed, and when it is tried again: later each time, and soon again once all of it was done.
struct Retries {
    agenda: Agenda,
    wait: Duration,
    due: Instant,
}

impl Default for Retries {
    fn default() -> Self {
        Self { agenda: Agenda::default(), wait: FIRST_RETRY, due: Instant::now() }
    }
}

impl Retries {
    fn note(&mut self, failed: Agenda, now: Instant) {
        if failed.is_empty() {
            if self.agenda.is_empty() {
                self.wait = FIRST_RETRY;
            }
            return;
        }
        // What waits already is not put off by what failed since.
        if self.agenda.is_empty() {
            self.due = now + self.wait;
            self.wait = (self.wait * 2).min(LAST_RETRY);
        }
        self.agenda.objects.extend(failed.objects);
        self.agenda.namespaces.extend(failed.namespaces);
    }

    fn take(&mut self) -> Agenda {
        std::mem::take(&mut self.agenda)
    }
}

/// Does the next thing for everything on the agenda. Answers with what failed.
async fn work(graph: &Graph, server: &Arc<Server>, agenda: &Agenda) -> Agenda {
    let mut failed = Agenda::default();
    let context = &server.task_context(SystemUser::GarbageCollector);
    let namespaces = &server.task_context(SystemUser::NamespaceController);
    let mut looks: Vec<Step<'_, _>> = Vec::with_capacity(agenda.objects.len());
    for key in &agenda.objects {
        looks.push(Box::pin(async move { (key, look(graph, server, context, namespaces, key).await) }));
    }
    for (key, looked) in together(looks).await {
        if is_failure(looked) {
            failed.objects.insert(key.clone());
        }
    }
    let mut ends: Vec<Step<'_, _>> = Vec::with_capacity(agenda.namespaces.len());
    for name in &agenda.namespaces {
        ends.push(Box::pin(async move { (name, namespace::finish(server, namespaces, name).await) }));
    }
    for (name, finished) in together(ends).await {
        if is_failure(finished) {
            failed.namespaces.insert(name.clone());
        }
    }
    failed
}

/// Whether a step has to be done again. That somebody else was faster is no news.
fn is_failure(outcome: Result<(), Status>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(status) => {
            if status.code != 409 {
                tracing::warn!(code = status.code, message = %status.message, "garbage collection failed and is tried again");
            }
            true
        }
    }
}

/// Does the next thing for one object.
async fn look(
    graph: &Graph,
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
        Deletion::Under | Deletion::Foreground | Deletion::Orphan if is_namespace => {
            namespace::empty(server, namespaces, this.place().1).await
        }
        _ => Ok(()),
    };
    // What a namespace holds is one thing, what has it as an owner another: it waits for both.
    let looked = match deletion {
        Deletion::None => this.owned(graph).await,
        Deletion::Under => Ok(()),
        Deletion::Foreground => this.foreground(graph).await,
        Deletion::Orphan => this.orphan(graph).await,
    };
    emptied.and(looked)
}

/// An object that is looked at.
struct Object<'a> {
    server: &'a Arc<Server>,
    context: &'a RequestContext,
    resource: &'a Arc<Resource>,
    entry: &'a Entry,
    ownership: Ownership,
}

impl Object<'_> {
    /// An object that stays as long as one of its owners does.
    async fn owned(&self, graph: &Graph) -> Result<(), Status> {
        let (namespace, name) = self.place();
        let stands = |owner: &OwnerReference| match find(self.server, namespace, owner) {
            _ if graph.is_gone(&owner.uid) => OwnerState::Absent,
            Found::There(_, owner) => owner.as_owner(),
            Found::Absent => OwnerState::Absent,
            // Its kind is not known here, or it cannot own this object: nothing is concluded.
            Found::Unknown => OwnerState::Solid,
        };
        let owners: Vec<OwnerState> = self.ownership.owners.iter().map(stands).collect();
        let dependents = match owners.contains(&OwnerState::Waiting) {
            true => Dependents::of(&graph.dependents(self.server, &self.ownership.uid)),
            false => Dependents::None,
        };
        match self.ownership.decide(&owners, dependents) {
            Decision::Keep => Ok(()),
            Decision::Forget(uids) => self.change(|object| forget(object, &uids)).await,
            Decision::Delete { propagation, unblock } => {
                let mut options = DeleteOptions::of(&self.ownership.uid, propagation);
                match unblock {
                    true => self.change(unblock_owners).await?,
                    // Not if it has changed since: somebody may have taken it.
                    false => options = options.pinned(&self.entry.revision.0.to_string()),
                }
                gone_is_fine(delete(self.server, self.context, self.resource, namespace, name, &options).await)
            }
        }
    }

    /// An object that goes after what depends on it.
    async fn foreground(&self, graph: &Graph) -> Result<(), Status> {
        let dependents = graph.dependents_by_key(self.server, &self.ownership.uid);
        if self.ownership.may_go(dependents.values()) {
            return self.change(|object| drop_finalizer(object, FOREGROUND_FINALIZER)).await;
        }
        let mut outcome = Ok(());
        let staying = dependents.iter().filter(|(_, dependent)| !dependent.is_terminating);
        let mut looks: Vec<Step<'_, _>> = Vec::new();
        for (key, _) in staying {
            looks.push(Box::pin(async move {
                let Some((resource, entry)) = graph::read(self.server, key) else { return Ok(()) };
                self.other(&resource, &entry).owned(graph).await
            }));
        }
        for looked in together(looks).await {
            outcome = outcome.and(looked);
        }
        // What has gone or has forgotten this object comes back as a change, and then it is looked at again.
        outcome
    }

    /// An object that goes and leaves what depends on it.
    async fn orphan(&self, graph: &Graph) -> Result<(), Status> {
        let uid = [self.ownership.uid.clone()];
        let dependents = graph.dependents_by_key(self.server, &self.ownership.uid);
        let mut releases: Vec<Step<'_, _>> = Vec::new();
        for key in dependents.keys() {
            releases.push(Box::pin(async {
                let Some((resource, entry)) = graph::read(self.server, key) else { return Ok(()) };
                self.other(&resource, &entry).change(|object| forget(object, &uid)).await
            }));
        }
        for released in together(releases).await {
            released?;
        }
        self.change(|object| drop_finalizer(object, ORPHAN_FINALIZER)).await
    }

    /// Another object, looked at by the same collector.
    fn other<'o>(&'o self, resource: &'o Arc<Resource>, entry: &'o Entry) -> Object<'o> {
        Object { server: self.server, context: self.context, resource, entry, ownership: ownership(entry) }
    }

    /// Changes the object, whatever else was changed in it meanwhile.
    async fn change(&self, with: impl Fn(&mut Value) + Send + Sync) -> Result<(), Status> {
        let (namespace, name) = self.place();
        let write = Write { namespace, ..self.server.internal_write(self.context, self.resource) };
        let changed = |object: &Value| {
            let mut object = object.clone();
            // Another object of the same name is nobody's business here.
            if meta::text(&object, "uid") == self.ownership.uid {
                with(&mut object);
            }
            Ok(object)
        };
        gone_is_fine(write.patch(name, &mut Vec::new(), changed).await)
    }

    fn place(&self) -> (Option<&str>, &str) {
        self.resource.identity(&self.entry.key)
    }
}

/// Removes the references to these owners.
fn forget(object: &mut Value, uids: &[String]) {
    let metadata = meta::of_mut(object);
    let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) else { return };
    owners.retain(|owner| !uids.iter().any(|uid| owner["uid"] == uid.as_str()));
    if owners.is_empty() {
        metadata.remove("ownerReferences");
    }
}

/// Lets the owners go before the object.
fn unblock_owners(object: &mut Value) {
    let owners = meta::of_mut(object).get_mut("ownerReferences").and_then(Value::as_array_mut);
    owners.into_iter().flatten().for_each(|owner| owner["blockOwnerDeletion"] = false.into());
}

fn drop_finalizer(object: &mut Value, finalizer: &str) {
    let names: Vec<String> = meta::finalizers(object).into_iter().map(str::to_owned).collect();
    let left: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != finalizer).collect();
    meta::set_finalizers(object, &left);
}

/// An object that is not there any more needs nothing.
fn gone_is_fine(outcome: Result<Done, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(()),
    }
}

/// Somebody else may have been faster; that is as good.
pub(crate) fn done(outcome: Result<Done, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code != 404 && status.code != 409 => Err(status),
        _ => Ok(()),
    }
}

pub(crate) async fn report(outcome: Result<(), Status>) {
    if let Err(status) = outcome {
        tracing::warn!(code = status.code, message = %status.message, "the collector could not do its work");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_tried_again_later_each_time() {
        let begin = Instant::now();
        let failed = |key: &str| Agenda { objects: BTreeSet::from([key.into()]), ..Agenda::default() };
        let mut retries = Retries::default();
        retries.note(failed("a"), begin);
        let first = retries.due;
        assert_eq!(first, begin + FIRST_RETRY);
        // What fails while others wait joins them, and does not put them off.
        retries.note(failed("b"), begin + FIRST_RETRY / 2);
        assert_eq!(retries.due, first);
        assert_eq!(retries.take().objects.len(), 2);
        assert!(retries.agenda.is_empty());
        for expect in [2, 4, 8] {
            retries.note(failed("a"), begin);
            assert_eq!(retries.due, begin + FIRST_RETRY * expect);
            retries.take();
        }
        for _ in 0..20 {
            retries.note(failed("a"), begin);
            retries.take();
        }
        retries.note(failed("a"), begin);
        assert_eq!(retries.due, begin + LAST_RETRY);
        retries.take();
        retries.note(Agenda::default(), begin);
        retries.note(failed("a"), begin);
        assert_eq!(retries.due, begin + FIRST_RETRY);
    }
}
