//! Who may write. In: each request that may change the cluster, before it is sent, and how it ended. Out: send it, or
//! not. Every write of an operator passes here: objects, status, finalizers, events, and what a reconcile sends with a
//! client of its own. Knows neither leadership nor metrics: they implement [`WriteGate`].

use std::fmt;
use std::future::Future;

use http::{HeaderName, HeaderValue};

use crate::reconciler::BoxFuture;
use crate::request::RequestInfo;

/// Asked before each request that may change the cluster ([`RequestInfo::writes`]), and told how it ended.
///
/// Leader election refuses writes of an instance whose term is over, a test stops an operator in the middle of a
/// reconcile, an audit listens. [`ClientLayers::gate`](crate::ClientLayers::gate) puts a gate into a client; reads,
/// watches and reviews do not pass it. A session that begins as a `GET`, as `exec` and `port-forward` over a WebSocket
/// do, is a read here.
///
/// An apply that would change nothing is not sent, so a gate hears nothing of it.
///
/// The check is not asynchronous on purpose. It answers from what this process knows now (an atomic, a deadline), so no
/// time passes between the answer and the request, and a write costs no second request.
///
/// A refused write is [`WriteError::NotSent`](crate::WriteError::NotSent), or a `kube::Error` with [`WriteRefused`] among
/// its sources. Either ends the reconcile without a retry: whoever closed the gate opens it again for another instance,
/// or starts this one anew, and every object is reconciled then.
///
/// ```
/// use konverge_runtime::{RequestInfo, WriteGate, WritePass, WriteRefused};
///
/// /// Lets nobody delete a namespace.
/// struct KeepNamespaces;
///
/// impl WriteGate for KeepNamespaces {
///     fn check(&self, request: &RequestInfo) -> Result<WritePass, WriteRefused> {
///         match (request.resource.as_str(), request.verb.as_rbac()) {
///             ("namespaces", "delete") => Err(WriteRefused::new("Protected", "namespaces are not deleted here")),
///             _ => Ok(WritePass::default()),
///         }
///     }
/// }
/// ```
pub trait WriteGate: Send + Sync + 'static {
    /// Whether the request may be sent, and under which conditions. It is asked once for each request, so that everything about that
    /// request comes from one look at what the gate knows. A panic ends the reconcile that sends it, like any other panic of a reconcile.
    fn check(&self, request: &RequestInfo) -> Result<WritePass, WriteRefused>;

    /// How a request ended that this gate let pass. Called once for each of them.
    fn done(&self, _request: &RequestInfo, _outcome: WriteOutcome) {}
}

/// A function that is asked, and does not hear how writes end.
impl<F> WriteGate for F
where
    F: Fn(&RequestInfo) -> Result<(), WriteRefused> + Send + Sync + 'static,
{
    fn check(&self, request: &RequestInfo) -> Result<WritePass, WriteRefused> {
        self(request).map(|()| WritePass::default())
    }
}

/// A gate lets one request pass. By default it is sent as it is, and its answer is waited for however long it takes.
#[derive(Default)]
#[must_use = "a pass is for the request that was checked"]
pub struct WritePass {
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
    pub(crate) revoked: Option<BoxFuture<WriteRefused>>,
}

impl WritePass {
    /// The request carries this header.
    pub fn header(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    /// The pass is good until this resolves, which says why it ended. If that is before the request was sent, the request is not sent;
    /// otherwise its answer is not waited for any longer.
    pub fn until(self, revoked: impl Future<Output = WriteRefused> + Send + 'static) -> Self {
        Self { revoked: Some(Box::pin(revoked)), ..self }
    }
}

impl fmt::Debug for WritePass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, revoked } = self;
        f.debug_struct("WritePass").field("header", header).field("can_be_revoked", &revoked.is_some()).finish()
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteOutcome {
    /// The server answered with this HTTP code.
    Answered(u16),
    /// No answer came, or nobody waited for it any more: it is not known whether the server did it.
    Unanswered,
    /// Another gate refused it, or its pass ended before, so nothing was sent.
    Refused,
}

/// A gate refused a write: nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WriteRefused {
    reason: &'static str,
    message: String,
}

impl WriteRefused {
    /// A refusal: one word in CamelCase for metrics and logs (`NotLeading`), and a sentence for people.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Why, in one word.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}
