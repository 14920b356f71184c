//! `metadata.managedFields`: which manager owns which fields of an object.
//! In and out: the list as objects carry it, in Kubernetes' order. `apply` decides about ownership, not this file.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

use serde_json::{Map, Value, json};

use crate::field_set::{FieldSet, FieldsV1Error};

/// How a manager came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

/// One manager and what it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedEntry {
    /// Its name.
    pub manager: Box<str>,
    /// How it came to own the fields.
    pub operation: Operation,
    /// The version in which it wrote.
    pub api_version: Box<str>,
    /// The subresource through which it wrote; empty for the object itself.
    pub subresource: Box<str>,
    /// When the set last changed, as RFC 3339.
    pub time: Option<Box<str>>,
    /// What it owns.
    pub fields: FieldSet,
}

/// Every manager of an object; no two with the same identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedFields {
    /// In no particular order.
    pub entries: Vec<ManagedEntry>,
}

/// `managedFields` that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ManagedFieldsError {
    /// `managedFields` is not a list, or an entry is not an object.
    #[error("managedFields must be a list of objects")]
    Shape,
    /// Neither `Apply` nor `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No `apiVersion`.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// No `fieldsType`.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// A `fieldsType` other than `FieldsV1`.
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, String),
    /// A `fieldsV1` that cannot be read.
    #[error("error decoding versioned set of {0:?}: error decoding set: {1}")]
    Fields(String, FieldsV1Error),
}

/// The limit of managers with the operation Update. Beyond it the oldest are merged, so that clients that use a new name
/// each time do not let an object grow forever.
const MAX_UPDATERS: usize = 10;

/// The manager they are merged into.
const ANCIENT: &str = "ancient-changes";

impl Operation {
    /// As managedFields spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl ManagedEntry {
    /// Whether both are the same manager. A manager that applies is the same in every version.
    pub fn is_same_manager(&self, other: &Self) -> bool {
        self.by_identity(other).is_eq()
    }

    /// The order in which Kubernetes lists managers with the same time.
    pub(crate) fn by_identity(&self, other: &Self) -> Ordering {
        // An entry with a subresource comes before the one without.
        fn key<'a>((manager, operation, version, subresource): Identity<'a>) -> (Identity<'a>, bool, &'a str) {
            ((manager, operation, version, ""), subresource.is_empty(), subresource)
        }
        key(self.identity()).cmp(&key(other.identity()))
    }

    /// What identifies a manager. Appliers have no version.
    fn identity(&self) -> Identity<'_> {
        identity(&self.manager, self.operation, &self.api_version, &self.subresource)
    }

    /// As conflicts print it: `"kubectl" with subresource "status" using apps/v1`. The time is not
    /// part of the identity.
    pub(crate) fn describe(&self) -> String {
        let mut out = crate::go_format::quote(&self.manager);
        if !self.subresource.is_empty() {
            out.push_str(" with subresource ");
            out.push_str(&crate::go_format::quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            out.push_str(" using ");
            out.push_str(&self.api_version);
        }
        out
    }

    fn decode(at: usize, value: &Value) -> Result<Self, ManagedFieldsError> {
        let entry = value.as_object().ok_or(ManagedFieldsError::Shape)?;
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedFieldsError::Operation),
        };
        if text("apiVersion").is_empty() {
            return Err(ManagedFieldsError::ApiVersion);
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(ManagedFieldsError::NoFieldsType(at)),
            other => return Err(ManagedFieldsError::FieldsType(at, other.into())),
        }
        let fields = match entry.get("fieldsV1") {
            Some(fields) => FieldSet::from_fields_v1(fields)
                .map_err(|why| ManagedFieldsError::Fields(text("manager").into(), why))?,
            None => FieldSet::default(),
        };
        Ok(Self {
            manager: text("manager").into(),
            operation,
            api_version: text("apiVersion").into(),
            subresource: text("subresource").into(),
            time: entry.get("time").and_then(Value::as_str).map(Into::into),
            fields,
        })
    }

    fn encode(&self) -> Value {
        let mut entry = Map::new();
        let mut text = |name: &str, value: &str| {
            if !value.is_empty() {
                entry.insert(name.into(), value.into());
            }
        };
        text("apiVersion", &self.api_version);
        text("fieldsType", "FieldsV1");
        text("manager", &self.manager);
        text("operation", self.operation.as_str());
        text("subresource", &self.subresource);
        text("time", self.time.as_deref().unwrap_or_default());
        entry.insert("fieldsV1".into(), self.fields.to_fields_v1());
        Value::Object(entry)
    }
}

impl ManagedFields {
    /// Reads the managers of an object; an object without `managedFields` has none.
    pub fn of(object: &Value) -> Result<Self, ManagedFieldsError> {
        object.pointer("/metadata/managedFields").map_or(Ok(Self::default()), Self::decode)
    }

    /// Reads the list.
    pub fn decode(list: &Value) -> Result<Self, ManagedFieldsError> {
        let list = match list {
            Value::Null => return Ok(Self::default()),
            list => list.as_array().ok_or(ManagedFieldsError::Shape)?,
        };
        let mut managed = Self { entries: Vec::with_capacity(list.len()) };
        let mut places = HashMap::with_capacity(list.len());
        for (at, value) in list.iter().enumerate() {
            let entry = ManagedEntry::decode(at, value)?;
            let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
            let who = identity(text("manager"), entry.operation, text("apiVersion"), text("subresource"));
            match places.entry(who) {
                Occupied(place) => managed.entries[*place.get()] = entry,
                Vacant(place) => {
                    place.insert(managed.entries.len());
                    managed.entries.push(entry);
                }
            }
        }
        Ok(managed)
    }

    /// Writes the list, sorted as Kubernetes sorts it; `None` if there are no managers.
    pub fn encode(&self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        let mut entries: Vec<&ManagedEntry> = self.entries.iter().collect();
        entries.sort_by(|a, b| {
            (a.operation.cmp(&b.operation))
                .then_with(|| a.time.cmp(&b.time))
                .then_with(|| a.manager.cmp(&b.manager))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        Some(Value::Array(entries.into_iter().map(ManagedEntry::encode).collect()))
    }

    /// Puts the list into an object, or takes it out if there are no managers.
    pub fn write_to(&self, object: &mut Value) {
        set_managed_fields(object, self.encode());
    }

    /// The entry of the same manager; adds this one if there is none.
    pub(crate) fn entry(&mut self, entry: ManagedEntry) -> &mut ManagedEntry {
        let at = match self.entries.iter().position(|known| known.is_same_manager(&entry)) {
            Some(at) => at,
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        &mut self.entries[at]
    }

    /// Merges the oldest updaters until at most [`MAX_UPDATERS`] are left.
    pub(crate) fn cap_updaters(&mut self) {
        if self.entries.iter().filter(|entry| entry.operation == Operation::Update).count() <= MAX_UPDATERS {
            return;
        }
        let mut updaters: Vec<ManagedEntry> =
            self.entries.extract_if(.., |entry| entry.operation == Operation::Update).collect();
        updaters.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.by_identity(b)));
        // One bucket for each version: the first manager of a version keeps its name until a second one is merged into it.
        let mut left = updaters.len();
        let mut kept: Vec<ManagedEntry> = Vec::new();
        let mut joined: Vec<Vec<FieldSet>> = Vec::new();
        let mut first_of_version: HashMap<Box<str>, usize> = HashMap::new();
        for updater in updaters {
            let first = first_of_version.get(&updater.api_version).filter(|_| left > MAX_UPDATERS);
            if let Some(first) = first {
                let bucket = &mut kept[*first];
                bucket.manager = ANCIENT.into();
                bucket.subresource = "".into();
                bucket.time = updater.time;
                joined[*first].push(updater.fields);
                left -= 1;
            } else {
                first_of_version.entry(updater.api_version.clone()).or_insert(kept.len());
                kept.push(updater);
                joined.push(Vec::new());
            }
        }
        // There may be an older `ancient-changes` entry of the same version.
        let mut buckets: HashMap<Box<str>, usize> = HashMap::new();
        for (mut updater, others) in kept.into_iter().zip(joined) {
            if !others.is_empty() {
                updater.fields = FieldSet::union_all(others.iter().chain([&updater.fields]));
            }
            if &*updater.manager == ANCIENT && updater.subresource.is_empty() {
                match buckets.entry(updater.api_version.clone()) {
                    Occupied(place) => {
                        let known = &mut self.entries[*place.get()];
                        known.fields.add_all(updater.fields);
                        known.time = known.time.take().max(updater.time);
                        continue;
                    }
                    Vacant(place) => place.insert(self.entries.len()),
                };
            }
            self.entries.push(updater);
        }
    }
}

/// Manager, operation, version and subresource.
type Identity<'a> = (&'a str, Operation, &'a str, &'a str);

fn identity<'a>(manager: &'a str, operation: Operation, api_version: &'a str, subresource: &'a str) -> Identity<'a> {
    (manager, operation, if operation == Operation::Apply { "" } else { api_version }, subresource)
}

/// Whether a client resets the managers: `[]` or `[{}]`.
pub(crate) fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => *one == json!({}),
        _ => false,
    }
}

/// Takes `managedFields` out of an object.
pub(crate) fn take_managed_fields(object: &mut Value) -> Option<Value> {
    let list = object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")?;
    (!list.is_null()).then_some(list)
}

/// Puts `managedFields` into an object that has metadata.
pub(crate) fn set_managed_fields(object: &mut Value, list: Option<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match list {
        Some(list) => metadata.insert("managedFields".into(), list),
        None => metadata.remove("managedFields"),
    };
}
