//! Triggers: which changes wake whom, and what is said about why.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ApiResource;
use serde_json::{Value, json};

use super::*;
use crate::object::Mode;

fn object(change: impl FnOnce(&mut Value)) -> Arc<Object> {
    let mut json = json!({
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1,
            "labels": {"app": "web"}, "annotations": {"a": "1"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"},
                {"apiVersion": "example.org/v1", "kind": "App", "name": "shop", "uid": "s", "controller": true}]
        },
        "spec": {"replicas": 1, "list": [{"x": 1}, {"x": 2}]}, "status": {"ready": 0}
    });
    change(&mut json);
    Arc::new(Object::parse(&ApiResource::erase::<Deployment>(&()), &json.to_string(), Mode::Full).unwrap())
}

fn update(change: impl FnOnce(&mut Value)) -> Change {
    let changed = object(|json| {
        json["metadata"]["resourceVersion"] = "2".into();
        change(json);
    });
    Change::updated(object(|_| ()), changed, Origin::Watch)
}

/// A named change of an object.
type Edit = (&'static str, fn(&mut Value));

const EDITS: [Edit; 7] = [
    ("nothing", |_| ()),
    ("generation", |json| json["metadata"]["generation"] = 2.into()),
    ("labels", |json| json["metadata"]["labels"]["app"] = "db".into()),
    ("annotations", |json| json["metadata"]["annotations"]["a"] = "2".into()),
    ("finalizers", |json| json["metadata"]["finalizers"] = json!(["f"])),
    ("spec", |json| json["spec"]["replicas"] = 2.into()),
    ("terminating", |json| json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into()),
];

#[test]
fn predicates() {
    let all = ["nothing", "generation", "labels", "annotations", "finalizers", "spec", "terminating"];
    for (predicate, expect) in [
        (Predicate::always(), &all[..]),
        (Predicate::resource_version_changed(), &all[..]),
        // Whatever a predicate says, the start of a deletion counts.
        (Predicate::generation_changed(), &["generation", "terminating"][..]),
        (Predicate::labels_changed(), &["labels", "terminating"]),
        (Predicate::annotations_changed(), &["annotations", "terminating"]),
        (Predicate::finalizers_changed(), &["finalizers", "terminating"]),
        (Predicate::spec_changed(), &["spec", "terminating"]),
        (Predicate::terminating_changed(), &["terminating"]),
        (Predicate::generation_changed().or(Predicate::labels_changed()), &["generation", "labels", "terminating"]),
        (Predicate::always().and(Predicate::spec_changed()), &["spec", "terminating"]),
        (Predicate::spec_changed().and(Predicate::labels_changed()), &["terminating"]),
        (Predicate::always().not(), &["terminating"]),
        (Predicate::new(|_, after| after.label("app").as_deref() == Some("db")), &["labels", "terminating"]),
    ] {
        let through = EDITS.iter().filter(|(_, edit)| predicate.lets_through(&update(edit)));
        assert_eq!(through.map(|(name, _)| *name).collect::<Vec<_>>(), expect);
    }
}

#[test]
fn a_delete_is_never_filtered_away() {
    let never = Trigger::itself("Deployment").when(Predicate::always().not());
    let gone = Change::deleted(object(|_| ()), Origin::Relist);
    assert_eq!(never.wakeups(&gone).len(), 1);
    assert_eq!(never.wakeups(&gone)[0].1.cause.what, What::Deleted);
    let new = Change::created(object(|_| ()), Origin::Watch);
    assert_eq!(never.wakeups(&new).len(), 1, "nor is one that is new");
    assert!(never.wakeups(&update(|_| ())).is_empty());
}

#[test]
fn whom() {
    let keys = |trigger: &Trigger, change: &Change| -> Vec<String> {
        trigger.wakeups(change).into_iter().map(|(key, _)| key.to_string()).collect()
    };
    let moved = update(|json| json["metadata"]["ownerReferences"][1]["name"] = "other".into());
    let mapped = Trigger::mapped("Deployment", |object| vec![ObjectKey::new(None, &object.label("app").unwrap())]);
    for (trigger, change, expect) in [
        (Trigger::itself("Deployment"), &moved, &["default/web"][..]),
        (Trigger::owner("Deployment", "example.org", "App", true), &moved, &["default/shop", "default/other"]),
        (Trigger::owner("Deployment", "example.org", "App", false), &moved, &["shop", "other"]),
        (Trigger::owner("Deployment", "", "Node", false), &moved, &[]),
        (Trigger::owner("Deployment", "other.org", "App", true), &moved, &[]),
        (mapped.clone(), &update(|json| json["metadata"]["labels"]["app"] = "db".into()), &["web", "db"]),
        (mapped, &moved, &["web"]),
    ] {
        assert_eq!(keys(&trigger, change), expect);
    }
}

#[test]
fn causes() {
    let trigger = Trigger::itself("Deployment");
    let cause = |change: &Change| trigger.wakeups(change).remove(0).1.cause.to_string();
    let of = |edit: fn(&mut Value)| cause(&update(edit));
    for (found, expect) in [
        (of(|_| ()), "Deployment default/web changed"),
        (of(|json| json["spec"]["replicas"] = 2.into()), "Deployment default/web: spec.replicas changed"),
        (of(|json| json["spec"]["list"][1]["x"] = 3.into()), "Deployment default/web: spec.list[1].x changed"),
        (of(|json| json["spec"]["list"] = json!([])), "Deployment default/web: spec.list changed"),
        (
            of(|json| json["spec"] = json!({"list": [{"x": 1}, {"x": 2}]})),
            "Deployment default/web: spec.replicas changed",
        ),
        (of(|json| json["status"]["more"] = json!({"a": 1})), "Deployment default/web: status.more changed"),
        (
            of(|json| {
                json["metadata"]["labels"] = json!({"b": "1", "app": "x"});
                json["data"] = 1.into();
            }),
            "Deployment default/web: metadata.labels.app, metadata.labels.b, data changed",
        ),
        (cause(&Change::created(object(|_| ()), Origin::Watch)), "Deployment default/web was created"),
        (cause(&Change::created(object(|_| ()), Origin::Initial)), "Deployment default/web is there"),
        (cause(&Change::deleted(object(|_| ()), Origin::Watch)), "Deployment default/web was deleted"),
    ] {
        assert_eq!(found, expect);
    }
    let many = update(|json| (0..50).for_each(|at| json["spec"][format!("f{at}")] = at.into()));
    let (_, wakeup) = trigger.wakeups(&many).remove(0);
    let What::Updated { changed } = &wakeup.cause.what else { panic!("an update") };
    assert_eq!(changed.len(), FIELDS);
}

#[test]
fn only_what_was_there_at_the_start_is_no_change() {
    let urgency = |change| Trigger::itself("Deployment").wakeups(&change).remove(0).1.priority;
    let (one, other) = (|| object(|_| ()), || object(|json| json["metadata"]["resourceVersion"] = "2".into()));
    for (change, expect) in [
        (Change::created(one(), Origin::Initial), Priority::Resync),
        (Change::created(one(), Origin::Watch), Priority::Change),
        // A list tells only of what is different from what was known: that is a change, though nobody saw it happen.
        (Change::created(one(), Origin::Relist), Priority::Change),
        (Change::updated(one(), other(), Origin::Relist), Priority::Change),
        (Change::deleted(one(), Origin::Relist), Priority::Change),
    ] {
        let text = format!("{:?} by {:?}", change.before().is_some(), change.origin());
        assert_eq!(urgency(change), expect, "{text}");
    }
}

#[test]
fn some_objects_are_urgent_when_they_change() {
    let gold: ObjectFilter = Arc::new(|object| object.label("tier").as_deref() == Some("gold"));
    let trigger = Trigger::itself("Deployment").urgent(Some(gold));
    let tier = |tier: &str| object(|json| json["metadata"]["labels"] = serde_json::json!({"tier": tier}));
    let urgency = |change| trigger.wakeups(&change).remove(0).1.priority;
    assert_eq!(urgency(Change::created(tier("gold"), Origin::Watch)), Priority::Urgent);
    assert_eq!(urgency(Change::deleted(tier("gold"), Origin::Watch)), Priority::Urgent);
    assert_eq!(urgency(Change::created(tier("tin"), Origin::Watch)), Priority::Change);
    assert_eq!(urgency(Change::created(tier("gold"), Origin::Relist)), Priority::Urgent);
    assert_eq!(urgency(Change::created(tier("gold"), Origin::Initial)), Priority::Resync);
    // One that panics is as good as none.
    let broken: ObjectFilter = Arc::new(|_| panic!("no idea"));
    let change = Change::created(tier("gold"), Origin::Watch);
    assert_eq!(Trigger::itself("Deployment").urgent(Some(broken)).wakeups(&change)[0].1.priority, Priority::Change);
}
