//! The identity of a pod of a StatefulSet: its name, its labels, its claims. In: a StatefulSet and an ordinal. Out: the pod and
//! the claims to create, and the owner of a claim. Pure.

use serde_json::{Value, json};

use super::kind::StatefulSet;
use crate::meta::{Meta, OwnerReference};
use crate::revision_history::POD_REVISION;
use crate::template;

/// The label of a pod with its own name, so that a Service can select one pod.
pub(super) const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label of a pod with its ordinal.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The owner of a claim, with which the claim is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Nobody,
    Set,
    Pod,
}

/// The name of a pod.
pub(super) fn pod_name(set: &StatefulSet, ordinal: i64) -> String {
    format!("{}-{ordinal}", set.metadata.name)
}

/// The pod with this ordinal, made from the template of a revision.
pub(super) fn pod(set: &StatefulSet, template: &Value, revision: &str, reference: &Value, ordinal: i64) -> Value {
    let name = pod_name(set, ordinal);
    let mut pod = template::named_pod(template, &set.metadata, reference, &name);
    pod["metadata"]["generateName"] = format!("{}-", set.metadata.name).into();
    let labels = &mut pod["metadata"]["labels"];
    labels[POD_NAME] = name.clone().into();
    labels[POD_INDEX] = ordinal.to_string().into();
    labels[POD_REVISION] = revision.into();
    let spec = &mut pod["spec"];
    spec["hostname"] = name.into();
    if !set.spec.service_name.is_empty() {
        spec["subdomain"] = set.spec.service_name.clone().into();
    }
    let claimed: Vec<(&str, String)> = claim_names(set, ordinal).collect();
    let others = spec["volumes"].as_array().into_iter().flatten();
    let others = others.filter(|volume| !claimed.iter().any(|(name, _)| volume["name"] == *name)).cloned();
    let volume = |(name, claim): &(&str, String)| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claimed.iter().map(volume).chain(others).collect();
    if !volumes.is_empty() {
        spec["volumes"] = volumes.into();
    }
    pod
}

/// The claims of a pod: the name of the volume, and the name of the claim.
pub(super) fn claim_names(set: &StatefulSet, ordinal: i64) -> impl Iterator<Item = (&str, String)> {
    set.spec.volume_claim_templates.iter().map(move |template| {
        let name = template["metadata"]["name"].as_str().unwrap_or_default();
        (name, format!("{name}-{}-{ordinal}", set.metadata.name))
    })
}

/// The claim of a pod for one of the templates. `owner` is its owner reference.
pub(super) fn claim(set: &StatefulSet, template: &Value, ordinal: i64, owner: Option<Value>) -> Value {
    let name = template["metadata"]["name"].as_str().unwrap_or_default();
    let mut metadata = json!({
        "name": format!("{name}-{}-{ordinal}", set.metadata.name),
        "namespace": set.metadata.namespace,
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !template::is_empty(value)) {
            metadata[field] = value.clone();
        }
    }
    for (label, value) in set.spec.selector["matchLabels"].as_object().into_iter().flatten() {
        metadata["labels"][label] = value.clone();
    }
    if let Some(owner) = owner {
        metadata["ownerReferences"] = json!([owner]);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template["spec"],
    })
}

/// The owner of the claims of a pod, by the retention policy.
pub(super) fn owner(set: &StatefulSet, ordinal: i64) -> Owner {
    let policy = &set.spec.persistent_volume_claim_retention_policy;
    let is_surplus = !set.ordinals().contains(&ordinal);
    match () {
        () if policy.when_scaled == "Delete" && is_surplus => Owner::Pod,
        () if policy.when_deleted == "Delete" => Owner::Set,
        () => Owner::Nobody,
    }
}

/// Whether a claim is about to be deleted with an earlier pod of this name, so that the next pod must not use it.
pub(super) fn is_stale(set: &StatefulSet, claim: &Meta, pod: &str) -> bool {
    let of_pod = |owner: &OwnerReference| owner.kind == "Pod" && owner.name == pod;
    set.spec.persistent_volume_claim_retention_policy.when_scaled == "Delete"
        && claim.owner_references.iter().any(of_pod)
}

/// The patch that sets the owner reference of a claim; `None` if it is right, or if the claim belongs to another owner. `set`
/// and `pod` are the owner references to the StatefulSet and to the pod.
pub(super) fn owner_reference_patch(claim: &Meta, wanted: Owner, set: &Value, pod: &Value) -> Option<Value> {
    let names = |owner: &OwnerReference, reference: &Value| {
        reference["kind"] == owner.kind.as_str() && reference["name"] == owner.name.as_str()
    };
    let is = |owner: &OwnerReference, reference: &Value| reference["uid"] == owner.uid.as_str();
    let owners = &claim.owner_references;
    let is_ours = |owner: &OwnerReference| names(owner, set) || names(owner, pod);
    // A claim of an earlier StatefulSet or pod is deleted with that one.
    if owners.iter().any(|owner| is_ours(owner) && !is(owner, set) && !is(owner, pod)) {
        return None;
    }
    let is_taken = owners.iter().any(|owner| owner.controller && !is_ours(owner));
    let wanted = match wanted {
        Owner::Set if !is_taken => Some(set),
        Owner::Pod if !is_taken => Some(pod),
        _ => None,
    };
    let ours: Vec<usize> = (0..owners.len()).filter(|at| is_ours(&owners[*at])).collect();
    let is_right = match (ours.as_slice(), wanted) {
        ([], None) => true,
        ([at], Some(wanted)) => is(&owners[*at], wanted) && owners[*at].controller,
        _ => false,
    };
    if is_right {
        return None;
    }
    let mut patch = vec![claim.uid_test()];
    for at in ours.into_iter().rev() {
        let path = format!("/metadata/ownerReferences/{at}");
        patch.push(json!({"op": "test", "path": format!("{path}/uid"), "value": owners[at].uid}));
        patch.push(json!({"op": "remove", "path": path}));
    }
    patch.extend(wanted.map(|wanted| match owners.is_empty() {
        true => json!({"op": "add", "path": "/metadata/ownerReferences", "value": [wanted]}),
        false => json!({"op": "add", "path": "/metadata/ownerReferences/-", "value": wanted}),
    }));
    Some(patch.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(spec: Value) -> StatefulSet {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "a", "uid": "s"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn ordinals_are_read_from_names() {
        let check = |name: &str, expect: Option<i64>| assert_eq!(set(json!({})).ordinal(name), expect, "{name}");
        check("web-0", Some(0));
        check("web-12", Some(12));
        check("web", None);
        check("web-", None);
        check("web-a", None);
        check("web-1-2", None);
        check("web--1", None);
        check("webs-1", None);
    }

    #[test]
    fn pods_have_a_name_and_their_claims() {
        let set = set(json!({
            "serviceName": "webs",
            "selector": {"matchLabels": {"app": "web"}},
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"tier": "db"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        }));
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]},
        });
        assert_eq!(
            pod(&set, &template, "web-abc", &json!({"uid": "s"}), 3),
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "web-3", "generateName": "web-", "namespace": "a", "ownerReferences": [{"uid": "s"}],
                    "labels": {
                        "app": "web", "statefulset.kubernetes.io/pod-name": "web-3", "apps.kubernetes.io/pod-index": "3",
                        "controller-revision-hash": "web-abc",
                    },
                },
                "spec": {"hostname": "web-3", "subdomain": "webs", "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-3"}},
                    {"name": "tmp", "emptyDir": {}},
                ]},
            })
        );
        assert_eq!(
            claim(&set, &set.spec.volume_claim_templates[0], 3, None),
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data-web-3", "namespace": "a", "labels": {"tier": "db", "app": "web"}},
                "spec": {"accessModes": ["ReadWriteOnce"]},
            })
        );
    }

    #[test]
    fn claims_belong_to_whom_the_policy_says() {
        let check = |deleted: &str, scaled: &str, ordinal: i64, expect: Owner| {
            let policy = json!({"whenDeleted": deleted, "whenScaled": scaled});
            let set = set(json!({"replicas": 2, "persistentVolumeClaimRetentionPolicy": policy}));
            assert_eq!(owner(&set, ordinal), expect, "{policy} {ordinal}");
        };
        check("Retain", "Retain", 0, Owner::Nobody);
        check("Retain", "Retain", 2, Owner::Nobody);
        check("Delete", "Retain", 0, Owner::Set);
        check("Delete", "Retain", 2, Owner::Set);
        check("Retain", "Delete", 0, Owner::Nobody);
        check("Retain", "Delete", 2, Owner::Pod);
        check("Delete", "Delete", 0, Owner::Set);
        check("Delete", "Delete", 2, Owner::Pod);
    }

    #[test]
    fn claims_change_hands() {
        let reference = |kind: &str, name: &str, uid: &str, controller: bool| json!({"kind": kind, "name": name, "uid": uid, "controller": controller});
        let (by_set, by_pod) = (reference("StatefulSet", "web", "s", true), reference("Pod", "web-0", "p", true));
        // What is removed and what is added; nothing at all if the claim is let be.
        let check = |owners: Vec<&Value>, wanted: Owner, expect: Option<(usize, Option<&Value>)>| {
            let claim: Meta = serde_json::from_value(json!({"uid": "c", "ownerReferences": owners})).unwrap();
            let patch = owner_reference_patch(&claim, wanted, &by_set, &by_pod);
            let ops = patch.map(|patch| patch.as_array().unwrap().clone());
            let got = ops.as_ref().map(|ops| {
                let added = ops.iter().find(|op| op["op"] == "add").map(|op| match &op["value"] {
                    Value::Array(items) => &items[0],
                    value => value,
                });
                (ops.iter().filter(|op| op["op"] == "remove").count(), added)
            });
            assert_eq!(got, expect, "{owners:?} {wanted:?}");
        };
        check(vec![], Owner::Nobody, None);
        check(vec![], Owner::Set, Some((0, Some(&by_set))));
        check(vec![&by_set], Owner::Set, None);
        check(vec![&by_set], Owner::Pod, Some((1, Some(&by_pod))));
        check(vec![&by_set, &by_pod], Owner::Nobody, Some((2, None)));
        let loose = reference("StatefulSet", "web", "s", false);
        check(vec![&loose], Owner::Set, Some((1, Some(&by_set))));
        let before = reference("StatefulSet", "web", "older", true);
        check(vec![&before], Owner::Nobody, None);
        let other = reference("Database", "db", "d", true);
        check(vec![&other], Owner::Set, None);
        check(vec![&other, &by_set], Owner::Set, Some((1, None)));
    }
}
