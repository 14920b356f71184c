//! Objects that policies and webhooks have changed. In: JSON of any shape. Out: an object of the kind that the request speaks, with
//! known fields, values of the right types and metadata, or the `Status` that says why not, in the words of kube-apiserver.
//! Everything behind admission counts on this, as it counts on what `write/receive.rs` makes of what clients send.

use serde_json::{Map, Value, json};

use konverge_core::{FieldError, FieldPath, GroupVersion, GroupVersionKind, Status};
use konverge_schema::{Arena, NullRules, TypeId, check_types, kubernetes, prune};

use super::{Attributes, kind_of};
use crate::resource::Resource;
use crate::server::Server;
use crate::write::unregistered;

/// Go's type of what it reads first of an object.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// What an object has to be after it was changed.
pub(crate) struct PatchTarget<'a> {
    pub arena: &'a Arena,
    pub root: TypeId,
    pub custom: bool,
    pub gvk: GroupVersionKind,
    server: &'a Server,
    by: ChangedBy,
}

/// Who changed an object: kube-apiserver says in different words that it cannot be converted.
#[derive(Clone, Copy)]
pub(crate) enum ChangedBy {
    Policy,
    Webhook,
}

impl<'a> PatchTarget<'a> {
    /// What the request speaks, in the version of the resource that it was matched through.
    pub(crate) fn of(attributes: &Attributes<'a>, matched: &'a Resource, by: ChangedBy) -> Self {
        let (server, gvk) = (attributes.server, kind_of(matched, attributes.subresource));
        let published = kubernetes();
        // What a binding, an eviction or a connection sends is of a built-in kind.
        match published.named(&type_name(&gvk)).filter(|_| gvk != matched.gvk()) {
            Some(root) => Self { arena: published, root, custom: false, gvk, server, by },
            None => {
                let (schema, custom) = (&matched.schema, matched.custom);
                Self { arena: &schema.arena, root: schema.root, custom, gvk, server, by }
            }
        }
    }

    /// Reads a changed object as its kind, and says which of its fields the kind does not have.
    pub(crate) fn read(&self, changed: &mut Value) -> Result<Vec<String>, Status> {
        let Self { arena, root, custom, .. } = *self;
        if changed.is_null() {
            *changed = json!({});
        }
        self.identify(changed)?;
        if changed["metadata"].is_null() {
            changed["metadata"] = json!({});
        }
        if custom {
            if let Some(metadata) = arena.field(root, "metadata") {
                // It is the store of kube-apiserver that refuses this.
                check_types(arena, metadata, &changed["metadata"])
                    .map_err(|why| Status::failure(500, "", why.to_string()))?;
            }
            prune(arena, root, changed, NullRules::Custom);
            return Ok(Vec::new());
        }
        check_types(arena, root, changed).map_err(Status::internal)?;
        Ok(prune(arena, root, changed, NullRules::BuiltIn).iter().map(ToString::to_string).collect())
    }

    /// Refuses an object that is of another kind now. An object of a built-in kind may leave out what it is.
    fn identify(&self, changed: &mut Value) -> Result<(), Status> {
        let expect = &self.gvk;
        let unknown =
            |why: String| Status::internal(format!("couldn't get version/kind; json parse error: json: {why}"));
        let Some(fields) = changed.as_object_mut() else {
            return Err(unknown(format!("cannot unmarshal {} into Go value of type {TYPE_META}", json_type(changed))));
        };
        let (version, kind) = match (text(fields, "apiVersion"), text(fields, "kind")) {
            (Ok(version), Ok(kind)) => (version.to_owned(), kind.to_owned()),
            (Err(why), _) | (_, Err(why)) => return Err(unknown(why)),
        };
        let Some(of) = group_version(&version) else {
            return Err(Status::internal(format!("unexpected GroupVersion string: {version}")));
        };
        if self.custom {
            return self.check_custom(&of, &version, &kind, changed);
        }
        let of = if version.is_empty() { expect.group_version() } else { of };
        let kind = if kind.is_empty() { &expect.kind } else { &kind };
        if of == expect.group_version() && *kind == expect.kind {
            fields.insert("apiVersion".into(), expect.api_version().into());
            fields.insert("kind".into(), kind.as_str().into());
            return Ok(());
        }
        if !self.server.registry.builds_kind(&of, kind) {
            return Err(Status::internal(unregistered(kind, &of.to_string())));
        }
        let package = expect.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
        Err(self.inconvertible(&format!(
            "converting ({}.{kind}) to ({package}.{}): unknown conversion",
            of.version, expect.kind
        )))
    }

    fn check_custom(&self, of: &GroupVersion, version: &str, kind: &str, changed: &Value) -> Result<(), Status> {
        let expect = &self.gvk;
        if kind.is_empty() {
            return Err(Status::internal(format!("Object 'Kind' is missing in '{changed}'")));
        }
        if of.group != expect.group {
            return Err(self.inconvertible(&format!(
                "{}/{}, Kind={kind} is unstructured and is not suitable for converting to {:?}",
                of.group,
                of.version,
                expect.api_version()
            )));
        }
        if of.version != expect.version {
            return Err(self.inconvertible(&format!("request to convert CR from an invalid group/version: {version}")));
        }
        if kind != expect.kind {
            let why = format!("must be {}", expect.kind);
            let error = FieldError::invalid(FieldPath::new("kind"), kind.into(), why);
            let name = changed["metadata"]["name"].as_str().unwrap_or_default();
            return Err(Status::invalid(&expect.group, &expect.kind, name, &[error]));
        }
        Ok(())
    }

    fn inconvertible(&self, why: &str) -> Status {
        match self.by {
            ChangedBy::Policy => Status::internal(format!("failed to convert object: {why}")),
            ChangedBy::Webhook => Status::failure(500, "", why),
        }
    }
}

/// The name of a built-in type: `io.k8s.api.autoscaling.v1.Scale`.
fn type_name(gvk: &GroupVersionKind) -> String {
    let group = gvk.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("io.k8s.api.{group}.{}.{}", gvk.version, gvk.kind)
}

/// A text that may be left out, or why Go does not read it.
fn text<'o>(fields: &'o Map<String, Value>, name: &str) -> Result<&'o str, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other) => {
            Err(format!("cannot unmarshal {} into Go struct field .{name} of type string", json_type(other)))
        }
    }
}

/// A group and a version, which may both be left out.
fn group_version(text: &str) -> Option<GroupVersion> {
    if text.is_empty() || text == "/" {
        return Some(GroupVersion { group: String::new(), version: String::new() });
    }
    GroupVersion::parse(text)
}

/// The name of a JSON type in the errors of Go's decoder.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
