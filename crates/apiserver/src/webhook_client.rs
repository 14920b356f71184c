//! Calls of webhooks. In: where a webhook is, as a configuration or a definition says, and the JSON to send. Out: the JSON that it
//! answers, or why there is none, in the words of kube-apiserver's client. Knows nothing of reviews.
//!
//! ```text
//! config    which URL or Service, and whom to trust
//! resolve   a Service as an address
//! connect   TCP and TLS; failure: what went wrong, as Go says it
//! read      documents of other servers over the same connections, for those who need no answer to a question
//! ```
//!
//! A handler in the same process is asked instead of a socket if one is registered for the host: so tests need no port.

mod config;
mod connect;
mod dial;
mod failure;
mod identity;
mod read;
mod resolve;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use konverge_core::Status;
use konverge_store::BoxFuture;

use crate::server::Server;
use crate::{in_flight, work};
use config::ClientKey;
use connect::Connector;

pub(crate) use config::ClientConfig;
pub(crate) use connect::check_ca_bundle;
pub(crate) use failure::CallError;
pub use identity::WebhookIdentity;
pub(crate) use read::HttpsReader;
pub use resolve::ADDRESS_ANNOTATION;

/// How many clients are kept, each with its connections. As many as kube-apiserver keeps; then the one that was not used for
/// longest is dropped.
const MAX_CLIENTS: usize = 200;

/// How long a connection that is not used stays open, as in Go's transport.
const IDLE: Duration = Duration::from_secs(90);

/// How many connections that are not used are kept for one webhook: as many as Kubernetes' transports keep.
const MAX_IDLE: usize = 25;

/// The most that a webhook may answer, however little it was sent: a review of the largest object has a patch that replaces it,
/// in base64. More than this times what it was sent is refused, so that no webhook fills the memory.
const LEAST_ANSWER: usize = 16 * 1024 * 1024;
const ANSWER_FACTOR: usize = 4;

/// How often a webhook is asked again that answers 429 or 5xx with `Retry-After`, as client-go does it, within the time limit.
const MAX_RETRIES: usize = 10;

/// How long a webhook may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimeLimit {
    /// The URL says so, too, in whole seconds.
    Told(Duration),
    Untold(Duration),
}

impl TimeLimit {
    fn duration(self) -> Duration {
        match self {
            Self::Told(limit) | Self::Untold(limit) => limit,
        }
    }
}

/// A webhook in the same process.
///
/// It is called instead of a connection to the host that it is registered for, with the request that would be sent.
pub type LocalWebhook = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// The clients of a server, and the webhooks in its process.
#[derive(Default)]
pub(crate) struct WebhookClients {
    clients: Mutex<HashMap<ClientKey, Kept>>,
    uses: AtomicU64,
    local: RwLock<HashMap<String, LocalWebhook>>,
    identity: Option<WebhookIdentity>,
}

struct Kept {
    client: HttpsClient,
    used: u64,
}

type HttpsClient = Client<Connector, Full<Bytes>>;

impl WebhookClients {
    /// Clients that show this certificate to webhooks that ask for one.
    pub(crate) fn new(identity: Option<WebhookIdentity>) -> Self {
        Self { identity, ..Self::default() }
    }

    /// Answers what is for this host (`webapp-webhook.shop.svc`, or the host of a URL) in this process; nothing any more if
    /// there is no handler.
    pub(crate) fn register(&self, host: &str, handler: Option<LocalWebhook>) {
        let host = host.to_ascii_lowercase();
        match handler {
            Some(handler) => drop(self.local.write().insert(host, handler)),
            None => drop(self.local.write().remove(&host)),
        }
    }

    /// Sends JSON and reads the answer, within a time limit. The request that it is for gives back its slots meanwhile. Too many
    /// requests that wait for the same webhook are an error.
    pub(crate) async fn post(
        &self,
        server: &Server,
        config: &ClientConfig,
        body: Vec<u8>,
        limit: TimeLimit,
    ) -> Result<Value, CallError> {
        let url = config.url(limit);
        let webhook = url.split('?').next().unwrap_or_default();
        let _waiting = in_flight::wait_for(webhook).map_err(CallError::TooMany)?;
        let posting = self.post_to(server, config, &url, Bytes::from(body));
        let answered = work::without_slot(tokio::time::timeout(limit.duration(), posting)).await;
        answered.unwrap_or_else(|_| Err(CallError::transport(&url, "context deadline exceeded")))
    }

    async fn post_to(
        &self,
        server: &Server,
        config: &ClientConfig,
        url: &str,
        body: Bytes,
    ) -> Result<Value, CallError> {
        for attempt in 0.. {
            let answer = self.send(server, config, url, body.clone()).await?;
            let again = (attempt < MAX_RETRIES).then(|| retry_after(&answer)).flatten();
            match again {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return failure::read(&answer),
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn send(
        &self,
        server: &Server,
        config: &ClientConfig,
        url: &str,
        body: Bytes,
    ) -> Result<Response<Bytes>, CallError> {
        let most = LEAST_ANSWER.max(body.len() * ANSWER_FACTOR);
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission");
        let refused = |why: &dyn std::fmt::Display| CallError::transport(url, &why.to_string());
        let host = config.host();
        let local = self.local.read().get(&host.to_ascii_lowercase()).cloned();
        if let Some(handler) = local {
            return Ok(handler(request.body(body).map_err(|why| refused(&why))?).await);
        }
        let address = config.address(server).map_err(|why| CallError::transport(url, &why))?;
        let client = self.client(config, address.as_deref())?;
        let request = request.body(Full::new(body)).map_err(|why| refused(&why))?;
        let sent = client.request(request).await;
        let response = sent.map_err(|error| CallError::transport(url, &failure::go_words(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, most).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return CallError::Other(format!("the answer is larger than the {most} bytes that it may have"));
            }
            CallError::Other(format!(
                "unexpected error when reading response body. Please retry. Original error: {error}"
            ))
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    /// The client for a webhook: that of the last time, with its connections, if it is trusted and reached in the same way.
    fn client(&self, config: &ClientConfig, address: Option<&str>) -> Result<HttpsClient, CallError> {
        let key = config.client_key(address);
        let used = self.uses.fetch_add(1, Relaxed);
        let mut clients = self.clients.lock();
        if let Some(kept) = clients.get_mut(&key) {
            kept.used = used;
            return Ok(kept.client.clone());
        }
        let connector = Connector::new(config, address, self.identity.as_ref()).map_err(CallError::Unusable)?;
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(MAX_IDLE);
        let client: HttpsClient = builder.build(connector);
        if clients.len() >= MAX_CLIENTS
            && let Some(oldest) = clients.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone())
        {
            clients.remove(&oldest);
        }
        clients.insert(key, Kept { client: client.clone(), used });
        Ok(client)
    }
}

/// How long the webhook asks to wait before it is asked again.
fn retry_after(answer: &Response<Bytes>) -> Option<Duration> {
    let status = answer.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    seconds(answer.headers()).map(|seconds| Duration::from_secs(u64::from(seconds)))
}

fn seconds(headers: &HeaderMap) -> Option<u32> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

/// The `Status` of an error that is not of the webhook itself.
pub(crate) fn unavailable(why: &str) -> Status {
    Status::failure(503, "ServiceUnavailable", why)
}
