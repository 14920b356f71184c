//! The HTTP client of one watch. In: requests of kube's watcher. Out: the same requests at a limited rate, and a
//! [`TransportState`] with what only the transport can see. Never retries: after a watch that ended too early, the next
//! request fails here without being sent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower_service::Service;

use super::body::{ResponseBody, Resumption};
use super::pace::RequestLimiter;
use crate::connect::MayBeHalfOpen;
use crate::retry::retry_after;

/// How long a server may take until it begins to respond. A server that works responds at once.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for an idle watch that is resumed over a new connection. Together with the idle time before it, this stays
/// below fifteen seconds. A server that is only slow is asked once more, with [`RESPONSE_TIMEOUT`].
const RESUME_TIMEOUT: Duration = Duration::from_secs(4);

/// A watch that ends sooner than this has failed, even if the server closed it without an error. client-go uses the same
/// limit.
pub(super) const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);

/// What the transport of one watch has seen. The watch, its client and its open response share it.
#[derive(Debug)]
pub(crate) struct TransportState {
    /// How long a connection that can be half open may be silent before the watch is resumed over another one.
    idle_timeout: Duration,
    limiter: Mutex<RequestLimiter>,
    progress: Mutex<Progress>,
    listing: AtomicBool,
    deleted_while_listing: AtomicBool,
    /// Whether the log says that the watch fails, and does not yet say that it works again.
    warned: AtomicBool,
}

#[derive(Debug, Default)]
struct Progress {
    /// When the newest request was sent.
    requested_at: Option<Instant>,
    /// When the newest watch was opened.
    opened_at: Option<Instant>,
    /// When the watch was opened that the newest one continues. Watches that only replace an idle connection do not
    /// change it.
    healthy_since: Option<Instant>,
    /// How the last watch ended, if it ended without a fault.
    clean_end: Option<CleanEnd>,
    /// The resource version of the list that is being read: the oldest one of its pages. `None` if it is unknown.
    list_version: Option<u64>,
    retry_after: Option<Duration>,
    bookmark_interval: Option<Duration>,
}

/// How a watch over a connection that may be half open ended without a fault. Such a watch is resumed at once over a new
/// connection, with [`RESUME_TIMEOUT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CleanEnd {
    /// The watch brought nothing, or only bookmarks.
    Idle,
    /// The watch had a short timeout, because the one before it was idle, and brought events until then.
    Active,
}

/// A tower service around a client. Its clones share the state.
#[derive(Clone)]
pub(crate) struct Transport {
    client: Client,
    state: Arc<TransportState>,
    events: Arc<dyn TransportEvents>,
}

/// Is notified about the requests of a watch.
pub(crate) trait TransportEvents: Send + Sync + 'static {
    /// A list begins, as a request of its own or as the first part of a watch. It will show at least what the server
    /// has now.
    fn list_sent(&self);
    /// The first page of a list that is a request of its own has begun to arrive.
    fn list_opened(&self);
    /// A watch is open.
    fn watch_opened(&self);
}

impl TransportState {
    pub(super) fn new(idle_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            idle_timeout,
            limiter: Mutex::new(RequestLimiter::new()),
            progress: Mutex::default(),
            listing: AtomicBool::default(),
            deleted_while_listing: AtomicBool::default(),
            warned: AtomicBool::default(),
        })
    }

    /// Whether a list is being read.
    pub(super) fn listing(&self) -> bool {
        self.listing.load(Ordering::Relaxed)
    }

    pub(super) fn set_listing(&self, listing: bool) {
        self.listing.store(listing, Ordering::Relaxed);
    }

    /// Whether an object was deleted while a streamed list was read. Resets the flag.
    pub(super) fn take_deleted_while_listing(&self) -> bool {
        self.deleted_while_listing.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_deleted_while_listing(&self) {
        self.deleted_while_listing.store(true, Ordering::Relaxed);
    }

    /// Whether the log still has to say that the watch works again. Resets the flag.
    pub(super) fn take_warned(&self) -> bool {
        self.warned.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_warned(&self) {
        self.warned.store(true, Ordering::Relaxed);
    }

    /// When the newest request was sent.
    pub(super) fn requested_at(&self) -> Option<Instant> {
        self.progress.lock().requested_at
    }

    /// Since when the watch has been healthy: when it was opened, or the first one of a chain of watches that only
    /// replaced idle connections. Resets it.
    pub(super) fn take_healthy_since(&self) -> Option<Instant> {
        let mut progress = self.progress.lock();
        progress.healthy_since.take().or(progress.opened_at).filter(|_| progress.opened_at.take().is_some())
    }

    /// Notes that the watch ended without a fault and has to be resumed.
    pub(super) fn set_clean_end(&self, end: CleanEnd) {
        self.progress.lock().clean_end = Some(end);
    }

    /// The pause that the server asked for. Resets it.
    pub(super) fn take_retry_after(&self) -> Option<Duration> {
        self.progress.lock().retry_after.take()
    }

    /// The resource version of the last list, if it is known.
    pub(super) fn list_version(&self) -> Option<u64> {
        self.progress.lock().list_version.filter(|version| *version < u64::MAX)
    }

    pub(super) fn set_list_version(&self, version: Option<u64>) {
        self.progress.lock().list_version = version;
    }

    /// Notes the resource version of one page. A list is as old as its oldest page. If one page has no version, the
    /// list has none either.
    pub(super) fn add_page(&self, version: Option<u64>) {
        let mut progress = self.progress.lock();
        progress.list_version = progress.list_version.zip(version).map(|(list, page)| list.min(page));
    }

    /// The longest time between two bookmarks so far, if the server sends bookmarks.
    pub(super) fn bookmark_interval(&self) -> Option<Duration> {
        self.progress.lock().bookmark_interval
    }

    pub(super) fn set_bookmark_interval(&self, interval: Option<Duration>) {
        self.progress.lock().bookmark_interval = interval;
    }

    /// Why the last watch counts as failed although no error was returned. kube's watcher treats every end without an
    /// error as normal and sends the next request at once, even if every watch ends before it brings anything.
    fn ended_early(&self, now: Instant) -> Option<&'static str> {
        let progress = self.progress.lock();
        let opened_at = progress.opened_at.filter(|_| progress.clean_end.is_none())?;
        drop(progress);
        match now.saturating_duration_since(opened_at) < MIN_WATCH_DURATION {
            _ if self.listing() => Some("the server ended a watch in the middle of its list"),
            true => Some("the server ended a watch as soon as it began"),
            false => None,
        }
    }
}

impl Transport {
    /// A client for one watch.
    pub(super) fn client(client: Client, state: Arc<TransportState>, events: Arc<dyn TransportEvents>) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(Self { client, state, events }, namespace)
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<ResponseBody>, kube::Error> {
        if let Some(why) = self.state.ended_early(Instant::now()) {
            // Nothing is sent. The watch handles this like any other error: it backs off and tries again.
            return Err(kube::Error::Service(why.into()));
        }
        let query = request.uri().query().unwrap_or_default();
        let has = |name: &str| query.split('&').any(|pair| pair.split_once('=').is_some_and(|(key, _)| key == name));
        let (is_watch, is_next_page, is_streamed_list) = (has("watch"), has("continue"), has("sendInitialEvents"));
        if is_streamed_list {
            *request.uri_mut() = without_version(request.uri());
        }
        if !is_next_page {
            let allowed_at = self.state.limiter.lock().take(Instant::now());
            tokio::time::sleep_until(allowed_at).await;
            if is_streamed_list || !is_watch {
                self.state.set_list_version((!is_streamed_list).then_some(u64::MAX));
                self.events.list_sent();
            }
        }
        let resumed = {
            let mut progress = self.state.progress.lock();
            progress.requested_at = Some(Instant::now());
            progress.clean_end.take().filter(|_| is_watch && !is_streamed_list)
        };
        let server_ends_it = resumed == Some(CleanEnd::Idle);
        if server_ends_it {
            *request.uri_mut() = with_timeout(request.uri(), self.state.idle_timeout);
        }
        let timeout = if resumed.is_some() { RESUME_TIMEOUT } else { RESPONSE_TIMEOUT };
        let response = match tokio::time::timeout(timeout, self.client.send(request)).await {
            Ok(response) => response?,
            Err(elapsed) => return Err(kube::Error::Service(elapsed.into())),
        };
        let mut progress = self.state.progress.lock();
        if !response.status().is_success() {
            progress.retry_after = retry_after(response.headers());
            drop(progress);
            return Ok(response.map(ResponseBody::of_error));
        }
        progress.retry_after = None;
        if !is_watch {
            drop(progress);
            if !is_next_page {
                self.events.list_opened();
            }
            return Ok(response.map(|body| ResponseBody::of_list(body, self.state)));
        }
        let now = Instant::now();
        progress.opened_at = Some(now);
        if resumed.is_none() || progress.healthy_since.is_none() {
            progress.healthy_since = Some(now);
        }
        drop(progress);
        self.events.watch_opened();
        let may_be_half_open = response.extensions().get::<MayBeHalfOpen>();
        let resumption = may_be_half_open.map(|_| Resumption { after: self.state.idle_timeout, server_ends_it });
        Ok(response.map(|body| ResponseBody::of_watch(body, self.state, now, resumption)))
    }
}

/// kube requests a streamed list at any version (`resourceVersion=0`), and a server may answer that with a state older
/// than what this client has seen. Without a version, the server answers with its newest state.
fn without_version(uri: &Uri) -> Uri {
    with_query(uri, |pair| pair != "resourceVersion=0", "")
}

/// Asks the server to end an idle watch at about the time at which its client would. API servers send a bookmark two
/// seconds before that, and the next watch resumes from there. Without bookmarks the version of an idle watch would age
/// until the server has forgotten it, and all objects would have to be listed again.
fn with_timeout(uri: &Uri, timeout: Duration) -> Uri {
    let is_other = |pair: &str| !pair.starts_with("timeoutSeconds=");
    with_query(uri, is_other, &format!("timeoutSeconds={}", timeout.as_secs().max(1)))
}

/// The same URI with the pairs of its query that `keep` accepts, and `added` behind them.
fn with_query(uri: &Uri, keep: impl Fn(&str) -> bool, added: &str) -> Uri {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| keep(pair)).chain([added]);
    let pairs: Vec<&str> = pairs.filter(|pair| !pair.is_empty()).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{}?{}", uri.path(), pairs.join("&")).parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

impl Service<Request<Body>> for Transport {
    type Response = Response<ResponseBody>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}
