//! What is applied: a configuration made ready to be sent. In: an object as the user wrote it. Out: the same without
//! what only servers write, marked with a digest of itself, so that a later look can tell whether it is applied.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use konverge_core::{FieldError, FieldPath, ObjectKey};
use kube::core::ApiResource;
use serde_json::{Map, Value, json};

use super::FieldManager;
use super::digest::{Digest, digest};
use crate::error::{FieldErrors, WriteError};
use crate::object::Object;

/// What of `metadata` only a server writes.
const SERVERS: [&str; 8] = [
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
    /// The annotation that holds the digest.
    pub mark: Arc<str>,
    /// The digest.
    pub digest: String,
}

impl Config {
    /// Lets a server refuse it unless the object still has this version.
    pub fn expect(&mut self, version: Option<&str>) {
        if let Some(Value::Object(metadata)) = self.object.get_mut("metadata") {
            match version {
                Some(version) => drop(metadata.insert("resourceVersion".into(), version.into())),
                None => drop(metadata.remove("resourceVersion")),
            }
        }
    }

    /// Makes an object ready. The kind of `api` goes in, the status and the server's fields go out.
    pub fn new(
        api: &ApiResource,
        key: ObjectKey,
        mut object: Value,
        manager: &FieldManager,
    ) -> Result<Self, WriteError> {
        let Value::Object(fields) = &mut object else { return Err(no_object()) };
        fields.insert("apiVersion".into(), api.api_version.clone().into());
        fields.insert("kind".into(), api.kind.clone().into());
        fields.remove("status");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            SERVERS.iter().for_each(|name| drop(metadata.remove(*name)));
        }
        if api.group.is_empty() && api.kind == "Secret" {
            readable_secret(fields);
        }
        let mark = manager.mark.clone();
        let annotations = entry(fields, "metadata").and_then(|metadata| entry(metadata, "annotations"));
        let Some(annotations) = annotations else { return Err(no_object()) };
        annotations.remove(&*mark);

        let mut sum = Digest::default();
        sum.text(manager.as_str());
        digest(&mut sum, &object);
        let digest = sum.to_string();
        object["metadata"]["annotations"][&*mark] = json!(digest);
        Ok(Self { key, object, mark, digest })
    }

    /// Whether an object carries the mark of this configuration: it was applied last.
    pub fn is_mark_of(&self, object: &Object) -> bool {
        object.annotation(&self.mark).as_deref() == Some(&*self.digest)
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

/// The key of an object that has a name or is to be given one, which then stands for all that begin with it.
pub(crate) fn key_to_create(object: &Value) -> Result<ObjectKey, WriteError> {
    match (text(object, "name"), text(object, "generateName")) {
        (None, Some(beginning)) => Ok(ObjectKey::new(text(object, "namespace"), beginning)),
        _ => key_of(object),
    }
}

/// A text in the metadata that is not empty.
fn text<'v>(object: &'v Value, name: &str) -> Option<&'v str> {
    object.get("metadata")?.get(name)?.as_str().filter(|text| !text.is_empty())
}

fn no_object() -> WriteError {
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

/// Turns `stringData` into `data`: the server does so too and never shows `stringData`, so that nobody could tell
/// whether it is applied.
fn readable_secret(fields: &mut Map<String, Value>) {
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
