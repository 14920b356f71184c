//! Watching: changes as they are committed. In: a row, a place, a revision to start after. Out: a stream of events in
//! JSON lines. Each watch reads the shared history at its own pace, so that a slow one can lose only itself.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use konverge_core::{FieldError, FieldPath, Status};
use konverge_store::{Change, Entry, Page, Range, ReadError, Revision, Store, Watch};

use crate::context::RequestContext;
use crate::conversion::{Readable, ReadableChange};
use crate::filter::Filter;
use crate::lines::{LineOf, Lines};
use crate::read::{not_from_the_future, parse_version};
use crate::render::Form;
use crate::request::{Query, invalid_options};
use crate::resource::Resource;
use crate::server::Server;

/// How many changes are taken at a time: as many as are worth one look at the history. They share the store's bytes.
const BATCH: usize = 256;

/// A piece of the answer ends with the event that passes this: what a client that does not read can hold is this much
/// and one object.
const PIECE_BYTES: usize = 128 * 1024;

/// How much of what is there at the beginning is looked into for one piece: a millisecond or so.
const LOOK_BYTES: usize = 256 * 1024;

/// How often a quiet watch tells how far it is.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// A bookmark is sent so long before a watch ends, that its client resumes where it left off.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// What a watch asks for.
#[derive(Debug)]
pub(crate) struct WatchOptions {
    after: Option<Revision>,
    initial: bool,
    initial_ends: bool,
    bookmarks: bool,
    timeout: Option<Duration>,
    piece_bytes: usize,
}

impl WatchOptions {
    /// Reads and checks the parameters.
    pub fn parse(query: &Query, resource: &Resource) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let matching = query.get("resourceVersionMatch");
        let send_initial = query.switch("sendInitialEvents");
        let path = || FieldPath::new("resourceVersionMatch");
        if send_initial.is_some() && matching != Some("NotOlderThan") {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(path(), why));
        }
        if let Some(matching) = matching {
            if send_initial.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(FieldError::forbidden(path(), why));
            }
            if matching != "NotOlderThan" {
                errors.push(FieldError::not_supported(path(), matching.into(), ["NotOlderThan"]));
            }
            if query.get("continue").is_some() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(path(), why));
            }
        }
        invalid_options("ListOptions", &errors)?;
        let asked =
            parse_version(query).map_err(|error| Status::invalid(&resource.group, &resource.plural, "", &[error]))?;
        let after = asked.filter(|revision| revision.0 > 0);
        let bookmarks = query.flag("allowWatchBookmarks");
        let timeout = query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        Ok(Self {
            after,
            // Without a version, or from "0", a watch begins with what is there.
            initial: send_initial.unwrap_or(after.is_none()),
            initial_ends: send_initial == Some(true) && bookmarks,
            bookmarks,
            timeout: timeout.map(|seconds| Duration::from_secs(seconds.unsigned_abs())),
            piece_bytes: PIECE_BYTES,
        })
    }

    /// Each piece of the answer is one event.
    pub fn event_by_event(self) -> Self {
        Self { piece_bytes: 1, ..self }
    }
}

/// Everything a running watch needs.
struct Watching {
    context: RequestContext,
    store: Arc<dyn Store>,
    lines: Arc<Lines>,
    resource: Arc<Resource>,
    filter: Filter,
    form: Form,
    bookmarks: bool,
    /// A piece ends with the event that passes this.
    piece_bytes: usize,
    /// Done when the server closes, or when its kind is no longer what it was. Kept from one wakeup to the next, like
    /// the timer: to enter oneself anew each time would cost more than most wakeups do.
    closing: Pin<Box<dyn Future<Output = Closing> + Send>>,
    /// The last change that is for this watch, once there is such a thing.
    last: Option<Revision>,
    timer: Pin<Box<Sleep>>,
    ends: Instant,
    bookmark_at: Instant,
    stage: Stage,
    /// Whether a part of what was there at the beginning has been sent.
    begun: bool,
    /// Whether a table's columns have been sent.
    headed: bool,
}

enum Stage {
    /// What was there when the watch began, not yet readable.
    Begin { entries: Vec<Entry>, revision: Revision, marked: bool },
    /// What was there when the watch began, and whether the end of it is marked.
    Initial { entries: std::vec::IntoIter<Readable>, revision: Revision, marked: bool },
    /// What has changed since: those that were taken and not sent yet, and those to come.
    Changes(std::vec::IntoIter<ReadableChange>, Watch),
    /// An error was sent, or the time is over.
    Over,
}

/// Why a waiting watch goes on.
enum Woken {
    Changes(Result<Vec<Change>, ReadError>),
    Time(Revision),
    Closing(Closing),
}

/// How a watch ends that did not want to.
#[derive(Clone, Copy)]
enum Closing {
    /// As it stands: the client can go on elsewhere.
    Now,
    /// With the change of this revision: the client hears all that became of the objects before their kind went.
    After(Revision),
}

/// Starts a watch.
pub(crate) fn watch(
    server: &Server,
    context: &RequestContext,
    resource: Arc<Resource>,
    namespace: Option<&str>,
    filter: Filter,
    form: Form,
    options: &WatchOptions,
) -> Result<impl Stream<Item = Bytes> + Send + 'static, Status> {
    let store = server.store.clone();
    // Who asks for the present as of a version can be told to wait. Who wants to go on after it holds a version of
    // another life of this store: like one that is too old, that is told inside the stream, where clients list anew.
    if let Some(asked) = options.after.filter(|_| options.initial) {
        not_from_the_future(&*store, asked)?;
    }
    let prefix = match filter.name() {
        // A watch on one name wakes for that name alone; what else begins with it is filtered.
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
    let mut watching = Watching {
        context: context.clone(),
        store: store.clone(),
        lines: server.lines.clone(),
        resource,
        filter,
        form,
        bookmarks: options.bookmarks,
        piece_bytes: options.piece_bytes,
        closing,
        last: None,
        timer: Box::pin(tokio::time::sleep_until(ends)),
        ends,
        bookmark_at: next_bookmark(now, ends),
        stage: Stage::Over,
        begun: false,
        headed: false,
    };
    let (first, then) = match begin() {
        Ok((Some(Page { entries, revision, .. }), changes)) => {
            (Stage::Begin { entries, revision, marked: options.initial_ends }, Some(changes))
        }
        Ok((None, changes)) => (Stage::Changes(Vec::new().into_iter(), changes), None),
        // Too late is told inside the stream, where clients look for it.
        Err(error) => {
            let gone = watching.gone(&error);
            return Ok(stream::iter([gone]).left_stream());
        }
    };
    watching.stage = first;
    // Boxed, for it is moved with each piece.
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
    match &resource.tenure {
        None => Box::pin(server),
        Some(tenure) => {
            let over = tenure.over().map(Closing::After);
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
                Stage::Over => return None,
                Stage::Begin { entries, revision, marked } => {
                    let (revision, marked) = (*revision, *marked);
                    match self.resource.read_all(std::mem::take(entries)).await {
                        Ok(readable) => {
                            self.stage = Stage::Initial { entries: readable.into_iter(), revision, marked };
                        }
                        Err(status) => return Some(self.failed(&status)),
                    }
                }
                Stage::Initial { .. } => {
                    // A client that reads as fast as we write would keep this thread until everything was sent.
                    if std::mem::replace(&mut self.begun, true) {
                        tokio::task::yield_now().await;
                    }
                    let piece = self.initial(then);
                    if !piece.is_empty() {
                        return Some(piece.into());
                    }
                }
                Stage::Changes(taken, _) if !taken.as_slice().is_empty() => {
                    let piece = self.changed();
                    if !piece.is_empty() {
                        return Some(piece);
                    }
                    // A selector that passes nothing looks through a long history without a pause.
                    tokio::task::yield_now().await;
                }
                // Nothing more will come for it than is there already.
                Stage::Changes(_, changes) if self.last.is_some() => {
                    let woken = Woken::Changes(changes.take(BATCH));
                    if let Some(piece) = self.woken(woken).await {
                        return Some(piece);
                    }
                }
                Stage::Changes(_, changes) => {
                    let wake = if self.bookmarks { self.bookmark_at.min(self.ends) } else { self.ends };
                    if self.timer.deadline() != wake {
                        self.timer.as_mut().reset(wake);
                    }
                    // In this order, or a busy watch would never end.
                    let woken = tokio::select! {
                        biased;
                        closing = self.closing.as_mut() => Woken::Closing(closing),
                        () = self.timer.as_mut() => Woken::Time(changes.position()),
                        batch = changes.next(BATCH) => Woken::Changes(batch),
                    };
                    if let Some(piece) = self.woken(woken).await {
                        return Some(piece);
                    }
                }
            }
        }
    }

    /// What is to be sent for it, if anything.
    async fn woken(&mut self, woken: Woken) -> Option<Bytes> {
        match woken {
            Woken::Changes(Ok(mut batch)) => {
                if let Some(last) = self.last {
                    batch.retain(|change| change.revision <= last);
                    if batch.is_empty() {
                        self.stage = Stage::Over;
                    }
                }
                let batch = match self.resource.read_changes(batch).await {
                    Ok(batch) => batch,
                    Err(status) => return Some(self.failed(&status)),
                };
                if let Stage::Changes(taken, _) = &mut self.stage {
                    *taken = batch.into_iter();
                }
                None
            }
            Woken::Changes(Err(error)) => Some(self.gone(&error)),
            Woken::Time(position) => {
                let now = Instant::now();
                if now >= self.ends {
                    self.stage = Stage::Over;
                    return None;
                }
                self.bookmark_at = next_bookmark(now, self.ends);
                Some(self.bookmark(position, false))
            }
            Woken::Closing(Closing::Now) => {
                self.stage = Stage::Over;
                None
            }
            Woken::Closing(Closing::After(last)) => {
                self.last = Some(last);
                None
            }
        }
    }

    /// A piece of what was there at the beginning; the last one moves on to the changes.
    fn initial(&mut self, then: &mut Option<Watch>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut looked = 0;
        while out.len() < self.piece_bytes && looked < LOOK_BYTES {
            let Stage::Initial { entries, revision, marked } = &mut self.stage else { break };
            let Some(entry) = entries.next() else {
                let end = marked.then_some(*revision);
                self.stage = then.take().map_or(Stage::Over, |changes| Stage::Changes(Vec::new().into_iter(), changes));
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

    /// A piece of the changes that were taken; empty if none of them is for this client.
    fn changed(&mut self) -> Bytes {
        let mut out = Vec::new();
        while out.len() < self.piece_bytes {
            let Stage::Changes(taken, _) = &mut self.stage else { break };
            let Some(change) = taken.next() else { break };
            let alone = out.is_empty() && taken.as_slice().is_empty();
            // An object that leaves the selection is gone for this client, one that enters it is new.
            let passes = |entry: &&Readable| self.filter.matches(&self.resource, entry);
            let before = change.before.as_ref().filter(passes);
            let after = change.after.as_ref().filter(passes);
            let (kind, entry) = match (before, after) {
                (None, None) => continue,
                (None, Some(after)) => ("ADDED", after),
                (Some(_), Some(after)) => ("MODIFIED", after),
                (Some(before), None) => ("DELETED", before),
            };
            if alone && let Form::Whole = self.form {
                return self.shared_event(kind, entry, change.revision);
            }
            self.event(kind, entry, change.revision, &mut out);
        }
        out.into()
    }

    /// The one event of a piece: the same bytes for everyone who watches it.
    fn shared_event(&mut self, kind: &'static str, entry: &Readable, revision: Revision) -> Bytes {
        let of = LineOf { row: self.resource.clone(), key: entry.key.clone(), revision, kind };
        self.lines.clone().line(of, || {
            let mut out = Vec::new();
            self.event(kind, entry, revision, &mut out);
            out
        })
    }

    fn event(&mut self, kind: &str, entry: &Readable, revision: Revision, out: &mut Vec<u8>) {
        // The bytes around the object are few, so that this is nearly always enough.
        out.reserve(entry.value.len() + 128);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.form.write_event(&self.resource, entry, revision, !std::mem::replace(&mut self.headed, true), out);
        out.extend_from_slice(b"}\n");
    }

    /// Tells that everything up to `revision` has been sent; `initial` marks the end of what was there at the beginning.
    fn bookmark(&mut self, revision: Revision, initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.0.to_string(), "creationTimestamp": null});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = self.form.bookmark(&self.resource, metadata);
        line("BOOKMARK", &object)
    }

    /// Ends the watch with an error that its client finds in the stream.
    fn failed(&mut self, status: &Status) -> Bytes {
        self.stage = Stage::Over;
        line("ERROR", &serde_json::to_value(status).unwrap_or_default())
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

    use super::*;
    use crate::record;
    use crate::server::{ApiServer, Options};
    use crate::user::SystemUser;

    #[tokio::test]
    async fn many_large_changes_come_in_pieces() {
        let api = ApiServer::open(Options::default()).await.unwrap();
        let server = &*api.0;
        let row = &server.kinds.find("", "v1", "configmaps").unwrap();
        let after = format!("resourceVersion={}", server.store.revision());
        let options = WatchOptions::parse(&Query::parse(Some(&after)), row).unwrap();
        let context = server.task_context(SystemUser::ApiServer);
        let watched = watch(server, &context, row.clone(), None, Filter::default(), Form::Whole, &options).unwrap();
        let large = 100 * 1024;
        for number in 0..20 {
            let name = format!("c{number:02}");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                                "data": {"text": "x".repeat(large)}});
            let key = row.key(Some("default"), &name);
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
