//! `/watch`: objects of a kind as Server-Sent Events. In: a kind, a namespace, the last event that a client saw. Out: a
//! stream of ADDED, MODIFIED and DELETED, each with the resource version as its id, and comments while nothing happens.
//!
//! The stream is a watch of the API server in another format, and ends with its response. Existing objects are sent in the
//! order of their last change, so that a client can resume after any id without missing an object.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::Response;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Interval, MissedTickBehavior, interval};

use konverge::Gauge;
use konverge_apiserver::Body;
use konverge_core::Status;

use super::initial::Initial;
use super::query::{self, Query};
use super::{
    answer_of,
    api_client::{self, Reader},
    kinds,
};
use crate::operator_crds::Definitions;

/// How often a quiet stream sends a comment. This is also how soon a lost client is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The watch should not end before its client does.
const FOREVER_SECONDS: u32 = 365 * 24 * 3600;

/// The kind to watch: the one in the query, else the first kind of the running operators.
pub(super) fn kind(wanted: &Query, definitions: &Definitions) -> Result<String, Status> {
    if let Some(word) = wanted.get("kind") {
        return Ok(word.to_owned());
    }
    let first = definitions.kinds().into_iter().next().map(|kind| kind.name);
    first.ok_or_else(|| Status::bad_request("no operator has a kind of its own here yet; choose one with ?kind=pods"))
}

/// Starts a stream.
pub(super) async fn answer(
    api: &Reader,
    kind: &str,
    wanted: &Query,
    last_event_id: Option<&str>,
    watching: &Gauge,
) -> Result<Response<Body>, Status> {
    let last = match last_event_id.map(str::trim).filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            Status::bad_request(format!(
                "Last-Event-ID must be the id of an event, a resource version; {text:?} is none"
            ))
        })?),
    };
    let kind = kinds::find(api, kind).await?;
    let path = kind.path(query::name(wanted, "namespace")?)?;
    let (initial, lines) = begin(api, &path, last).await?;
    let mut heartbeat = interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once.
    heartbeat.tick().await;
    let feed = Feed {
        api: api.clone(),
        path,
        lines,
        initial,
        ready: VecDeque::from([Bytes::from_static(b"retry: 1000\n\n")]),
        heartbeat,
        _reading: Reading::of(watching),
    };
    let mut response = answer_of(200, "text/event-stream", Body::stream(feed.stream()));
    response.headers_mut().insert("x-accel-buffering", http::HeaderValue::from_static("no"));
    Ok(response)
}

/// The existing objects, unless the client resumes, and the watch after them.
async fn begin(api: &Reader, path: &str, last: Option<u64>) -> Result<(InitialObjects, Lines), Status> {
    if let Some(last) = last {
        return Ok((
            InitialObjects { objects: Initial::default(), revision: None },
            Lines::open(api, path, last).await?,
        ));
    }
    let (objects, revision) = Initial::list(api, path).await?;
    Ok((InitialObjects { objects, revision: Some(revision) }, Lines::open(api, path, revision).await?))
}

/// The existing objects at the start.
struct InitialObjects {
    objects: Initial,
    /// The resource version of the list, until all objects have been sent.
    revision: Option<u64>,
}

/// Counts a client of `/watch` until it is dropped.
struct Reading(Gauge);

impl Reading {
    fn of(watching: &Gauge) -> Self {
        watching.inc();
        Self(watching.clone())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The state of one stream.
struct Feed {
    api: Reader,
    path: String,
    lines: Lines,
    initial: InitialObjects,
    /// Events that are ready to be sent.
    ready: VecDeque<Bytes>,
    heartbeat: Interval,
    _reading: Reading,
}

impl Feed {
    fn stream(self) -> impl Stream<Item = Bytes> + Send + 'static {
        stream::unfold(self, |mut feed| async move {
            loop {
                if let Some(piece) = feed.ready.pop_front() {
                    return Some((piece, feed));
                }
                if let Some(revision) = feed.initial.revision {
                    feed.send_next(revision).await;
                    continue;
                }
                tokio::select! {
                    line = feed.lines.next() => feed.take(&line?).await?,
                    _ = feed.heartbeat.tick() => feed.ready.push_back(Bytes::from_static(b": nothing new\n\n")),
                }
            }
        })
    }

    /// Queues the next existing object, or the end of them.
    async fn send_next(&mut self, revision: u64) {
        if let Some((version, object)) = self.initial.objects.next(&self.api).await {
            let object = String::from_utf8_lossy(&object);
            self.ready.push_back(event(&version.to_string(), "ADDED", object.trim_end()));
        }
        if self.initial.objects.is_done() {
            self.initial.revision = None;
            // Clients do not report an event without data, but remember its id.
            self.ready.push_back(format!("id: {revision}\n\n").into());
        }
    }

    /// Handles one line of the watch; `None` when the stream is over.
    async fn take(&mut self, line: &[u8]) -> Option<()> {
        let Ok(received) = serde_json::from_slice::<Event<'_>>(line) else {
            tracing::error!(path = self.path, "a watch sent a line that is no event");
            return None;
        };
        let object: WatchedObject = serde_json::from_str(received.object.get()).unwrap_or_default();
        let version = &object.metadata.resource_version;
        match received.kind {
            "BOOKMARK" => self.ready.push_back(format!("id: {version}\n\n").into()),
            // The history since the last event is gone: all objects are sent again.
            "ERROR" if object.code == 410 => {
                self.ready.push_back(Bytes::from_static(b"event: RESYNC\ndata: {\"type\":\"RESYNC\"}\n\n"));
                (self.initial, self.lines) = begin(&self.api, &self.path, None).await.ok()?;
            }
            "ERROR" => {
                tracing::warn!(path = self.path, status = received.object.get(), "a watch ended with an error");
                return None;
            }
            kind => {
                if let Some(kind) = self.initial.objects.kind_of(kind, &self.path, &object.metadata) {
                    self.ready.push_back(event(version, kind, received.object.get()));
                }
            }
        }
        Some(())
    }
}

/// One Server-Sent Event.
fn event(id: &str, kind: &str, object: &str) -> Bytes {
    format!("id: {id}\nevent: {kind}\ndata: {{\"type\":\"{kind}\",\"object\":{object}}}\n\n").into()
}

#[derive(Deserialize)]
struct Event<'l> {
    #[serde(rename = "type")]
    kind: &'l str,
    #[serde(borrow)]
    object: &'l RawValue,
}

/// The fields of an object, or of a `Status`, that the stream reads.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchedObject {
    pub metadata: Metadata,
    code: u16,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub resource_version: String,
    pub name: String,
    pub namespace: Option<String>,
}

/// The lines of a watch.
struct Lines {
    body: Pin<Box<Body>>,
    buffer: Vec<u8>,
}

impl Lines {
    /// Starts a watch after a version.
    async fn open(api: &Reader, path: &str, after: u64) -> Result<Self, Status> {
        let path = format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={FOREVER_SECONDS}&resourceVersion={after}"
        );
        let response = api.get(&path, "application/json").await?;
        if !response.status().is_success() {
            return Err(api_client::status(&api_client::whole(response.into_body()).await));
        }
        Ok(Self { body: Box::pin(response.into_body()), buffer: Vec::new() })
    }

    /// The next line; `None` at the end. The future may be dropped: what has arrived is kept.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Some(self.buffer.drain(..=end).collect());
            }
            match self.body.frame().await? {
                Ok(frame) => self.buffer.extend_from_slice(frame.data_ref()?),
                Err(never) => match never {},
            }
        }
    }
}
