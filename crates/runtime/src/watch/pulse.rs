//! The pulse of an open watch. In: the body of its answer. Out: the same, until nothing at all came for so long that
//! whoever sends it cannot be well; then an error and the end. Never judges a server by what others do: only one that
//! has shown that it sends bookmarks is missed when it sends none.
//!
//! This is for a peer whose machine lives and whose process does not, or a proxy with nobody behind it: their kernels
//! answer the probes of TCP. Whoever is wrongly given up costs one request, and has to prove its rhythm anew.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Frame;
use kube::client::Body;
use tokio::time::{Instant, Sleep};

use super::link::Notes;

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
}

struct Watched {
    notes: Arc<Notes>,
    /// When something came last, and when a bookmark or the end of the list did.
    heard: Instant,
    marked: Instant,
    /// When to look again. It is not moved for each frame: it rings, and is set to when silence would be too long.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Pulse {
    pub fn of_watch(body: Body, notes: Arc<Notes>, now: Instant) -> Self {
        Self { body: Some(body), watch: Some(Watched { notes, heard: now, marked: now, alarm: None }) }
    }

    pub fn of_other(body: Body) -> Self {
        Self { body: Some(body), watch: None }
    }
}

impl Watched {
    fn hear(&mut self, data: &[u8], now: Instant) {
        self.heard = now;
        if self.notes.listing() {
            // The bookmark that ends a list is no part of the rhythm.
            self.marked = now;
        } else if is_bookmark(data) {
            let rhythm = self.notes.rhythm().unwrap_or(RHYTHM).max(now.saturating_duration_since(self.marked));
            self.notes.set_rhythm(Some(rhythm));
            self.marked = now;
        }
    }

    /// Ready when the silence has been too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(rhythm) = self.notes.rhythm() else { return Poll::Pending };
        let too_long = self.heard + rhythm + LATE;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(too_long)));
        loop {
            ready!(alarm.as_mut().poll(cx));
            if alarm.deadline() >= too_long {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(too_long);
        }
    }
}

/// Servers differ in which of its two fields they write first. One that comes together with other lines may be missed;
/// it is in quiet times that they matter, and then they come alone.
fn is_bookmark(data: &[u8]) -> bool {
    data.starts_with(br#"{"type":"BOOKMARK","#) || data.ends_with(b",\"type\":\"BOOKMARK\"}\n")
}

impl http_body::Body for Pulse {
    type Data = <Body as http_body::Body>::Data;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Self { body: Some(body), watch } = &mut *self else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx).map_err(Into::into);
        let Some(watch) = watch else { return polled };
        if let Poll::Ready(frame) = polled {
            if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(|frame| frame.data_ref())) {
                watch.hear(data.map_or(&[], |data| data), Instant::now());
            }
            return Poll::Ready(frame);
        }
        ready!(watch.poll_silence(cx));
        watch.notes.set_rhythm(None);
        // Whoever holds the connection learns from this that nobody reads from it any more.
        self.body = None;
        Poll::Ready(Some(Err("the server fell silent: not even a bookmark came".into())))
    }
}
