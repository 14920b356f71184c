//! Rust types of Kubernetes objects: one trait for builders, for the user's own kinds and for published types.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::{GroupVersionKind, ObjectKey};
use kube::Resource;
use kube::core::ApiResource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::fmt::Debug;

/// A Rust type for the objects of one kind: they can be applied, read, listed, watched and deleted.
///
/// Builders implement it, types with `#[derive(CustomResource)]` do, and so do the types of `k8s-openapi`. A type that kube's
/// own derive made becomes a kind by `impl Kind for Theirs {}`. For kinds without a Rust type there is
/// [`ApiKind`](crate::ApiKind).
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
    /// The group, version and kind.
    fn group_version_kind() -> GroupVersionKind {
        GroupVersionKind {
            group: Self::group(&()).into_owned(),
            version: Self::version(&()).into_owned(),
            kind: Self::kind(&()).into_owned(),
        }
    }

    /// The resource under which kube's own client finds objects of the kind.
    fn resource() -> ApiResource {
        ApiResource::erase::<Self>(&())
    }

    /// Whether objects of the kind live in namespaces.
    fn scope() -> Scope {
        if TypeId::of::<Self::Scope>() == TypeId::of::<NamespaceResourceScope>() {
            Scope::Namespaced
        } else {
            Scope::Cluster
        }
    }

    /// The namespace and name of this object. A child that is applied without a namespace goes into its owner's.
    fn key(&self) -> ObjectKey {
        let meta = self.meta();
        ObjectKey::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// The CRD of the kind, if it is a custom resource whose type knows its schema: what `--print-crds` prints.
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

/// The types of `k8s-openapi`.
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
