//! Who makes a request. In: what authentication found out, as a request extension. Out: the user that authorization,
//! admission and logs see.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use konverge_core::{NameRule, check_name};

/// The user that makes a request, with the fields of `authentication.k8s.io` `UserInfo`.
///
/// A listener asks [`ApiServer::authenticate`](crate::ApiServer::authenticate) and puts the `UserInfo` into the extensions of
/// each request; a request without one comes from [`UserInfo::anonymous`].
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
        Self { groups: vec![UNAUTHENTICATED.into()], ..Self::named(ANONYMOUS) }
    }
}

/// The one anonymous user that requests share.
pub(crate) fn anonymous() -> Arc<UserInfo> {
    static SHARED: OnceLock<Arc<UserInfo>> = OnceLock::new();
    SHARED.get_or_init(|| Arc::new(UserInfo::anonymous())).clone()
}

/// The group whose members may do everything. No authorizer is asked about them.
pub(crate) const MASTERS: &str = "system:masters";

/// The name of everybody who has shown no credential.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// The group of everybody who has shown no credential.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The name of a service account as a user.
pub(crate) fn service_account_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Namespace and name of the service account that a user is.
pub(crate) fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let valid = |name: &str, rule| check_name(name, rule, false).is_empty();
    (valid(namespace, NameRule::Label) && valid(name, NameRule::Subdomain)).then_some((namespace, name))
}

/// The groups of a service account.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The users that the server's own tasks act as, by the names of kube-controller-manager and kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemUser {
    /// Deletes objects whose owners are gone.
    GarbageCollector,
    /// Empties namespaces that are being deleted.
    NamespaceController,
    /// Collects the rules of aggregated cluster roles.
    AggregationController,
    /// Everything else that the server does by itself.
    ApiServer,
}

impl SystemUser {
    pub(crate) fn info(self) -> UserInfo {
        let service_account = |name: &str| {
            let mut groups = service_account_groups("kube-system");
            groups.push("system:authenticated".to_owned());
            UserInfo { groups, ..UserInfo::named(service_account_name("kube-system", name)) }
        };
        match self {
            Self::GarbageCollector => service_account("generic-garbage-collector"),
            Self::NamespaceController => service_account("namespace-controller"),
            Self::AggregationController => service_account("clusterrole-aggregation-controller"),
            Self::ApiServer => UserInfo {
                groups: ["system:authenticated", MASTERS].map(str::to_owned).into(),
                ..UserInfo::named("system:apiserver")
            },
        }
    }
}
