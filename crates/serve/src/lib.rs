//! An HTTP listener that bad clients cannot wear out. It speaks HTTP/1.1 and HTTP/2, with TLS or without, and serves
//! any tower `Service`.
//!
//! ```text
//!   bind ──▶ accept ──▶ TLS ──▶ hyper ──▶ your service
//!    │         │          │        │           │
//!    │      how many   how long  how long    request body: how long
//!    │                  (deadlines of        response body: does the peer read it?
//!    └─ Limits ─────────  the whole connection) ──▶ Counters
//! ```
//!
//! A service that answers 101 to a request for a WebSocket has each piece of its body sent as one message; one that answers 101 to
//! a request for another protocol has them sent as they are. What the client sends is in [`ClientMessages`].
//!
//! The crate knows no Kubernetes, no routes and no users: what comes in is bytes from a socket, what goes out is
//! requests for a service. Every wait has a [limit](Limits), every buffer a bound, every task an owner.
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use konverge_serve::{BindOptions, Listener, RequestBody};
//!
//! # #[derive(Clone)]
//! # struct Hello;
//! # impl tower_service::Service<Request<RequestBody>> for Hello {
//! #     type Response = Response<Full<Bytes>>;
//! #     type Error = Infallible;
//! #     type Future = std::future::Ready<Result<Self::Response, Infallible>>;
//! #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
//! #         std::task::Poll::Ready(Ok(()))
//! #     }
//! #     fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
//! #         std::future::ready(Ok(Response::new(Full::from("hello"))))
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Listener::bind(BindOptions { port: 0, ..BindOptions::default() })?;
//! println!("listening on {}", listener.url());
//! let server = listener.serve(Hello);
//! server.stop(Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```

mod bind;
mod limits;
mod server;

mod activity;
mod connection;
mod deadlines;
mod eviction;
mod exchange;
mod http2_frames;
mod streams;
mod unread;
mod upgrade;
mod websocket;

mod certificates;
mod counters;
mod stop_signals;

pub use bind::{BindError, BindOptions, Listener, Tls};
pub use certificates::{
    CertificateError, CertificateRequest, Certificates, ClientCa, ClientCertificate, Renewal, SharedCertificates,
    SignError, Subject, UnkeptCertificates, certificate_expiries,
};
pub use counters::Counters;
pub use exchange::{BodyError, RequestBody, ResponseBody};
pub use limits::Limits;
pub use server::{Server, Stopped};
pub use stop_signals::StopSignals;
pub use upgrade::ClientMessages;
