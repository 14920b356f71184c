//! Documents of other servers, such as the keys of an OpenID Connect issuer. In: a URL that begins with `https`, and whom to
//! trust. Out: the answer, or why there is none, in the words of Go's HTTP client. Time and size are limited, and nothing is sent
//! without TLS.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connect::Connector;
use super::{HttpsClient, IDLE, failure};

/// How long one document may take with its redirects: what kube-apiserver gives an issuer.
const LIMIT: Duration = Duration::from_secs(30);

/// The largest document. A set of a hundred keys with certificates has less than a tenth of it.
const MOST: usize = 1024 * 1024;

/// How often another URL is tried because an answer says so, as in Go.
const REDIRECTS: usize = 10;

/// Reads documents from servers that have a certificate of certain CAs.
pub(crate) struct HttpsReader {
    /// Or why nobody can be trusted, such as a system without CAs. Then every document is an error.
    client: Result<HttpsClient, String>,
}

impl HttpsReader {
    /// Trusts these CAs (PEM), or those of the system if there are none.
    pub(crate) fn new(ca_bundle: &[u8]) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        // Documents are read seldom, one after the other.
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(1);
        Self { client: Connector::trusting(ca_bundle, true, None).map(|connector| builder.build(connector)) }
    }

    /// The answer to a GET, whatever its code is.
    pub(crate) async fn get(&self, url: &str, bearer: Option<&str>) -> Result<Response<Bytes>, String> {
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        let read = tokio::time::timeout(LIMIT, self.follow(url, bearer)).await;
        read.unwrap_or_else(|_| Err(late.to_owned())).map_err(|why| format!("Get {url:?}: {why}"))
    }

    async fn follow(&self, url: &str, bearer: Option<&str>) -> Result<Response<Bytes>, String> {
        let mut uri: Uri = url.parse().map_err(|why| format!("{why}"))?;
        let first = uri.authority().cloned();
        for _ in 0..=REDIRECTS {
            if uri.scheme_str() != Some("https") {
                return Err(format!(
                    "unsupported protocol scheme {:?}, only https is spoken",
                    uri.scheme_str().unwrap_or_default()
                ));
            }
            // As in Go, another host is not told a secret.
            let secret = bearer.filter(|_| uri.authority() == first.as_ref());
            let answer = self.once(&uri, secret).await?;
            let location = answer.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            match (answer.status().as_u16(), location) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => uri = resolve(&uri, location)?,
                _ => return Ok(answer),
            }
        }
        Err(format!("stopped after {REDIRECTS} redirects"))
    }

    async fn once(&self, uri: &Uri, bearer: Option<&str>) -> Result<Response<Bytes>, String> {
        let mut request = Request::get(uri.clone()).header(header::ACCEPT, "application/json, */*");
        if let Some(bearer) = bearer {
            let mut value = HeaderValue::try_from(format!("Bearer {bearer}")).map_err(|why| why.to_string())?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Full::default()).map_err(|why| why.to_string())?;
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let response = client.request(request).await.map_err(|error| failure::go_words(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MOST).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
            true => format!("the answer is larger than the {MOST} bytes that it may have"),
            false => format!("unable to read response body: {error}"),
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

/// The URL that a redirect names: a whole one, or a path of the same host.
fn resolve(from: &Uri, location: &str) -> Result<Uri, String> {
    let unreadable = |why: &dyn std::fmt::Display| format!("failed to parse Location header {location:?}: {why}");
    let uri: Uri = location.parse().map_err(|why| unreadable(&why))?;
    if uri.scheme().is_some() {
        return Ok(uri);
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = uri.into_parts().path_and_query;
    Uri::from_parts(parts).map_err(|why| unreadable(&why))
}
