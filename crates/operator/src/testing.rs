//! What a test kit needs of an operator: single reconciles, keys as text, and the verdict on an error. Tests use it
//! through `konverge-testkit`.

use konverge_core::ObjectKey;

pub use crate::operator::Trial;
pub use konverge_runtime::{Retry, retry};

use crate::kind::{Kind, Scope};

/// The key that a text means for a kind: `namespace/name`, or `name` alone, which is in the namespace `default` if
/// objects of this kind are in any.
///
/// ```
/// use konverge::prelude::*;
/// use konverge::testing::key_of;
/// assert_eq!(key_of::<Deployment>("shop/web").to_string(), "shop/web");
/// assert_eq!(key_of::<Deployment>("web").to_string(), "default/web");
/// assert_eq!(key_of::<ClusterRole>("reader").to_string(), "reader");
/// ```
pub fn key_of<T: Kind>(text: &str) -> ObjectKey {
    match (T::scope(), text.split_once('/')) {
        (Scope::Namespaced, Some((namespace, name))) => ObjectKey::new(Some(namespace), name),
        (Scope::Namespaced, None) => ObjectKey::new(Some("default"), text),
        (Scope::Cluster, _) => ObjectKey::new(None, text),
    }
}
