//! An object as it comes over the wire. In: what serde_json reads of a list or of a watch's line. Out: a [`Draft`], or
//! why the object cannot be kept. Reading one never fails, so that one strange object never costs a whole list.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;

use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::decoded::Decoded;
use super::scan;
use super::{Marks, Object};

/// What is kept of an object. A type, because the client asks its types what to request.
pub(crate) trait Keep: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Only type and metadata, and no more is asked for.
    const METADATA_ONLY: bool;
    /// `metadata.managedFields`, too.
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

impl Keep for Full {
    const METADATA_ONLY: bool = false;
    const MANAGED_FIELDS: bool = false;
}

impl Keep for Metadata {
    const METADATA_ONLY: bool = true;
    const MANAGED_FIELDS: bool = false;
}

impl Keep for Everything {
    const METADATA_ONLY: bool = false;
    const MANAGED_FIELDS: bool = true;
}

/// An object that was just read, in the form kube's watcher takes.
#[derive(Clone, Debug)]
pub(crate) struct Wire<P> {
    /// Only the resource version, which is all the watcher looks at.
    meta: ObjectMeta,
    pub draft: Result<Draft, Unreadable>,
    keep: PhantomData<P>,
}

/// An object that cannot be kept, because nothing says which one it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// Its beginning, for whoever has to find it.
    pub beginning: String,
}

/// The text of an object from `"metadata"` on, and where in it the facts are.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    rest: String,
    marks: Marks,
    terminating: bool,
}

impl<'de, P: Keep> Deserialize<'de> for Wire<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&'de RawValue>::deserialize(deserializer)?.get();
        let draft = Draft::read(text, P::METADATA_ONLY, P::MANAGED_FIELDS);
        // Of an object without a name the watcher still has to know how far it has come.
        let version = match &draft {
            Ok(draft) => draft.marks.string(&draft.rest, draft.marks.resource_version).map(str::to_owned),
            Err(_) => scan::pointer(text, "/metadata/resourceVersion").and_then(scan::string).map(Cow::into_owned),
        };
        Ok(Self { meta: ObjectMeta { resource_version: version, ..ObjectMeta::default() }, draft, keep: PhantomData })
    }
}

impl<P: Keep> Resource for Wire<P> {
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
    /// Takes from a whole object what is kept of it.
    pub fn read(text: &str, metadata_only: bool, managed_fields: bool) -> Result<Self, Unreadable> {
        let mut draft = Self { rest: String::with_capacity(text.len()), marks: Marks::default(), terminating: false };
        let mut others = Vec::with_capacity(4);
        let mut members = scan::members(text);
        while let Some(key) = members.name() {
            match key {
                // Read on the way, because with managedFields it is the largest part of many objects.
                "metadata" => draft.metadata(&mut members, managed_fields),
                "apiVersion" | "kind" => _ = members.value(),
                _ if metadata_only => _ = members.value(),
                _ => others.push((key, members.value())),
            }
        }
        if draft.marks.name == 0 {
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

    /// Takes the metadata, which is next; of several the last.
    fn metadata(&mut self, members: &mut scan::Members<'_>, managed_fields: bool) {
        let Self { rest, marks, terminating } = self;
        (*marks, *terminating) = (Marks::default(), false);
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
            // No server sends an object of four gigabytes; one that big would only lose its facts.
            let at = u32::try_from(rest.len()).unwrap_or_default();
            match key {
                "name" => marks.name = push_plain(rest, value, at),
                "namespace" => marks.namespace = push_plain(rest, value, at),
                "uid" => marks.uid = push_plain(rest, value, at),
                "resourceVersion" => marks.resource_version = push_plain(rest, value, at),
                _ => rest.push_str(value),
            }
            match key {
                _ if value == "null" => {}
                "generation" => marks.generation = at,
                "labels" => marks.labels = at,
                "annotations" => marks.annotations = at,
                "ownerReferences" => marks.owners = at,
                "finalizers" => marks.finalizers = at,
                "deletionTimestamp" => *terminating = true,
                _ => {}
            }
        }
        rest.push('}');
    }

    /// The object as it is kept. Lists leave the type of built-in kinds out and metadata comes as a type of its own, so
    /// the type is always written anew.
    pub fn finish(self, resource: &ApiResource) -> Object {
        let ApiResource { api_version, kind, .. } = resource;
        let parts = ["{\"apiVersion\":\"", api_version, "\",\"kind\":\"", kind, "\","];
        let head: usize = parts.iter().map(|part| part.len()).sum();
        // Exactly as long as needed: nothing that is kept has spare room.
        let mut json = String::with_capacity(head + self.rest.len());
        parts.iter().for_each(|part| json.push_str(part));
        json.push_str(&self.rest);
        Object {
            json: json.into_boxed_str(),
            marks: self.marks.moved(head),
            terminating: self.terminating,
            decoded: Decoded::default(),
            decoded_before: AtomicBool::new(false),
        }
    }
}

/// Writes a string that names something, and says where its content begins; nowhere if it is empty, or not a string, or
/// one that only escapes can write, which no name is.
fn push_plain(text: &mut String, value: &str, at: u32) -> u32 {
    match scan::string(value) {
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
