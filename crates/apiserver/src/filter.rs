//! Which objects a list or a watch is about. In: label and field selectors, and an object. Out: whether the object passes.
//! Parses no more of an object than the selectors need.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use konverge_core::{FieldSelector, LabelSelector, Status};

use crate::conversion::Readable;
use crate::resource::Resource;

/// Which objects a list or a watch is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    /// Refuses fields that the kind cannot be selected by.
    pub(crate) fn new(resource: &Resource, labels: LabelSelector, fields: FieldSelector) -> Result<Self, Status> {
        for field in fields.fields() {
            if !resource.selectable.iter().any(|selectable| &**selectable == field) {
                resource.behaviour.label(field).map_err(Status::bad_request)?;
            }
        }
        Ok(Self { labels, fields })
    }

    /// Whether every object passes.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// The only name that can pass, if the selector names one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    /// Whether an object passes. Looks no deeper into it than the selectors ask.
    pub(crate) fn matches(&self, resource: &Resource, entry: &Readable) -> bool {
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
        let object = if deep { resource.object(entry) } else { Value::Null };
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
