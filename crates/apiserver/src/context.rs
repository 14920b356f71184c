//! What every stage of a request knows about where the request comes from. In: the head of a request, or the task of the
//! server that acts by itself. Out: a [`RequestContext`], made once and handed from stage to stage.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderName;
use http::request::Parts;

use crate::audit::RequestAudit;
use crate::env::Environment;
use crate::fence;
use crate::request::Query;
use crate::user::{self, SystemUser, UserInfo};

/// The header that names a request in the logs of everybody who handles it.
pub(crate) static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Who makes a request, how logs name the request, whether its changes are persisted, and what the audit log is told of it.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub user: Arc<UserInfo>,
    /// As the client sent it, or a new one. The answer carries it, too.
    pub audit_id: Arc<str>,
    /// Whether the request is processed without persisting anything.
    pub dry_run: bool,
    /// The term of leader election that the request was begun in, if its client says so: see `fence`.
    pub term: Option<Arc<str>>,
    /// When the request has to be answered. The server's own tasks take as long as they take.
    pub deadline: Option<Instant>,
    /// What the audit log is told of the request, if it is audited.
    pub audit: Option<Arc<RequestAudit>>,
}

impl RequestContext {
    /// The context of a request from a client. Takes the user out of the request's extensions.
    pub(crate) fn of_request(parts: &mut Parts, query: &Query, deadline: Instant, env: &dyn Environment) -> Self {
        let owned = parts.extensions.remove::<UserInfo>().map(Arc::new);
        let user = owned.or_else(|| parts.extensions.remove()).unwrap_or_else(user::anonymous);
        let sent = parts.headers.get(&AUDIT_ID).and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
        let audit_id = sent.map_or_else(|| new_audit_id(env), Arc::from);
        let term = fence::of_request(&parts.headers);
        Self { user, audit_id, dry_run: query.dry_run(), term, deadline: Some(deadline), audit: None }
    }

    /// The context of what the server does by itself.
    pub(crate) fn of_task(user: SystemUser, env: &dyn Environment) -> Self {
        let (user, audit_id) = (Arc::new(user.info()), new_audit_id(env));
        Self { user, audit_id, dry_run: false, term: None, deadline: None, audit: None }
    }

    /// The same request, made by another user.
    pub(crate) fn with_user(&self, user: Arc<UserInfo>) -> Self {
        Self { user, ..self.clone() }
    }

    /// The same request, with changes that are persisted or not.
    pub(crate) fn with_dry_run(&self, dry_run: bool) -> Self {
        Self { dry_run, ..self.clone() }
    }
}

fn new_audit_id(env: &dyn Environment) -> Arc<str> {
    uuid::Uuid::from_u128(env.random()).to_string().into()
}
