//! A kind that a controller watches besides its own. In: a kind, selectors, and a function from a changed object to the keys
//! it concerns. Out: a target and a trigger for the engine.

use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_core::{FieldSelector, LabelSelector, ObjectKey};
use konverge_runtime::{Error, Mode, Object, Result, Target, Trigger};
use kube::core::{DynamicObject, PartialObjectMeta};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api_kind::ApiKind;
use crate::cached_client::CachedClient;
use crate::kind::Kind;
use crate::predicate::Predicate;

type MapObject = Arc<dyn Fn(&Object) -> Vec<ObjectKey> + Send + Sync>;

/// Another kind that a controller watches, and the keys of the reconciled objects that a change of it concerns.
///
/// ```
/// # use konverge::prelude::*;
/// # use konverge::Watch;
/// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
/// # pub struct ShopSpec { image: String }
/// // Every Shop is named after the ConfigMap it is configured by; of Secrets only the names matter.
/// Operator::<Shop>::new()
///     .watch(Watch::new(|map: &ConfigMap| vec![map.key()]).matching_labels("for=shops"))
///     .watch(Watch::<Secret>::metadata(|secret| vec![ObjectKey::new(secret.namespace.as_deref(), "shop")]));
/// ```
///
/// A watch of some objects, or of metadata only, serves as a trigger and is not read from:
/// [`Context::get`](crate::Context::get) and [`Context::list`](crate::Context::list) show all objects of a kind, whatever is
/// watched of it.
#[must_use = "a watch does nothing until a controller has it"]
pub struct Watch<T> {
    kind: ApiKind,
    selection: Selection,
    mode: Mode,
    predicate: Predicate<T>,
    map: MapObject,
    decoded: PhantomData<fn(T)>,
}

impl<T: Kind> Watch<T> {
    /// Watches a kind. `map` returns the keys of the objects to reconcile when an object of the kind changes. For a change
    /// it is called twice, with the object as it was and as it is, and all keys count.
    pub fn new(map: impl Fn(&T) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        Self::decoding(ApiKind::of::<T>(), map)
    }

    /// The same for a kind of which only the metadata matters: the server sends no more than that, and no more is kept in
    /// memory. So a predicate sees the metadata only, as [`PartialObjectMeta`]:
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # use konverge::kube::core::PartialObjectMeta;
    /// let labelled = Watch::<Secret>::metadata(|secret| vec![ObjectKey::new(secret.namespace.as_deref(), "shop")])
    ///     .when(Predicate::labels_changed());
    /// let annotated = Watch::<Secret>::metadata(|secret| vec![ObjectKey::new(secret.namespace.as_deref(), "shop")])
    ///     .when(Predicate::new(|old: &PartialObjectMeta<Secret>, new| old.metadata.annotations != new.metadata.annotations));
    /// ```
    pub fn metadata(
        map: impl Fn(&ObjectMeta) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Watch<PartialObjectMeta<T>> {
        #[derive(Deserialize)]
        struct Partial {
            metadata: ObjectMeta,
        }
        let map = move |object: &Object| object.decode::<Partial>().map(|part| map(&part.metadata)).unwrap_or_default();
        Watch::over(ApiKind::of::<T>(), Mode::Metadata, Arc::new(map))
    }
}

impl Watch<DynamicObject> {
    /// Watches a kind that is known only at run time; otherwise like [`Watch::new`].
    pub fn dynamic(kind: &ApiKind, map: impl Fn(&DynamicObject) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        Self::decoding(kind.clone(), map)
    }
}

impl<T> Watch<T> {
    /// Only objects with these labels, as `kubectl -l` takes it: `tier=gold,!retired`.
    pub fn matching_labels(mut self, selector: &str) -> Self {
        self.selection.labels(selector);
        self
    }

    /// Only objects with these fields, as `kubectl --field-selector` takes it: `type=kubernetes.io/tls`.
    pub fn matching_fields(mut self, selector: &str) -> Self {
        self.selection.fields(selector);
        self
    }

    /// Only changes that a predicate lets through. Deletions always count.
    pub fn when(mut self, predicate: Predicate<T>) -> Self {
        self.predicate = predicate;
        self
    }

    pub(crate) fn kind(&self) -> &ApiKind {
        &self.kind
    }

    /// Begins to watch.
    pub(crate) fn begin(&self, cached: &CachedClient) -> Result<()> {
        let kind = &self.kind;
        self.selection.check(kind.name())?;
        let map = self.map.clone();
        let trigger = Trigger::mapped(kind.name(), move |object| map(object)).when(self.predicate.engine());
        for namespace in cached.watched_namespaces(kind) {
            let target = self.selection.narrow(cached.target(kind, namespace)).mode(self.mode);
            cached.controller.watch(target, trigger.clone());
        }
        Ok(())
    }

    fn over(kind: ApiKind, mode: Mode, map: MapObject) -> Self {
        let (selection, predicate) = (Selection::default(), Predicate::always());
        Self { kind, selection, mode, predicate, map, decoded: PhantomData }
    }
}

impl<T: DeserializeOwned> Watch<T> {
    fn decoding(kind: ApiKind, map: impl Fn(&T) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        // An object that does not decode concerns nobody; the watch has reported it.
        let map = move |object: &Object| object.decode::<T>().map(|object| map(&object)).unwrap_or_default();
        Self::over(kind, Mode::Full, Arc::new(map))
    }
}

/// Which objects of a kind are watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// A selector that does not parse. Builders cannot fail, so the error is returned at the start.
    wrong: Option<String>,
}

impl Selection {
    pub(crate) fn labels(&mut self, selector: &str) {
        match LabelSelector::parse(selector) {
            Ok(labels) => self.labels = labels,
            Err(error) => self.wrong = Some(format!("the label selector {selector:?} does not read: {error}")),
        }
    }

    pub(crate) fn fields(&mut self, selector: &str) {
        match FieldSelector::parse(selector) {
            Ok(fields) => self.fields = fields,
            Err(error) => self.wrong = Some(format!("the field selector {selector:?} does not read: {error}")),
        }
    }

    /// Whether the selectors can be used.
    pub(crate) fn check(&self, kind: &str) -> Result<()> {
        match &self.wrong {
            Some(wrong) => Err(Error::permanent(format!("{kind} cannot be watched: {wrong}"))),
            None => Ok(()),
        }
    }

    /// The target with these selectors.
    pub(crate) fn narrow(&self, target: Target) -> Target {
        target.labelled(&self.labels).fielded(self.fields.to_string())
    }
}
