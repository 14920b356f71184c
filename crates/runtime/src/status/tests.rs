//! Tests of `status`, as tables.

use super::*;

const THEN: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-06-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, observed: i64, since: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "observedGeneration": observed, "lastTransitionTime": since,
    })
}

/// The conditions after some were set, and whether that changed anything.
fn check(before: impl AsRef<[Value]>, set: &[Condition], expect: impl AsRef<[Value]>) {
    let (before, expect) = (before.as_ref(), expect.as_ref());
    let object = json!({"status": {"conditions": before}});
    let mut conditions = Conditions::of(&object);
    let mut changed = false;
    for one in set {
        changed |= conditions.set(one, Some(2), now());
    }
    assert_eq!(conditions.iter().cloned().collect::<Vec<_>>(), expect, "{set:?}");
    assert_eq!(changed, before != expect, "{set:?}");
}

#[test]
fn the_transition_time_moves_only_when_the_status_does() {
    let ready = condition("Ready", "True", "AllReady", "3 of 3", 2, THEN);
    let yes = |reason: &str, message: &str| Condition::yes(READY, reason, message);
    check(&[], &[yes("AllReady", "3 of 3")], &[condition("Ready", "True", "AllReady", "3 of 3", 2, NOW)]);
    check([ready.clone()], &[yes("AllReady", "3 of 3")], [ready.clone()]);
    // Another reason, message or generation is written without moving the time.
    check([ready.clone()], &[yes("Some", "2 of 3")], &[condition("Ready", "True", "Some", "2 of 3", 2, THEN)]);
    let older = condition("Ready", "True", "AllReady", "3 of 3", 1, THEN);
    check(&[older], &[yes("AllReady", "3 of 3")], [ready.clone()]);
    let no = Condition::no(READY, "Down", "0 of 3");
    check([ready.clone()], &[no], &[condition("Ready", "False", "Down", "0 of 3", 2, NOW)]);
    let unknown = Condition::new(READY, ConditionStatus::Unknown, "Lost", "");
    check(&[ready], &[unknown], &[condition("Ready", "Unknown", "Lost", "", 2, NOW)]);
}

#[test]
fn conditions_of_others_stay_where_they_are() {
    let foreign = json!({"type": "Zone", "status": "True", "extra": {"kept": 1}});
    let odd = json!("not even an object");
    let before = [foreign.clone(), odd.clone()];
    let set =
        [Condition::yes(READY, "Yes", ""), Condition::no(DEGRADED, "No", ""), Condition::no(PROGRESSING, "No", "")];
    let expect = [
        foreign,
        odd,
        condition("Degraded", "False", "No", "", 2, NOW),
        condition("Progressing", "False", "No", "", 2, NOW),
        condition("Ready", "True", "Yes", "", 2, NOW),
    ];
    check(&before, &set, &expect);
    // The order in which they are set does not matter.
    check(&before, &[set[2].clone(), set[0].clone(), set[1].clone()], &expect);
}

#[test]
fn conditions_can_be_read_and_removed() {
    let list = [condition("Ready", "True", "", "", 1, THEN), condition("Degraded", "False", "", "", 1, THEN)];
    let object = json!({"status": {"conditions": list}});
    let mut conditions = Conditions::of(&object);
    assert_eq!(
        (conditions.is_true(READY), conditions.is_true(DEGRADED), conditions.is_true("X")),
        (true, false, false)
    );
    assert_eq!((is_true(&object, READY), is_true(&object, DEGRADED), is_true(&json!({}), READY)), (true, false, false));
    assert!(conditions.remove(READY));
    assert!(!conditions.remove(READY));
    assert_eq!(conditions.iter().count(), 1);
}

#[test]
fn a_condition_fits_the_published_schema() {
    let mut conditions = Conditions::default();
    let long = "ä".repeat(20_000);
    conditions.set(&Condition::yes(READY, "", long.as_str()), None, now());
    let ready = conditions.get(READY).unwrap();
    assert_eq!(ready["reason"], "Ready");
    assert_eq!(ready["message"].as_str().unwrap().len(), 32_768);
    assert_eq!(ready.get("observedGeneration"), None);
}

#[test]
fn the_patch_is_the_smallest() {
    let ready = condition("Ready", "True", "Yes", "", 2, THEN);
    let live = json!({"status": {"phase": "Up", "ready": 3, "nested": {"a": 1, "b": 2}, "conditions": [ready]}});
    let stay = |fields: Value| StatusUpdate::fields(fields, OtherFields::Stay);
    let go = |fields: Value| StatusUpdate::fields(fields, OtherFields::Go);
    let cases = [
        (stay(json!({"phase": "Up"})), None),
        (stay(json!({})), None),
        (stay(Value::Null), None),
        (stay(json!({"ready": 4, "phase": "Up"})), Some(json!({"ready": 4}))),
        (stay(json!({"nested": {"a": 2}})), Some(json!({"nested": {"a": 2}}))),
        (stay(json!({"phase": null})), Some(json!({"phase": null}))),
        (stay(json!({"absent": null})), None),
        (stay(json!({"list": [1]})), Some(json!({"list": [1]}))),
        (go(json!({"phase": "Up", "ready": 3, "nested": {"a": 1, "b": 2}})), None),
        (go(json!({"phase": "Up", "nested": {"a": 1}})), Some(json!({"ready": null, "nested": {"b": null}}))),
        (go(json!({})), Some(json!({"phase": null, "ready": null, "nested": null}))),
        (StatusUpdate::conditions([Condition::yes(READY, "Yes", "")]), None),
        (
            StatusUpdate::conditions([Condition::no(READY, "No", "")]),
            Some(json!({"conditions": [condition("Ready", "False", "No", "", 2, NOW)]})),
        ),
        // A typed status brings its conditions along; an empty list of them takes none away.
        (stay(json!({"conditions": []})), None),
        (
            stay(
                json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": NOW}]}),
            ),
            None,
        ),
        // One that was read and changed gets a time of its own.
        (
            stay(json!({"conditions": [condition("Ready", "False", "No", "", 2, THEN)]})),
            Some(json!({"conditions": [condition("Ready", "False", "No", "", 2, NOW)]})),
        ),
        (
            stay(json!({"conditions": [{"type": "New", "status": "True"}]})),
            Some(json!({"conditions": [
                ready,
                {"type": "New", "status": "True", "observedGeneration": 2, "lastTransitionTime": NOW},
            ]})),
        ),
        (StatusUpdate { removed: vec![READY.into()], ..StatusUpdate::default() }, Some(json!({"conditions": []}))),
    ];
    for (update, expect) in cases {
        assert_eq!(plan(&live["status"], &update, Some(2), now()), expect, "{update:?}");
    }
    assert_eq!(plan(&json!(null), &stay(json!({"a": 1})), None, now()), Some(json!({"a": 1})));
    assert_eq!(plan(&json!({}), &go(json!({})), None, now()), None);
}

/// Servers write a whole number without its point.
#[test]
fn a_number_is_the_same_however_it_is_written() {
    let update = |load: Value| StatusUpdate::fields(json!({ "load": load }), OtherFields::Stay);
    let plan = |before: Value, load: Value| plan(&json!({ "load": before }), &update(load), None, now());
    assert_eq!(plan(json!(1), json!(1.0)), None);
    assert_eq!(plan(json!([1, {"a": 2}]), json!([1.0, {"a": 2.0}])), None);
    assert_eq!(plan(json!(1), json!(1.5)), Some(json!({"load": 1.5})));
    assert_eq!(plan(json!([1, 2]), json!([1])), Some(json!({"load": [1]})));
}
