//! In: the schemas of OpenAPI v3 documents. Out: the text of the table of descriptions, which `kubectl explain` shows. It is
//! committed compressed, a fifth of its length.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// What the table says about itself, after the line that names its source.
const FORMAT: &str = "\
#
# Written by `cargo xtask codegen`; do not edit. Read by crates/apiserver/src/openapi/descriptions.rs.
#
#   TYPE[ DESCRIPTION]     a type; `\\n` is a new line and `\\\\` a backslash
#    FIELD DESCRIPTION     a field of it that has a description
";

/// Writes the table of `schemas`, which are OpenAPI components by name.
pub(super) fn table(source: &str, schemas: &BTreeMap<String, Value>) -> Result<String, String> {
    let mut out = format!("# Descriptions of {source}\n{FORMAT}");
    for (name, schema) in schemas {
        line(&mut out, "", name, schema);
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            if field.contains(char::is_whitespace) {
                return Err(format!("{name}: {field:?} cannot be written as a field name"));
            }
            if !text(property).is_empty() {
                line(&mut out, " ", field, property);
            }
        }
    }
    Ok(out)
}

fn line(out: &mut String, indent: &str, name: &str, schema: &Value) {
    let text = text(schema).replace('\\', "\\\\").replace('\n', "\\n");
    let space = if text.is_empty() { "" } else { " " };
    let _ = writeln!(out, "{indent}{name}{space}{text}");
}

fn text(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_line_is_one_description() {
        let pod = json!({"description": "A pod.\nOr \\two.", "properties": {
            "kind": {"type": "string"},
            "spec": {"description": "What is wanted.", "$ref": "Spec"},
        }});
        let schemas = BTreeMap::from([("Pod".to_owned(), pod), ("Spec".to_owned(), json!({"type": "object"}))]);
        let table = table("a test", &schemas).unwrap();
        let lines: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["Pod A pod.\\nOr \\\\two.", " spec What is wanted.", "Spec"]);
    }
}
