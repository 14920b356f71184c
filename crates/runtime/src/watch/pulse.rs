//! The pulse of an open watch. In: the body of its answer. Out: the same, until nothing at all came for so long that
//! whoever sends it cannot be well; then an error and the end. Never judges a server by what others do: only one that
//! has shown that it sends bookmarks is missed when it sends none.
//!
//! It also ends a streamed list that a deletion comes in the middle of, before anybody reads that: kube's watcher takes
//! such deletions for impossible and passes them by, but a cluster ends a list up to a second after its last object, and
//! tells what happens meanwhile.
//!
//! This is for a peer whose machine lives and whose process does not, or a proxy with nobody behind it: their kernels
//! answer the probes of TCP. Whoever is wrongly given up costs one request, and has to prove its rhythm anew.
//!
//! And it reads at which resource version a list was taken, which kube's watcher keeps to itself: our own writes up to
//! there are in the list, or were undone by somebody else.
//!
//! Over a connection that cannot be asked whether its other end lives, as one of HTTP/1, silence ends the answer much
//! sooner and without an error: the watch is then resumed over a new connection, where it left off. That next one ends by
//! itself when its time is over, behind a bookmark.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Frame;
use kube::client::Body;
use tokio::time::{Instant, Sleep};

use super::link::{Ended, Notes, SHORT};

/// About how often an API server sends a bookmark, whatever else it sends.
const RHYTHM: Duration = Duration::from_secs(60);

/// How much later than its rhythm one may come from a server that is busy.
const LATE: Duration = Duration::from_secs(15);

/// A body that is listened to.
pub(crate) struct Pulse {
    /// None once it was given up.
    body: Option<Body>,
    /// None where it is no watch.
    watch: Option<Watched>,
    /// None where it is no list.
    page: Option<Page>,
}

/// The beginning and the end of a page of a list: one of them says at which version it was taken.
struct Page {
    notes: Arc<Notes>,
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// How much of each is kept: more than the metadata of a list takes, whose token to go on is the longest part of it.
const EDGE: usize = 4096;

struct Watched {
    notes: Arc<Notes>,
    opened: Instant,
    /// When something came last, and when a bookmark or the end of the list did.
    heard: Instant,
    marked: Instant,
    /// Whether something came that was no bookmark.
    busy: bool,
    /// As long as a list comes in.
    list: Option<Types>,
    /// What has come of the bookmark that ends the list, until all of it has.
    ending: Option<Vec<u8>>,
    /// When to look again. It is not moved for each frame: it rings, and is set to when silence would be too long.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Where the connection may be half open.
    renewal: Option<Renewal>,
}

/// How a watch goes from one connection to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    /// How much silence ends the answer.
    pub after: Duration,
    /// Whether the server was asked to end it after about as long.
    pub brief: bool,
}

/// What silence says.
enum Silence {
    /// Ask again over another connection.
    Renew,
    /// The server cannot be well.
    Dead,
}

impl Pulse {
    pub fn of_watch(body: Body, notes: Arc<Notes>, now: Instant, renewal: Option<Renewal>) -> Self {
        let watch = Watched {
            notes,
            opened: now,
            heard: now,
            marked: now,
            busy: false,
            list: Some(Types::default()),
            ending: None,
            alarm: None,
            renewal,
        };
        Self { body: Some(body), watch: Some(watch), page: None }
    }

    pub fn of_list(body: Body, notes: Arc<Notes>) -> Self {
        let page = Page { notes, head: Vec::new(), tail: Vec::new() };
        Self { body: Some(body), watch: None, page: Some(page) }
    }

    pub fn of_other(body: Body) -> Self {
        Self { body: Some(body), watch: None, page: None }
    }
}

impl Page {
    fn take(&mut self, data: &[u8]) {
        let room = EDGE - self.head.len();
        self.head.extend_from_slice(&data[..data.len().min(room)]);
        self.tail.extend_from_slice(&data[data.len().saturating_sub(EDGE)..]);
        let over = self.tail.len().saturating_sub(EDGE);
        self.tail.drain(..over);
    }
}

/// The version of a list, from its first bytes or its last ones: kinds that are known to an API server have their metadata
/// before the items, custom resources have it behind them.
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

impl Watched {
    /// Whether a deletion begins in the middle of the list.
    fn is_torn(&mut self, data: &[u8]) -> bool {
        if self.ending.is_some() {
            self.end_list(data);
        }
        let Some(list) = self.list.as_mut().filter(|_| self.notes.listing()) else { return false };
        if data.ends_with(BOOKMARK_BEHIND) {
            let begin = memchr::memrchr(b'\n', &data[..data.len() - 1]).map_or(0, |at| at + 1);
            self.notes.set_list_version(version_of_bookmark(&data[begin..]));
        }
        match list.find(data, |first| matches!(first, b'D' | b'B')) {
            Some((b'D', _)) => true,
            // The bookmark that ends the list.
            Some((_, rest)) => {
                self.list = None;
                self.ending = Some(Types::BEGIN.to_vec());
                self.end_list(rest);
                false
            }
            None => false,
        }
    }

    /// Takes more of the bookmark that ends the list, and notes its version when it is complete.
    fn end_list(&mut self, data: &[u8]) {
        let Some(mut ending) = self.ending.take() else { return };
        let end = memchr::memchr(b'\n', data);
        ending.extend_from_slice(&data[..end.unwrap_or(data.len())]);
        if end.is_none() {
            self.ending = Some(ending);
            return;
        }
        self.notes.set_list_version(version_of_bookmark(&ending));
    }

    fn hear(&mut self, data: &[u8], now: Instant) {
        self.heard = now;
        if self.notes.listing() {
            // The bookmark that ends a list is no part of the rhythm.
            self.marked = now;
        } else if is_bookmark(data) {
            let rhythm = self.notes.rhythm().unwrap_or(RHYTHM).max(now.saturating_duration_since(self.marked));
            self.notes.set_rhythm(Some(rhythm));
            self.marked = now;
        } else {
            self.busy = true;
        }
    }

    /// The server has ended the answer. If it did what it was asked for, that is no fault of it.
    fn end(&self, now: Instant) {
        let lived = now.saturating_duration_since(self.opened);
        if self.renewal.is_some_and(|renewal| renewal.brief) && lived >= SHORT {
            self.notes.set_ended(if self.busy { Ended::Busy } else { Ended::Quiet });
        }
    }

    /// Ready when the silence has been too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Silence> {
        // A list is not begun anew because it is slow; who runs the watch knows how long it may take.
        let renewal = self.renewal.filter(|_| !self.notes.listing());
        let (too_long, says) = match (renewal, self.notes.rhythm()) {
            (Some(renewal), _) => (self.heard + renewal.after, Silence::Renew),
            (None, Some(rhythm)) => (self.heard + rhythm + LATE, Silence::Dead),
            (None, None) => return Poll::Pending,
        };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(too_long)));
        if alarm.deadline() > too_long {
            // It was set in the middle of a list, which may take longer.
            alarm.as_mut().reset(too_long);
        }
        loop {
            ready!(alarm.as_mut().poll(cx));
            if alarm.deadline() >= too_long {
                return Poll::Ready(says);
            }
            alarm.as_mut().reset(too_long);
        }
    }
}

/// The types of the lines of a watch, by their first letters: `DELETED`, `BOOKMARK`. A line may come in pieces.
struct Types {
    /// How much of what comes before the type has come of this line; none if its type is known, or it has none.
    begun: Option<usize>,
}

impl Default for Types {
    fn default() -> Self {
        Self { begun: Some(0) }
    }
}

impl Types {
    /// What every line begins with, where the type is written first, as clusters do.
    const BEGIN: &[u8] = br#"{"type":""#;

    /// The first that is looked for, and all that has come from it on.
    fn find<'d>(&mut self, mut data: &'d [u8], wanted: impl Fn(u8) -> bool) -> Option<(u8, &'d [u8])> {
        loop {
            if let Some(begun) = self.begun {
                let common = Self::BEGIN[begun..].iter().zip(data).take_while(|(begin, byte)| begin == byte).count();
                let Some(first) = data.get(common) else {
                    self.begun = Some(begun + common);
                    return None;
                };
                if begun + common == Self::BEGIN.len() && wanted(*first) {
                    return Some((*first, &data[common..]));
                }
                self.begun = None;
            }
            data = &data[memchr::memchr(b'\n', data)? + 1..];
            self.begun = Some(0);
        }
    }
}

/// How a bookmark ends whose type is written behind its object.
const BOOKMARK_BEHIND: &[u8] = b",\"type\":\"BOOKMARK\"}\n";

fn version_of_bookmark(line: &[u8]) -> Option<u64> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    line.pointer("/object/metadata/resourceVersion")?.as_str()?.parse().ok()
}

/// Servers differ in which of its two fields they write first. One that comes together with other lines may be missed;
/// it is in quiet times that they matter, and then they come alone.
fn is_bookmark(data: &[u8]) -> bool {
    data.starts_with(br#"{"type":"BOOKMARK","#) || data.ends_with(BOOKMARK_BEHIND)
}

impl http_body::Body for Pulse {
    type Data = <Body as http_body::Body>::Data;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Self { body: Some(body), watch, page } = &mut *self else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx).map_err(Into::into);
        if let Some(page) = page {
            match &polled {
                Poll::Ready(Some(Ok(frame))) => page.take(frame.data_ref().map_or(&[][..], |data| data)),
                Poll::Ready(None) => page.notes.add_page(version_of_list(&page.head, &page.tail)),
                _ => {}
            }
        }
        let Some(watch) = watch else { return polled };
        if let Poll::Ready(frame) = polled {
            if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(|frame| frame.data_ref())) {
                let data = data.map_or(&[][..], |data| data);
                watch.hear(data, Instant::now());
                if watch.is_torn(data) {
                    watch.notes.set_torn();
                    self.body = None;
                    return Poll::Ready(Some(Err("an object was deleted while the list came in".into())));
                }
            }
            if frame.is_none() {
                watch.end(Instant::now());
            }
            return Poll::Ready(frame);
        }
        let silence = ready!(watch.poll_silence(cx));
        if let Silence::Renew = silence {
            watch.notes.set_ended(Ended::Quiet);
            self.body = None;
            return Poll::Ready(None);
        }
        watch.notes.set_rhythm(None);
        // Whoever holds the connection learns from this that nobody reads from it any more.
        self.body = None;
        Poll::Ready(Some(Err("the server fell silent: not even a bookmark came".into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_however_lines_come() {
        let text = b"{\"type\":\"ADDED\",\"object\":{\"a\":\"{\\\"type\\\":\\\"DELETED\"}}\n\n{}\n{\"type\":\"DELETED\",\"object\":{}}\n";
        for size in 1..text.len() {
            let mut types = Types::default();
            let found = text.chunks(size).find_map(|piece| Some(types.find(piece, |first| first == b'D')?.0));
            assert_eq!(found, Some(b'D'), "in pieces of {size}");
            let mut types = Types::default();
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
            // What is not there is not made up from an item.
            (format!(r#"{{"kind":"L","metadata":{{}},"items":[{item}]}}"#), None),
            (format!(r#"{{"kind":"L","items":[{item}]}}"#), None),
            (r#"{"kind":"Status","code":500}"#.to_owned(), None),
        ] {
            for size in [1, 7, 10_000] {
                let mut page = Page { notes: Notes::new(Duration::ZERO), head: Vec::new(), tail: Vec::new() };
                list.as_bytes().chunks(size).for_each(|piece| page.take(piece));
                assert_eq!(version_of_list(&page.head, &page.tail), expect, "{list}");
            }
        }
    }
}
