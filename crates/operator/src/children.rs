//! The children of an object, all of them at once. In: what is wanted, of any kinds. Out: a set that
//! [`Context::apply_all`](crate::Context::apply_all) makes true: what is in it is applied, what no longer is goes.

use konverge_core::ObjectKey;
use konverge_runtime::{Cache, Error, Result};
use kube::core::ApiResource;
use serde_json::Value;

use crate::engine::Engine;
use crate::kind::{Kind, Scope};

/// All children an object is to have. Whatever of these kinds was applied as one of them before and is not any more, is
/// deleted: a child that is only sometimes wanted is a [`maybe`](Children::maybe), so that its kind is known also when
/// it is not.
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
/// Children may lie in other namespaces. An operator that looks at some namespaces only ([`Settings`](crate::Settings))
/// finds those of before in these namespaces and, as long as it runs, wherever it has wanted one of the kind. So what lies
/// elsewhere and is given up while the operator does not run is found only if another child of the kind is wanted there:
/// a namespace whose children come and go is one to look at.
#[derive(Debug)]
#[must_use = "children do nothing until they are applied"]
pub struct Children {
    pub(crate) set: String,
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) kinds: Vec<ChildKind>,
}

/// A child before it is placed.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub kind: ChildKind,
    pub config: Result<Value>,
}

/// A kind among the children.
#[derive(Clone, Debug)]
pub(crate) struct ChildKind {
    pub api: ApiResource,
    pub scope: Scope,
    /// Where its objects are found, for one that lies in this namespace.
    pub cache: fn(&Engine, Option<&str>) -> Cache,
    /// Wherever they may be.
    pub anywhere: fn(&Engine) -> Vec<Cache>,
}

impl ChildKind {
    pub fn of<T: Kind>() -> Self {
        Self {
            api: T::resource(),
            scope: T::scope(),
            cache: |engine, namespace| engine.owned::<T>(namespace),
            anywhere: |engine| engine.owned_anywhere::<T>(),
        }
    }
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

    /// One of several sets of an object, each with a name of its own, valid as a label: they do not prune each other.
    pub fn named(set: impl Into<String>) -> Self {
        Self { set: set.into(), wanted: Vec::new(), kinds: Vec::new() }
    }

    /// This one is wanted.
    #[allow(clippy::should_implement_trait, reason = "children are added to a set, nothing is summed")]
    pub fn add<T: Kind>(self, child: T) -> Self {
        self.all([child])
    }

    /// This one is wanted, if there is one.
    pub fn maybe<T: Kind>(self, child: Option<T>) -> Self {
        self.all(child)
    }

    /// These are wanted. An empty list says that none of the kind is: those from before go.
    pub fn all<T: Kind>(mut self, children: impl IntoIterator<Item = T>) -> Self {
        let kind = ChildKind::of::<T>();
        if !self.kinds.iter().any(|known| known.api == kind.api) {
            self.kinds.push(kind.clone());
        }
        let wanted =
            |child: T| Wanted { kind: kind.clone(), config: serde_json::to_value(&child).map_err(Error::from) };
        self.wanted.extend(children.into_iter().map(wanted));
        self
    }
}

/// What became of a set of children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Converged {
    /// How many were made.
    pub created: usize,
    /// How many were changed.
    pub updated: usize,
    /// How many were as wanted already.
    pub unchanged: usize,
    /// Those that were no longer wanted: their kind, and which.
    pub pruned: Vec<(String, ObjectKey)>,
}
