//! How an object looks to the one who asked. In: a kept record and the row it was asked through. Out: JSON in that
//! row's version, whole, as metadata alone or as a row of a table. The common case copies bytes and parses nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use konverge_core::{FieldSelector, LabelSelector, Status};
use konverge_schema::{Arena, Budget, Flavour, OverBudget, TypeId, default, prune};
use konverge_store::{Entry, Revision};

use crate::record;
use crate::resource::Resource;

/// What the defaults of one object may take when it is read: about as much as an object can be large.
const DEFAULT_STEPS: u64 = 2_000_000;
const DEFAULT_BYTES: u64 = 2 * 1024 * 1024;

/// A budget for the defaults of one object that is there already.
pub(crate) const fn default_budget() -> Budget {
    Budget::new(DEFAULT_STEPS, DEFAULT_BYTES)
}

impl Resource {
    /// Whether the kept bytes of an entry are already what this row serves.
    fn serves_as_kept(&self, entry: &Entry) -> bool {
        self.is_api_version(&self.shelf.api_version) && entry.revision >= self.shelf.since
    }

    /// The object in this row's version.
    pub(crate) fn view(&self, entry: &Entry) -> Value {
        let mut object = record::decode(entry);
        if !self.serves_as_kept(entry) {
            self.convert(&mut object);
            if self.add_defaults(&mut object).is_err() {
                // Defaults that came after the object and would make far more of it than can be kept are left out, so
                // that it can be looked at and deleted. The next write says what is wrong.
                object = record::decode(entry);
                self.convert(&mut object);
            }
        }
        object
    }

    /// Appends the object's JSON in this row's version, with `revision` as its resourceVersion.
    pub(crate) fn write(&self, entry: &Entry, revision: Revision, out: &mut Vec<u8>) {
        if self.serves_as_kept(entry) {
            return record::splice(&entry.value, revision, out);
        }
        let mut object = self.view(entry);
        object["metadata"]["resourceVersion"] = Value::String(revision.0.to_string());
        serde_json::to_writer(out, &object).expect("writing to memory does not fail");
    }

    /// Brings an object of any version, or kept under an older schema, into this row's version.
    pub(crate) fn convert(&self, object: &mut Value) {
        object["apiVersion"] = Value::String(self.api_version());
        if let Some(fields) = object.as_object_mut() {
            for (kept, shown) in self.shelf.renames {
                if let Some(value) = fields.remove(*kept) {
                    fields.insert((*shown).to_owned(), value);
                }
            }
        }
        if self.custom {
            prune(&self.schema.arena, self.schema.root, object, Flavour::Custom);
        }
    }

    /// Gives a custom resource the defaults that its kind has by now.
    fn add_defaults(&self, object: &mut Value) -> Result<(), OverBudget> {
        if !self.custom {
            return Ok(());
        }
        default(&self.schema.arena, self.schema.root, object, &default_budget())
    }

    /// Brings an object of this row's version into the one it is kept in.
    pub(crate) fn to_kept(&self, mut object: Value) -> Value {
        object["apiVersion"] = Value::String(self.shelf.api_version.to_string());
        if let Some(fields) = object.as_object_mut() {
            for (kept, shown) in self.shelf.renames {
                if let Some(value) = fields.remove(*shown) {
                    fields.insert((*kept).to_owned(), value);
                }
            }
        }
        if let Some((arena, root)) = self.kept_types() {
            prune(arena, *root, &mut object, Flavour::Custom);
        }
        object
    }

    /// Gives an object that is about to be kept the defaults of the version it is kept in.
    pub(crate) fn default_kept(&self, object: &mut Value, budget: &Budget) -> Result<(), OverBudget> {
        match self.kept_types() {
            Some((arena, root)) => default(arena, *root, object, budget),
            None => Ok(()),
        }
    }

    /// The types of the version that objects are kept in, if it is another: who writes through that version itself has
    /// pruned and defaulted by it already. So the kept bytes are always what that version serves.
    fn kept_types(&self) -> Option<&(Arc<Arena>, TypeId)> {
        self.shelf.types.as_ref().filter(|_| !self.is_api_version(&self.shelf.api_version))
    }

    /// The key of an object.
    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) => format!("{}{namespace}/{name}", self.shelf.prefix),
            None => format!("{}{name}", self.shelf.prefix),
        }
    }

    /// What comes before the names of all objects, or of those in one namespace.
    pub(crate) fn prefix(&self, namespace: Option<&str>) -> String {
        self.key(namespace, "")
    }

    /// Namespace and name of the object under `key`.
    pub(crate) fn identity<'k>(&self, key: &'k str) -> (Option<&'k str>, &'k str) {
        let rest = key.strip_prefix(&*self.shelf.prefix).unwrap_or(key);
        match rest.split_once('/') {
            Some((namespace, name)) if self.namespaced => (Some(namespace), name),
            _ => (None, rest),
        }
    }
}

/// Which objects a list or a watch is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    /// Refuses fields that the kind cannot be selected by.
    pub fn new(resource: &Resource, labels: LabelSelector, fields: FieldSelector) -> Result<Self, Status> {
        for field in fields.fields() {
            if !resource.selectable.iter().any(|selectable| &**selectable == field) {
                resource.behaviour.label(field).map_err(Status::bad_request)?;
            }
        }
        Ok(Self { labels, fields })
    }

    /// Whether every object passes.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// The only name that can pass, if the selector names one.
    pub fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    /// Whether an object passes. Looks no deeper into it than the selectors ask.
    pub fn matches(&self, resource: &Resource, entry: &Entry) -> bool {
        if self.is_everything() {
            return true;
        }
        if !self.labels.is_everything() {
            let labelled: Labelled = serde_json::from_slice(&entry.value).unwrap_or_default();
            if !self.labels.matches(&labelled.metadata.labels) {
                return false;
            }
        }
        if self.fields.is_everything() {
            return true;
        }
        let (namespace, name) = resource.identity(&entry.key);
        let deep = self.fields.fields().any(|field| !field.starts_with("metadata.n"));
        let object = if deep { resource.view(entry) } else { Value::Null };
        self.fields.matches(|field| match field {
            "metadata.name" => Cow::Borrowed(name),
            "metadata.namespace" => Cow::Borrowed(namespace.unwrap_or_default()),
            label => Cow::Owned(labelled(resource, &object, label)),
        })
    }
}

/// As much of an object as a label selector needs.
#[derive(Default, Deserialize)]
struct Labelled {
    metadata: LabelledMeta,
}

#[derive(Default, Deserialize)]
struct LabelledMeta {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The value of a field label, as selectors compare it.
fn labelled(resource: &Resource, object: &Value, label: &str) -> String {
    let Ok(known) = resource.behaviour.label(label) else { return scalar_at(object, label).unwrap_or_default() };
    let found = known.paths.iter().filter_map(|path| scalar_at(object, path)).find(|value| !value.is_empty());
    found.unwrap_or_else(|| known.absent.to_owned())
}

/// The scalar at a dotted path, in which numbers index lists.
fn scalar_at(object: &Value, path: &str) -> Option<String> {
    fn step<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
        match value {
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            value => value.get(name),
        }
    }
    match path.split('.').try_fold(object, step)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}
