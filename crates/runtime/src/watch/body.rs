//! The response body of a list or a watch. In: the body as it comes over the wire. Out: the same bytes; what they tell
//! goes into the [`TransportState`]. Does four things that kube's watcher does not do:
//!
//! - **Ends a watch whose server fell silent.** If no byte came for longer than the server's bookmark interval, the body
//!   ends with an error. This finds a server whose process hangs, or a proxy that lost its server: their kernels still
//!   answer TCP keepalive probes. Only a server that has sent bookmarks is expected to send them. A server that is given
//!   up by mistake costs one request, and its bookmark interval is measured again.
//! - **Resumes an idle watch over a new connection.** A connection that may be half open ends much sooner, and without
//!   an error. The watch continues over a new connection from the last resource version. That next watch has a short
//!   timeout, and the server sends a bookmark before it ends.
//! - **Ends a streamed list in which an object is deleted.** kube's watcher ignores deletions inside of a list. A server
//!   ends a list up to a second after its last object, and sends what happens in that second.
//! - **Reads the resource version of a list,** which kube's watcher does not expose. Our own writes up to this version
//!   are in the list, or were undone by somebody else.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Frame;
use kube::client::Body;
use tokio::time::{Instant, Sleep};

use super::transport::{CleanEnd, MIN_WATCH_DURATION, TransportState};

/// How often an API server sends a bookmark, at least.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// How much later than expected a bookmark of a busy server may come.
const BOOKMARK_DELAY: Duration = Duration::from_secs(15);

/// A body that is inspected while it is read.
pub(crate) struct ResponseBody {
    /// `None` once the body was given up.
    body: Option<Body>,
    content: Content,
}

enum Content {
    Watch(WatchContent),
    List(ListPage),
    Error,
}

/// The first and the last bytes of a page of a list: one of them has the resource version.
struct ListPage {
    state: Arc<TransportState>,
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// How many bytes of each end are kept. The metadata of a list is shorter; most of it is the continue token.
const LIST_EDGE: usize = 4096;

struct WatchContent {
    state: Arc<TransportState>,
    opened_at: Instant,
    /// When the last bytes came.
    last_data: Instant,
    /// When the last bookmark came, or the list ended.
    last_bookmark: Instant,
    /// Whether something other than a bookmark came.
    had_events: bool,
    /// Reads the event types of a streamed list; `None` after the list.
    list_types: Option<EventTypes>,
    /// The beginning of the bookmark that ends the list, while the rest of that line has not come.
    partial_bookmark: Option<Vec<u8>>,
    /// Wakes the task when the silence may be too long. It is not reset for each frame, only when it fires.
    timer: Option<Pin<Box<Sleep>>>,
    /// Set where the connection may be half open.
    resumption: Option<Resumption>,
}

/// When a watch is resumed over another connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumption {
    /// How much silence ends the body.
    pub(super) after: Duration,
    /// Whether the server was asked to end the watch after about as long.
    pub(super) server_ends_it: bool,
}

/// What follows from silence.
enum Silence {
    /// The watch is resumed over another connection.
    Resume,
    /// The server hangs.
    Failed,
}

impl ResponseBody {
    pub(super) fn of_watch(
        body: Body,
        state: Arc<TransportState>,
        now: Instant,
        resumption: Option<Resumption>,
    ) -> Self {
        let content = Content::Watch(WatchContent {
            state,
            opened_at: now,
            last_data: now,
            last_bookmark: now,
            had_events: false,
            list_types: Some(EventTypes::default()),
            partial_bookmark: None,
            timer: None,
            resumption,
        });
        Self { body: Some(body), content }
    }

    pub(super) fn of_list(body: Body, state: Arc<TransportState>) -> Self {
        let page = ListPage { state, head: Vec::new(), tail: Vec::new() };
        Self { body: Some(body), content: Content::List(page) }
    }

    pub(super) fn of_error(body: Body) -> Self {
        Self { body: Some(body), content: Content::Error }
    }
}

impl ListPage {
    fn read(&mut self, data: &[u8]) {
        let room = LIST_EDGE - self.head.len();
        self.head.extend_from_slice(&data[..data.len().min(room)]);
        self.tail.extend_from_slice(&data[data.len().saturating_sub(LIST_EDGE)..]);
        let surplus = self.tail.len().saturating_sub(LIST_EDGE);
        self.tail.drain(..surplus);
    }
}

/// The resource version of a list, from its first or its last bytes. An API server writes the metadata of built-in kinds
/// before the items, and that of custom resources behind them.
fn version_of_list(head: &[u8], tail: &[u8]) -> Option<u64> {
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    let before = head.split_once("\"items\":").map_or("", |(before, _)| before);
    let metadata = match before.split_once("\"metadata\":{") {
        Some((_, metadata)) => metadata,
        None => {
            let (items, metadata) = tail.rsplit_once("\"metadata\":{")?;
            // Behind the items, not inside of one.
            let is_behind = items.trim_end().ends_with(',') && metadata.trim_end().ends_with("}}");
            metadata.split_once('}').filter(|(_, rest)| is_behind && rest.trim() == "}")?.0
        }
    };
    let (_, version) = metadata.split_once("\"resourceVersion\":\"")?;
    version.split_once('"')?.0.parse().ok()
}

impl WatchContent {
    /// Reads the event types of a streamed list. Returns whether an object is deleted in the middle of the list.
    fn has_deletion_in_list(&mut self, data: &[u8]) -> bool {
        if self.partial_bookmark.is_some() {
            self.read_final_bookmark(data);
        }
        let Some(types) = self.list_types.as_mut().filter(|_| self.state.listing()) else { return false };
        if data.ends_with(BOOKMARK_TYPE_LAST) {
            let begin = memchr::memrchr(b'\n', &data[..data.len() - 1]).map_or(0, |at| at + 1);
            self.state.set_list_version(version_of_bookmark(&data[begin..]));
        }
        match types.find(data, |first| matches!(first, b'D' | b'B')) {
            Some((b'D', _)) => true,
            // The bookmark that ends the list.
            Some((_, rest)) => {
                self.list_types = None;
                self.partial_bookmark = Some(EventTypes::PREFIX.to_vec());
                self.read_final_bookmark(rest);
                false
            }
            None => false,
        }
    }

    /// Reads more of the bookmark that ends the list, and notes its version when it is complete.
    fn read_final_bookmark(&mut self, data: &[u8]) {
        let Some(mut line) = self.partial_bookmark.take() else { return };
        let end = memchr::memchr(b'\n', data);
        line.extend_from_slice(&data[..end.unwrap_or(data.len())]);
        if end.is_none() {
            self.partial_bookmark = Some(line);
            return;
        }
        self.state.set_list_version(version_of_bookmark(&line));
    }

    fn received(&mut self, data: &[u8], now: Instant) {
        self.last_data = now;
        if self.state.listing() {
            // The bookmark that ends a list does not count for the interval.
            self.last_bookmark = now;
        } else if is_bookmark(data) {
            let measured = now.saturating_duration_since(self.last_bookmark);
            let interval = self.state.bookmark_interval().unwrap_or(BOOKMARK_INTERVAL).max(measured);
            self.state.set_bookmark_interval(Some(interval));
            self.last_bookmark = now;
        } else {
            self.had_events = true;
        }
    }

    /// The server has ended the body. That is a clean end if the request asked for it.
    fn ended(&self, now: Instant) {
        let open_for = now.saturating_duration_since(self.opened_at);
        if self.resumption.is_some_and(|resumption| resumption.server_ends_it) && open_for >= MIN_WATCH_DURATION {
            self.state.set_clean_end(if self.had_events { CleanEnd::Active } else { CleanEnd::Idle });
        }
    }

    /// Ready when the silence has been too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Silence> {
        // A slow list is not resumed here; the watch has its own limit for lists.
        let resumption = self.resumption.filter(|_| !self.state.listing());
        let (deadline, silence) = match (resumption, self.state.bookmark_interval()) {
            (Some(resumption), _) => (self.last_data + resumption.after, Silence::Resume),
            (None, Some(interval)) => (self.last_data + interval + BOOKMARK_DELAY, Silence::Failed),
            (None, None) => return Poll::Pending,
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            // The timer was set in the middle of a list, which may take longer.
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(silence);
            }
            timer.as_mut().reset(deadline);
        }
    }
}

/// Finds the event types in the lines of a watch by their first letters: `DELETED`, `BOOKMARK`. A line may come in
/// pieces.
struct EventTypes {
    /// How many bytes of [`Self::PREFIX`] this line has matched so far. `None` once the type of the line is known, or
    /// the line turned out to begin differently.
    matched: Option<usize>,
}

impl Default for EventTypes {
    fn default() -> Self {
        Self { matched: Some(0) }
    }
}

impl EventTypes {
    /// How a line begins if the server writes the type first, as kube-apiserver does.
    const PREFIX: &[u8] = br#"{"type":""#;

    /// The first letter of the first type that `wanted` accepts, and all data from that letter on.
    fn find<'d>(&mut self, mut data: &'d [u8], wanted: impl Fn(u8) -> bool) -> Option<(u8, &'d [u8])> {
        loop {
            if let Some(matched) = self.matched {
                let prefix = Self::PREFIX[matched..].iter();
                let common = prefix.zip(data).take_while(|(expected, byte)| expected == byte).count();
                let Some(first) = data.get(common) else {
                    self.matched = Some(matched + common);
                    return None;
                };
                if matched + common == Self::PREFIX.len() && wanted(*first) {
                    return Some((*first, &data[common..]));
                }
                self.matched = None;
            }
            data = &data[memchr::memchr(b'\n', data)? + 1..];
            self.matched = Some(0);
        }
    }
}

/// How a bookmark ends if the server writes its type behind its object.
const BOOKMARK_TYPE_LAST: &[u8] = b",\"type\":\"BOOKMARK\"}\n";

fn version_of_bookmark(line: &[u8]) -> Option<u64> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    line.pointer("/object/metadata/resourceVersion")?.as_str()?.parse().ok()
}

/// Whether the data is a bookmark. Servers differ in which of its two fields they write first. A bookmark in the middle of
/// other lines is not found; bookmarks matter while a watch is idle, and then they come alone.
fn is_bookmark(data: &[u8]) -> bool {
    data.starts_with(br#"{"type":"BOOKMARK","#) || data.ends_with(BOOKMARK_TYPE_LAST)
}

impl http_body::Body for ResponseBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Self { body: Some(body), content } = &mut *self else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx).map_err(Into::into);
        let watch = match content {
            Content::Watch(watch) => watch,
            Content::List(page) => {
                match &polled {
                    Poll::Ready(Some(Ok(frame))) => page.read(frame.data_ref().map_or(&[][..], |data| data)),
                    Poll::Ready(None) => page.state.add_page(version_of_list(&page.head, &page.tail)),
                    _ => {}
                }
                return polled;
            }
            Content::Error => return polled,
        };
        if let Poll::Ready(frame) = polled {
            if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(|frame| frame.data_ref())) {
                let data = data.map_or(&[][..], |data| data);
                watch.received(data, Instant::now());
                if watch.has_deletion_in_list(data) {
                    watch.state.set_deleted_while_listing();
                    self.body = None;
                    return Poll::Ready(Some(Err("an object was deleted while the list was read".into())));
                }
            }
            if frame.is_none() {
                watch.ended(Instant::now());
            }
            return Poll::Ready(frame);
        }
        match ready!(watch.poll_silence(cx)) {
            Silence::Resume => {
                watch.state.set_clean_end(CleanEnd::Idle);
                self.body = None;
                Poll::Ready(None)
            }
            Silence::Failed => {
                watch.state.set_bookmark_interval(None);
                // Dropping the body closes the connection.
                self.body = None;
                Poll::Ready(Some(Err("the server fell silent: it did not even send a bookmark".into())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_in_lines_of_any_pieces() {
        let text = b"{\"type\":\"ADDED\",\"object\":{\"a\":\"{\\\"type\\\":\\\"DELETED\"}}\n\n{}\n{\"type\":\"DELETED\",\"object\":{}}\n";
        for size in 1..text.len() {
            let mut types = EventTypes::default();
            let found = text.chunks(size).find_map(|piece| Some(types.find(piece, |first| first == b'D')?.0));
            assert_eq!(found, Some(b'D'), "in pieces of {size}");
            let mut types = EventTypes::default();
            let without = &text[..text.len() - 30];
            let found = without.chunks(size).find_map(|piece| Some(types.find(piece, |first| first == b'D')?.0));
            assert_eq!(found, None, "in pieces of {size}");
        }
    }

    #[test]
    fn the_version_of_a_list_is_found_on_either_side_of_its_items() {
        let item = r#"{"metadata":{"name":"a","resourceVersion":"3"}}"#;
        for (list, expect) in [
            (
                format!(r#"{{"kind":"L","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{item}]}}"#),
                Some(7),
            ),
            (r#"{"kind":"L","metadata":{"resourceVersion":"7","continue":"x"},"items":[]}"#.to_owned(), Some(7)),
            (format!(r#"{{"items":[{item}],"kind":"L","metadata":{{"continue":"","resourceVersion":"8"}}}}"#), Some(8)),
            (format!("{{\"items\":[{item}],\"metadata\":{{\"resourceVersion\":\"8\"}}}}\n"), Some(8)),
            // The version of an item is not taken for that of the list.
            (format!(r#"{{"kind":"L","metadata":{{}},"items":[{item}]}}"#), None),
            (format!(r#"{{"kind":"L","items":[{item}]}}"#), None),
            (r#"{"kind":"Status","code":500}"#.to_owned(), None),
        ] {
            for size in [1, 7, 10_000] {
                let state = TransportState::new(Duration::ZERO);
                let mut page = ListPage { state, head: Vec::new(), tail: Vec::new() };
                list.as_bytes().chunks(size).for_each(|piece| page.read(piece));
                assert_eq!(version_of_list(&page.head, &page.tail), expect, "{list}");
            }
        }
    }
}
