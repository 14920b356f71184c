//! An object as the cache keeps it: its JSON, and the offsets of the metadata fields that indexes and triggers read most
//! often. In: JSON of one object. Out: those fields as slices, and the object as a Rust type for a caller that asks for it.
//! Never decodes by itself, and never changes.

mod decoded;
mod wire;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use konverge_core::{LabelSelector, ObjectKey, from_stored};
use kube::api::ApiResource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::json_text;

use decoded::DecodedValues;
pub(crate) use wire::{Everything, Full, Metadata, Projection, Unreadable, Wire};

/// An object as the cache keeps it: its JSON in one allocation, without `managedFields` unless they were asked for.
///
/// ```
/// use konverge_runtime::{Mode, Object};
/// # let resource = kube::api::ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&());
/// let json = r#"{"metadata":{"namespace":"default","name":"web","uid":"u","generation":3},"spec":{"replicas":2}}"#;
/// let web = Object::parse(&resource, json, Mode::Full).unwrap();
/// assert_eq!(web.key().to_string(), "default/web");
/// assert_eq!((web.uid(), web.generation()), ("u", Some(3)));
/// assert_eq!(web.pointer("/spec/replicas"), Some("2"));
/// assert_eq!(web.decode::<k8s_openapi::api::apps::v1::Deployment>().unwrap().spec.replicas, Some(2));
/// ```
pub struct Object {
    json: Box<str>,
    offsets: Offsets,
    /// Whether it has a deletionTimestamp. It is not part of the offsets, because next to the other flag it takes no extra
    /// memory.
    terminating: bool,
    /// Whether this is only what is left of an object: see [`Object::stub`].
    is_stub: bool,
    decoded: DecodedValues,
    /// See [`Object::mark_decoded`].
    decoded_before: AtomicBool,
}

/// How much of an object is fetched and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// The whole object without `metadata.managedFields`, which is often a third of an object and rarely read.
    #[default]
    Full,
    /// Its type and metadata, without managedFields. The server sends nothing else.
    Metadata,
    /// The whole object, with managedFields.
    WithManagedFields,
}

/// An object cannot be decoded as a Rust type. It stays in the cache; other objects are not affected.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {key} does not read as {expected}")]
pub struct DecodeError {
    /// Which object.
    pub key: ObjectKey,
    /// Its kind.
    pub kind: String,
    /// The Rust type that was asked for.
    pub expected: &'static str,
    /// What serde_json says about it.
    pub source: serde_json::Error,
}

/// A text is not an object: it is not JSON, or has no name.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Not JSON.
    #[error("this is not JSON")]
    Syntax(#[from] serde_json::Error),
    /// It has no name.
    #[error("an object without a name cannot be kept; it begins with {0}")]
    Nameless(String),
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    /// The owner's group and version.
    pub api_version: Cow<'a, str>,
    /// The owner's kind.
    pub kind: Cow<'a, str>,
    /// Its name; its namespace is the object's own, or none.
    pub name: Cow<'a, str>,
    /// Its uid.
    pub uid: Cow<'a, str>,
    /// Whether this owner is the object's controller.
    pub controller: bool,
    /// Whether foreground deletion of the owner waits for the object.
    pub block_owner_deletion: bool,
}

/// Where in the JSON the values of metadata fields begin; for strings, behind the opening quote. Zero means absent.
#[derive(Clone, Copy, Debug, Default)]
struct Offsets {
    name: u32,
    namespace: u32,
    uid: u32,
    resource_version: u32,
    generation: u32,
    labels: u32,
    annotations: u32,
    owners: u32,
    finalizers: u32,
}

impl Object {
    /// Reads an object of a kind from its JSON.
    pub fn parse(resource: &ApiResource, json: &str, mode: Mode) -> Result<Self, ParseError> {
        let draft = match mode {
            Mode::Full => serde_json::from_str::<Wire<Full>>(json)?.draft,
            Mode::Metadata => serde_json::from_str::<Wire<Metadata>>(json)?.draft,
            Mode::WithManagedFields => serde_json::from_str::<Wire<Everything>>(json)?.draft,
        };
        match draft {
            Ok(draft) => Ok(draft.finish(resource)),
            Err(Unreadable { beginning }) => Err(ParseError::Nameless(beginning)),
        }
    }

    /// What is left of an object that belongs to another instance: its names, its uid and its resource version, and the uids of its owners.
    pub(crate) fn stub(resource: &ApiResource, object: &Self, owners: &[String]) -> Self {
        let owners: Vec<Value> = owners.iter().map(|uid| json!({ "uid": uid })).collect();
        let mut metadata =
            json!({"name": object.name(), "uid": object.uid(), "resourceVersion": object.resource_version()});
        if let Some(namespace) = object.namespace() {
            metadata["namespace"] = namespace.into();
        }
        if !owners.is_empty() {
            metadata["ownerReferences"] = owners.into();
        }
        let json = json!({ "metadata": metadata }).to_string();
        let stub = Self::parse(resource, &json, Mode::Full).expect("what has a name is an object");
        Self { is_stub: true, ..stub }
    }

    /// Whether this is only what is left of an object.
    pub(crate) fn is_stub(&self) -> bool {
        self.is_stub
    }

    /// Its namespace and name. Each call allocates; [`Object::name`] and [`Object::namespace`] do not.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.offsets.string(&self.json, self.offsets.name).unwrap_or_default()
    }

    /// Its namespace; none for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.offsets.string(&self.json, self.offsets.namespace)
    }

    /// Its uid; empty if it has none.
    pub fn uid(&self) -> &str {
        self.offsets.string(&self.json, self.offsets.uid).unwrap_or_default()
    }

    /// Its resource version; empty if it has none.
    pub fn resource_version(&self) -> &str {
        self.offsets.string(&self.json, self.offsets.resource_version).unwrap_or_default()
    }

    /// Its resource version as a number, which grows with every change to objects of its kind. API servers whose
    /// versions are not numbers have none, and reads after writes then wait for exactly the version that was written.
    pub fn revision(&self) -> Option<u64> {
        self.resource_version().parse().ok()
    }

    /// Its generation, which the server raises when the spec changes.
    pub fn generation(&self) -> Option<i64> {
        self.offsets.value(&self.json, self.offsets.generation).parse().ok()
    }

    /// Its labels.
    pub fn labels(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        pairs(self.labels_json())
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        json_text::member(self.labels_json(), key).and_then(json_text::string)
    }

    /// Whether a label selector selects it.
    pub fn matches(&self, selector: &LabelSelector) -> bool {
        selector.matches_with(|key| self.label(key))
    }

    /// Its annotations.
    pub fn annotations(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        pairs(self.annotations_json())
    }

    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<Cow<'_, str>> {
        json_text::member(self.annotations_json(), key).and_then(json_text::string)
    }

    /// Its owners.
    pub fn owners(&self) -> impl Iterator<Item = OwnerReference<'_>> {
        json_text::items(self.offsets.value(&self.json, self.offsets.owners)).map(|text| {
            let mut owner = OwnerReference::default();
            for (key, value) in json_text::members(text) {
                match key {
                    "apiVersion" => owner.api_version = json_text::string(value).unwrap_or_default(),
                    "kind" => owner.kind = json_text::string(value).unwrap_or_default(),
                    "name" => owner.name = json_text::string(value).unwrap_or_default(),
                    "uid" => owner.uid = json_text::string(value).unwrap_or_default(),
                    "controller" => owner.controller = value == "true",
                    "blockOwnerDeletion" => owner.block_owner_deletion = value == "true",
                    _ => {}
                }
            }
            owner
        })
    }

    /// Its controller: the owner reference with `controller: true`.
    pub fn controller(&self) -> Option<OwnerReference<'_>> {
        self.owners().find(|owner| owner.controller)
    }

    /// Its finalizers.
    pub fn finalizers(&self) -> impl Iterator<Item = Cow<'_, str>> {
        json_text::items(self.offsets.value(&self.json, self.offsets.finalizers)).filter_map(json_text::string)
    }

    /// Whether it is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// Its JSON, with apiVersion, kind and metadata first.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The JSON of one field, found without decoding the rest: `/spec/replicas`. A `/` in a name is written `~1`.
    pub fn pointer(&self, path: &str) -> Option<&str> {
        json_text::pointer(&self.json, path)
    }

    /// The object as a Rust type.
    pub fn decode<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        from_stored(self.json.as_bytes()).map_err(|source| DecodeError {
            key: self.key(),
            kind: self.pointer("/kind").and_then(json_text::string).unwrap_or_default().into_owned(),
            expected: std::any::type_name::<K>(),
            source,
        })
    }

    /// The value of [`Object::cache_decoded`], if it was not dropped since.
    pub(crate) fn cached_decoded<K: Send + Sync + 'static>(&self) -> Option<Arc<K>> {
        self.decoded.get()
    }

    /// Caches the decoded object for all readers of `K`.
    pub(crate) fn cache_decoded<K: Send + Sync + 'static>(&self, decoded: Arc<K>) {
        self.decoded.put(decoded);
    }

    /// Notes that the object is decoded, and returns whether it was decoded before. Most objects are decoded only once, so
    /// the first value is not worth caching.
    pub(crate) fn mark_decoded(&self) -> bool {
        self.decoded_before.swap(true, Ordering::Relaxed)
    }

    /// Drops the cached value of type `K`.
    pub(crate) fn drop_decoded<K: Send + Sync + 'static>(&self) {
        self.decoded.remove::<K>();
    }

    /// The object as a JSON value.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.json).expect("an object is made from valid JSON only")
    }

    /// How many bytes of memory it takes: its JSON, this struct, and the two counters of an `Arc` around it. Cached decoded
    /// values are not included.
    pub fn size(&self) -> usize {
        self.json.len() + size_of::<Self>() + 2 * size_of::<usize>()
    }

    pub(crate) fn labels_json(&self) -> &str {
        self.offsets.value(&self.json, self.offsets.labels)
    }

    pub(crate) fn annotations_json(&self) -> &str {
        self.offsets.value(&self.json, self.offsets.annotations)
    }
}

/// Objects are equal if their JSON is.
impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

/// Prints the key and the resource version; the whole JSON would fill a log.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} @{})", self.key(), self.resource_version())
    }
}

impl Offsets {
    /// The string whose content begins at an offset. It has no escapes, so the next quote ends it.
    fn string(self, text: &str, offset: u32) -> Option<&str> {
        let content = text.get(offset as usize..).filter(|_| offset > 0)?;
        content.get(..memchr::memchr(b'"', content.as_bytes())?)
    }

    /// The value that begins at an offset; empty if the field is absent.
    fn value(self, text: &str, offset: u32) -> &str {
        if offset == 0 { "" } else { json_text::value_at(text, offset as usize) }
    }

    fn moved(self, by: usize) -> Self {
        let by = u32::try_from(by).unwrap_or_default();
        let moved = |offset: u32| if offset == 0 { 0 } else { offset.saturating_add(by) };
        Self {
            name: moved(self.name),
            namespace: moved(self.namespace),
            uid: moved(self.uid),
            resource_version: moved(self.resource_version),
            generation: moved(self.generation),
            labels: moved(self.labels),
            annotations: moved(self.annotations),
            owners: moved(self.owners),
            finalizers: moved(self.finalizers),
        }
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    json_text::members(text).filter_map(|(key, value)| Some((json_text::unescaped(key), json_text::string(value)?)))
}

#[cfg(test)]
mod tests;
