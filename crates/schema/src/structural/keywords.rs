//! Keywords that CRDs may not use, or not together. In: a schema. Out: an error for each, in the order of the schema.

use konverge_core::{FieldError, FieldPath};
use serde_json::{Value, json};

use crate::json_schema_props::{Additional, Items, Props};

/// What a schema inherits from the schemas around it.
#[derive(Clone, Default)]
struct Inherited {
    root: bool,
    /// Inside apiVersion, kind or metadata of the object or of an embedded resource.
    in_meta: bool,
    /// Why defaults are not allowed.
    no_defaults: Option<String>,
}

pub(super) fn check(props: Props<'_>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(props, path, &Inherited { root: true, ..Inherited::default() }, &mut errors);
    errors
}

fn walk(props: Props<'_>, path: &FieldPath, inherited: &Inherited, errors: &mut Vec<FieldError>) {
    unsupported(props, path, inherited, errors);
    if props.flag("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(path.child("uniqueItems"), why));
    }
    let inside = Inherited { root: false, ..inherited.clone() };
    let properties = props.named("properties");
    if let Some(additional) = props.additional() {
        let at = path.child("additionalProperties");
        if !properties.is_empty() && !matches!(additional, Additional::Bool(true)) {
            errors.push(FieldError::forbidden(at.clone(), "additionalProperties and properties are mutual exclusive"));
        }
        if let Additional::Schema(value) = additional {
            let mut inherited = inside.clone();
            if inherited.in_meta {
                inherited.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            walk(value, &at, &inherited, errors);
        }
    }
    for (name, property) in &properties {
        let mut inner = inside.clone();
        if (inherited.root || props.embedded()) && matches!(*name, "metadata" | "kind" | "apiVersion") {
            inner.in_meta = true;
            if inherited.root {
                inner.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        walk(*property, &path.child("properties").key(name), &inner, errors);
    }
    if let Some(not) = props.schema("not") {
        walk(not, &path.child("not"), &inside, errors);
    }
    for keyword in ["allOf", "oneOf", "anyOf"] {
        for (at, member) in props.schemas(keyword).enumerate() {
            walk(member, &path.child(keyword).index(at), &inside, errors);
        }
    }
    for keyword in ["definitions", "dependencies"] {
        for (name, schema) in props.named(keyword) {
            walk(schema, &path.child(keyword).key(name), &inside, errors);
        }
    }
    match props.items() {
        Some(Items::One(item)) => walk(item, &path.child("items"), &inside, errors),
        Some(Items::Many(items)) => {
            for (at, item) in items.into_iter().enumerate() {
                walk(item, &path.child("items").index(at), &inside, errors);
            }
        }
        None => {}
    }
    if props.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(at, false.into(), "must be true or undefined"));
    }
    map_type(props, path, errors);
    list_type(props, path, errors);
    list_map_keys(props, path, errors);
    keyed_items(props, path, errors);
    rules(props, path, errors);
}

fn unsupported(props: Props<'_>, path: &FieldPath, inherited: &Inherited, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let kind = props.type_name();
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(path.child("type"), kind.into(), TYPES));
    }
    if let (Some(reason), Some(_)) = (&inherited.no_defaults, props.get("default")) {
        errors.push(FieldError::forbidden(path.child("default"), format!("must not be set {reason}")));
    }
    let filled = |keyword: &str| props.get(keyword).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let present = [
        ("id", !props.text("id").is_empty()),
        ("additionalItems", props.get("additionalItems").is_some()),
        ("patternProperties", filled("patternProperties")),
        ("definitions", filled("definitions")),
        ("dependencies", props.get("dependencies").is_some()),
        ("$ref", props.get("$ref").is_some()),
    ];
    for (keyword, _) in present.into_iter().filter(|(_, present)| *present) {
        errors.push(FieldError::forbidden(path.child(keyword), format!("{keyword} is not supported")));
    }
    if kind == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(path.child("type"), why));
    }
    if let Some(Items::Many(_)) = props.items() {
        errors.push(FieldError::forbidden(path.child("items"), "items must be a schema object and not an array"));
    }
    if inherited.in_meta && props.embedded() {
        let at = path.child("x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(at, "must not be used inside of resource meta"));
    }
}

/// `type` must be `expected` where `keyword` is used.
fn needs_type(props: Props<'_>, expected: &str, keyword: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let why = format!("must be {expected} if {keyword} is specified");
    errors.push(match props.type_name() {
        "" => FieldError::required(path.child("type"), why),
        other => FieldError::invalid(path.child("type"), other.into(), why),
    });
}

fn map_type(props: Props<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(kind) = props.map_type() else { return };
    if props.type_name() != "object" {
        needs_type(props, "object", "x-kubernetes-map-type", path, errors);
    }
    if !matches!(kind, "atomic" | "granular") {
        let at = path.child("x-kubernetes-map-type");
        errors.push(FieldError::not_supported(at, kind.into(), ["atomic", "granular"]));
    }
}

fn list_type(props: Props<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(kind) = props.list_type() else { return };
    let items = path.child("items");
    if props.type_name() != "array" {
        needs_type(props, "array", "x-kubernetes-list-type", path, errors);
    } else if let (true, Some(item)) = (kind == "set", props.item()) {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let shown = item.list_type().map_or(Value::Null, Value::from);
        match item.type_name() {
            "array" if item.list_type().is_some_and(|kind| kind != "atomic") => {
                errors.push(FieldError::invalid(items.child("x-kubernetes-list-type"), shown, why));
            }
            "object" if item.map_type() != Some("atomic") => {
                errors.push(FieldError::invalid(items.child("x-kubernetes-map-type"), shown, why));
            }
            _ => {}
        }
    }
    if !matches!(kind, "atomic" | "set" | "map") {
        let at = path.child("x-kubernetes-list-type");
        errors.push(FieldError::not_supported(at, kind.into(), ["atomic", "set", "map"]));
    }
}

fn list_map_keys(props: Props<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let keys = props.map_keys();
    let list_type = path.child("x-kubernetes-list-type");
    if !keys.is_empty() {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        match props.list_type() {
            None => errors.push(FieldError::required(list_type, why)),
            Some("map") => {}
            Some(other) => errors.push(FieldError::invalid(list_type, other.into(), why)),
        }
    }
    if props.list_type() != Some("map") {
        return;
    }
    let at = path.child("x-kubernetes-list-map-keys");
    let items = path.child("items");
    if keys.is_empty() {
        errors.push(FieldError::required(at.clone(), "must not be empty if x-kubernetes-list-type is map"));
    }
    let item = match props.items() {
        None => {
            errors.push(FieldError::required(items, "must have a schema if x-kubernetes-list-type is map"));
            return;
        }
        Some(Items::Many(many)) => {
            let shown = Value::from(many.into_iter().map(Props::json).collect::<Vec<_>>());
            let why = "must only have a single schema if x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(items, shown, why));
            return;
        }
        Some(Items::One(item)) => item,
    };
    if item.type_name() != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(items.child("type"), item.type_name().into(), why));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        match item.property(key).map(Props::type_name) {
            None => {
                errors.push(FieldError::invalid(
                    at.clone(),
                    json!(keys),
                    "entries must all be names of item properties",
                ));
            }
            Some("array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let at = items.child("properties").key(key).child("type");
                errors.push(FieldError::invalid(at, item.type_name().into(), why));
            }
            Some(_) => {}
        }
        if keys[..index].contains(key) {
            errors.push(FieldError::invalid(at.clone(), json!(keys), "must not contain duplicate entries"));
        }
    }
}

/// Items of a set or map must not be nullable, and must have the keys of the map.
fn keyed_items(props: Props<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (Some(kind @ ("set" | "map")), Some(item)) = (props.list_type(), props.item()) else { return };
    let items = path.child("items");
    if item.nullable() {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        errors.push(FieldError::forbidden(items.child("nullable"), why));
    }
    if kind == "set" {
        return;
    }
    for key in props.map_keys() {
        let Some(property) = item.property(key) else { continue };
        let at = items.child("properties").key(key);
        let in_keys = "this property is in x-kubernetes-list-map-keys, so it";
        if !item.texts("required").any(|name| name == key) && property.get("default").is_none() {
            let why = format!("{in_keys} must have a default or be a required property");
            errors.push(FieldError::required(at.child("default"), why));
        }
        if property.nullable() {
            errors.push(FieldError::forbidden(at.child("nullable"), format!("{in_keys} cannot be nullable")));
        }
    }
}

/// The form of `x-kubernetes-validations`.
fn rules(props: Props<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let broken = |text: &str| text.contains(['\n', '\r']);
    for (at, rule) in props.schemas("x-kubernetes-validations").enumerate() {
        let path = path.child("x-kubernetes-validations").index(at);
        let (expression, message) = (rule.text("rule").trim(), rule.text("message"));
        if expression.is_empty() {
            errors.push(FieldError::required(path.child("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(path.child("message"), message.into(), "must be non-empty if specified"));
        } else if broken(message.trim()) {
            errors.push(FieldError::invalid(path.child("message"), message.into(), "must not contain line breaks"));
        } else if broken(expression) && message.trim().is_empty() {
            let why = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(path.child("message"), why));
        }
        let computed = rule.text("messageExpression");
        if !computed.is_empty() && computed.trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(path.child("messageExpression"), why));
        }
        if let Some(reason) = rule.get("reason").filter(|reason| !REASONS.iter().any(|known| reason == known)) {
            errors.push(FieldError::not_supported(path.child("reason"), reason.clone(), REASONS));
        }
        let field = rule.text("fieldPath");
        if !field.is_empty() && field.trim().is_empty() {
            errors.push(FieldError::invalid(path.child("fieldPath"), field.into(), "must be non-empty if specified"));
        }
        if broken(field) {
            errors.push(FieldError::invalid(path.child("fieldPath"), field.into(), "must not contain line breaks"));
        }
    }
}
