//! Custom resources, judged by their definition. In: an object, and the one before it. Out: the errors of its schema, then those
//! of its rules in CEL, and warnings about what was wrong before and has not changed.

use konverge_core::{FieldError, FieldErrorKind, FieldPath};
use konverge_schema::{Budget, OverBudget, validate, validate_update};
use serde_json::Value;

use super::embedded;
use crate::resource::ResourceSchema;

/// The errors of a custom resource, except those of its metadata.
pub(crate) fn validate_object(
    schema: &ResourceSchema,
    old: Option<&Value>,
    object: &Value,
    warnings: &mut Vec<String>,
    budget: &Budget,
) -> Result<Vec<FieldError>, OverBudget> {
    let mut errors = match old {
        Some(old) => validate_update(&schema.arena, schema.root, object, old, budget)?,
        None => validate(&schema.arena, schema.root, object, budget)?,
    };
    errors.extend(embedded::check_metadata(schema, object, budget)?);
    let Some(rules) = &schema.rules else { return Ok(errors) };
    if errors.iter().any(hides_rules) {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                   complete validation";
        errors.push(FieldError::invalid(FieldPath::root(), Value::Null, why));
        return Ok(errors);
    }
    let outcome = rules.validate(object, old, budget)?;
    errors.extend(outcome.errors);
    warnings.extend(outcome.warnings);
    Ok(errors)
}

/// Whether an object with this error may have values that rules cannot read, or so many that they take too long.
fn hides_rules(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}
