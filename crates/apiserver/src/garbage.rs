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

use parking_lot::RwLock;
use tokio::task::JoinSet;
use tokio::time::Instant;

use konverge_core::Status;
use konverge_store::ReadError;

use crate::server::Server;
use crate::user::SystemUser;
use crate::write::WriteOutcome;

use graph::Graph;
use step::process;

/// How many changes are processed together.
const BATCH: usize = 256;

/// How long a step that failed waits, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// How many steps run at once. They are tasks of their own, so that one that waits for a webhook delays no other; the rest waits in
/// the queue.
const AT_ONCE: usize = 64;

/// Follows the server's changes until it closes or is gone.
pub(crate) async fn run(server: Weak<Server>, mut closing: tokio::sync::watch::Receiver<bool>) {
    let Some((graph, mut watch)) = server.upgrade().map(|server| Graph::load(&server)) else { return };
    let graph = Arc::new(RwLock::new(graph));
    // What happened before this task started.
    let Some(pending) = server.upgrade().map(|server| Graph::all_pending(&server)) else { return };
    let mut queue = Queue { pending, ..Queue::default() };
    let mut retries = Retries::default();
    let mut steps = JoinSet::new();
    loop {
        while steps.len() < AT_ONCE
            && let Some(item) = queue.next()
        {
            let Some(server) = server.upgrade() else { return };
            steps.spawn(step(server, graph.clone(), item));
        }
        tokio::select! {
            batch = watch.next(BATCH) => {
                let Some(server) = server.upgrade() else { return };
                queue.pending.extend(match batch {
                    Ok(batch) => graph.write().follow(&server, &batch),
                    Err(ReadError::Compacted { .. } | ReadError::Future { .. }) => {
                        let (anew, changes) = Graph::load(&server);
                        (*graph.write(), watch) = (anew, changes);
                        Graph::all_pending(&server)
                    }
                });
            }
            Some(ended) = steps.join_next() => {
                // A panic in a step ends this task, too, and it starts again.
                let (item, failed) = ended.expect("a step ends by itself");
                queue.running.remove(&item);
                // The wait is short again when nothing has failed until the end.
                if failed || queue.is_idle() {
                    retries.note(failed.then_some(item).into_iter().collect(), Instant::now());
                }
            }
            () = tokio::time::sleep_until(retries.due), if !retries.pending.is_empty() => {
                queue.pending.extend(retries.take());
            }
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
        }
    }
}

/// What is to be processed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// An object, by its key.
    Object(Arc<str>),
    /// A namespace that may be empty, by its name.
    Namespace(String),
}

/// Everything that is to be processed. Objects come first: a namespace is empty when they are gone.
type Pending = BTreeSet<Item>;

/// What waits for a step, and what has one right now. An item that is pending again while its step runs waits for the end of it.
#[derive(Default)]
struct Queue {
    pending: Pending,
    running: Pending,
}

impl Queue {
    /// Takes the next item, which runs from now on.
    fn next(&mut self) -> Option<Item> {
        let next = self.pending.difference(&self.running).next()?.clone();
        self.pending.remove(&next);
        self.running.insert(next.clone());
        Some(next)
    }

    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.running.is_empty()
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
        self.pending.extend(failed);
    }

    fn take(&mut self) -> Pending {
        std::mem::take(&mut self.pending)
    }
}

/// Does the next step for an item. Gives whether it failed.
async fn step(server: Arc<Server>, graph: Arc<RwLock<Graph>>, item: Item) -> (Item, bool) {
    let namespaces = server.task_context(SystemUser::NamespaceController);
    let outcome = match &item {
        Item::Object(key) => {
            let context = server.task_context(SystemUser::GarbageCollector);
            process(&graph, &server, &context, &namespaces, key).await
        }
        Item::Namespace(name) => namespace::finish(&server, &namespaces, name).await,
    };
    (item, is_failure(outcome))
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
    fn an_item_has_one_step_at_a_time() {
        let item = |key: &str| Item::Object(key.into());
        let mut queue = Queue { pending: [Item::Namespace("n".into()), item("a")].into(), ..Queue::default() };
        assert_eq!(queue.next(), Some(item("a")));
        // A change while the step runs.
        queue.pending.insert(item("a"));
        assert_eq!((queue.next(), queue.next()), (Some(Item::Namespace("n".into())), None));
        queue.running.remove(&item("a"));
        assert_eq!(queue.next(), Some(item("a")));
        queue.running.clear();
        assert!(queue.is_idle());
    }

    #[test]
    fn what_failed_is_tried_again_later_each_time() {
        let begin = Instant::now();
        let failed = |key: &str| Pending::from([Item::Object(key.into())]);
        let mut retries = Retries::default();
        retries.note(failed("a"), begin);
        let first = retries.due;
        assert_eq!(first, begin + FIRST_RETRY);
        // A failure while others wait joins them, and does not delay them.
        retries.note(failed("b"), begin + FIRST_RETRY / 2);
        assert_eq!(retries.due, first);
        assert_eq!(retries.take().len(), 2);
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
