//! Connections that carry several streams at once: `exec`, `attach`, `port-forward`. In: a request that asks for an upgrade, and
//! what its client sends afterwards. Out: 101 with a body that is what the client gets. A *wire* knows how streams share a
//! connection (channels of a WebSocket, or SPDY), a *conversation* what is said on them; neither knows sockets or clocks. The
//! conversation runs inside of the response's body, so that it has no task of its own and ends with its connection.
//!
//! ```text
//! client ─▶ listener ─▶ ClientStream ─▶ wire ─ events ─▶ conversation ─▶ the simulated container
//!        ◀─ listener ◀─ Body         ◀─ wire ◀─ data ──── conversation ◀─
//! ```

mod channels;
mod negotiate;
mod port_forward;
mod remote_command;
mod spdy;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::time::{Instant, sleep_until};

pub(crate) use negotiate::{Negotiated, Refusal, negotiate_port_forward, negotiate_remote_command, plain};
pub(crate) use port_forward::PortForward;
pub(crate) use remote_command::{Exit, Output, Program, RemoteCommand, StreamOptions};

/// A silent client is asked whether it is still there, where the wire can ask.
const PING_AFTER: Duration = Duration::from_secs(30);

/// How long its answer may take.
const PING_ANSWER: Duration = Duration::from_secs(15);

/// When a connection ends on which nothing was sent: what kubelets have.
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// How much is sent in one piece.
const PIECE: usize = 32 << 10;

/// The messages of a WebSocket, or the bytes of another protocol, as they come from a client.
type Pieces = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// What a client sends once its connection is upgraded.
///
/// The listener in front of the server puts it into the extensions of each request that asks for an upgrade. Without it, such
/// requests are refused, as in a process without sockets.
#[derive(Clone)]
pub struct ClientStream(Arc<dyn Fn() -> Option<Pieces> + Send + Sync>);

impl ClientStream {
    /// The stream that `take` returns the first time it is called. It is called only for requests that are upgraded.
    pub fn new<S: Stream<Item = Bytes> + Send + 'static>(take: impl Fn() -> Option<S> + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || take().map(|stream| Box::pin(stream) as Pieces)))
    }

    pub(crate) fn take(&self) -> Option<Pieces> {
        (self.0)()
    }
}

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientStream")
    }
}

/// What a client did to one of its streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Opened it; to be accepted or reset. Only on wires whose clients open streams.
    Opened {
        stream: u32,
        headers: Vec<(String, String)>,
    },
    Data {
        stream: u32,
        bytes: Vec<u8>,
    },
    /// Sends no more on it.
    Closed {
        stream: u32,
    },
    /// Wants to hear no more of it either.
    Reset {
        stream: u32,
    },
    /// Ends the connection.
    GoneAway,
}

/// The client does not speak the protocol. Costs only its own connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError(pub &'static str);

/// How streams share a connection.
pub(crate) trait Wire: Send {
    /// What a piece from the client means. What the protocol itself answers goes to the output.
    fn receive(&mut self, piece: &[u8]) -> Result<Vec<Event>, ProtocolError>;
    /// Accepts a stream that the client opened.
    fn accept(&mut self, stream: u32);
    fn send(&mut self, stream: u32, bytes: &[u8]);
    /// Nothing more is sent on a stream.
    fn close(&mut self, stream: u32);
    /// Ends a stream in both directions.
    fn reset(&mut self, stream: u32);
    /// Says that the connection ends.
    fn finish(&mut self);
    /// Whether it is for this wire to ask whether the client is there. The listener asks WebSockets itself.
    fn can_ping(&self) -> bool;
    fn ping(&mut self);
    /// The next piece for the client.
    fn next_piece(&mut self) -> Option<Bytes>;
}

/// What is said on the streams of a connection.
pub(crate) trait Conversation: Send {
    fn begin(&mut self, wire: &mut dyn Wire);
    fn event(&mut self, event: Event, wire: &mut dyn Wire);
    /// The container, or the pod, that the client talks to has ended.
    fn target_ended(&mut self, wire: &mut dyn Wire);
    /// The server closes: the last chance to say that nothing came to its end.
    fn server_closes(&mut self, _wire: &mut dyn Wire) {}
    /// How long the client may take to open the streams that it has to open.
    fn setup_limit(&self) -> Option<Duration>;
    /// Whether nothing is left to say.
    fn is_over(&self) -> bool;
}

/// A connection that is upgraded, and what ends it.
struct Session {
    wire: Box<dyn Wire>,
    conversation: Box<dyn Conversation>,
    client: Pieces,
    /// Ready when the target has ended; none once it was.
    target_ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    closing: Pin<Box<dyn Future<Output = ()> + Send>>,
    began: Instant,
    heard: Instant,
    pinged: bool,
}

/// The pieces that a conversation sends to its client. They end with the conversation, with the client, and when the server
/// closes.
pub(crate) fn converse(
    mut wire: Box<dyn Wire>,
    mut conversation: Box<dyn Conversation>,
    client: Pieces,
    target_ended: impl Future<Output = ()> + Send + 'static,
    closing: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = Bytes> + Send + 'static {
    conversation.begin(&mut *wire);
    let now = Instant::now();
    let session = Session {
        wire,
        conversation,
        client,
        target_ended: Some(Box::pin(target_ended)),
        closing: Box::pin(closing),
        began: now,
        heard: now,
        pinged: false,
    };
    stream::unfold(Some(session), |session| async move {
        let mut session = session?;
        loop {
            // Nothing is read while something is to be sent: a client that does not read is not listened to.
            if let Some(piece) = session.wire.next_piece() {
                return Some((piece, Some(session)));
            }
            if !session.step().await {
                session.wire.finish();
                let rest: Vec<u8> = std::iter::from_fn(|| session.wire.next_piece()).flatten().collect();
                return (!rest.is_empty()).then(|| (rest.into(), None));
            }
        }
    })
}

impl Session {
    /// Waits for the next thing to happen. Returns whether the conversation goes on.
    async fn step(&mut self) -> bool {
        if self.conversation.is_over() {
            return false;
        }
        let deadline = self.deadline();
        let Self { client, target_ended, closing, .. } = self;
        let target_ended = async {
            match target_ended {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            piece = client.next() => {
                let Some(piece) = piece else { return false };
                (self.heard, self.pinged) = (Instant::now(), false);
                return self.receive(&piece);
            }
            () = target_ended => {
                self.target_ended = None;
                self.conversation.target_ended(&mut *self.wire);
            }
            () = closing => {
                self.conversation.server_closes(&mut *self.wire);
                return false;
            }
            () = sleep_until(deadline) => {
                let may_ping = self.wire.can_ping() && !self.pinged && deadline == self.heard + PING_AFTER;
                if !may_ping {
                    return false;
                }
                self.pinged = true;
                self.wire.ping();
            }
        }
        true
    }

    /// When the connection ends, or the client is asked whether it is there.
    fn deadline(&self) -> Instant {
        let setup = self.conversation.setup_limit().map(|limit| self.began + limit);
        let answer = self.wire.can_ping().then(|| match self.pinged {
            true => self.heard + PING_AFTER + PING_ANSWER,
            false => self.heard + PING_AFTER,
        });
        [setup, answer].into_iter().flatten().fold(self.heard + IDLE, Instant::min)
    }

    fn receive(&mut self, piece: &[u8]) -> bool {
        match self.wire.receive(piece) {
            Ok(events) => {
                for event in events {
                    if self.conversation.is_over() {
                        break;
                    }
                    self.conversation.event(event, &mut *self.wire);
                }
                true
            }
            Err(ProtocolError(what)) => {
                tracing::debug!(what, "a client broke the protocol of its streams");
                false
            }
        }
    }
}
