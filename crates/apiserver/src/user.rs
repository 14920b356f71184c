//! Who makes a request. In: what authentication found out, as a request extension. Out: the user that authorization,
//! logs and later admission and audit see. Nothing here authenticates anybody: that is a layer in front of the server.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The user that makes a request, with the fields of `authentication.k8s.io` `UserInfo`.
///
/// The server does not authenticate. A layer in front of [`ApiServer`](crate::ApiServer) that does puts a `UserInfo` into
/// the extensions of each request; a request without one comes from [`UserInfo::anonymous`].
///
/// ```
/// use konverge_apiserver::UserInfo;
/// let mut request = http::Request::get("/api/v1/pods").body(()).unwrap();
/// let alice = UserInfo { groups: vec!["developers".into()], ..UserInfo::named("alice") };
/// request.extensions_mut().insert(alice);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The name, unique among all users: `alice`, `system:serviceaccount:default:builder`.
    pub name: String,
    /// A value that tells apart users who had the same name at different times. May be empty.
    pub uid: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
    /// What else the authenticator knows of the user, such as scopes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user of this name, with no uid, no groups and no extra information.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The user of every request that no layer has authenticated: `system:anonymous`, in the group
    /// `system:unauthenticated`.
    pub fn anonymous() -> Self {
        Self { groups: vec!["system:unauthenticated".into()], ..Self::named("system:anonymous") }
    }
}

/// The one anonymous user that requests share.
pub(crate) fn anonymous() -> Arc<UserInfo> {
    static ANONYMOUS: OnceLock<Arc<UserInfo>> = OnceLock::new();
    ANONYMOUS.get_or_init(|| Arc::new(UserInfo::anonymous())).clone()
}

/// The users that the server's own tasks act as, by the names of kube-controller-manager and kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemUser {
    /// Deletes objects whose owners are gone.
    GarbageCollector,
    /// Empties namespaces that are being deleted.
    NamespaceController,
    /// Everything else that the server does by itself.
    ApiServer,
}

impl SystemUser {
    pub(crate) fn info(self) -> UserInfo {
        let service_account = |name: &str| UserInfo {
            groups: ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]
                .map(str::to_owned)
                .into(),
            ..UserInfo::named(format!("system:serviceaccount:kube-system:{name}"))
        };
        match self {
            Self::GarbageCollector => service_account("generic-garbage-collector"),
            Self::NamespaceController => service_account("namespace-controller"),
            Self::ApiServer => UserInfo {
                groups: ["system:authenticated", "system:masters"].map(str::to_owned).into(),
                ..UserInfo::named("system:apiserver")
            },
        }
    }
}
