//! Subresources: the parts of an object that have endpoints of their own. In: which subresource, the object before and after.
//! Out: the object with only those changes that the endpoint may make.

use serde_json::Value;

use konverge_schema::{FieldSet, Flavour, Shape};

use crate::behaviour::StatusOnCreate;
use crate::resource::Resource;

/// What of an object a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
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
}

impl Part {
    /// Every subresource.
    pub const APART: [Part; 6] = [Part::Status, Part::Scale, Part::Finalize, Part::Binding, Part::Eviction, Part::Log];

    /// The subresource of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::APART.into_iter().find(|part| part.name() == name)
    }

    /// The subresource as managed fields record it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Main => "",
            Part::Status => "status",
            Part::Scale => "scale",
            Part::Finalize => "finalize",
            Part::Binding => "binding",
            Part::Eviction => "eviction",
            Part::Log => "log",
        }
    }
}

impl Resource {
    /// Whether the schema treats objects as custom resources.
    pub(crate) fn flavour(&self) -> Flavour {
        if self.custom { Flavour::Custom } else { Flavour::BuiltIn }
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
    pub(crate) fn not_written_through(&self, part: Part) -> FieldSet {
        let apart = self.subresource("status").is_some();
        match part {
            Part::Main if apart => FieldSet::of_fields([&["status"][..]]),
            Part::Status => {
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
    pub(crate) fn isolate(&self, part: Part, old: &Value, new: &mut Value) {
        let apart = self.subresource("status").is_some();
        match part {
            Part::Main if apart => copy_field(old, new, "status"),
            Part::Status => {
                let mut kept = old.clone();
                copy_field(new, &mut kept, "status");
                kept["metadata"] = new["metadata"].take();
                for field in &self.behaviour.status_holds {
                    copy_field(&old["metadata"], &mut kept["metadata"], field);
                }
                *new = kept;
            }
            Part::Finalize => {
                let mut kept = old.clone();
                copy_field(&new["spec"], &mut kept["spec"], "finalizers");
                *new = kept;
            }
            Part::Main | Part::Scale | Part::Binding | Part::Eviction | Part::Log => {}
        }
    }
}

fn copy_field(from: &Value, to: &mut Value, field: &str) {
    let Some(fields) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}
