//! Fields of features that are off by default in the release. In: an object that is written. Out: the object without these fields,
//! unless the object had them before. kube-apiserver drops them in `dropDisabledFields` and `PrepareForCreate`.

use serde_json::Value;

use crate::resource::Resource;
use crate::warning::TEMPLATES;

/// Where the fields of one feature are; `*` is every item of a list.
type Paths = &'static [&'static str];

/// Below the spec of a pod: ContainerStopSignals, ClusterTrustBundleProjection, PodCertificateRequest and GenericWorkload.
const POD: [Paths; 4] = [
    &[
        "containers.*.lifecycle.stopSignal",
        "initContainers.*.lifecycle.stopSignal",
        "ephemeralContainers.*.lifecycle.stopSignal",
    ],
    &["volumes.*.projected.sources.*.clusterTrustBundle"],
    &["volumes.*.projected.sources.*.podCertificate"],
    &["schedulingGroup"],
];

/// CoordinatedLeaderElection, whose fields are looked at one by one.
const LEASE: [Paths; 2] = [&["strategy"], &["preferredHolder"]];

/// VolumeLimitScaling.
const CSI_DRIVER: [Paths; 1] = [&["preventPodSchedulingIfMissing"]];

/// Drops what a cluster of this release drops with its feature gates at their defaults.
pub(crate) fn drop_disabled(resource: &Resource, old: Option<&Value>, new: &mut Value) {
    if resource.custom {
        return;
    }
    let template = TEMPLATES.iter().find(|(kind, ..)| **kind == *resource.kind).map(|(_, path, _)| *path);
    let (features, path): (&[Paths], _) = match (&*resource.group, &*resource.kind, template) {
        ("", "Pod", _) => (&POD, &[][..]),
        ("coordination.k8s.io", "Lease", _) => (&LEASE, &[][..]),
        ("storage.k8s.io", "CSIDriver", _) => (&CSI_DRIVER, &[][..]),
        (_, _, Some(path)) => (&POD, path),
        _ => return,
    };
    let to_spec = || path.iter().copied().chain(["spec"]);
    let old = old.and_then(|old| to_spec().try_fold(old, |at, name| at.get(name)));
    let Some(new) = to_spec().try_fold(new, |at, name| at.get_mut(name)) else { return };
    for paths in features {
        if !old.is_some_and(|old| paths.iter().any(|path| has(old, path))) {
            paths.iter().for_each(|path| remove(new, path));
        }
    }
}

fn has(value: &Value, path: &str) -> bool {
    match path.split_once('.') {
        Some(("*", rest)) => value.as_array().is_some_and(|items| items.iter().any(|item| has(item, rest))),
        Some((name, rest)) => value.get(name).is_some_and(|value| has(value, rest)),
        None => value.get(path).is_some_and(|value| !value.is_null()),
    }
}

fn remove(value: &mut Value, path: &str) {
    match path.split_once('.') {
        Some(("*", rest)) => value.as_array_mut().into_iter().flatten().for_each(|item| remove(item, rest)),
        Some((name, rest)) => {
            let Some(inner) = value.get_mut(name).filter(|inner| has(inner, rest)) else { return };
            remove(inner, rest);
            // A container whose lifecycle says nothing else has none.
            if name == "lifecycle" && inner.as_object().is_some_and(|fields| fields.values().all(Value::is_null)) {
                value.as_object_mut().map(|fields| fields.remove(name));
            }
        }
        None => drop(value.as_object_mut().and_then(|fields| fields.remove(path))),
    }
}
