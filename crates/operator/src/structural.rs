//! Structural schemas. In: a Rust type. Out: its schema in the form that Kubernetes requires in a CRD: every node has one
//! type, `oneOf` and `anyOf` contain no properties of their own, there are no references, and only formats and keywords that
//! the API server knows.
//!
//! A type that has no such schema (a value that is a string or an object, a recursive type) becomes a node that accepts
//! anything; serde still checks the value when the object is decoded. Never fails and never panics.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

const PRESERVE_UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// The keywords that a node of a CRD's schema may have besides `x-kubernetes-…`.
const KEYWORDS: &[&str] = &[
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
];

/// The string formats that the API server validates. It warns about every other format.
const STRING_FORMATS: &[&str] = &[
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "date-time",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8s-long-name",
    "k8s-short-name",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// The keywords that stay in a branch of a union after its properties were moved to the node.
const BRANCH_CHECKS: &[&str] = &["required", "oneOf", "anyOf", "allOf", "not", "minProperties", "maxProperties"];

/// The structural schema of `K`, for a CRD.
pub(crate) fn structural<K: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<K>().to_value();
    make_structural(&mut schema);
    if let Value::Object(root) = &mut schema {
        root.remove("title");
    }
    schema
}

/// Makes a node and everything below it structural.
fn make_structural(schema: &mut Value) {
    let Value::Object(map) = schema else {
        *schema = json!({ PRESERVE_UNKNOWN: true });
        return;
    };
    // All other references are inlined, so this one belongs to a recursive type.
    if map.remove("$ref").is_some() {
        map.insert(PRESERVE_UNKNOWN.to_owned(), true.into());
    }
    // A tuple: every item has the type of any member.
    if let Some(members @ Value::Array(_)) = map.get("items").cloned() {
        map.insert("items".to_owned(), json!({ "anyOf": members }));
    }
    convert_children(map);
    convert_object(map);
    convert_array(map);
    convert_number(map);
    for union in ["oneOf", "anyOf"] {
        if let Some(Value::Array(branches)) = map.remove(union) {
            merge_union(map, union, branches);
        }
    }
    if let Some(Value::Array(parts)) = map.remove("allOf") {
        merge_all_of(map, parts);
    }
    finish_node(map);
}

fn convert_children(map: &mut Map<String, Value>) {
    for key in ["properties", "patternProperties"] {
        if let Some(Value::Object(properties)) = map.get_mut(key) {
            properties.values_mut().for_each(convert_value);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child @ Value::Object(_)) = map.get_mut(key) {
            convert_value(child);
        }
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        if let Some(Value::Array(branches)) = map.get_mut(key) {
            branches.iter_mut().for_each(make_structural);
        }
    }
}

/// Makes the schema of a value structural. Kubernetes requires a type also for a value that is always null, as `()` is.
fn convert_value(schema: &mut Value) {
    make_structural(schema);
    if is_null(schema) {
        *schema = json!({ PRESERVE_UNKNOWN: true, "nullable": true });
    }
}

/// A map has `additionalProperties` and a struct has `properties`; Kubernetes does not allow both in one node.
fn convert_object(map: &mut Map<String, Value>) {
    let of_pattern = match map.remove("patternProperties") {
        Some(Value::Object(patterns)) => patterns.into_iter().next().map(|(_, schema)| schema),
        _ => None,
    };
    let is_struct = matches!(map.get("properties"), Some(Value::Object(properties)) if !properties.is_empty());
    let additional = match map.remove("additionalProperties") {
        None | Some(Value::Bool(false)) => of_pattern,
        other => other,
    };
    match additional {
        Some(schema @ Value::Object(_)) if !is_struct => {
            map.insert("additionalProperties".to_owned(), schema);
        }
        Some(_) => {
            map.insert(PRESERVE_UNKNOWN.to_owned(), true.into());
        }
        None => {}
    }
}

/// All items of a list have one schema, and a set is expressed by `x-kubernetes-list-type`.
fn convert_array(map: &mut Map<String, Value>) {
    let unique = map.remove("uniqueItems") == Some(Value::Bool(true));
    if map.get("type").and_then(Value::as_str) != Some("array") {
        return;
    }
    if !matches!(map.get("items"), Some(Value::Object(_))) {
        map.insert("items".to_owned(), json!({ PRESERVE_UNKNOWN: true }));
    }
    let scalar = matches!(map["items"]["type"].as_str(), Some("string" | "integer" | "number" | "boolean"));
    if unique && scalar && map["items"]["nullable"] != true {
        map.entry("x-kubernetes-list-type").or_insert("set".into());
    }
}

/// Kubernetes knows `int32` and `int64`; Rust's other integer types become ranges of these.
fn convert_number(map: &mut Map<String, Value>) {
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if let Some(Value::Number(limit)) = map.get(exclusive).cloned() {
            map.insert(bound.to_owned(), limit.into());
            map.insert(exclusive.to_owned(), true.into());
        }
    }
    let format = map.get("format").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (known, limits): (Option<&str>, Option<(i64, i64)>) = match (type_of(map), format.as_str()) {
        (Some("integer"), "int8") => (Some("int32"), Some((i8::MIN.into(), i8::MAX.into()))),
        (Some("integer"), "int16") => (Some("int32"), Some((i16::MIN.into(), i16::MAX.into()))),
        (Some("integer"), "uint8") => (Some("int32"), Some((0, u8::MAX.into()))),
        (Some("integer"), "uint16") => (Some("int32"), Some((0, u16::MAX.into()))),
        (Some("integer"), "uint32") => (Some("int64"), Some((0, u32::MAX.into()))),
        (Some("integer"), "uint64" | "uint" | "uint128") => (Some("int64"), Some((0, i64::MAX))),
        (Some("integer"), "int" | "int128") => (Some("int64"), None),
        (Some("integer"), "int32" | "int64") => return,
        (Some("number"), "float" | "double") => return,
        (Some("string"), format) if STRING_FORMATS.contains(&format) => return,
        _ => (None, None),
    };
    map.remove("format");
    if let Some(known) = known {
        map.insert("format".to_owned(), known.into());
    }
    if let Some((least, most)) = limits {
        map.entry("minimum").or_insert(least.into());
        // `int64` has this maximum already.
        if most != i64::MAX {
            map.entry("maximum").or_insert(most.into());
        }
    }
}

/// Merges the alternatives of a union into the node itself.
fn merge_union(map: &mut Map<String, Value>, union: &str, branches: Vec<Value>) {
    let (nulls, branches): (Vec<_>, Vec<_>) = branches.into_iter().partition(is_null);
    if !nulls.is_empty() || branches.iter().any(|branch| branch["nullable"] == true) {
        map.insert("nullable".to_owned(), true.into());
    }
    let mut branches: Vec<Map<_, _>> = branches.into_iter().filter_map(into_object).collect();
    if branches.len() == 1 {
        for (key, value) in branches.remove(0) {
            map.entry(key).or_insert(value);
        }
        return;
    }
    let mut types: Vec<&str> = branches.iter().map(|branch| type_of(branch).unwrap_or_default()).collect();
    types.sort_unstable();
    types.dedup();
    let merged = match types.as_slice() {
        ["object"] => return merge_objects(map, union, branches),
        ["string"] => merge_strings(&branches),
        ["array"] => {
            let items: Vec<_> = branches.iter_mut().filter_map(|branch| branch.remove("items")).collect();
            let mut items = json!({ "anyOf": items });
            make_structural(&mut items);
            json!({ "type": "array", "items": items })
        }
        ["integer", "number"] | ["number"] => json!({ "type": "number" }),
        ["integer"] => json!({ "type": "integer" }),
        ["boolean"] => json!({ "type": "boolean" }),
        ["integer", "string"] => json!({ INT_OR_STRING: true }),
        _ => json!({ PRESERVE_UNKNOWN: true }),
    };
    map.extend(into_object(merged).unwrap_or_default());
}

/// Merges alternatives that are strings. If each of them is an enum, the result is the enum of all values.
fn merge_strings(branches: &[Map<String, Value>]) -> Value {
    let values: Option<Vec<&Vec<Value>>> =
        branches.iter().map(|branch| branch.get("enum").and_then(Value::as_array)).collect();
    match values {
        Some(values) => {
            let mut all: Vec<&Value> = Vec::new();
            for value in values.into_iter().flatten() {
                if !all.contains(&value) {
                    all.push(value);
                }
            }
            json!({ "type": "string", "enum": all })
        }
        None => json!({ "type": "string" }),
    }
}

/// Moves the properties of all branches to the node. A branch keeps only the keywords that distinguish it from the others.
fn merge_objects(map: &mut Map<String, Value>, union: &str, branches: Vec<Map<String, Value>>) {
    map.insert("type".to_owned(), "object".into());
    remove_placeholders(map, &branches);
    let mut checks = Vec::new();
    for mut branch in branches {
        let mut check = Map::new();
        let mut properties = match branch.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        // A variant with one property: its doc comment becomes the description of that property.
        if let (1, Some(description)) = (properties.len(), branch.remove("description")) {
            for property in properties.values_mut().filter_map(Value::as_object_mut) {
                property.entry("description").or_insert(description.clone());
            }
        }
        for (name, mut property) in properties {
            if let Some(property) = property.as_object_mut() {
                // The server would set the default in objects of other variants as well.
                property.remove("default");
                // A tag: an enum with one value.
                if let Some([_]) = property.get("enum").and_then(Value::as_array).map(Vec::as_slice) {
                    let tags = check.entry("properties").or_insert(json!({}));
                    tags[&name] = json!({ "enum": property["enum"] });
                }
            }
            add_property(map, name, property);
        }
        if branch.contains_key("additionalProperties") || branch.contains_key(PRESERVE_UNKNOWN) {
            map.insert(PRESERVE_UNKNOWN.to_owned(), true.into());
        }
        for key in BRANCH_CHECKS {
            check.extend(branch.remove_entry(*key));
        }
        checks.push(Value::Object(check));
    }
    // A branch without keywords accepts every object, and then so does the union.
    let accepts_all = |check: &Value| check.as_object().is_some_and(Map::is_empty);
    if !checks.iter().any(accepts_all) && checks.len() > 1 {
        map.insert(union.to_owned(), checks.into());
    }
}

/// Merges the parts of an `allOf` (several flattened enums) into the node itself.
fn merge_all_of(map: &mut Map<String, Value>, parts: Vec<Value>) {
    let mut checks = Vec::new();
    let parts: Vec<Map<_, _>> = parts.into_iter().filter_map(into_object).collect();
    remove_placeholders(map, &parts);
    for mut part in parts {
        if let Some(Value::Object(properties)) = part.remove("properties") {
            for (name, property) in properties {
                add_property(map, name, property);
            }
        }
        if let Some(ty) = part.remove("type") {
            map.entry("type").or_insert(ty);
        }
        if part.contains_key(PRESERVE_UNKNOWN) {
            map.insert(PRESERVE_UNKNOWN.to_owned(), true.into());
        }
        let check: Map<_, _> = BRANCH_CHECKS.iter().filter_map(|key| part.remove_entry(*key)).collect();
        if !check.is_empty() {
            checks.push(Value::Object(check));
        }
    }
    if !checks.is_empty() {
        map.insert("allOf".to_owned(), checks.into());
    }
}

/// For an enum that is flattened into a struct, schemars adds its properties to the struct as placeholders that accept
/// anything. Removes those that a branch describes.
fn remove_placeholders(map: &mut Map<String, Value>, branches: &[Map<String, Value>]) {
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        let placeholder = json!({ PRESERVE_UNKNOWN: true });
        let described = |name: &str| {
            branches.iter().any(|branch| branch.get("properties").is_some_and(|known| known.get(name).is_some()))
        };
        properties.retain(|name, schema| *schema != placeholder || !described(name));
    }
}

/// Adds a property. If the node has one of that name already, the result accepts the values of both.
fn add_property(map: &mut Map<String, Value>, name: String, property: Value) {
    let properties = map.entry("properties").or_insert(json!({}));
    let known = properties[&name].take();
    properties[name] = match known {
        Value::Null => property,
        known if known == property => property,
        known => {
            let mut either = json!({ "anyOf": [known, property] });
            make_structural(&mut either);
            either
        }
    };
}

/// Removes keywords that are not allowed, and makes sure that the node has a type.
fn finish_node(map: &mut Map<String, Value>) {
    // An absent field is decoded as `None`, and the default would add a null to every object.
    if map.get("default") == Some(&Value::Null) {
        map.remove("default");
    }
    // An API server refuses null for an enum even if the field is nullable and the enum contains null. Nulls are left out of what is applied,
    // and an absent field is decoded as `None`.
    if map.get("nullable") == Some(&Value::Bool(true))
        && map.get("enum") != Some(&json!([null]))
        && let Some(Value::Array(values)) = map.get_mut("enum")
    {
        values.retain(|value| !value.is_null());
        map.remove("nullable");
    }
    if map.get("type").is_some_and(Value::is_array) {
        map.remove("type");
    }
    if map.get("required") == Some(&json!([])) {
        map.remove("required");
    }
    let typed = [INT_OR_STRING, PRESERVE_UNKNOWN].iter().any(|key| map.get(*key) == Some(&Value::Bool(true)));
    if !map.contains_key("type") && !typed && !is_null_map(map) {
        map.insert(PRESERVE_UNKNOWN.to_owned(), true.into());
    }
    map.retain(|key, _| KEYWORDS.contains(&key.as_str()) || key.starts_with("x-kubernetes-"));
}

fn is_null(branch: &Value) -> bool {
    branch.as_object().is_some_and(is_null_map)
}

fn is_null_map(branch: &Map<String, Value>) -> bool {
    branch.get("enum") == Some(&json!([null])) || type_of(branch) == Some("null")
}

fn type_of(map: &Map<String, Value>) -> Option<&str> {
    map.get("type").and_then(Value::as_str)
}

fn into_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}
