//! ReplicaSets and their pods, as tables.

use konverge_schema::merge_patch;
use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn set(spec: Value) -> ReplicaSet {
    serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "a", "generation": 3}, "spec": spec}))
        .unwrap()
}

fn pod(name: &str, more: Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"},
        ]},
    });
    merge_patch(&mut pod, &more);
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[test]
fn so_many_are_created_or_deleted() {
    let check = |replicas: Option<i32>, pods: Vec<Arc<Pod>>, expect: (usize, usize)| {
        let got = match step(&set(json!({"replicas": replicas})), &pods, |_| 0, now()) {
            Step::Nothing => (0, 0),
            Step::Create(many) => (many, 0),
            Step::Delete(pods) => (0, pods.len()),
        };
        assert_eq!(got, expect, "{replicas:?} with {}", pods.len());
    };
    let some = |many: usize| (0..many).map(|at| pod(&format!("p{at}"), json!({}))).collect::<Vec<_>>();
    check(None, vec![], (1, 0));
    check(Some(0), vec![], (0, 0));
    check(Some(3), some(1), (2, 0));
    check(Some(3), some(3), (0, 0));
    check(Some(1), some(3), (0, 2));
    check(Some(0), some(3), (0, 3));
    check(Some(10_000), some(0), (BURST, 0));
    // What has ended or is going is no replica.
    let leaving = pod("l", json!({"metadata": {"deletionTimestamp": NOW}}));
    check(Some(1), vec![leaving, pod("f", json!({"status": {"phase": "Failed"}}))], (1, 0));
}

/// Of two pods, `first` goes.
#[test]
fn those_that_do_least_go_first() {
    let check = |first: Value, second: Value| {
        let (a, b) = (pod("zz", first.clone()), pod("aa", second.clone()));
        let neighbours = |node: &str| if node == "crowded" { 5 } else { 1 };
        for pods in [[a.clone(), b.clone()], [b, a]] {
            let Step::Delete(gone) = step(&set(json!({"replicas": 1})), &pods, neighbours, now()) else { panic!() };
            assert_eq!(gone[0].metadata.name, "zz", "{first} before {second}");
        }
    };
    let not_ready = json!([{"type": "Ready", "status": "False"}]);
    let ready_at = |time: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]}});
    check(json!({"spec": {"nodeName": ""}}), json!({"status": {"phase": "Pending"}}));
    check(json!({"status": {"phase": "Pending"}}), json!({"status": {"phase": "Unknown"}}));
    check(json!({"status": {"phase": "Unknown"}}), json!({}));
    check(json!({"status": {"conditions": not_ready}}), json!({}));
    let cost = |cost: &str| json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}});
    check(cost("-1"), json!({}));
    check(json!({}), cost("10"));
    check(json!({"spec": {"nodeName": "crowded"}}), json!({}));
    check(ready_at("2026-01-01T00:59:59Z"), ready_at("2026-01-01T00:10:00Z"));
    check(json!({"status": {"containerStatuses": [{"restartCount": 3}]}}), json!({}));
    check(json!({"metadata": {"creationTimestamp": "2026-01-01T00:59:00Z"}}), json!({}));
}

#[test]
fn the_status_counts() {
    let set = set(json!({
        "replicas": 4, "minReadySeconds": 60,
        "template": {"metadata": {"labels": {"app": "web", "tier": "front"}}},
    }));
    let fresh = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:59:50Z"}]);
    let pods = [
        pod("a", json!({"metadata": {"labels": {"tier": "front"}}})),
        pod("b", json!({"status": {"conditions": fresh}})),
        pod("c", json!({"status": {"conditions": []}})),
        pod("d", json!({"metadata": {"deletionTimestamp": NOW}})),
        pod("e", json!({"status": {"phase": "Succeeded"}})),
    ];
    let status = status(&set, &pods, None, now());
    assert_eq!(
        serde_json::to_value(&status).unwrap(),
        json!({
            "replicas": 3, "fullyLabeledReplicas": 1, "readyReplicas": 2, "availableReplicas": 1,
            "terminatingReplicas": 1, "observedGeneration": 3,
        })
    );
    assert_eq!(requeue_after(&set, &pods, now()), Some(Duration::from_secs(50)));
}

#[test]
fn failures_are_told_once_and_taken_back() {
    let mut set = set(json!({"replicas": 1}));
    let failure = |text: &str| Failure { reason: "FailedCreate", error: Error::new(text.to_owned()) };
    set.status = status(&set, &[], Some(&failure("first")), now());
    let condition = &set.status.conditions[0];
    assert_eq!(
        (&*condition.type_, &*condition.reason, &*condition.message),
        (REPLICA_FAILURE, "FailedCreate", "first")
    );
    assert_eq!(status(&set, &[], Some(&failure("second")), now()), set.status);
    assert!(status(&set, &[], None, now()).conditions.is_empty());
}
