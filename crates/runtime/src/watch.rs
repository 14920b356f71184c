//! One kind in one place, watched. In: a target and a client. Out: what is there and what changes, handed to a [`Sink`]
//! in the order the server committed it, and a [`WatchState`]. kube's watcher speaks the protocol; here is when to speak,
//! how often, and what to say when it goes wrong. Never keeps an object.

mod fault;
mod link;
mod pace;
mod pulse;

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

use crate::connect::Unreachable;
use crate::object::{Everything, Full, Keep, Metadata, Mode, Object, Wire};
use fault::Fault;
use link::{Link, LinkEvents, Notes};
use pace::WatchBackoff;

/// How long a server may be silent in the middle of a streamed list. One that does not know how to stream never says
/// that its list is over.
const STREAM_SILENCE: Duration = Duration::from_secs(10);

/// How long one page of a list may take.
const PAGE_SILENCE: Duration = Duration::from_secs(60);

/// A kind that is not installed is asked for this often at least: whoever installs it is waiting.
const INSTALLED_WITHIN: Duration = Duration::from_secs(5);

/// With the time that a new connection takes, whatever a half-open one hid is known within fifteen seconds.
const RENEW_AFTER: Duration = Duration::from_secs(10);

/// A list that was of use for so long has not gone wrong when its version is forgotten: there were more changes elsewhere
/// than the server keeps, and the next one is asked for at once. Sooner than that it is the server that is not well.
const LISTED_FOR: Duration = Duration::from_secs(10);

/// What to watch. Users of equal targets share one watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The kind.
    pub resource: ApiResource,
    /// In one namespace, or in all of them.
    pub namespace: Option<String>,
    /// Only objects with these labels, as the API takes it: `app=web,tier!=db`. Empty for all.
    pub labels: String,
    /// Only objects with these fields, as the API takes it: `metadata.name=web`. Empty for all.
    pub fields: String,
    /// How much of each object.
    pub mode: Mode,
}

impl Target {
    /// All objects of a kind, in full.
    pub fn all(resource: ApiResource) -> Self {
        Self { resource, namespace: None, labels: String::new(), fields: String::new(), mode: Mode::Full }
    }

    /// All objects of a kind that is known when compiling.
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self::all(ApiResource::erase::<K>(&()))
    }

    /// Only those in one namespace.
    pub fn within(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Only those a selector selects.
    pub fn labelled(self, selector: &LabelSelector) -> Self {
        Self { labels: selector.to_string(), ..self }
    }

    /// Only those with these fields.
    pub fn fielded(self, selector: impl Into<String>) -> Self {
        Self { fields: selector.into(), ..self }
    }

    /// So much of each.
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }
}

/// How to watch.
#[derive(Clone)]
pub struct WatchSettings {
    /// How long the server keeps one watch open before it is asked again, which costs one request.
    ///
    /// It is also how long a server may be silent that takes part in TCP but does nothing else, as one whose process is
    /// stopped: from one where nothing happens it cannot be told, and five seconds after this time the watch is given
    /// up. One that has sent bookmarks, as API servers do every minute, is given up a quarter of a minute after the next
    /// one was due. A connection whose other end is gone is noticed long before, by [`connect`](crate::connect).
    pub timeout: Duration,
    /// How long a watch over a connection of [`connect`](crate::connect) may be silent before it is resumed over a new
    /// connection. A proxy may keep a connection open whose other half is gone, and then nothing else tells that changes
    /// are missed. It costs one request of a quiet watch each time; a watch that brings something costs nothing. Below
    /// four seconds no bookmark comes in time, and a quiet watch is listed anew whenever the server's history has passed
    /// it.
    pub renew_after: Duration,
    /// How lists are fetched.
    pub lists: Lists,
    /// How many objects come in one page of a list that is not streamed.
    pub page: u32,
    /// Gives a number between 0 and 1, so that watches that failed together do not come back together.
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
            renew_after: RENEW_AFTER,
            lists: Lists::default(),
            page: 500,
            random: system_random,
        }
    }
}

/// How a watch is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// It has not yet been answered.
    Starting,
    /// It is open.
    Live,
    /// The server does not know the kind; the watch waits for somebody to install it.
    NotInstalled,
    /// The server refuses; the text names the rule that is missing.
    Forbidden(String),
    /// It fails and will be tried again; the text says why.
    Failing(String),
    /// It has ended: nobody needs it, or the process stops.
    Stopped,
}

/// Who takes what a watch brings.
pub(crate) trait Sink: Send + Sync + 'static {
    /// A list is about to be asked for: what it shows is at least as new as now.
    fn list_sent(&self);
    /// The server is behind what it has shown before, and will count on from there.
    fn rewound(&self);
    /// What follows is a list.
    fn list_began(&self);
    /// An object of the list.
    fn listed(&self, object: Object);
    /// The list was complete. It was taken at this resource version, if that is known.
    fn list_done(&self, version: Option<u64>);
    /// An object was created or changed.
    fn applied(&self, object: Object);
    /// An object is gone. This is how it last was.
    fn deleted(&self, object: Object);
    /// An object came that cannot be kept, because it has no name. This is how it begins.
    fn unreadable(&self, beginning: &str);
    /// The watch failed and will be tried again.
    fn restarted(&self);
    /// How it is doing now.
    fn state(&self, state: WatchState);
    /// The watch panicked. Answers how long to wait until it begins anew.
    fn panicked(&self, panic: &(dyn Any + Send)) -> Duration;
}

/// Watches until it is dropped. A panic is an interruption like others: the watch begins anew, with a list.
pub(crate) async fn watch(target: Target, client: Client, settings: WatchSettings, sink: Arc<dyn Sink>) {
    loop {
        let watching = once(target.clone(), client.clone(), settings.clone(), sink.clone());
        // What a panic leaves half done is the watch's own, which goes with it, or half a list, which the next one ends.
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
    settings: WatchSettings,
    sink: Arc<dyn Sink>,
    api: Api<Wire<P>>,
    notes: Arc<Notes>,
    backoff: WatchBackoff,
    lists: Lists,
    /// When the last list was complete.
    listed: Option<Instant>,
    /// The state that was last logged, so that the log has it once.
    logged: Option<WatchState>,
}

/// Tells the sink what the transport sees.
struct ToSink {
    sink: Arc<dyn Sink>,
    notes: Arc<Notes>,
    kind: String,
}

impl LinkEvents for ToSink {
    fn list_sent(&self) {
        self.sink.list_sent();
    }

    fn watch_opened(&self) {
        self.sink.state(WatchState::Live);
        if self.notes.take_warned() {
            tracing::info!(kind = self.kind, "the watch works again");
        }
    }
}

impl<P: Keep> Watching<P> {
    async fn run(target: Target, client: Client, settings: WatchSettings, sink: Arc<dyn Sink>) {
        // Up to a tenth less, so that watches that fell silent together do not ask together.
        let notes = Notes::new(settings.renew_after.mul_f64(1.0 - 0.1 * (settings.random)().clamp(0.0, 1.0)));
        let events = ToSink { sink: sink.clone(), notes: notes.clone(), kind: target.resource.kind.clone() };
        let client = Link::client(client, notes.clone(), Arc::new(events));
        let api = match &target.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &target.resource),
            None => Api::all_with(client, &target.resource),
        };
        let (lists, backoff) = (settings.lists, WatchBackoff::default());
        let mut watching = Self { target, settings, sink, api, notes, backoff, lists, listed: None, logged: None };
        loop {
            watching.until_list_is_needed().await;
        }
    }

    /// Runs one watcher: it begins with a list and resumes by itself after whatever can be resumed after.
    async fn until_list_is_needed(&mut self) {
        let mut events = std::pin::pin!(watcher(self.api.clone(), self.config()));
        self.notes.set_listing(false);
        loop {
            let streaming = self.lists == Lists::Streamed;
            let silence = if streaming { STREAM_SILENCE } else { PAGE_SILENCE };
            let event = match self.notes.listing() {
                true => tokio::time::timeout(silence, events.next()).await,
                // An open watch may be silent; the watcher itself knows for how long.
                false => Ok(events.next().await),
            };
            let Ok(event) = event else {
                if streaming {
                    tracing::info!(kind = self.kind(), "a streamed list fell silent; asking for pages from now on");
                    self.lists = Lists::Paged;
                }
                let why = "the server fell silent in the middle of a list".to_owned();
                return self.wait(&Fault::Broken, why, false).await;
            };
            match event {
                Some(Ok(event)) => self.take(event),
                Some(Err(error)) => {
                    // What went while the list came in cannot be told in a streamed one, but in what follows pages.
                    let torn = self.notes.listing() && self.notes.take_torn();
                    let fault = if torn { Fault::NoStreaming } else { Fault::of(&error, streaming) };
                    if fault == Fault::NoStreaming {
                        tracing::debug!(kind = self.kind(), torn, "no list can be streamed; asking for pages");
                        self.lists = Lists::Paged;
                        // That this watch is over is known, and no fault of the next request.
                        self.notes.take_opened();
                        return;
                    }
                    let listed = self.listed.take_if(|_| fault == Fault::Expired);
                    if listed.is_some_and(|listed| listed.elapsed() >= LISTED_FOR) {
                        tracing::debug!(kind = self.kind(), "what was seen last is too long ago; listing anew");
                        self.notes.take_opened();
                        return self.sink.restarted();
                    }
                    if fault == Fault::Rewound {
                        self.sink.rewound();
                    }
                    let why = ErrorChain(&error).to_string();
                    self.wait(&fault, why, Unreachable::caused(&error)).await;
                    if !matches!(error, watcher::Error::WatchError(_)) {
                        // That list is over. The next one begins when the server answers, and how long that may take is
                        // for the link to say.
                        self.notes.set_listing(false);
                    }
                    if fault.starts_over() {
                        return;
                    }
                }
                None => return,
            }
            // A page of objects is ready at once; others want to run, too.
            tokio::task::consume_budget().await;
        }
    }

    fn take(&mut self, event: Event<Wire<P>>) {
        let (wire, hand): (_, fn(&dyn Sink, Object)) = match event {
            Event::Init => {
                self.notes.set_listing(true);
                return self.sink.list_began();
            }
            Event::InitDone => {
                self.notes.set_listing(false);
                self.listed = Some(Instant::now());
                return self.sink.list_done(self.notes.list_version());
            }
            Event::InitApply(wire) => (wire, |sink, object| sink.listed(object)),
            Event::Apply(wire) => (wire, |sink, object| sink.applied(object)),
            Event::Delete(wire) => (wire, |sink, object| sink.deleted(object)),
        };
        if !self.notes.listing() {
            self.backoff.succeeded();
        }
        match wire.draft {
            Ok(draft) => hand(&*self.sink, draft.finish(&self.target.resource)),
            Err(unreadable) => {
                tracing::error!(
                    kind = self.kind(),
                    object = unreadable.beginning,
                    "an object has no name and is left out; the others are not affected"
                );
                self.sink.unreadable(&unreadable.beginning);
            }
        }
    }

    /// Says what is wrong, once, and waits. `unreachable` says that the log has it already, for all watches together.
    async fn wait(&mut self, fault: &Fault, why: String, unreachable: bool) {
        let now = Instant::now();
        if let Some(opened) = self.notes.take_opened() {
            self.backoff.opened(opened);
            self.logged = None;
        }
        let longest = (*fault == Fault::NotInstalled).then_some(INSTALLED_WITHIN);
        let asked = self.notes.asked().unwrap_or(now);
        let wait = self.backoff.failed(now, asked, (self.settings.random)(), longest);
        let wait = self.notes.take_retry_after().unwrap_or_default().max(wait);
        self.sink.restarted();
        let state = match fault {
            Fault::NotInstalled => WatchState::NotInstalled,
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

    fn log(&mut self, state: &WatchState, wait: Duration) {
        let (kind, attempts) = (self.kind(), self.backoff.failures());
        let again =
            self.logged.as_ref().is_some_and(|logged| std::mem::discriminant(logged) == std::mem::discriminant(state));
        match state {
            _ if again => tracing::debug!(kind, attempts, ?wait, ?state, "a watch still fails"),
            WatchState::NotInstalled => {
                tracing::warn!(
                    kind,
                    "the kind is not installed; waiting until its CustomResourceDefinition is applied"
                );
            }
            WatchState::Forbidden(rule) => tracing::warn!(kind, rule, "a watch is forbidden"),
            // A single cut is everyday life; only the second failure in a row is news.
            _ if attempts <= 1 => return tracing::debug!(kind, ?wait, ?state, "a watch was interrupted"),
            WatchState::Failing(why) => {
                tracing::warn!(kind, attempts, ?wait, why, "a watch fails and will be tried again");
            }
            _ => tracing::warn!(kind, attempts, ?wait, ?state, "a watch fails and will be tried again"),
        }
        self.logged = Some(state.clone());
        self.notes.set_warned();
    }

    fn config(&self) -> watcher::Config {
        // Up to a tenth less, so that watches opened together do not end together.
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

/// A random number of the system: every hasher is keyed with one of its own.
fn system_random() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
