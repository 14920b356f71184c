//! Tests of `validation`, as tables. `objects.jsonl` has good objects, and `cases.jsonl` has mutations of them with the errors
//! that the registries of Kubernetes 1.36.4 report; `cargo xtask validation --write-cases` writes the latter.

use konverge_core::FieldError;
use konverge_schema::merge_patch;
use serde_json::json;

use super::*;

const OBJECTS: &str = include_str!("objects.jsonl");
const CASES: &str = include_str!("cases.jsonl");

#[test]
fn the_table_is_read() {
    assert_eq!(problem(include_str!("../../data/kubernetes.validation")), None);
}

/// What is wrong with a table, all of whose rules are parsed.
fn problem(text: &'static str) -> Option<String> {
    let parsed = ValidationTable::read(text, kubernetes())
        .and_then(|table| table.sets.iter().try_for_each(|set| table.parse(set).map(drop)));
    parsed.err()
}

#[test]
fn broken_tables_name_the_line() {
    let core = "@core io.k8s.api.core.v1\n";
    for (text, expect) in [
        ("  name required\n", "line 2: \"  name required\" is not understood"),
        ("core.Pad\n", "line 2: \"core.Pad\" is not understood"),
        ("core.Pod\n  spec strange\n", "line 3: \"  spec strange\" is not understood"),
        ("core.Pod\n  spec.host required\n", "line 3: there is no field host"),
        ("core.Pod\n  spec\n", "line 3: there are no rules \"\" of this type"),
        ("core.Pod\n  spec[] required\n", "line 3: spec is no list or map"),
        ("core.Pod\n  spec call nobody\n", "line 3: \"  spec call nobody\" is not understood"),
        ("core.Pod\ncore.Pod\n", "line 3: core.Pod is here twice"),
    ] {
        let text: &'static str = format!("{core}{text}").leak();
        assert_eq!(problem(text).as_deref(), Some(expect), "{text}");
    }
}

fn shown(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(|error| format!("{}: {}", error.cause().field, error.cause().message)).collect()
}

fn objects() -> Vec<Value> {
    OBJECTS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn good_objects_have_no_errors() {
    for object in objects() {
        assert_eq!(shown(&check_object(&object, None).unwrap()), Vec::<String>::new(), "{object}");
        // As a client reads it, and sends it back.
        let version = object["apiVersion"].as_str().unwrap();
        let is_kind = |resource: &&Arc<Resource>| object["kind"] == *resource.kind && resource.is_api_version(version);
        let resource = served().iter().find(is_kind).unwrap();
        let stored = prepared(resource, &object, None).unwrap();
        assert_eq!(shown(&check_object(&stored, Some(&object)).unwrap()), Vec::<String>::new(), "{object}");
    }
}

/// An object with another value at a pointer; without a value, with nothing there.
fn mutated(object: &Value, at: &str, value: Option<&Value>) -> Value {
    let mut object = object.clone();
    let (parent, name) = at.rsplit_once('/').unwrap();
    let name = name.replace("~1", "/").replace("~0", "~");
    match (object.pointer_mut(parent).unwrap(), value) {
        (Value::Object(fields), Some(value)) => drop(fields.insert(name, value.clone())),
        (Value::Object(fields), None) => drop(fields.remove(&name)),
        (Value::Array(items), value) => {
            let index: usize = name.parse().unwrap();
            match value {
                Some(value) if index < items.len() => items[index] = value.clone(),
                Some(value) => items.push(value.clone()),
                None => drop(items.remove(index)),
            }
        }
        _ => panic!("{at}"),
    }
    object
}

#[test]
fn bad_objects_have_the_errors_of_a_cluster() {
    let objects = objects();
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let good = &objects[case["object"].as_u64().unwrap() as usize];
        let bad = mutated(good, case["at"].as_str().unwrap(), case.get("value"));
        let old = (case["update"] == true).then_some(good);
        let errors = shown(&check_object(&bad, old).unwrap());
        let expect: Vec<&str> = case["errors"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
        assert_eq!(errors, expect, "{} {line}", good["kind"]);
    }
}

#[test]
fn a_walk_pays_for_its_work() {
    let resource = served().iter().find(|resource| &*resource.kind == "Pod").unwrap();
    let pod = objects().into_iter().find(|object| object["kind"] == "Pod").unwrap();
    let budget = Budget::new(50, 1000);
    let outcome = check(resource, Subresource::Main, None, &pod, PrivilegedContainers::Allowed, &budget);
    assert_eq!(outcome.unwrap_err(), OverBudget::Steps);
}

/// A pod and a job as somebody writes them, and a claim.
fn small(kind: &str) -> Value {
    let pod =
        json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "a"}, {"name": "d", "image": "a"}]});
    let metadata = json!({"name": "a", "namespace": "default"});
    match kind {
        "Pod" => json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": pod}),
        "Job" => {
            json!({"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": {"template": {"spec": pod}}})
        }
        "PersistentVolumeClaim" => json!({
            "apiVersion": "v1", "kind": kind, "metadata": metadata,
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }),
        "Node" => json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}}),
        "StatefulSet" => json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "a"}]}},
            },
        }),
        _ => panic!("{kind}"),
    }
}

fn patched(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    merge_patch(&mut object, patch);
    object
}

const POD_IS_FIXED: &str = "spec: Forbidden: pod updates may not change fields other than";
const TEMPLATE_IS_FIXED: &str = "spec.template: Invalid value:";
const CLAIM_IS_FIXED: &str = "spec: Forbidden: spec is immutable after creation";

/// Each row: a kind, merge patches for the object before and for the update, and how the errors begin.
#[test]
fn updates_change_only_what_a_cluster_lets_them() {
    #[track_caller]
    fn check(kind: &str, old: Value, new: Value, expect: &[&str]) {
        let resource = served().iter().find(|resource| *resource.kind == *kind).unwrap();
        let old = patched(&small(kind), &old);
        // A client changes what it has read.
        let stored = prepared(resource, &old, None).unwrap();
        let errors = shown(&check_object(&patched(&stored, &new), Some(&old)).unwrap());
        let fits = errors.len() == expect.len() && errors.iter().zip(expect).all(|(is, wanted)| is.starts_with(wanted));
        assert!(fits, "{kind} {new}: {errors:?}");
    }
    let none = || json!({});
    // A pointer to zero is not nothing.
    let container =
        |context: Value| json!([{"name": "c", "image": "a", "securityContext": context}, {"name": "d", "image": "a"}]);
    for spec in [
        json!({"automountServiceAccountToken": false}),
        json!({"hostUsers": false}),
        json!({"shareProcessNamespace": false}),
        json!({"securityContext": {"runAsGroup": 0}}),
        json!({"securityContext": {"fsGroup": 0}}),
        json!({"containers": container(json!({"runAsUser": 0}))}),
        json!({"containers": container(json!({"allowPrivilegeEscalation": false}))}),
    ] {
        check("Pod", none(), json!({"spec": spec}), &[POD_IS_FIXED]);
        check("Pod", json!({"spec": spec}), json!({"spec": spec}), &[]);
        check("Job", none(), json!({"spec": {"template": {"spec": spec}}}), &[TEMPLATE_IS_FIXED]);
    }
    // What is no pointer is.
    for spec in [
        json!({"hostNetwork": false}),
        json!({"nodeName": ""}),
        json!({"tolerations": []}),
        json!({"nodeSelector": {}}),
    ] {
        check("Pod", none(), json!({"spec": spec}), &[]);
        check("Job", none(), json!({"spec": {"template": {"spec": spec}}}), &[]);
    }
    let class = |name: Value| json!({"spec": {"storageClassName": name}});
    check("PersistentVolumeClaim", class("".into()), class(Value::Null), &[CLAIM_IS_FIXED]);
    check("PersistentVolumeClaim", class("".into()), class("x".into()), &[CLAIM_IS_FIXED]);
    check("PersistentVolumeClaim", none(), class("x".into()), &[]);
    let source = json!({"kind": "PersistentVolumeClaim", "name": "b"});
    check(
        "PersistentVolumeClaim",
        json!({"spec": {"dataSource": source}}),
        json!({"spec": {"dataSourceRef": source}}),
        &[],
    );
    check(
        "PersistentVolumeClaim",
        json!({"spec": {"dataSource": source}}),
        json!({"spec": {"dataSource": null, "dataSourceRef": null}}),
        &[CLAIM_IS_FIXED],
    );

    // Schedulers outside of the cluster place pods and jobs that wait.
    let term = |key: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]});
    let node = |key: &str| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term(key)}});
    let others = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a", "labelSelector": {}}]}});
    let both = patched(&others, &node("a"));
    let gated =
        |affinity: Value| json!({"spec": {"schedulingGates": [{"name": "example.com/a"}], "affinity": affinity}});
    let affinity = |affinity: Value| json!({"spec": {"affinity": affinity}});
    let mutated = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    check("Pod", gated(Value::Null), affinity(node("a")), &[]);
    check("Pod", gated(json!({})), affinity(node("a")), &[]);
    check("Pod", gated(others.clone()), affinity(both.clone()), &[]);
    check("Pod", gated(Value::Null), affinity(both.clone()), &[POD_IS_FIXED]);
    check("Pod", gated(Value::Null), affinity(json!({})), &[POD_IS_FIXED]);
    check("Pod", gated(node("a")), affinity(node("b")), &[mutated]);
    check("Pod", gated(node("a")), affinity(Value::Null), &[mutated]);
    check("Pod", none(), affinity(node("a")), &[POD_IS_FIXED]);
    let suspended = |affinity: Value| json!({"spec": {"suspend": true, "template": {"spec": {"affinity": affinity}}}});
    let spec_is_fixed = "spec.template.spec: Invalid value:";
    check("Job", suspended(node("a")), suspended(Value::Null), &[]);
    check("Job", suspended(Value::Null), suspended(node("a")), &[]);
    check("Job", suspended(node("a")), suspended(node("b")), &[]);
    check("Job", suspended(both.clone()), suspended(others.clone()), &[]);
    check("Job", suspended(both), suspended(Value::Null), &[spec_is_fixed]);
    check("Job", suspended(Value::Null), suspended(others), &[spec_is_fixed]);
    check(
        "Job",
        suspended(Value::Null),
        json!({"spec": {"template": {"spec": {"hostUsers": false}}}}),
        &[spec_is_fixed],
    );

    // A list and the field of its first item are one.
    let range = |range: &str| json!({"spec": {"podCIDR": range}});
    check("Node", none(), range("10.0.0.0/24"), &[]);
    check("Node", range("10.0.0.0/24"), range("10.0.1.0/24"), &["spec.podCIDRs: Forbidden"]);
    check("StatefulSet", none(), json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}}), &[]);
}

/// Each row: a kind, merge patches for the object before and for its status, and the errors.
#[test]
fn a_status_is_checked() {
    #[track_caller]
    fn check_status(kind: &str, old: Value, status: Value, expect: &[&str]) {
        let resource = served().iter().find(|resource| *resource.kind == *kind).unwrap();
        let mut before = patched(&prepared(resource, &small(kind), None).unwrap(), &old);
        defaults::fill(resource, &mut before, Budget::unlimited()).unwrap();
        let mut after = patched(&before, &json!({"status": status}));
        defaults::fill(resource, &mut after, Budget::unlimited()).unwrap();
        let privileged = PrivilegedContainers::Allowed;
        let errors = check(resource, Subresource::Status, Some(&before), &after, privileged, Budget::unlimited());
        assert_eq!(shown(&errors.unwrap().unwrap()), expect, "{kind} {status}");
    }
    let none = || json!({});
    let conditions =
        |kinds: &[&str]| -> Value { kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect() };
    let (start, end) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
    let complete = json!({"startTime": start, "completionTime": end, "conditions": conditions(&["SuccessCriteriaMet", "Complete"])});
    let was = |status: &Value| json!({"status": status});
    check_status("Job", none(), complete.clone(), &[]);
    check_status("Job", was(&complete), none(), &[]);
    check_status(
        "Job",
        none(),
        json!({"conditions": conditions(&["Complete"]), "succeeded": 1}),
        &[
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            "status.startTime: Required value: startTime is required for finished job",
        ],
    );
    check_status(
        "Job",
        was(&complete),
        json!({"conditions": conditions(&["FailureTarget", "Failed"])}),
        &[
            r#"status.completionTime: Invalid value: "2026-01-01T00:01:00Z": cannot set completionTime when there is no Complete=True condition"#,
            "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
            "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
        ],
    );
    check_status(
        "Job",
        was(&complete),
        json!({"startTime": null, "completionTime": null}),
        &[
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.startTime: Required value: startTime is required for finished job",
            "status.startTime: Invalid value: null: field is immutable for unsuspended job once set",
        ],
    );
    check_status(
        "Job",
        was(&json!({"failed": 2, "succeeded": 2})),
        json!({"active": -1, "failed": 1, "succeeded": 1}),
        &[
            "status.active: Invalid value: -1: must be greater than or equal to 0",
            "status.failed: Invalid value: 1: cannot decrease the failed counter",
            "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter",
        ],
    );
    check_status(
        "Job",
        none(),
        json!({"ready": 2, "active": 1, "completedIndexes": "0", "failedIndexes": "0", "uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}}),
        &[
            r#"status.uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty"#,
            r#"status.uncountedTerminatedPods.failed[0]: Duplicate value: "a""#,
            r#"status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode"#,
            r#"status.failedIndexes: Invalid value: "0": cannot set non-null failedIndexes when backoffLimitPerIndex is null"#,
            r#"status.failedIndexes: Invalid value: "0": failedIndexes and completedIndexes overlap at index: 0"#,
            "status.ready: Invalid value: 2: cannot set more ready pods than active",
        ],
    );
    check_status(
        "Pod",
        json!({"status": {"qosClass": "BestEffort"}}),
        json!({
            "podIPs": [{"ip": "bogus"}], "hostIP": "x", "hostIPs": [{"ip": "1.2.3.4"}], "nominatedNodeName": "A_B",
            "observedGeneration": -3, "qosClass": "Guaranteed", "conditions": [{"type": "not right", "status": "True"}],
        }),
        &[
            "status.conditions[0].Type: Invalid value: \"not right\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            r#"status.nominatedNodeName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            "status.observedGeneration: Invalid value: -3: must be a non-negative integer",
            r#"status.qosClass: Invalid value: "Guaranteed": field is immutable"#,
            r#"status.podIPs[0]: Invalid value: "bogus": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
            r#"status.hostIPs[0].ip: Invalid value: "1.2.3.4": must be equal to `hostIP`"#,
        ],
    );
    check_status(
        "Pod",
        json!({"spec": {"nodeName": "n"}}),
        json!({"nominatedNodeName": "m"}),
        &["status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"],
    );
    check_status(
        "Pod",
        none(),
        json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}]}),
        &[
            r#"status.podIPs: Invalid value: [{"ip":"1.2.3.4"},{"ip":"1.2.3.5"}]: may specify no more than one IP for each IP family"#,
        ],
    );
    check_status("Pod", none(), json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "fd00::1"}]}), &[]);
    let state =
        |state: &str| json!({"status": {"containerStatuses": [{"name": "c", "state": {state: {"exitCode": 1}}}]}});
    let comes_back = ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"];
    let runs = json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]});
    check_status("Pod", state("terminated"), runs.clone(), &comes_back);
    check_status("Pod", state("waiting"), runs.clone(), &[]);
    check_status("Pod", patched(&state("terminated"), &json!({"spec": {"restartPolicy": "OnFailure"}})), runs, &[]);
    check_status(
        "PersistentVolumeClaim",
        none(),
        json!({"capacity": {"storage": "-1Gi"}}),
        &["status.capacity[storage]: Invalid value: -1073741824: must be a valid resource quantity"],
    );
    check_status(
        "PersistentVolumeClaim",
        none(),
        json!({"allocatedResources": {"cpu": "1"}, "allocatedResourceStatuses": {"storage": "Odd"}}),
        &[
            r#"status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending""#,
            r#"status.allocatedResources: Unsupported value: "cpu": supported values: "storage""#,
        ],
    );
}

#[test]
fn privileged_containers_are_refused_where_they_are_not_allowed() {
    for (kind, path) in [("Pod", "spec"), ("Job", "spec.template.spec")] {
        let resource = served().iter().find(|resource| *resource.kind == *kind).unwrap();
        let context = json!([{"name": "c", "image": "a", "securityContext": {"privileged": true}}]);
        let spec = if kind == "Pod" {
            json!({"containers": context})
        } else {
            json!({"template": {"spec": {"containers": context}}})
        };
        let object = prepared(resource, &patched(&small(kind), &json!({"spec": spec})), None).unwrap();
        let errors = |privileged| {
            shown(&check(resource, Subresource::Main, None, &object, privileged, Budget::unlimited()).unwrap().unwrap())
        };
        assert_eq!(errors(PrivilegedContainers::Allowed), Vec::<String>::new());
        let expect =
            format!("{path}.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy");
        assert_eq!(errors(PrivilegedContainers::Refused), [expect]);
    }
}
