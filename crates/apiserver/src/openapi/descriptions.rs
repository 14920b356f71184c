//! What built-in types and their fields are for. In: the compressed table that `cargo xtask codegen` derives. Out: the
//! `description`s of schemas. The table is unpacked while a document is written and dropped afterwards, so a server that is
//! never asked to explain keeps none of it in memory.

use std::collections::HashMap;
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};

/// The table, as it is part of the program.
pub(super) const TABLE: &[u8] = include_bytes!("../../data/kubernetes.descriptions.gz");

/// A kind whose `apiVersion`, `kind` and `metadata` are described as those of every kind.
const TYPICAL_KIND: &str = "io.k8s.api.core.v1.ConfigMap";

/// The table, unpacked.
pub(super) struct Descriptions {
    text: String,
    /// Where the lines of a type begin.
    types: HashMap<String, usize>,
}

impl Descriptions {
    pub(super) fn unpack() -> Self {
        let mut text = String::new();
        GzDecoder::new(TABLE).read_to_string(&mut text).expect("the committed table is gzip of text");
        let mut types = HashMap::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if !line.starts_with([' ', '#']) {
                let name = line.trim_end().split(' ').next().unwrap_or_default();
                types.insert(name.to_owned(), at);
            }
            at += line.len();
        }
        Self { text, types }
    }

    /// Describes a named type and its fields, where it says nothing itself.
    pub(super) fn describe(&self, name: &str, schema: &mut Value) {
        let Some(schema) = schema.as_object_mut() else { return };
        let Some((own, fields)) = self.of(name) else { return };
        describe(schema, own);
        self.describe_fields(fields, schema);
    }

    /// Describes what a custom resource has in common with every kind.
    pub(super) fn describe_kind(&self, schema: &mut Value) {
        let Some(schema) = schema.as_object_mut() else { return };
        let Some((_, fields)) = self.of(TYPICAL_KIND) else { return };
        let common = |line: &&str| ["apiVersion ", "kind ", "metadata "].iter().any(|field| line.starts_with(field));
        self.describe_fields(fields.filter(common), schema);
    }

    fn describe_fields<'t>(&self, fields: impl Iterator<Item = &'t str>, schema: &mut Map<String, Value>) {
        let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
        for line in fields {
            let (field, text) = line.split_once(' ').unwrap_or((line, ""));
            let Some(Value::Object(property)) = properties.get_mut(field) else { continue };
            // Nothing may stand beside a reference.
            if let Some(reference) = property.remove("$ref") {
                property.insert("allOf".into(), json!([{"$ref": reference}]));
            }
            describe(property, text);
        }
    }

    /// The description of a type, and the lines of its fields.
    fn of(&self, name: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
        let mut lines = self.text[*self.types.get(name)?..].lines();
        let own = lines.next()?.strip_prefix(name)?.trim_start();
        Some((own, lines.map_while(|line| line.strip_prefix(' '))))
    }
}

fn describe(schema: &mut Map<String, Value>, text: &str) {
    if !text.is_empty() && !schema.contains_key("description") {
        schema.insert("description".into(), unescaped(text).into());
    }
}

/// A text as it was before it was put into one line.
fn unescaped(text: &str) -> String {
    let mut parts = text.split("\\\\").map(|part| part.replace("\\n", "\n"));
    let first = parts.next().unwrap_or_default();
    parts.fold(first, |text, part| text + "\\" + &part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_fields_are_described() {
        let descriptions = Descriptions::unpack();
        let mut pod = json!({"properties": {
            "spec": {"$ref": "#/components/schemas/Spec"},
            "status": {"description": "my own"},
            "unknown": {},
        }});
        descriptions.describe("io.k8s.api.core.v1.Pod", &mut pod);
        let text = |value: &Value| value["description"].as_str().unwrap_or_default().to_owned();
        assert!(text(&pod).starts_with("Pod is a collection of containers"), "{pod}");
        let spec = &pod["properties"]["spec"];
        assert!(text(spec).starts_with("Specification of the desired behavior of the pod."), "{spec}");
        assert_eq!(spec["allOf"], json!([{"$ref": "#/components/schemas/Spec"}]));
        assert_eq!(text(&pod["properties"]["status"]), "my own");
        assert_eq!(pod["properties"]["unknown"], json!({}));
    }

    #[test]
    fn custom_resources_have_the_fields_of_every_kind() {
        let mut widget = json!({"properties": {"kind": {"type": "string"}, "data": {"type": "object"}}});
        Descriptions::unpack().describe_kind(&mut widget);
        assert!(widget["properties"]["kind"]["description"].is_string());
        assert_eq!(widget["properties"]["data"], json!({"type": "object"}));
    }

    #[test]
    fn lines_and_backslashes_come_back() {
        for (line, expect) in [("a\\nb", "a\nb"), ("a\\\\nb", "a\\nb"), ("\\\\\\n", "\\\n"), ("plain", "plain")] {
            assert_eq!(unescaped(line), expect, "{line}");
        }
    }
}
