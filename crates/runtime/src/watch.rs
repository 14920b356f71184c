//! The watch of one kind, in one namespace or in all. In: a target and a client. Out: the objects and their changes, handed
//! to a [`Sink`] in the order in which the server committed them, and a [`WatchState`]. kube's watcher speaks the protocol;
//! this module decides when to send a request, how often, and what to log when one fails. Never keeps an object.

mod body;
mod fault;
mod not_served;
mod pace;
mod transport;

use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use konverge_core::{ErrorChain, LabelSelector};
use kube::api::ApiResource;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::Instant;

use crate::cache::ShardPart;
use crate::connect::Unreachable;
use crate::object::{Everything, Full, Metadata, Mode, Object, Projection, Wire};
use fault::Fault;
pub use not_served::{NotServed, explain_not_served};
use pace::WatchBackoff;
use transport::{Transport, TransportEvents, TransportState};

/// How long a server may be silent in the middle of a streamed list. A server that cannot stream lists never sends the
/// bookmark that ends the list.
const STREAM_SILENCE: Duration = Duration::from_secs(10);

/// How long one page of a list may take.
const PAGE_SILENCE: Duration = Duration::from_secs(60);

/// The longest pause between two attempts to watch a kind that is not installed. It is short because the user who installs
/// the kind is waiting.
const NOT_INSTALLED_BACKOFF: Duration = Duration::from_secs(5);

/// Together with the time that a new connection takes, the changes that a half-open connection hid are known within fifteen
/// seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a watch that cannot work without help, because its kind is not served or a rule is missing, is logged again.
const LOG_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// If the server has forgotten the version of a list that is older than this, other kinds changed more often than the
/// server's history is long. That is normal, and the next list is requested at once. If the list is younger, the server has
/// a problem, and the watch backs off.
const MIN_LIST_AGE: Duration = Duration::from_secs(10);

/// What to watch. Equal targets share one watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The kind.
    pub resource: ApiResource,
    /// One namespace, or all of them if `None`.
    pub namespace: Option<String>,
    /// A label selector in the form of the API: `app=web,tier!=db`. Empty selects all objects.
    pub labels: String,
    /// A field selector in the form of the API: `metadata.name=web`. Empty selects all objects.
    pub fields: String,
    /// How much of each object is fetched and kept.
    pub mode: Mode,
    /// Which objects are kept in full.
    pub part: ShardPart,
}

impl Target {
    /// All objects of a kind, in full.
    pub fn all(resource: ApiResource) -> Self {
        let (labels, fields) = (String::new(), String::new());
        Self { resource, namespace: None, labels, fields, mode: Mode::Full, part: ShardPart::Everything }
    }

    /// All objects of a kind that has a Rust type.
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self::all(ApiResource::erase::<K>(&()))
    }

    /// Only the objects in one namespace.
    pub fn within(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Only the objects that a label selector selects.
    pub fn labelled(self, selector: &LabelSelector) -> Self {
        Self { labels: selector.to_string(), ..self }
    }

    /// Only the objects that a field selector selects.
    pub fn fielded(self, selector: impl Into<String>) -> Self {
        Self { fields: selector.into(), ..self }
    }

    /// Sets which objects are kept in full.
    pub fn part(self, part: ShardPart) -> Self {
        Self { part, ..self }
    }

    /// Sets how much of each object is fetched and kept.
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }
}

/// How to watch.
#[derive(Clone)]
pub struct WatchSettings {
    /// How long the server keeps one watch open before the client has to request the next one.
    ///
    /// This also limits how long a hanging server goes unnoticed, for example one whose process is stopped while its
    /// kernel still answers TCP: such a server looks like one where nothing happens, and the watch is given up five
    /// seconds after this time. A server that has sent bookmarks, as API servers do every minute, is given up fifteen
    /// seconds after the next bookmark was due. A connection whose other end is gone is noticed much sooner, by
    /// [`connect`](crate::connect).
    pub timeout: Duration,
    /// How long a watch over a connection of [`connect`](crate::connect) may be silent before it is resumed over a new
    /// connection. A proxy may keep a connection open although its own connection to the server is gone, and then
    /// nothing else tells that changes are missed. An idle watch costs one request each time; a watch with events costs
    /// none. Below four seconds no bookmark comes in time, and an idle watch has to list again whenever the server has
    /// compacted its version away.
    pub idle_timeout: Duration,
    /// How lists are fetched.
    pub lists: Lists,
    /// How many objects come in one page of a list that is not streamed.
    pub page: u32,
    /// Returns a number between 0 and 1, the jitter of backoffs: watches that failed together do not retry together.
    pub random: fn() -> f64,
}

/// How lists are fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lists {
    /// As the first part of a watch; in pages if the server refuses that.
    #[default]
    Streamed,
    /// In pages.
    Paged,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(290),
            idle_timeout: IDLE_TIMEOUT,
            lists: Lists::default(),
            page: 500,
            random: system_random,
        }
    }
}

/// The state of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// The server has not responded yet.
    Starting,
    /// The server has responded, and sends a list in pages. The watch follows.
    Listing,
    /// The watch is open; a streamed list may still be on its way.
    Live,
    /// The server does not serve the kind. The watch tries again until somebody installs it. The text says what is wrong, and
    /// what to do.
    NotInstalled(String),
    /// The server refuses the watch. The text names the RBAC rule that is missing.
    Forbidden(String),
    /// The watch fails and will be tried again. The text says why.
    Failing(String),
    /// The watch has ended: nobody needs it any more, or the process stops.
    Stopped,
}

/// Receives what a watch brings.
pub(crate) trait Sink: Send + Sync + 'static {
    /// A list is about to be requested. What it shows is at least as new as now.
    fn list_sent(&self);
    /// The server's resource versions went backwards, as after a restore from a backup.
    fn rewound(&self);
    /// A list begins.
    fn list_began(&self);
    /// An object of the list.
    fn listed(&self, object: Object);
    /// The list is complete. It was taken at this resource version, if that is known.
    fn list_done(&self, version: Option<u64>);
    /// An object was created or changed.
    fn applied(&self, object: Object);
    /// An object was deleted. This is its last state.
    fn deleted(&self, object: Object);
    /// An object has no name and cannot be kept. This is the beginning of its JSON.
    fn unreadable(&self, beginning: &str);
    /// The watch failed and will be tried again.
    fn restarted(&self);
    /// The state of the watch has changed.
    fn state(&self, state: WatchState);
    /// The controllers that use the watch, for the log.
    fn users(&self) -> Vec<String>;
    /// The watch panicked. Returns how long to wait until it is started again.
    fn panicked(&self, panic: &(dyn Any + Send)) -> Duration;
}

/// Watches until the future is dropped. After a panic the watch starts again, with a list.
pub(crate) async fn watch(target: Target, client: Client, settings: WatchSettings, sink: Arc<dyn Sink>) {
    loop {
        let watching = once(target.clone(), client.clone(), settings.clone(), sink.clone());
        // A panic leaves only two things half done: the state of this watch, which is dropped, and a list in the sink,
        // which the next list replaces.
        let Err(panic) = AssertUnwindSafe(watching).catch_unwind().await else { return };
        tokio::time::sleep(sink.panicked(&*panic)).await;
    }
}

async fn once(target: Target, client: Client, settings: WatchSettings, sink: Arc<dyn Sink>) {
    match target.mode {
        Mode::Full => Watching::<Full>::run(target, client, settings, sink).await,
        Mode::Metadata => Watching::<Metadata>::run(target, client, settings, sink).await,
        Mode::WithManagedFields => Watching::<Everything>::run(target, client, settings, sink).await,
    }
}

struct Watching<P> {
    target: Target,
    /// For discovery, without the limits of the watch.
    client: Client,
    settings: WatchSettings,
    sink: Arc<dyn Sink>,
    api: Api<Wire<P>>,
    state: Arc<TransportState>,
    backoff: WatchBackoff,
    lists: Lists,
    /// When the last list was complete.
    listed: Option<Instant>,
    /// The state that was logged last, and when, so that the log does not repeat it at every attempt.
    logged: Option<(WatchState, Instant)>,
}

/// Tells the sink what the transport sees.
struct SinkEvents {
    sink: Arc<dyn Sink>,
    state: Arc<TransportState>,
    kind: String,
}

impl TransportEvents for SinkEvents {
    fn list_sent(&self) {
        self.sink.list_sent();
    }

    fn list_opened(&self) {
        self.sink.state(WatchState::Listing);
    }

    fn watch_opened(&self) {
        self.sink.state(WatchState::Live);
        if self.state.take_warned() {
            tracing::info!(kind = self.kind, "the watch works again");
        }
    }
}

impl<P: Projection> Watching<P> {
    async fn run(target: Target, client: Client, settings: WatchSettings, sink: Arc<dyn Sink>) {
        // Up to a tenth less, so that watches that became idle together do not send their requests together.
        let state = TransportState::new(settings.idle_timeout.mul_f64(1.0 - 0.1 * (settings.random)().clamp(0.0, 1.0)));
        let events = SinkEvents { sink: sink.clone(), state: state.clone(), kind: target.resource.kind.clone() };
        let watching = Transport::client(client.clone(), state.clone(), Arc::new(events));
        let api = match &target.namespace {
            Some(namespace) => Api::namespaced_with(watching, namespace, &target.resource),
            None => Api::all_with(watching, &target.resource),
        };
        let (lists, backoff) = (settings.lists, WatchBackoff::default());
        let mut watching =
            Self { target, client, settings, sink, api, state, backoff, lists, listed: None, logged: None };
        loop {
            watching.until_list_is_needed().await;
        }
    }

    /// Runs one watcher of kube, which begins with a list and resumes by itself after errors that allow it. Returns when
    /// the next watcher has to list again.
    async fn until_list_is_needed(&mut self) {
        let mut events = std::pin::pin!(watcher(self.api.clone(), self.config()));
        self.state.set_listing(false);
        loop {
            let streaming = self.lists == Lists::Streamed;
            let silence = if streaming { STREAM_SILENCE } else { PAGE_SILENCE };
            let event = match self.state.listing() {
                true => tokio::time::timeout(silence, events.next()).await,
                // An open watch may be silent; the response body limits for how long.
                false => Ok(events.next().await),
            };
            let Ok(event) = event else {
                if streaming {
                    tracing::info!(kind = self.kind(), "a streamed list fell silent; requesting pages from now on");
                    self.lists = Lists::Paged;
                }
                let why = "the server fell silent in the middle of a list".to_owned();
                return self.wait(&Fault::Broken, why, false).await;
            };
            match event {
                Some(Ok(event)) => self.take(event),
                Some(Err(error)) => {
                    // A streamed list cannot show an object that is deleted while the list is read; the watch that
                    // follows a paged list can.
                    let deleted = self.state.listing() && self.state.take_deleted_while_listing();
                    let fault = if deleted { Fault::NoStreaming } else { Fault::of(&error, streaming) };
                    if fault == Fault::NoStreaming {
                        tracing::debug!(kind = self.kind(), deleted, "the list cannot be streamed; requesting pages");
                        self.lists = Lists::Paged;
                        // This watch has ended for a known reason, so its end is not held against the next request.
                        self.state.take_healthy_since();
                        return;
                    }
                    let listed = self.listed.take_if(|_| fault == Fault::Expired);
                    if listed.is_some_and(|listed| listed.elapsed() >= MIN_LIST_AGE) {
                        tracing::debug!(kind = self.kind(), "the resource version has expired; listing again");
                        self.state.take_healthy_since();
                        return self.sink.restarted();
                    }
                    if fault == Fault::Rewound {
                        self.sink.rewound();
                    }
                    let why = ErrorChain(&error).to_string();
                    self.wait(&fault, why, Unreachable::caused(&error)).await;
                    if !matches!(error, watcher::Error::WatchError(_)) {
                        // That list is over. The next one begins when the server responds; the transport limits how long
                        // that may take.
                        self.state.set_listing(false);
                    }
                    if fault.starts_over() {
                        return;
                    }
                }
                None => return,
            }
            // All objects of a page are ready at once; this lets other tasks run in between.
            tokio::task::consume_budget().await;
        }
    }

    fn take(&mut self, event: Event<Wire<P>>) {
        let (wire, pass_to): (_, fn(&dyn Sink, Object)) = match event {
            Event::Init => {
                self.state.set_listing(true);
                return self.sink.list_began();
            }
            Event::InitDone => {
                self.state.set_listing(false);
                self.listed = Some(Instant::now());
                return self.sink.list_done(self.state.list_version());
            }
            Event::InitApply(wire) => (wire, |sink, object| sink.listed(object)),
            Event::Apply(wire) => (wire, |sink, object| sink.applied(object)),
            Event::Delete(wire) => (wire, |sink, object| sink.deleted(object)),
        };
        if !self.state.listing() {
            self.backoff.succeeded();
        }
        match wire.draft {
            Ok(draft) => pass_to(&*self.sink, draft.finish(&self.target.resource)),
            Err(unreadable) => {
                tracing::error!(
                    kind = self.kind(),
                    object = unreadable.beginning,
                    "an object has no name and is ignored; other objects are not affected"
                );
                self.sink.unreadable(&unreadable.beginning);
            }
        }
    }

    /// Logs what is wrong, once, and waits. `unreachable`: the cluster cannot be reached, which the connection has logged
    /// once for all watches.
    async fn wait(&mut self, fault: &Fault, why: String, unreachable: bool) {
        let now = Instant::now();
        if let Some(since) = self.state.take_healthy_since() {
            self.backoff.opened(since);
            self.logged = None;
        }
        let longest = (*fault == Fault::NotInstalled).then_some(NOT_INSTALLED_BACKOFF);
        let requested_at = self.state.requested_at().unwrap_or(now);
        let wait = self.backoff.failed(now, requested_at, (self.settings.random)(), longest);
        let wait = self.state.take_retry_after().unwrap_or_default().max(wait);
        self.sink.restarted();
        let state = match fault {
            Fault::NotInstalled => WatchState::NotInstalled(self.why_not_served().await),
            Fault::Forbidden(verb) => WatchState::Forbidden(fault::missing_rule(&self.target, verb)),
            _ => WatchState::Failing(why),
        };
        match unreachable {
            true => tracing::debug!(kind = self.kind(), ?wait, "a watch waits until the cluster can be reached"),
            false => self.log(&state, wait),
        }
        self.sink.state(state);
        tokio::time::sleep(wait).await;
    }

    /// Why the server does not serve the kind. Discovery is asked when the answer is logged; in between it stays the same.
    async fn why_not_served(&self) -> String {
        match &self.logged {
            Some((WatchState::NotInstalled(why), at)) if at.elapsed() < LOG_AGAIN_AFTER => why.clone(),
            _ => explain_not_served(&self.client, &self.target.resource, self.target.namespace.as_deref()).await,
        }
    }

    fn log(&mut self, state: &WatchState, wait: Duration) {
        let (kind, attempts) = (self.kind(), self.backoff.failures());
        let needs_help = matches!(state, WatchState::NotInstalled(_) | WatchState::Forbidden(_));
        let is_logged = self.logged.as_ref().is_some_and(|(logged, at)| {
            let is_same = std::mem::discriminant(logged) == std::mem::discriminant(state);
            is_same && !(needs_help && at.elapsed() >= LOG_AGAIN_AFTER)
        });
        let users = self.sink.users().join(", ");
        let api_version = &self.target.resource.api_version;
        match state {
            _ if is_logged => tracing::debug!(kind, attempts, ?wait, ?state, "a watch still fails"),
            WatchState::NotInstalled(why) => {
                tracing::warn!(kind, api_version, controllers = users, why, "waiting until the kind is served");
            }
            WatchState::Forbidden(rule) => {
                tracing::warn!(kind, api_version, controllers = users, rule, "a watch is forbidden");
            }
            // A single interruption is normal; only the second failure in a row is worth a warning.
            _ if attempts <= 1 => return tracing::debug!(kind, ?wait, ?state, "a watch was interrupted"),
            WatchState::Failing(why) => {
                tracing::warn!(kind, attempts, ?wait, why, "a watch fails and will be tried again");
            }
            _ => tracing::warn!(kind, attempts, ?wait, ?state, "a watch fails and will be tried again"),
        }
        if !is_logged {
            self.logged = Some((state.clone(), Instant::now()));
        }
        self.state.set_warned();
    }

    fn config(&self) -> watcher::Config {
        // Up to a tenth less, so that watches that were opened together do not end together.
        let timeout = self.settings.timeout.as_secs_f64() * (1.0 - 0.1 * (self.settings.random)());
        let some = |selector: &String| (!selector.is_empty()).then(|| selector.clone());
        watcher::Config {
            label_selector: some(&self.target.labels),
            field_selector: some(&self.target.fields),
            timeout: Some((timeout as u32).max(1)),
            page_size: Some(self.settings.page.max(1)),
            initial_list_strategy: match self.lists {
                Lists::Streamed => watcher::InitialListStrategy::StreamingList,
                Lists::Paged => watcher::InitialListStrategy::ListWatch,
            },
            ..watcher::Config::default()
        }
    }

    fn kind(&self) -> &str {
        &self.target.resource.kind
    }
}

/// A random number from the operating system: every hasher has its own random key.
fn system_random() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
