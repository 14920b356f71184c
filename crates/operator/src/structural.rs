//! In comes a Rust type, out goes its schema as Kubernetes accepts it in a CRD: one type a node, properties at the node
//! they belong to and never inside `oneOf` or `anyOf`, no references, only formats and keywords the API server knows.
//!
//! What cannot be said that way (a value that is text or an object, a type that holds itself) becomes a node that
//! takes anything: the type still checks it when it is read. Never fails and never panics.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

const ANYTHING: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// What a node of a CRD's schema may hold besides `x-kubernetes-…`.
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

/// Formats of text that the API server checks; it warns about every other one.
const TEXT_FORMATS: &[&str] = &[
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

/// What a branch of a union still says once its properties have moved out.
const BRANCH_CHECKS: &[&str] = &["required", "oneOf", "anyOf", "allOf", "not", "minProperties", "maxProperties"];

/// The schema of `K` as a CRD may hold it.
pub fn structural<K: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<K>().to_value();
    node(&mut schema);
    if let Value::Object(root) = &mut schema {
        root.remove("title");
    }
    schema
}

/// Makes a node and everything below it structural.
fn node(schema: &mut Value) {
    let Value::Object(map) = schema else {
        *schema = json!({ ANYTHING: true });
        return;
    };
    // Everything is inlined, so what is left refers to a type that holds itself.
    if map.remove("$ref").is_some() {
        map.insert(ANYTHING.to_owned(), true.into());
    }
    // A tuple: an item may be what any of its members is.
    if let Some(members @ Value::Array(_)) = map.get("items").cloned() {
        map.insert("items".to_owned(), json!({ "anyOf": members }));
    }
    below(map);
    object(map);
    array(map);
    numbers(map);
    for union in ["oneOf", "anyOf"] {
        if let Some(Value::Array(branches)) = map.remove(union) {
            merge_union(map, union, branches);
        }
    }
    if let Some(Value::Array(parts)) = map.remove("allOf") {
        merge_parts(map, parts);
    }
    finish(map);
}

fn below(map: &mut Map<String, Value>) {
    for key in ["properties", "patternProperties"] {
        if let Some(Value::Object(properties)) = map.get_mut(key) {
            properties.values_mut().for_each(value);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child @ Value::Object(_)) = map.get_mut(key) {
            value(child);
        }
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        if let Some(Value::Array(branches)) = map.get_mut(key) {
            branches.iter_mut().for_each(node);
        }
    }
}

/// Makes the node of a value structural. Where a value is always null, as `()` is, Kubernetes wants a type all the same.
fn value(schema: &mut Value) {
    node(schema);
    if is_null(schema) {
        *schema = json!({ ANYTHING: true, "nullable": true });
    }
}

/// A map has `additionalProperties`, a struct has `properties`; Kubernetes knows nothing in between.
fn object(map: &mut Map<String, Value>) {
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
            map.insert(ANYTHING.to_owned(), true.into());
        }
        None => {}
    }
}

/// Kubernetes knows lists of one kind of item, and sets only by the list's type.
fn array(map: &mut Map<String, Value>) {
    let unique = map.remove("uniqueItems") == Some(Value::Bool(true));
    if map.get("type").and_then(Value::as_str) != Some("array") {
        return;
    }
    if !matches!(map.get("items"), Some(Value::Object(_))) {
        map.insert("items".to_owned(), json!({ ANYTHING: true }));
    }
    let scalar = matches!(map["items"]["type"].as_str(), Some("string" | "integer" | "number" | "boolean"));
    if unique && scalar && map["items"]["nullable"] != true {
        map.entry("x-kubernetes-list-type").or_insert("set".into());
    }
}

/// Kubernetes has signed integers of two sizes; the other sizes of Rust are ranges of these.
fn numbers(map: &mut Map<String, Value>) {
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if let Some(Value::Number(limit)) = map.get(exclusive).cloned() {
            map.insert(bound.to_owned(), limit.into());
            map.insert(exclusive.to_owned(), true.into());
        }
    }
    let format = map.get("format").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (known, limits): (Option<&str>, Option<(i64, i64)>) = match (kind(map), format.as_str()) {
        (Some("integer"), "int8") => (Some("int32"), Some((i8::MIN.into(), i8::MAX.into()))),
        (Some("integer"), "int16") => (Some("int32"), Some((i16::MIN.into(), i16::MAX.into()))),
        (Some("integer"), "uint8") => (Some("int32"), Some((0, u8::MAX.into()))),
        (Some("integer"), "uint16") => (Some("int32"), Some((0, u16::MAX.into()))),
        (Some("integer"), "uint32") => (Some("int64"), Some((0, u32::MAX.into()))),
        (Some("integer"), "uint64" | "uint" | "uint128") => (Some("int64"), Some((0, i64::MAX))),
        (Some("integer"), "int" | "int128") => (Some("int64"), None),
        (Some("integer"), "int32" | "int64") => return,
        (Some("number"), "float" | "double") => return,
        (Some("string"), format) if TEXT_FORMATS.contains(&format) => return,
        _ => (None, None),
    };
    map.remove("format");
    if let Some(known) = known {
        map.insert("format".to_owned(), known.into());
    }
    if let Some((least, most)) = limits {
        map.entry("minimum").or_insert(least.into());
        // The largest integer is what the format says already.
        if most != i64::MAX {
            map.entry("maximum").or_insert(most.into());
        }
    }
}

/// Puts the alternatives of `branches` into the node itself.
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
    let mut kinds: Vec<&str> = branches.iter().map(|branch| kind(branch).unwrap_or_default()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let merged = match kinds.as_slice() {
        ["object"] => return merge_objects(map, union, branches),
        ["string"] => merged_texts(&branches),
        ["array"] => {
            let items: Vec<_> = branches.iter_mut().filter_map(|branch| branch.remove("items")).collect();
            let mut items = json!({ "anyOf": items });
            node(&mut items);
            json!({ "type": "array", "items": items })
        }
        ["integer", "number"] | ["number"] => json!({ "type": "number" }),
        ["integer"] => json!({ "type": "integer" }),
        ["boolean"] => json!({ "type": "boolean" }),
        ["integer", "string"] => json!({ INT_OR_STRING: true }),
        _ => json!({ ANYTHING: true }),
    };
    map.extend(into_object(merged).unwrap_or_default());
}

/// Text that is one of several: if each alternative names its values, so does the whole.
fn merged_texts(branches: &[Map<String, Value>]) -> Value {
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

/// Moves the properties of all branches to the node; a branch keeps only what tells it from the others.
fn merge_objects(map: &mut Map<String, Value>, union: &str, branches: Vec<Map<String, Value>>) {
    map.insert("type".to_owned(), "object".into());
    make_room(map, &branches);
    let mut checks = Vec::new();
    for mut branch in branches {
        let mut check = Map::new();
        let mut properties = match branch.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        // The comment of a variant belongs to the one property it consists of.
        if let (1, Some(description)) = (properties.len(), branch.remove("description")) {
            for property in properties.values_mut().filter_map(Value::as_object_mut) {
                property.entry("description").or_insert(description.clone());
            }
        }
        for (name, mut property) in properties {
            if let Some(property) = property.as_object_mut() {
                // It would be filled in for the other variants as well.
                property.remove("default");
                // A tag: one fixed word.
                if let Some([_]) = property.get("enum").and_then(Value::as_array).map(Vec::as_slice) {
                    let tags = check.entry("properties").or_insert(json!({}));
                    tags[&name] = json!({ "enum": property["enum"] });
                }
            }
            add_property(map, name, property);
        }
        if branch.contains_key("additionalProperties") || branch.contains_key(ANYTHING) {
            map.insert(ANYTHING.to_owned(), true.into());
        }
        for key in BRANCH_CHECKS {
            check.extend(branch.remove_entry(*key));
        }
        checks.push(Value::Object(check));
    }
    // A branch that asks for nothing takes every object, so the union asks for nothing.
    let says_nothing = |check: &Value| check.as_object().is_some_and(Map::is_empty);
    if !checks.iter().any(says_nothing) && checks.len() > 1 {
        map.insert(union.to_owned(), checks.into());
    }
}

/// Puts the parts of an `allOf` (several flattened enums) into the node itself.
fn merge_parts(map: &mut Map<String, Value>, parts: Vec<Value>) {
    let mut rest = Vec::new();
    let parts: Vec<Map<_, _>> = parts.into_iter().filter_map(into_object).collect();
    make_room(map, &parts);
    for mut part in parts {
        if let Some(Value::Object(properties)) = part.remove("properties") {
            for (name, property) in properties {
                add_property(map, name, property);
            }
        }
        if let Some(kind) = part.remove("type") {
            map.entry("type").or_insert(kind);
        }
        if part.contains_key(ANYTHING) {
            map.insert(ANYTHING.to_owned(), true.into());
        }
        let check: Map<_, _> = BRANCH_CHECKS.iter().filter_map(|key| part.remove_entry(*key)).collect();
        if !check.is_empty() {
            rest.push(Value::Object(check));
        }
    }
    if !rest.is_empty() {
        map.insert("allOf".to_owned(), rest.into());
    }
}

/// Where an enum is flattened into a struct, schemars keeps its properties' places there, open to everything.
fn make_room(map: &mut Map<String, Value>, branches: &[Map<String, Value>]) {
    if let Some(Value::Object(places)) = map.get_mut("properties") {
        let anything = json!({ ANYTHING: true });
        let described = |name: &str| {
            branches.iter().any(|branch| branch.get("properties").is_some_and(|known| known.get(name).is_some()))
        };
        places.retain(|name, schema| *schema != anything || !described(name));
    }
}

/// Adds a property; where there is one of that name already, it takes what either takes.
fn add_property(map: &mut Map<String, Value>, name: String, property: Value) {
    let properties = map.entry("properties").or_insert(json!({}));
    let known = properties[&name].take();
    properties[name] = match known {
        Value::Null => property,
        known if known == property => property,
        known => {
            let mut either = json!({ "anyOf": [known, property] });
            node(&mut either);
            either
        }
    };
}

/// The last look at a node: what it may hold, and that it has a type.
fn finish(map: &mut Map<String, Value>) {
    // An absent field reads as `None`; the default would write a null into every object.
    if map.get("default") == Some(&Value::Null) {
        map.remove("default");
    }
    // Where values are listed an API server refuses null even if it is allowed and listed. It drops the nulls of fields
    // that do not allow it, which is what `None` means.
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
    let typed = [INT_OR_STRING, ANYTHING].iter().any(|key| map.get(*key) == Some(&Value::Bool(true)));
    if !map.contains_key("type") && !typed && !is_null_map(map) {
        map.insert(ANYTHING.to_owned(), true.into());
    }
    map.retain(|key, _| KEYWORDS.contains(&key.as_str()) || key.starts_with("x-kubernetes-"));
}

fn is_null(branch: &Value) -> bool {
    branch.as_object().is_some_and(is_null_map)
}

fn is_null_map(branch: &Map<String, Value>) -> bool {
    branch.get("enum") == Some(&json!([null])) || kind(branch) == Some("null")
}

fn kind(map: &Map<String, Value>) -> Option<&str> {
    map.get("type").and_then(Value::as_str)
}

fn into_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}
