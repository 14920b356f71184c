//! What is checked before a Memcached is stored. Rules about single fields belong into the types: they need no running operator.

use konverge::prelude::*;

use super::Memcached;

/// Fills in what a user left out.
pub async fn defaults(request: Admission<Memcached>) -> Result<Memcached> {
    let mut object = request.object().clone();
    let labels = object.metadata.labels.get_or_insert_default();
    labels.entry("app.kubernetes.io/part-of".into()).or_insert("memcached-operator".into());
    Ok(object)
}

/// Refuses what the operator could not do. `request.old()` is the object before an update, `request.warn` tells without
/// refusing.
pub async fn validate(request: Admission<Memcached>) -> Result<()> {
    let mut errors = FieldErrors::new();
    // The name becomes the value of a label of Pods, which may be no longer.
    if request.name().len() > 63 {
        errors.invalid("metadata.name", request.name(), "must be no more than 63 characters");
    }
    Ok(errors.into_result()?)
}
