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
                let (item, outcome) = ended.expect("a step ends by itself");
                queue.running.remove(&item);
                match outcome {
                    Err(status) => retries.note(item, status, Instant::now()),
                    // The wait is short again when nothing has failed until the end.
                    Ok(()) if queue.is_idle() => retries.all_done(),
                    Ok(()) => {}
                }
            }
            () = tokio::time::sleep_until(retries.due), if !retries.pending.is_empty() => {
                let (pending, failure) = retries.take();
                // One line for all that failed meanwhile: a store that cannot write makes every step fail.
                if let Some((example, status)) = failure {
                    let Status { code, message, .. } = &status;
                    let (count, example) = (pending.len(), example.to_string());
                    tracing::warn!(code, message, count, example, "garbage collection failed; trying again");
                }
                queue.pending.extend(pending);
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

impl std::fmt::Display for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object(key) => f.write_str(key),
            Self::Namespace(name) => write!(f, "the namespace {name}"),
        }
    }
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
    /// The first failure since the last retry that is worth a line in the log. A conflict is expected.
    failure: Option<(Item, Status)>,
    wait: Duration,
    due: Instant,
}

impl Default for Retries {
    fn default() -> Self {
        Self { pending: Pending::default(), failure: None, wait: FIRST_RETRY, due: Instant::now() }
    }
}

impl Retries {
    fn note(&mut self, failed: Item, status: Status, now: Instant) {
        // A new failure does not delay those that wait already.
        if self.pending.is_empty() {
            self.due = now + self.wait;
            self.wait = (self.wait * 2).min(LAST_RETRY);
        }
        if status.code != 409 && self.failure.is_none() {
            self.failure = Some((failed.clone(), status));
        }
        self.pending.insert(failed);
    }

    fn all_done(&mut self) {
        if self.pending.is_empty() {
            self.wait = FIRST_RETRY;
        }
    }

    fn take(&mut self) -> (Pending, Option<(Item, Status)>) {
        (std::mem::take(&mut self.pending), self.failure.take())
    }
}

/// Does the next step for an item. One that failed has to be repeated.
async fn step(server: Arc<Server>, graph: Arc<RwLock<Graph>>, item: Item) -> (Item, Result<(), Status>) {
    let namespaces = server.task_context(SystemUser::NamespaceController);
    let outcome = match &item {
        Item::Object(key) => {
            let context = server.task_context(SystemUser::GarbageCollector);
            process(&graph, &server, &context, &namespaces, key).await
        }
        Item::Namespace(name) => namespace::finish(&server, &namespaces, name).await,
    };
    (item, outcome)
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
        let fail = |retries: &mut Retries, key: &str, code: u16, now: Instant| {
            retries.note(Item::Object(key.into()), Status::failure(code, "", format!("{key} failed")), now);
        };
        let mut retries = Retries::default();
        fail(&mut retries, "a", 409, begin);
        let first = retries.due;
        assert_eq!(first, begin + FIRST_RETRY);
        // A failure while others wait joins them, and does not delay them.
        fail(&mut retries, "b", 503, begin + FIRST_RETRY / 2);
        fail(&mut retries, "c", 503, begin + FIRST_RETRY / 2);
        assert_eq!(retries.due, first);
        let (pending, failure) = retries.take();
        assert_eq!(pending.len(), 3);
        let (example, status) = failure.expect("one failure stands for all, and a conflict is none");
        assert_eq!((example, &*status.message), (Item::Object("b".into()), "b failed"));
        assert!(retries.pending.is_empty());
        for expect in [2, 4, 8] {
            fail(&mut retries, "a", 409, begin);
            assert_eq!(retries.due, begin + FIRST_RETRY * expect);
            assert_eq!(retries.take().1, None, "said once");
        }
        for _ in 0..20 {
            fail(&mut retries, "a", 503, begin);
            retries.take();
        }
        fail(&mut retries, "a", 503, begin);
        assert_eq!(retries.due, begin + LAST_RETRY);
        retries.take();
        retries.all_done();
        fail(&mut retries, "a", 503, begin);
        assert_eq!(retries.due, begin + FIRST_RETRY);
    }
}
