//! Bodies. In: a request's body, read whole and never past the limit. Out: an answer that is either ready,
//! a list rendered piece by piece while it is sent, or a watch that goes on.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use konverge_core::Status;

use crate::body_memory::BodyRoom;

/// The largest body a request may have: what kube-apiserver accepts.
pub(crate) const MAX_REQUEST_BYTES: usize = 3 * 1024 * 1024;

/// What the server answers with.
pub struct Body {
    kind: Kind,
    /// Dropped with the body.
    _guard: Option<Box<dyn Send>>,
}

enum Kind {
    Ready(Bytes),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// An empty body.
    pub fn empty() -> Self {
        Self::of(Kind::Ready(Bytes::new()))
    }

    /// A body that is ready.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::of(Kind::Ready(bytes.into()))
    }

    /// The same body, which holds a value until its last byte is dropped. Streams hold nothing.
    pub(crate) fn holding(self, held: Option<impl Send + 'static>) -> Self {
        let kind = match (self.kind, held) {
            (Kind::Ready(bytes), Some(held)) => Kind::Ready(Bytes::from_owner(Holding { bytes, _held: held })),
            (kind, _) => kind,
        };
        Self { kind, ..self }
    }

    /// The same body, with one more value that is dropped when the body is.
    pub(crate) fn guarded(self, guard: impl Send + 'static) -> Self {
        let guard: Box<dyn Send> = match self._guard {
            Some(before) => Box::new((before, guard)),
            None => Box::new(guard),
        };
        Self { kind: self.kind, _guard: Some(guard) }
    }

    /// Piece by piece.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::of(Kind::Stream(Box::pin(pieces)))
    }

    fn of(kind: Kind) -> Self {
        Self { kind, _guard: None }
    }
}

struct Holding<K> {
    bytes: Bytes,
    _held: K,
}

impl<K> AsRef<[u8]> for Holding<K> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.kind {
            Kind::Ready(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Ready(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Stream(pieces) => {
                pieces.as_mut().poll_next(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.kind, Kind::Ready(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Ready(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

/// Reads a request's body into the room that there is for bodies, refusing one that is too large before it is in memory.
pub(crate) async fn read<B>(body: B, room: &mut BodyRoom<'_>) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let too_large = || {
        Status::too_large(format!(
            "Request entity too large: limit is {MAX_REQUEST_BYTES}; send a smaller object or split it"
        ))
    };
    if body.size_hint().lower() > MAX_REQUEST_BYTES as u64 {
        return Err(too_large());
    }
    let most = body.size_hint().exact().map_or(MAX_REQUEST_BYTES, |bytes| bytes as usize);
    let mut body = std::pin::pin!(body);
    // Most bodies come in one piece, which is not copied.
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    // The error of a foreign body need not be `Send`, so it is turned into one that is before anything else is awaited.
    loop {
        let next = async { body.frame().await.map(|frame| frame.map_err(Into::into)) };
        let Some(frame) = room.arrival(next).await? else { break };
        let frame = frame.map_err(|error: Box<dyn std::error::Error + Send + Sync>| {
            Status::bad_request(format!("the request body did not arrive whole: {error}"))
        })?;
        let Ok(piece) = frame.into_data() else { continue };
        if first.len() + rest.len() + piece.len() > MAX_REQUEST_BYTES {
            return Err(too_large());
        }
        room.grow(piece.len(), most).await?;
        match first.is_empty() {
            true => first = piece,
            false => rest.extend_from_slice(&piece),
        }
    }
    if rest.is_empty() {
        return Ok(first);
    }
    Ok([first, rest.freeze()].concat().into())
}
