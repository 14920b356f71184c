//! The metadata of embedded resources. In: an object of a custom kind. Out: the first value that cannot be decoded, and the errors
//! in names, labels, annotations, owners and finalizers, as kube-apiserver has them for metadata of any object.

use std::ops::ControlFlow;

use serde_json::Value;

use konverge_core::FieldError;
use konverge_schema::{Budget, OverBudget, check_types, size, visit_embedded};

use crate::meta;
use crate::resource::ResourceSchema;

/// Refuses an embedded resource whose apiVersion, kind or metadata have the wrong JSON types.
pub(crate) fn check_embedded_types(schema: &ResourceSchema, object: &Value) -> Result<(), FieldError> {
    let refused = visit_embedded(&schema.arena, schema.root, object, &mut |embedded| {
        let (path, value) = (|name: &str| embedded.path().child(name), embedded.value);
        for name in ["apiVersion", "kind"] {
            if let Some(given) = value.get(name).filter(|given| !given.is_string()) {
                return ControlFlow::Break(FieldError::invalid(path(name), given.clone(), "must be a string"));
            }
        }
        if let (Some(ty), Some(given)) = (schema.arena.field(embedded.ty, "metadata"), value.get("metadata"))
            && let Err(why) = check_types(&schema.arena, ty, given)
        {
            return ControlFlow::Break(FieldError::invalid(path("metadata"), given.clone(), why.to_string()));
        }
        ControlFlow::Continue(())
    });
    match refused {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The errors in the metadata of embedded resources. Updates report them even if nothing of them has changed.
pub(super) fn check_metadata(
    schema: &ResourceSchema,
    object: &Value,
    budget: &Budget,
) -> Result<Vec<FieldError>, OverBudget> {
    let mut errors = Vec::new();
    let walked: ControlFlow<()> = visit_embedded(&schema.arena, schema.root, object, &mut |embedded| {
        if embedded.value["metadata"].is_object() {
            let path = || embedded.path().child("metadata");
            // A long path or value is repeated in every error.
            let paid =
                |error: &FieldError| budget.produce(error.path.as_str().len() + error.value.as_ref().map_or(0, size));
            errors.extend(meta::check_embedded(embedded.value, path).into_iter().filter(paid));
        }
        if budget.check().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    debug_assert!(walked.is_continue() || budget.check().is_err());
    budget.check().map(|()| errors)
}
