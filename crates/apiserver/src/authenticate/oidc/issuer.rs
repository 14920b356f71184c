//! An OpenID Connect issuer over HTTPS. In: its URL, and tokens that say they are from it. Out: what a token says, if a key of the
//! issuer has signed it. The discovery document and the keys are kept; one task per issuer reads them, so that no request holds a
//! lock while the issuer answers, and the issuer is never asked twice at the same time.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use konverge_schema::go_quote;

use super::refresh::{Ask, Refresh};
use crate::authenticate::jwt::Unverified;
use crate::authenticate::key::PublicKey;
use crate::webhook_client::HttpsReader;
use crate::work;

/// How long to wait before an issuer that has not answered is asked again, as in kube-apiserver.
const PAUSE: Duration = Duration::from_secs(10);

/// How long a request waits for keys: somewhat longer than reading them may take.
const WAIT: Duration = Duration::from_secs(35);

/// How many keys of an issuer are kept. Issuers have a handful; a token is verified with each if it names none.
const MAX_KEYS: usize = 100;

/// How much of an answer that is a failure is shown in the log.
const SHOWN: usize = 200;

/// Not believed: no key of the issuer has signed the token.
const UNSIGNED: &str = "failed to verify id token signature";

/// An issuer, and what is known of it.
pub(super) struct Issuer {
    url: String,
    /// Where its discovery document is.
    discovery: String,
    reader: HttpsReader,
    known: watch::Sender<Known>,
    refresh: Mutex<Refresh>,
    /// Tells the task that keys are needed.
    needed: Notify,
}

/// What an issuer has said.
#[derive(Clone, Default)]
struct Known {
    /// Where its keys are; none before it has answered for the first time.
    jwks_uri: Option<Arc<str>>,
    keys: Arc<[PublicKey]>,
    /// Until when the issuer wants its keys to be kept.
    fresh_until: Option<Instant>,
    /// How often the keys were asked for.
    attempts: u64,
    /// Why the last attempt to read the keys has failed.
    failure: Option<Arc<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DiscoveryDocument {
    issuer: String,
    jwks_uri: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeySet {
    keys: Vec<Value>,
}

impl Issuer {
    /// An issuer that has not been asked yet. Without a discovery URL, the document is below the issuer's own.
    pub(super) fn new(url: &str, discovery_url: &str, ca_bundle: &str) -> Self {
        let discovery = match discovery_url {
            "" => format!("{}/.well-known/openid-configuration", url.strip_suffix('/').unwrap_or(url)),
            other => other.to_owned(),
        };
        Self {
            url: url.to_owned(),
            discovery,
            reader: HttpsReader::new(ca_bundle.as_bytes()),
            known: watch::Sender::new(Known::default()),
            refresh: Mutex::default(),
            needed: Notify::new(),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the issuer has answered.
    pub(super) fn is_known(&self) -> bool {
        self.known.borrow().jwks_uri.is_some()
    }

    /// The payload of a token that the issuer has signed. Asks for keys again if none that is known has signed it.
    pub(super) async fn verify<'t>(&self, token: &'t Unverified<'_>) -> Result<&'t [u8], String> {
        let mut changes = self.known.subscribe();
        let known = changes.borrow_and_update().clone();
        let verified = |payload: &'t [u8]| Ok(payload);
        if let Some(payload) = token.signed_by(&*known.keys) {
            return verified(payload);
        }
        let unsigned = || format!("failed to verify signature: {UNSIGNED}");
        match self.refresh.lock().ask(known.fresh_until, Instant::now()) {
            Ask::NotNow => return Err(unsigned()),
            Ask::Begin => self.needed.notify_one(),
            Ask::Join => {}
        }
        let _waits = Waits(&self.refresh);
        let answered = async { changes.wait_for(|now| now.attempts > known.attempts).await.map(|known| known.clone()) };
        // A TokenReview waits, too, and lends its slot to others meanwhile.
        let known = match work::without_slot(tokio::time::timeout(WAIT, answered)).await {
            Ok(Ok(known)) => known,
            _ => return Err("failed to verify signature: fetching keys context deadline exceeded".to_owned()),
        };
        match (token.signed_by(&*known.keys), &known.failure) {
            (Some(payload), _) => verified(payload),
            (None, Some(why)) => Err(format!("failed to verify signature: fetching keys {why}")),
            (None, None) => Err(unsigned()),
        }
    }

    /// Asks the issuer who it is until it answers, and then for its keys whenever somebody needs them. Ends when the server closes.
    pub(super) async fn follow(&self, mut closing: watch::Receiver<bool>) {
        let following = async {
            self.refresh.lock().done();
            if self.known.borrow().jwks_uri.is_none() {
                self.discover().await;
            }
            loop {
                self.needed.notified().await;
                self.read_keys().await;
            }
        };
        tokio::select! {
            () = following => {}
            // An error says that nobody holds the server any more.
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }

    async fn discover(&self) {
        let mut said = String::new();
        let jwks_uri = loop {
            match self.read_discovery().await {
                Ok(jwks_uri) => break jwks_uri,
                // The same reason is said once.
                Err(error) if error == said => {}
                Err(error) => {
                    tracing::error!(
                        issuer = self.url,
                        %error,
                        "oidc authenticator: initializing plugin: tokens of this issuer are refused until it answers; asking it every 10 s"
                    );
                    said = error;
                }
            }
            tokio::time::sleep(PAUSE).await;
        };
        tracing::info!(issuer = self.url, jwks_uri, "oidc authenticator: the issuer has answered");
        self.known.send_modify(|known| known.jwks_uri = Some(jwks_uri.into()));
    }

    /// Where the issuer says that its keys are.
    async fn read_discovery(&self) -> Result<String, String> {
        let answer = self.reader.get(&self.discovery, None).await?;
        let document: DiscoveryDocument =
            decode(&answer, |why| format!("oidc: failed to decode provider discovery object: {why}"), |status| status)?;
        if document.issuer != self.url {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {} got {}",
                go_quote(&self.url),
                go_quote(&document.issuer)
            ));
        }
        match document.jwks_uri {
            uri if uri.is_empty() => Err("provider did not return JWKS URL".to_owned()),
            uri if !uri.starts_with("https://") => {
                Err(format!("the provider's jwks_uri {} does not begin with https", go_quote(&uri)))
            }
            uri => Ok(uri),
        }
    }

    async fn read_keys(&self) {
        let uri = self.known.borrow().jwks_uri.clone().unwrap_or_default();
        let read = self.keys_at(&uri).await;
        let now = Instant::now();
        self.refresh.lock().done();
        if let Err(error) = &read {
            tracing::warn!(issuer = self.url, %error, "oidc authenticator: the keys of the issuer cannot be read");
        }
        self.known.send_modify(|known| {
            known.attempts += 1;
            match read {
                Ok((keys, kept)) => {
                    known.keys = keys.into();
                    known.fresh_until = kept.map(|kept| now + kept);
                    known.failure = None;
                }
                // The keys that are known stay.
                Err(why) => known.failure = Some(why.into()),
            }
        });
    }

    async fn keys_at(&self, uri: &str) -> Result<(Vec<PublicKey>, Option<Duration>), String> {
        let answer = self.reader.get(uri, None).await.map_err(|why| format!("oidc: get keys failed {why}"))?;
        let set: KeySet = decode(
            &answer,
            |why| format!("oidc: failed to decode keys: {why}"),
            |status| format!("oidc: get keys failed: {status}"),
        )?;
        let keys: Vec<PublicKey> = set.keys.iter().filter_map(PublicKey::from_json).take(MAX_KEYS).collect();
        if keys.len() < set.keys.len() {
            let (usable, all) = (keys.len(), set.keys.len());
            tracing::info!(
                issuer = self.url,
                usable,
                all,
                "oidc authenticator: some keys of the issuer cannot verify tokens here"
            );
        }
        Ok((keys, lifetime(answer.headers())))
    }
}

/// Counts a request that waits for keys, until it does not any more.
struct Waits<'a>(&'a Mutex<Refresh>);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.lock().left();
    }
}

/// The JSON of an answer, or what is wrong with it.
fn decode<T: for<'de> Deserialize<'de>>(
    answer: &Response<Bytes>,
    unreadable: impl Fn(&dyn Display) -> String,
    failed: impl Fn(String) -> String,
) -> Result<T, String> {
    if answer.status() != StatusCode::OK {
        let body = &answer.body()[..answer.body().len().min(SHOWN)];
        return Err(failed(format!("{}: {}", answer.status(), String::from_utf8_lossy(body).trim())));
    }
    serde_json::from_slice(answer.body()).map_err(|why| unreadable(&why))
}

/// How long an answer may be kept, by its headers; none if they do not say.
fn lifetime(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut seconds = None;
    for directive in text(header::CACHE_CONTROL).split(',') {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        match &*name.trim().to_ascii_lowercase() {
            "no-store" | "no-cache" => return None,
            "max-age" => seconds = value.trim().trim_matches('"').parse::<u64>().ok(),
            _ => {}
        }
    }
    let age = text(header::AGE).trim().parse::<u64>().unwrap_or_default();
    // A day at most: an issuer that says more has made a mistake, and nobody could use its new keys.
    seconds.map(|seconds| Duration::from_secs(seconds.saturating_sub(age).min(24 * 60 * 60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_keys_are_kept() {
        for (control, age, expect) in [
            ("", "", None),
            ("max-age=60", "", Some(60)),
            ("public, max-age=60, must-revalidate", "20", Some(40)),
            ("max-age=60", "90", Some(0)),
            ("no-cache, max-age=60", "", None),
            ("max-age=60, no-store", "", None),
            ("max-age=abc", "", None),
            ("max-age=99999999999", "", Some(86_400)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CACHE_CONTROL, control.parse().unwrap());
            headers.insert(header::AGE, age.parse().unwrap());
            assert_eq!(lifetime(&headers), expect.map(Duration::from_secs), "{control} {age}");
        }
    }
}
