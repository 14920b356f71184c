//! The activity of a connection: the socket (whether writes move), the plain side of TLS (what is read and written) and the
//! requests report it here, and it moves the connection's deadlines. `Activity::poll_due` tells the connection's task that a
//! deadline has passed.

use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::deadlines::{Deadlines, Verdict};
use crate::eviction::Unused;
use crate::limits::Limits;
use crate::unread::{LOOK_AGAIN, Unread};

/// One connection's deadlines, and the task to wake when a deadline may have come nearer.
#[derive(Debug)]
pub(crate) struct Activity {
    deadlines: Mutex<(Deadlines, Option<Waker>)>,
    write_stall: Duration,
    unread: Arc<Unread>,
    /// The socket is to forget what it still holds instead of sending it on.
    reset: AtomicBool,
}

impl Activity {
    pub(crate) fn new(limits: &Limits, unread: Arc<Unread>) -> Arc<Self> {
        let deadlines = Mutex::new((Deadlines::new(limits.clone(), Instant::now()), None));
        Arc::new(Activity { deadlines, write_stall: limits.write_stall, unread, reset: AtomicBool::new(false) })
    }

    /// What waits for this peer.
    pub(crate) fn unread(&self) -> Arc<Unread> {
        self.unread.clone()
    }

    /// Whether nobody uses the connection, so that it can be closed for another one.
    pub(crate) fn unused(&self) -> Option<Unused> {
        self.deadlines.lock().0.unused()
    }

    /// Closes the connection in favour of another one, unless a request came in the meantime.
    pub(crate) fn evict(&self) -> bool {
        let (evicted, waker) = {
            let (deadlines, waker) = &mut *self.deadlines.lock();
            (deadlines.evict(), waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        evicted
    }

    /// Ready when the connection is to be closed in favour of another one; for a handshake, which has no other deadlines here.
    pub(crate) fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let (deadlines, waker) = &mut *self.deadlines.lock();
        *waker = Some(cx.waker().clone());
        if deadlines.is_evicted() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts a request until the guard is dropped.
    pub(crate) fn request(self: &Arc<Self>) -> InFlight {
        self.deadlines.lock().0.request_began();
        InFlight(self.clone())
    }

    /// The time for the first request begins now.
    pub(crate) fn opened(&self) {
        self.deadlines.lock().0.opened(Instant::now());
    }

    /// The server has announced that it closes the connection (GOAWAY, or `Connection: close`).
    pub(crate) fn closing(&self) {
        self.deadlines.lock().0.closing(Instant::now());
    }

    /// The peer has closed its side of the connection.
    pub(crate) fn peer_left(&self) {
        self.deadlines.lock().0.peer_left(Instant::now());
    }

    /// The peer does not take the end of an answer.
    pub(crate) fn give_up(&self) {
        let waker = {
            let (deadlines, waker) = &mut *self.deadlines.lock();
            deadlines.answer_stuck(Instant::now());
            waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The peer gets nothing more: what waits in the kernel for it is freed at once.
    pub(crate) fn reset_on_close(&self) {
        self.reset.store(true, Ordering::Relaxed);
    }

    /// Ready when a deadline has passed. To be polled after the connection, which may have moved the deadline.
    pub(crate) fn poll_due(&self, timer: &mut Timer, cx: &mut Context<'_>) -> Poll<Verdict> {
        loop {
            let due = {
                let (deadlines, waker) = &mut *self.deadlines.lock();
                match waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                deadlines.due(self.unread.stall_timeout(self.write_stall))
            };
            let Some((at, verdict)) = due else { return Poll::Pending };
            let now = Instant::now();
            if at <= now {
                return Poll::Ready(verdict);
            }
            // How long a stalled peer has left may change while nothing happens on its connection.
            let wake = if verdict == Verdict::WriteStall { at.min(now + LOOK_AGAIN) } else { at };
            match timer.poll_at(wake, cx) {
                Poll::Ready(()) => continue,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let waker = {
            let (deadlines, waker) = &mut *self.0.deadlines.lock();
            deadlines.request_ended(Instant::now());
            waker.take()
        };
        // On HTTP/2 this runs in the request's task, while the connection's task sleeps without a deadline.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A sleep that is moved only when the deadline comes nearer; one that moved away is noticed when it fires.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready at `at`, or some time before; the caller looks again.
    pub(crate) fn poll_at(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() > at || sleep.is_elapsed() {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx)
    }
}

/// The socket, below TLS: sees when the peer takes nothing.
#[derive(Debug)]
pub(crate) struct Socket {
    read: OwnedReadHalf,
    /// Not to be dropped before this socket is: that would end what it sends.
    _write: Arc<OwnedWriteHalf>,
    activity: Arc<Activity>,
}

impl Socket {
    /// The socket, and what notices that its peer has left.
    pub(crate) fn new(stream: TcpStream, activity: Arc<Activity>) -> (Self, PeerWatch) {
        let (read, write) = stream.into_split();
        let write = Arc::new(write);
        (Socket { read, _write: write.clone(), activity }, PeerWatch(write))
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.read.as_ref()
    }

    fn note<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &outcome {
            Poll::Pending => self.activity.deadlines.lock().0.write_blocked(Instant::now()),
            Poll::Ready(_) => self.activity.deadlines.lock().0.write_moved(Instant::now()),
        }
        outcome
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.activity.reset.load(Ordering::Relaxed) {
            // If it fails the kernel tries to deliver for a few minutes; nothing else depends on it.
            let _ = self.stream().set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = poll_io(self.stream(), cx, |stream| stream.try_write(buf));
        self.note(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = poll_io(self.stream(), cx, |stream| stream.try_write_vectored(bufs));
        self.note(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream().is_write_vectored()
    }

    // A socket holds nothing back and closes at once, so neither of these can block.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match SockRef::from(self.stream()).shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            outcome => outcome,
        })
    }
}

/// Writes when the socket takes something. As `TcpStream` does it, but for a socket that is shared.
fn poll_io(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match write(stream) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            outcome => return Poll::Ready(outcome),
        }
    }
}

/// Notices that the peer has left, also while nobody reads: HTTP/1.1 does not read on while it answers a request and bytes of
/// the next one are there.
#[derive(Debug)]
pub(crate) struct PeerWatch(Arc<OwnedWriteHalf>);

impl PeerWatch {
    /// What shows a close. Only on Linux it can be awaited apart from bytes that can be read.
    const CLOSE: Interest = {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            Interest::PRIORITY
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            Interest::READABLE
        }
    };

    /// Resolves when the peer has closed its side, or the connection broke.
    pub(crate) async fn left(&self) {
        while let Ok(ready) = self.0.ready(Self::CLOSE).await {
            if ready.is_read_closed() {
                return;
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// The plain side of a connection, above TLS: sees what the peer sends.
#[derive(Debug)]
pub(crate) struct Plain<T> {
    inner: T,
    activity: Arc<Activity>,
}

impl<T> Plain<T> {
    pub(crate) fn new(inner: T, activity: Arc<Activity>) -> Self {
        Plain { inner, activity }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Plain<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = outcome {
            self.activity.deadlines.lock().0.read(&buf.filled()[before..], Instant::now());
        }
        outcome
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Plain<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = outcome {
            self.activity.deadlines.lock().0.wrote(&buf[..written]);
        }
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(mut written)) = outcome {
            let deadlines = &mut self.activity.deadlines.lock().0;
            for buf in bufs {
                let part = written.min(buf.len());
                deadlines.wrote(&buf[..part]);
                written -= part;
            }
        }
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
