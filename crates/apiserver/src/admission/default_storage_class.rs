//! DefaultStorageClass: a claim that names no storage class gets the default one.

use serde::Deserialize;
use serde_json::Value;

use konverge_core::Status;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, lookup};
use crate::meta;

const CLASSES: lookup::Kind = ("storage.k8s.io", "storageclasses");

/// The annotations that mark the default class; the second one is of old versions.
const IS_DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// The annotation that names a class in old versions.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A class that can be the default of its kind.
#[derive(Deserialize)]
pub(super) struct DefaultableClass {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    creation_timestamp: String,
    #[serde(default)]
    annotations: serde_json::Map<String, Value>,
}

/// The name of the newest object that one of these annotations marks; of several equally old, the first by name.
pub(super) fn newest_default(
    attributes: &Attributes<'_>,
    kind: lookup::Kind,
    annotations: &[&str],
) -> Result<Option<String>, Status> {
    let classes = lookup::list::<DefaultableClass>(attributes, kind, None)?;
    let marked = |class: &DefaultableClass| {
        annotations.iter().any(|name| class.metadata.annotations.get(*name).is_some_and(|value| value == "true"))
    };
    let defaults = classes.into_iter().map(|(_, class)| class).filter(marked);
    let newest = defaults.reduce(|best, class| {
        let newer = class.metadata.creation_timestamp > best.metadata.creation_timestamp;
        if newer { class } else { best }
    });
    Ok(newest.map(|class| class.metadata.name))
}

pub(super) struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(Operation::Create, "", "persistentvolumeclaims")
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, claim: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(choose(attributes, claim))
    }
}

fn choose(attributes: &Attributes<'_>, claim: &mut Value) -> Result<(), Status> {
    let annotated = meta::of(claim).get("annotations").is_some_and(|annotations| annotations.get(CLASS).is_some());
    // An empty name means no class, and that is the choice of the user.
    if annotated || claim["spec"]["storageClassName"].is_string() {
        return Ok(());
    }
    if let Some(class) = newest_default(attributes, CLASSES, &IS_DEFAULT)? {
        claim["spec"]["storageClassName"] = class.into();
    }
    Ok(())
}
