//! Asks other members. One connection for each address; one that has not answered for a while is replaced, because a peer that has lost
//! its power, or an address that has moved, does not say so.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use super::codec::BytesCodec;
use super::tls::MemberCertificates;
use super::{MAX_MESSAGE, PATH};
use crate::transport::{CallError, Transport};
use crate::wire::{self, Answer, Envelope};

/// How long a connection may take, with its name and its handshake.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

/// A connection that has failed for this long is replaced.
const REPLACED_AFTER: Duration = Duration::from_secs(1);

/// Questions to members. Clones share the connections.
#[derive(Clone)]
pub(crate) struct GrpcTransport {
    /// As many as there are addresses of members that were ever asked: a handful.
    connections: Arc<Mutex<HashMap<String, Connection>>>,
    tls: Option<ClientTls>,
}

/// How the others prove who they are.
#[derive(Clone)]
struct ClientTls {
    certificates: MemberCertificates,
    names: ServerNames,
}

/// Which name the certificate of whoever listens at an address has to be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerNames {
    /// The host of the address.
    Hosts,
    /// The same, but this name at an IP address. Behind a headless Service, members are found by the addresses of their Pods, which no
    /// certificate has; theirs are for the names of all members, and this is one of them.
    HostsAndForAddresses(String),
    /// This one at every address.
    All(String),
}

impl ServerNames {
    fn at(&self, host: String) -> String {
        match self {
            Self::HostsAndForAddresses(name) if host.parse::<IpAddr>().is_ok() => name.clone(),
            Self::Hosts | Self::HostsAndForAddresses(_) => host,
            Self::All(name) => name.clone(),
        }
    }
}

#[derive(Clone)]
struct Connection {
    channel: Channel,
    /// Since when it has failed without an answer between.
    failing: Option<Instant>,
    /// Which certificates it was made with.
    generation: u64,
}

impl GrpcTransport {
    pub(crate) fn new(certificates: Option<MemberCertificates>, names: ServerNames) -> Self {
        let tls = certificates.map(|certificates| ClientTls { certificates, names });
        Self { connections: Arc::default(), tls }
    }

    fn channel(&self, address: &str) -> Result<Channel, CallError> {
        let mut connections = self.connections.lock();
        // One that was made with former certificates ends when its last answer is there.
        let generation = self.tls.as_ref().map_or(0, |tls| tls.certificates.generation());
        if let Some(connection) = connections.get(address).filter(|known| known.generation == generation) {
            return Ok(connection.channel.clone());
        }
        let uri: Uri = format!("http://{address}").parse().map_err(|error| CallError(format!("{address}: {error}")))?;
        let endpoint = Endpoint::from(uri).connect_timeout(CONNECTED_WITHIN);
        let channel = endpoint.connect_with_connector_lazy(Connector { tls: self.tls.clone() });
        let connection = Connection { channel: channel.clone(), failing: None, generation };
        connections.insert(address.to_owned(), connection);
        Ok(channel)
    }

    fn ended(&self, address: &str, has_answered: bool, now: Instant) {
        let mut connections = self.connections.lock();
        let Some(connection) = connections.get_mut(address) else { return };
        if has_answered {
            connection.failing = None;
        } else if now - *connection.failing.get_or_insert(now) >= REPLACED_AFTER {
            connections.remove(address);
        }
    }
}

impl Transport for GrpcTransport {
    fn call(
        &self,
        address: &str,
        question: Envelope,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Answer, CallError>> {
        let (this, address) = (self.clone(), address.to_owned());
        Box::pin(async move {
            let question = wire::encode(&question).map_err(|error| CallError(error.to_string()))?;
            let channel = this.channel(&address)?;
            let asked = tokio::time::timeout(limit, ask(channel, question.into())).await;
            let answer = asked.unwrap_or_else(|_| Err(CallError(format!("no answer from {address} within {limit:?}"))));
            this.ended(&address, answer.is_ok(), Instant::now());
            wire::decode(&answer?).map_err(CallError)
        })
    }
}

async fn ask(channel: Channel, question: Bytes) -> Result<Bytes, CallError> {
    let mut client = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
    client.ready().await.map_err(|error| CallError(chain(&error)))?;
    let path = PathAndQuery::from_static(PATH);
    match client.unary(tonic::Request::new(question), path, BytesCodec).await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(CallError(format!("{}: {}", status.code(), status.message()))),
    }
}

/// An error with its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Opens connections, with TLS if there are certificates. They are read for each connection, so new ones are used soon.
#[derive(Clone)]
struct Connector {
    tls: Option<ClientTls>,
}

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

impl Service<Uri> for Connector {
    type Response = TokioIo<Pin<Box<dyn Stream>>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.tls.as_ref().map(|tls| (tls.certificates.client(), tls.names.clone()));
        Box::pin(async move {
            let invalid = |what: &'static str| io::Error::new(io::ErrorKind::InvalidInput, what);
            let host =
                uri.host().ok_or_else(|| invalid("the address has no host"))?.trim_matches(['[', ']']).to_owned();
            let port = uri.port_u16().ok_or_else(|| invalid("the address has no port"))?;
            let tcp = TcpStream::connect((host.as_str(), port)).await?;
            // Small messages, each of which somebody waits for.
            tcp.set_nodelay(true)?;
            let Some((config, names)) = tls else {
                return Ok(TokioIo::new(Box::pin(tcp) as Pin<Box<dyn Stream>>));
            };
            let name =
                ServerName::try_from(names.at(host)).map_err(|_| invalid("the host of the address is not a name"))?;
            let stream = TlsConnector::from(config).connect(name, tcp).await?;
            Ok(TokioIo::new(Box::pin(stream) as Pin<Box<dyn Stream>>))
        })
    }
}
