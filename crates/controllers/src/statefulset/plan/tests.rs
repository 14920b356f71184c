//! StatefulSets, their pods and claims, as tables. A pod is `ordinal`, how it is (`+` available, `~` ready for ten seconds,
//! `-` pending, `x` going, `f` failed), and `n` or `o`: of the new or of the old template. So `3+n`.

use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn set(spec: Value) -> StatefulSet {
    let metadata = json!({"name": "web", "namespace": "a", "uid": "s", "generation": 3});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"currentReplicas": 1}})).unwrap()
}

fn pod(text: &str) -> Arc<Pod> {
    let at = text.find(|letter: char| !letter.is_ascii_digit()).unwrap();
    let (ordinal, rest) = text.split_at(at);
    let (how, of) = rest.split_at(1);
    let (phase, since) = match how {
        "-" => ("Pending", None),
        "f" => ("Failed", None),
        "~" => ("Running", Some("2026-01-01T00:59:50Z")),
        _ => ("Running", Some("2026-01-01T00:00:00Z")),
    };
    let name = format!("web-{ordinal}");
    let revision = if of == "n" { "new" } else { "old" };
    let ready = since.map(|since| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]));
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "uid": format!("uid-{ordinal}"), "deletionTimestamp": (how == "x").then_some(NOW),
                "labels": {"statefulset.kubernetes.io/pod-name": name, "controller-revision-hash": revision},
            },
            "status": {"phase": phase, "conditions": ready.unwrap_or(json!([]))},
        }))
        .unwrap(),
    )
}

fn look<T>(set: &StatefulSet, pods: &str, claims: &[Claim], ask: impl FnOnce(&Observed<'_>) -> T) -> T {
    let pods: Vec<Arc<Pod>> = pods.split_whitespace().map(pod).collect();
    let reference = json!({"kind": "StatefulSet", "name": "web", "uid": "s", "controller": true});
    ask(&Observed {
        set,
        pods: &pods,
        current: "old",
        update: "new",
        claim: &|name| claims.iter().find(|claim| claim.metadata.name == name).cloned().map(Arc::new),
        reference: &reference,
        pod_reference: &|pod| json!({"kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid, "controller": true}),
        now: now(),
    })
}

/// A plan as words: `create 0 new`, `delete 2`, `claim data-web-0`.
fn told(plan: &Plan) -> String {
    let action = |task: &Task, action: &PodAction| match action {
        PodAction::CreateClaim(claim) => format!("claim {}", claim["metadata"]["name"].as_str().unwrap()),
        PodAction::CreatePod { ordinal, revision } => {
            format!("create {ordinal} {}", if *revision == RevisionKind::Update { "new" } else { "old" })
        }
        PodAction::DeletePod(pod) => format!("delete {}", pod.metadata.name.trim_start_matches("web-")),
        PodAction::LabelPod(_) => format!("label {}", task.pod),
        PodAction::SetClaimOwner { claim, .. } => format!("own {}", claim.metadata.name),
        PodAction::Fail(why) => format!("refuse {} ({why})", task.pod),
    };
    let actions = plan.tasks.iter().flat_map(|task| task.actions.iter().map(move |each| action(task, each)));
    actions.collect::<Vec<_>>().join(", ")
}

#[test]
fn pods_come_and_go_in_order() {
    let check = |replicas: i32, pods: &str, expect: &str| {
        let set = set(json!({"replicas": replicas, "updateStrategy": {"rollingUpdate": {"partition": 0}}}));
        assert_eq!(look(&set, pods, &[], |observed| told(&plan(observed))), expect, "{replicas} with {pods}");
    };
    check(3, "", "create 0 new");
    check(3, "0-n", "");
    check(3, "0+n", "create 1 new");
    check(3, "0+n 2+n", "create 1 new");
    check(3, "0xn 1+n", "");
    check(3, "0fn 1+n", "delete 0");
    check(3, "0+n 1+n 2+n", "");
    // The last goes first, and only when nobody is missing.
    check(1, "0+n 1+n 2+n", "delete 2");
    check(1, "0+n 1+n 2xn", "");
    check(1, "0-n 1+n 2+n", "");
    check(0, "0+n 1+n", "delete 1");
    // One that ails waits for those that ail before it.
    check(1, "0+n 1-n 2-n", "");
    check(1, "0+n 1+n 2-n", "delete 2");
    check(1, "0+n 1-n 2+n", "delete 2");
}

#[test]
fn pods_come_and_go_at_once() {
    let check = |replicas: i32, pods: &str, expect: &str| {
        let rolling = json!({"rollingUpdate": {"partition": 0}});
        let spec = json!({"replicas": replicas, "podManagementPolicy": "Parallel", "updateStrategy": rolling});
        assert_eq!(look(&set(spec), pods, &[], |observed| told(&plan(observed))), expect, "{replicas} with {pods}");
    };
    check(3, "", "create 0 new, create 1 new, create 2 new");
    check(3, "1-n", "create 0 new, create 2 new");
    check(1, "0-n 1+n 2+n", "delete 2, delete 1");
    check(2, "0fn 1+n", "delete 0");
    check(2, "0+o 1+o", "delete 1");
    check(2, "0+o 1xo", "");
}

#[test]
fn updates_go_from_the_last_to_the_partition() {
    let check = |strategy: Value, pods: &str, expect: &str| {
        let spec = json!({"replicas": 3, "updateStrategy": strategy});
        assert_eq!(look(&set(spec), pods, &[], |observed| told(&plan(observed))), expect, "{strategy} with {pods}");
    };
    let to = |partition: i32| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
    check(to(0), "0+o 1+o 2+o", "delete 2");
    check(to(0), "0+o 1+o", "create 2 new");
    check(to(0), "0+o 1+o 2-n", "");
    check(to(0), "0+o 1+o 2+n", "delete 1");
    check(to(2), "0+o 1+o 2+o", "delete 2");
    check(to(2), "0+o 1+o 2+n", "");
    check(to(2), "0+o 2+n", "create 1 old");
    check(to(9), "0+o 1+o 2+o", "");
    let on_delete = json!({"type": "OnDelete"});
    check(on_delete.clone(), "0+o 1+o 2+o", "");
    check(on_delete, "0+o 1+o", "create 2 new");
    // Without a partition those that were there come back as they were.
    check(json!({"type": "RollingUpdate"}), "1+o 2+o", "create 0 old");
    let many =
        |many: Value| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": many}});
    check(many(json!(2)), "0+o 1+o 2+o", "delete 2, delete 1");
    check(many(json!("1%")), "0+o 1+o 2+o", "delete 2");
    check(many(json!("70%")), "0+o 1+o 2+n", "delete 1, delete 0");
}

#[test]
fn counting_may_begin_later() {
    let check = |pods: &str, expect: &str| {
        let strategy = json!({"rollingUpdate": {"partition": 1}});
        let set = set(json!({"replicas": 2, "ordinals": {"start": 5}, "updateStrategy": strategy}));
        assert_eq!(look(&set, pods, &[], |observed| told(&plan(observed))), expect, "{pods}");
    };
    check("", "create 5 old");
    check("5+o", "create 6 new");
    check("5+o 6+o", "delete 6");
    check("0+o 5+o 6+n", "delete 0");
}

#[test]
fn pods_have_to_be_ready_for_a_while() {
    let check = |pods: &str, expect: &str, requeue_after: Option<u64>| {
        let set = set(json!({"replicas": 2, "minReadySeconds": 30, "updateStrategy": {"rollingUpdate": {}}}));
        let plan = look(&set, pods, &[], plan);
        assert_eq!((&*told(&plan), plan.requeue_after), (expect, requeue_after.map(Duration::from_secs)), "{pods}");
    };
    check("0~n", "", Some(20));
    check("0+n", "create 1 new", None);
    check("0+o 1~n", "", Some(20));
    check("0+o 1+n", "delete 0", None);
}

#[test]
fn claims_come_before_their_pods() {
    let claim = |name: &str, more: Value| -> Claim {
        let mut claim: Claim = serde_json::from_value(json!({"metadata": more})).unwrap();
        claim.metadata.name = name.into();
        claim
    };
    let check = |policy: (&str, &str), pods: &str, claims: &[Claim], expect: &str| {
        let set = set(json!({
            "replicas": 1,
            "updateStrategy": {"rollingUpdate": {}},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": policy.0, "whenScaled": policy.1},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}, {"metadata": {"name": "logs"}}],
        }));
        assert_eq!(look(&set, pods, claims, |observed| told(&plan(observed))), expect, "{policy:?} {pods}");
    };
    let keep = ("Retain", "Retain");
    let data = claim("data-web-0", json!({}));
    check(keep, "", &[], "claim data-web-0, claim logs-web-0, create 0 new");
    check(keep, "", std::slice::from_ref(&data), "claim logs-web-0, create 0 new");
    check(keep, "0-n", std::slice::from_ref(&data), "claim logs-web-0");
    check(keep, "0+n", &[], "");
    let going = claim("data-web-0", json!({"deletionTimestamp": NOW}));
    check(keep, "", &[going], "refuse web-0 (pvc data-web-0 is being deleted)");
    // Claims follow the policy, also when it changes.
    check(("Delete", "Retain"), "0+n", std::slice::from_ref(&data), "own data-web-0");
    let surplus = claim("data-web-1", json!({}));
    check(keep, "0+n 1+n", std::slice::from_ref(&surplus), "delete 1");
    check(("Retain", "Delete"), "0+n 1+n", std::slice::from_ref(&surplus), "own data-web-1, delete 1");
    let left = claim("data-web-0", json!({"ownerReferences": [{"kind": "Pod", "name": "web-0", "uid": "before"}]}));
    check(("Retain", "Delete"), "", std::slice::from_ref(&left), "");
}

#[test]
fn labels_are_put_right() {
    let set = set(json!({"replicas": 1, "updateStrategy": {"rollingUpdate": {}}}));
    let mut wrong = (*pod("0+n")).clone();
    wrong.metadata.labels.insert(POD_NAME.into(), "other".into());
    let pods = [Arc::new(wrong)];
    let plan = look(&set, "", &[], |observed| plan(&Observed { pods: &pods, ..*observed }));
    assert_eq!(told(&plan), "label web-0");
}

#[test]
fn what_goes_is_left_alone() {
    let mut set = set(json!({"replicas": 3}));
    set.metadata.deletion_timestamp = Some(crate::meta::seconds(now()));
    assert_eq!(look(&set, "0+n", &[], plan), Plan::default());
}

#[test]
fn the_status_counts() {
    let check = |strategy: &str, pods: &str, expect: Value| {
        let spec = json!({"replicas": 2, "minReadySeconds": 30, "updateStrategy": {"type": strategy}});
        let status = look(&set(spec), pods, &[], |observed| status(observed, 0));
        assert_eq!(serde_json::to_value(status).unwrap(), expect, "{strategy} {pods}");
    };
    check(
        "RollingUpdate",
        "0+o 1~n 2xn",
        json!({
            "observedGeneration": 3, "replicas": 3, "readyReplicas": 3, "availableReplicas": 2, "currentReplicas": 1,
            "updatedReplicas": 1, "currentRevision": "old", "updateRevision": "new", "collisionCount": 0,
        }),
    );
    let all = |current: i32, revision: &str| {
        let mut status = json!({
            "observedGeneration": 3, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 2,
            "currentRevision": revision, "updateRevision": "new", "collisionCount": 0,
        });
        if current > 0 {
            status["currentReplicas"] = current.into();
        }
        status
    };
    // When all are as they should be, the update is done.
    check("RollingUpdate", "0+n 1+n", all(2, "new"));
    check("OnDelete", "0+n 1+n", all(0, "old"));
    check(
        "RollingUpdate",
        "",
        json!({
            "observedGeneration": 3, "replicas": 0, "availableReplicas": 0, "currentRevision": "old",
            "updateRevision": "new", "collisionCount": 0,
        }),
    );
}
