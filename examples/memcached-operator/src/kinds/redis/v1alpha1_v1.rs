//! Redis between v1alpha1 and v1.
//! By way of v1beta1, whose conversions are in files of their own.

use konverge::prelude::*;

use super::{v1, v1alpha1, v1beta1};

impl TryFrom<v1alpha1::Redis> for v1::Redis {
    type Error = Error;

    fn try_from(old: v1alpha1::Redis) -> Result<Self> {
        let between = v1beta1::Redis::try_from(old)?;
        let new = between.try_into()?;
        Ok(new)
    }
}

impl TryFrom<v1::Redis> for v1alpha1::Redis {
    type Error = Error;

    fn try_from(new: v1::Redis) -> Result<Self> {
        let between = v1beta1::Redis::try_from(new)?;
        let old = between.try_into()?;
        Ok(old)
    }
}
