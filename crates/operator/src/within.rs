//! Reads beyond the namespace of the object that is reconciled. In: a namespace, or none for all. Out: objects, from the cache
//! where there is one.

use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Error, Result};

use crate::builders::Selector;
use crate::engine::Engine;
use crate::kind::{Kind, Scope};

/// One namespace, or all that the operator looks at, as a reconcile sees it: see [`Context::within`](crate::Context::within)
/// and [`Context::everywhere`](crate::Context::everywhere). Kinds without namespaces are the same everywhere.
#[derive(Clone, Copy)]
pub struct Within<'a> {
    engine: &'a Engine,
    namespace: Option<&'a str>,
    absence: Absence,
}

/// What it means that a cache does not have an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// There is none, or the watch will tell.
    Believed,
    /// The server is asked: a write whose answer was lost may have come through, and a cleanup that misses what it made
    /// is not repeated.
    Doubted,
}

impl<'a> Within<'a> {
    pub(crate) fn new(engine: &'a Engine, namespace: Option<&'a str>, absence: Absence) -> Self {
        Self { engine, namespace, absence }
    }

    /// An object, if it is there.
    pub async fn get<T: Kind>(self, name: &str) -> Result<Option<T>> {
        self.engine.get(&self.key_of::<T>(name)?, self.absence).await
    }

    /// The objects of a kind.
    pub async fn list<T: Kind>(self) -> Result<Vec<T>> {
        self.engine.list(self.namespace_of::<T>(), &LabelSelector::default(), self.absence).await
    }

    /// The objects of a kind that have these labels.
    pub async fn list_by<T: Kind>(self, selector: Selector) -> Result<Vec<T>> {
        let terms: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let selector = LabelSelector::parse(&terms.join(",")).map_err(Error::permanent)?;
        self.engine.list(self.namespace_of::<T>(), &selector, self.absence).await
    }

    /// The objects of a kind that an index finds under a value: see [`Operator::index`](crate::Operator::index).
    pub async fn list_by_index<T: Kind>(self, index: &str, value: &str) -> Result<Vec<T>> {
        self.engine.list_by_index(self.namespace_of::<T>(), index, value, self.absence).await
    }

    /// Deletes an object; that there is none is fine.
    pub async fn delete<T: Kind>(self, name: &str) -> Result<()> {
        self.engine.delete::<T>(&self.key_of::<T>(name)?, self.absence).await
    }

    fn namespace_of<T: Kind>(&self) -> Option<&'a str> {
        self.namespace.filter(|_| T::scope() == Scope::Namespaced)
    }

    fn key_of<T: Kind>(&self, name: &str) -> Result<ObjectKey> {
        let namespace = self.namespace_of::<T>();
        if namespace.is_none() && T::scope() == Scope::Namespaced {
            return Err(no_namespace(&T::kind(&()), name));
        }
        Ok(ObjectKey::new(namespace, name))
    }
}

/// Something that is in a namespace cannot be reached without one.
pub(crate) fn no_namespace(kind: &str, name: &str) -> Error {
    Error::permanent(format!(
        "{kind} {name} needs a namespace, and none is given: name one, by .namespace(…) for what is applied, by \
         ctx.within(…) for what is read or deleted"
    ))
}
