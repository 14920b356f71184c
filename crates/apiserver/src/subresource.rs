//! Subresources: the parts of an object that have endpoints of their own. In: which subresource, the object before and after.
//! Out: the object with only those changes that the endpoint may make.

use serde_json::Value;

use konverge_schema::{FieldSet, NullRules, Shape};

use crate::behaviour::StatusOnCreate;
use crate::pod;
use crate::resource::Resource;

/// What of an object a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// No subresource: the whole object, without its status if that is a subresource.
    Main,
    /// `/status`
    Status,
    /// `/scale`
    Scale,
    /// `/finalize` of a namespace
    Finalize,
    /// `/binding` of a pod
    Binding,
    /// `/eviction` of a pod
    Eviction,
    /// `/log` of a pod
    Log,
    /// `/exec` of a pod
    Exec,
    /// `/attach` of a pod
    Attach,
    /// `/portforward` of a pod
    PortForward,
    /// `/proxy` of a pod or a service
    Proxy,
    /// `/ephemeralcontainers` of a pod
    EphemeralContainers,
    /// `/resize` of a pod
    Resize,
    /// `/token` of a service account
    Token,
    /// `/approval` of a certificate signing request
    Approval,
}

impl Subresource {
    /// Every subresource.
    pub(crate) const ALL: [Subresource; 14] = [
        Subresource::Status,
        Subresource::Scale,
        Subresource::Finalize,
        Subresource::Binding,
        Subresource::Eviction,
        Subresource::Log,
        Subresource::Exec,
        Subresource::Attach,
        Subresource::PortForward,
        Subresource::Proxy,
        Subresource::EphemeralContainers,
        Subresource::Resize,
        Subresource::Token,
        Subresource::Approval,
    ];

    /// The subresource of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subresource| subresource.name() == name)
    }

    /// The subresource as managed fields record it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Subresource::Main => "",
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Finalize => "finalize",
            Subresource::Binding => "binding",
            Subresource::Eviction => "eviction",
            Subresource::Log => "log",
            Subresource::Exec => "exec",
            Subresource::Attach => "attach",
            Subresource::PortForward => "portforward",
            Subresource::Proxy => "proxy",
            Subresource::EphemeralContainers => "ephemeralcontainers",
            Subresource::Resize => "resize",
            Subresource::Token => "token",
            Subresource::Approval => "approval",
        }
    }
}

impl Resource {
    /// Whether the schema treats objects as custom resources.
    pub(crate) fn null_rules(&self) -> NullRules {
        if self.custom { NullRules::Custom } else { NullRules::BuiltIn }
    }

    /// Drops, sets or leaves the status of a new object, as its kind does.
    pub(crate) fn initial_status(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else { return };
        match &self.behaviour.status_on_create {
            StatusOnCreate::Dropped if self.subresource("status").is_some() => {
                fields.remove("status");
            }
            StatusOnCreate::Set(status) => {
                fields.insert("status".into(), status.clone());
            }
            StatusOnCreate::Dropped | StatusOnCreate::Kept => {}
        }
    }

    /// The fields that an endpoint does not write.
    pub(crate) fn not_written_through(&self, subresource: Subresource) -> FieldSet {
        let apart = self.subresource("status").is_some();
        match subresource {
            Subresource::Main if apart => FieldSet::of_fields([&["status"][..]]),
            Subresource::Status => {
                let Shape::Struct { fields, .. } = &self.schema.arena.node(self.schema.root).shape else {
                    return FieldSet::default();
                };
                let names = fields.iter().map(|field| &*field.name);
                let others = names.filter(|name| !matches!(*name, "status" | "metadata" | "apiVersion" | "kind"));
                let others: Vec<[&str; 1]> = others.map(|name| [name]).collect();
                FieldSet::of_fields(others.iter().map(|path| &path[..]))
            }
            _ => FieldSet::default(),
        }
    }

    /// Takes back in `new` what this endpoint may not change.
    pub(crate) fn isolate(&self, subresource: Subresource, old: &Value, new: &mut Value) {
        let apart = self.subresource("status").is_some();
        match subresource {
            Subresource::Main => {
                if apart {
                    copy_field(old, new, "status");
                }
                for path in &self.behaviour.fixed {
                    copy_path(old, new, path);
                }
            }
            Subresource::Status => {
                let mut isolated = old.clone();
                copy_field(new, &mut isolated, "status");
                isolated["metadata"] = new["metadata"].take();
                for field in &self.behaviour.status_holds {
                    copy_field(&old["metadata"], &mut isolated["metadata"], field);
                }
                *new = isolated;
            }
            Subresource::Approval => {
                let mut isolated = old.clone();
                copy_field(&new["status"], &mut isolated["status"], "conditions");
                isolated["metadata"] = new["metadata"].take();
                *new = isolated;
            }
            Subresource::Finalize => {
                let mut isolated = old.clone();
                copy_field(&new["spec"], &mut isolated["spec"], "finalizers");
                *new = isolated;
            }
            Subresource::EphemeralContainers => {
                let mut isolated = old.clone();
                copy_field(&new["spec"], &mut isolated["spec"], "ephemeralContainers");
                copy_field(&new["metadata"], &mut isolated["metadata"], "managedFields");
                pod::note_exits(old, &mut isolated);
                *new = isolated;
            }
            Subresource::Resize => keep_resources(old, new),
            Subresource::Scale
            | Subresource::Binding
            | Subresource::Eviction
            | Subresource::Log
            | Subresource::Token
            | Subresource::Exec
            | Subresource::Attach
            | Subresource::PortForward
            | Subresource::Proxy => {}
        }
    }
}

/// Keeps of a new pod what its containers and the pod as a whole may use, and nothing else. Containers that were added, removed,
/// renamed or moved stay as they are sent: validation refuses them by their names.
fn keep_resources(old: &Value, new: &mut Value) {
    const LISTS: [&str; 2] = ["containers", "initContainers"];
    let containers = |pod: &Value, list: &str| pod["spec"][list].as_array().cloned().unwrap_or_default();
    if LISTS.iter().any(|list| containers(old, list).len() != containers(new, list).len()) {
        return;
    }
    let mut isolated = old.clone();
    for list in LISTS {
        let (mut kept, sent) = (containers(old, list), containers(new, list));
        if sent.iter().zip(&kept).any(|(sent, kept)| sent["name"] != kept["name"]) {
            kept = sent;
        } else {
            for (sent, kept) in sent.iter().zip(&mut kept) {
                copy_field(sent, kept, "resources");
                copy_field(sent, kept, "resizePolicy");
            }
        }
        if !kept.is_empty() {
            isolated["spec"][list] = kept.into();
        }
    }
    copy_field(&new["spec"], &mut isolated["spec"], "resources");
    isolated["metadata"] = new["metadata"].take();
    for field in ["annotations", "deletionTimestamp", "finalizers", "generation", "labels", "ownerReferences"] {
        copy_field(&old["metadata"], &mut isolated["metadata"], field);
    }
    *new = isolated;
}

fn copy_field(from: &Value, to: &mut Value, field: &str) {
    let Some(fields) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

/// The same for a dotted path.
fn copy_path(from: &Value, to: &mut Value, path: &str) {
    match path.split_once('.') {
        None => copy_field(from, to, path),
        Some((field, rest)) => {
            let inner = from.get(field).unwrap_or(&Value::Null);
            if let Some(to) = to.get_mut(field).filter(|to| to.is_object()) {
                copy_path(inner, to, rest);
            } else if !inner.is_null() {
                copy_field(from, to, field);
            }
        }
    }
}
