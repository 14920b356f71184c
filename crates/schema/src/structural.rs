//! Validation of the schema of a CRD, when the CRD is written. In: `openAPIV3Schema` and its path. Out: every problem as a
//! field error, with the texts of kube-apiserver. Rules in CEL are checked for their form only. Unknown formats
//! pass: `unknown_formats` names them so that the writer can be warned.

use konverge_core::{FieldError, FieldErrorKind, FieldPath};
use serde_json::Value;

use crate::budget::{Budget, OverBudget};
use crate::format::Format;
use crate::json_schema_props::Props;

mod defaults;
mod keywords;
mod shape;

/// Validates the schema of one version, and its defaults against the schema, which costs as much as validating objects.
///
/// `path` is the path of the field with the schema: `spec.validation.openAPIV3Schema` when all versions have the same
/// schema, `spec.versions[i].schema.openAPIV3Schema` otherwise. `status` tells whether the status subresource is enabled.
///
/// ```
/// use konverge_core::FieldPath;
/// use konverge_schema::{Budget, check_schema};
/// use serde_json::json;
/// let path = FieldPath::new("spec.validation.openAPIV3Schema");
/// let errors = check_schema(&json!({"type": "string"}), false, &path, &Budget::new(1000, 1000)).unwrap();
/// assert_eq!(
///     errors[0].to_string(),
///     "spec.validation.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root"
/// );
/// ```
pub fn check_schema(
    schema: &Value,
    status: bool,
    path: &FieldPath,
    budget: &Budget,
) -> Result<Vec<FieldError>, OverBudget> {
    let Some(props) = Props::new(schema) else { return Ok(Vec::new()) };
    let mut errors = Vec::new();
    if status {
        errors.extend(status_at_root(props, path));
    }
    if props.nullable() {
        errors.push(FieldError::forbidden(path.child("nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = shape::unsupported_keyword(props);
    if unsupported.is_none() {
        let structural = shape::check(props, path);
        if structural.is_empty() {
            errors.extend(defaults::check(schema, path, budget));
        } else {
            errors.extend(structural);
        }
    }
    errors.extend(keywords::check(props, path));
    if let (true, Some(why)) = (errors.is_empty(), unsupported) {
        errors.push(FieldError::invalid(path.clone(), "".into(), why));
    }
    budget.check().map(|()| errors)
}

/// The unknown formats of a schema: kube-apiserver warns about them and checks nothing.
pub fn unknown_formats(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(props) = Props::new(schema) {
        collect_formats(props, &mut found);
    }
    found
}

fn collect_formats(props: Props<'_>, found: &mut Vec<String>) {
    let format = props.text("format");
    let types = match (props.int_or_string(), props.type_name()) {
        (true, _) => vec!["integer", "string"],
        (false, "") => vec![],
        (false, name) => vec![name],
    };
    if !format.is_empty() && Format::new(format, &types).is_none() {
        found.push(format.to_owned());
    }
    for (inner, _) in shape::children(props, &FieldPath::root()) {
        collect_formats(inner, found);
    }
}

/// With the status subresource only some keywords are allowed at the root, because `status` is validated separately.
fn status_at_root(props: Props<'_>, path: &FieldPath) -> Option<FieldError> {
    const ALLOWED: [(&str, &str); 22] = [
        ("Description", "description"),
        ("Type", "type"),
        ("Format", "format"),
        ("Title", "title"),
        ("Maximum", "maximum"),
        ("ExclusiveMaximum", "exclusiveMaximum"),
        ("Minimum", "minimum"),
        ("ExclusiveMinimum", "exclusiveMinimum"),
        ("MaxLength", "maxLength"),
        ("MinLength", "minLength"),
        ("Pattern", "pattern"),
        ("MaxItems", "maxItems"),
        ("MinItems", "minItems"),
        ("UniqueItems", "uniqueItems"),
        ("MultipleOf", "multipleOf"),
        ("Required", "required"),
        ("Items", "items"),
        ("Properties", "properties"),
        ("ExternalDocs", "externalDocs"),
        ("Example", "example"),
        ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
        ("XValidations", "x-kubernetes-validations"),
    ];
    let kind = props.type_name();
    if !kind.is_empty() && kind != "object" {
        let why =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(FieldError::invalid(path.child("type"), kind.into(), why));
    }
    let set = |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value != "";
    let known = |key: &str| ALLOWED.iter().any(|(_, allowed)| *allowed == key);
    props.keys().find(|(key, value)| set(value) && !known(key))?;
    let names: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    let why = format!(
        "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
        names.join(" ")
    );
    Some(FieldError::new(FieldErrorKind::Invalid, path.clone(), Some(props.json()), why))
}
