//! Maps of texts: labels and annotations of an object, and the labels that a selector asks for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(BTreeMap<String, String>);

        impl $name {
            /// An empty map.
            pub fn new() -> Self {
                Self::default()
            }

            /// Sets `key` to `value`.
            pub fn insert(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
                self.0.insert(key.into(), value.into());
                self
            }

            /// The value of `key`.
            pub fn get(&self, key: &str) -> Option<&str> {
                self.0.get(key).map(String::as_str)
            }

            /// All entries, sorted by key.
            pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
                self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
            }
        }

        impl IntoIterator for $name {
            type Item = (String, String);
            type IntoIter = std::collections::btree_map::IntoIter<String, String>;

            fn into_iter(self) -> Self::IntoIter {
                self.0.into_iter()
            }
        }

        impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for $name {
            fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
                Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
            }
        }

        impl<K: Into<String>, V: Into<String>, const N: usize> From<[(K, V); N]> for $name {
            fn from(pairs: [(K, V); N]) -> Self {
                pairs.into_iter().collect()
            }
        }

        impl From<BTreeMap<String, String>> for $name {
            fn from(pairs: BTreeMap<String, String>) -> Self {
                Self(pairs)
            }
        }

        impl From<$name> for BTreeMap<String, String> {
            fn from(words: $name) -> Self {
                words.0
            }
        }
    };
}

words! {
    /// Labels of an object.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let labels = Labels::new().insert("app", "web").insert("tier", "front");
    /// assert_eq!(labels, Labels::from([("tier", "front"), ("app", "web")]));
    /// ```
    Labels
}

words! {
    /// Annotations of an object.
    Annotations
}

words! {
    /// Labels that an object must have to be selected.
    Selector
}

impl From<Selector> for LabelSelector {
    fn from(selector: Selector) -> Self {
        let match_labels = (!selector.0.is_empty()).then_some(selector.0);
        LabelSelector { match_labels, match_expressions: None }
    }
}

/// The labels that a selector asks for are mostly those that objects are given.
impl From<Labels> for Selector {
    fn from(labels: Labels) -> Self {
        Self(labels.0)
    }
}
