//! A request as policies and webhooks see it. In: the attributes of a request and the resource that it was matched through. Out:
//! the objects in the version of that resource, and the request itself with the fields of `AdmissionRequest`.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use konverge_core::{GroupVersionKind, Status};
use konverge_store::Entry;

use super::matching::Through;
use super::{Attributes, Operation, RequestOptions, lookup};
use crate::resource::Resource;
use crate::subresource::Subresource;
use crate::{record, scale};

/// The objects of a request, in one version.
pub(crate) struct Versioned<'a> {
    /// None for a deletion.
    pub object: Option<Cow<'a, Value>>,
    /// None for a creation.
    pub old: Option<Cow<'a, Value>>,
    pub through: Through,
}

impl<'a> Versioned<'a> {
    /// Converts the objects to the version that the request was matched through.
    pub(crate) async fn new(
        attributes: &Attributes<'a>,
        object: Option<&'a Value>,
        through: &Through,
    ) -> Result<Self, Status> {
        let object = convert(attributes, object, through).await?;
        let old = convert(attributes, attributes.old, through).await?;
        Ok(Self { object, old, through: through.clone() })
    }

    /// The request, as the variable `request` has it.
    pub(crate) fn request(&self, attributes: &Attributes<'_>) -> Value {
        let matched = match &self.through {
            Through::Same => attributes.resource,
            Through::Equivalent(resource) => resource,
        };
        request(attributes, matched, self.kind(attributes))
    }

    /// The same as match conditions see it: they always know the resource of the request itself.
    pub(crate) fn unmatched_request(&self, attributes: &Attributes<'_>) -> Value {
        request(attributes, attributes.resource, self.kind(attributes))
    }

    fn kind(&self, attributes: &Attributes<'_>) -> GroupVersionKind {
        match &self.through {
            Through::Same => kind_of(attributes.resource, attributes.subresource),
            Through::Equivalent(resource) => kind_of(resource, attributes.subresource),
        }
    }
}

/// The kind that requests for a resource, or for a subresource of it, speak.
pub(crate) fn kind_of(resource: &Resource, subresource: Subresource) -> GroupVersionKind {
    let info = resource.subresource(subresource.name());
    info.map_or_else(|| resource.gvk(), |info| info.gvk.clone())
}

async fn convert<'a>(
    attributes: &Attributes<'a>,
    object: Option<&'a Value>,
    through: &Through,
) -> Result<Option<Cow<'a, Value>>, Status> {
    let Some(object) = object else { return Ok(None) };
    let resource = attributes.resource;
    if let (Subresource::Scale, Some(paths)) = (attributes.subresource, &resource.scale) {
        return Ok(Some(Cow::Owned(scale::of(object, paths))));
    }
    let Through::Equivalent(other) = through else { return Ok(Some(Cow::Borrowed(object))) };
    // What a binding or an eviction sends has one version only.
    if kind_of(resource, attributes.subresource) != resource.gvk() {
        return Ok(Some(Cow::Borrowed(object)));
    }
    let stored = resource.to_stored(object.clone()).await?;
    let revision = attributes.server.store.revision();
    let entry = Entry { key: "".into(), value: record::encode(&stored), revision, created: revision };
    let mut converted = other.read_object(&entry).await?;
    set_version(&mut converted, object["metadata"].get("resourceVersion").cloned());
    Ok(Some(Cow::Owned(converted)))
}

/// Turns an object that a policy or webhook has changed back into the version of the request.
pub(crate) async fn restore(attributes: &Attributes<'_>, changed: Value, through: &Through) -> Result<Value, Status> {
    let Through::Equivalent(other) = through else { return Ok(changed) };
    let version = changed["metadata"].get("resourceVersion").cloned();
    let stored = other.to_stored(changed).await?;
    let revision = attributes.server.store.revision();
    let entry = Entry { key: "".into(), value: record::encode(&stored), revision, created: revision };
    let mut restored = attributes.resource.read_object(&entry).await?;
    set_version(&mut restored, version);
    Ok(restored)
}

/// Puts back the version that an object had before it was read as if it were stored. One that is being created has none.
fn set_version(object: &mut Value, version: Option<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match version {
        Some(version) => metadata.insert("resourceVersion".to_owned(), version),
        None => metadata.remove("resourceVersion"),
    };
}

fn request(attributes: &Attributes<'_>, matched: &Resource, kind: GroupVersionKind) -> Value {
    let own = attributes.resource;
    let named = |kind: &GroupVersionKind| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let resource = |of: &Resource| json!({"group": of.group, "version": of.version, "resource": of.plural});
    let user = &attributes.context.user;
    let mut info = Map::new();
    for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            info.insert(field.to_owned(), text.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    let mut request = json!({
        "uid": "",
        "kind": named(&kind),
        "resource": resource(matched),
        "requestKind": named(&kind_of(own, attributes.subresource)),
        "requestResource": resource(own),
        "operation": attributes.operation.name(),
        "userInfo": info,
        "dryRun": attributes.context.dry_run,
        "options": options(attributes),
    });
    let (name, namespace) = (attributes.name, attributes.request_namespace());
    let subresource = attributes.subresource.name();
    for (field, text) in
        [("name", name), ("namespace", namespace), ("subResource", subresource), ("requestSubResource", subresource)]
    {
        if !text.is_empty() {
            request[field] = text.into();
        }
    }
    request
}

fn options(attributes: &Attributes<'_>) -> Value {
    let kind = match attributes.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        // A connection has no options of its own.
        Operation::Connect => return Value::Null,
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if attributes.context.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    match attributes.options {
        RequestOptions::None => {}
        RequestOptions::Write(query) => {
            for field in ["fieldManager", "fieldValidation"] {
                if let Some(given) = query.get(field).filter(|given| !given.is_empty()) {
                    options[field] = given.into();
                }
            }
        }
        RequestOptions::Delete(sent) => sent.show(&mut options),
    }
    options
}

/// The namespace of a request as expressions see it; none for objects without one.
pub(crate) fn namespace_object(attributes: &Attributes<'_>) -> Result<Option<Value>, Status> {
    let Some(name) = attributes.namespace.filter(|name| !name.is_empty()) else { return Ok(None) };
    let found = lookup::get::<Value>(attributes.server, ("", "namespaces"), None, name)?;
    let Some((entry, mut namespace)) = found else { return Err(Status::not_found("", "namespaces", name)) };
    if let Some(fields) = namespace.as_object_mut() {
        fields.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
    }
    if let Some(metadata) = namespace["metadata"].as_object_mut() {
        metadata.retain(|field, _| !matches!(field.as_str(), "managedFields" | "ownerReferences"));
        metadata.insert("resourceVersion".into(), entry.revision.0.to_string().into());
    }
    Ok(Some(namespace))
}

/// An object without the metadata that only the server gives: policies see a new object before it has them.
pub(crate) fn unassigned(attributes: &Attributes<'_>, object: &Value) -> (Value, Map<String, Value>) {
    let mut view = object.clone();
    let mut assigned = Map::new();
    if attributes.operation == Operation::Create
        && let Some(metadata) = view["metadata"].as_object_mut()
    {
        for field in ["uid", "creationTimestamp", "generation"] {
            assigned.extend(metadata.remove_entry(field));
        }
        if attributes.name.is_empty() {
            assigned.extend(metadata.remove_entry("name"));
        }
    }
    (view, assigned)
}

pub(crate) fn reassign(object: &mut Value, assigned: Map<String, Value>) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    for (field, value) in assigned {
        // A policy may have given the object a name.
        if field != "name" || metadata.get("name").is_none_or(|name| name == "") {
            metadata.insert(field, value);
        }
    }
}
