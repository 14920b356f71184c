//! Answers other members on a listener of `serve`, which has the limits and the certificates. In: requests. Out: what the member
//! answers. With certificates, only those are heard whom the CA vouches for, by a name of this cluster; the log says who is not.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use konverge_serve::{
    BindError, BindOptions, Certificates, ClientCa, ClientCertificate, Limits, Listener, RequestBody, Server, Tls,
};
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tower_service::Service;

use super::codec::BytesCodec;
use super::refusals::Refusals;
use super::{MAX_MESSAGE, PATH};

/// Members of one cluster, each with some connections, and those who try.
const CONNECTIONS: usize = 512;

/// Answers a message; both are bytes.
pub(crate) type Answering = Arc<dyn Fn(Bytes) -> BoxFuture<'static, Vec<u8>> + Send + Sync>;

/// A listener that is bound and does not answer yet.
pub(crate) struct GrpcServer {
    listener: Listener,
    needs_certificate: bool,
}

impl GrpcServer {
    /// Takes the first of these addresses that the machine has. `tls` is what this member shows, and whom it hears.
    pub(crate) fn bind(addresses: &[SocketAddr], tls: Option<(Certificates, ClientCa)>) -> Result<Self, BindError> {
        let needs_certificate = tls.is_some();
        let (server, client_ca) = tls.unzip();
        let server = server.map_or(Tls::Off, Tls::On);
        let listen = |address: &SocketAddr| {
            Listener::bind(BindOptions {
                address: address.ip(),
                port: address.port(),
                tls: server.clone(),
                client_ca: client_ca.clone(),
                limits: Limits { connections: CONNECTIONS, ..Limits::default() },
            })
        };
        let mut bound = listen(&addresses[0]);
        for address in &addresses[1..] {
            // Another family of addresses does not help where the port is taken.
            if !matches!(bound, Err(BindError::NoSuchAddress { .. } | BindError::Other { .. })) {
                break;
            }
            bound = listen(address);
        }
        Ok(Self { listener: bound?, needs_certificate })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Answers, and says in the log of this cluster who is refused: that is the task, which never ends.
    pub(crate) fn serve(self, cluster: &str, answer: Answering) -> (Server, impl Future<Output = ()> + use<>) {
        let refusals = Refusals::new(cluster);
        let raft = Raft { answer, needs_certificate: self.needs_certificate, refusals: refusals.clone() };
        let server = self.listener.with_client_addresses().serve(raft);
        let watching = refusals.watch(server.counters());
        (server, watching)
    }
}

/// How long answers that are under way may take when the server stops.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_millis(300);

#[derive(Clone)]
struct Raft {
    answer: Answering,
    needs_certificate: bool,
    refusals: Refusals,
}

impl Service<Request<RequestBody>> for Raft {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let why = match request.extensions().get() {
            _ if !self.needs_certificate => None,
            Some(ClientCertificate::Trusted(_)) => None,
            Some(ClientCertificate::Refused(why)) => Some(format!("the certificate of this client is refused: {why}")),
            None => Some("members show a certificate of the CA of their cluster".to_owned()),
        };
        if let Some(why) = why {
            self.refusals.note(&why, request.extensions().get().copied());
            let refused = Status::new(Code::Unauthenticated, why);
            return Box::pin(std::future::ready(Ok(refused.into_http())));
        }
        if request.uri().path() != PATH {
            let unknown = Status::new(Code::Unimplemented, "there is no such method");
            return Box::pin(std::future::ready(Ok(unknown.into_http())));
        }
        let method = Method(self.answer.clone());
        Box::pin(async move {
            let mut grpc =
                Grpc::new(BytesCodec).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
            Ok(grpc.unary(method, request).await)
        })
    }
}

struct Method(Answering);

impl UnaryService<Bytes> for Method {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        Box::pin(async move { Ok(tonic::Response::new(answer.await.into())) })
    }
}
