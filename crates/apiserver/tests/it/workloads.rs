//! Workloads: a workload must select the pods that it makes. The texts are those of kube-apiserver 1.36.

use serde_json::{Value, json};

use konverge_store::{Commit, Write};

use crate::cluster::{APPLY, Cluster, MERGE};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";
const CORE: &str = "/api/v1/namespaces/default";

/// The kinds, where they are, and what they are called when they select everything.
const KINDS: [(&str, &str, &str, &str); 4] = [
    ("Deployment", "apps/v1", "deployments", "deployment"),
    ("ReplicaSet", "apps/v1", "replicasets", "deployment"),
    ("StatefulSet", "apps/v1", "statefulsets", "statefulset"),
    ("DaemonSet", "apps/v1", "daemonsets", "daemonset"),
];

const NOT_SELECTED: &str = "`selector` does not match template `labels`";

fn template(labels: Value, restart: &str) -> Value {
    json!({
        "metadata": {"labels": labels},
        "spec": {"restartPolicy": restart, "containers": [{"name": "c", "image": "i"}]},
    })
}

fn workload(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec})
}

/// The errors of a refusal, field by field.
#[track_caller]
fn causes(answer: crate::cluster::Answer) -> Vec<String> {
    answer.fails(422, "Invalid");
    let status = answer.json();
    let causes = status["details"]["causes"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    causes.iter().map(|cause| format!("{}: {}", text(&cause["field"]), text(&cause["message"]))).collect()
}

#[tokio::test]
async fn a_workload_selects_the_pods_of_its_template() {
    let cluster = Cluster::new().await;
    for (kind, api_version, plural, named) in KINDS {
        let path = format!("{APPS}/{plural}");
        let labels_at = "spec.template.metadata.labels: Invalid value";
        let malformed = match kind {
            "StatefulSet" => Some(""),
            "DaemonSet" => None,
            _ => Some(": invalid label selector"),
        };
        let operator = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
        let cases: Vec<(Value, Value, Vec<String>)> = vec![
            (
                json!({"matchLabels": {"app": "a"}}),
                json!({"app": "b"}),
                vec![format!("{labels_at}: {{\"app\":\"b\"}}: {NOT_SELECTED}")],
            ),
            (json!({"matchLabels": {"app": "a"}}), Value::Null, vec![format!("{labels_at}: null: {NOT_SELECTED}")]),
            (
                json!({}),
                json!({"app": "b"}),
                vec![format!("spec.selector: Invalid value: {{}}: empty selector is invalid for {named}")],
            ),
            (
                Value::Null,
                json!({"app": "b"}),
                // A cluster does not say that a DaemonSet needs a selector.
                (kind != "DaemonSet")
                    .then(|| "spec.selector: Required value".to_owned())
                    .into_iter()
                    .chain([format!("{labels_at}: {{\"app\":\"b\"}}: {NOT_SELECTED}")])
                    .collect(),
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}),
                json!({"app": "b"}),
                vec![format!("{labels_at}: {{\"app\":\"b\"}}: {NOT_SELECTED}")],
            ),
            (
                operator.clone(),
                json!({"app": "b"}),
                std::iter::once(
                    "spec.selector.matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator"
                        .to_owned(),
                )
                .chain(malformed.map(|why| format!("spec.selector: Invalid value: {operator}{why}")))
                .collect(),
            ),
        ];
        for (selector, labels, expect) in cases {
            let spec = json!({"selector": selector, "template": template(labels, "Always")});
            let refused = cluster.post(&path, &workload(api_version, kind, spec.clone())).await;
            assert_eq!(causes(refused), expect, "{kind} {spec}");
            let applied = workload(api_version, kind, spec.clone());
            let refused = cluster.patch(&format!("{path}/w?fieldManager=me"), APPLY, &applied).await;
            assert_eq!(causes(refused), expect, "{kind} {spec}, applied");
        }
        let never =
            json!({"selector": {"matchLabels": {"app": "a"}}, "template": template(json!({"app": "a"}), "Never")});
        assert_eq!(
            causes(cluster.post(&path, &workload(api_version, kind, never)).await),
            ["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""]
        );
        let fits =
            json!({"selector": {"matchLabels": {"app": "a"}}, "template": template(json!({"app": "a"}), "Always")});
        cluster.post(&path, &workload(api_version, kind, fits)).await.expect(201);
    }
}

#[tokio::test]
async fn an_update_cannot_part_a_workload_from_its_pods() {
    let cluster = Cluster::new().await;
    for (kind, api_version, plural, _) in KINDS {
        let spec =
            json!({"selector": {"matchLabels": {"app": "a"}}, "template": template(json!({"app": "a"}), "Always")});
        cluster.post(&format!("{APPS}/{plural}"), &workload(api_version, kind, spec)).await.expect(201);
        let path = format!("{APPS}/{plural}/w");
        let labels = |labels: Value| json!({"spec": {"template": {"metadata": {"labels": labels}}}});
        assert_eq!(
            causes(cluster.patch(&path, MERGE, &labels(json!({"app": "b"}))).await),
            [format!("spec.template.metadata.labels: Invalid value: {{\"app\":\"b\"}}: {NOT_SELECTED}")],
            "{kind}"
        );
        cluster.patch(&path, MERGE, &labels(json!({"more": "b"}))).await.expect(200);
        let moved = json!({"spec": {"selector": {"matchLabels": {"more": "b"}}}});
        let refused = causes(cluster.patch(&path, MERGE, &moved).await);
        let expect = match kind {
            "StatefulSet" => {
                "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' \
                 are forbidden"
            }
            _ => "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"a\",\"more\":\"b\"}}: field is immutable",
        };
        assert_eq!(refused, [expect], "{kind}");
    }
}

/// An object that an older release stored, or that got into the store in another way.
#[tokio::test]
async fn what_was_kept_before_can_be_changed_elsewhere_and_deleted() {
    let cluster = Cluster::new().await;
    for (kind, api_version, plural, _) in KINDS {
        let spec =
            json!({"selector": {"matchLabels": {"app": "a"}}, "template": template(json!({"app": "a"}), "Always")});
        cluster.post(&format!("{APPS}/{plural}"), &workload(api_version, kind, spec)).await.expect(201);
        let key = format!("/registry/apps/{plural}/default/w");
        let store = cluster.server.store();
        let entry = store.get(&key, None).unwrap().unwrap();
        let kept = String::from_utf8(entry.value.to_vec()).unwrap();
        let parted = kept.replace("\"matchLabels\":{\"app\":\"a\"}", "\"matchLabels\":{\"app\":\"z\"}");
        assert_ne!(kept, parted);
        let writes = vec![Write::Put(entry.key, parted.into())];
        store.commit(Commit { conditions: Vec::new(), writes }).await.unwrap();

        let path = format!("{APPS}/{plural}/w");
        let noted = json!({"metadata": {"labels": {"seen": "yes"}, "finalizers": ["example.com/hold"]}});
        cluster.patch(&path, MERGE, &noted).await.expect(200);
        let status = json!({"status": {"observedGeneration": 1}});
        cluster.patch(&format!("{path}/status"), MERGE, &status).await.expect(200);
        if kind != "DaemonSet" {
            cluster.patch(&format!("{path}/scale"), MERGE, &json!({"spec": {"replicas": 0}})).await.expect(200);
        }
        cluster.delete(&path).await.expect(200);
        cluster.patch(&path, MERGE, &json!({"metadata": {"finalizers": null}})).await.expect(200);
        cluster.get(&path).await.expect(404);
    }
}

#[tokio::test]
async fn a_replication_controller_selects_by_a_map() {
    let cluster = Cluster::new().await;
    let path = format!("{CORE}/replicationcontrollers");
    let check = async |spec: Value, expect: &[&str]| {
        let refused = cluster.post(&path, &workload("v1", "ReplicationController", spec)).await;
        assert_eq!(causes(refused), expect);
    };
    let parted =
        "spec.template.metadata.labels: Invalid value: {\"app\":\"b\"}: `selector` does not match template `labels`";
    check(json!({"selector": {"app": "a"}, "template": template(json!({"app": "b"}), "Always")}), &[parted]).await;
    check(json!({"selector": {}, "template": template(json!({}), "Always")}), &["spec.selector: Required value"]).await;
    check(json!({"selector": {"app": "a"}}), &["spec.template: Required value"]).await;
    let given = workload("v1", "ReplicationController", json!({"template": template(json!({"app": "b"}), "Always")}));
    assert_eq!(cluster.post(&path, &given).await.expect(201)["spec"]["selector"], json!({"app": "b"}));
}

#[tokio::test]
async fn a_job_selects_by_what_it_was_given_or_by_hand() {
    let cluster = Cluster::new().await;
    let path = format!("{BATCH}/jobs");
    let by_hand = |selector: Value, labels: Value| json!({"manualSelector": true, "selector": selector, "template": template(labels, "Never")});
    let parted = format!("spec.template.metadata.labels: Invalid value: {{\"app\":\"b\"}}: {NOT_SELECTED}");
    let no_policy = "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"";
    for (spec, expect) in [
        (by_hand(json!({"matchLabels": {"app": "a"}}), json!({"app": "b"})), vec![parted.as_str()]),
        (by_hand(Value::Null, json!({"app": "b"})), vec!["spec.selector: Required value", &parted]),
        (json!({"template": template(Value::Null, "Always")}), vec![no_policy]),
    ] {
        assert_eq!(causes(cluster.post(&path, &workload("batch/v1", "Job", spec.clone())).await), expect, "{spec}");
    }
    let labelled = json!({"template": template(json!({"job-name": "other"}), "Never")});
    let refused = causes(cluster.post(&path, &workload("batch/v1", "Job", labelled)).await);
    assert!(refused[0].starts_with("spec.template.metadata.labels[job-name]: Invalid value: {"), "{refused:?}");
    assert!(refused[0].ends_with("}: must be 'w'"), "{refused:?}");
    let own = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template(json!({"app": "a"}), "Never")});
    let refused = causes(cluster.post(&path, &workload("batch/v1", "Job", own)).await);
    assert!(refused[0].ends_with("`selector` not auto-generated"), "{refused:?}");
    let fits = by_hand(json!({"matchLabels": {"app": "a"}}), json!({"app": "a"}));
    cluster.post(&path, &workload("batch/v1", "Job", fits)).await.expect(201);

    let path = format!("{BATCH}/cronjobs");
    let cron =
        |job: Value| workload("batch/v1", "CronJob", json!({"schedule": "* * * * *", "jobTemplate": {"spec": job}}));
    let refused = cluster.post(&path, &cron(by_hand(json!({"matchLabels": {"app": "a"}}), json!({"app": "a"})))).await;
    assert_eq!(
        causes(refused),
        [
            "spec.jobTemplate.spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"a\"}}: `selector` will be auto-generated",
            "spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\"",
        ]
    );
    cluster.post(&path, &cron(json!({"template": template(Value::Null, "OnFailure")}))).await.expect(201);
}
