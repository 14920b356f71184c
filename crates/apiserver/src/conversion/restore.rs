//! What a converter gave back: is it the same object in the other version? In: the object before, the converted one, and the
//! version that was asked for. Out: the converted object with its own metadata, or why it is refused, in kube-apiserver's words.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use konverge_core::{FieldError, FieldPath, check_annotations, check_labels};
use konverge_schema::go_type_name;

use crate::meta;

/// Whether a converter was asked about one object or about a list: kube-apiserver words failures differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    One,
    List,
}

/// Why a converted object is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    /// It has another type than was asked for.
    Type(String),
    /// It is another object.
    Identity(String),
    /// Its metadata cannot be stored.
    Metadata(String),
}

impl Invalid {
    /// The reason for the converted object at `index`.
    pub(super) fn words(&self, form: Form, index: usize) -> String {
        match (form, self) {
            (Form::One, Self::Type(why)) => format!("returned invalid object at index {index}: {why}"),
            (Form::One, Self::Identity(why)) => format!("returned invalid object: {why}"),
            (Form::One, Self::Metadata(why)) => format!("returned invalid metadata: {why}"),
            (Form::List, Self::Type(why) | Self::Identity(why)) => {
                format!("returned invalid converted object at index {index}: {why}")
            }
            (Form::List, Self::Metadata(why)) => format!("returned invalid metadata in object at index {index}: {why}"),
        }
    }
}

/// What a converter made of an object, with the metadata that a converter cannot change: all but labels and annotations.
pub(super) fn restored(before: &Value, mut converted: Value, to: &str) -> Result<Value, Invalid> {
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    for (field, what, expect) in [("apiVersion", "groupVersion", to.to_owned()), ("kind", "kind", text(before, "kind"))]
    {
        let found = text(&converted, field);
        if found != expect {
            return Err(Invalid::Type(format!("invalid {what} (expected {expect}, received {found})")));
        }
    }
    for (field, what) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expect, found) = (text(&before["metadata"], field), text(&converted["metadata"], field));
        if found != expect {
            return Err(Invalid::Identity(format!("must have the same {what}: {expect} != {found}")));
        }
    }
    let metadata = restored_metadata(meta::of(before), &mut converted).map_err(Invalid::Metadata)?;
    converted["metadata"] = Value::Object(metadata);
    Ok(converted)
}

/// The metadata of the object before, with the labels and annotations of the converted one.
fn restored_metadata(before: &Map<String, Value>, converted: &mut Value) -> Result<Map<String, Value>, String> {
    let received = match converted.get_mut("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(received)) => received,
        Some(other) => return Err(format!("invalid metadata of type {} in converted object", go_type_name(other))),
    };
    let mut metadata = before.clone();
    for field in ["labels", "annotations"] {
        let value = match received.remove(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(value) => value,
        };
        let Value::Object(entries) = &value else {
            return Err(format!("invalid metadata.{field} of type {} in converted object", go_type_name(&value)));
        };
        let mut texts = BTreeMap::new();
        for (key, entry) in entries {
            let Some(text) = entry.as_str() else {
                let ty = go_type_name(entry);
                return Err(format!("metadata.{field}[{key}] must be a string, but is {ty} in converted object"));
            };
            texts.insert(key.clone(), text.to_owned());
        }
        // What the object had already was accepted when it was written.
        if metadata.get(field) != Some(&value) {
            check(field, &texts)?;
        }
        metadata.insert(field.to_owned(), value);
    }
    Ok(metadata)
}

fn check(field: &str, texts: &BTreeMap<String, String>) -> Result<(), String> {
    let path = FieldPath::new("metadata");
    let texts = texts.iter().map(|(key, text)| (key.as_str(), text.as_str()));
    let errors = match field {
        "labels" => check_labels(texts, &path.child("labels")),
        // kube-apiserver names this path without the last letter.
        _ => check_annotations(texts, &path.child("annotation")),
    };
    let words: Vec<String> = errors.iter().map(FieldError::to_string).collect();
    match words.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}
