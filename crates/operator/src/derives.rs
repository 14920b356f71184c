//! One name for a trait and its derive, as serde and schemars have it, only that the derive is ours.

pub use konverge_macros::{CustomResource, Deserialize, JsonSchema, Serialize};
pub use serde::de::Deserialize;
pub use serde::ser::Serialize;

/// schemars exports trait and derive under one name. A name imported by itself wins over one from a glob, and only in
/// its own namespace: so the trait comes from here and the derive from above.
mod traits {
    pub use schemars::JsonSchema;
}

pub use traits::*;
