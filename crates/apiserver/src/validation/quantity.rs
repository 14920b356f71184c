//! Quantities in objects. In: values of resource lists. Out: what can be compared, and how Kubernetes prints them.

use serde_json::Value;

use konverge_core::Quantity;
use konverge_schema::canonical_quantity;

/// The quantity of a value. What is not there, or cannot be read, is zero: decoding has refused the latter.
pub(super) fn of(value: &Value) -> Quantity {
    Quantity::of(value).unwrap_or_default()
}

/// A quantity as Kubernetes prints it.
pub(super) fn text(value: &Value) -> String {
    canonical_quantity(value).unwrap_or_else(|| "0".to_owned())
}
