//! Redis between v1beta1 and v1.
//!
//! Both versions begin with the same fields, so they are copied as they are. Once the versions differ, say what becomes of each
//! field, and implement `From` instead if nothing can fail:
//!
//! ```text
//! let spec = v1::RedisSpec { size: old.spec.replicas, image: old.spec.image };
//! v1::Redis { metadata: old.metadata, spec, status: None }
//! ```

use konverge::prelude::*;
use konverge::serde_json::{from_value, to_value};

use super::{v1, v1beta1};

impl TryFrom<v1beta1::Redis> for v1::Redis {
    type Error = Error;

    fn try_from(old: v1beta1::Redis) -> Result<Self> {
        Ok(from_value(to_value(old)?)?)
    }
}

impl TryFrom<v1::Redis> for v1beta1::Redis {
    type Error = Error;

    fn try_from(new: v1::Redis) -> Result<Self> {
        Ok(from_value(to_value(new)?)?)
    }
}
