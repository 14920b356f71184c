//! Claims, volumes and classes, as tables.

use serde_json::{Value, json};

use super::*;

fn claim(spec: Value, metadata: Value) -> Claim {
    let mut claim: Claim = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    claim.metadata.name = "data".into();
    claim.metadata.namespace = "a".into();
    claim.metadata.uid = "c".into();
    claim
}

fn volume(name: &str, spec: Value) -> Arc<Volume> {
    let labels = json!({"disk": name});
    let mut volume: Volume = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Available"},
    }))
    .unwrap();
    if volume.spec.access_modes.is_empty() {
        volume.spec.access_modes = vec!["ReadWriteOnce".into()];
    }
    Arc::new(volume)
}

fn class(name: &str, more: Value) -> Arc<Class> {
    let mut class: Class = serde_json::from_value(more).unwrap();
    class.metadata.name = name.into();
    Arc::new(class)
}

fn classes() -> Vec<Arc<Class>> {
    vec![
        class(
            "fast",
            json!({"provisioner": PROVISIONER, "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        ),
        class("later", json!({"provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"})),
        class("static", json!({"provisioner": NO_PROVISIONER})),
        class("cloud", json!({"provisioner": "disks.example.com"})),
    ]
}

/// A step as words.
fn told(step: ClaimStep) -> String {
    match step {
        ClaimStep::Nothing => "rest".into(),
        ClaimStep::Class(class) => format!("class {class}"),
        ClaimStep::Provision(class) => format!("provision {}", class.metadata.name),
        ClaimStep::Bind(volume) => format!("bind {}", volume.metadata.name),
        ClaimStep::Wait(event) => format!("wait {}", event.reason),
        ClaimStep::Lost(event) => format!("lost {}", event.reason),
    }
}

fn check(claim: &Claim, volumes: &[Arc<Volume>], consumer: Consumer, expect: &str) {
    let classes = classes();
    let step = claim_step(&Observed { claim, volumes, classes: &classes, consumer });
    assert_eq!(told(step), expect, "{:?}", claim.spec);
}

/// A claim of a gigabyte.
fn asks(more: Value) -> Claim {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    more.as_object().unwrap().iter().for_each(|(name, value)| spec[name] = value.clone());
    claim(spec, json!({}))
}

fn size(size: &str) -> Value {
    json!({"capacity": {"storage": size}, "storageClassName": "static"})
}

#[test]
fn classes_say_where_volumes_come_from() {
    let of = |class: Value| asks(json!({"storageClassName": class}));
    check(&asks(json!({})), &[], Consumer::Nobody, "class fast");
    check(&of(json!("fast")), &[], Consumer::Nobody, "provision fast");
    check(&of(json!("")), &[], Consumer::Nobody, "wait FailedBinding");
    check(&of(json!("static")), &[], Consumer::Nobody, "wait FailedBinding");
    check(&of(json!("cloud")), &[], Consumer::Nobody, "wait ExternalProvisioning");
    check(&of(json!("none")), &[], Consumer::Nobody, "wait ProvisioningFailed");
    check(&of(json!("later")), &[], Consumer::Nobody, "wait WaitForFirstConsumer");
    check(&of(json!("later")), &[], Consumer::Unscheduled("p".into()), "wait WaitForPodScheduled");
    check(&of(json!("later")), &[], Consumer::Scheduled("n1".into()), "provision later");
    let going = claim(json!({}), json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    check(&going, &[], Consumer::Nobody, "rest");
    let step =
        claim_step(&Observed { claim: &asks(json!({})), volumes: &[], classes: &[], consumer: Consumer::Nobody });
    assert_eq!(told(step), "wait FailedBinding", "without a default class");
}

#[test]
fn the_newest_default_class_counts() {
    let default = |name: &str, created: &str| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        class(name, json!({"metadata": {"annotations": annotations, "creationTimestamp": created}}))
    };
    let some = [
        default("old", "2026-01-01T00:00:00Z"),
        default("b", "2026-01-02T00:00:00Z"),
        default("a", "2026-01-02T00:00:00Z"),
        class("none", json!({})),
    ];
    assert_eq!(default_class(&some).unwrap().metadata.name, "a");
    assert!(default_class(&some[3..]).is_none());
}

#[test]
fn volumes_that_are_there_are_used_first() {
    let of = |more: Value| {
        let mut claim = asks(more);
        claim.spec.storage_class_name.get_or_insert("static".into());
        claim
    };
    let check = |claim: Claim, volumes: &[Arc<Volume>], expect: &str| check(&claim, volumes, Consumer::Nobody, expect);
    let none = "wait FailedBinding";
    check(of(json!({})), &[volume("big", size("9Gi")), volume("small", size("2Gi"))], "bind small");
    check(of(json!({})), &[volume("tiny", size("1000Mi"))], none);
    check(of(json!({"accessModes": ["ReadWriteMany"]})), &[volume("v", size("2Gi"))], none);
    let mut many = size("1Gi");
    many["accessModes"] = json!(["ReadWriteOnce", "ReadWriteMany"]);
    check(of(json!({"accessModes": ["ReadWriteMany"]})), &[volume("v", many.clone())], "bind v");
    check(of(json!({})), &[volume("many", many), volume("one", size("2Gi"))], "bind one");
    check(of(json!({"storageClassName": ""})), &[volume("v", size("2Gi"))], none);
    check(of(json!({"volumeMode": "Block"})), &[volume("v", size("2Gi"))], none);
    check(
        of(json!({"selector": {"matchLabels": {"disk": "b"}}})),
        &[volume("a", size("2Gi")), volume("b", size("5Gi"))],
        "bind b",
    );
    let kept = |claim: Value| {
        let mut spec = size("5Gi");
        spec["claimRef"] = claim;
        volume("kept", spec)
    };
    check(of(json!({})), &[volume("a", size("2Gi")), kept(json!({"namespace": "a", "name": "data"}))], "bind kept");
    check(of(json!({})), &[kept(json!({"namespace": "a", "name": "other"}))], none);
    check(of(json!({})), &[kept(json!({"namespace": "a", "name": "data", "uid": "before"}))], none);
    let mut released = (*volume("v", size("2Gi"))).clone();
    released.status.phase = "Released".into();
    check(of(json!({})), &[Arc::new(released)], none);
}

#[test]
fn a_volume_that_is_asked_for_has_to_fit() {
    let of = |volume: &str| asks(json!({"storageClassName": "static", "volumeName": volume}));
    let event = |claim: &Claim, volume: &Arc<Volume>| {
        let volumes = [volume.clone()];
        match claim_step(&Observed { claim, volumes: &volumes, classes: &[], consumer: Consumer::Nobody }) {
            ClaimStep::Wait(event) => event.message,
            step => told(step),
        }
    };
    check(&of("v"), &[], Consumer::Nobody, "wait FailedBinding");
    assert_eq!(event(&of("v"), &volume("v", size("1Gi"))), "bind v");
    assert_eq!(
        event(&of("v"), &volume("v", size("1Mi"))),
        "Cannot bind to requested volume \"v\": requested PV is too small"
    );
    let other = json!({"capacity": {"storage": "1Gi"}, "storageClassName": "fast"});
    assert_eq!(
        event(&of("v"), &volume("v", other)),
        "Cannot bind to requested volume \"v\": storageClassName does not match"
    );
    let mut taken = size("1Gi");
    taken["claimRef"] = json!({"namespace": "a", "name": "other", "uid": "o"});
    assert_eq!(event(&of("v"), &volume("v", taken)), "volume \"v\" already bound to a different claim.");
}

#[test]
fn bound_claims_stay_bound_or_are_lost() {
    let of = |volume: &str, phase: &str| {
        let bound = json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
        let mut claim = claim(json!({"volumeName": volume}), bound);
        claim.status.phase = phase.into();
        claim.status.access_modes = vec!["ReadWriteOnce".into()];
        claim.status.capacity.storage = json!("1Gi");
        claim
    };
    let bound = |uid: &str, capacity: &str| {
        let mut spec = size(capacity);
        spec["claimRef"] = json!({"namespace": "a", "name": "data", "uid": uid});
        volume("v", spec)
    };
    let check = |claim: Claim, volumes: &[Arc<Volume>], expect: &str| check(&claim, volumes, Consumer::Nobody, expect);
    check(of("v", "Bound"), &[bound("c", "1Gi")], "rest");
    check(of("v", "Pending"), &[bound("c", "1Gi")], "bind v");
    check(of("v", "Bound"), &[bound("c", "2Gi")], "bind v");
    check(of("v", "Bound"), &[volume("v", size("1Gi"))], "bind v");
    check(of("v", "Bound"), &[], "lost ClaimLost");
    check(of("v", "Lost"), &[], "rest");
    check(of("", "Bound"), &[], "lost ClaimLost");
    check(of("v", "Bound"), &[bound("other", "1Gi")], "lost ClaimMisbound");
}

#[test]
fn volumes_follow_their_claims() {
    let check = |phase: &str, policy: &str, reference: Value, claim: Option<Claim>, expect: VolumeStep| {
        let spec = json!({"persistentVolumeReclaimPolicy": policy, "claimRef": reference});
        let mut volume = (*volume("v", spec)).clone();
        volume.status.phase = phase.into();
        assert_eq!(volume_step(&volume, claim.as_ref()), expect, "{phase} {policy} {reference}");
    };
    let mine = json!({"namespace": "a", "name": "data", "uid": "c"});
    let of = |volume: &str| Some(claim(json!({"volumeName": volume}), json!({})));
    check("", "Retain", Value::Null, None, VolumeStep::Phase("Available"));
    check("Available", "Retain", Value::Null, None, VolumeStep::Nothing);
    check("", "Retain", json!({"namespace": "a", "name": "data"}), None, VolumeStep::Phase("Available"));
    check("", "Delete", mine.clone(), of(""), VolumeStep::Nothing);
    check("", "Delete", mine.clone(), of("v"), VolumeStep::Phase("Bound"));
    check("Bound", "Delete", mine.clone(), of("v"), VolumeStep::Nothing);
    check("Bound", "Retain", mine.clone(), of("w"), VolumeStep::Free);
    check("Bound", "Retain", mine.clone(), None, VolumeStep::Phase("Released"));
    check("Released", "Retain", mine.clone(), None, VolumeStep::Nothing);
    check("Bound", "Delete", mine.clone(), None, VolumeStep::Phase("Released"));
    check("Released", "Delete", mine, None, VolumeStep::Delete);
    // Another claim of that name is another claim.
    let before = json!({"namespace": "a", "name": "data", "uid": "before"});
    check("Bound", "Retain", before, of("v"), VolumeStep::Phase("Released"));
}
