//! Rollouts as tables: a Deployment, its ReplicaSets as `image asked/available`, and what is done about them.

use konverge_schema::merge_patch;
use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// A Deployment of the image `new`.
fn deployment(replicas: i32, more: Value) -> Deployment {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "a", "uid": "d", "generation": 2},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("new")},
        "status": {"observedGeneration": 2},
    });
    merge_patch(&mut object, &more);
    serde_json::from_value(object).unwrap()
}

/// ReplicaSets written as `image asked/available`, the oldest first, scaled for a Deployment of `desired` and `most`.
fn sets(text: &str, desired: i32, most: i32) -> Vec<Arc<ReplicaSet>> {
    let one = |(at, text): (usize, &str)| {
        let (image, counts) = text.split_once(' ').unwrap();
        let (asked, available) = counts.split_once('/').unwrap();
        let (asked, available): (i32, i32) = (asked.parse().unwrap(), available.parse().unwrap());
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {
                    "name": format!("web-{image}"), "namespace": "a", "uid": image, "generation": 1,
                    "creationTimestamp": format!("2026-01-01T00:00:{at:02}Z"),
                    "annotations": {
                        "deployment.kubernetes.io/revision": (at + 1).to_string(),
                        "deployment.kubernetes.io/desired-replicas": desired.to_string(),
                        "deployment.kubernetes.io/max-replicas": most.to_string(),
                    },
                },
                "spec": {"replicas": asked, "template": template(image)},
                "status": {
                    "replicas": asked, "readyReplicas": available, "availableReplicas": available,
                    "observedGeneration": 1, "terminatingReplicas": 0,
                },
            }))
            .unwrap(),
        )
    };
    text.split(", ").filter(|text| !text.is_empty()).enumerate().map(one).collect()
}

fn planned(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Plan {
    plan(&Observed { deployment, sets, old_pods_run: &|_| false, now: now() })
}

/// The sizes after one step, as `name size`, those that change only.
fn sizes(plan: &Plan) -> String {
    let created = plan.create.iter().map(|new| format!("create {}", new.object["spec"]["replicas"]));
    let changed = plan.change.iter();
    let changed = changed.filter_map(|change| Some(format!("{} {}", change.set.metadata.uid, change.replicas?)));
    created.chain(changed).collect::<Vec<_>>().join(", ")
}

fn rolling(replicas: i32, surge: Value, unavailable: Value) -> Deployment {
    let limits = json!({"maxSurge": surge, "maxUnavailable": unavailable});
    deployment(replicas, json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": limits}}}))
}

#[test]
fn rolling_updates_go_step_by_step() {
    let check = |limits: (Value, Value), there: &str, expect: &str| {
        let deployment = rolling(10, limits.0.clone(), limits.1.clone());
        let most = 10 + deployment.max_surge();
        let plan = planned(&deployment, &sets(there, 10, most));
        assert_eq!(sizes(&plan), expect, "{limits:?} with {there}");
    };
    let quarter = || (json!("25%"), json!("25%"));
    check(quarter(), "", "create 10");
    check(quarter(), "old 10/10", "create 3, old 8");
    // Three above, then as many old ones go as may be missing and as are surplus.
    check(quarter(), "old 10/10, new 3/0", "old 8");
    check(quarter(), "old 8/8, new 3/0", "new 5");
    check(quarter(), "old 8/8, new 5/0", "");
    check(quarter(), "old 8/8, new 5/3", "old 5");
    check(quarter(), "old 0/0, new 10/10", "");
    // Those of no use go first, whichever is older.
    check(quarter(), "older 2/2, old 8/0, new 3/0", "old 6");
    check((json!(0), json!(1)), "old 10/10", "create 0, old 9");
    check((json!(0), json!(1)), "old 10/10, new 0/0", "old 9");
    check((json!(0), json!(1)), "old 9/9, new 0/0", "new 1");
    check((json!(0), json!(1)), "old 9/9, new 1/0", "");
    check((json!(1), json!(0)), "old 10/10, new 1/0", "");
    check((json!(1), json!(0)), "old 10/10, new 1/1", "old 9");
    check((json!(1), json!(0)), "old 9/9, new 1/1", "new 2");
    // More than asked for, after somebody else scaled it.
    check(quarter(), "new 12/12", "new 10");
}

#[test]
fn recreations_wait_for_the_last_of_the_old() {
    let check = |there: &str, old_pods_run: bool, expect: &str| {
        let deployment = deployment(3, json!({"spec": {"strategy": {"type": "Recreate"}}}));
        let sets = sets(there, 3, 3);
        let plan =
            plan(&Observed { deployment: &deployment, sets: &sets, old_pods_run: &|_| old_pods_run, now: now() });
        assert_eq!(sizes(&plan), expect, "{there}");
    };
    check("", false, "create 3");
    check("old 3/3", false, "old 0");
    check("old 0/0", true, "");
    check("old 0/0", false, "create 3");
    check("old 0/0, new 0/0", false, "new 3");
}

#[test]
fn scaling_is_shared_in_proportion() {
    let check = |from: (i32, i32), to: i32, paused: bool, there: &str, expect: &str| {
        let deployment = deployment(to, json!({"spec": {"paused": paused}}));
        let plan = planned(&deployment, &sets(there, from.0, from.1));
        assert_eq!(sizes(&plan), expect, "{from:?} to {to} with {there}");
    };
    // One that is alone takes all.
    check((10, 13), 20, false, "new 10/10", "new 20");
    check((10, 13), 5, false, "old 10/10", "old 5");
    check((0, 0), 5, true, "old 0/0, new 0/0", "new 5");
    check((0, 0), 5, true, "older 0/0, old 0/0", "old 5");
    // In the middle of a rollout both grow, and both shrink.
    check((10, 13), 20, false, "old 8/8, new 5/2", "old 15, new 10");
    check((10, 13), 5, false, "old 8/8, new 5/2", "old 4, new 3");
    check((10, 13), 0, false, "old 8/8, new 5/2", "old 0, new 0");
    // When the new one is complete, the old ones just go.
    check((10, 13), 10, true, "old 3/3, new 10/10", "old 0");
}

#[test]
fn revisions_are_counted_and_remembered() {
    let deployment = deployment(
        1,
        json!({"metadata": {"annotations": {
            "deployment.kubernetes.io/revision": "2", "team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}",
        }}}),
    );
    // The new template is that of the oldest one: somebody went back.
    let plan = planned(&deployment, &sets("new 0/0, old 1/1", 1, 2));
    assert_eq!(plan.revision.as_deref(), Some("3"));
    let change = plan.change.iter().find(|change| change.set.metadata.uid == "new").unwrap();
    let expect =
        [("deployment.kubernetes.io/revision", "3"), ("deployment.kubernetes.io/revision-history", "1"), ("team", "a")];
    assert_eq!(change.annotations, expect.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(change.replicas, Some(1));

    let created = planned(&deployment, &sets("old 1/1", 1, 2)).create.unwrap();
    assert!(created.name.starts_with("web-"), "{}", created.name);
    let hash = created.name.trim_start_matches("web-");
    for path in ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        let labels = created.object.pointer(path).unwrap();
        assert_eq!(labels, &json!({"app": "web", TEMPLATE_HASH: hash}), "{path}");
    }
    let annotations = &created.object["metadata"]["annotations"];
    assert_eq!(
        annotations,
        &json!({
            "deployment.kubernetes.io/revision": "2", "deployment.kubernetes.io/desired-replicas": "1",
            "deployment.kubernetes.io/max-replicas": "2", "team": "a",
        })
    );
}

#[test]
fn the_history_is_limited() {
    let complete = json!({
        "spec": {"revisionHistoryLimit": 1},
        "status": {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1},
    });
    let check = |deployment: &Deployment, there: &str, expect: &[&str]| {
        let plan = planned(deployment, &sets(there, 1, 2));
        let gone: Vec<&str> = plan.delete.iter().map(|set| &*set.metadata.uid).collect();
        assert_eq!(gone, expect, "{there}");
    };
    check(&deployment(1, complete.clone()), "a 0/0, b 0/0, c 0/0, new 1/1", &["a", "b"]);
    check(&deployment(1, complete.clone()), "a 0/0, new 1/1", &[]);
    // Nothing goes while the rollout is under way, nor what still has pods.
    check(&deployment(1, json!({"spec": {"revisionHistoryLimit": 0}})), "a 0/0, new 1/0", &[]);
    check(&deployment(1, json!({"spec": {"revisionHistoryLimit": 2147483647}})), "a 0/0, new 1/1", &[]);
}

/// The conditions and counts a Deployment has, one sentence a state.
#[test]
fn the_status_says_how_it_goes() {
    let progressing = |reason: &str, when: &str| {
        json!({"status": {"conditions": [
            {"type": "Progressing", "status": "True", "reason": reason, "lastUpdateTime": when, "lastTransitionTime": when},
        ]}})
    };
    let check = |more: Value, there: &str, expect: &str, requeue_after: Option<u64>| {
        let deployment = deployment(4, more.clone());
        let plan = planned(&deployment, &sets(there, 4, 5));
        let words: Vec<String> = (plan.status.conditions.iter())
            .map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason))
            .collect();
        let status = &plan.status;
        let counts = format!(
            "{} of {} updated, {} available, {} not",
            status.updated_replicas, status.replicas, status.available_replicas, status.unavailable_replicas
        );
        assert_eq!(format!("{counts}; {}", words.join(", ")), expect, "{more} with {there}");
        assert_eq!(
            plan.requeue_after.map(|requeue_after| requeue_after.as_secs()),
            requeue_after,
            "{more} with {there}"
        );
    };
    check(
        json!({}),
        "",
        "0 of 0 updated, 0 available, 4 not; Progressing=True NewReplicaSetCreated, Available=False MinimumReplicasUnavailable",
        Some(601),
    );
    check(
        progressing("NewReplicaSetCreated", "2026-01-01T00:59:00Z"),
        "new 4/2",
        "4 of 4 updated, 2 available, 2 not; Available=False MinimumReplicasUnavailable, Progressing=True ReplicaSetUpdated",
        Some(601),
    );
    check(
        progressing("ReplicaSetUpdated", "2026-01-01T00:59:00Z"),
        "new 4/4",
        "4 of 4 updated, 4 available, 0 not; Available=True MinimumReplicasAvailable, Progressing=True NewReplicaSetAvailable",
        None,
    );
    // Nothing has moved since the last look; the deadline is ten minutes after the last progress.
    let stuck = |when: &str| {
        let mut status = progressing("ReplicaSetUpdated", when);
        merge_patch(
            &mut status,
            &json!({"status": {"replicas": 4, "updatedReplicas": 4, "readyReplicas": 3, "availableReplicas": 3}}),
        );
        status
    };
    check(
        stuck("2026-01-01T00:55:00Z"),
        "new 4/3",
        "4 of 4 updated, 3 available, 1 not; Progressing=True ReplicaSetUpdated, Available=True MinimumReplicasAvailable",
        Some(301),
    );
    check(
        stuck("2026-01-01T00:49:00Z"),
        "new 4/3",
        "4 of 4 updated, 3 available, 1 not; Available=True MinimumReplicasAvailable, Progressing=False ProgressDeadlineExceeded",
        None,
    );
    check(
        json!({"spec": {"progressDeadlineSeconds": 2147483647}}),
        "new 4/3",
        "4 of 4 updated, 3 available, 1 not; Available=True MinimumReplicasAvailable",
        None,
    );
    check(
        json!({"spec": {"paused": true}}),
        "new 4/4",
        "4 of 4 updated, 4 available, 0 not; Progressing=Unknown DeploymentPaused, Available=True MinimumReplicasAvailable",
        None,
    );
}

#[test]
fn a_steady_deployment_needs_nothing() {
    let mut deployment =
        deployment(4, json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}}}));
    let there = sets("new 4/4", 4, 5);
    deployment.status = planned(&deployment, &there).status;
    let plan = planned(&deployment, &there);
    assert_eq!(plan, Plan { status: deployment.status.clone(), ..Plan::default() });
}

#[test]
fn everything_is_no_selector() {
    let deployment = deployment(4, json!({"spec": {"selector": {"matchLabels": null}}}));
    let plan = planned(&deployment, &[]);
    assert_eq!((plan.events[0].0, plan.create), ("SelectingAll", None));
}
