//! What is checked before a Redis is stored. Rules about single fields belong into the types: they need no running operator.

use konverge::prelude::*;

use super::Redis;

/// Refuses what the operator could not do. `request.old()` is the object before an update, `request.warn` tells without
/// refusing.
pub async fn validate(request: Admission<Redis>) -> Result<()> {
    let mut errors = FieldErrors::new();
    // The name becomes the value of a label of Pods, which may be no longer.
    if request.name().len() > 63 {
        errors.invalid("metadata.name", request.name(), "must be no more than 63 characters");
    }
    Ok(errors.into_result()?)
}
