//! An object as it comes over the wire. In: an item of a list or a line of a watch, from serde_json. Out: a [`Draft`], or
//! the beginning of an object that cannot be kept. Deserializing never fails, so one malformed object does not fail a whole
//! list.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;

use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::decoded::DecodedValues;
use super::{Object, Offsets};
use crate::json_text;

/// Which parts of an object are fetched and kept. It is a type, because kube asks the type of an object what to request.
pub(crate) trait Projection: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Whether only type and metadata are requested.
    const METADATA_ONLY: bool;
    /// Whether `metadata.managedFields` is kept.
    const MANAGED_FIELDS: bool;
}

/// Everything but managedFields.
#[derive(Clone, Debug)]
pub(crate) struct Full;
/// Type and metadata, without managedFields.
#[derive(Clone, Debug)]
pub(crate) struct Metadata;
/// Everything.
#[derive(Clone, Debug)]
pub(crate) struct Everything;

impl Projection for Full {
    const METADATA_ONLY: bool = false;
    const MANAGED_FIELDS: bool = false;
}

impl Projection for Metadata {
    const METADATA_ONLY: bool = true;
    const MANAGED_FIELDS: bool = false;
}

impl Projection for Everything {
    const METADATA_ONLY: bool = false;
    const MANAGED_FIELDS: bool = true;
}

/// An object that was just read, in the form kube's watcher takes.
#[derive(Clone, Debug)]
pub(crate) struct Wire<P> {
    /// Only the resource version, because the watcher reads nothing else.
    meta: ObjectMeta,
    pub draft: Result<Draft, Unreadable>,
    projection: PhantomData<P>,
}

/// An object that cannot be kept, because it has no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The beginning of its JSON, to find it by.
    pub beginning: String,
}

/// The JSON of an object from `"metadata"` on, and the offsets of its fields.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    rest: String,
    offsets: Offsets,
    terminating: bool,
}

impl<'de, P: Projection> Deserialize<'de> for Wire<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&'de RawValue>::deserialize(deserializer)?.get();
        let draft = Draft::read(text, P::METADATA_ONLY, P::MANAGED_FIELDS);
        // The watcher needs the version also of an object without a name, to resume from it.
        let version = match &draft {
            Ok(draft) => draft.offsets.string(&draft.rest, draft.offsets.resource_version).map(str::to_owned),
            Err(_) => {
                json_text::pointer(text, "/metadata/resourceVersion").and_then(json_text::string).map(Cow::into_owned)
            }
        };
        Ok(Self {
            meta: ObjectMeta { resource_version: version, ..ObjectMeta::default() },
            draft,
            projection: PhantomData,
        })
    }
}

impl<P: Projection> Resource for Wire<P> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn metadata_api() -> bool {
        P::METADATA_ONLY
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

impl Draft {
    /// Reads the parts of an object that are kept.
    pub(crate) fn read(text: &str, metadata_only: bool, managed_fields: bool) -> Result<Self, Unreadable> {
        let mut draft =
            Self { rest: String::with_capacity(text.len()), offsets: Offsets::default(), terminating: false };
        let mut others = Vec::with_capacity(4);
        let mut members = json_text::members(text);
        while let Some(key) = members.name() {
            match key {
                // Read in the same pass, because with managedFields it is the largest part of many objects.
                "metadata" => draft.metadata(&mut members, managed_fields),
                "apiVersion" | "kind" => _ = members.value(),
                _ if metadata_only => _ = members.value(),
                _ => others.push((key, members.value())),
            }
        }
        if draft.offsets.name == 0 {
            return Err(Unreadable { beginning: text.chars().take(200).collect() });
        }
        for (key, value) in others {
            draft.rest.push_str(",\"");
            draft.rest.push_str(key);
            draft.rest.push_str("\":");
            draft.rest.push_str(value);
        }
        draft.rest.push('}');
        Ok(draft)
    }

    /// Reads the metadata, which is the next value. If an object has several, the last one counts.
    fn metadata(&mut self, members: &mut json_text::Members<'_>, managed_fields: bool) {
        let Self { rest, offsets, terminating } = self;
        (*offsets, *terminating) = (Offsets::default(), false);
        rest.clear();
        if !members.enter() {
            return;
        }
        rest.push_str("\"metadata\":{");
        let mut first = true;
        while let Some(key) = members.name() {
            let value = members.value();
            if key == "managedFields" && !managed_fields {
                continue;
            }
            if !std::mem::take(&mut first) {
                rest.push(',');
            }
            rest.push('"');
            rest.push_str(key);
            rest.push_str("\":");
            // No server sends an object of four gigabytes. In one that large, fields behind that offset count as absent.
            let at = u32::try_from(rest.len()).unwrap_or_default();
            match key {
                "name" => offsets.name = push_plain(rest, value, at),
                "namespace" => offsets.namespace = push_plain(rest, value, at),
                "uid" => offsets.uid = push_plain(rest, value, at),
                "resourceVersion" => offsets.resource_version = push_plain(rest, value, at),
                _ => rest.push_str(value),
            }
            match key {
                _ if value == "null" => {}
                "generation" => offsets.generation = at,
                "labels" => offsets.labels = at,
                "annotations" => offsets.annotations = at,
                "ownerReferences" => offsets.owners = at,
                "finalizers" => offsets.finalizers = at,
                "deletionTimestamp" => *terminating = true,
                _ => {}
            }
        }
        rest.push('}');
    }

    /// The object as the cache keeps it. The items of a list of a built-in kind have no type, and metadata comes as
    /// PartialObjectMetadata, so the type is always written here.
    pub(crate) fn finish(self, resource: &ApiResource) -> Object {
        let ApiResource { api_version, kind, .. } = resource;
        let parts = ["{\"apiVersion\":\"", api_version, "\",\"kind\":\"", kind, "\","];
        let head: usize = parts.iter().map(|part| part.len()).sum();
        // The exact capacity, so that the cache keeps no unused memory.
        let mut json = String::with_capacity(head + self.rest.len());
        parts.iter().for_each(|part| json.push_str(part));
        json.push_str(&self.rest);
        Object {
            json: json.into_boxed_str(),
            offsets: self.offsets.moved(head),
            terminating: self.terminating,
            is_stub: false,
            decoded: DecodedValues::default(),
            decoded_before: AtomicBool::new(false),
        }
    }
}

/// Writes a string and returns the offset of its content. Returns zero if it is empty, or not a string, or needs escapes,
/// which no name does.
fn push_plain(text: &mut String, value: &str, at: u32) -> u32 {
    match json_text::string(value) {
        Some(content)
            if !content.is_empty() && !content.contains(['"', '\\']) && !content.contains(char::is_control) =>
        {
            text.push('"');
            text.push_str(&content);
            text.push('"');
            at + 1
        }
        _ => {
            text.push_str(value);
            0
        }
    }
}
