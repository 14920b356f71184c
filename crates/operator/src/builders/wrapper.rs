//! What all builders share, written once: a wrapper around a published type, and for kinds the metadata on top.

use std::collections::BTreeMap;

use super::words::Labels;

/// A builder around a published type: conversions both ways, and the way in for what it has no method for.
macro_rules! wrapper {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name($raw);

        impl $name {
            /// Changes whatever this builder has no method for, in the type Kubernetes publishes.
            pub fn patch(mut self, change: impl FnOnce(&mut $raw)) -> Self {
                change(&mut self.0);
                self
            }

            /// The type Kubernetes publishes.
            pub fn inner(&self) -> &$raw {
                &self.0
            }

            /// The type Kubernetes publishes, owned.
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

/// A builder for a kind: a [`wrapper`] with a name, metadata, and the names by which the API knows it.
/// A kind that runs pods says so (`with pods`) and labels them along with itself.
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

            /// Puts it into `namespace` instead of its owner's.
            pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
                self.0.metadata.namespace = Some(namespace.into());
                self
            }

            /// Adds a label.
            pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
                self.labels($crate::builders::Labels::new().insert(key, value))
            }

            /// Adds labels; on what runs pods, to the pods as well.
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

/// The way to the raw spec of a kind, for what its builder has no method for.
macro_rules! spec {
    ($name:ident, $spec:ty) => {
        impl $name {
            /// Changes whatever this builder has no method for, in the spec Kubernetes publishes.
            pub fn spec(mut self, change: impl FnOnce(&mut $spec)) -> Self {
                change($crate::builders::wrapper::Place::place(&mut self.0.spec));
                self
            }
        }
    };
}

pub(super) use {kind, spec, wrapper};

/// A spec that is there, or is put there: some kinds have one in any case, others may do without.
pub trait Place<T> {
    /// The spec.
    fn place(&mut self) -> &mut T;
}

impl<T> Place<T> for T {
    fn place(&mut self) -> &mut T {
        self
    }
}

impl<T: Default> Place<T> for Option<T> {
    fn place(&mut self) -> &mut T {
        self.get_or_insert_default()
    }
}

/// What else of a kind carries its labels.
pub trait LabelPods {
    /// Labels the pods too; most kinds have none.
    fn label_pods(&mut self, _labels: &Labels) {}
}

/// Metadata with this name.
pub fn named(name: impl Into<String>) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta { name: Some(name.into()), ..Default::default() }
}

/// Adds to a map that may not be there yet.
pub fn add(map: &mut Option<BTreeMap<String, String>>, more: impl IntoIterator<Item = (String, String)>) {
    map.get_or_insert_default().extend(more);
}

/// Puts `item` into a list that may not be there yet, in the place of one with the same key.
pub fn put<T, K: PartialEq>(list: &mut Option<Vec<T>>, item: T, key: impl Fn(&T) -> K) {
    put_into(list.get_or_insert_default(), item, key);
}

/// Puts `item` into a list, in the place of one with the same key.
pub fn put_into<T, K: PartialEq>(list: &mut Vec<T>, item: T, key: impl Fn(&T) -> K) {
    match list.iter_mut().find(|known| key(known) == key(&item)) {
        Some(known) => *known = item,
        None => list.push(item),
    }
}

/// Owned words.
pub fn texts(all: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    all.into_iter().map(Into::into).collect()
}
