//! Objects between the version they are stored in and the version a request speaks. In: stored records and the resource
//! they are read through. Out: JSON in that resource's version, and on the way back the object as it is stored.
//!
//! Reading has two steps, so that the common case costs nothing:
//!
//! 1. `read`, `read_all` and `read_changes` may wait and may fail, because a conversion webhook may. They do nothing for a
//!    resource without a converter. What they give is a [`Readable`].
//! 2. `object` and `write_object` take a [`Readable`] and neither wait nor fail. Where the stored bytes are what the
//!    resource serves, they are copied and nothing is parsed.

pub(crate) mod autoscaling;
mod metrics;
mod restore;
mod webhook;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use konverge_core::Status;
use konverge_schema::{Arena, Budget, NullRules, OverBudget, TypeId, default, prune};
use konverge_store::{BoxFuture, Change, Entry, Revision};

use crate::record;
use crate::resource::Resource;
use restore::{Form, restored};

pub(crate) use metrics::ConversionMetrics;
pub(crate) use webhook::converters;

/// What the defaults of one object may take when it is read: about as much as an object can be large.
const DEFAULT_STEPS: u64 = 2_000_000;
const DEFAULT_BYTES: u64 = 2 * 1024 * 1024;

/// How many objects a converter is given at once. kube-apiserver sends a whole list; the answer to 10,000 objects of a megabyte
/// would not fit into memory.
const BATCH: usize = 500;

/// A budget for the defaults of one object that is there already.
pub(crate) const fn default_budget() -> Budget {
    Budget::new(DEFAULT_STEPS, DEFAULT_BYTES)
}

/// Converts objects of one kind between its versions, as a conversion webhook does. A converter limits how long it takes:
/// requests and watches wait for it.
pub(crate) trait Converter: Send + Sync {
    /// The objects in the version `to`: as many as there are, in the same order.
    fn convert<'a>(&'a self, objects: Vec<Value>, to: &'a str) -> BoxFuture<'a, Result<Vec<Value>, ConversionError>>;

    /// Is told how a conversion between versions ended, for metrics.
    fn converted(&self, _versions: (&str, &str), _took: Duration, _failure: Option<ConversionFailure>) {}
}

impl fmt::Debug for dyn Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Converter")
    }
}

/// Why objects could not be converted, in the converter's words.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct ConversionError {
    pub why: String,
    pub failure: ConversionFailure,
}

/// What was wrong with a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversionFailure {
    /// The converter was not reached.
    Call,
    /// The server did not call the converter, because too many requests wait for it already.
    NotCalled,
    /// The answer is none.
    MalformedResponse,
    /// The answer has other than as many objects.
    PartialResponse,
    /// An object is another one, or not in the version that was asked for.
    InvalidObject,
}

impl ConversionFailure {
    /// The failure in metrics of kube-apiserver.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Call | Self::NotCalled => "conversion_webhook_call_failure",
            Self::MalformedResponse => "conversion_webhook_malformed_response_failure",
            Self::PartialResponse => "conversion_webhook_partial_response_failure",
            Self::InvalidObject => "conversion_webhook_invalid_converted_object_failure",
        }
    }
}

/// Gives the converter of a custom resource definition, or none if its versions differ in `apiVersion` alone.
pub(crate) type Converters = dyn Fn(&Value) -> Option<Arc<dyn Converter>> + Send + Sync;

/// A record that its resource can show without waiting: what is stored, or what the converter made of that.
#[derive(Clone, Debug)]
pub(crate) struct Readable(Entry);

impl Deref for Readable {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.0
    }
}

/// A change whose records can be shown without waiting.
#[derive(Clone, Debug)]
pub(crate) struct ReadableChange {
    pub revision: Revision,
    pub before: Option<Readable>,
    pub after: Option<Readable>,
}

impl Resource {
    /// Makes a record readable in this resource's version.
    pub(crate) async fn read(&self, entry: Entry) -> Result<Readable, Status> {
        if self.storage_converter().is_none() || self.is_stored_as_served(&entry) {
            return Ok(Readable(entry));
        }
        let mut entry = entry;
        if let Some(converter) = self.storage_converter() {
            self.convert_records(&**converter, &mut [&mut entry], Form::One).await?;
        }
        Ok(Readable(entry))
    }

    /// Makes records readable, with a call of the converter for every 500 of them.
    pub(crate) async fn read_all(&self, mut entries: Vec<Entry>) -> Result<Vec<Readable>, Status> {
        if let Some(converter) = self.storage_converter() {
            self.convert_records(&**converter, &mut entries.iter_mut().collect::<Vec<_>>(), Form::List).await?;
        }
        Ok(entries.into_iter().map(Readable).collect())
    }

    /// Makes both records of each change readable, with one call of the converter for all of them.
    pub(crate) async fn read_changes(&self, mut changes: Vec<Change>) -> Result<Vec<ReadableChange>, Status> {
        if let Some(converter) = self.storage_converter() {
            let entries = changes.iter_mut().flat_map(|change| change.before.iter_mut().chain(&mut change.after));
            // To a watcher each object comes alone.
            self.convert_records(&**converter, &mut entries.collect::<Vec<_>>(), Form::One).await?;
        }
        let readable = |Change { revision, before, after, .. }| {
            let (before, after) = (before.map(Readable), after.map(Readable));
            ReadableChange { revision, before, after }
        };
        Ok(changes.into_iter().map(readable).collect())
    }

    /// The object in a record, in this resource's version.
    pub(crate) async fn read_object(&self, entry: &Entry) -> Result<Value, Status> {
        match self.storage_converter() {
            None => Ok(self.decode(entry)),
            Some(_) => Ok(self.object(&self.read(entry.clone()).await?)),
        }
    }

    /// The object in this resource's version.
    pub(crate) fn object(&self, record: &Readable) -> Value {
        self.decode(record)
    }

    /// Appends the object's JSON in this resource's version, with `revision` as its resourceVersion.
    pub(crate) fn write_object(&self, record: &Readable, revision: Revision, out: &mut Vec<u8>) {
        if self.storage_converter().is_some() || self.is_stored_as_served(record) {
            return record::splice(&record.value, revision, out);
        }
        let mut object = self.object(record);
        object["metadata"]["resourceVersion"] = Value::String(revision.0.to_string());
        record::write_object(&object, out);
    }

    /// Appends the object's JSON as an item of a list. Only custom resources say what they are in a list, too.
    pub(crate) fn write_item(&self, record: &Readable, out: &mut Vec<u8>) {
        if self.custom {
            return self.write_object(record, record.revision, out);
        }
        if self.storage_converter().is_some() || self.is_stored_as_served(record) {
            return record::splice_item(&record.value, record.revision, out);
        }
        let mut object = self.object(record);
        if let Some(fields) = object.as_object_mut() {
            fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
        }
        record::write_object(&object, out);
    }

    /// Brings an object of this resource's version into the one it is stored in.
    pub(crate) async fn to_stored(&self, mut object: Value) -> Result<Value, Status> {
        if self.is_api_version(&self.storage.api_version) {
            object["apiVersion"] = Value::String(self.storage.api_version.to_string());
            return Ok(object);
        }
        if let Some(converter) = self.storage_converter() {
            let mut converted = call(&**converter, vec![object], &self.storage.api_version, Form::One).await?;
            object = converted.pop().expect("as many come out as went in");
        }
        object["apiVersion"] = Value::String(self.storage.api_version.to_string());
        if let Some(fields) = object.as_object_mut() {
            for (stored, shown) in self.storage.renames {
                if let Some(value) = fields.remove(*shown) {
                    fields.insert((*stored).to_owned(), value);
                }
            }
        }
        if let Some((arena, root)) = self.stored_types() {
            prune(arena, *root, &mut object, NullRules::Custom);
        }
        Ok(object)
    }

    /// Gives an object that is about to be stored the defaults of the version it is stored in.
    pub(crate) fn default_stored(&self, object: &mut Value, budget: &Budget) -> Result<(), OverBudget> {
        match self.stored_types() {
            Some((arena, root)) => default(arena, *root, object, budget),
            None => Ok(()),
        }
    }

    /// The types of the version that objects are stored in, if that is another one: a write through the stored version
    /// itself has pruned and defaulted by them already. So the stored bytes are always what that version serves.
    fn stored_types(&self) -> Option<&(Arc<Arena>, TypeId)> {
        self.storage.types.as_ref().filter(|_| !self.is_api_version(&self.storage.api_version))
    }

    /// Whether a webhook converts objects of the kind.
    pub(crate) fn has_converter(&self) -> bool {
        self.storage_converter().is_some()
    }

    fn storage_converter(&self) -> Option<&Arc<dyn Converter>> {
        self.storage.converter.as_ref()
    }

    /// Whether a record was written since objects of this kind are stored as they are now, and so in the version that is stored.
    pub(crate) fn is_stored_in_current_form(&self, entry: &Entry) -> bool {
        entry.revision >= self.storage.since
    }

    /// Whether the stored bytes of a record are what this resource serves.
    fn is_stored_as_served(&self, entry: &Entry) -> bool {
        self.is_api_version(&self.storage.api_version) && entry.revision >= self.storage.since
    }

    /// Replaces the records that this resource does not serve as they are stored by what the converter makes of them.
    async fn convert_records(
        &self,
        converter: &dyn Converter,
        entries: &mut [&mut Entry],
        form: Form,
    ) -> Result<(), Status> {
        let mut outdated: Vec<&mut Entry> = Vec::new();
        for entry in entries.iter_mut().filter(|entry| !self.is_stored_as_served(entry)) {
            outdated.push(entry);
        }
        let objects: Vec<Value> = outdated.iter().map(|entry| record::decode(entry)).collect();
        let converted = call(converter, objects, &self.api_version(), form).await?;
        for (entry, mut object) in outdated.into_iter().zip(converted) {
            self.adapt(&mut object);
            let mut whole = object.clone();
            let defaulted = self.add_defaults(&mut whole);
            entry.value = record::encode(if defaulted.is_ok() { &whole } else { &object });
        }
        Ok(())
    }

    /// The object in a record: as it is stored, or changed by what needs no converter.
    fn decode(&self, entry: &Entry) -> Value {
        let mut object = record::decode(entry);
        if self.storage_converter().is_some() || self.is_stored_as_served(entry) {
            return object;
        }
        self.adapt(&mut object);
        if self.add_defaults(&mut object).is_err() {
            object = record::decode(entry);
            self.adapt(&mut object);
        }
        object
    }

    /// Gives an object of another version, or stored under an older schema, the names and fields of this version.
    fn adapt(&self, object: &mut Value) {
        object["apiVersion"] = Value::String(self.api_version());
        if let Some(fields) = object.as_object_mut() {
            for (stored, shown) in self.storage.renames {
                if let Some(value) = fields.remove(*stored) {
                    fields.insert((*shown).to_owned(), value);
                }
            }
        }
        if self.custom {
            prune(&self.schema.arena, self.schema.root, object, NullRules::Custom);
        }
    }

    /// Gives a custom resource the defaults that its kind has by now. Defaults that came after the object and would make
    /// far more of it than can be stored are left out, so that it can be read and deleted; the next write says what is
    /// wrong.
    fn add_defaults(&self, object: &mut Value) -> Result<(), OverBudget> {
        if !self.custom {
            return Ok(());
        }
        default(&self.schema.arena, self.schema.root, object, &default_budget())
    }
}

/// Calls a converter for the objects that are not in the version `to`, and checks what it gives back. All failures have
/// the words of kube-apiserver.
async fn call(converter: &dyn Converter, objects: Vec<Value>, to: &str, form: Form) -> Result<Vec<Value>, Status> {
    let others: Vec<usize> = (0..objects.len()).filter(|at| objects[*at]["apiVersion"] != to).collect();
    let Some(first) = others.first() else { return Ok(objects) };
    let (kind, before) = (gvk(&objects[*first]), objects[*first]["apiVersion"].as_str().unwrap_or_default().to_owned());
    let began = Instant::now();
    let converted = call_in_batches(converter, objects, &others, to, form).await;
    let failure = converted.as_ref().err().map(|error| error.failure);
    converter.converted((version_of(&before), version_of(to)), began.elapsed(), failure);
    converted.map_err(|error| {
        let why = format!("conversion webhook for {kind} {error}");
        match error.failure {
            ConversionFailure::NotCalled => Status::failure(429, "TooManyRequests", why).retry_after(1),
            _ => Status::failure(500, "", why),
        }
    })
}

/// Has the objects at `others` converted. An error has the words that follow the kind.
async fn call_in_batches(
    converter: &dyn Converter,
    mut objects: Vec<Value>,
    others: &[usize],
    to: &str,
    form: Form,
) -> Result<Vec<Value>, ConversionError> {
    for (batch, places) in others.chunks(BATCH).enumerate() {
        let sent: Vec<Value> = places.iter().map(|at| objects[*at].clone()).collect();
        let converted = converter.convert(sent, to).await;
        let converted = converted
            .map_err(|ConversionError { why, failure }| ConversionError { why: format!("failed: {why}"), failure })?;
        if converted.len() != places.len() {
            let why = format!("returned {} objects, expected {}", converted.len(), places.len());
            return Err(ConversionError { why, failure: ConversionFailure::PartialResponse });
        }
        // Objects that were not sent do not count in the index.
        for (index, (at, object)) in places.iter().zip(converted).enumerate() {
            let restored = restored(&objects[*at], object, to);
            objects[*at] = restored.map_err(|invalid| {
                let why = invalid.words(form, batch * BATCH + index);
                ConversionError { why, failure: ConversionFailure::InvalidObject }
            })?;
        }
    }
    Ok(objects)
}

/// `v1` of `example.com/v1`.
fn version_of(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or(api_version, |(_, version)| version)
}

/// `example.com/v1, Kind=Widget`
fn gvk(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let version = text("apiVersion");
    // Without a group, Go writes the slash all the same.
    let version = if version.contains('/') { version } else { format!("/{version}") };
    format!("{version}, Kind={}", text("kind"))
}

#[cfg(test)]
mod tests;
