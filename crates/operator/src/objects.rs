//! The objects of one kind as a reconcile reads and writes them. In: names, and desired objects. Out: objects as they are.
//! Reads come from the cache of a watched kind; writes are known to the caches at once.

use std::marker::PhantomData;

use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Error, Patch, Result};
use kube::Resource;
use kube::core::DynamicObject;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api_kind::ApiKind;
use crate::builders::Selector;
use crate::kind::Kind;
use crate::reconciliation::Reconciliation;

/// The objects of one kind in one namespace, or in all that the operator watches: see
/// [`Context::dynamic`](crate::Context::dynamic).
///
/// The methods are those of [`Context`](crate::Context), with the same guarantees and costs, for a kind that is known only
/// at run time.
pub struct Objects<'a, T> {
    reconciliation: &'a Reconciliation,
    kind: ApiKind,
    /// None for all namespaces, and for kinds without namespaces.
    namespace: Option<&'a str>,
    decoded: PhantomData<fn() -> T>,
}

/// What a reconcile makes of it that a cache does not have an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// There is none, or the watch will bring it and reconcile again.
    Believed,
    /// The server is asked. A cleanup runs once: what it misses stays behind, and a write whose answer was lost may have
    /// come through.
    Doubted,
}

impl<'a, T> Objects<'a, T> {
    pub(crate) fn new(reconciliation: &'a Reconciliation, kind: ApiKind, namespace: Option<&'a str>) -> Self {
        let namespace = namespace.filter(|_| kind.is_namespaced());
        Self { reconciliation, kind, namespace, decoded: PhantomData }
    }

    /// The same kind in another namespace.
    pub fn within(self, namespace: &'a str) -> Self {
        Self::new(self.reconciliation, self.kind, Some(namespace))
    }

    /// The same kind in all namespaces that the operator watches, to list in.
    pub fn everywhere(self) -> Self {
        Self { namespace: None, ..self }
    }

    /// Deletes an object; that there is none is fine. See [`Context::delete`](crate::Context::delete).
    pub async fn delete(&self, name: &str) -> Result<()> {
        let Self { reconciliation, kind, .. } = self;
        reconciliation.cached.delete(kind, &self.key_of(name)?, reconciliation.absence()).await
    }

    fn key_of(&self, name: &str) -> Result<ObjectKey> {
        if self.namespace.is_none() && self.kind.is_namespaced() {
            return Err(no_namespace(self.kind.name(), name));
        }
        self.reconciliation.may_reach(self.namespace)?;
        Ok(ObjectKey::new(self.namespace, name))
    }
}

impl<T: DeserializeOwned> Objects<'_, T> {
    /// One object, if it is there. See [`Context::get`](crate::Context::get).
    pub async fn get(&self, name: &str) -> Result<Option<T>> {
        let Self { reconciliation, kind, .. } = self;
        reconciliation.cached.get(kind, &self.key_of(name)?, reconciliation.absence()).await
    }

    /// All objects. See [`Context::list`](crate::Context::list).
    pub async fn list(&self) -> Result<Vec<T>> {
        self.select(&LabelSelector::default()).await
    }

    /// The objects that have these labels.
    pub async fn list_by(&self, selector: Selector) -> Result<Vec<T>> {
        self.select(&label_selector(&selector)?).await
    }

    /// The objects that an index finds under a value. See [`Operator::index`](crate::Operator::index).
    pub async fn list_by_index(&self, index: &str, value: &str) -> Result<Vec<T>> {
        let Self { reconciliation, kind, namespace, .. } = self;
        reconciliation.may_reach(*namespace)?;
        reconciliation.cached.list_by_index(kind, *namespace, (index, value), reconciliation.absence()).await
    }

    /// Changes an object that is there. See [`Context::patch`](crate::Context::patch).
    pub async fn patch(&self, name: &str, patch: Patch) -> Result<T> {
        self.reconciliation.cached.patch(&self.kind, &self.key_of(name)?, patch).await
    }

    async fn select(&self, selector: &LabelSelector) -> Result<Vec<T>> {
        let Self { reconciliation, kind, namespace, .. } = self;
        reconciliation.may_reach(*namespace)?;
        reconciliation.cached.list(kind, *namespace, selector, reconciliation.absence()).await
    }
}

impl<T: Resource + Serialize + DeserializeOwned + Sync> Objects<'_, T> {
    /// Makes an object look like this, as a child of the reconciled object. See [`Context::apply`](crate::Context::apply).
    pub async fn apply(&self, desired: T) -> Result<T> {
        let Self { reconciliation, kind, .. } = self;
        let key = reconciliation.key_of(kind, self.namespace, desired.meta())?;
        let owner = (reconciliation.owner(), reconciliation.adopt()?);
        reconciliation.cached.apply(kind, Some((&owner.0, owner.1)), &key, &desired).await
    }

    /// Makes an object look like this, and leaves it to itself when the reconciled object goes. See
    /// [`Context::apply_unowned`](crate::Context::apply_unowned).
    pub async fn apply_unowned(&self, desired: T) -> Result<T> {
        let Self { reconciliation, kind, .. } = self;
        let key = reconciliation.key_of(kind, self.namespace, desired.meta())?;
        reconciliation.cached.apply(kind, None, &key, &desired).await
    }

    /// Creates an object that must not exist yet. See [`Context::create`](crate::Context::create).
    pub async fn create(&self, object: T) -> Result<T> {
        let Self { reconciliation, kind, .. } = self;
        let namespace = reconciliation.namespace_of(kind, self.namespace, object.meta())?;
        reconciliation.refuse_if_deleting()?;
        reconciliation.cached.create(kind, &reconciliation.owner(), namespace, &object).await
    }

    /// Creates an object unless it is there. See [`Context::create_once`](crate::Context::create_once).
    pub async fn create_once(&self, object: T) -> Result<T> {
        let Self { reconciliation, kind, .. } = self;
        let key = reconciliation.key_of(kind, self.namespace, object.meta())?;
        reconciliation.refuse_if_deleting()?;
        reconciliation.cached.create_once(kind, &reconciliation.owner(), &key, &object).await
    }
}

/// Another namespace, or all that the operator watches, as a reconcile reads it: see
/// [`Context::within`](crate::Context::within) and [`Context::everywhere`](crate::Context::everywhere). Kinds without
/// namespaces are the same everywhere.
#[derive(Clone, Copy)]
pub struct Within<'a> {
    reconciliation: &'a Reconciliation,
    namespace: Option<&'a str>,
}

impl<'a> Within<'a> {
    pub(crate) fn new(reconciliation: &'a Reconciliation, namespace: Option<&'a str>) -> Self {
        Self { reconciliation, namespace }
    }

    /// One object, if it is there.
    pub async fn get<T: Kind>(self, name: &str) -> Result<Option<T>> {
        self.objects::<T>().get(name).await
    }

    /// The objects of a kind.
    pub async fn list<T: Kind>(self) -> Result<Vec<T>> {
        self.objects::<T>().list().await
    }

    /// The objects of a kind that have these labels.
    pub async fn list_by<T: Kind>(self, selector: Selector) -> Result<Vec<T>> {
        self.objects::<T>().list_by(selector).await
    }

    /// The objects of a kind that an index finds under a value: see [`Operator::index`](crate::Operator::index).
    pub async fn list_by_index<T: Kind>(self, index: &str, value: &str) -> Result<Vec<T>> {
        self.objects::<T>().list_by_index(index, value).await
    }

    /// Deletes an object; that there is none is fine.
    pub async fn delete<T: Kind>(self, name: &str) -> Result<()> {
        self.objects::<T>().delete(name).await
    }

    /// Changes an object that is there: see [`Context::patch`](crate::Context::patch).
    pub async fn patch<T: Kind>(self, name: &str, patch: Patch) -> Result<T> {
        self.objects::<T>().patch(name, patch).await
    }

    /// The objects of a kind that is known only at run time.
    pub fn dynamic(self, kind: &ApiKind) -> Objects<'a, DynamicObject> {
        Objects::new(self.reconciliation, kind.clone(), self.namespace)
    }

    pub(crate) fn objects<T: Kind>(self) -> Objects<'a, T> {
        Objects::new(self.reconciliation, ApiKind::of::<T>(), self.namespace)
    }
}

/// The labels as the API has them.
pub(crate) fn label_selector(labels: &Selector) -> Result<LabelSelector> {
    let terms: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    LabelSelector::parse(&terms.join(",")).map_err(Error::permanent)
}

/// An object that lives in a namespace cannot be reached without one.
pub(crate) fn no_namespace(kind: &str, name: &str) -> Error {
    Error::permanent(format!(
        "{kind} {name} needs a namespace, and none is given: name one, by .namespace(…) for what is applied, by \
         ctx.within(…) for what is read or deleted"
    ))
}
