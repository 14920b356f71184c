//! The client of one watch. In: requests of kube's watcher. Out: the same requests at a pace a server can bear, and notes
//! of what only the transport sees. Never retries: after a watch that ended too early the next request fails here, unsent.

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

use super::pace::Pace;
use super::pulse::{Pulse, Renewal};
use crate::connect::MayBeHalfOpen;
use crate::retry::retry_after;

/// How long a server may take until it begins to answer. It does so at once unless it, or the way to it, is stuck.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The same for a watch that was silent and is asked for over a new connection: with the silence before it that is below
/// fifteen seconds. A server that is only slow is asked once more, and has the usual time then.
const RENEWED_WITHIN: Duration = Duration::from_secs(4);

/// A watch that ends sooner than this has failed, however politely it ended. What client-go takes for one, too.
pub(super) const SHORT: Duration = Duration::from_secs(1);

/// What the transport saw.
#[derive(Debug)]
pub(crate) struct Notes {
    /// How long a connection that can be half open may be silent before the watch is asked for again over another one.
    renew_after: Duration,
    pace: Mutex<Pace>,
    seen: Mutex<Seen>,
    listing: AtomicBool,
    torn: AtomicBool,
    /// Whether people were told that the watch fails, and not yet that it works again.
    warned: AtomicBool,
}

#[derive(Debug, Default)]
struct Seen {
    asked: Option<Instant>,
    opened: Option<Instant>,
    /// When the first was opened of those that followed each other only because they were silent.
    well_since: Option<Instant>,
    /// How the last watch ended, if that was no fault of anybody.
    ended: Option<Ended>,
    /// The version of the list that comes in: the oldest of its pages; none while nobody knows.
    list_version: Option<u64>,
    retry_after: Option<Duration>,
    rhythm: Option<Duration>,
}

/// How a watch ended over a connection that may be half open: it is resumed at once over another one, which is answered
/// soon or is no better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was silent, or had nothing but bookmarks.
    Quiet,
    /// The time was over that a quiet one asks for, and it had become busy.
    Busy,
}

/// A tower service around a client. Its clones share the notes.
#[derive(Clone)]
pub(crate) struct Link {
    client: Client,
    notes: Arc<Notes>,
    events: Arc<dyn LinkEvents>,
}

/// Told what the requests of a watch do.
pub(crate) trait LinkEvents: Send + Sync + 'static {
    /// A list begins, as a request of its own or as the first part of a watch: it will show at least what the server
    /// has now.
    fn list_sent(&self);
    /// A watch is open.
    fn watch_opened(&self);
}

impl Notes {
    pub fn new(renew_after: Duration) -> Arc<Self> {
        let (listing, torn, warned) = Default::default();
        Arc::new(Self { renew_after, pace: Mutex::new(Pace::new()), seen: Mutex::default(), listing, torn, warned })
    }

    /// Whether a list is under way.
    pub fn listing(&self) -> bool {
        self.listing.load(Ordering::Relaxed)
    }

    pub fn set_listing(&self, listing: bool) {
        self.listing.store(listing, Ordering::Relaxed);
    }

    /// Whether a deletion came in the middle of a streamed list, asked once.
    pub fn take_torn(&self) -> bool {
        self.torn.swap(false, Ordering::Relaxed)
    }

    /// Whether people wait to hear that the watch works again, asked once.
    pub fn take_warned(&self) -> bool {
        self.warned.swap(false, Ordering::Relaxed)
    }

    pub fn set_warned(&self) {
        self.warned.store(true, Ordering::Relaxed);
    }

    pub fn set_torn(&self) {
        self.torn.store(true, Ordering::Relaxed);
    }

    /// When the server was last asked.
    pub fn asked(&self) -> Option<Instant> {
        self.seen.lock().asked
    }

    /// When a watch was last opened, or the first of those that were only silent, asked once.
    pub fn take_opened(&self) -> Option<Instant> {
        let mut seen = self.seen.lock();
        seen.well_since.take().or(seen.opened).filter(|_| seen.opened.take().is_some())
    }

    /// The watch has ended as it was meant to, and is to be resumed.
    pub fn set_ended(&self, how: Ended) {
        self.seen.lock().ended = Some(how);
    }

    /// How long the server asked to be left alone, asked once.
    pub fn take_retry_after(&self) -> Option<Duration> {
        self.seen.lock().retry_after.take()
    }

    /// At which version the last list was taken, if that is known.
    pub fn list_version(&self) -> Option<u64> {
        self.seen.lock().list_version.filter(|version| *version < u64::MAX)
    }

    pub fn set_list_version(&self, version: Option<u64>) {
        self.seen.lock().list_version = version;
    }

    /// A page of the list was taken at this version. The list is as old as its oldest page, and nobody knows how old if
    /// one page does not say.
    pub fn add_page(&self, version: Option<u64>) {
        let mut seen = self.seen.lock();
        seen.list_version = seen.list_version.zip(version).map(|(list, page)| list.min(page));
    }

    /// How often bookmarks come, if they do.
    pub fn rhythm(&self) -> Option<Duration> {
        self.seen.lock().rhythm
    }

    pub fn set_rhythm(&self, rhythm: Option<Duration>) {
        self.seen.lock().rhythm = rhythm;
    }

    /// What was wrong with the last watch if nobody was told. kube's watcher takes every end that is no error for an
    /// everyday one and asks again at once, also where each watch ends before it brought anything.
    fn ended_early(&self, now: Instant) -> Option<&'static str> {
        let seen = self.seen.lock();
        let opened = seen.opened.filter(|_| seen.ended.is_none())?;
        drop(seen);
        match now.saturating_duration_since(opened) < SHORT {
            _ if self.listing() => Some("the server ended a watch in the middle of its list"),
            true => Some("the server ended a watch as soon as it began"),
            false => None,
        }
    }
}

impl Link {
    /// A client for one watch.
    pub fn client(client: Client, notes: Arc<Notes>, events: Arc<dyn LinkEvents>) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(Self { client, notes, events }, namespace)
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<Pulse>, kube::Error> {
        if let Some(why) = self.notes.ended_early(Instant::now()) {
            // Nothing is sent: whoever runs the watch takes note of it, waits, and comes again.
            return Err(kube::Error::Service(why.into()));
        }
        let query = request.uri().query().unwrap_or_default();
        let asks = |name: &str| query.split('&').any(|pair| pair.split_once('=').is_some_and(|(key, _)| key == name));
        let (watches, continues, streams) = (asks("watch"), asks("continue"), asks("sendInitialEvents"));
        if streams {
            *request.uri_mut() = without_version(request.uri());
        }
        if !continues {
            let leave = self.notes.pace.lock().take(Instant::now());
            tokio::time::sleep_until(leave).await;
            if streams || !watches {
                self.notes.set_list_version((!streams).then_some(u64::MAX));
                self.events.list_sent();
            }
        }
        let ended = {
            let mut seen = self.notes.seen.lock();
            seen.asked = Some(Instant::now());
            seen.ended.take().filter(|_| watches && !streams)
        };
        let brief = ended == Some(Ended::Quiet);
        if brief {
            *request.uri_mut() = with_timeout(request.uri(), self.notes.renew_after);
        }
        let within = if ended.is_some() { RENEWED_WITHIN } else { ANSWER_WITHIN };
        let response = match tokio::time::timeout(within, self.client.send(request)).await {
            Ok(response) => response?,
            Err(elapsed) => return Err(kube::Error::Service(elapsed.into())),
        };
        let mut seen = self.notes.seen.lock();
        if response.status().is_success() {
            seen.retry_after = None;
            if !watches {
                drop(seen);
                return Ok(response.map(|body| Pulse::of_list(body, self.notes)));
            }
            if watches {
                let now = Instant::now();
                seen.opened = Some(now);
                if ended.is_none() || seen.well_since.is_none() {
                    seen.well_since = Some(now);
                }
                drop(seen);
                self.events.watch_opened();
                let may_be_half_open = response.extensions().get::<MayBeHalfOpen>();
                let renewal = may_be_half_open.map(|_| Renewal { after: self.notes.renew_after, brief });
                return Ok(response.map(|body| Pulse::of_watch(body, self.notes, now, renewal)));
            }
        } else {
            seen.retry_after = retry_after(response.headers());
        }
        drop(seen);
        Ok(response.map(Pulse::of_other))
    }
}

/// kube asks for a streamed list at any version (`resourceVersion=0`), which a server may answer with a state older than
/// what we have seen. Without a version it means: the state of now.
fn without_version(uri: &Uri) -> Uri {
    with_query(uri, |pair| pair != "resourceVersion=0", "")
}

/// The server is asked to end a quiet watch about when its client would. It then sends a bookmark two seconds before, as
/// API servers do, and the next one goes on from there: with none, the version of a quiet watch would age until the
/// server does not know it any more and all of its objects have to be listed anew.
fn with_timeout(uri: &Uri, time: Duration) -> Uri {
    let is_other = |pair: &str| !pair.starts_with("timeoutSeconds=");
    with_query(uri, is_other, &format!("timeoutSeconds={}", time.as_secs().max(1)))
}

/// The same with those pairs of its query that are to be kept, and one more.
fn with_query(uri: &Uri, keep: impl Fn(&str) -> bool, more: &str) -> Uri {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| keep(pair)).chain([more]);
    let pairs: Vec<&str> = pairs.filter(|pair| !pair.is_empty()).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{}?{}", uri.path(), pairs.join("&")).parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

impl Service<Request<Body>> for Link {
    type Response = Response<Pulse>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Pulse>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}
