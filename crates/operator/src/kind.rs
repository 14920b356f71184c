//! What the API knows of a Rust type: one trait for builders, for kinds of the user's own and for published types.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::{GroupVersionKind, ObjectKey};
use kube::Resource;
use kube::core::ApiResource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::fmt::Debug;

/// A type whose values are objects of one kind: they can be applied, read, listed, watched and deleted.
///
/// Builders are, everything with `#[derive(CustomResource)]` is, and so are the types of `k8s-openapi`. A type that
/// another derive made becomes one by `impl Kind for Theirs {}`.
///
/// ```
/// use konverge::prelude::*;
/// use konverge::Scope;
/// assert_eq!(Deployment::group_version_kind().to_string(), "apps/v1, Kind=Deployment");
/// assert_eq!(Deployment::scope(), Scope::Namespaced);
/// assert_eq!(ClusterRole::resource().plural, "clusterroles");
/// ```
pub trait Kind:
    Resource<DynamicType = (), Scope: 'static> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
    /// Its group, version and kind.
    fn group_version_kind() -> GroupVersionKind {
        GroupVersionKind {
            group: Self::group(&()).into_owned(),
            version: Self::version(&()).into_owned(),
            kind: Self::kind(&()).into_owned(),
        }
    }

    /// How the client finds it.
    fn resource() -> ApiResource {
        ApiResource::erase::<Self>(&())
    }

    /// Whether its objects live in namespaces.
    fn scope() -> Scope {
        if TypeId::of::<Self::Scope>() == TypeId::of::<NamespaceResourceScope>() {
            Scope::Namespaced
        } else {
            Scope::Cluster
        }
    }

    /// Its namespace and name. What is to be applied and names no namespace goes where its owner is.
    fn key(&self) -> ObjectKey {
        let meta = self.meta();
        ObjectKey::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// Its CRD, if it is a custom resource that knows its schema: what `--print-crds` prints.
    fn definition() -> Option<CustomResourceDefinition> {
        None
    }
}

/// Where the objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In namespaces.
    Namespaced,
    /// In the cluster, in no namespace.
    Cluster,
}

/// The published types.
impl<K> Kind for K where
    K: k8s_openapi::Resource
        + Resource<DynamicType = (), Scope: 'static>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}
