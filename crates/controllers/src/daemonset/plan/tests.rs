//! DaemonSets, nodes and their pods, as tables. A pod is its node, how it is (`+` available, `~` ready for ten seconds, `-`
//! pending, `x` going, `f` failed, `s` succeeded, `?` not there yet), and `n` or `o`: of the new or of the old template. So
//! `b+n`. There are the nodes a, b, c and d; d refuses what is not there yet, and e refuses everything.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn pod(at: usize, text: &str) -> Arc<Pod> {
    let letters: Vec<&str> = text.split("").filter(|letter| !letter.is_empty()).collect();
    let [node, how, of] = letters[..] else { panic!("{text}") };
    let (phase, since) = match how {
        "-" | "?" => ("Pending", None),
        "f" => ("Failed", None),
        "s" => ("Succeeded", None),
        "~" => ("Running", Some("2026-01-01T00:59:50Z")),
        _ => ("Running", Some("2026-01-01T00:00:00Z")),
    };
    let ready = since.map(|since| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]));
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("{text}{at}"), "deletionTimestamp": (how == "x").then_some(NOW),
                "creationTimestamp": format!("2026-01-01T00:00:{at:02}Z"),
                "labels": {"controller-revision-hash": if of == "n" { "new" } else { "old" }},
            },
            "spec": {
                "nodeName": if how == "?" { "" } else { node },
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
            },
            "status": {"phase": phase, "conditions": ready.unwrap_or(json!([]))},
        }))
        .unwrap(),
    )
}

fn look<T>(spec: Value, nodes: &str, pods: &str, ask: impl FnOnce(&Observed<'_>) -> T) -> T {
    let set: DaemonSet =
        serde_json::from_value(json!({"metadata": {"name": "log", "generation": 3}, "spec": spec})).unwrap();
    let node = |name: char| -> Arc<Node> {
        let effect = match name {
            'd' => "NoSchedule",
            'e' => "NoExecute",
            _ => "PreferNoSchedule",
        };
        let spec = json!({"taints": [{"key": "k", "effect": effect}]});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
    };
    let nodes: Vec<Arc<Node>> = nodes.chars().map(node).collect();
    let pods: Vec<Arc<Pod>> = pods.split_whitespace().enumerate().map(|(at, text)| pod(at, text)).collect();
    let failure_backoff = |node: &str| Duration::from_secs(if node == "c" { 7 } else { 0 });
    ask(&Observed { set: &set, nodes: &nodes, pods: &pods, hash: "new", failure_backoff: &failure_backoff, now: now() })
}

/// A plan as words: `+a` a pod for node a, `-b+n1` that pod goes.
fn told(plan: &Plan) -> String {
    let created = plan.create.iter().map(|node| format!("+{node}"));
    let deleted = plan.delete.iter().map(|pod| format!("-{}", pod.metadata.name));
    created.chain(deleted).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_node_has_one() {
    let check = |nodes: &str, pods: &str, expect: &str| {
        assert_eq!(look(json!({}), nodes, pods, |observed| told(&plan(observed))), expect, "{nodes} with {pods}");
    };
    check("", "", "");
    check("ab", "", "+a +b");
    check("abc", "b+n", "+a +c");
    check("ab", "a?n b-n", "");
    check("ab", "a+n a+n b+n", "-a+n1");
    // One on the node counts before one on its way.
    check("a", "a?n a+n", "-a?n0");
    // Where one goes the next one comes later.
    check("ab", "axn b+n", "");
    // Nodes that refuse.
    check("de", "", "");
    check("de", "d+n e+n", "-e+n1");
    // One that ended is replaced, if it does not fail too often.
    check("ab", "afn bsn", "-afn0 -bsn1");
    check("c", "cfn", "");
    // A node that is gone.
    check("a", "a+n b?n", "-b?n1");
    check("a", "a+n b+n", "");
}

#[test]
fn of_one_second_those_that_are_ready_count() {
    // By their names the one that is ready would come last.
    let mut ready = (*pod(0, "a+o")).clone();
    ready.metadata.name = "z".into();
    let twins = [pod(0, "a-o"), pod(0, "a?o"), Arc::new(ready)];
    let (deleted, available) = look(json!({}), "a", "", |observed| {
        let observed = Observed { pods: &twins, ..*observed };
        (told(&plan(&observed)), status(&observed, None).number_available)
    });
    assert_eq!((&*deleted, available), ("-a-o0 -a?o0", 1));
}

#[test]
fn pods_are_replaced_a_few_at_a_time() {
    let check = |rolling: Value, pods: &str, expect: &str| {
        let spec = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
        assert_eq!(look(spec, "abc", pods, |observed| told(&plan(observed))), expect, "{rolling} with {pods}");
    };
    check(json!({}), "a+o b+o c+o", "-a+o0");
    check(json!({}), "axo b+o c+o", "");
    check(json!({}), "a-n b+o c+o", "");
    check(json!({}), "a+n b+o c+o", "-b+o1");
    check(json!({}), "a+n b+n c+n", "");
    // What is not available anyway goes at once.
    check(json!({}), "a-o b-o c+o", "-a-o0 -b-o1");
    check(json!({"maxUnavailable": 2}), "a+o b+o c+o", "-a+o0 -b+o1");
    check(json!({"maxUnavailable": "100%"}), "a+o b+o c-n", "-a+o0 -b+o1");
    check(json!({"maxUnavailable": 0, "maxSurge": 0}), "a+o b+o c+o", "-a+o0");
}

#[test]
fn pods_are_replaced_after_the_next_one_is_there() {
    let check = |nodes: &str, pods: &str, expect: &str| {
        let rolling = json!({"maxSurge": 1, "maxUnavailable": 0});
        let spec = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
        assert_eq!(look(spec, nodes, pods, |observed| told(&plan(observed))), expect, "{nodes} with {pods}");
    };
    check("abc", "a+o b+o c+o", "+a");
    check("abc", "a+o a-n b+o c+o", "");
    check("abc", "a+o a+n b+o c+o", "-a+o0");
    check("abc", "a+n b+o c+o", "+b");
    check("abc", "a-o a-n b+o c+o", "-a-o0");
    check("abc", "a-o b+o c+o", "+a +b");
    check("abc", "axo b+n c+n", "+a");
    check("abc", "a+n a+n b+n c+n", "-a+n1");
    // A pod on a node that refuses the next one goes when enough are available elsewhere.
    check("ad", "a+n d+o", "-d+o1");
    check("ad", "a-n d+o", "");
    check("ad", "a+n d-o", "-d-o1");
}

#[test]
fn pods_are_updated_when_they_are_deleted() {
    let spec = json!({"updateStrategy": {"type": "OnDelete"}});
    assert_eq!(look(spec, "ab", "a+o b-o", |observed| told(&plan(observed))), "");
}

#[test]
fn pods_have_to_be_ready_for_a_while() {
    let spec = json!({"minReadySeconds": 30});
    let plan = look(spec, "ab", "a~n b+o", plan);
    assert_eq!((&*told(&plan), plan.requeue_after), ("", Some(Duration::from_secs(20))));
    let plan = look(json!({}), "c", "cfn", super::plan);
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(7)), "one that fails too often is looked at later");
}

#[test]
fn the_status_counts_nodes() {
    let check = |nodes: &str, pods: &str, expect: Value| {
        let status = look(json!({"minReadySeconds": 30}), nodes, pods, |observed| status(observed, None));
        assert_eq!(serde_json::to_value(status).unwrap(), expect, "{nodes} {pods}");
    };
    check(
        "abcde",
        "a+n a-n b~o d+n",
        json!({
            "desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberMisscheduled": 1, "numberReady": 2,
            "numberAvailable": 1, "numberUnavailable": 2, "updatedNumberScheduled": 1, "observedGeneration": 3,
        }),
    );
    let none = json!({
        "desiredNumberScheduled": 0, "currentNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        "observedGeneration": 3,
    });
    check("", "a+n", none);
}
