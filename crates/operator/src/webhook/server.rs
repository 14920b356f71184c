//! The HTTPS listener of webhooks. In: requests of API servers, and of anybody who reaches the port. Out: the answers of the
//! endpoints; what is no review is refused before it is read. It never ends because of a request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use konverge_serve::{Limits, RequestBody};
use tower_service::Service;

use super::body_room::{BodyRoom, NoRoom, Taken};
use super::callers::Callers;
use super::conversion::{self, Conversions};
use super::endpoint::{Answer, Endpoint};

/// The largest body: an object and its predecessor of 3 MiB each, which is the most that an API server takes, and 1 MiB for
/// the rest. controller-runtime has the same limit.
const MOST_BYTES: usize = 7 << 20;

/// How much of a body that is too large is read and forgotten.
const MOST_FORGOTTEN: usize = 32 << 20;

/// How many bytes of reviews are in memory at the same time: of their first parts, and of the rests of large ones.
const REVIEW_ROOM: (usize, usize) = (64 << 20, 384 << 20);

/// The largest body of a conversion: an API server sends all objects of a list at once.
const MOST_CONVERSION_BYTES: usize = 64 << 20;

/// How many bytes of conversions are in memory at the same time, so that four of the largest fit.
const CONVERSION_ROOM: (usize, usize) = (32 << 20, 256 << 20);

/// All webhooks of an operator, by path.
#[derive(Clone)]
pub(crate) struct Endpoints(Arc<Inner>);

struct Inner {
    endpoints: BTreeMap<String, Endpoint>,
    bodies: BodyRoom,
    conversions: Option<Conversions>,
    conversion_bodies: BodyRoom,
    /// None if everybody may ask.
    callers: Option<Callers>,
}

impl Endpoints {
    pub(super) fn new(
        endpoints: impl IntoIterator<Item = Endpoint>,
        conversions: Option<Conversions>,
        callers: Option<Callers>,
    ) -> Self {
        let endpoints = endpoints.into_iter().map(|endpoint| (endpoint.path(), endpoint)).collect();
        Self(Arc::new(Inner {
            endpoints,
            bodies: BodyRoom::new(REVIEW_ROOM.0, REVIEW_ROOM.1),
            conversions,
            conversion_bodies: BodyRoom::new(CONVERSION_ROOM.0, CONVERSION_ROOM.1),
            callers,
        }))
    }

    /// Answers a request of this process, as one that came over the network.
    pub(super) fn answer_locally(self, request: Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> {
        Box::pin(async move { response(self.answer(request.map(Full::new)).await) })
    }

    async fn convert<B: ReviewBody>(&self, conversions: &Conversions, head: &Parts, body: B) -> Answer {
        let counted = conversions.meter().begin();
        let mut taken = self.0.conversion_bodies.body();
        let answer = match read(head, body, MOST_CONVERSION_BYTES, &mut taken).await {
            Ok(body) => conversions.answer(body).await,
            Err((code, why)) => {
                tracing::warn!(webhook = conversion::PATH, why, "a request to a webhook was refused");
                Answer::text(code, why)
            }
        };
        counted.answered(answer.code.as_u16());
        answer
    }

    async fn answer<B: ReviewBody>(&self, request: Request<B>) -> Answer {
        let (head, body) = request.into_parts();
        if let Some(conversions) = self.0.conversions.as_ref().filter(|_| head.uri.path() == conversion::PATH) {
            return self.convert(conversions, &head, body).await;
        }
        let Some(endpoint) = self.0.endpoints.get(head.uri.path()) else {
            let mut known: Vec<&str> = self.0.endpoints.keys().map(String::as_str).collect();
            known.extend(self.0.conversions.as_ref().map(|_| conversion::PATH));
            return Answer::text(
                StatusCode::NOT_FOUND,
                format!("there is no webhook at {}; there is {}", head.uri.path(), known.join(", ")),
            );
        };
        let counted = endpoint.meter().begin();
        // Held until the answer is made, because the body is in memory until then.
        let mut taken = self.0.bodies.body();
        let answer = match read(&head, body, MOST_BYTES, &mut taken).await {
            Ok(body) => endpoint.answer(&body).await,
            Err((code, why)) => {
                tracing::warn!(webhook = endpoint.path(), why, "a request to a webhook was refused");
                Answer::text(code, why)
            }
        };
        counted.answered(answer.code.as_u16());
        answer
    }
}

/// A body from the network, or from this process.
trait ReviewBody: Body<Data = Bytes, Error: Into<BoxError>> + Send {}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send> ReviewBody for B {}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request that may be a review, or why it is not taken.
async fn read(
    head: &Parts,
    body: impl ReviewBody,
    most_bytes: usize,
    taken: &mut Taken<'_>,
) -> Result<Bytes, (StatusCode, String)> {
    if head.method != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "a webhook takes a review by POST".to_owned()));
    }
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let why = format!("the content type is {content_type:?}, and a webhook takes application/json");
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {most_bytes} bytes"));
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let mut body = pin!(body);
    if announced.is_some_and(|bytes| bytes > most_bytes) {
        forget(body).await;
        return Err(too_large());
    }
    let most = announced.unwrap_or(most_bytes);
    // Most bodies come in one piece, which is not copied.
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = next_frame(body.as_mut(), taken).await? {
        let Ok(piece) = frame.into_data() else { continue };
        if taken.bytes() + piece.len() > most_bytes {
            forget(body).await;
            return Err(too_large());
        }
        let why = "the bodies of other requests take all memory that there is for them; try again later";
        taken.grow(piece.len(), most).await.map_err(|NoRoom| (StatusCode::TOO_MANY_REQUESTS, why.to_owned()))?;
        match (first.is_empty(), rest.is_empty()) {
            (true, _) => first = piece,
            (false, true) => {
                rest.reserve(if taken.until().is_some() { most } else { 2 * first.len() });
                rest.extend_from_slice(&first);
                rest.extend_from_slice(&piece);
            }
            (false, false) => rest.extend_from_slice(&piece),
        }
    }
    match rest.is_empty() {
        true => Ok(first),
        false => Ok(rest.freeze()),
    }
}

/// The next piece of a body, within the time that is left for it.
async fn next_frame(
    mut body: Pin<&mut impl ReviewBody>,
    taken: &Taken<'_>,
) -> Result<Option<Frame<Bytes>>, (StatusCode, String)> {
    let next = match taken.until() {
        Some(until) => tokio::time::timeout_at(until, body.frame()).await,
        None => Ok(body.frame().await),
    };
    match next {
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body arrives too slowly".to_owned())),
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame)),
        Ok(Some(Err(error))) => Err((StatusCode::BAD_REQUEST, format!("the body cannot be read: {}", error.into()))),
    }
}

/// Reads what is left of a body, up to a limit, and keeps nothing of it: over HTTP/2 a client that is still sending would see a
/// broken stream instead of the answer.
async fn forget(mut body: Pin<&mut impl ReviewBody>) {
    let mut left = MOST_FORGOTTEN;
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}

impl Service<Request<RequestBody>> for Endpoints {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let endpoints = self.clone();
        // An API server shows no certificate when it converts, and a conversion tells only what the caller has sent.
        let asks = self.0.callers.as_ref().filter(|_| request.uri().path() != conversion::PATH);
        let refused = asks.and_then(|callers| callers.check(request.extensions()).err());
        Box::pin(async move {
            let answer = match refused {
                Some((code, why)) => {
                    tracing::warn!(webhook = request.uri().path(), why, "a request to a webhook was refused");
                    Answer::text(code, why)
                }
                None => endpoints.answer(request).await,
            };
            Ok(response(answer).map(Full::new))
        })
    }
}

fn response(Answer { code, content_type, body }: Answer) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if code == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

/// For a few API servers, each of which keeps a few connections.
pub(super) fn limits() -> Limits {
    Limits {
        connections: 512,
        header_bytes: 16 << 10,
        header_count: 64,
        body_idle: Duration::from_secs(5),
        // The longest that an API server waits for a webhook.
        body_total: Duration::from_secs(30),
        ..Limits::default()
    }
}
