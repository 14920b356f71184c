//! What all builders share: a wrapper around a published type, and for kinds the metadata on top.

use std::collections::BTreeMap;

use super::words::Labels;

/// A builder around a published type: conversions both ways, and the escape hatch for what it has no method for.
macro_rules! wrapper {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name($raw);

        impl $name {
            /// Changes fields that this builder has no method for, in the type that Kubernetes publishes.
            pub fn patch(mut self, change: impl FnOnce(&mut $raw)) -> Self {
                change(&mut self.0);
                self
            }

            /// The object as the type that Kubernetes publishes, to read fields that this builder has no method for.
            pub fn inner(&self) -> &$raw {
                &self.0
            }

            /// The object as the type that Kubernetes publishes, owned.
            pub fn into_inner(self) -> $raw {
                self.0
            }
        }

        impl From<$raw> for $name {
            fn from(raw: $raw) -> Self {
                Self(raw)
            }
        }

        impl From<$name> for $raw {
            fn from(builder: $name) -> Self {
                builder.0
            }
        }
    };
}

/// A builder for a kind: a [`wrapper`] with a name, metadata, and the names by which the API knows it. A kind that runs
/// pods (`with pods`) labels them along with itself.
macro_rules! kind {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $crate::builders::wrapper::kind! { $(#[$doc])* $name($raw) with pods }
        impl $crate::builders::wrapper::LabelPods for $raw {}
    };
    ($(#[$doc:meta])* $name:ident($raw:ty) with pods) => {
        $crate::builders::wrapper::wrapper! { $(#[$doc])* $name($raw) }

        impl $name {
            /// Its name.
            pub fn name(&self) -> &str {
                self.0.metadata.name.as_deref().unwrap_or_default()
            }

            /// Puts it into `namespace`. Without this, an applied child goes into its owner's namespace.
            pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
                self.0.metadata.namespace = Some(namespace.into());
                self
            }

            /// Adds a label.
            pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
                self.labels($crate::builders::Labels::new().insert(key, value))
            }

            /// Adds labels; kinds that run pods add them to the pods as well.
            pub fn labels(mut self, labels: impl Into<$crate::builders::Labels>) -> Self {
                let labels = labels.into();
                $crate::builders::wrapper::add(&mut self.0.metadata.labels, labels.clone());
                $crate::builders::wrapper::LabelPods::label_pods(&mut self.0, &labels);
                self
            }

            /// The label `key`, if it has one.
            pub fn get_label(&self, key: &str) -> Option<&str> {
                self.0.metadata.labels.as_ref()?.get(key).map(String::as_str)
            }

            /// Adds an annotation.
            pub fn annotation(self, key: impl Into<String>, value: impl Into<String>) -> Self {
                self.annotations($crate::builders::Annotations::new().insert(key, value))
            }

            /// Adds annotations.
            pub fn annotations(mut self, annotations: impl Into<$crate::builders::Annotations>) -> Self {
                $crate::builders::wrapper::add(&mut self.0.metadata.annotations, annotations.into());
                self
            }

            /// The annotation `key`, if it has one.
            pub fn get_annotation(&self, key: &str) -> Option<&str> {
                self.0.metadata.annotations.as_ref()?.get(key).map(String::as_str)
            }
        }

        impl $crate::Kind for $name {}

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = <$raw as kube::Resource>::Scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                <$raw as kube::Resource>::kind(&())
            }

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                <$raw as kube::Resource>::group(&())
            }

            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                <$raw as kube::Resource>::version(&())
            }

            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                <$raw as kube::Resource>::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.0.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.0.metadata
            }
        }
    };
}

/// The escape hatch to the spec of a kind. Kubernetes' types require a spec of some kinds and not of others; builders hide
/// the difference.
macro_rules! spec {
    ($name:ident, $spec:ty) => {
        impl $name {
            /// Changes fields of the spec that this builder has no method for, in the type that Kubernetes publishes. A
            /// spec that is not there is created.
            pub fn spec(mut self, change: impl FnOnce(&mut $spec)) -> Self {
                change($crate::builders::wrapper::SpecField::get_or_create(&mut self.0.spec));
                self
            }

            /// The spec in the type that Kubernetes publishes, to read fields that this builder has no method for. Only an
            /// object that was read from elsewhere can be without one.
            pub fn get_spec(&self) -> Option<&$spec> {
                $crate::builders::wrapper::SpecField::get(&self.0.spec)
            }
        }
    };
}

pub(super) use {kind, spec, wrapper};

/// The field `spec` of a published type: required of some kinds, optional of others.
pub(super) trait SpecField<T> {
    /// The spec, if there is one.
    fn get(&self) -> Option<&T>;

    /// The spec, created if there is none.
    fn get_or_create(&mut self) -> &mut T;
}

impl<T> SpecField<T> for T {
    fn get(&self) -> Option<&T> {
        Some(self)
    }

    fn get_or_create(&mut self) -> &mut T {
        self
    }
}

impl<T: Default> SpecField<T> for Option<T> {
    fn get(&self) -> Option<&T> {
        self.as_ref()
    }

    fn get_or_create(&mut self) -> &mut T {
        self.get_or_insert_default()
    }
}

/// Where the labels of a kind go besides its own metadata.
pub(super) trait LabelPods {
    /// Labels the pods of the kind as well; most kinds have none.
    fn label_pods(&mut self, _labels: &Labels) {}
}

/// Metadata with this name.
pub(super) fn named(name: impl Into<String>) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta { name: Some(name.into()), ..Default::default() }
}

/// Adds entries to an optional map.
pub(super) fn add(map: &mut Option<BTreeMap<String, String>>, more: impl IntoIterator<Item = (String, String)>) {
    map.get_or_insert_default().extend(more);
}

/// Adds `item` to an optional list, in the place of an item with the same key.
pub(super) fn put<T, K: PartialEq>(list: &mut Option<Vec<T>>, item: T, key: impl Fn(&T) -> K) {
    put_into(list.get_or_insert_default(), item, key);
}

/// Adds `item` to a list, in the place of an item with the same key.
pub(super) fn put_into<T, K: PartialEq>(list: &mut Vec<T>, item: T, key: impl Fn(&T) -> K) {
    match list.iter_mut().find(|known| key(known) == key(&item)) {
        Some(known) => *known = item,
        None => list.push(item),
    }
}

/// Owned texts.
pub(super) fn texts(all: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    all.into_iter().map(Into::into).collect()
}
