//! A listener at work: accepts connections, owns their tasks, renews certificates, and stops in order. It is the only
//! place that starts connections, and none outlives it.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{self, JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout_at};
use tower_service::Service;

use crate::activity::Activity;
use crate::bind::{Listener, Tls};
use crate::certificates::{Certificates, Renewal};
use crate::connection::{self, Open, Security, Shared, Stage};
use crate::counters::{Counters, count};
use crate::eviction;
use crate::exchange::RequestBody;
use crate::unread::Unread;

/// How long to leave the system alone that could not hand over a connection, most often for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often the connections are looked at again for idle ones while a new one waits.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often it is logged that all connections are taken.
const FULL_WARNING: Duration = Duration::from_secs(60);
/// The part of all connections that is closed at once when there is no room: looking for them costs the same as for a single one.
const EVICTED_PART: usize = 100;
/// How often to look whether the certificate is due; renewal begins weeks before the end.
const RENEWAL_CHECK: Duration = Duration::from_secs(3600);

/// A listener that serves. Dropping it ends everything at once; [`Server::stop`] lets requests finish.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    url: String,
    counters: Arc<Counters>,
    stage: Arc<watch::Sender<Stage>>,
    task: JoinHandle<Stopped>,
}

/// How a server stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Connections that ended by themselves.
    pub finished: usize,
    /// Connections that had to be cut when the time was up.
    pub cut: usize,
}

impl Listener {
    /// Begins to accept. To be called within a tokio runtime.
    pub fn serve<S, B>(self, service: S) -> Server
    where
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        // Subscribed here: a stop may come before the task's first turn.
        let (stage, stages) = watch::channel(Stage::Serving);
        let stage = Arc::new(stage);
        let url = self.url();
        let (certificates, plain) = match self.tls {
            Tls::Off => (None, true),
            Tls::On(certificates) => (Some(certificates), false),
            Tls::Either(certificates) => (Some(certificates), true),
        };
        let tls = certificates.as_ref().map(|certificates| Security::new(certificates, self.client_ca, plain));
        let unread = Unread::of_all(self.limits.unread);
        let (limits, counters, client_addresses) = (self.limits, self.counters.clone(), self.client_addresses);
        let shared = Arc::new(Shared { service, tls, limits, counters, unread, client_addresses });
        let task = tokio::spawn(run(self.socket, shared, certificates, stage.clone(), stages));
        Server { address: self.address, url, counters: self.counters, stage, task }
    }
}

impl Server {
    /// The address it really has.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:6443`
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it has seen; stays readable after the server is gone.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Accepts nothing more, closes idle connections, lets running requests finish for so long, and cuts the rest.
    /// When it returns, no task of the server is left.
    pub async fn stop(mut self, within: Duration) -> Stopped {
        self.stage.send_replace(Stage::Draining(Instant::now() + within));
        match (&mut self.task).await {
            Ok(stopped) => stopped,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The connections are in a set that this task owns.
        self.task.abort();
    }
}

async fn run<S, B>(
    listener: TcpListener,
    shared: Arc<Shared<S>>,
    certificates: Option<Certificates>,
    stage: Arc<watch::Sender<Stage>>,
    mut stages: watch::Receiver<Stage>,
) -> Stopped
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut connections = Connections::default();
    let mut renewal = interval_at(Instant::now() + RENEWAL_CHECK, RENEWAL_CHECK);
    renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Accepted although there is no room: that somebody waits cannot be seen otherwise.
    let mut waiting: Option<TcpStream> = None;
    let mut warned_at: Option<Instant> = None;
    let deadline = loop {
        let full = connections.len() >= shared.limits.connections;
        if !full && let Some(stream) = waiting.take() {
            connections.start(stream, &shared, &stages);
            continue;
        }
        tokio::select! {
            biased;
            Ok(()) = stages.changed() => match *stages.borrow_and_update() {
                Stage::Draining(deadline) => break deadline,
                Stage::Serving | Stage::Cut => break Instant::now(),
            },
            Some(ended) = connections.next_end() => note(ended, &shared.counters),
            _ = renewal.tick(), if certificates.is_some() => renew(certificates.as_ref()).await,
            () = sleep(LOOK_AGAIN), if waiting.is_some() => connections.evict(&shared),
            accepted = listener.accept(), if waiting.is_none() => match accepted {
                Ok((stream, _)) if !full => connections.start(stream, &shared, &stages),
                Ok((stream, _)) => {
                    waiting = Some(stream);
                    count(&shared.counters.full);
                    if warned_at.is_none_or(|at| at.elapsed() > FULL_WARNING) {
                        warned_at = Some(Instant::now());
                        tracing::warn!(
                            limit = shared.limits.connections,
                            "all connections are taken; unused ones are closed for new ones, and if all are used, new ones wait"
                        );
                    }
                    connections.evict(&shared);
                }
                Err(error) => {
                    count(&shared.counters.accept_failed);
                    tracing::warn!(%error, "the system could not hand over a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    };
    drop(listener);
    drain(connections.tasks, deadline, &stage, &shared.counters).await
}

/// The connections that are open.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    activities: HashMap<task::Id, Arc<Activity>>,
}

impl Connections {
    fn len(&self) -> usize {
        self.tasks.len()
    }

    fn start<S, B>(&mut self, stream: TcpStream, shared: &Arc<Shared<S>>, stages: &watch::Receiver<Stage>)
    where
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        count(&shared.counters.accepted);
        // A clone has seen no more than this receiver, so that a stop in this moment is not missed.
        let (shared, stages) = (shared.clone(), stages.clone());
        let open = Open::new(shared.counters.clone());
        let unread = shared.unread.of_connection(shared.limits.connection_unread);
        let activity = Activity::new(&shared.limits, unread);
        let seen = activity.clone();
        let task = self.tasks.spawn(async move {
            let _open = open;
            connection::run(stream, activity, shared, stages).await;
        });
        self.activities.insert(task.id(), seen);
    }

    /// Waits for the end of any connection.
    async fn next_end(&mut self) -> Option<Result<(), JoinError>> {
        let ended = self.tasks.join_next_with_id().await?;
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        self.activities.remove(&id);
        Some(ended.map(drop))
    }

    /// Closes connections that nobody uses, so that others find room.
    fn evict<S>(&self, shared: &Shared<S>) {
        let unused = self.activities.values().filter_map(|activity| Some((activity.unused()?, activity)));
        let limit = shared.limits.connections;
        let wanted = (limit / EVICTED_PART).max(1);
        for activity in eviction::order(unused, limit, Instant::now()).into_iter().take(wanted) {
            if activity.evict() {
                count(&shared.counters.evicted);
            }
        }
    }
}

async fn drain(
    mut connections: JoinSet<()>,
    deadline: Instant,
    stage: &watch::Sender<Stage>,
    counters: &Counters,
) -> Stopped {
    let mut stopped = Stopped::default();
    while let Ok(Some(ended)) = timeout_at(deadline, connections.join_next()).await {
        note(ended, counters);
        stopped.finished += 1;
    }
    stopped.cut = connections.len();
    stage.send_replace(Stage::Cut);
    while let Some(ended) = connections.join_next().await {
        note(ended, counters);
    }
    stopped
}

fn note(ended: Result<(), JoinError>, counters: &Counters) {
    if let Err(error) = ended
        && error.is_panic()
    {
        count(&counters.panics);
        tracing::error!("a connection ended in a panic of the service");
    }
}

async fn renew(certificates: Option<&Certificates>) {
    let Some(certificates) = certificates.cloned() else { return };
    // Keys are made and files are written.
    match tokio::task::spawn_blocking(move || certificates.renew_if_due(SystemTime::now())).await {
        Ok(Ok(Renewal::Current)) => {}
        Ok(Ok(Renewal::Renewed)) => tracing::info!("renewed the server certificate"),
        Ok(Err(error)) => {
            let cause: &dyn Error = &error;
            tracing::error!(cause, "could not renew the server certificate; it is tried again in an hour");
        }
        Err(_) => tracing::error!("renewing the server certificate ended in a panic"),
    }
}
