//! Bodies. In: a request's body, read whole and never past the limit. Out: an answer that is either ready,
//! a list rendered piece by piece while it is sent, or a watch that goes on.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use konverge_core::Status;

/// The largest body a request may have: what kube-apiserver accepts.
pub(crate) const MAX_REQUEST_BYTES: usize = 3 * 1024 * 1024;

/// What the server answers with.
pub struct Body(Kind);

enum Kind {
    Ready(Bytes),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// An empty body.
    pub fn empty() -> Self {
        Self(Kind::Ready(Bytes::new()))
    }

    /// A body that is ready.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Ready(bytes.into()))
    }

    /// The same body, which holds a value until its last byte is dropped. Streams hold nothing.
    pub(crate) fn holding(self, held: Option<impl Send + 'static>) -> Self {
        match (self.0, held) {
            (Kind::Ready(bytes), Some(held)) => Self(Kind::Ready(Bytes::from_owner(Holding { bytes, _held: held }))),
            (kind, _) => Self(kind),
        }
    }

    /// Piece by piece.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Kind::Stream(Box::pin(pieces)))
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
        match &mut self.0 {
            Kind::Ready(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Ready(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Stream(pieces) => {
                pieces.as_mut().poll_next(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Ready(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Ready(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

/// Reads a request's body, refusing one that is too large before it is in memory.
pub(crate) async fn read<B>(body: B) -> Result<Bytes, Status>
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
    match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Status::bad_request(format!("the request body did not arrive whole: {error}"))),
    }
}
