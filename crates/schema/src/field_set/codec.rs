//! FieldsV1, the JSON in which `metadata.managedFields` stores a set of fields.
//! In and out: `{"f:spec":{"f:replicas":{}}}`; `.` means that a field with children is in the set itself.

use serde_json::{Map, Value};

use super::{Entry, FieldSet, PathElement};

/// FieldsV1 that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldsV1Error(String);

impl FieldSet {
    /// Reads FieldsV1.
    pub fn from_fields_v1(value: &Value) -> Result<Self, FieldsV1Error> {
        decode(value, "").map(|(set, _)| set)
    }

    /// Writes FieldsV1.
    pub fn to_fields_v1(&self) -> Value {
        encode(self, false)
    }
}

/// The set below this value, and whether the value's own path is in the set.
fn decode(value: &Value, at: &str) -> Result<(FieldSet, bool), FieldsV1Error> {
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => return Ok((FieldSet::default(), true)),
        _ => {
            let place = if at.is_empty() { "fieldsV1".into() } else { format!("fieldsV1 at {at:?}") };
            return Err(FieldsV1Error(format!("{place}: expected an object")));
        }
    };
    let mut entries = Vec::with_capacity(fields.len());
    let mut own = false;
    for (key, value) in fields {
        if key == "." {
            own = true;
            continue;
        }
        let element = PathElement::decode(key)
            .map_err(|why| FieldsV1Error(format!("fieldsV1: parsing key as path element: {why}")))?;
        let Some(element) = element else { continue };
        let (children, member) = decode(value, key)?;
        entries.push(Entry { element, member, children });
    }
    own |= entries.is_empty();
    Ok((FieldSet::from_entries(entries), own))
}

fn encode(set: &FieldSet, own: bool) -> Value {
    let mut fields = Map::new();
    if own && !set.entries.is_empty() {
        fields.insert(".".into(), Value::Object(Map::new()));
    }
    for entry in &set.entries {
        fields.insert(entry.element.encode(), encode(&entry.children, entry.member));
    }
    Value::Object(fields)
}
