//! Background tasks: work of the user that runs beside the controllers. In: async functions. Out: tasks that start after the
//! caches are filled and stop before the watches end.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Cache, Error, Leadership, Result, panic_message};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use super::cached_reads::CachedReads;
use super::{Manager, Phase};
use crate::kind::Kind;
use crate::state::States;

/// How long a task may take to come to an await, where it can be cut off.
const CUT_WITHIN: Duration = Duration::from_secs(1);

/// When a task that waits for caches is logged: a start takes less, and then often enough to be seen.
const FIRST_REPORT_AFTER: Duration = Duration::from_secs(10);
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(60);

type Work = Box<dyn FnOnce(BackgroundTask) -> BoxFuture<'static, Result<()>> + Send>;

/// A task before it starts.
pub(super) struct Background {
    name: String,
    /// Behind a lock only so that an operator can be shared between threads before it starts.
    work: Mutex<Work>,
}

impl Background {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn new<F, Fut>(name: String, work: F) -> Self
    where
        F: FnOnce(BackgroundTask) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self { name, work: Mutex::new(Box::new(move |task| Box::pin(work(task)))) }
    }
}

/// What a background task is given: see [`Operator::background`](crate::Operator::background). Clones are the same.
#[derive(Clone)]
pub struct BackgroundTask {
    name: Arc<str>,
    /// Who reads, for the log of a watch that fails.
    reader: Arc<str>,
    client: Client,
    states: States,
    reads: Arc<CachedReads>,
    phase: watch::Receiver<Phase>,
}

impl BackgroundTask {
    /// The name that the task was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client of the operator. It is the one that [`Context::client`](crate::Context::client) returns.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Reads an object, if it exists: from the cache of a kind that the operator watches, without a request, and from the
    /// server otherwise, also while the cache is not filled or may not be.
    ///
    /// A kind that is not installed is waited for, as controllers wait for it, and the log says so. If the operator is told to
    /// stop meanwhile, that is an error with the reason `Stopping`.
    ///
    /// The cache is at most a moment behind the server. Writes of reconciles are seen at once, writes of
    /// [`BackgroundTask::client`] when the watch brings them. The operator needs the rule `get`: see
    /// [`Operator::needs`](crate::Operator::needs).
    pub async fn get<T: Kind>(&self, key: &ObjectKey) -> Result<Option<T>> {
        self.reads.get(&self.reader, key).await
    }

    /// The objects of a kind in all namespaces that the operator watches, from the cache. The kind is watched from now on, so
    /// the operator needs the rules `list` and `watch`, and the next list costs no request.
    ///
    /// The first list waits until the cache is filled: for a kind that is not installed yet, for a missing rule, for a server
    /// that is away. The log says which. If the operator is told to stop meanwhile, that is an error with the reason
    /// `Stopping`.
    pub async fn list<T: Kind>(&self) -> Result<Vec<T>> {
        self.reads.list(&self.reader, None, &LabelSelector::default()).await
    }

    /// The objects of a kind in one namespace; otherwise like [`BackgroundTask::list`]. A namespace that the operator does not
    /// watch is listed from the server each time, and not watched.
    pub async fn list_in<T: Kind>(&self, namespace: &str) -> Result<Vec<T>> {
        self.reads.list(&self.reader, Some(namespace), &LabelSelector::default()).await
    }

    /// A value that the operator was given by [`Operator::state`](crate::Operator::state). A type that was not given is an
    /// error which names the type.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<&T> {
        self.states.get(|| format!("the operator of the background task {}", self.name))
    }

    /// Resolves when the operator stops: the task should end soon after that. It may be awaited any number of times.
    pub async fn stopped(&self) {
        let mut phase = self.phase.clone();
        // The sender is gone only when the operator is, too.
        let _ = phase.wait_for(|phase| *phase >= Phase::Stopping).await;
    }
}

impl fmt::Debug for BackgroundTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundTask").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The background tasks of an operator at work. They are aborted when this is dropped.
pub(super) struct BackgroundTasks {
    running: JoinSet<Result<()>>,
    /// The names of the tasks that have not ended.
    names: Vec<(Id, Arc<str>)>,
}

impl BackgroundTasks {
    /// Starts all tasks. Each begins its work when the caches that are open now are filled.
    pub(super) fn start(tasks: Vec<Background>, manager: &Manager<'_>, phase: &watch::Receiver<Phase>) -> Self {
        let mut started = Self { running: JoinSet::new(), names: Vec::new() };
        // Listed here and not in the tasks: reconciles open caches, too, and a task does not wait for those.
        let caches = manager.caches.all();
        let reads = Arc::new(CachedReads::new(manager, phase.clone()));
        for Background { name, work } in tasks {
            let name: Arc<str> = name.into();
            let (client, states) = (manager.client.clone(), manager.states.clone());
            let reads = reads.clone();
            let reader = format!("background task {name}").into();
            let task = BackgroundTask { name: name.clone(), reader, client, states, reads, phase: phase.clone() };
            let leadership = manager.leadership.clone();
            let handle = started.running.spawn(run(task, work.into_inner(), caches.clone(), leadership));
            started.names.push((handle.id(), name));
        }
        started
    }

    /// Resolves when a task fails, with its error; never, if none does.
    pub(super) async fn failed(&mut self) -> Error {
        while let Some(ended) = self.running.join_next_with_id().await {
            if let Some(error) = self.check(ended) {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Waits until all tasks have ended after they were told to stop, and cuts off those that take longer than `drain`.
    /// Returns the errors of those that failed.
    pub(super) async fn stop(mut self, drain: Duration) -> Vec<Error> {
        let mut failed = Vec::new();
        for (limit, is_last) in [(drain, false), (CUT_WITHIN, true)] {
            let all = async {
                while let Some(ended) = self.running.join_next_with_id().await {
                    failed.extend(self.check(ended));
                }
            };
            if tokio::time::timeout(limit, all).await.is_ok() {
                return failed;
            }
            if is_last {
                // Nobody can end a thread; waiting for it would take for ever.
                let tasks = self.names();
                tracing::error!(tasks, "background tasks block their threads; shutting down without them");
                self.running.detach_all();
            } else {
                let tasks = self.names();
                tracing::warn!(?drain, tasks, "cutting off background tasks that did not end in time");
                self.running.abort_all();
            }
        }
        failed
    }

    /// The names of the tasks that have not ended.
    fn names(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(|(_, name)| &**name).collect();
        names.join(", ")
    }

    /// The error of a task that ended, if it failed.
    fn check(&mut self, ended: Result<(Id, Result<()>), JoinError>) -> Option<Error> {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let at = self.names.iter().position(|(known, _)| *known == id)?;
        let (_, name) = self.names.remove(at);
        match ended {
            Ok((_, Ok(()))) => {
                tracing::info!(task = &*name, "a background task has ended");
                None
            }
            Ok((_, Err(error))) => Some(Error::new(format!("the background task {name} failed: {error:#}"))),
            Err(error) => {
                let panic = error.try_into_panic().ok()?;
                Some(Error::new(format!("the background task {name} panicked: {}", panic_message(&*panic))))
            }
        }
    }
}

/// Logs which kinds a task waits for, soon and then once a minute; never ends.
async fn report_waiting(task: &BackgroundTask, caches: &[Cache]) {
    let mut pause = FIRST_REPORT_AFTER;
    loop {
        tokio::time::sleep(pause).await;
        pause = REPORT_AGAIN_AFTER;
        let waiting: Vec<String> = caches.iter().filter_map(Cache::waiting_for).collect();
        tracing::warn!(
            task = task.name(),
            waiting_for = waiting.join("; "),
            "a background task has not started, because caches are not filled"
        );
    }
}

/// Waits for the caches and until this instance leads, then does the work. A function that was called once cannot be called again, so
/// work that is not done when the term ends is an error: the operator has to be started anew.
async fn run(task: BackgroundTask, work: Work, caches: Vec<Cache>, leadership: Leadership) -> Result<()> {
    let filled = async {
        for cache in &caches {
            cache.synced().await;
        }
    };
    tokio::select! {
        () = filled => {}
        () = report_waiting(&task, &caches) => {}
        () = task.stopped() => return Ok(()),
    }
    let term = tokio::select! {
        term = leadership.begun() => term,
        () = task.stopped() => return Ok(()),
    };
    tracing::info!(task = task.name(), "a background task starts");
    let over = leadership.ended(&term);
    tokio::select! {
        ended = leadership.scope(term, work(task)) => ended,
        () = over => Err(Error::new("this instance does not lead any more; the operator has to be started again")),
    }
}
