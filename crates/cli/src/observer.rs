//! Reads of a cluster that never change it and never wait for long. In: paths. Out: objects, lists, pages and answers to reviews, or a sentence why not. Each
//! request has a limit, and all of them together have one, so that a server which hangs holds nobody up for minutes. What is read has a limit, too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use konverge::kube::Client;
use konverge::kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::description::text;
use crate::remote_cluster::words;

/// How long one answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The largest list or page, beyond which reading ends.
const MOST_BYTES: usize = 32 << 20;

/// Why something was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    Absent(String),
    #[error("{0}")]
    Failed(String),
}

/// An answer as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub code: u16,
    /// The time of the server, as it says it.
    pub date: Option<String>,
    pub text: String,
    /// Whether there was more than was asked for.
    pub is_cut: bool,
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Listed {
    pub items: Vec<Value>,
    /// Whether there are more objects than these.
    pub is_cut: bool,
}

/// Reads a cluster.
#[derive(Clone)]
pub(crate) struct Observer {
    client: Client,
    /// When the time for all reads is over.
    deadline: Instant,
    /// Answers of success that are none of an API server. As many as there are reads; clones share them.
    garbled: Arc<Mutex<BTreeSet<String>>>,
}

impl Observer {
    /// Reads until `within` is over.
    pub(crate) fn new(client: Client, within: Duration) -> Self {
        Self { client, deadline: Instant::now() + within, garbled: Arc::default() }
    }

    /// The same with a time of its own.
    pub(crate) fn again(&self, within: Duration) -> Self {
        Self { deadline: Instant::now() + within, ..self.clone() }
    }

    /// What was answered and not understood so far: paths, and what is wrong with their answers.
    pub(crate) fn garbled(&self) -> Vec<String> {
        self.garbled.lock().iter().cloned().collect()
    }

    /// The client, for what has a limit of its own.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// An object, if it is there.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>, Unread> {
        match self.json("GET", path, None).await {
            Ok(object) => Ok(Some(object)),
            Err(Unread::Absent(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first objects of a list, of which the query may select some. Each has its `apiVersion` and `kind`.
    pub(crate) async fn list(&self, path: &str, query: &str, most: usize) -> Result<Listed, Unread> {
        let mut page = self.json("GET", &format!("{path}?limit={most}{query}"), None).await?;
        let (api_version, kind) = (page["apiVersion"].clone(), text(&page["kind"]));
        // A server that has no objects says so in either way.
        let mut items = match page["items"].take() {
            Value::Array(items) => items,
            Value::Null if kind.ends_with("List") => Vec::new(),
            _ => return Err(self.not_understood(path, "it is no list")),
        };
        for item in items.iter_mut().filter(|item| item["kind"].is_null()) {
            item["kind"] = kind.trim_end_matches("List").into();
            item["apiVersion"] = api_version.clone();
        }
        let is_cut = items.len() > most || !text(&page["metadata"]["continue"]).is_empty();
        items.truncate(most);
        Ok(Listed { items, is_cut })
    }

    /// The answer to a review, which is a question in the form of an object: nothing is stored.
    pub(crate) async fn review(&self, path: &str, review: &Value) -> Result<Value, Unread> {
        self.json("POST", path, Some(review)).await
    }

    /// Text: a log or a page, of which the first bytes are read.
    pub(crate) async fn page(&self, path: &str, most: usize) -> Result<Page, Unread> {
        self.send("GET", path, None, most).await
    }

    async fn json(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Unread> {
        let page = self.send(method, path, body, MOST_BYTES).await?;
        let parsed = serde_json::from_str::<Value>(&page.text).ok().filter(Value::is_object);
        let is_understood = parsed.is_some();
        let value = parsed.unwrap_or_default();
        let message = || match text(&value["message"]) {
            none if none.is_empty() => format!("{method} {path}: the server answers {}", page.code),
            message => message,
        };
        match page.code {
            200..300 if page.is_cut => Err(Unread::Failed(format!("{path} has more than {MOST_BYTES} bytes"))),
            200..300 if !is_understood => Err(self.not_understood(path, "it is no JSON object")),
            200..300 => Ok(value),
            401 | 403 => Err(Unread::Forbidden(message())),
            404 | 405 => Err(Unread::Absent(message())),
            _ => Err(Unread::Failed(message())),
        }
    }

    /// Notes an answer that is none of an API server.
    fn not_understood(&self, path: &str, why: &str) -> Unread {
        let path = path.split('?').next().unwrap_or(path);
        let why = format!("the answer to {path} is not understood: {why}");
        self.garbled.lock().insert(why.clone());
        Unread::Failed(why)
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>, most: usize) -> Result<Page, Unread> {
        let failed = |why: String| Unread::Failed(why);
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(failed("the time for reading the cluster is over".to_owned()));
        }
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let bytes = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let request = request.body(Body::from(bytes)).map_err(|error| failed(error.to_string()))?;
        let within = left.min(ANSWER_WITHIN);
        match tokio::time::timeout(within, self.read(request, most)).await {
            Ok(page) => page.map_err(failed),
            Err(_) => Err(failed(format!("{method} {path}: no answer within {} s", within.as_secs()))),
        }
    }

    async fn read(&self, request: http::Request<Body>, most: usize) -> Result<Page, String> {
        let answer = self.client.send(request).await.map_err(words)?;
        let code = answer.status().as_u16();
        let date = answer.headers().get("date").and_then(|date| date.to_str().ok()).map(str::to_owned);
        let (mut body, mut bytes, mut is_cut) = (answer.into_body(), Vec::new(), false);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| format!("the answer was cut off: {error}"))?.into_data() else {
                continue;
            };
            bytes.extend_from_slice(&data);
            if bytes.len() > most {
                bytes.truncate(most);
                is_cut = true;
                break;
            }
        }
        Ok(Page { code, date, text: String::from_utf8_lossy(&bytes).into_owned(), is_cut })
    }
}
