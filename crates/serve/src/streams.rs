//! The tasks of one HTTP/2 connection: hyper asks for one per request. Each is owned by its connection, ends with it,
//! and is ended alone when its response waits too long for a peer that does not read this stream.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::counters::{Counters, count};
use crate::limits::Limits;
use crate::pulse::Timer;
use crate::unread::{LOOK_AGAIN, Unread};

tokio::task_local! {
    /// Set while hyper works on a stream, so that the response body knows that it belongs to one.
    static STREAM: Arc<StreamPulse>;
}

/// When the stream's body last handed out something that hyper has not come back from.
#[derive(Debug, Default)]
pub(crate) struct StreamPulse(Mutex<Option<Instant>>);

impl StreamPulse {
    /// The one of the stream that is being worked on; none on HTTP/1.1.
    pub(crate) fn current() -> Option<Arc<Self>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// hyper has data that it has not sent.
    pub(crate) fn handed_out(&self, now: Instant) {
        *self.0.lock() = Some(now);
    }

    /// hyper asks for more: it has sent the rest.
    pub(crate) fn asked(&self) {
        *self.0.lock() = None;
    }
}

/// Runs the streams of one connection.
#[derive(Clone)]
pub(crate) struct Streams {
    tasks: Arc<Mutex<JoinSet<()>>>,
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    unread: Arc<Unread>,
}

impl Streams {
    pub(crate) fn new(limits: Arc<Limits>, counters: Arc<Counters>, unread: Arc<Unread>) -> Self {
        Streams { tasks: Arc::default(), limits, counters, unread }
    }

    /// Ends them all when the guard is dropped. A stream holds a clone of `Streams`, so without it they would keep
    /// each other alive.
    pub(crate) fn guard(&self) -> StreamsGuard {
        StreamsGuard(self.clone())
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let (limits, counters, unread) = (self.limits.clone(), self.counters.clone(), self.unread.clone());
        let mut tasks = self.tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            note(ended, &self.counters);
        }
        tasks.spawn(async move {
            let pulse = Arc::new(StreamPulse::default());
            let mut stream = pin!(STREAM.scope(pulse.clone(), stream));
            let mut timer = Timer::default();
            let stalled = poll_fn(|cx| match stream.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending => poll_stalled(&pulse, &limits, &unread, &mut timer, cx).map(|()| true),
            });
            if stalled.await {
                // Dropping the stream resets it and frees what it holds.
                count(&counters.write_stalled);
                tracing::debug!("reset an HTTP/2 stream that nobody reads");
            }
        });
    }
}

fn poll_stalled(
    pulse: &StreamPulse,
    limits: &Limits,
    unread: &Unread,
    timer: &mut Timer,
    cx: &mut Context<'_>,
) -> Poll<()> {
    loop {
        let Some(since) = *pulse.0.lock() else { return Poll::Pending };
        let (at, now) = (since + unread.patience(limits.write_stall), Instant::now());
        if at <= now {
            return Poll::Ready(());
        }
        if timer.poll_at(at.min(now + LOOK_AGAIN), cx).is_pending() {
            return Poll::Pending;
        }
    }
}

fn note(ended: Result<(), tokio::task::JoinError>, counters: &Counters) {
    if let Err(error) = ended
        && error.is_panic()
    {
        count(&counters.panics);
        tracing::error!("a request ended in a panic");
    }
}

/// Owns the tasks of a connection.
pub(crate) struct StreamsGuard(Streams);

impl StreamsGuard {
    /// Ends all that still run and waits until they have.
    pub(crate) async fn end(self) {
        let mut tasks = std::mem::take(&mut *self.0.tasks.lock());
        tasks.abort_all();
        while let Some(ended) = tasks.join_next().await {
            note(ended, &self.0.counters);
        }
    }
}

impl Drop for StreamsGuard {
    fn drop(&mut self) {
        self.0.tasks.lock().abort_all();
    }
}
