//! Several versions of one kind. In: the Rust types of a kind, and the conversions between them. Out: objects in the version
//! that is asked for, and one CRD with all versions. Nothing here knows of HTTP.
//!
//! ```text
//! v1 ──▶ the reconciled version, which is stored ──▶ v1beta1
//! ```
//!
//! What a version cannot express is kept in an annotation while an object is in that version (`lost`).

mod lost;

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::ObjectKey;
use konverge_runtime::panic_message;
use kube::core::ApiResource;
use serde_json::{Map, Value};

pub(crate) use lost::Lost;

use crate::api_kind::ApiKind;
use crate::kind::Kind;

/// The annotation that keeps what other versions cannot express, with the version it belongs to after this.
const ANNOTATION: &str = "conversion.konverge.dev/";

/// How many bytes such an annotation may have. All annotations of an object together may have 256 KiB.
const MOST_BYTES: usize = 64 << 10;

/// The versions of one kind. The first one is stored, and is what reconciles see.
#[derive(Clone)]
pub(crate) struct Versions {
    kind: ApiKind,
    others: Vec<Version>,
}

#[derive(Clone)]
struct Version {
    name: String,
    definition: fn() -> Option<CustomResourceDefinition>,
    to_stored: Step,
    from_stored: Step,
}

type Step = Arc<dyn Fn(Value) -> Result<Stepped, String> + Send + Sync>;

/// What one conversion made of an object.
struct Stepped {
    converted: Value,
    /// The object as its Rust type serialises it, before it was converted and after it was converted back.
    source: Value,
    back: Value,
}

impl Versions {
    /// A kind with one version.
    pub(crate) fn new(kind: ApiKind) -> Self {
        Self { kind, others: Vec::new() }
    }

    /// Another version of the kind.
    pub(crate) fn add<Stored, Other>(&mut self)
    where
        Stored: Kind + TryFrom<Other, Error: Display>,
        Other: Kind + TryFrom<Stored, Error: Display>,
    {
        self.others.push(Version {
            name: Other::resource().version,
            definition: Other::definition,
            to_stored: Arc::new(step::<Other, Stored>),
            from_stored: Arc::new(step::<Stored, Other>),
        });
    }

    /// Whether there is only one version.
    pub(crate) fn is_single(&self) -> bool {
        self.others.is_empty()
    }

    /// Group, kind and the stored version.
    pub(crate) fn resource(&self) -> &ApiResource {
        self.kind.resource()
    }

    /// The name of the CRD.
    pub(crate) fn definition_name(&self) -> String {
        let api = self.resource();
        format!("{}.{}", api.plural, api.group)
    }

    /// The names of all versions, the stored one first.
    pub(crate) fn names(&self) -> Vec<&str> {
        let others = self.others.iter().map(|version| version.name.as_str());
        std::iter::once(self.resource().version.as_str()).chain(others).collect()
    }

    /// Whether the versions can be those of one kind. The error says what to change.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (names, name) = (self.names(), self.definition_name());
        if let Some(twice) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            return Err(format!("{name} has the version {} twice", names[twice]));
        }
        for other in &self.others {
            let defined = (other.definition)().and_then(|definition| definition.metadata.name);
            if let Some(defined) = defined.filter(|defined| *defined != name) {
                return Err(format!(
                    "{} is a version of {defined}, and not of {name}: both types need the same group and kind",
                    other.name
                ));
            }
        }
        Ok(())
    }

    /// The CRD with all versions. The stored one is that of the reconciled type, whatever the types say.
    pub(crate) fn definition(&self, mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
        if self.is_single() {
            return definition;
        }
        let others = self.others.iter().filter_map(|other| (other.definition)());
        definition.spec.versions.extend(others.flat_map(|other| other.spec.versions));
        for version in &mut definition.spec.versions {
            version.storage = version.name == self.resource().version;
        }
        definition
    }

    /// An object in another version, `group/version`. The error says why there is none; a panic of a conversion is one, too.
    pub(crate) fn convert(&self, object: Value, desired: &str) -> Result<Value, String> {
        let api = self.resource();
        let version_of = |text: &str| match text.split_once('/') {
            Some((group, version)) if group == api.group => Ok(version.to_owned()),
            _ => Err(format!("{text:?} is no version of the group {}", api.group)),
        };
        let from = version_of(object["apiVersion"].as_str().unwrap_or_default())?;
        let to = version_of(desired)?;
        if object["kind"] != api.kind.as_str() {
            return Err(format!("it is a {}, and this converts {}", object["kind"], api.kind));
        }
        if from == to {
            return Ok(object);
        }
        let stored = match self.find(&from)? {
            Some(version) => self.step(object, [&version.to_stored, &version.from_stored], &from, &api.version)?,
            None => object,
        };
        match self.find(&to)? {
            Some(version) => self.step(stored, [&version.from_stored, &version.to_stored], &api.version, &to),
            None => Ok(stored),
        }
    }

    /// A version that is not stored; none for the stored one.
    fn find(&self, name: &str) -> Result<Option<&Version>, String> {
        if name == self.resource().version {
            return Ok(None);
        }
        let found = self.others.iter().find(|version| version.name == name);
        let unknown =
            || format!("there is no version {name} of {}; there is {}", self.resource().kind, self.names().join(", "));
        found.map(Some).ok_or_else(unknown)
    }

    /// One conversion, with everything around it that no Rust type has: metadata, conditions, and what cannot be expressed. The
    /// second step leads back.
    fn step(&self, mut object: Value, [step, reverse]: [&Step; 2], from: &str, to: &str) -> Result<Value, String> {
        let kept = take_annotation(&mut object["metadata"], to);
        let metadata = object["metadata"].clone();
        let conditions = object["status"].get("conditions").filter(|value| !value.is_null()).cloned();
        let Stepped { mut converted, source, back } = take_step(step, object)?;
        let mut lost = lost::lost(&back, &source);
        // Conditions are set beside the type of the status.
        if let Some(conditions) = conditions.filter(|_| source["status"].get("conditions").is_none()) {
            match converted.get_mut("status").and_then(Value::as_object_mut) {
                Some(status) => {
                    status.entry("conditions").or_insert(conditions);
                }
                None => lost::keep_conditions(&mut lost, conditions),
            }
        }
        let whole = |fields: Value| {
            let mut whole = Map::new();
            let api = self.resource();
            whole.insert("apiVersion".into(), format!("{}/{to}", api.group).into());
            whole.insert("kind".into(), api.kind.as_str().into());
            whole.insert("metadata".into(), metadata.clone());
            if let Value::Object(fields) = fields {
                whole.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
            }
            Value::Object(whole)
        };
        if let Some(kept) = kept {
            let kept = parse(&kept)?;
            let mut restored = converted.clone();
            lost::restore(&mut restored, &kept);
            let there = take_step(reverse, whole(restored)).map_err(|why| changed(&why))?;
            let lost = lost::lost(&there.back, &there.source);
            lost::restore(&mut converted, &lost::genuine(kept, &lost, &there.converted));
        }
        let mut whole = whole(converted);
        set_annotation(&mut whole["metadata"], from, to, &lost)?;
        Ok(whole)
    }
}

/// What an annotation of an object in a version that is not `version` keeps for `version`.
pub(crate) fn kept_for(object: &Value, version: &str) -> Vec<Lost> {
    let text = object["metadata"]["annotations"][format!("{ANNOTATION}{version}")].as_str();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// How an object is called in messages: `shop/web`, or what it has instead of a name.
pub(crate) fn called(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().filter(|text| !text.is_empty());
    let name = text("name").or(text("generateName")).unwrap_or("without a name");
    format!("{} {}", object["kind"].as_str().unwrap_or("object"), ObjectKey::new(text("namespace"), name))
}

/// Converts between two types, and back to see what got lost.
fn step<From, To>(object: Value) -> Result<Stepped, String>
where
    From: Kind + TryFrom<To, Error: Display>,
    To: Kind + TryFrom<From, Error: Display>,
{
    let (from, to) = (From::resource().version, To::resource().version);
    let value = |object: serde_json::Result<Value>| object.map_err(|error| format!("it cannot be written: {error}"));
    let object: From = serde_json::from_value(object).map_err(|error| format!("it is no {from}: {error}"))?;
    let source = value(serde_json::to_value(&object))?;
    let converted = To::try_from(object).map_err(|error| format!("{from} to {to}: {error}"))?;
    let whole = value(serde_json::to_value(&converted))?;
    let back = From::try_from(converted).map_err(|error| format!("{to} to {from}, to see what gets lost: {error}"))?;
    Ok(Stepped { converted: whole, source, back: value(serde_json::to_value(&back))? })
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    format!("the conversion panicked: {}", panic_message(panic))
}

/// Leaves what a conversion is about: the spec, the status and other fields of the kind.
fn without_type(object: &mut Value) {
    for field in ["apiVersion", "kind", "metadata"] {
        object.as_object_mut().map(|fields| fields.remove(field));
    }
}

fn parse(text: &str) -> Result<Vec<Lost>, String> {
    serde_json::from_str(text).map_err(|error| changed(&error.to_string()))
}

fn changed(why: &str) -> String {
    format!("somebody changed its annotation {ANNOTATION}…: {why}; remove the annotation")
}

/// A conversion of a user. What a panic of it leaves half done is dropped.
fn take_step(step: &Step, object: Value) -> Result<Stepped, String> {
    let stepped = catch_unwind(AssertUnwindSafe(|| step(object)));
    let mut stepped = stepped.unwrap_or_else(|panic| Err(panicked(&*panic)))?;
    for value in [&mut stepped.converted, &mut stepped.source, &mut stepped.back] {
        without_type(value);
    }
    Ok(stepped)
}

fn take_annotation(metadata: &mut Value, version: &str) -> Option<String> {
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let taken = annotations.remove(&format!("{ANNOTATION}{version}"));
    if annotations.is_empty() {
        metadata.as_object_mut()?.remove("annotations");
    }
    taken?.as_str().map(str::to_owned)
}

/// Keeps what `to` cannot express of `from`.
fn set_annotation(metadata: &mut Value, from: &str, to: &str, lost: &[Lost]) -> Result<(), String> {
    // An older one is about an older object.
    take_annotation(metadata, from);
    if lost.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_string(lost).map_err(|error| error.to_string())?;
    if text.len() > MOST_BYTES {
        return Err(format!(
            "{to} cannot express {} bytes of it, from {} on, and an annotation keeps at most {MOST_BYTES}; give {to} a field \
             for them",
            text.len(),
            lost[0].path()
        ));
    }
    let metadata = metadata.as_object_mut().ok_or("it has no metadata")?;
    let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
    if annotations.is_null() {
        *annotations = Map::new().into();
    }
    let annotations = annotations.as_object_mut().ok_or("its annotations are no map")?;
    annotations.insert(format!("{ANNOTATION}{from}"), text.into());
    Ok(())
}
