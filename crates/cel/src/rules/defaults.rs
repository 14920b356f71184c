//! The defaults of a definition, judged by its rules when it is written. In: a structural schema. Out: defaults that a rule refuses.

use konverge_core::{FieldError, FieldPath};
use konverge_schema::{Budget, OverBudget};
use serde_json::Value as Json;

use crate::schema::Schema;

use super::RuleSet;

/// Judges the defaults of a schema whose rules compile. `path` is where the schema stands.
///
/// ```
/// use konverge_cel::check_defaults;
/// use konverge_core::FieldPath;
/// use konverge_schema::Budget;
/// use serde_json::json;
/// let size = json!({"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self > 1"}]});
/// let schema = json!({"type": "object", "properties": {"size": size}});
/// let errors = check_defaults(&schema, &FieldPath::new("schema"), Budget::unlimited()).unwrap();
/// assert_eq!(errors[0].to_string(), "schema.properties[size].default: Invalid value: 1: failed rule: self > 1");
/// ```
pub fn check_defaults(schema: &Json, path: &FieldPath, budget: &Budget) -> Result<Vec<FieldError>, OverBudget> {
    let mut errors = Vec::new();
    inside(schema, true, path, budget, &mut errors)?;
    Ok(errors)
}

/// Values of maps have no defaults, so they are not looked at.
fn inside(
    schema: &Json,
    root: bool,
    path: &FieldPath,
    budget: &Budget,
    errors: &mut Vec<FieldError>,
) -> Result<(), OverBudget> {
    budget.spend(1);
    budget.check()?;
    let root = root || schema["x-kubernetes-embedded-resource"] == true;
    if let Some(value) = schema.get("default").filter(|value| !value.is_null()) {
        let schema = if root { Schema::root(schema) } else { Schema::part(schema) };
        if let Some(rules) = RuleSet::of(schema) {
            errors.extend(rules.validate_default(&path.child("default"), value, budget)?);
        }
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        inside(items, false, &path.child("items"), budget, errors)?;
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        inside(property, false, &path.child("properties").key(name), budget, errors)?;
    }
    Ok(())
}
