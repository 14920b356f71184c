//! Why a write did not happen, by what the caller can do. In: an answer of the server, or none. Out: [`WriteError`].
//! Never decides about retries: `retry.rs` does.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use konverge_core::{Cause, ObjectKey, Status, error_chain};

use super::{BoxError, FieldErrors};
use crate::connect::Unreachable;
use crate::gate::WriteRefused;
use crate::retry::{MAX_RETRY_AFTER, retry_after};

/// How servers begin to say that a configuration does not fit its type: a field that there is not, or a value that it cannot have.
const UNTYPED: [&str; 2] = ["failed to create typed patch object", "failed to convert new object"];

/// Why a write, or the read before it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The object has changed since it was read, or other managers own fields of an apply that was not forced.
    #[error("{message}")]
    Conflict {
        /// The server's words.
        message: String,
        /// The fields others own; empty if the object has changed.
        fields: Vec<FieldConflict>,
    },
    /// There is an object of this name already.
    #[error("{message}")]
    Exists {
        /// The server's words.
        message: String,
    },
    /// The operator may not do this.
    #[error("{}", forbidden_text(rule.as_deref(), message))]
    Forbidden {
        /// The RBAC rule that is missing; none if something else refused, a policy or a quota.
        rule: Option<Box<Rule>>,
        /// The server's words.
        message: String,
    },
    /// The object makes no sense.
    #[error("{message}")]
    Invalid {
        /// All problems in one text.
        message: String,
        /// Each problem with its field.
        causes: Vec<Cause>,
        /// Whether the server said so. It may say something else later, when a policy is relaxed, a quota is raised or a
        /// CRD is upgraded; what was found before anything was sent stays wrong until somebody changes it.
        by_server: bool,
    },
    /// What was to be written, or its kind or namespace, is not there.
    #[error("{message}")]
    NotFound {
        /// The server's words.
        message: String,
        /// What is missing.
        missing: Missing,
    },
    /// The version that was asked for is no longer kept.
    #[error("{message}")]
    Gone {
        /// The server's words.
        message: String,
    },
    /// The server has too much to do.
    #[error("{message}")]
    Throttled {
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
        /// The server's words.
        message: String,
    },
    /// No connection came about: nothing was written.
    #[error("the API server cannot be reached to {act}")]
    Unreachable {
        /// What was tried.
        act: Box<Act>,
        /// Why.
        source: BoxError,
    },
    /// Nobody knows whether it was written: the answer did not arrive, or was that the server failed. Look before doing
    /// anything that must not happen twice.
    #[error("it is not known whether the API server did {act}")]
    Unknown {
        /// What was tried.
        act: Box<Act>,
        /// Why.
        source: BoxError,
        /// Whether the server said so, as it does when a webhook fails it.
        answered: bool,
    },
    /// A gate refused the write ([`WriteGate`](crate::WriteGate)): nothing was sent. It is not retried.
    #[error(transparent)]
    NotSent(#[from] WriteRefused),
    /// Any other refusal.
    #[error("{message}")]
    Other {
        /// The HTTP code; 0 if the request was never sent.
        code: u16,
        /// The server's words.
        message: String,
    },
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    /// The other manager.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub field: String,
}

/// What of a request was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The object itself.
    Object,
    /// Its namespace.
    Namespace,
    /// The server does not know the kind (yet), or not this subresource of it.
    Kind,
}

/// What a request does to which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The verb as RBAC has it: `patch`.
    pub verb: &'static str,
    /// The API group; empty for core.
    pub group: String,
    /// The resource with its subresource: `deployments`, `pods/status`.
    pub resource: String,
    /// Which object.
    pub key: ObjectKey,
}

/// An RBAC rule, as an administrator has to write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The verb: `patch`.
    pub verb: String,
    /// The API group; empty for core.
    pub group: String,
    /// The resource with its subresource.
    pub resource: String,
    /// Where; none for the whole cluster.
    pub namespace: Option<String>,
}

/// What the server answered when it did not do as it was told.
pub(crate) struct Refusal<'a> {
    pub code: StatusCode,
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
}

impl WriteError {
    /// Whether something could not be made because its namespace is going, or gone: then it is not needed any more.
    pub fn is_of_ending_namespace(&self) -> bool {
        match self {
            Self::Forbidden { message, .. } => message.contains("because it is being terminated"),
            Self::NotFound { missing: Missing::Namespace, .. } => true,
            _ => false,
        }
    }

    /// A problem found before anything was sent.
    pub(crate) fn invalid(errors: &FieldErrors) -> Self {
        Self::Invalid { message: errors.to_string(), causes: errors.causes(), by_server: false }
    }

    /// The error behind an answer. `writes` tells whether something may have changed.
    pub(crate) fn refused(act: Act, writes: bool, refusal: Refusal<'_>) -> Self {
        let code = refusal.code.as_u16();
        let status: Status = serde_json::from_slice(refusal.body).unwrap_or_else(|_| {
            // Proxies and load shedding answer with plain text.
            let text = String::from_utf8_lossy(refusal.body);
            Status::failure(
                code,
                "",
                if text.trim().is_empty() { refusal.code.to_string() } else { text.trim().into() },
            )
        });
        let message = status.message.clone();
        let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
        match code {
            404 => Self::NotFound { missing: missing(&act, &status), message: not_found_text(&act, &status) },
            409 if status.reason == "AlreadyExists" => Self::Exists { message },
            409 => Self::Conflict { fields: causes.iter().filter_map(field_conflict).collect(), message },
            410 => Self::Gone { message },
            403 => Self::Forbidden { rule: missing_rule(&act, &message).map(Box::new), message },
            // 400 is what a server says that cannot even read the object; 422 also to a JSON patch whose `test` fails.
            400 | 413 | 422 => Self::Invalid { message, causes, by_server: true },
            429 | 503 => Self::Throttled { retry_after: pause(refusal.headers, &status), message },
            // Answered with 500, but the server is well.
            500 if UNTYPED.iter().any(|how| message.starts_with(how)) => {
                Self::Invalid { message, causes, by_server: true }
            }
            408 | 500.. if writes => Self::Unknown { act: Box::new(act), source: message.into(), answered: true },
            _ => Self::Other { code, message },
        }
    }

    /// What an error of a kube client would be if it were one of our own writes; none for what no server has to do with,
    /// such as an answer that does not fit its type. It is for judging the error, not for showing it: which object it is
    /// about, kube does not tell.
    pub(crate) fn of_kube(error: &kube::Error) -> Option<Self> {
        if let Some(refused) = refused_by_gate(error) {
            return Some(Self::NotSent(refused));
        }
        let act = Act { verb: "ask", group: String::new(), resource: String::new(), key: ObjectKey::new(None, "") };
        match error {
            kube::Error::Api(status) => {
                let body = serde_json::to_vec(status).unwrap_or_default();
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                Some(Self::refused(act, true, Refusal { code, headers: &HeaderMap::new(), body: &body }))
            }
            kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
                let (act, source) = (Box::new(act), BoxError::from(error.to_string()));
                Some(match never_connected(error) {
                    true => Self::Unreachable { act, source },
                    false => Self::Unknown { act, source, answered: false },
                })
            }
            _ => None,
        }
    }

    /// The error behind a connection that gave no answer.
    pub(crate) fn unanswered(act: Act, writes: bool, source: BoxError) -> Self {
        if let Some(refused) = refused_by_gate(&*source) {
            return Self::NotSent(refused);
        }
        let act = Box::new(act);
        if writes && !never_connected(&*source) {
            Self::Unknown { act, source, answered: false }
        } else {
            Self::Unreachable { act, source }
        }
    }

    /// One word for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "Conflict",
            Self::Exists { .. } => "AlreadyExists",
            Self::Forbidden { .. } => "Forbidden",
            Self::Invalid { .. } => "Invalid",
            Self::NotFound { missing: Missing::Kind, .. } => "NotServed",
            Self::NotFound { .. } => "NotFound",
            Self::Gone { .. } => "Gone",
            Self::Throttled { .. } => "Throttled",
            Self::Unreachable { .. } => "Unreachable",
            Self::Unknown { .. } => "Unknown",
            Self::NotSent(refused) => refused.reason(),
            Self::Other { .. } => "Failed",
        }
    }
}

/// `patch deployments.apps default/web`
impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        write!(f, " {}", self.key)
    }
}

/// `verbs: ["patch"], apiGroups: ["apps"], resources: ["deployments"], in namespace default`
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, namespace } = self;
        write!(f, "verbs: [{verb:?}], apiGroups: [{group:?}], resources: [{resource:?}], ")?;
        match namespace {
            Some(namespace) => write!(f, "in namespace {namespace}"),
            None => f.write_str("for the whole cluster"),
        }
    }
}

fn forbidden_text(rule: Option<&Rule>, message: &str) -> String {
    match rule {
        Some(rule) => format!("an RBAC rule is missing: {rule} ({message})"),
        None => message.to_owned(),
    }
}

/// The authorizer names what it misses: `User "x" cannot create resource "pods/status" in API group "" in the
/// namespace "y"`. Other refusals with this code come from admission, and no rule would help.
fn missing_rule(act: &Act, message: &str) -> Option<Rule> {
    let verb = message.split_once("cannot ")?.1.split_once(" resource ")?.0;
    let resource = message.split_once(" resource \"").and_then(|(_, rest)| rest.split_once('"'));
    Some(Rule {
        verb: verb.to_owned(),
        group: act.group.clone(),
        resource: resource.map_or_else(|| act.resource.clone(), |(resource, _)| resource.to_owned()),
        namespace: act.key.namespace().map(str::to_owned),
    })
}

/// A 404 about a name says which one; about a kind it does not.
fn missing(act: &Act, status: &Status) -> Missing {
    match &status.details {
        Some(details) if details.kind == "namespaces" && act.resource != "namespaces" => Missing::Namespace,
        Some(details) if !details.name.is_empty() => Missing::Object,
        _ => Missing::Kind,
    }
}

fn not_found_text(act: &Act, status: &Status) -> String {
    match missing(act, status) {
        Missing::Kind => {
            let dot = if act.group.is_empty() { "" } else { "." };
            format!("the API server does not know {}{dot}{}: is its CRD installed?", act.resource, act.group)
        }
        Missing::Object | Missing::Namespace => status.message.clone(),
    }
}

/// Causes of a refused apply: `conflict with "kubectl" using apps/v1`.
fn field_conflict(cause: &Cause) -> Option<FieldConflict> {
    if cause.reason != "FieldManagerConflict" {
        return None;
    }
    let manager = cause.message.split('"').nth(1).unwrap_or(&cause.message);
    Some(FieldConflict { manager: manager.to_owned(), field: cause.field.clone() })
}

fn pause(headers: &HeaderMap, status: &Status) -> Option<Duration> {
    let noted = || Some(u64::from(status.details.as_ref()?.retry_after_seconds)).filter(|seconds| *seconds > 0);
    retry_after(headers).or_else(|| Some(Duration::from_secs(noted()?).min(MAX_RETRY_AFTER)))
}

/// What a gate said on the way to the server.
fn refused_by_gate(error: &(dyn std::error::Error + 'static)) -> Option<WriteRefused> {
    error_chain(error).find_map(|error| error.downcast_ref().cloned())
}

/// Whether the system says that there was no connection. Anything else may have happened after the request left.
fn never_connected(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    Unreachable::caused(error)
        || error_chain(error).any(|error| {
            error.downcast_ref::<std::io::Error>().is_some_and(|error| {
                matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | AddrNotAvailable)
            })
        })
}
