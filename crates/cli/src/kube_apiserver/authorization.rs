//! What users may do, by `--authorization-mode`. Roles are not evaluated: with RBAC and the other modes that ask who may do
//! what, every authenticated user may do everything, and the anonymous user what the roles of a new cluster give it.

use std::future::ready;
use std::pin::Pin;

use konverge_apiserver::{Attributes, Authorizer, Decision};

/// The modes of kube-apiserver.
pub(super) const MODES: [&str; 6] = ["AlwaysAllow", "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node"];

/// The paths that the role `system:public-info-viewer` of a new cluster lets everybody read.
const PUBLIC: [&str; 5] = ["/livez", "/readyz", "/healthz", "/version", "/version/"];

/// What users may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authorization {
    /// Everything.
    Allow,
    /// Nothing, except for members of `system:masters`.
    Deny,
    /// Everything, if they are authenticated.
    Authenticated,
}

impl Authorizer for Authorization {
    fn authorize<'a>(&'a self, attributes: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        let member = |group: &str| attributes.user.groups.iter().any(|member_of| member_of == group);
        let public = attributes.resource.is_none() && attributes.verb == "get" && PUBLIC.contains(&attributes.path);
        let allowed = match self {
            Self::Allow => true,
            Self::Deny => member("system:masters"),
            Self::Authenticated => public || !member("system:unauthenticated"),
        };
        let reason = if *self == Self::Deny { "Everything is forbidden." } else { "" };
        Box::pin(ready(if allowed { Decision::Allow } else { Decision::Deny { reason: reason.to_owned() } }))
    }
}
