//! One request to the API server and what came of it. In: what to do to which object. Out: what the server answered, as
//! an [`Object`] or as a tree, or a [`WriteError`]. Who may write is decided in the client (see `gate.rs`).

use std::sync::Arc;

use http::{Method, Request, StatusCode, header};
use konverge_core::ObjectKey;
use kube::client::Body;
use kube::core::ApiResource;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

use super::{FieldManager, Writer};
use crate::error::{Act, BoxError, Refusal, WriteError};
use crate::object::{Mode, Object};
use crate::request::Verb;

/// What may stand unescaped neither in a segment of a path nor in a query.
const RESERVED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'+')
    .add(b'/')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// A JSON body under this type.
pub(crate) const JSON: &str = "application/json";
/// RFC 6902.
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
/// RFC 7386.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
/// Server-side apply; JSON is YAML.
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// What to do to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Get,
    Create,
    Update,
    Patch(&'static str),
    Apply { force: bool },
    Delete,
}

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub operation: Operation,
    pub api: &'a ApiResource,
    pub key: &'a ObjectKey,
    pub subresource: &'a str,
    pub body: Option<&'a Value>,
}

/// What the server answered: that it was done, and a text.
pub(crate) struct Answer<'a, B> {
    pub code: StatusCode,
    call: Call<'a>,
    body: B,
}

impl<B: AsRef<[u8]>> Answer<'_, B> {
    /// The object as a cache keeps it: nobody who writes looks at its managedFields.
    pub(crate) fn object(&self) -> Result<Arc<Object>, WriteError> {
        let json = str::from_utf8(self.body.as_ref()).map_err(|error| self.unreadable(error.into()))?;
        let object = Object::parse(self.call.api, json, Mode::Full).map_err(|error| self.unreadable(error.into()))?;
        Ok(Arc::new(object))
    }

    /// All of it as a tree.
    pub(crate) fn value(&self) -> Result<Value, WriteError> {
        serde_json::from_slice(self.body.as_ref()).map_err(|error| self.unreadable(error.into()))
    }

    /// A text that cannot be read is as good as none.
    fn unreadable(&self, error: BoxError) -> WriteError {
        WriteError::unanswered(self.call.act(), self.call.operation.writes(), error)
    }
}

impl Operation {
    fn writes(self) -> bool {
        self != Self::Get
    }

    fn verb(self) -> Verb {
        match self {
            Self::Get => Verb::Get,
            Self::Create => Verb::Create,
            Self::Update => Verb::Update,
            Self::Patch(_) => Verb::Patch,
            Self::Apply { .. } => Verb::Apply,
            Self::Delete => Verb::Delete,
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Create => Method::POST,
            Self::Update => Method::PUT,
            Self::Patch(_) | Self::Apply { .. } => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Patch(format) => format,
            Self::Apply { .. } => APPLY_PATCH,
            _ => JSON,
        }
    }
}

impl<'a> Call<'a> {
    /// A read.
    pub(crate) fn get(api: &'a ApiResource, key: &'a ObjectKey) -> Self {
        Self { operation: Operation::Get, api, key, subresource: "", body: None }
    }

    fn act(&self) -> Act {
        let resource = match self.subresource {
            "" => self.api.plural.clone(),
            subresource => format!("{}/{subresource}", self.api.plural),
        };
        Act { verb: self.operation.verb().as_rbac(), group: self.api.group.clone(), resource, key: self.key.clone() }
    }

    fn uri(&self, manager: &FieldManager) -> String {
        let api = self.api;
        let mut uri = match api.group.as_str() {
            "" => format!("/api/{}", api.version),
            group => format!("/apis/{group}/{}", api.version),
        };
        let mut push = |segment: &str| {
            uri.push('/');
            uri.extend(utf8_percent_encode(segment, RESERVED));
        };
        if let Some(namespace) = self.key.namespace() {
            push("namespaces");
            push(namespace);
        }
        push(&api.plural);
        if self.operation != Operation::Create {
            push(self.key.name());
        }
        if !self.subresource.is_empty() {
            push(self.subresource);
        }
        if self.operation.writes() && self.operation != Operation::Delete {
            uri.push_str("?fieldManager=");
            uri.extend(utf8_percent_encode(manager.as_str(), RESERVED));
        }
        if self.operation == (Operation::Apply { force: true }) {
            uri.push_str("&force=true");
        }
        uri
    }
}

impl Writer {
    /// Sends one request and waits for its answer, but not longer than the writer's timeout.
    pub(crate) async fn send<'a>(&self, call: Call<'a>) -> Result<Answer<'a, impl AsRef<[u8]> + use<>>, WriteError> {
        let request = Request::builder()
            .method(call.operation.method())
            .uri(call.uri(&self.0.manager))
            .header(header::ACCEPT, JSON)
            .header(header::CONTENT_TYPE, call.operation.content_type());
        let unsent = |error: &dyn std::error::Error| WriteError::Other { code: 0, message: error.to_string() };
        let body = call.body.map(serde_json::to_vec).transpose().map_err(|error| unsent(&error))?;
        let request = request.body(Body::from(body.unwrap_or_default())).map_err(|error| unsent(&error))?;

        let exchanged = tokio::time::timeout(self.0.timeout, self.exchange(request)).await;
        let writes = call.operation.writes();
        let (parts, body) = match exchanged {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(WriteError::unanswered(call.act(), writes, error.into())),
            Err(elapsed) => return Err(WriteError::unanswered(call.act(), writes, elapsed.into())),
        };
        if !parts.status.is_success() {
            let refusal = Refusal { code: parts.status, headers: &parts.headers, body: body.as_ref() };
            return Err(WriteError::refused(call.act(), writes, refusal));
        }
        Ok(Answer { code: parts.status, call, body })
    }

    async fn exchange(
        &self,
        request: Request<Body>,
    ) -> Result<(http::response::Parts, impl AsRef<[u8]> + use<>), kube::Error> {
        let response = self.0.client.send(request).await?;
        let (parts, body) = response.into_parts();
        Ok((parts, body.collect_bytes().await?))
    }
}
