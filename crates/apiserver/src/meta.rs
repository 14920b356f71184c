//! The metadata of an object, from create to delete. In: an object and the one before it. Out: the object with the fields that
//! only the server sets, and the errors in the other fields. Never reads the store.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Map, Value};

use konverge_core::{
    FieldError, FieldPath, GroupVersion, NameRule, check_annotations, check_finalizer, check_labels, check_name,
};

use crate::behaviour::Generation;
use crate::env::{Environment, rfc3339};
use crate::resource::Resource;

pub(crate) use konverge_core::{FOREGROUND_FINALIZER as FOREGROUND, ORPHAN_FINALIZER as ORPHAN};

/// Letters and digits that do not form words.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// The longest prefix of a generated name, so that with its suffix it is a DNS label.
const GENERATED_PREFIX_MAX: usize = 63 - SUFFIX_LENGTH;

/// The metadata of an object; decoding has made sure that it is an object.
pub(crate) fn of(object: &Value) -> &Map<String, Value> {
    object["metadata"].as_object().expect("decoding makes sure that metadata is an object")
}

/// The metadata of an object, to change.
pub(crate) fn of_mut(object: &mut Value) -> &mut Map<String, Value> {
    object["metadata"].as_object_mut().expect("decoding makes sure that metadata is an object")
}

/// A string of the metadata; empty when absent.
pub(crate) fn text<'o>(object: &'o Value, field: &str) -> &'o str {
    of(object).get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The names in `metadata.finalizers`.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    of(object).get("finalizers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a deletion of the object has begun.
pub(crate) fn is_terminating(object: &Value) -> bool {
    of(object).get("deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// Replaces the finalizers; an empty list removes the field.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    let metadata = of_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.iter().map(|name| Value::from(*name)).collect());
    }
}

/// Sets the fields of a new object that only the server sets.
pub(crate) fn initialize(object: &mut Value, resource: &Resource, env: &dyn Environment) {
    let random = env.random();
    drop_deletion(object);
    let metadata = of_mut(object);
    for field in ["selfLink", "resourceVersion", "generation"] {
        metadata.remove(field);
    }
    let named = |field: &str| metadata.get(field).and_then(Value::as_str).filter(|name| !name.is_empty());
    if named("name").is_none()
        && let Some(prefix) = named("generateName")
    {
        let cut = (0..=prefix.len().min(GENERATED_PREFIX_MAX)).rev().find(|at| prefix.is_char_boundary(*at));
        let name = [&prefix[..cut.unwrap_or_default()], &suffix(random)].concat();
        metadata.insert("name".into(), name.into());
    }
    let uid = uuid::Builder::from_random_bytes(env.random().to_be_bytes()).into_uuid();
    metadata.insert("uid".into(), uid.to_string().into());
    metadata.insert("creationTimestamp".into(), rfc3339(env.now()).into());
    if let Generation::Tracked { first: first @ 1.., .. } = resource.behaviour.generation {
        metadata.insert("generation".into(), first.into());
    }
}

/// Removes a deletion: no object is created while it is deleted.
pub(crate) fn drop_deletion(object: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        of_mut(object).remove(field);
    }
}

/// Carries over the fields that an update may not change.
pub(crate) fn carry_over(old: &Value, new: &mut Value) {
    let before = of(old);
    let after = of_mut(new);
    // A writer may leave these out. A different value is refused by `check_update`.
    for field in ["name", "namespace", "uid"] {
        let given = after.get(field).is_some_and(|value| !value.is_null() && value != "");
        if !given && let Some(value) = before.get(field) {
            after.insert(field.into(), value.clone());
        }
    }
    // No writer decides these.
    for field in ["creationTimestamp", "generation", "resourceVersion"] {
        match before.get(field) {
            Some(value) => after.insert(field.into(), value.clone()),
            None => after.remove(field),
        };
    }
    // Nobody takes back a deletion; `check_update` refuses whoever begins one or changes the grace period.
    for (field, always) in [("deletionTimestamp", true), ("deletionGracePeriodSeconds", false)] {
        if after.get(field).is_some_and(Value::is_null) {
            after.remove(field);
        }
        if let Some(value) = before.get(field).filter(|_| always || !after.contains_key(field)) {
            after.insert(field.into(), value.clone());
        }
    }
    after.remove("selfLink");
}

/// Drops empty fields, which mean the same as absent ones: removing the last label removes `labels`. An empty list of managed fields
/// means something: it forgets all managers.
pub(crate) fn drop_empty(object: &mut Value) {
    let metadata = of_mut(object);
    for field in ["annotations", "finalizers", "generateName", "labels", "managedFields", "ownerReferences"] {
        let empty = match metadata.get(field) {
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Array(items)) => items.is_empty() && field != "managedFields",
            Some(value) => value.is_null() || value == "",
            None => false,
        };
        if empty {
            metadata.remove(field);
        }
    }
}

/// Removes owner references that are there twice, and returns the uids of those.
pub(crate) fn drop_duplicate_owners(object: &mut Value) -> Vec<String> {
    let mut duplicates = Vec::new();
    if let Some(owners) = of_mut(object).get_mut("ownerReferences").and_then(Value::as_array_mut) {
        let mut seen = HashSet::new();
        owners.retain(|owner| {
            let is_new = seen.insert(owner.to_string());
            if !is_new {
                duplicates.push(owner["uid"].as_str().unwrap_or_default().to_owned());
            }
            is_new
        });
    }
    duplicates
}

/// Increases the generation when the desired state has changed.
pub(crate) fn count_generation(old: &Value, new: &mut Value, resource: &Resource) {
    let Generation::Tracked { paths, .. } = &resource.behaviour.generation else { return };
    let status_apart = resource.subresource("status").is_some();
    let wanted = |name: &str| match name {
        "apiVersion" | "kind" | "metadata" => false,
        "status" => resource.custom && !status_apart,
        _ => true,
    };
    let everything_same = || {
        let empty = Map::new();
        let before = old.as_object().unwrap_or(&empty);
        let after = new.as_object().unwrap_or(&empty);
        let added = after.keys().filter(|name| !before.contains_key(*name));
        before.keys().chain(added).filter(|name| wanted(name)).all(|name| before.get(name) == after.get(name))
    };
    fn at<'o>(object: &'o Value, path: &str) -> Option<&'o Value> {
        path.split('.').try_fold(object, |value, name| value.get(name))
    }
    let same = paths.iter().all(|path| match *path {
        "*" => everything_same(),
        path => at(old, path) == at(new, path),
    });
    if !same {
        let generation = of(old).get("generation").and_then(Value::as_i64).unwrap_or_default();
        of_mut(new).insert("generation".into(), (generation + 1).into());
    }
}

/// Marks an object as being deleted, with a grace period of `grace` seconds from `now`.
pub(crate) fn begin_deletion(object: &mut Value, now: Timestamp, grace: i64) {
    let ends = now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
    let metadata = of_mut(object);
    metadata.insert("deletionTimestamp".into(), rfc3339(ends).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|count| *count > 0) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// Shortens the grace period of an object that is being deleted, if `asked` is shorter. The period counts from the begin of the
/// deletion; if it is over by then, one second is left.
pub(crate) fn shorten_grace(object: &mut Value, now: Timestamp, asked: Option<i64>) {
    let metadata = of_mut(object);
    let left = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    let Some(asked) = asked.filter(|asked| *asked < left) else { return };
    let ended: Option<Timestamp> =
        metadata.get("deletionTimestamp").and_then(Value::as_str).and_then(|text| text.parse().ok());
    let ends = ended.and_then(|ended| ended.checked_add(jiff::SignedDuration::from_secs(asked - left)).ok());
    let (ends, grace) = match ends {
        Some(ends) if ends >= now => (ends, asked),
        _ => (now, asked.min(1)),
    };
    metadata.insert("deletionTimestamp".into(), rfc3339(ends).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
}

/// The errors in the metadata of a new object.
pub(crate) fn check_create(object: &Value, resource: &Resource) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = FieldPath::new("metadata");
    let name = text(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), "name or generateName is required"));
    }
    for (field, value, prefix) in [("generateName", text(object, "generateName"), true), ("name", name, false)] {
        if !value.is_empty() {
            let problems = check_name(value, resource.behaviour.names, prefix);
            errors.extend(problems.into_iter().map(|why| FieldError::invalid(path.child(field), value.into(), why)));
        }
    }
    errors.extend(check_common(object, &path));
    errors.extend(check_finalizers(object, &path));
    errors.extend(check_qualified(object, resource).map(|(_, error)| error));
    errors
}

/// The errors in the metadata of a resource that is embedded in another object. It may have no name.
pub(crate) fn check_embedded(object: &Value, path: impl Fn() -> FieldPath) -> Vec<FieldError> {
    let metadata = of(object);
    if metadata.is_empty() {
        return Vec::new();
    }
    let path = path();
    let mut errors = Vec::new();
    for (field, rule, prefix) in [
        ("generateName", NameRule::PathSegment, true),
        ("name", NameRule::PathSegment, false),
        ("namespace", NameRule::Label, false),
    ] {
        let value = text(object, field);
        if !value.is_empty() {
            let problems = check_name(value, rule, prefix);
            errors.extend(problems.into_iter().map(|why| FieldError::invalid(path.child(field), value.into(), why)));
        }
    }
    if let Some(generation @ ..0) = metadata.get("generation").and_then(Value::as_i64) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path.child("generation"), generation.into(), why));
    }
    errors.extend(check_common(object, &path));
    errors.extend(check_finalizers(object, &path));
    errors
}

/// The errors in the names of finalizers, and finalizers that contradict each other.
fn check_finalizers(object: &Value, path: &FieldPath) -> Vec<FieldError> {
    let finalizers = finalizers(object);
    let path = path.child("finalizers");
    let mut errors: Vec<FieldError> =
        finalizers.iter().flat_map(|finalizer| check_finalizer(finalizer, &path)).collect();
    errors.extend(check_contradiction(object, path));
    errors
}

/// The error in finalizers of which one keeps dependents and another deletes them.
fn check_contradiction(object: &Value, path: FieldPath) -> Option<FieldError> {
    let finalizers = finalizers(object);
    let both = finalizers.contains(&FOREGROUND) && finalizers.contains(&ORPHAN);
    both.then(|| {
        let why = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        FieldError::invalid(path, finalizers.into(), why)
    })
}

/// The errors in the metadata of an update.
pub(crate) fn check_update(old: &Value, new: &Value, resource: &Resource) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = FieldPath::new("metadata");
    let before: HashSet<&str> = finalizers(old).into_iter().collect();
    if is_terminating(old) {
        let added: Vec<&str> = finalizers(new).into_iter().filter(|name| !before.contains(name)).collect();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden(path.child("finalizers"), why));
        }
    }
    for field in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if of(old).get(field) != of(new).get(field) {
            let value = of(new).get(field).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(path.child(field), value, "field is immutable"));
        }
    }
    for finalizer in finalizers(new) {
        if !before.contains(finalizer) {
            errors.extend(check_finalizer(finalizer, &path.child("finalizers")));
        }
    }
    errors.extend(check_contradiction(new, path.child("finalizers")));
    errors.extend(check_common(new, &path));
    errors.extend(check_qualified(new, resource).filter(|(name, _)| !before.contains(name)).map(|(_, error)| error));
    errors
}

/// The finalizers without a domain that a cluster does not know itself. Most built-in kinds refuse them; custom resources may have any.
fn check_qualified<'o>(object: &'o Value, resource: &Resource) -> impl Iterator<Item = (&'o str, FieldError)> {
    let checked = if resource.behaviour.any_finalizer { Vec::new() } else { finalizers(object) };
    check_domains(checked)
}

/// The errors in the metadata of a Scale, which is that of its object.
pub(crate) fn check_scale(scale: &Value) -> Vec<FieldError> {
    let mut errors = check_embedded(scale, || FieldPath::new("metadata"));
    errors.extend(check_domains(finalizers(scale)).map(|(_, error)| error));
    errors
}

fn check_domains(finalizers: Vec<&str>) -> impl Iterator<Item = (&str, FieldError)> {
    const KNOWN: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];
    let wrong = finalizers.into_iter().enumerate().filter(|(_, name)| !name.contains('/') && !KNOWN.contains(name));
    wrong.map(|(at, name)| {
        let path = FieldPath::new("metadata").child("finalizers").index(at);
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        (name, FieldError::invalid(path, name.into(), why))
    })
}

fn check_common(object: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = check_labels(strings(object, "labels"), &path.child("labels"));
    errors.extend(check_annotations(strings(object, "annotations"), &path.child("annotations")));
    errors.extend(check_owners(object, &path.child("ownerReferences")));
    errors
}

fn check_owners(object: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    let mut reported = false;
    for owner in of(object).get("ownerReferences").and_then(Value::as_array).into_iter().flatten() {
        let field = |name: &str| owner[name].as_str().unwrap_or_default();
        if GroupVersion::parse(field("apiVersion")).is_none() {
            let why = "version must not be empty";
            errors.push(FieldError::invalid(path.child("apiVersion"), field("apiVersion").into(), why));
        }
        for name in ["kind", "name", "uid"] {
            if field(name).is_empty() {
                errors.push(FieldError::invalid(path.child(name), "".into(), "must not be empty"));
            }
        }
        if field("apiVersion") == "v1" && field("kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path.clone(), owner.clone(), why));
        }
        if owner["controller"] == true {
            let this = format!("{}/{}", field("kind"), field("name"));
            if let Some(first) = &controller {
                // Each error would repeat the whole list; one is enough.
                if std::mem::replace(&mut reported, true) {
                    continue;
                }
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                errors.push(FieldError::invalid(path.clone(), of(object)["ownerReferences"].clone(), why));
            } else {
                controller = Some(this);
            }
        }
    }
    errors
}

fn strings<'o>(object: &'o Value, field: &str) -> impl Iterator<Item = (&'o str, &'o str)> {
    let map = of(object).get(field).and_then(Value::as_object).into_iter().flatten();
    map.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

pub(crate) fn suffix(mut random: u128) -> String {
    let letters = SUFFIX_LETTERS.len() as u128;
    let letter = |_| {
        let letter = SUFFIX_LETTERS[(random % letters) as usize];
        random /= letters;
        char::from(letter)
    };
    (0..SUFFIX_LENGTH).map(letter).collect()
}
