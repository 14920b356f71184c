//! What every stage of a request knows about where the request comes from. In: the head of a request, or the task of the
//! server that acts by itself. Out: a [`RequestContext`], made once and handed from stage to stage.

use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;

use crate::env::Environment;
use crate::request::Query;
use crate::user::{self, SystemUser, UserInfo};

/// The header that names a request in the logs of everybody who handles it.
pub(crate) const AUDIT_ID: &str = "audit-id";

/// Who makes a request, how logs name the request, and whether its changes are persisted.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub user: Arc<UserInfo>,
    /// As the client sent it, or a new one. The answer carries it, too.
    pub audit_id: Arc<str>,
    /// Whether the request is processed without persisting anything.
    pub dry_run: bool,
    /// When the request has to be answered. The server's own tasks take as long as they take.
    pub deadline: Option<Instant>,
}

impl RequestContext {
    /// The context of a request from a client. Takes the user out of the request's extensions.
    pub(crate) fn of_request(parts: &mut Parts, query: &Query, deadline: Instant, env: &dyn Environment) -> Self {
        let owned = parts.extensions.remove::<UserInfo>().map(Arc::new);
        let user = owned.or_else(|| parts.extensions.remove()).unwrap_or_else(user::anonymous);
        let sent = parts.headers.get(AUDIT_ID).and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
        let audit_id = sent.map_or_else(|| new_audit_id(env), Arc::from);
        Self { user, audit_id, dry_run: query.dry_run(), deadline: Some(deadline) }
    }

    /// The context of what the server does by itself.
    pub(crate) fn of_task(user: SystemUser, env: &dyn Environment) -> Self {
        Self { user: Arc::new(user.info()), audit_id: new_audit_id(env), dry_run: false, deadline: None }
    }

    /// The same request, made by another user.
    pub(crate) fn with_user(&self, user: UserInfo) -> Self {
        Self { user: Arc::new(user), ..self.clone() }
    }

    /// The same request, with changes that are persisted or not.
    pub(crate) fn with_dry_run(&self, dry_run: bool) -> Self {
        Self { dry_run, ..self.clone() }
    }
}

fn new_audit_id(env: &dyn Environment) -> Arc<str> {
    uuid::Uuid::from_u128(env.random()).to_string().into()
}
