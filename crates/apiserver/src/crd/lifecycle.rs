//! The lifecycle of custom resource definitions, as one task over the store's changes. In: committed changes. Out: the objects
//! of a deleted definition are deleted, then its finalizer is removed; definitions get names that have become free. Each step
//! is idempotent, and the task finds everything that is left to do at its start, so nothing depends on the request.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;

use konverge_core::Status;
use konverge_schema::Budget;
use konverge_store::{Change, Entry, Range, Revision, Watch};

use crate::context::RequestContext;
use crate::delete::{DeleteOptions, Deletion};
use crate::meta;
use crate::record;
use crate::resource::Resource;
use crate::server::Server;
use crate::tasks::{TaskStep, run_concurrently};
use crate::user::SystemUser;
use crate::write::{WriteOutcome, WriteRequest};

use super::{CLEANUP, catch_up, definitions, follow, is_definition, resources};

/// How many changes are processed together.
const BATCH: usize = 256;

/// How long to wait before a step that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How long the answer to a write waits for what follows from it. Kubernetes does not wait at all; here the client finds its
/// request completed, unless there are very many objects to delete.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far the task has come.
#[derive(Default)]
pub(crate) struct Progress {
    /// The steps for changes up to this revision have been done or have begun.
    seen: Revision,
    /// The definitions whose objects are being deleted right now, without those that wait for finalizers of others.
    busy: BTreeSet<String>,
}

/// Waits for what follows from a write of one definition, or of all: kinds are served, or their objects are deleted. The task
/// does its work also if nobody waits.
pub(crate) async fn settle(server: &Server, resource: &Resource, one: Option<&str>) {
    if !is_definition(resource) {
        return;
    }
    let shown = catch_up(server);
    let mut progress = server.definitions.progress.subscribe();
    let mut closing = server.closing();
    let settled = |progress: &Progress| {
        progress.seen >= shown && one.map_or(progress.busy.is_empty(), |name| !progress.busy.contains(name))
    };
    tokio::select! {
        () = async { drop(progress.wait_for(settled).await) } => {}
        // The task ends when the server closes, and continues at the next start.
        () = async { drop(closing.wait_for(|closing| *closing).await) } => {}
        () = tokio::time::sleep(PATIENCE) => {}
    }
}

/// Follows definitions until the server closes or is gone.
pub(crate) async fn run(server: Weak<Server>, closing: Receiver<bool>) {
    Lifecycle::default().follow(server, closing).await;
}

/// The state of the task.
#[derive(Default)]
struct Lifecycle {
    /// Definitions whose objects are being deleted, or waited for: one step for each.
    terminating: BTreeSet<String>,
    /// At most one for each definition that is being deleted, and one for each group that has to be tried again. They are tasks
    /// of their own, because one may hold the lock that this task waits for; they end with it.
    steps: JoinSet<Ended>,
}

/// How a step ended.
enum Ended {
    /// The definition is deleted, or has other finalizers.
    CleanUp(String),
    /// It is time to try the names of this group again.
    Names(String),
}

impl Lifecycle {
    async fn follow(mut self, server: Weak<Server>, mut closing: Receiver<bool>) {
        let Some(strong) = server.upgrade() else { return };
        let mut changes = self.begin(&strong).await;
        drop(strong);
        loop {
            tokio::select! {
                batch = changes.next(BATCH) => {
                    let Some(server) = server.upgrade() else { return };
                    match batch {
                        Ok(batch) => self.process(&server, &batch).await,
                        // The changes were compacted: everything is read again.
                        Err(_) => changes = self.begin(&server).await,
                    }
                }
                Some(ended) = self.steps.join_next() => {
                    let Some(server) = server.upgrade() else { return };
                    // A panic in a step ends this task, too, and it starts again.
                    match ended.expect("a step ends by itself") {
                        Ended::Names(group) => self.names_free(&server, [group].into()).await,
                        Ended::CleanUp(name) => {
                            self.terminating.remove(&name);
                            // Another definition of this name may have been deleted before the end of this step was
                            // known; no step has begun for it then.
                            let again = server.store.get(&definitions(&server).key(None, &name), None);
                            let again = again.ok().flatten().as_ref().and_then(to_clean_up);
                            self.clean_up(&server, again.into_iter().collect(), Revision(0));
                            // First process what follows from the deletion, then wake those who wait for it.
                            while let Ok(batch) = changes.take(BATCH) && !batch.is_empty() {
                                self.process(&server, &batch).await;
                            }
                            if !self.terminating.contains(&name) {
                                server.definitions.progress.send_if_modified(|progress| progress.busy.remove(&name));
                            }
                        }
                    }
                }
                () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
            }
        }
    }

    /// Processes all definitions once, for what happened before the task started.
    async fn begin(&mut self, server: &Arc<Server>) -> Watch {
        let definitions = definitions(server);
        loop {
            let range = Range { prefix: &definitions.storage.prefix, ..Range::default() };
            let page = server.store.range(range).expect("the newest revision is never compacted");
            let Ok(changes) = server.store.watch(&definitions.storage.prefix, page.revision) else { continue };
            catch_up(server);
            self.names_free(server, follow::waiting_groups(server)).await;
            let terminating = page.entries.iter().filter_map(to_clean_up).collect();
            self.clean_up(server, terminating, page.revision);
            return changes;
        }
    }

    async fn process(&mut self, server: &Arc<Server>, batch: &[Change]) {
        catch_up(server);
        let mut groups = BTreeSet::new();
        let mut terminating = BTreeSet::new();
        for change in batch {
            terminating.extend(change.after.as_ref().and_then(to_clean_up));
            groups.extend(freed(change));
        }
        self.names_free(server, groups).await;
        let seen = batch.last().map_or(Revision(0), |change| change.revision);
        self.clean_up(server, terminating, seen);
    }

    /// Begins to delete the objects of these definitions, and publishes that changes up to `seen` are processed.
    fn clean_up(&mut self, server: &Arc<Server>, terminating: BTreeSet<String>, seen: Revision) {
        let begun: Vec<String> = terminating.into_iter().filter(|name| self.terminating.insert(name.clone())).collect();
        for name in &begun {
            self.steps.spawn(clean_up(Arc::downgrade(server), name.clone()));
        }
        server.definitions.progress.send_modify(|progress| {
            progress.seen = progress.seen.max(seen);
            progress.busy.extend(begun);
        });
    }

    /// Checks again the names of definitions that wait for them in these groups.
    async fn names_free(&mut self, server: &Arc<Server>, groups: BTreeSet<String>) {
        for group in groups {
            for name in follow::waiting(server, &group) {
                if let Err(status) = check_names(server, &name).await {
                    tracing::warn!(%status, name, "cannot update the names of a custom resource definition; trying again");
                    let group = group.clone();
                    self.steps.spawn(tokio::time::sleep(RETRY).map(move |()| Ended::Names(group)));
                    break;
                }
            }
        }
        catch_up(server);
    }
}

/// The name of a definition that is being deleted and whose objects have to be deleted first.
fn to_clean_up(entry: &Entry) -> Option<String> {
    let definition = record::decode(entry);
    let terminating = meta::is_terminating(&definition) && meta::finalizers(&definition).contains(&CLEANUP);
    terminating.then(|| meta::text(&definition, "name").to_owned())
}

/// The group in which names may have become free by a change.
fn freed(change: &Change) -> Option<String> {
    let before = record::decode(change.before.as_ref()?);
    let after = change.after.as_ref().map(record::decode);
    let same = after.is_some_and(|after| resources::names(&after) == resources::names(&before));
    (!same).then(|| before["spec"]["group"].as_str().unwrap_or_default().to_owned())
}

/// Writes a definition again as it is, which checks its names again.
async fn check_names(server: &Arc<Server>, name: &str) -> Result<(), Status> {
    let definitions = definitions(server);
    let context = server.task_context(SystemUser::ApiServer);
    let write = unasked(server.internal_write(&context, &definitions));
    match write.patch(name, &mut Vec::new(), |definition| Ok(definition.clone())).await {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(()),
    }
}

/// A write of a definition that webhooks for definitions are not called for: in Kubernetes, names and finalizers are written
/// through `status`.
fn unasked(write: WriteRequest<'_>) -> WriteRequest<'_> {
    WriteRequest { admitted: true, ..write }
}

/// Deletes the objects of a definition, waits until none is left, and removes the definition's finalizer. Holds the server only
/// while there is something to do.
async fn clean_up(server: Weak<Server>, name: String) -> Ended {
    let mut asked = false;
    loop {
        let Some(strong) = server.upgrade() else { return Ended::CleanUp(name) };
        let mut left = match clean_up_once(&strong, &name, &mut asked).await {
            Ok(None) => return Ended::CleanUp(name),
            Ok(Some(left)) => Some(left),
            Err(status) => {
                tracing::warn!(%status, name, "cannot delete the objects of a custom resource definition; trying again");
                None
            }
        };
        strong.definitions.progress.send_if_modified(|progress| progress.busy.remove(&name));
        drop(strong);
        match &mut left {
            // Whatever has changed, the next round reads what is left.
            Some(left) => drop(left.next(BATCH).await),
            None => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Deletes all objects, unless that was done before, and removes the finalizer if none is left. Gives the changes of objects
/// that others still hold by finalizers, or nothing if there is no more to do.
async fn clean_up_once(server: &Arc<Server>, name: &str, asked: &mut bool) -> Result<Option<Watch>, Status> {
    let definitions = definitions(server);
    let entry = server.store.get(&definitions.key(None, name), None).map_err(Status::internal)?;
    let Some(entry) = entry.filter(|entry| to_clean_up(entry).is_some()) else { return Ok(None) };
    let definition = record::decode(&entry);
    let prefix = resources::prefix(&definition);
    let context = server.task_context(SystemUser::ApiServer);
    let since = server.registry.stored_since(name, resources::stored_as(&definition)).unwrap_or(entry.revision);
    if !*asked && let Some(resource) = resources::any(&definition, since, &*server.converters) {
        delete_all(server, &context, &resource, &prefix).await?;
        // No more objects can be created: the definition is being deleted.
        *asked = true;
    }
    loop {
        let page = server.store.range(Range { prefix: &prefix, limit: Some(1), ..Range::default() });
        let page = page.map_err(Status::internal)?;
        if page.entries.is_empty() {
            finish(server, &context, &definitions, name, &prefix).await?;
            return Ok(None);
        }
        if let Ok(left) = server.store.watch(&prefix, page.revision) {
            return Ok(Some(left));
        }
    }
}

async fn delete_all(
    server: &Arc<Server>,
    context: &RequestContext,
    resource: &Arc<Resource>,
    prefix: &str,
) -> Result<(), Status> {
    let page = server.store.range(Range { prefix, ..Range::default() }).map_err(Status::internal)?;
    let options = DeleteOptions::default();
    // Admission is not asked, as in Kubernetes: a webhook that is gone or refuses would keep the definition for ever.
    let deletion =
        &Deletion { server, context, resource, options: &options, admitted: true, collection: false, warnings: None };
    let mut deletions: Vec<TaskStep<'_, _>> = Vec::with_capacity(page.entries.len());
    for entry in &page.entries {
        let (namespace, name) = resource.identity(&entry.key);
        deletions.push(Box::pin(deletion.run(namespace, name, Budget::unlimited())));
    }
    let failed = |outcome: Result<WriteOutcome, Status>| outcome.err().filter(|status| status.code != 404);
    run_concurrently(deletions).await.into_iter().find_map(failed).map_or(Ok(()), Err)
}

/// Removes the finalizer when no object is left, and with it the definition if it has no other finalizer.
async fn finish(
    server: &Arc<Server>,
    context: &RequestContext,
    definitions: &Arc<Resource>,
    name: &str,
    prefix: &str,
) -> Result<(), Status> {
    let write = unasked(server.internal_write(context, definitions));
    let freed = |definition: &Value| {
        let mut definition = definition.clone();
        let finalizers: Vec<String> = meta::finalizers(&definition)
            .into_iter()
            .filter(|finalizer| *finalizer != CLEANUP)
            .map(str::to_owned)
            .collect();
        // By now this may be another definition of the same name.
        let empty = server.store.range(Range { prefix, limit: Some(1), ..Range::default() });
        if meta::is_terminating(&definition) && empty.is_ok_and(|page| page.entries.is_empty()) {
            meta::set_finalizers(&mut definition, &finalizers.iter().map(String::as_str).collect::<Vec<_>>());
        }
        Ok(definition)
    };
    match write.patch(name, &mut Vec::new(), freed).await {
        Ok(WriteOutcome::Stored(_) | WriteOutcome::DryRun(_) | WriteOutcome::Deleted(_)) => Ok(()),
        Err(status) if status.code == 404 => Ok(()),
        Err(status) => Err(status),
    }
}

/// Runs the task as if a step for this definition had ended and the task did not know yet.
#[cfg(test)]
pub(super) async fn follow_after_a_step(name: &str, server: Weak<Server>, closing: Receiver<bool>) {
    let mut lifecycle = Lifecycle::default();
    lifecycle.terminating.insert(name.to_owned());
    lifecycle.steps.spawn(std::future::ready(Ended::CleanUp(name.to_owned())));
    lifecycle.follow(server, closing).await;
}
