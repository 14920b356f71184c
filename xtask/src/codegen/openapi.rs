//! In: the schemas of OpenAPI v3 documents and the enums of the Go sources. Out: the text of the type table that
//! `konverge_schema::kubernetes` reads. The table has names, types and merge rules; descriptions have a table of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::enums::Enums;

/// Types with their own marshalling code in Go, which their published schema does not describe.
const SPECIAL: [(&str, &str); 11] = [
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "any"),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "opaque"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "micro-time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", "opaque"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "opaque"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "int-or-string"),
];

/// The comment at the head of the generated file, after the line that names its source.
const FORMAT: &str = "\
#
# Written by `cargo xtask codegen`; do not edit. Read by crates/schema/src/builtin_types.rs.
#
#   @ALIAS PACKAGE                  a short word for a package, for types named from outside of it
#   PACKAGE.TYPE [atomic]           a struct; `atomic` is x-kubernetes-map-type
#     FIELD[!] SHAPE[; WORD]...     a field, in the order of names; `!` marks a required one
#
# SHAPE  a scalar (string bytes time micro-time quantity int32 int64 number bool int-or-string), `any`, `opaque` (owned whole),
#        `TYPE` of the same package, `ALIAS.TYPE` of another one, `[SHAPE` a list, `{SHAPE` a map
# WORD   set | keys A,B             list kind; a list without either is atomic
#        atomic | granular          x-kubernetes-map-type of this use
#        merge [KEY] | retainKeys   strategic merge patch
#        default JSON               filled in when absent; zero values are left out
#        enum A|B                   the published values of the innermost scalar
";

/// Writes the table of `schemas`, which are OpenAPI components by name.
pub(super) fn table(source: &str, schemas: &BTreeMap<String, Value>, enums: &Enums) -> Result<String, String> {
    let special: BTreeMap<&str, &str> = SPECIAL.into();
    let mut table = TypeTable { special, aliases: BTreeMap::new(), enums, used_enums: BTreeSet::new() };
    let mut blocks = String::new();
    for (name, schema) in schemas {
        if !table.special.contains_key(name.as_str()) {
            table.block(&mut blocks, name, schema).map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    table.all_enums_used(schemas)?;

    let mut out = format!("# Types of {source}\n{FORMAT}\n");
    for (alias, package) in &table.aliases {
        let _ = writeln!(out, "@{alias} {package}");
    }
    out.push_str(&blocks);
    Ok(out)
}

struct TypeTable<'a> {
    special: BTreeMap<&'a str, &'a str>,
    /// Alias to package, of every package referred to from another one.
    aliases: BTreeMap<String, String>,
    enums: &'a Enums,
    used_enums: BTreeSet<(String, String)>,
}

impl TypeTable<'_> {
    fn block(&mut self, out: &mut String, name: &str, schema: &Value) -> Result<(), String> {
        let (package, _) = split(name)?;
        if schema["type"] != "object" || !schema["additionalProperties"].is_null() {
            return Err("a named type that is not a struct needs a row in SPECIAL".into());
        }
        let atomic = if schema["x-kubernetes-map-type"] == "atomic" { " atomic" } else { "" };
        let _ = writeln!(out, "\n{name}{atomic}");
        let required: BTreeSet<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let none = Map::new();
        for (field, property) in schema["properties"].as_object().unwrap_or(&none) {
            if field.contains([' ', ';', '!']) {
                return Err(format!("{field:?} cannot be written as a field name"));
            }
            let mark = if required.contains(field.as_str()) { "!" } else { "" };
            let shape = self.shape(package, property).map_err(|problem| format!("{field}: {problem}"))?;
            let _ = write!(out, "  {field}{mark} {shape}");
            for word in self.words(name, field, property)? {
                if word.contains("; ") {
                    return Err(format!("{field}: {word:?} cannot be written in one line"));
                }
                let _ = write!(out, "; {word}");
            }
            out.push('\n');
        }
        Ok(())
    }

    fn shape(&mut self, package: &str, schema: &Value) -> Result<String, String> {
        if let Some(target) = reference(schema) {
            return self.name_of(package, target);
        }
        let format = schema["format"].as_str();
        Ok(match (schema["type"].as_str(), format) {
            (Some("string"), None) => "string".into(),
            (Some("string"), Some("byte")) => "bytes".into(),
            (Some("string"), Some("date-time")) => "time".into(),
            (Some("integer"), Some("int32")) => "int32".into(),
            (Some("integer"), Some("int64")) => "int64".into(),
            (Some("number"), _) => "number".into(),
            (Some("boolean"), None) => "bool".into(),
            (Some("array"), None) => format!("[{}", self.shape(package, &schema["items"])?),
            (Some("object"), None) if schema["additionalProperties"].is_object() => {
                format!("{{{}", self.shape(package, &schema["additionalProperties"])?)
            }
            (ty, format) => return Err(format!("type {ty:?} with format {format:?} has no shape")),
        })
    }

    fn name_of(&mut self, package: &str, target: &str) -> Result<String, String> {
        if let Some(shape) = self.special.get(target) {
            return Ok((*shape).to_owned());
        }
        let (of, name) = split(target)?;
        if of == package {
            return Ok(name.to_owned());
        }
        // `io.k8s.api.core.v1` is known as `core/v1`.
        let mut segments = of.rsplitn(3, '.');
        let (version, group) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
        let alias = format!("{group}/{version}");
        let known = self.aliases.entry(alias.clone()).or_insert_with(|| of.to_owned());
        if known != of {
            return Err(format!("{known} and {of} share the alias {alias}"));
        }
        Ok(format!("{alias}.{name}"))
    }

    fn words(&mut self, name: &str, field: &str, schema: &Value) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        if schema["type"] == "array" {
            match schema["x-kubernetes-list-type"].as_str() {
                None | Some("atomic") => {}
                Some("set") => words.push("set".into()),
                Some("map") => words.push(format!("keys {}", strings(&schema["x-kubernetes-list-map-keys"]).join(","))),
                Some(other) => return Err(format!("{field}: unknown list type {other}")),
            }
        }
        match schema["x-kubernetes-map-type"].as_str() {
            None => {}
            Some(word @ ("atomic" | "granular")) => words.push(word.into()),
            Some(other) => return Err(format!("{field}: unknown map type {other}")),
        }
        for strategy in schema["x-kubernetes-patch-strategy"].as_str().unwrap_or_default().split(',') {
            match strategy {
                // Without a word the value is replaced.
                "" | "replace" => {}
                "merge" => match schema["x-kubernetes-patch-merge-key"].as_str() {
                    Some(key) => words.push(format!("merge {key}")),
                    None => words.push("merge".into()),
                },
                "retainKeys" => words.push("retainKeys".into()),
                other => return Err(format!("{field}: unknown patch strategy {other}")),
            }
        }
        if let Some(default) = schema.get("default").filter(|value| !is_zero(value)) {
            words.push(format!("default {default}"));
        }
        if let Some(values) = self.enums.of(name, field) {
            if values.iter().any(|value| value.contains(['|', ';'])) {
                return Err(format!("{field}: enum values {values:?} cannot be written in one line"));
            }
            words.push(format!("enum {}", values.join("|")));
            self.used_enums.insert((name.to_owned(), field.to_owned()));
        }
        Ok(words)
    }

    /// Finds a misread Go file: it would give values to a field that its type does not have.
    fn all_enums_used(&self, schemas: &BTreeMap<String, Value>) -> Result<(), String> {
        for (name, field) in self.enums.keys() {
            if schemas.contains_key(name) && !self.used_enums.contains(&(name.to_owned(), field.to_owned())) {
                return Err(format!("{name} has no field {field}, yet the Go sources list its values"));
            }
        }
        Ok(())
    }
}

fn split(name: &str) -> Result<(&str, &str), String> {
    name.rsplit_once('.').ok_or_else(|| format!("{name:?} has no package"))
}

/// The component that a property refers to, directly or in an `allOf`, which allows a default beside it.
fn reference(schema: &Value) -> Option<&str> {
    let direct = schema.get("$ref").or_else(|| match schema["allOf"].as_array().map(Vec::as_slice) {
        Some([only]) => only.get("$ref"),
        _ => None,
    });
    direct?.as_str()?.strip_prefix("#/components/schemas/")
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A zero default only means that the Go field is not a pointer.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(name: &str, schema: Value, go: &str, expect: &str) {
        let schemas = BTreeMap::from([(name.to_owned(), schema)]);
        let enums = Enums::read(go).unwrap();
        let got = match table("a test", &schemas, &enums) {
            Ok(text) => text.split_once("\n\n").unwrap().1.trim_start_matches('\n').to_owned(),
            Err(problem) => format!("error: {problem}"),
        };
        assert_eq!(got.trim_end(), expect.trim_end());
    }

    #[test]
    fn writes_facts_only() {
        let service_port = json!({
            "description": "a port",
            "type": "object",
            "required": ["port"],
            "properties": {
                "name": {"type": "string", "description": "its name"},
                "port": {"type": "integer", "format": "int32", "default": 0},
                "protocol": {"type": "string", "default": "TCP"},
                "targetPort": {
                    "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}],
                    "default": {}
                },
            }
        });
        let go = "func schema_k8sio_api_core_v1_ServicePort(ref x) y {\n\t\t\t\t\t\"protocol\": {\n\
                  \t\t\t\t\t\t\tEnum:        []interface{}{\"SCTP\", \"TCP\", \"UDP\"},\n";
        check(
            "io.k8s.api.core.v1.ServicePort",
            service_port.clone(),
            go,
            "io.k8s.api.core.v1.ServicePort\n  name string\n  port! int32\n  \
             protocol string; default \"TCP\"; enum SCTP|TCP|UDP\n  targetPort int-or-string",
        );
        check(
            "io.k8s.api.core.v1.ServicePort",
            service_port,
            &go.replace("protocol", "protocl"),
            "error: io.k8s.api.core.v1.ServicePort has no field protocl, yet the Go sources list its values",
        );
    }

    #[test]
    fn writes_shapes_and_merge_rules() {
        let cases = [
            (json!({"type": "boolean"}), "bool"),
            (json!({"type": "string", "format": "byte", "x-kubernetes-list-type": "atomic"}), "bytes"),
            (json!({"type": "number", "format": "double"}), "number"),
            (json!({"type": "integer", "format": "int64", "default": 100}), "int64; default 100"),
            (json!({"type": "array", "items": {"type": "string"}}), "[string"),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set",
                       "x-kubernetes-patch-strategy": "merge"}),
                "[string; set; merge",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                       "x-kubernetes-patch-strategy": "merge,retainKeys", "x-kubernetes-patch-merge-key": "a",
                       "items": {"$ref": "#/components/schemas/io.k8s.api.x.v1.Y"}}),
                "[Y; keys a,b; merge a; retainKeys",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}),
                "{[string",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"}),
                "{string; atomic",
            ),
            (
                json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.x.v1.Y"}], "default": {},
                       "x-kubernetes-map-type": "granular"}),
                "Y; granular",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "replace"}),
                "[string",
            ),
        ];
        for (property, expect) in cases {
            let schema = json!({"type": "object", "properties": {"f": property}});
            check("io.k8s.api.x.v1.T", schema, "", &format!("io.k8s.api.x.v1.T\n  f {expect}"));
        }
    }

    #[test]
    fn names_other_packages_by_alias() {
        let meta = json!({"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"});
        check(
            "io.k8s.api.x.v1.T",
            json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"metadata": meta}}),
            "",
            "@meta/v1 io.k8s.apimachinery.pkg.apis.meta.v1\n\nio.k8s.api.x.v1.T atomic\n  metadata meta/v1.ObjectMeta",
        );
    }

    #[test]
    fn refuses_what_it_cannot_write() {
        let cases = [
            (
                json!({"type": "string", "format": "uri"}),
                "f: type Some(\"string\") with format Some(\"uri\") has no shape",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}),
                "f: unknown list type bag",
            ),
            (json!({"type": "string", "default": "a; b"}), "f: \"default \\\"a; b\\\"\" cannot be written in one line"),
        ];
        for (property, expect) in cases {
            let schema = json!({"type": "object", "properties": {"f": property}});
            check("io.k8s.api.x.v1.T", schema, "", &format!("error: io.k8s.api.x.v1.T: {expect}"));
        }
    }
}
