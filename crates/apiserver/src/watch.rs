//! Watching: changes as they are committed. In: a resource, a namespace, a revision to start after. Out: a stream of events as
//! JSON lines or frames of protobuf. Each watch reads the shared history at its own pace, so a slow one delays no other.

mod options;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use konverge_core::Status;
use konverge_store::{Change, Entry, Page, Range, ReadError, Revision, Store, Watch};

use crate::context::RequestContext;
use crate::conversion::{Readable, ReadableChange};
use crate::event_cache::{EventCache, EventForm, EventsKey};
use crate::filter::Filter;
use crate::negotiate::Encoding;
use crate::protobuf::{self, ProtobufForm};
use crate::read::not_from_the_future;
use crate::render::Representation;
use crate::resource::Resource;
use crate::server::Server;

pub(crate) use options::WatchOptions;

/// How many changes are read from the history at a time. They share the store's bytes.
const BATCH: usize = 256;

/// How many bytes of initial objects are parsed for one piece: a millisecond or so.
const LOOK_BYTES: usize = 256 * 1024;

/// How often a quiet watch sends a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// How long before its end a watch sends a last bookmark, so that its client resumes there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// Fewer watches of the same objects get every change at once.
const FEW_WATCHERS: usize = 40;

/// How far apart writes are for each watch of the same objects, and at most.
const DISTANCE: Duration = Duration::from_micros(50);
const LONGEST_DISTANCE: Duration = Duration::from_millis(5);

/// Everything a running watch needs.
struct Watching {
    context: RequestContext,
    store: Arc<dyn Store>,
    event_cache: Arc<EventCache>,
    resource: Arc<Resource>,
    filter: Filter,
    representation: Representation,
    /// Which messages events are, if they are not JSON.
    protobuf: Option<ProtobufForm>,
    bookmarks: bool,
    /// A piece ends with the event that passes this.
    piece_bytes: usize,
    /// Done when the server closes, or when the lifetime of the resource ends. Made once, like the timer: to subscribe again
    /// at each wakeup would cost more than most wakeups do.
    closing: Pin<Box<dyn Future<Output = Closing> + Send>>,
    /// The last change that this watch shows, once its resource has ended.
    last: Option<Revision>,
    timer: Pin<Box<Sleep>>,
    ends: Instant,
    bookmark_at: Instant,
    stage: WatchStage,
    /// When the last changes were sent, if the next ones are to keep a distance from them.
    sent: Option<Instant>,
    /// Whether a part of the initial objects has been sent.
    begun: bool,
    /// Whether a table's columns have been sent.
    headed: bool,
}

enum WatchStage {
    /// The initial objects, not yet readable.
    Begin { entries: Vec<Entry>, revision: Revision, marked: bool },
    /// The initial objects, and whether a bookmark marks their end.
    Initial { entries: std::vec::IntoIter<Readable>, revision: Revision, marked: bool },
    /// The changes since: those that were read and not sent yet, and those to come.
    Changes(std::vec::IntoIter<ReadableChange>, Watch),
    /// The watch has ended.
    Over,
}

/// Why a waiting watch woke up.
enum Woken {
    Changes(Result<Vec<Change>, ReadError>),
    Time(Revision),
    Closing(Closing),
}

/// How the server ends a watch.
#[derive(Clone, Copy)]
enum Closing {
    /// At once: the client can resume later.
    Now,
    /// With the change of this revision, so that the client sees every change before its resource ended.
    After(Revision),
}

/// Starts a watch.
pub(crate) fn watch(
    server: &Server,
    context: &RequestContext,
    resource: Arc<Resource>,
    namespace: Option<&str>,
    filter: Filter,
    representation: Representation,
    options: &WatchOptions,
) -> Result<impl Stream<Item = Bytes> + Send + 'static, Status> {
    let store = server.store.clone();
    // A client that asks for initial objects at a version that does not exist yet may wait for it. A client that resumes
    // after such a version has it from another store. As for a version that is too old, it gets an error in the stream,
    // upon which clients list again.
    if let Some(asked) = options.after.filter(|_| options.initial) {
        not_from_the_future(&*store, asked)?;
    }
    let prefix = match filter.name() {
        // A watch of one name wakes up for keys with that prefix only; the filter drops other names.
        Some(name) if !resource.namespaced || namespace.is_some() => resource.key(namespace, name),
        _ => resource.prefix(namespace),
    };
    let begin = || -> Result<(Option<Page>, Watch), ReadError> {
        if !options.initial {
            let after = options.after.unwrap_or_else(|| store.revision());
            return Ok((None, store.watch(&prefix, after)?));
        }
        let page = store.range(Range { prefix: &prefix, ..Range::default() })?;
        let changes = store.watch(&prefix, page.revision)?;
        Ok((Some(page), changes))
    };
    let now = Instant::now();
    let longest = server.longest_watch;
    let ends = now + options.timeout.unwrap_or(longest).min(longest);
    let closing = closing(server, &resource);
    let in_protobuf = options.encoding == Encoding::Protobuf;
    let mut watching = Watching {
        context: context.clone(),
        store: store.clone(),
        event_cache: server.event_cache.clone(),
        protobuf: in_protobuf.then(|| ProtobufForm::of(&resource, &representation)).flatten(),
        resource,
        filter,
        representation,
        bookmarks: options.bookmarks,
        piece_bytes: options.piece_bytes,
        closing,
        last: None,
        timer: Box::pin(tokio::time::sleep_until(ends)),
        ends,
        bookmark_at: next_bookmark(now, ends),
        stage: WatchStage::Over,
        sent: None,
        begun: false,
        headed: false,
    };
    let (first, then) = match begin() {
        Ok((Some(Page { entries, revision, .. }), changes)) => {
            (WatchStage::Begin { entries, revision, marked: options.initial_ends }, Some(changes))
        }
        Ok((None, changes)) => (WatchStage::Changes(Vec::new().into_iter(), changes), None),
        // The error is sent in the stream, where clients look for it.
        Err(error) => {
            let gone = watching.gone(&error);
            return Ok(stream::iter([gone]).left_stream());
        }
    };
    watching.stage = first;
    // Boxed, because it is moved with each piece.
    Ok(stream::unfold(Box::new((watching, then)), |mut state| async move {
        let (watching, then) = &mut *state;
        let piece = watching.next(then).await?;
        Some((piece, state))
    })
    .right_stream())
}

fn closing(server: &Server, resource: &Resource) -> Pin<Box<dyn Future<Output = Closing> + Send>> {
    let mut closing = server.closing();
    let server = async move {
        // A server that is gone is closed, too.
        let _ = closing.wait_for(|closing| *closing).await;
        Closing::Now
    };
    match &resource.lifetime {
        None => Box::pin(server),
        Some(lifetime) => {
            let over = lifetime.ended().map(Closing::After);
            Box::pin(async move {
                tokio::select! {
                    closing = server => closing,
                    closing = over => closing,
                }
            })
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let RequestContext { user, audit_id, .. } = &self.context;
        tracing::debug!(%audit_id, user = user.name, resource = %self.resource.plural, "a watch ended");
    }
}

impl Watching {
    /// The next piece of the answer, or nothing when the watch is over.
    async fn next(&mut self, then: &mut Option<Watch>) -> Option<Bytes> {
        loop {
            match &mut self.stage {
                WatchStage::Over => return None,
                WatchStage::Begin { entries, revision, marked } => {
                    let (revision, marked) = (*revision, *marked);
                    match self.resource.read_all(std::mem::take(entries)).await {
                        Ok(readable) => {
                            self.stage = WatchStage::Initial { entries: readable.into_iter(), revision, marked };
                        }
                        Err(status) => return Some(self.failed(&status)),
                    }
                }
                WatchStage::Initial { .. } => {
                    // Without this, a client that reads fast would occupy this thread until everything was sent.
                    if std::mem::replace(&mut self.begun, true) {
                        tokio::task::yield_now().await;
                    }
                    let piece = self.initial(then);
                    if !piece.is_empty() {
                        return Some(piece.into());
                    }
                }
                WatchStage::Changes(taken, _) if !taken.as_slice().is_empty() => {
                    let piece = self.changed();
                    if !piece.is_empty() {
                        self.sent = self.keeps_distance().then(Instant::now);
                        return Some(piece);
                    }
                    // Without this, a selector that passes nothing would occupy this thread for a long history.
                    tokio::task::yield_now().await;
                }
                // The resource has ended: only changes that are committed already are left.
                WatchStage::Changes(_, changes) if self.last.is_some() => {
                    let woken = Woken::Changes(changes.take(BATCH));
                    if let Some(piece) = self.woken(woken).await {
                        return Some(piece);
                    }
                }
                WatchStage::Changes(_, changes) => {
                    let wake = if self.bookmarks { self.bookmark_at.min(self.ends) } else { self.ends };
                    if self.timer.deadline() != wake {
                        self.timer.as_mut().reset(wake);
                    }
                    // In this order, or a busy watch would never end.
                    let woken = tokio::select! {
                        biased;
                        closing = self.closing.as_mut() => Woken::Closing(closing),
                        () = self.timer.as_mut() => Woken::Time(changes.position()),
                        batch = next_batch(changes, self.sent) => Woken::Changes(batch),
                    };
                    if let Some(piece) = self.woken(woken).await {
                        return Some(piece);
                    }
                }
            }
        }
    }

    /// The piece to send after a wakeup, if any.
    async fn woken(&mut self, woken: Woken) -> Option<Bytes> {
        match woken {
            Woken::Changes(Ok(mut batch)) => {
                if let Some(last) = self.last {
                    batch.retain(|change| change.revision <= last);
                    if batch.is_empty() {
                        self.stage = WatchStage::Over;
                    }
                }
                let batch = match self.resource.read_changes(batch).await {
                    Ok(batch) => batch,
                    Err(status) => return Some(self.failed(&status)),
                };
                if let WatchStage::Changes(taken, _) = &mut self.stage {
                    *taken = batch.into_iter();
                }
                None
            }
            Woken::Changes(Err(error)) => Some(self.gone(&error)),
            Woken::Time(position) => {
                let now = Instant::now();
                if now >= self.ends {
                    self.stage = WatchStage::Over;
                    return None;
                }
                self.bookmark_at = next_bookmark(now, self.ends);
                Some(self.bookmark(position, false))
            }
            Woken::Closing(Closing::Now) => {
                self.stage = WatchStage::Over;
                None
            }
            Woken::Closing(Closing::After(last)) => {
                self.last = Some(last);
                None
            }
        }
    }

    /// A piece of the initial objects; after the last one come the changes.
    fn initial(&mut self, then: &mut Option<Watch>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut looked = 0;
        while out.len() < self.piece_bytes && looked < LOOK_BYTES {
            let WatchStage::Initial { entries, revision, marked } = &mut self.stage else { break };
            let Some(entry) = entries.next() else {
                let end = marked.then_some(*revision);
                self.stage = then
                    .take()
                    .map_or(WatchStage::Over, |changes| WatchStage::Changes(Vec::new().into_iter(), changes));
                if let Some(revision) = end {
                    out.extend_from_slice(&self.bookmark(revision, true));
                }
                break;
            };
            looked += entry.value.len();
            if self.filter.matches(&self.resource, &entry) {
                self.event("ADDED", &entry, entry.revision, &mut out);
            }
        }
        out
    }

    /// Whether so many watch the same objects that changes are collected.
    fn keeps_distance(&self) -> bool {
        matches!(&self.stage, WatchStage::Changes(_, changes) if !distance(changes.watchers()).is_zero())
    }

    /// A piece of the changes that were read; empty if none of them passes the filter.
    fn changed(&mut self) -> Bytes {
        let WatchStage::Changes(taken, _) = &mut self.stage else { return Bytes::new() };
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < self.piece_bytes {
            let Some(change) = taken.next() else { break };
            // For this client, an object that no longer passes the filter is deleted, and one that passes now is added.
            let passes = |entry: &Readable| self.filter.matches(&self.resource, entry);
            let before = change.before.filter(passes);
            let after = change.after.filter(passes);
            let (kind, entry) = match (before, after) {
                (None, None) => continue,
                (None, Some(after)) => ("ADDED", after),
                (Some(_), Some(after)) => ("MODIFIED", after),
                (Some(before), None) => ("DELETED", before),
            };
            bytes += entry.value.len();
            events.push((kind, entry, change.revision));
        }
        let write = |watching: &mut Self| {
            let mut out = Vec::new();
            for (kind, entry, revision) in &events {
                watching.event(kind, entry, *revision, &mut out);
            }
            out
        };
        match self.form().filter(|_| !events.is_empty()) {
            // All watches share the bytes.
            Some(form) => {
                let keys = events.iter().map(|(kind, entry, revision)| (entry.key.clone(), *revision, *kind)).collect();
                let piece = EventsKey { resource: self.resource.clone(), form, events: keys };
                self.event_cache.clone().get_or_write(piece, || write(self))
            }
            None => write(self).into(),
        }
    }

    /// The form of the events, if others can have the same: ages in tables are those of one moment.
    fn form(&self) -> Option<EventForm> {
        let metadata = match self.representation {
            Representation::Object => None,
            Representation::Metadata(version) => Some(version),
            Representation::Table { .. } => return None,
        };
        let encoding = if self.protobuf.is_some() { Encoding::Protobuf } else { Encoding::Json };
        Some(EventForm { encoding, metadata })
    }

    fn event(&mut self, kind: &str, entry: &Readable, revision: Revision, out: &mut Vec<u8>) {
        if let Some(protobuf) = &self.protobuf {
            if let Err(status) = protobuf.write_event(kind, &self.resource, entry, revision, out) {
                out.extend_from_slice(&self.failed(&status));
            }
            return;
        }
        // The bytes around the object are few, so this is nearly always enough.
        out.reserve(entry.value.len() + 128);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.representation.write_event(
            &self.resource,
            entry,
            revision,
            !std::mem::replace(&mut self.headed, true),
            out,
        );
        out.extend_from_slice(b"}\n");
    }

    /// A bookmark: everything up to `revision` has been sent. `initial` marks the end of the initial objects.
    fn bookmark(&mut self, revision: Revision, initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.0.to_string(), "creationTimestamp": null});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = self.representation.bookmark(&self.resource, metadata);
        let Some(protobuf) = &self.protobuf else { return line("BOOKMARK", &object) };
        let mut frame = Vec::new();
        match protobuf.write_json_event("BOOKMARK", object.to_string().as_bytes(), &mut frame) {
            Ok(()) => frame.into(),
            Err(status) => self.failed(&status),
        }
    }

    /// Ends the watch with an error that its client finds in the stream.
    fn failed(&mut self, status: &Status) -> Bytes {
        self.stage = WatchStage::Over;
        if self.protobuf.is_none() {
            return line("ERROR", &serde_json::to_value(status).unwrap_or_default());
        }
        let mut frame = Vec::new();
        protobuf::write_error_event(status, &mut frame);
        frame.into()
    }

    fn gone(&mut self, error: &ReadError) -> Bytes {
        let status = match error {
            ReadError::Compacted { asked, oldest } => {
                Status::expired(format!("too old resource version: {asked} ({oldest})"))
            }
            ReadError::Future { asked, .. } => {
                let newest = self.store.revision();
                Status::expired(format!("too large resource version: {} ({})", asked.0, newest.0))
            }
        };
        self.failed(&status)
    }
}

/// The next changes. If many watch the same objects, and changes come fast, then those that come shortly after others are
/// sent together: each write to a socket takes ten times the time of putting an event into it.
async fn next_batch(changes: &mut Watch, sent: Option<Instant>) -> Result<Vec<Change>, ReadError> {
    if let Some(sent) = sent {
        // First the distance and then the changes, so that a change that comes within it wakes nobody: there are many to wake.
        tokio::time::sleep_until(sent + distance(changes.watchers())).await;
    }
    changes.next(BATCH).await
}

/// How far apart the writes of a watch are, if so many watch the same objects: about five times as long as it takes to write to
/// all of them, so that watches use at most a fifth of a core for each kind. A change that comes alone is sent at once.
fn distance(watchers: usize) -> Duration {
    match watchers {
        0..FEW_WATCHERS => Duration::ZERO,
        many => (DISTANCE * many as u32).min(LONGEST_DISTANCE),
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

fn next_bookmark(now: Instant, ends: Instant) -> Instant {
    let regular = now + BOOKMARK_EVERY;
    match ends.checked_sub(BOOKMARK_BEFORE_END) {
        Some(last) if now < last => regular.min(last),
        _ => regular,
    }
}

#[cfg(test)]
mod tests {
    use konverge_store::Commit;

    use super::options::PIECE_BYTES;
    use super::*;
    use crate::record;
    use crate::request::Query;
    use crate::server::{ApiServer, Options};
    use crate::user::SystemUser;

    #[tokio::test]
    async fn many_large_changes_come_in_pieces() {
        let api = ApiServer::open(Options::default()).await.unwrap();
        let server = &*api.0;
        let resource = &server.registry.find("", "v1", "configmaps").unwrap();
        let after = format!("resourceVersion={}", server.store.revision());
        let options = WatchOptions::parse(&Query::parse(Some(&after))).unwrap();
        let context = server.task_context(SystemUser::ApiServer);
        let watched =
            watch(server, &context, resource.clone(), None, Filter::default(), Representation::Object, &options)
                .unwrap();
        let large = 100 * 1024;
        for number in 0..20 {
            let name = format!("c{number:02}");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                                "data": {"text": "x".repeat(large)}});
            let key = resource.key(Some("default"), &name);
            server.store.commit(Commit::default().put(key, record::encode(&object))).await.unwrap();
        }
        let mut watched = Box::pin(watched);
        let mut names = Vec::new();
        while names.len() < 20 {
            let piece = watched.next().await.unwrap();
            assert!(piece.len() <= PIECE_BYTES + large + 1024, "a piece of {} bytes", piece.len());
            for event in serde_json::Deserializer::from_slice(&piece).into_iter::<Value>() {
                names.push(event.unwrap()["object"]["metadata"]["name"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(names, (0..20).map(|number| format!("c{number:02}")).collect::<Vec<_>>());
    }
}
