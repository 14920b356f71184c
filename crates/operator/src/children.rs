//! A set of children. In: desired objects of any kinds. Out: what [`Context::apply_all`](crate::Context::apply_all) applies,
//! and the kinds whose former children it deletes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_core::ObjectKey;
use konverge_runtime::{Error, Result};
use kube::Resource;
use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use crate::api_kind::ApiKind;
use crate::kind::Kind;

/// All children that an object is to have, for [`Context::apply_all`](crate::Context::apply_all). Former children of the
/// set's kinds that are no longer in it are deleted. So a child that is only sometimes desired is added by
/// [`maybe`](Children::maybe): then its kind belongs to the set also when there is no child.
///
/// ```
/// # use konverge::prelude::*;
/// # use konverge::Children;
/// # let host: Option<String> = None;
/// Children::new()
///     .add(Deployment::new("web").replicas(3))
///     .maybe(host.map(|host| Ingress::new("web").rule(IngressRule::new().host(host).path("/", "web", 80))))
///     .all(["a", "b"].map(|name| ConfigMap::new(name)));
/// ```
///
/// Children may lie in other namespaces. An operator that watches some namespaces only ([`Settings`](crate::Settings))
/// finds former children in these namespaces and, while it runs, in every namespace where it applied a child of the kind.
/// A child elsewhere that is given up while the operator does not run stays, unless another child of the kind is desired in
/// the same namespace. So let the operator watch namespaces whose children come and go.
#[derive(Debug)]
#[must_use = "children do nothing until they are applied"]
pub struct Children {
    pub(crate) set: String,
    pub(crate) desired: Vec<Desired>,
    pub(crate) kinds: Vec<ApiKind>,
}

/// A child whose namespace is not decided yet.
#[derive(Debug)]
pub(crate) struct Desired {
    pub kind: ApiKind,
    pub meta: ObjectMeta,
    pub config: Result<Value>,
}

impl Default for Children {
    fn default() -> Self {
        Self::new()
    }
}

impl Children {
    /// No children yet.
    pub fn new() -> Self {
        Self::named("children")
    }

    /// One of several sets of an object, each with a name of its own, valid as a label value: sets do not prune each other.
    pub fn named(set: impl Into<String>) -> Self {
        Self { set: set.into(), desired: Vec::new(), kinds: Vec::new() }
    }

    /// Adds a child.
    #[allow(clippy::should_implement_trait, reason = "children are added to a set, nothing is summed")]
    pub fn add<T: Kind>(self, child: T) -> Self {
        self.all([child])
    }

    /// Adds a child if there is one. If there is none, a former child of the kind is deleted.
    pub fn maybe<T: Kind>(self, child: Option<T>) -> Self {
        self.all(child)
    }

    /// Adds children of one kind. If there are none, all former children of the kind are deleted.
    pub fn all<T: Kind>(self, children: impl IntoIterator<Item = T>) -> Self {
        self.of_kind(ApiKind::of::<T>(), children)
    }

    /// Adds children of a kind that is known only at run time; otherwise like [`Children::all`].
    pub fn dynamic(self, kind: &ApiKind, children: impl IntoIterator<Item = DynamicObject>) -> Self {
        self.of_kind(kind.clone(), children)
    }

    fn of_kind<T: Resource + Serialize>(mut self, kind: ApiKind, children: impl IntoIterator<Item = T>) -> Self {
        if !self.kinds.contains(&kind) {
            self.kinds.push(kind.clone());
        }
        let desired = |child: T| Desired {
            kind: kind.clone(),
            meta: name_and_namespace(child.meta()),
            config: serde_json::to_value(&child).map_err(Error::from),
        };
        self.desired.extend(children.into_iter().map(desired));
        self
    }
}

/// The part of the metadata that decides where a child goes.
fn name_and_namespace(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta { name: meta.name.clone(), namespace: meta.namespace.clone(), ..ObjectMeta::default() }
}

/// What [`Context::apply_all`](crate::Context::apply_all) did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Converged {
    /// How many children were created.
    pub created: usize,
    /// How many were changed.
    pub updated: usize,
    /// How many were as desired already.
    pub unchanged: usize,
    /// The children that were deleted, because they are no longer desired: kind and key.
    pub pruned: Vec<(String, ObjectKey)>,
}
