//! Who an object belongs to. In: the owner and the child. Out: the child with an owner reference, or why it cannot
//! have one. Pure.

use konverge_core::{FieldError, FieldPath, ObjectKey};
use kube::core::ApiResource;
use serde_json::{Map, Value, json};

use super::config::key_of;
use crate::error::{FieldErrors, WriteError};

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

    /// Puts the owner reference into a child that is to be applied. `live` is the child as it is.
    pub(crate) fn put_into(&self, config: &mut Value, live: Option<&Value>) -> Result<(), WriteError> {
        let child = key_of(config)?;
        if !self.may_own(&child) {
            return Err(refused(self.cross_namespace(&child)));
        }
        if let Some(other) = live.and_then(|live| self.other_controller(live)) {
            return Err(refused(format!(
                "{child} belongs to {} {} already, so {} {} cannot take it over",
                text(other, "kind"),
                text(other, "name"),
                self.kind,
                self.key.name(),
            )));
        }
        if self.owns(config) {
            return Ok(());
        }
        if let Some(other) = self.other_controller(config) {
            return Err(refused(format!(
                "{child} names {} {} as its controller",
                text(other, "kind"),
                text(other, "name")
            )));
        }
        let metadata = &mut config["metadata"];
        match metadata.get_mut("ownerReferences") {
            Some(Value::Array(references)) => references.push(self.reference()),
            _ => metadata["ownerReferences"] = json!([self.reference()]),
        }
        Ok(())
    }

    /// A reference to a controller that is not this owner, nor an earlier object of its name.
    fn other_controller<'v>(&self, object: &'v Value) -> Option<&'v Map<String, Value>> {
        references(object).find(|reference| {
            let same = text(reference, "kind") == self.kind && text(reference, "name") == self.key.name();
            reference.get("controller") == Some(&Value::Bool(true)) && text(reference, "uid") != self.uid && !same
        })
    }

    fn cross_namespace(&self, child: &ObjectKey) -> String {
        let owner = format!("{} {}", self.kind, self.key);
        match child.namespace() {
            Some(_) => format!("{owner} cannot own {child}: an owner must be in the same namespace, or in none"),
            None => format!("{owner} cannot own {child}: what is in no namespace cannot belong to what is in one"),
        }
    }
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
