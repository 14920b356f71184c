//! What is checked before a Fleet is stored. Rules about single fields belong into the types: they need no running operator.

use konverge::prelude::*;

use super::Fleet;

/// Fills in what a user left out.
pub async fn defaults(request: Admission<Fleet>) -> Result<Fleet> {
    let mut object = request.object().clone();
    let labels = object.metadata.labels.get_or_insert_default();
    labels.entry("app.kubernetes.io/part-of".into()).or_insert("memcached-operator".into());
    Ok(object)
}
