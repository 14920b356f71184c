//! Connections to a cluster. In: a configuration of kube. Out: a client that notices when the other end of a connection is
//! gone. Never retries: the queue and the watch decide when to try again.
//!
//! A watch may be silent for minutes because nothing happens, and a network that was cut is silent, too. TCP keepalive tells
//! the two apart without a request: after [`KEEPALIVE_IDLE`] the kernel sends a probe every [`KEEPALIVE_INTERVAL`], and if
//! nothing came back for [`TCP_USER_TIMEOUT`] it closes the connection, and its reader gets an error.
//!
//! The kernel of a server whose process is stopped still answers these probes, and so does a proxy whose own connection to
//! the server is gone. HTTP/1 has no ping for a connection on which a response is open. So every response is marked with
//! [`MayBeHalfOpen`], and an idle watch is resumed over another connection. A watch always opens a new connection, because
//! an idle one of the pool may be dead as well. Other requests have their timeouts, and take no connection that was idle
//! for longer than [`POOL_IDLE_TIMEOUT`].

mod proxied;
mod reachability;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config, Result};
use tower_service::Service;

use proxied::Proxied;
use reachability::Reachability;
pub(crate) use reachability::Unreachable;

/// How long a connection may be idle until keepalive probes are sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

/// The time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// How long probes and data may stay without acknowledgement until the kernel closes the connection. With the time of a
/// probe on top this is below fifteen seconds; less than ten seconds would close connections over a slow network.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// How many probes may be lost, for systems without a TCP user timeout.
const KEEPALIVE_PROBES: u32 = 4;

/// How long the pool keeps an idle connection. A write over a connection whose other half is gone hangs until its timeout.
/// With this limit only one write hangs: at its timeout, all idle connections from before are closed. A burst of writes
/// still shares connections.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes a client for a cluster. It differs from `kube::Client::try_from` in two things: it notices within fifteen seconds
/// that the other end of a connection is gone, and it never repeats a request by itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> kube::Result<()> {
/// let config = kube::Config::new("http://127.0.0.1:8080".parse().expect("it is a URL"));
/// let client = konverge_runtime::connect(config)?;
/// assert_eq!(client.default_namespace(), "default");
/// # Ok(())
/// # }
/// ```
pub fn connect(mut config: Config) -> Result<Client> {
    config.default_retry = false;
    if config.proxy_url.is_some() {
        // Keepalive probes would only reach the proxy, so kube's own connector is used.
        let namespace = config.default_namespace.clone();
        let client = || Client::try_from(config.clone());
        return Ok(Client::new(Proxied { requests: client()?, watches: client()? }, namespace));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia"))]
    tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));

    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let requests = legacy::Builder::new(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .build(connector.clone());
    let watches = legacy::Builder::new(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);

    let reachability = Arc::new(Reachability::new(config.cluster_url.to_string()));
    let builder = ClientBuilder::new(Http { requests, watches, reachability }, config.default_namespace.clone());
    let builder = builder.with_layer(&config.extra_headers_layer()?);
    // The layer that is added last sees a request first: the address is set before the credentials are added.
    Ok(match config.auth_layer()? {
        Some(auth) => builder.with_layer(&auth).with_layer(&config.base_uri_layer()).build(),
        None => builder.with_layer(&config.base_uri_layer()).build(),
    })
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Marks a response whose connection may be half open: open on this side only, without a sign of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayBeHalfOpen;

fn is_watch(request: &Request<Body>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.any(|pair| matches!(pair, "watch" | "watch=1" | "watch=true"))
}

/// hyper's clients, with the error type that kube's layers expect.
#[derive(Clone)]
struct Http<C> {
    requests: legacy::Client<C, Body>,
    /// Opens a new connection for each watch.
    watches: legacy::Client<C, Body>,
    reachability: Arc<Reachability>,
}

impl<C, B> Service<Request<Body>> for Http<C>
where
    legacy::Client<C, Body>: Service<Request<Body>, Response = Response<B>, Error = legacy::Error>,
    <legacy::Client<C, Body> as Service<Request<Body>>>::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.requests.poll_ready(cx).map_err(BoxError::from)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let response = if is_watch(&request) { self.watches.call(request) } else { self.requests.call(request) };
        let reachability = self.reachability.clone();
        Box::pin(async move {
            let mut response = response.await.map_err(|error| match error.is_connect() {
                true => reachability.failed(error.into()).into(),
                false => BoxError::from(error),
            })?;
            reachability.succeeded();
            response.extensions_mut().insert(MayBeHalfOpen);
            Ok(response)
        })
    }
}
