//! The service under the listener: one path for each thing a server may have to do.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use konverge_serve::{
    BindOptions, BodyError, ClientCertificate, ClientMessages, Limits, Listener, RequestBody, Server, Subject,
};
use tokio::sync::Semaphore;

#[derive(Clone, Default)]
pub(crate) struct Paths(pub Arc<State>);

pub(crate) struct State {
    /// Bytes that `/endless` has handed out.
    pub handed_out: AtomicUsize,
    /// Responses of `/endless` and `/silent` that exist.
    pub live: AtomicUsize,
    /// Requests that wait in `/wait`.
    pub waiting: AtomicUsize,
    /// What lets `/wait` answer.
    pub go: Semaphore,
}

impl Default for State {
    fn default() -> Self {
        State {
            handed_out: AtomicUsize::default(),
            live: AtomicUsize::default(),
            waiting: AtomicUsize::default(),
            go: Semaphore::new(0),
        }
    }
}

struct Live(Arc<State>);

/// An answer that counts as live while any of its bytes is held.
struct Whole(Vec<u8>, #[allow(dead_code, reason = "it is counted until it is dropped")] Live);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Live {
    fn new(state: &Arc<State>) -> Self {
        state.live.fetch_add(1, Ordering::SeqCst);
        Live(state.clone())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

type AnyBody = UnsyncBoxBody<Bytes, Infallible>;

impl tower_service::Service<Request<RequestBody>> for Paths {
    type Response = Response<AnyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let state = self.0.clone();
        Box::pin(async move { Ok(answer(&state, request).await) })
    }
}

async fn answer(state: &Arc<State>, request: Request<RequestBody>) -> Response<AnyBody> {
    match request.uri().path() {
        "/ok" => text(StatusCode::OK, "ok"),
        "/who" => match request.extensions().get() {
            None => text(StatusCode::OK, "nobody"),
            Some(ClientCertificate::Refused(_)) => text(StatusCode::OK, "not believed"),
            Some(ClientCertificate::Trusted(subject)) => {
                let names = subject.values(Subject::COMMON_NAME).chain(subject.values(Subject::ORGANIZATION));
                text(StatusCode::OK, &names.collect::<Vec<_>>().join(" of "))
            }
        },
        "/echo" => match request.into_body().collect().await {
            Ok(body) => Response::new(Full::new(body.to_bytes()).boxed_unsync()),
            Err(BodyError::Timeout) => text(StatusCode::REQUEST_TIMEOUT, "too slow"),
            Err(error) => text(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        "/endless" => {
            let (live, chunk) = (Live::new(state), Bytes::from(vec![b'x'; 32 << 10]));
            let chunks = stream::repeat(chunk).map(move |chunk| {
                live.0.handed_out.fetch_add(chunk.len(), Ordering::SeqCst);
                Ok(Frame::data(chunk))
            });
            Response::new(StreamBody::new(chunks).boxed_unsync())
        }
        "/silent" => {
            let live = Live::new(state);
            let nothing = stream::once(async move {
                let _live = live;
                std::future::pending::<Result<Frame<Bytes>, Infallible>>().await
            });
            Response::new(StreamBody::new(nothing).boxed_unsync())
        }
        "/once" => {
            let live = Live::new(state);
            let first = stream::once(async { Ok(Frame::data(Bytes::from(vec![b'x'; 20_000]))) });
            let nothing = stream::once(async move {
                let _live = live;
                std::future::pending::<Result<Frame<Bytes>, Infallible>>().await
            });
            Response::new(StreamBody::new(first.chain(nothing)).boxed_unsync())
        }
        "/wait" => {
            state.waiting.fetch_add(1, Ordering::SeqCst);
            state.go.acquire().await.expect("never closed").forget();
            text(StatusCode::OK, "waited")
        }
        "/large" => {
            // Ready at once, and in memory until it is sent.
            let whole = Bytes::from_owner(Whole(vec![b'x'; 1 << 20], Live::new(state)));
            Response::new(Full::from(whole).boxed_unsync())
        }
        "/messages" if asks_for_a_websocket(&request) => {
            let (live, state) = (Live::new(state), state.clone());
            let first = ["one".to_owned(), "x".repeat(200_000)].map(Bytes::from);
            let last = stream::once(async move {
                let _live = live;
                state.go.acquire().await.expect("never closed").forget();
                Bytes::from_static(b"last")
            });
            switch(stream::iter(first).chain(last).map(|message| Ok(Frame::data(message))))
        }
        "/shout" if asks_for_a_websocket(&request) => {
            let live = Live::new(state);
            switch(stream::repeat(Bytes::from(vec![b'x'; 32 << 10])).map(move |message| {
                let _live = &live;
                Ok(Frame::data(message))
            }))
        }
        "/talk" => {
            // Shouts back what its client sends, until that is `bye`.
            let messages = request.extensions().get::<ClientMessages>().and_then(ClientMessages::take);
            let Some(messages) = messages else { return text(StatusCode::BAD_REQUEST, "no upgrade") };
            let live = Live::new(state);
            let mut response = switch(stream::unfold((messages, live), |(mut messages, live)| async move {
                let message = messages.recv().await.filter(|message| &message[..] != b"bye")?;
                Some((Ok(Frame::data(message.to_ascii_uppercase().into())), (messages, live)))
            }));
            let headers = response.headers_mut();
            headers.insert("content-type", "application/octet-stream".parse().expect("a header value"));
            headers.insert("upgrade", "shouting".parse().expect("a header value"));
            response
        }
        "/deaf" => {
            // Takes the messages of its client and reads none.
            let messages = request.extensions().get::<ClientMessages>().and_then(ClientMessages::take);
            let live = Live::new(state);
            switch(stream::once(async move {
                let _held = (messages, live);
                std::future::pending().await
            }))
        }
        "/panic" => panic!("as asked"),
        _ => text(StatusCode::NOT_FOUND, "no such path"),
    }
}

fn asks_for_a_websocket(request: &Request<RequestBody>) -> bool {
    request.headers().get(http::header::UPGRADE).is_some_and(|upgrade| upgrade == "websocket")
}

fn switch(
    messages: impl stream::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static,
) -> Response<AnyBody> {
    let mut response = Response::new(StreamBody::new(messages).boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response
}

fn text(status: StatusCode, text: &str) -> Response<AnyBody> {
    let mut response = Response::new(Full::from(text.to_string()).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// A server on loopback, and what its service sees.
pub(crate) fn serve(limits: Limits) -> (Server, Arc<State>) {
    serve_with(BindOptions { limits, ..BindOptions::default() })
}

pub(crate) fn serve_with(options: BindOptions) -> (Server, Arc<State>) {
    let paths = Paths::default();
    let state = paths.0.clone();
    (Listener::bind(options).expect("loopback has free ports").serve(paths), state)
}
