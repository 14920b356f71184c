//! An object as the cache keeps it: its JSON, and where in it the few facts are that indexes and triggers ask for again
//! and again. In: JSON of one object. Out: those facts as slices, and the object decoded when somebody looks. Never
//! decodes by itself, and never changes.

mod decoded;
mod scan;
mod wire;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use konverge_core::{LabelSelector, ObjectKey};
use kube::api::ApiResource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use decoded::Decoded;
pub(crate) use scan::{items, members};
pub(crate) use wire::{Everything, Full, Keep, Metadata, Unreadable, Wire};

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
    marks: Marks,
    /// Whether it has a deletionTimestamp. Here and not among the marks: two flags side by side take no room of their own.
    terminating: bool,
    decoded: Decoded,
    /// Whether somebody has decoded it to keep the value, see [`Object::was_decoded`].
    decoded_before: AtomicBool,
}

/// How much of an object is fetched and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// All of it but `metadata.managedFields`, which nobody reads and which is often a third of an object.
    #[default]
    Full,
    /// Its type and metadata, without managedFields. Nothing else is sent by the server.
    Metadata,
    /// All of it, managedFields included.
    WithManagedFields,
}

/// An object does not have the form that was expected of it. It stays in the cache and harms no other.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {key} does not read as {expected}")]
pub struct DecodeError {
    /// Which object.
    pub key: ObjectKey,
    /// The kind it says it has.
    pub kind: String,
    /// The Rust type that was asked for.
    pub expected: &'static str,
    /// Where it differs.
    pub source: serde_json::Error,
}

/// A text is not an object: it is not JSON, or has no name.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Not JSON.
    #[error("this is not JSON")]
    Syntax(#[from] serde_json::Error),
    /// No name, so nobody could ask for it.
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
    /// Whether this owner manages the object.
    pub controller: bool,
    /// Whether an owner that is deleted in the foreground waits for the object.
    pub block_owner_deletion: bool,
}

/// Where in the text the facts begin: strings behind their opening quote. Zero means absent.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
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

    /// Its namespace and name. Made anew at every call: who needs only one of them asks for that.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.marks.string(&self.json, self.marks.name).unwrap_or_default()
    }

    /// Its namespace; none for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.marks.string(&self.json, self.marks.namespace)
    }

    /// Its uid; empty if it has none.
    pub fn uid(&self) -> &str {
        self.marks.string(&self.json, self.marks.uid).unwrap_or_default()
    }

    /// Its resource version; empty if it has none.
    pub fn resource_version(&self) -> &str {
        self.marks.string(&self.json, self.marks.resource_version).unwrap_or_default()
    }

    /// Its resource version as a number, which grows with every change to objects of its kind. API servers whose
    /// versions are not numbers have none, and reads after writes then wait for exactly the version that was written.
    pub fn revision(&self) -> Option<u64> {
        self.resource_version().parse().ok()
    }

    /// Its generation, which the server raises when the spec changes.
    pub fn generation(&self) -> Option<i64> {
        self.marks.value(&self.json, self.marks.generation).parse().ok()
    }

    /// Its labels.
    pub fn labels(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        pairs(self.labels_json())
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        scan::member(self.labels_json(), key).and_then(scan::string)
    }

    /// Whether a selector selects it.
    pub fn matches(&self, selector: &LabelSelector) -> bool {
        selector.matches_with(|key| self.label(key))
    }

    /// Its annotations.
    pub fn annotations(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        pairs(self.annotations_json())
    }

    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<Cow<'_, str>> {
        scan::member(self.annotations_json(), key).and_then(scan::string)
    }

    /// Its owners.
    pub fn owners(&self) -> impl Iterator<Item = OwnerReference<'_>> {
        scan::items(self.marks.value(&self.json, self.marks.owners)).map(|text| {
            let mut owner = OwnerReference::default();
            for (key, value) in scan::members(text) {
                match key {
                    "apiVersion" => owner.api_version = scan::string(value).unwrap_or_default(),
                    "kind" => owner.kind = scan::string(value).unwrap_or_default(),
                    "name" => owner.name = scan::string(value).unwrap_or_default(),
                    "uid" => owner.uid = scan::string(value).unwrap_or_default(),
                    "controller" => owner.controller = value == "true",
                    "blockOwnerDeletion" => owner.block_owner_deletion = value == "true",
                    _ => {}
                }
            }
            owner
        })
    }

    /// The owner that manages it.
    pub fn controller(&self) -> Option<OwnerReference<'_>> {
        self.owners().find(|owner| owner.controller)
    }

    /// Its finalizers.
    pub fn finalizers(&self) -> impl Iterator<Item = Cow<'_, str>> {
        scan::items(self.marks.value(&self.json, self.marks.finalizers)).filter_map(scan::string)
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
        scan::pointer(&self.json, path)
    }

    /// All of it as a Rust type.
    pub fn decode<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        serde_json::from_str(&self.json).map_err(|source| DecodeError {
            key: self.key(),
            kind: self.pointer("/kind").and_then(scan::string).unwrap_or_default().into_owned(),
            expected: std::any::type_name::<K>(),
            source,
        })
    }

    /// What [`Object::keep_decoded`] has left, if nobody has called for it to be forgotten.
    pub(crate) fn kept_decoded<K: Send + Sync + 'static>(&self) -> Option<Arc<K>> {
        self.decoded.get()
    }

    /// Keeps what was decoded of it, for everybody who reads it as `K`.
    pub(crate) fn keep_decoded<K: Send + Sync + 'static>(&self, decoded: Arc<K>) {
        self.decoded.put(decoded);
    }

    /// Whether this was asked before: an object that is decoded once is mostly not decoded again.
    pub(crate) fn was_decoded(&self) -> bool {
        self.decoded_before.swap(true, Ordering::Relaxed)
    }

    /// Keeps only the text, as far as `K` is concerned.
    pub(crate) fn forget_decoded<K: Send + Sync + 'static>(&self) {
        self.decoded.forget::<K>();
    }

    /// All of it as a tree.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.json).expect("the text was read as JSON before it was kept")
    }

    /// How many bytes of memory it takes, as far as it knows: its text, itself, and the two counters of whoever shares it.
    /// What is kept decoded comes on top.
    pub fn size(&self) -> usize {
        self.json.len() + size_of::<Self>() + 2 * size_of::<usize>()
    }

    pub(crate) fn labels_json(&self) -> &str {
        self.marks.value(&self.json, self.marks.labels)
    }

    pub(crate) fn annotations_json(&self) -> &str {
        self.marks.value(&self.json, self.marks.annotations)
    }
}

/// The same text: the same object in the same state.
impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

/// The key and the version say which object in which state; the text would only fill a log.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} @{})", self.key(), self.resource_version())
    }
}

impl Marks {
    /// The string whose content begins at a mark. It has no escapes, so the next quote ends it.
    fn string(self, text: &str, mark: u32) -> Option<&str> {
        let content = text.get(mark as usize..).filter(|_| mark > 0)?;
        content.get(..memchr::memchr(b'"', content.as_bytes())?)
    }

    /// The value that begins at a mark; empty if it is absent.
    fn value(self, text: &str, mark: u32) -> &str {
        if mark == 0 { "" } else { scan::value_at(text, mark as usize) }
    }

    fn moved(self, by: usize) -> Self {
        let by = u32::try_from(by).unwrap_or_default();
        let moved = |mark: u32| if mark == 0 { 0 } else { mark.saturating_add(by) };
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
    scan::members(text).filter_map(|(key, value)| Some((scan::unescaped(key), scan::string(value)?)))
}

#[cfg(test)]
mod tests;
