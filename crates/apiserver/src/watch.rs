//! Watching: changes as they are committed. In: a row, a place, a revision to start after. Out: a stream of events in
//! JSON lines. Each watch reads the shared history at its own pace, so that a slow one can lose only itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use konverge_core::{FieldError, FieldPath, Status};
use konverge_store::{Change, Entry, Page, Range, ReadError, Revision, Store, Watch};

use crate::read::{not_from_the_future, parse_version};
use crate::render::Form;
use crate::request::{Query, invalid_options};
use crate::resource::Resource;
use crate::server::Server;
use crate::view::Filter;

/// How many changes are taken at a time, and how many bytes of them are put into one piece of the answer. Together they
/// bound what a client that does not read can hold.
const BATCH: usize = 256;
const PIECE_BYTES: usize = 128 * 1024;

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
        })
    }
}

/// Everything a running watch needs.
struct Watching {
    store: Arc<dyn Store>,
    resource: Arc<Resource>,
    filter: Filter,
    form: Form,
    bookmarks: bool,
    closing: tokio::sync::watch::Receiver<bool>,
    ends: Instant,
    bookmark_at: Instant,
    stage: Stage,
    /// Whether a table's columns have been sent.
    headed: bool,
}

enum Stage {
    /// What was there when the watch began, and whether the end of it is marked.
    Initial { entries: std::vec::IntoIter<Entry>, revision: Revision, marked: bool },
    /// What has changed since.
    Changes(Watch),
    /// An error was sent, or the time is over.
    Over,
}

/// Why a waiting watch goes on.
enum Woken {
    Changes(Result<Vec<Change>, ReadError>),
    Time(Revision),
    Closing,
}

/// Starts a watch.
pub(crate) fn watch(
    server: &Server,
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
    let mut watching = Watching {
        store: store.clone(),
        resource,
        filter,
        form,
        bookmarks: options.bookmarks,
        closing: server.closing(),
        ends,
        bookmark_at: next_bookmark(now, ends),
        stage: Stage::Over,
        headed: false,
    };
    let (first, then) = match begin() {
        Ok((Some(Page { entries, revision, .. }), changes)) => {
            let entries = entries.into_iter();
            (Stage::Initial { entries, revision, marked: options.initial_ends }, Some(changes))
        }
        Ok((None, changes)) => (Stage::Changes(changes), None),
        // Too late is told inside the stream, where clients look for it.
        Err(error) => {
            let gone = watching.gone(&error);
            return Ok(stream::iter([gone]).left_stream());
        }
    };
    watching.stage = first;
    Ok(stream::unfold((watching, then), |(mut watching, mut then)| async move {
        let piece = watching.next(&mut then).await?;
        Some((piece, (watching, then)))
    })
    .right_stream())
}

impl Watching {
    /// The next piece of the answer, or nothing when the watch is over.
    async fn next(&mut self, then: &mut Option<Watch>) -> Option<Bytes> {
        loop {
            match &mut self.stage {
                Stage::Over => return None,
                Stage::Initial { .. } => {
                    let piece = self.initial(then);
                    if !piece.is_empty() {
                        return Some(piece.into());
                    }
                }
                Stage::Changes(changes) => {
                    let wake = if self.bookmarks { self.bookmark_at.min(self.ends) } else { self.ends };
                    let woken = tokio::select! {
                        batch = changes.next(BATCH) => Woken::Changes(batch),
                        () = tokio::time::sleep_until(wake) => Woken::Time(changes.position()),
                        _ = self.closing.wait_for(|closing| *closing) => Woken::Closing,
                    };
                    if let Some(piece) = self.woken(woken) {
                        return Some(piece);
                    }
                }
            }
        }
    }

    /// What is to be sent for it, if anything.
    fn woken(&mut self, woken: Woken) -> Option<Bytes> {
        match woken {
            Woken::Changes(Ok(batch)) => Some(self.changed(&batch)).filter(|piece| !piece.is_empty()).map(Bytes::from),
            Woken::Changes(Err(error)) => {
                self.stage = Stage::Over;
                Some(self.gone(&error))
            }
            Woken::Time(position) => {
                let now = Instant::now();
                if now >= self.ends {
                    self.stage = Stage::Over;
                    return None;
                }
                self.bookmark_at = next_bookmark(now, self.ends);
                Some(self.bookmark(position, false))
            }
            Woken::Closing => {
                self.stage = Stage::Over;
                None
            }
        }
    }

    /// A piece of what was there at the beginning; the last one moves on to the changes.
    fn initial(&mut self, then: &mut Option<Watch>) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < PIECE_BYTES {
            let Stage::Initial { entries, revision, marked } = &mut self.stage else { break };
            let Some(entry) = entries.next() else {
                let end = marked.then_some(*revision);
                self.stage = then.take().map_or(Stage::Over, Stage::Changes);
                if let Some(revision) = end {
                    out.extend_from_slice(&self.bookmark(revision, true));
                }
                break;
            };
            if self.filter.matches(&self.resource, &entry) {
                self.event("ADDED", &entry, entry.revision, &mut out);
            }
        }
        out
    }

    fn changed(&mut self, batch: &[Change]) -> Vec<u8> {
        let mut out = Vec::new();
        for change in batch {
            // An object that leaves the selection is gone for this client, one that enters it is new.
            let passes = |entry: &&Entry| self.filter.matches(&self.resource, entry);
            let before = change.before.as_ref().filter(passes);
            let after = change.after.as_ref().filter(passes);
            match (before, after) {
                (None, None) => {}
                (None, Some(after)) => self.event("ADDED", after, change.revision, &mut out),
                (Some(_), Some(after)) => self.event("MODIFIED", after, change.revision, &mut out),
                (Some(before), None) => self.event("DELETED", before, change.revision, &mut out),
            }
        }
        out
    }

    fn event(&mut self, kind: &str, entry: &Entry, revision: Revision, out: &mut Vec<u8>) {
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

    fn gone(&self, error: &ReadError) -> Bytes {
        let status = match error {
            ReadError::Compacted { asked, oldest } => {
                Status::expired(format!("too old resource version: {asked} ({oldest})"))
            }
            ReadError::Future { asked, .. } => {
                let newest = self.store.revision();
                Status::expired(format!("too large resource version: {} ({})", asked.0, newest.0))
            }
        };
        line("ERROR", &serde_json::to_value(status).unwrap_or_default())
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
