//! The garbage collector: deletes objects whose owner or namespace is deleted. In: committed changes. Out: deletions and small
//! patches. What to do about an object is decided by `konverge_core`, as for the garbage collector of the control plane; here
//! is who depends on whom, and how the next step is done. Each step is idempotent, and one that failed is repeated.
//!
//! ```text
//! graph       changes → who depends on whom, and which objects to process
//! step        the next step for one object
//! namespace   deletes the content of a namespace, then the namespace
//! ```

mod graph;
mod namespace;
mod step;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use konverge_core::Status;
use konverge_store::ReadError;

use crate::server::Server;
use crate::tasks::{TaskStep, run_concurrently};
use crate::user::SystemUser;
use crate::write::WriteOutcome;

use graph::Graph;
use step::process;

/// How many changes are processed together.
const BATCH: usize = 256;

/// How long a step that failed waits, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Follows the server's changes until it closes or is gone.
pub(crate) async fn run(server: Weak<Server>, mut closing: tokio::sync::watch::Receiver<bool>) {
    let Some((mut graph, mut watch)) = server.upgrade().map(|server| Graph::load(&server)) else { return };
    // What happened before this task started.
    let Some(mut pending) = server.upgrade().map(|server| Graph::all_pending(&server)) else { return };
    let mut retries = Retries::default();
    loop {
        {
            let Some(server) = server.upgrade() else { return };
            let failed = work(&graph, &server, &pending).await;
            retries.note(failed, Instant::now());
        }
        tokio::select! {
            batch = watch.next(BATCH) => {
                let Some(server) = server.upgrade() else { return };
                pending = match batch {
                    Ok(batch) => graph.follow(&server, &batch),
                    Err(ReadError::Compacted { .. } | ReadError::Future { .. }) => {
                        (graph, watch) = Graph::load(&server);
                        Graph::all_pending(&server)
                    }
                };
            }
            () = tokio::time::sleep_until(retries.due), if !retries.pending.is_empty() => pending = retries.take(),
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
        }
    }
}

/// What is to be processed: objects by their keys, and namespaces by their names.
#[derive(Clone, Debug, Default)]
struct Pending {
    objects: BTreeSet<Arc<str>>,
    namespaces: BTreeSet<String>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.namespaces.is_empty()
    }
}

/// What failed, and when it is tried again: with exponential backoff, which ends once everything succeeded.
struct Retries {
    pending: Pending,
    wait: Duration,
    due: Instant,
}

impl Default for Retries {
    fn default() -> Self {
        Self { pending: Pending::default(), wait: FIRST_RETRY, due: Instant::now() }
    }
}

impl Retries {
    fn note(&mut self, failed: Pending, now: Instant) {
        if failed.is_empty() {
            if self.pending.is_empty() {
                self.wait = FIRST_RETRY;
            }
            return;
        }
        // A new failure does not delay those that wait already.
        if self.pending.is_empty() {
            self.due = now + self.wait;
            self.wait = (self.wait * 2).min(LAST_RETRY);
        }
        self.pending.objects.extend(failed.objects);
        self.pending.namespaces.extend(failed.namespaces);
    }

    fn take(&mut self) -> Pending {
        std::mem::take(&mut self.pending)
    }
}

/// Does the next step for everything that is pending. Gives what failed.
async fn work(graph: &Graph, server: &Arc<Server>, pending: &Pending) -> Pending {
    let mut failed = Pending::default();
    if pending.is_empty() {
        return failed;
    }
    let context = &server.task_context(SystemUser::GarbageCollector);
    let namespaces = &server.task_context(SystemUser::NamespaceController);
    let mut steps: Vec<TaskStep<'_, _>> = Vec::with_capacity(pending.objects.len());
    for key in &pending.objects {
        steps.push(Box::pin(async move { (key, process(graph, server, context, namespaces, key).await) }));
    }
    for (key, processed) in run_concurrently(steps).await {
        if is_failure(processed) {
            failed.objects.insert(key.clone());
        }
    }
    let mut ends: Vec<TaskStep<'_, _>> = Vec::with_capacity(pending.namespaces.len());
    for name in &pending.namespaces {
        ends.push(Box::pin(async move { (name, namespace::finish(server, namespaces, name).await) }));
    }
    for (name, finished) in run_concurrently(ends).await {
        if is_failure(finished) {
            failed.namespaces.insert(name.clone());
        }
    }
    failed
}

/// Whether a step has to be repeated. A conflict is expected, so it is not logged.
fn is_failure(outcome: Result<(), Status>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(status) => {
            if status.code != 409 {
                tracing::warn!(code = status.code, message = %status.message, "garbage collection failed; trying again");
            }
            true
        }
    }
}

/// Not finding the object, or a conflict with another writer, is a success.
pub(crate) fn ignore_lost_race(outcome: Result<WriteOutcome, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code != 404 && status.code != 409 => Err(status),
        _ => Ok(()),
    }
}

pub(crate) async fn report(outcome: Result<(), Status>) {
    if let Err(status) = outcome {
        tracing::warn!(code = status.code, message = %status.message, "the server could not delete an object");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_tried_again_later_each_time() {
        let begin = Instant::now();
        let failed = |key: &str| Pending { objects: BTreeSet::from([key.into()]), ..Pending::default() };
        let mut retries = Retries::default();
        retries.note(failed("a"), begin);
        let first = retries.due;
        assert_eq!(first, begin + FIRST_RETRY);
        // A failure while others wait joins them, and does not delay them.
        retries.note(failed("b"), begin + FIRST_RETRY / 2);
        assert_eq!(retries.due, first);
        assert_eq!(retries.take().objects.len(), 2);
        assert!(retries.pending.is_empty());
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
        retries.note(Pending::default(), begin);
        retries.note(failed("a"), begin);
        assert_eq!(retries.due, begin + FIRST_RETRY);
    }
}
