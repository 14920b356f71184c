//! The rules that make a schema structural: every value has one type, declared outside of clauses
//! (`allOf`, `anyOf`, …), and clauses only restrict it. In: a schema. Out: the violations, sorted, or the keyword that is
//! not supported at all.

use konverge_core::{FieldError, FieldPath};
use serde_json::{Value, json};

use crate::json_schema_props::{Additional, Items, Props};
use crate::pattern::Pattern;

/// What a schema describes.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Everything that keeps a schema from being structural, sorted by text.
pub(super) fn check(props: Props<'_>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(props, Level::Root, path, &mut errors);
    completeness(props, Some(props), path, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

/// The error for the first keyword that structural schemas do not support at all.
pub(super) fn unsupported_keyword(props: Props<'_>) -> Option<String> {
    let unsupported = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    for (key, name) in unsupported {
        let empty = |value: &Value| value == "" || value.as_object().is_some_and(|map| map.is_empty());
        if props.get(key).is_some_and(|value| key == "additionalItems" || !empty(value)) {
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    if props.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if let Some(Items::Many(_)) = props.items() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    children(props, &FieldPath::root()).into_iter().find_map(|(inner, _)| unsupported_keyword(inner))
}

/// Every schema directly inside another, with its path.
pub(super) fn children<'a>(props: Props<'a>, path: &FieldPath) -> Vec<(Props<'a>, FieldPath)> {
    let mut found = Vec::new();
    match props.items() {
        Some(Items::One(item)) => found.push((item, path.child("items"))),
        Some(Items::Many(items)) => {
            found.extend(items.into_iter().enumerate().map(|(at, item)| (item, path.child("items").index(at))));
        }
        None => {}
    }
    if let Some(Additional::Schema(value)) = props.additional() {
        found.push((value, path.child("additionalProperties")));
    }
    for (name, property) in props.named("properties") {
        found.push((property, path.child("properties").key(name)));
    }
    if let Some(not) = props.schema("not") {
        found.push((not, path.child("not")));
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        found.extend(props.schemas(keyword).enumerate().map(|(at, member)| (member, path.child(keyword).index(at))));
    }
    found
}

fn invariants(props: Props<'_>, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = props.type_name();
    if kind == "array" && props.item().is_none() {
        errors.push(FieldError::required(path.child("items"), "must be specified"));
    }
    if let Some(item) = props.item() {
        invariants(item, Level::Item, &path.child("items"), errors);
    }
    for (name, property) in props.named("properties") {
        invariants(property, Level::Field, &path.child("properties").key(name), errors);
    }
    if let Some(additional) = props.additional() {
        let at = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(at.clone(), "must not be used at the root"));
        }
        if let Additional::Schema(value) = additional {
            invariants(value, Level::Field, &at, errors);
        }
    }
    if props.int_or_string() {
        let excluded = [
            (props.preserves(), "x-kubernetes-preserve-unknown-fields"),
            (props.embedded(), "x-kubernetes-embedded-resource"),
        ];
        for (_, keyword) in excluded.into_iter().filter(|(set, _)| *set) {
            let why = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(path.child(keyword), true.into(), why));
        }
    }
    let first = props.schemas("allOf").next();
    let skip = Skip { any_of: is_int_or_string(props), any_of_of_first: first.is_some_and(is_int_or_string) };
    clauses(props, skip, path, errors);
    type_rules(props, level, path, errors);
    meta_rules(props, level, path, errors);
}

fn type_rules(props: Props<'_>, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = props.type_name();
    let at = path.child("type");
    if props.embedded() && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(at.clone(), why),
            other => FieldError::invalid(at.clone(), other.into(), why),
        });
    } else if kind.is_empty() && !props.int_or_string() && !props.preserves() {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(at.clone(), why));
    }
    if props.embedded() && props.additional().is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(path.child("additionalProperties"), why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(at, kind.into(), "must be object at the root"));
    }
}

/// What a schema may declare about apiVersion, kind and metadata.
fn meta_rules(props: Props<'_>, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let whole = level == Level::Root || props.embedded();
    for name in ["kind", "apiVersion"] {
        let declared = props.property(name).map(Props::type_name);
        if let Some(kind) = declared.filter(|kind| whole && *kind != "string") {
            let at = path.child("properties").key(name).child("type");
            errors.push(FieldError::invalid(at, kind.into(), "must be string"));
        }
    }
    if let Some(meta) = props.property("metadata") {
        let at = path.child("properties").key("metadata");
        if whole && meta.type_name() != "object" {
            errors.push(FieldError::invalid(at.child("type"), meta.type_name().into(), "must be object"));
        }
        if level == Level::Root && restricts_more_than_names(meta) {
            let why =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(at, why));
        }
    }
    let bare = props.embedded() && !props.preserves() && props.named("properties").is_empty();
    if bare {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(path.child("properties"), why));
    }
}

fn restricts_more_than_names(meta: Props<'_>) -> bool {
    let nothing = [json!(null), json!(false), json!(""), json!({})];
    meta.keys().any(|(key, value)| match key {
        "type" | "default" => false,
        "properties" => meta.named("properties").iter().any(|(name, _)| !matches!(*name, "name" | "generateName")),
        _ => !nothing.contains(value),
    })
}

/// The parts of the int-or-string pattern, in which clauses may name types.
#[derive(Clone, Copy, Default)]
struct Skip {
    any_of: bool,
    any_of_of_first: bool,
}

fn is_int_or_string(props: Props<'_>) -> bool {
    props.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

/// The clauses and the pattern of a schema.
fn clauses(props: Props<'_>, skip: Skip, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for keyword in ["anyOf", "allOf", "oneOf"] {
        if keyword == "anyOf" && skip.any_of {
            continue;
        }
        for (at, member) in props.schemas(keyword).enumerate() {
            let inner = Skip { any_of: keyword == "allOf" && at == 0 && skip.any_of_of_first, any_of_of_first: false };
            clause(member, inner, &path.child(keyword).index(at), errors);
        }
    }
    if let Some(not) = props.schema("not") {
        clause(not, Skip::default(), &path.child("not"), errors);
    }
    let pattern = props.text("pattern");
    if let Err(why) = Pattern::new(pattern) {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(path.child("pattern"), pattern.into(), why));
    }
}

/// A member of a clause: it may restrict values, but not declare their types.
fn clause(props: Props<'_>, skip: Skip, path: &FieldPath, errors: &mut Vec<FieldError>) {
    clauses(props, skip, path, errors);
    if let Some(item) = props.item() {
        clause(item, Skip::default(), &path.child("items"), errors);
    }
    let properties = props.named("properties");
    for (name, property) in &properties {
        clause(*property, Skip::default(), &path.child("properties").key(name), errors);
    }
    let undefined = "must be undefined to be structural";
    let empty = "must be empty to be structural";
    let unset = "must be false to be structural";
    let additional = match props.additional() {
        Some(Additional::Bool(allowed)) => allowed,
        Some(Additional::Schema(_)) => true,
        None => false,
    };
    let rules = !props.values("x-kubernetes-validations").is_empty();
    let forbidden = [
        (!props.type_name().is_empty(), "type", empty),
        (additional, "additionalProperties", undefined),
        (props.get("default").is_some(), "default", undefined),
        (!props.text("title").is_empty(), "title", empty),
        (!props.text("description").is_empty(), "description", empty),
        (props.nullable(), "nullable", unset),
        (props.preserves(), "x-kubernetes-preserve-unknown-fields", unset),
        (props.embedded(), "x-kubernetes-embedded-resource", unset),
        (props.int_or_string(), "x-kubernetes-int-or-string", unset),
        (!props.map_keys().is_empty(), "x-kubernetes-list-map-keys", empty),
        (props.list_type().is_some(), "x-kubernetes-list-type", undefined),
        (props.map_type().is_some(), "x-kubernetes-map-type", undefined),
        (rules, "x-kubernetes-validations", empty),
    ];
    for (_, keyword, why) in forbidden.into_iter().filter(|(set, ..)| *set) {
        errors.push(FieldError::forbidden(path.child(keyword), why));
    }
    if properties.iter().any(|(name, _)| *name == "metadata") {
        let at = path.child("properties").key("metadata");
        errors.push(FieldError::forbidden(at, "must not be specified in a nested context"));
    }
}

/// Every field that a clause restricts must be declared outside of it. `props` has the clauses, `shape` the declarations.
fn completeness(
    props: Props<'_>,
    shape: Option<Props<'_>>,
    shape_path: &FieldPath,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = props.schema("not") {
        clause_completeness(not, shape, shape_path, &path.child("not"), errors);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (at, member) in props.schemas(keyword).enumerate() {
            clause_completeness(member, shape, shape_path, &path.child(keyword).index(at), errors);
        }
    }
}

fn clause_completeness(
    props: Props<'_>,
    shape: Option<Props<'_>>,
    shape_path: &FieldPath,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let Some(declared) = shape else {
        errors.push(FieldError::required(shape_path.clone(), format!("because it is defined in {path}")));
        return;
    };
    completeness(props, shape, shape_path, path, errors);
    if let Some(item) = props.item() {
        clause_completeness(item, declared.item(), &shape_path.child("items"), &path.child("items"), errors);
    }
    for (name, property) in props.named("properties") {
        let inner_shape = shape_path.child("properties").key(name);
        let inner = path.child("properties").key(name);
        clause_completeness(property, declared.property(name), &inner_shape, &inner, errors);
    }
}
