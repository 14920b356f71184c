//! A kind as a value. In: a Rust type, a description, or what an API server says about itself. Out: what caches, writes
//! and rules are keyed by, so that kinds with a Rust type and kinds that are known only at run time take the same path.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use konverge_core::{GroupVersionKind, ObjectKey};
use konverge_runtime::{Error, NotServed, Result, Target, explain_not_served};
use kube::Client;
use kube::core::ApiResource;
use kube::discovery::pinned_kind;
use parking_lot::RwLock;

use crate::kind::{Kind, Scope};

/// A kind as an API server knows it: group, version, kind, plural name, and whether its objects live in namespaces.
///
/// Use it for kinds that have no Rust type in your program, such as custom resources of others. An [`ApiKind`] is given
/// to [`Operator::dynamic`](crate::Operator::dynamic), which reconciles objects of such a kind, and to
/// [`Context::dynamic`](crate::Context::dynamic), which reads and writes them. Clones are cheap.
///
/// ```
/// use konverge::prelude::*;
/// use konverge::Scope;
///
/// let widgets = ApiKind::new("example.com/v1", "Widget", "widgets", Scope::Namespaced);
/// assert_eq!(widgets.to_string(), "Widget.example.com");
/// assert_eq!(ApiKind::of::<Deployment>().resource().plural, "deployments");
/// ```
#[derive(Clone, Eq)]
pub struct ApiKind(Arc<Inner>);

#[derive(PartialEq, Eq)]
struct Inner {
    resource: ApiResource,
    scope: Scope,
}

/// The kinds of Rust types. Every apply asks for one, and describing a kind anew would take six allocations. There are
/// as many entries as the program has types, so nothing is ever removed.
static TYPED: LazyLock<RwLock<HashMap<TypeId, ApiKind>>> = LazyLock::new(RwLock::default);

impl ApiKind {
    /// A kind that is described in full. `api_version` is what objects say, `example.com/v1`, or `v1` for the core group;
    /// `plural` is the name in URLs and in RBAC rules. Nothing is checked: an operator waits until the server serves the
    /// kind, and a request for a kind that the server does not know fails.
    pub fn new(api_version: &str, kind: &str, plural: &str, scope: Scope) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        Self::from_resource(resource, scope)
    }

    /// The kind of a Rust type.
    pub fn of<T: Kind>() -> Self {
        let id = TypeId::of::<T>();
        if let Some(known) = TYPED.read().get(&id) {
            return known.clone();
        }
        let kind = Self::from_resource(T::resource(), T::scope());
        TYPED.write().entry(id).or_insert(kind).clone()
    }

    /// Asks the server how it serves a kind: its plural name and its scope. `api_version` is what objects of the kind
    /// say, `example.com/v1`, or `v1` for the core group.
    ///
    /// One request, which every authenticated client may make by default. A kind that is not served is an error that says
    /// what the server serves instead, another version for example, and has the reason `NotServed`. A reconcile is retried
    /// then, because somebody may install the kind. Described with [`ApiKind::new`], a kind need not be there: the operator
    /// waits for it.
    pub async fn discover(client: &Client, api_version: &str, kind: &str) -> Result<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let wanted = kube::core::GroupVersionKind::gvk(group, version, kind);
        match pinned_kind(client, &wanted).await {
            Ok((resource, found)) => Ok(Self::from_resource(resource, found.scope.into())),
            Err(kube::Error::Discovery(_)) => Err(not_served(client, &wanted).await),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(not_served(client, &wanted).await),
            Err(error) => Err(error.into()),
        }
    }

    /// A kind as kube's discovery describes it.
    pub fn from_resource(resource: ApiResource, scope: Scope) -> Self {
        Self(Arc::new(Inner { resource, scope }))
    }

    /// How kube's own client finds objects of the kind.
    pub fn resource(&self) -> &ApiResource {
        &self.0.resource
    }

    /// Whether its objects live in namespaces.
    pub fn scope(&self) -> Scope {
        self.0.scope
    }

    /// Its group, version and kind.
    pub fn group_version_kind(&self) -> GroupVersionKind {
        let ApiResource { group, version, kind, .. } = self.resource();
        GroupVersionKind { group: group.clone(), version: version.clone(), kind: kind.clone() }
    }

    /// Its name alone: `Deployment`.
    pub(crate) fn name(&self) -> &str {
        &self.0.resource.kind
    }

    /// Whether its objects live in namespaces.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.0.scope == Scope::Namespaced
    }

    /// What to watch of it: one namespace, or everything.
    pub(crate) fn target(&self, namespace: Option<&str>) -> Target {
        let all = Target::all(self.resource().clone());
        match namespace {
            Some(namespace) if self.is_namespaced() => all.within(namespace),
            _ => all,
        }
    }

    /// The key that a text means: `namespace/name`, or `name` alone, which is in the namespace `default` if objects of
    /// this kind are in any.
    pub(crate) fn key_of(&self, text: &str) -> ObjectKey {
        match (self.scope(), text.split_once('/')) {
            (Scope::Namespaced, Some((namespace, name))) => ObjectKey::new(Some(namespace), name),
            (Scope::Namespaced, None) => ObjectKey::new(Some("default"), text),
            (Scope::Cluster, _) => ObjectKey::new(None, text),
        }
    }
}

async fn not_served(client: &Client, wanted: &kube::core::GroupVersionKind) -> Error {
    let resource = ApiResource { plural: String::new(), ..ApiResource::from_gvk(wanted) };
    let why = explain_not_served(client, &resource, None).await;
    NotServed::new(&resource, why).into()
}

impl From<kube::discovery::Scope> for Scope {
    fn from(scope: kube::discovery::Scope) -> Self {
        match scope {
            kube::discovery::Scope::Namespaced => Self::Namespaced,
            kube::discovery::Scope::Cluster => Self::Cluster,
        }
    }
}

impl PartialEq for ApiKind {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl std::hash::Hash for ApiKind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.resource.hash(state);
    }
}

/// `Widget.example.com`; `Pod` for the core group.
impl fmt::Display for ApiKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ApiResource { group, kind, .. } = self.resource();
        f.write_str(kind)?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ApiKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ApiResource { api_version, kind, plural, .. } = self.resource();
        write!(f, "ApiKind({kind} of {api_version}, {plural}, {:?})", self.scope())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{ClusterRole, Deployment};

    #[test]
    fn a_type_and_its_description_are_the_same_kind() {
        for (typed, described) in [
            (ApiKind::of::<Deployment>(), ApiKind::new("apps/v1", "Deployment", "deployments", Scope::Namespaced)),
            (
                ApiKind::of::<ClusterRole>(),
                ApiKind::new("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", Scope::Cluster),
            ),
            (ApiKind::of::<k8s_openapi::api::core::v1::Pod>(), ApiKind::new("v1", "Pod", "pods", Scope::Namespaced)),
        ] {
            assert_eq!(typed, described);
        }
        assert_ne!(ApiKind::of::<Deployment>(), ApiKind::new("apps/v1", "Deployment", "deployments", Scope::Cluster));
    }
}
