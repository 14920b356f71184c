//! OpenAPI v2, from version 3. In: a schema or a path of a version 3 document. Out: the same in the words of version 2, which
//! has no `nullable`, `oneOf`, `anyOf` and `not`, and keeps the body of a request among its parameters. What cannot be said is
//! left out, as kube-apiserver does.

use serde_json::{Map, Value, json};

/// Rewrites a schema.
pub(super) fn schema(value: &mut Value) {
    let Some(schema) = value.as_object_mut() else { return };
    if let Some(Value::Array(mut all)) = schema.remove("allOf")
        && let Some(reference) = all.pop().and_then(|one| one.get("$ref").cloned())
    {
        schema.insert("$ref".into(), reference);
    }
    if let Some(Value::String(target)) = schema.get_mut("$ref") {
        *target = target.replace("#/components/schemas/", "#/definitions/");
    }
    // Quantities, and integers or strings, are called strings.
    let mixed = schema.remove("oneOf").is_some() && !schema.contains_key("type");
    if mixed && !schema.contains_key("x-kubernetes-int-or-string") {
        schema.insert("type".into(), "string".into());
    }
    for keyword in ["anyOf", "not"] {
        schema.remove(keyword);
    }
    let nullable = schema.remove("nullable").is_some();
    let open = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if nullable || open {
        // kubectl refuses fields and items of what has no type.
        for keyword in ["items", "properties", "type"] {
            schema.remove(keyword);
        }
    }
    forget_required_nulls(schema);
    for keyword in ["items", "additionalProperties"] {
        schema.get_mut(keyword).into_iter().for_each(self::schema);
    }
    for property in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        self::schema(property.1);
    }
}

/// A field that may be null is not required in version 2, where it cannot be said that it may be null.
fn forget_required_nulls(schema: &mut Map<String, Value>) {
    let Some(Value::Array(mut required)) = schema.remove("required") else { return };
    let properties = schema.get("properties");
    required.retain(|field| {
        let property = field.as_str().and_then(|field| properties?.get(field));
        property.is_none_or(|property| property["nullable"] != true)
    });
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
}

/// Rewrites a path with its operations.
pub(super) fn path(value: &mut Value) {
    for (name, part) in value.as_object_mut().into_iter().flatten() {
        if name == "parameters" {
            part.as_array_mut().into_iter().flatten().for_each(parameter);
        } else {
            operation(part);
        }
    }
}

fn operation(value: &mut Value) {
    let Some(operation) = value.as_object_mut() else { return };
    let mut parameters: Vec<Value> = match operation.remove("parameters") {
        Some(Value::Array(parameters)) => parameters,
        _ => Vec::new(),
    };
    parameters.iter_mut().for_each(parameter);
    let mut consumes = vec![Value::from("*/*")];
    if let Some(body) = operation.remove("requestBody") {
        let (types, schema) = content(&body);
        consumes = types;
        let mut parameter = json!({"name": "body", "in": "body", "schema": schema});
        if body["required"] == true {
            parameter["required"] = true.into();
        }
        parameters.insert(0, parameter);
    }
    let mut produces = Vec::new();
    for (_, response) in operation.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten() {
        if response.get("content").is_some() {
            let (types, schema) = content(response);
            produces.extend(types);
            *response = json!({"description": response["description"], "schema": schema});
        }
    }
    produces.sort_by(|a: &Value, b: &Value| a.as_str().cmp(&b.as_str()));
    produces.dedup();
    operation.insert("consumes".into(), consumes.into());
    operation.insert("produces".into(), produces.into());
    operation.insert("schemes".into(), json!(["https"]));
    if !parameters.is_empty() {
        operation.insert("parameters".into(), parameters.into());
    }
}

/// The media types of a body, and the schema that they share.
fn content(body: &Value) -> (Vec<Value>, Value) {
    let content = body["content"].as_object();
    let types = content.into_iter().flatten().map(|(name, _)| name.as_str().into()).collect();
    let mut schema = content.and_then(|all| all.values().next()).map(|one| one["schema"].clone()).unwrap_or_default();
    self::schema(&mut schema);
    (types, schema)
}

/// A parameter states its type itself.
fn parameter(value: &mut Value) {
    let Some(parameter) = value.as_object_mut() else { return };
    if let Some(Value::Object(schema)) = parameter.remove("schema") {
        parameter.extend(schema);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_lose_what_version_2_cannot_say() {
        let reference = |to: &str| json!({"$ref": format!("#/{to}/A")});
        for (before, after) in [
            (reference("components/schemas"), reference("definitions")),
            (
                json!({"allOf": [reference("components/schemas")], "description": "b"}),
                json!({"$ref": "#/definitions/A", "description": "b"}),
            ),
            (json!({"oneOf": [{"type": "string"}, {"type": "number"}]}), json!({"type": "string"})),
            (
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
                json!({"format": "int-or-string", "type": "string"}),
            ),
            (json!({"x-kubernetes-int-or-string": true}), json!({"x-kubernetes-int-or-string": true})),
            (json!({"type": "object", "anyOf": [{}], "not": {}, "oneOf": [{}]}), json!({"type": "object"})),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}}}),
                json!({"x-kubernetes-preserve-unknown-fields": true}),
            ),
            (
                json!({
                    "required": ["a", "b"],
                    "properties": {"a": {"type": "string", "nullable": true}, "b": {"type": "string"}},
                }),
                json!({"required": ["b"], "properties": {"a": {}, "b": {"type": "string"}}}),
            ),
            (
                json!({"items": reference("components/schemas"), "additionalProperties": {"oneOf": []}}),
                json!({"items": reference("definitions"), "additionalProperties": {"type": "string"}}),
            ),
        ] {
            let mut value = before.clone();
            schema(&mut value);
            assert_eq!(value, after, "{before}");
        }
    }

    #[test]
    fn bodies_become_parameters() {
        let schema = json!({"$ref": "#/components/schemas/A"});
        let mut value = json!({
            "parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}],
            "put": {
                "operationId": "put",
                "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
                "requestBody": {"required": true, "content": {"*/*": {"schema": schema}}},
                "responses": {
                    "200": {"description": "OK", "content": {"application/json": {"schema": schema}}},
                    "401": {"description": "Unauthorized"},
                },
            },
        });
        path(&mut value);
        let definition = json!({"$ref": "#/definitions/A"});
        assert_eq!(
            value,
            json!({
                "parameters": [{"name": "name", "in": "path", "required": true, "type": "string"}],
                "put": {
                    "operationId": "put",
                    "consumes": ["*/*"],
                    "produces": ["application/json"],
                    "schemes": ["https"],
                    "parameters": [
                        {"name": "body", "in": "body", "required": true, "schema": definition},
                        {"name": "dryRun", "in": "query", "type": "string"},
                    ],
                    "responses": {
                        "200": {"description": "OK", "schema": definition},
                        "401": {"description": "Unauthorized"},
                    },
                },
            })
        );
    }
}
