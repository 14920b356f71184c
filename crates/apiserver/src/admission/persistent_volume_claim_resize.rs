//! PersistentVolumeClaimResize: a claim can only grow if it is bound and its storage class allows expansion.

use serde::Deserialize;
use serde_json::Value;

use konverge_core::{Quantity, Status};

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, lookup};

const CLASSES: lookup::Kind = ("storage.k8s.io", "storageclasses");

/// The annotation that names a class in old versions.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageClass {
    #[serde(default)]
    allow_volume_expansion: bool,
}

pub(super) struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(Operation::Update, "", "persistentvolumeclaims")
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, claim: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(may_grow(attributes, claim))
    }
}

fn may_grow(attributes: &Attributes<'_>, claim: &Value) -> Result<(), Status> {
    let Some(old) = attributes.old else { return Ok(()) };
    let size = |claim: &Value| Quantity::of(&claim["spec"]["resources"]["requests"]["storage"]).unwrap_or_default();
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old["status"]["phase"] != "Bound" {
        return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
    }
    let class = class(claim);
    let same = !class.is_empty() && class == self::class(old);
    let found = if same { lookup::get::<StorageClass>(attributes.server, CLASSES, None, class)? } else { None };
    match found {
        Some((_, StorageClass { allow_volume_expansion: true })) => Ok(()),
        _ => Err(attributes.forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
             resize",
        )),
    }
}

fn class(claim: &Value) -> &str {
    let annotated = claim["metadata"]["annotations"][CLASS].as_str();
    annotated.or_else(|| claim["spec"]["storageClassName"].as_str()).unwrap_or_default()
}
