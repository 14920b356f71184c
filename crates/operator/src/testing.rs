//! What a test kit needs of an operator: single reconciles, single reviews of webhooks, conversions between versions, keys as
//! text, and how an error is retried. Tests use it through `konverge-testkit`.

use konverge_core::ObjectKey;

pub use crate::test_conversions::TestConversions;
pub use crate::test_reconciler::{InProcess, TestReconciler};
pub use crate::test_webhooks::{TestWebhook, TestWebhooks};
pub use crate::webhook::{LocalHandler, LocalWebhooks, ServedLocally};
pub use konverge_runtime::{Retry, retry};

use crate::api_kind::ApiKind;
use crate::kind::Kind;

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
    ApiKind::of::<T>().key_of(text)
}
