//! A configuration that is ready to be applied. In: an object as the user wrote it. Out: the same object without nulls and without the
//! fields that only servers write, and with an annotation that holds its digest, which shows later whether it was applied last.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use konverge_core::{FieldError, FieldPath, ObjectKey, drop_nulls};
use kube::core::ApiResource;
use serde_json::{Map, Value, json};

use super::FieldManager;
use super::digest::{Digest, digest};
use crate::error::{FieldErrors, WriteError};
use crate::object::Object;

/// The fields of `metadata` that only a server writes.
const SERVER_FIELDS: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// A configuration that is ready to be applied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub key: ObjectKey,
    pub object: Value,
    /// The name of the annotation that holds the digest.
    pub digest_annotation: Arc<str>,
    /// The digest.
    pub digest: String,
}

impl Config {
    /// Makes the server refuse the configuration with a conflict unless the object has this resource version.
    pub(super) fn expect(&mut self, version: Option<&str>) {
        if let Some(Value::Object(metadata)) = self.object.get_mut("metadata") {
            match version {
                Some(version) => drop(metadata.insert("resourceVersion".into(), version.into())),
                None => drop(metadata.remove("resourceVersion")),
            }
        }
    }

    /// Prepares an object: sets the type of `api`, and removes nulls, the status and the server's fields.
    pub(super) fn new(
        api: &ApiResource,
        key: ObjectKey,
        mut object: Value,
        manager: &FieldManager,
    ) -> Result<Self, WriteError> {
        // A Rust type writes null for what is absent. API servers drop nulls of what is created, and refuse those of what is applied where a
        // custom resource may not have them, as for an enum or a number or text.
        drop_nulls(&mut object);
        let Value::Object(fields) = &mut object else { return Err(not_an_object()) };
        fields.insert("apiVersion".into(), api.api_version.clone().into());
        fields.insert("kind".into(), api.kind.clone().into());
        fields.remove("status");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            SERVER_FIELDS.iter().for_each(|name| drop(metadata.remove(*name)));
        }
        if api.group.is_empty() && api.kind == "Secret" {
            convert_string_data(fields);
        }
        let digest_annotation = manager.digest_annotation.clone();
        let annotations = entry(fields, "metadata").and_then(|metadata| entry(metadata, "annotations"));
        let Some(annotations) = annotations else { return Err(not_an_object()) };
        annotations.remove(&*digest_annotation);

        let mut sum = Digest::default();
        sum.text(manager.as_str());
        digest(&mut sum, &object);
        let digest = sum.to_string();
        object["metadata"]["annotations"][&*digest_annotation] = json!(digest);
        Ok(Self { key, object, digest_annotation, digest })
    }

    /// Whether this configuration was applied last to an object: whether the object has its digest.
    pub(super) fn was_applied_last(&self, object: &Object) -> bool {
        object.annotation(&self.digest_annotation).as_deref() == Some(&*self.digest)
    }
}

/// The key of an object that has a name.
pub(crate) fn key_of(object: &Value) -> Result<ObjectKey, WriteError> {
    match text(object, "name") {
        Some(name) => Ok(ObjectKey::new(text(object, "namespace"), name)),
        None => {
            let path = FieldPath::new("metadata").child("name");
            let error = FieldError::required(path, "an object to be written needs a name");
            Err(WriteError::invalid(&FieldErrors::from(error)))
        }
    }
}

/// The key of an object that has a name or a `generateName`, which then is the name in the key.
pub(crate) fn key_to_create(object: &Value) -> Result<ObjectKey, WriteError> {
    match (text(object, "name"), text(object, "generateName")) {
        (None, Some(beginning)) => Ok(ObjectKey::new(text(object, "namespace"), beginning)),
        _ => key_of(object),
    }
}

/// A string in the metadata that is not empty.
fn text<'v>(object: &'v Value, name: &str) -> Option<&'v str> {
    object.get("metadata")?.get(name)?.as_str().filter(|text| !text.is_empty())
}

fn not_an_object() -> WriteError {
    let error = FieldError::invalid(FieldPath::new("metadata"), Value::Null, "must be an object, with its annotations");
    WriteError::invalid(&FieldErrors::from(error))
}

fn entry<'a>(fields: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    let value = fields.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Turns `stringData` into `data`, as the server does. The server never shows `stringData`, so it could not be compared.
fn convert_string_data(fields: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    let Some(data) = entry(fields, "data") else { return };
    for (name, text) in texts {
        if let Value::String(text) = text {
            data.insert(name, STANDARD.encode(text).into());
        }
    }
}

#[cfg(test)]
mod tests;
