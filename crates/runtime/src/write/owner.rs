//! Who an object belongs to. In: the owner and the child. Out: the child with an owner reference, or why it cannot
//! have one. Pure.

use std::borrow::Cow;

use konverge_core::{FieldError, FieldPath, ObjectKey};
use kube::core::ApiResource;
use serde_json::{Map, Value, json};

use super::config::key_of;
use crate::error::{FieldErrors, WriteError};
use crate::object::Object;

/// The annotation that names the owner where a reference cannot: `WebApp.example.com/default/web`. A change of the child
/// wakes that owner; what carries it is not collected when the owner goes.
pub const OWNER_ANNOTATION: &str = "konverge.dev/owner";

/// An object that others can belong to: they go when it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its uid: another object of the same name is no owner.
    pub uid: String,
}

impl Owner {
    /// The object as an owner; it must have been read from a server, or it has no uid.
    pub fn of(api: &ApiResource, object: &Value) -> Result<Self, WriteError> {
        let key = key_of(object)?;
        let Some(uid) = object.pointer("/metadata/uid").and_then(Value::as_str).filter(|uid| !uid.is_empty()) else {
            let path = FieldPath::new("metadata").child("uid");
            let error = FieldError::required(path, "an owner must exist on the server");
            return Err(WriteError::invalid(&FieldErrors::from(error)));
        };
        Ok(Self { api_version: api.api_version.clone(), kind: api.kind.clone(), key, uid: uid.to_owned() })
    }

    /// The owner reference a child carries: this owner controls it, and stays until the child is gone when deleted
    /// in the foreground.
    pub fn reference(&self) -> Value {
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.key.name(),
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    /// Whether an object of this key may refer to this owner: one in a namespace owns only what is in the same one.
    pub fn may_own(&self, child: &ObjectKey) -> bool {
        self.key.namespace().is_none() || self.key.namespace() == child.namespace()
    }

    /// Whether the object refers to this owner.
    pub fn owns(&self, object: &Value) -> bool {
        references(object).any(|reference| text(reference, "uid") == self.uid)
    }

    /// Says in a child that is to be applied whom it belongs to: by a reference, or by an annotation where the API knows
    /// no such reference, into another namespace or out of one.
    pub fn put_into(&self, child: &ObjectKey, config: &mut Value) -> Result<(), WriteError> {
        if !self.may_own(child) {
            self.annotate(config);
            return Ok(());
        }
        if self.owns(config) {
            return Ok(());
        }
        let controls = |reference: &&Map<String, Value>| reference.get("controller") == Some(&Value::Bool(true));
        if let Some(other) = references(config).filter(controls).find(|other| {
            let text = |name| text(other, name);
            self.is_another(text("kind"), text("name"), text("uid"))
        }) {
            let (kind, name) = (text(other, "kind"), text(other, "name"));
            return Err(refused(format!("{child} names {kind} {name} as its controller")));
        }
        let metadata = &mut config["metadata"];
        match metadata.get_mut("ownerReferences") {
            Some(Value::Array(references)) => references.push(self.reference()),
            _ => metadata["ownerReferences"] = json!([self.reference()]),
        }
        Ok(())
    }

    /// Whether a child, as it is, belongs to nobody else.
    pub(crate) fn may_take(&self, child: &ObjectKey, live: &Object) -> Result<(), WriteError> {
        let (other, own) = if self.may_own(child) {
            let mut controllers = live.owners().filter(|owner| owner.controller);
            let other = controllers.find(|other| self.is_another(&other.kind, &other.name, &other.uid));
            let name = |kind: &str, name: &str| format!("{kind} {name}");
            (other.map(|other| name(&other.kind, &other.name)), name(&self.kind, self.key.name()))
        } else {
            let own = self.note();
            let noted = live.annotation(OWNER_ANNOTATION).map(Cow::into_owned);
            (noted.filter(|noted| *noted != own), own)
        };
        match other {
            Some(other) => Err(refused(format!("{child} belongs to {other} already, so {own} cannot take it over"))),
            None => Ok(()),
        }
    }

    /// Whether a controller is not this owner, nor an earlier object of its name.
    fn is_another(&self, kind: &str, name: &str, uid: &str) -> bool {
        let same = kind == self.kind && name == self.key.name();
        uid != self.uid && !same
    }

    /// As [`OWNER_ANNOTATION`] names it.
    fn note(&self) -> String {
        format!("{}{}", annotation_prefix(group_of(&self.api_version), &self.kind), self.key)
    }

    fn annotate(&self, config: &mut Value) {
        let metadata = &mut config["metadata"];
        if !metadata["annotations"].is_object() {
            metadata["annotations"] = json!({});
        }
        metadata["annotations"][OWNER_ANNOTATION] = json!(self.note());
    }
}

/// How the annotation begins for owners of a kind.
pub(crate) fn annotation_prefix(group: &str, kind: &str) -> String {
    match group {
        "" => format!("{kind}/"),
        group => format!("{kind}.{group}/"),
    }
}

/// The group of an `apiVersion`.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn refused(detail: String) -> WriteError {
    let path = FieldPath::new("metadata").child("ownerReferences");
    WriteError::invalid(&FieldErrors::from(FieldError::forbidden(path, detail)))
}

fn references(object: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let list = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_object)
}

fn text<'v>(reference: &'v Map<String, Value>, name: &str) -> &'v str {
    reference.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
