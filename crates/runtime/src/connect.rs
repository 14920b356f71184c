//! The way to a cluster. In: a configuration of kube. Out: a client whose connections notice when nobody is at their other
//! end any more. Never retries: when to try again is the queue's business, and the watch's.
//!
//! A watch may be silent for minutes because nothing happens, so silence alone says nothing, and a network that was cut
//! says nothing either. The kernels at both ends are asked instead: after [`QUIET`] a probe goes out every
//! [`PROBE_EVERY`], and if nothing at all came back for [`SILENT`] the connection is dead and whoever reads from it is
//! told. That costs no request.
//!
//! A peer whose process is stopped still answers such probes, and so does a proxy whose own connection to the server is
//! gone. HTTP/1 has no way to ask on a connection that is busy with an answer. So answers are marked with
//! [`MayBeHalfOpen`], and a watch that is silent is resumed over another connection; a watch never takes one that lay
//! idle, which may be as dead as the one before it. Other requests have their timeouts, and take none that lay idle for
//! longer than [`IDLE`].

mod proxied;
mod reach;
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
use reach::Reach;
pub(crate) use reach::Unreachable;

/// How long a connection may be quiet until the other end is probed.
const QUIET: Duration = Duration::from_secs(5);

/// How often it is probed then.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// How long nothing may come back, neither to a probe nor to data. With a probe's time on top this is below fifteen
/// seconds; below ten it would cut connections over a network that is only slow.
const SILENT: Duration = Duration::from_secs(10);

/// The same in probes, where a system counts them.
const PROBES: u32 = 4;

/// How long a connection may lie idle until it is closed. If its other half is gone, the write that takes it hangs until
/// its timeout; when that is over, all others of before are gone. A burst of writes still shares connections.
const IDLE: Duration = Duration::from_secs(10);

/// A client for a cluster, as `kube::Client::try_from` makes it, but for two things: a connection whose other end is gone
/// is noticed within fifteen seconds, and no request is repeated behind the caller's back.
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
        // The probes would only reach the proxy, to which kube knows the way.
        let namespace = config.default_namespace.clone();
        let client = || Client::try_from(config.clone());
        return Ok(Client::new(Proxied { requests: client()?, watches: client()? }, namespace));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(QUIET));
    tcp.set_keepalive_interval(Some(PROBE_EVERY));
    tcp.set_keepalive_retries(Some(PROBES));
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia"))]
    tcp.set_tcp_user_timeout(Some(SILENT));

    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let requests = legacy::Builder::new(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector.clone());
    let watches = legacy::Builder::new(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);

    let reach = Arc::new(Reach::new(config.cluster_url.to_string()));
    let builder = ClientBuilder::new(Http { requests, watches, reach }, config.default_namespace.clone());
    let builder = builder.with_layer(&config.extra_headers_layer()?);
    // The outermost layer is the first to see a request: it is addressed before it is authorised.
    Ok(match config.auth_layer()? {
        Some(auth) => builder.with_layer(&auth).with_layer(&config.base_uri_layer()).build(),
        None => builder.with_layer(&config.base_uri_layer()).build(),
    })
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Marks an answer whose connection may be open on this side only, without anybody being able to tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayBeHalfOpen;

fn is_watch(request: &Request<Body>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.any(|pair| matches!(pair, "watch" | "watch=1" | "watch=true"))
}

/// Clients of hyper whose errors are those that kube's layers take.
#[derive(Clone)]
struct Http<C> {
    requests: legacy::Client<C, Body>,
    /// Each takes a connection of its own.
    watches: legacy::Client<C, Body>,
    reach: Arc<Reach>,
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
        let answer = if is_watch(&request) { self.watches.call(request) } else { self.requests.call(request) };
        let reach = self.reach.clone();
        Box::pin(async move {
            let mut answer = answer.await.map_err(|error| match error.is_connect() {
                true => reach.failed(error.into()).into(),
                false => BoxError::from(error),
            })?;
            reach.answered();
            answer.extensions_mut().insert(MayBeHalfOpen);
            Ok(answer)
        })
    }
}
