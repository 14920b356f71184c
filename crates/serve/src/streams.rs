//! The tasks of one HTTP/2 connection: hyper asks for one per request. Each is owned by its connection, ends with it,
//! and is ended alone when its response waits too long for a peer that does not read this stream. It lives until the last
//! byte of its response is sent or dropped, so that nothing of a response is in memory unwatched.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::activity::{Activity, Timer};
use crate::counters::{Counters, count};
use crate::limits::Limits;
use crate::unread::LOOK_AGAIN;

tokio::task_local! {
    /// Set while hyper works on a stream, so that the response body knows that it belongs to one.
    static STREAM: Arc<StreamActivity>;
}

/// What of one stream's answer is still in memory, and since when the peer has taken none of it.
#[derive(Debug, Default)]
pub(crate) struct StreamActivity(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Slices that hyper has and has not sent, and the body while hyper does not ask it for more.
    held: usize,
    /// When the last of them went, or when the first one came.
    since: Option<Instant>,
    /// The stream's task, if it waits for the last one to go.
    task: Option<Waker>,
}

impl StreamActivity {
    /// The one of the stream that is being worked on; none on HTTP/1.1.
    pub(crate) fn current() -> Option<Arc<Self>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// Something waits for the peer until the guard is dropped.
    pub(crate) fn hold(self: &Arc<Self>, now: Instant) -> Held {
        let mut waiting = self.0.lock();
        waiting.held += 1;
        waiting.since.get_or_insert(now);
        Held(self.clone())
    }

    /// The same slice, watched until it is sent or dropped.
    pub(crate) fn watched(self: &Arc<Self>, slice: Bytes, now: Instant) -> Bytes {
        Bytes::from_owner(Watched { slice, _held: self.hold(now) })
    }

    /// Since when the peer takes nothing, if something waits for it.
    fn stalled_since(&self) -> Option<Instant> {
        self.0.lock().since
    }

    /// Ready when nothing waits for the peer.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.0.lock();
        if waiting.held == 0 {
            return Poll::Ready(());
        }
        waiting.task = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Something that waits for the peer of a stream.
#[derive(Debug)]
pub(crate) struct Held(Arc<StreamActivity>);

impl Drop for Held {
    fn drop(&mut self) {
        let now = Instant::now();
        let task = {
            let mut waiting = self.0.0.lock();
            waiting.held -= 1;
            waiting.since = (waiting.held > 0).then_some(now);
            if waiting.held > 0 { None } else { waiting.task.take() }
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

struct Watched {
    slice: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.slice
    }
}

/// Runs the streams of one connection.
#[derive(Clone)]
pub(crate) struct Streams {
    tasks: Arc<Mutex<JoinSet<()>>>,
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    connection: Arc<Activity>,
}

impl Streams {
    pub(crate) fn new(limits: Arc<Limits>, counters: Arc<Counters>, connection: Arc<Activity>) -> Self {
        Streams { tasks: Arc::default(), limits, counters, connection }
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
        let (limits, counters, connection) = (self.limits.clone(), self.counters.clone(), self.connection.clone());
        let mut tasks = self.tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            note(ended, &self.counters);
        }
        tasks.spawn(async move {
            let (activity, unread) = (Arc::new(StreamActivity::default()), connection.unread());
            let mut timer = Timer::default();
            let stalled = {
                let mut stream = pin!(STREAM.scope(activity.clone(), stream));
                let timeout = || unread.stall_timeout(limits.write_stall);
                let end = poll_fn(|cx| match stream.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(false),
                    Poll::Pending => poll_stalled(&activity, timeout, &mut timer, cx).map(|()| true),
                });
                end.await
            };
            if stalled {
                // Dropping the stream has reset it and freed what it held.
                count(&counters.write_stalled);
                tracing::debug!("reset an HTTP/2 stream that nobody reads");
            }
            // hyper is done with a stream as soon as the window has room for one byte of its last slice, and nobody can
            // reset the stream from then on. So the connection has to go if the peer does not take the rest.
            let timeout = || unread.server_stall_timeout(limits.write_stall);
            let left = poll_fn(|cx| match activity.poll_gone(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending => poll_stalled(&activity, timeout, &mut timer, cx).map(|()| true),
            });
            if left.await {
                connection.give_up();
            }
        });
    }
}

/// Ready when the peer has taken nothing for as long as it may.
fn poll_stalled(
    activity: &StreamActivity,
    timeout: impl Fn() -> Duration,
    timer: &mut Timer,
    cx: &mut Context<'_>,
) -> Poll<()> {
    loop {
        let Some(since) = activity.stalled_since() else { return Poll::Pending };
        let (at, now) = (since + timeout(), Instant::now());
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
