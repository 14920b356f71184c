//! Connections that stop speaking HTTP. A request that asks for an upgrade carries [`ClientMessages`], from which the service takes
//! what the client sends afterwards; the body of its 101 response is what the client gets. Here is what all such connections
//! share, and those whose protocol only the service knows: bytes in, bytes out, and no idea what they mean.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Version, header};
use http_body::Body;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// How long a client may take to answer a close.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How many bytes of a client are read at once.
pub(crate) const READ: usize = 32 << 10;

/// How many messages wait for the service. One, so that the service has the next one while the listener reads: then the
/// listener stops reading, and the client has to wait.
const WAITING: usize = 1;

/// What a client sends once its connection is upgraded: the messages of a WebSocket, or the bytes of another protocol as they
/// come. It is in the extensions of each request that asks for an upgrade. A service that wants to read it takes it before it
/// answers 101, and reads until it ends, which is when the connection does.
#[derive(Clone, Debug)]
pub struct ClientMessages(Arc<Mutex<Option<mpsc::Receiver<Bytes>>>>);

impl ClientMessages {
    /// The messages, for the first who asks.
    pub fn take(&self) -> Option<mpsc::Receiver<Bytes>> {
        self.0.lock().take()
    }

    pub(crate) fn new() -> (Self, mpsc::Sender<Bytes>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(Arc::new(Mutex::new(Some(receiver)))), sender)
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.0.lock().is_none()
    }
}

/// Whether a request asks for an upgrade to a protocol.
pub(crate) fn is_requested<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.version() == Version::HTTP_11
        && lists(headers, &header::CONNECTION, "upgrade")
        && headers.contains_key(header::UPGRADE)
}

/// Whether a comma-separated header contains a word.
pub(crate) fn lists(headers: &HeaderMap, name: &header::HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(word))
}

/// What was read of a client on its way to the service.
pub(crate) struct Input {
    sender: mpsc::Sender<Bytes>,
    /// Not more than what one read brings.
    waiting: VecDeque<Bytes>,
}

impl Input {
    pub(crate) fn new(sender: mpsc::Sender<Bytes>) -> Self {
        Self { sender, waiting: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, message: Bytes) {
        self.waiting.push_back(message);
    }

    /// Whether something has to be handed over before more is read.
    pub(crate) fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Hands over the next message, as soon as there is room. A service that no longer reads gets nothing more. Nothing is lost if
/// this is dropped while it waits.
pub(crate) async fn hand_over(input: &mut Option<Input>) {
    let Some(Input { sender, waiting }) = input else { return };
    let reads = match sender.reserve().await {
        Ok(room) => {
            if let Some(message) = waiting.pop_front() {
                room.send(message);
            }
            true
        }
        Err(_) => false,
    };
    if !reads {
        *input = None;
    }
}

/// Copies in both directions until the body ends or the client does. A client that is gone is not noticed while nothing is read of
/// it, so a service that does not read for `stalled` ends it, too.
pub(crate) async fn serve<T, B>(io: T, mut body: Pin<&mut B>, input: Input, stalled: Duration)
where
    T: AsyncRead + AsyncWrite,
    B: Body<Data = Bytes>,
{
    let (mut read, mut write) = tokio::io::split(io);
    let (mut sending, mut unflushed) = (VecDeque::new(), false);
    let mut input = Some(input);
    let mut buffer = BytesMut::new();
    loop {
        let busy = !sending.is_empty() || unflushed;
        let full = input.as_ref().is_some_and(Input::is_full);
        buffer.reserve(READ);
        tokio::select! {
            read = read.read_buf(&mut buffer), if !full => match read {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    // A copy, so that a few bytes do not hold the whole buffer.
                    let message = Bytes::copy_from_slice(&buffer);
                    buffer.clear();
                    if let Some(input) = &mut input {
                        input.push(message);
                    }
                }
            },
            () = hand_over(&mut input), if full => {}
            () = sleep(stalled), if full => return,
            sent = send(&mut write, &mut sending, &mut unflushed), if busy => if sent.is_err() { return },
            frame = poll_fn(|cx| body.as_mut().poll_frame(cx)), if !busy => match frame {
                Some(Ok(frame)) => sending.extend(frame.into_data().ok()),
                Some(Err(_)) | None => break,
            },
        }
    }
    // The kernel drops what waits for a client if the socket is closed with unread bytes of that client.
    if write.shutdown().await.is_ok() {
        let rest = async {
            while read.read_buf(&mut buffer).await.is_ok_and(|read| read > 0) {
                buffer.clear()
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, rest).await;
    }
}

/// Sends what is to be sent; what has gone out is gone from `sending` also if this is dropped while it waits.
pub(crate) async fn send(
    write: &mut (impl AsyncWrite + Unpin),
    sending: &mut VecDeque<Bytes>,
    unflushed: &mut bool,
) -> io::Result<()> {
    while let Some(part) = sending.front_mut() {
        if part.is_empty() {
            sending.pop_front();
            continue;
        }
        *unflushed = true;
        if write.write_buf(part).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    write.flush().await?;
    *unflushed = false;
    Ok(())
}
