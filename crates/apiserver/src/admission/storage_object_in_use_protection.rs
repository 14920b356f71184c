//! StorageObjectInUseProtection: claims, volumes and volume attributes classes get the finalizer that their controller removes
//! once nobody uses them.

use serde_json::Value;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided};
use crate::meta;

/// The finalizer of each kind: group, plural, finalizer.
const FINALIZERS: [(&str, &str, &str); 3] = [
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
];

pub(super) struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        finalizer(attributes).is_some()
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        if let Some(finalizer) = finalizer(attributes) {
            let mut finalizers: Vec<String> = meta::finalizers(object).into_iter().map(str::to_owned).collect();
            if !finalizers.iter().any(|other| other == finalizer) {
                finalizers.push(finalizer.to_owned());
                meta::set_finalizers(object, &finalizers.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
        decided(Ok(()))
    }
}

fn finalizer(attributes: &Attributes<'_>) -> Option<&'static str> {
    let row = FINALIZERS.iter().find(|(group, plural, _)| attributes.is(Operation::Create, group, plural));
    row.map(|(_, _, finalizer)| *finalizer)
}
