//! Pod security by the labels of namespaces.

use serde_json::{Value, json};

use super::pod_with;
use crate::cluster::{Cluster, MERGE, NAMESPACES, pod};

const PODS: &str = "/api/v1/namespaces/team/pods";

async fn team(cluster: &Cluster, labels: &[(&str, &str)]) {
    cluster.post(NAMESPACES, &namespace("team", labels)).await.expect(201);
}

fn namespace(name: &str, labels: &[(&str, &str)]) -> Value {
    let labels: serde_json::Map<String, Value> = labels
        .iter()
        .map(|(mode, value)| (format!("pod-security.kubernetes.io/{mode}"), Value::from(*value)))
        .collect();
    json!({"metadata": {"name": name, "labels": labels}})
}

fn privileged(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["name"] = "c".into();
    pod["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    pod
}

#[tokio::test]
async fn pods_that_violate_the_level_are_refused() {
    let cluster = Cluster::new().await;
    team(&cluster, &[("enforce", "baseline"), ("warn", "restricted"), ("warn-version", "v1.7")]).await;
    assert_eq!(
        cluster.post(PODS, &privileged("p")).await.fails(403, "Forbidden"),
        "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"c\" must not set \
         securityContext.privileged=true)"
    );
    let made = cluster.post(PODS, &pod_with("q", json!({"containers": [{"name": "c", "image": "i"}]}))).await;
    made.expect(201);
    assert_eq!(
        made.warnings(),
        [
            "\"would violate PodSecurity \\\"restricted:v1.7\\\": runAsNonRoot != true (pod or container \\\"c\\\" must set \
          securityContext.runAsNonRoot=true)\""
        ]
    );
    // An update that leaves the images as they are is nothing new.
    cluster.patch(&format!("{PODS}/q"), MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
}

#[tokio::test]
async fn containers_that_are_added_to_a_running_pod_are_looked_at() {
    let cluster = Cluster::new().await;
    team(&cluster, &[("enforce", "baseline")]).await;
    let running = pod_with("p", json!({"containers": [{"name": "c", "image": "i"}]}));
    cluster.post(PODS, &running).await.expect(201);
    let path = format!("{PODS}/p/ephemeralcontainers");
    let added = |privileged: bool| {
        let context = json!({"privileged": privileged});
        let container = json!({"name": "debugger", "image": "i", "securityContext": context});
        json!({"spec": {"ephemeralContainers": [container]}})
    };
    assert_eq!(
        cluster.patch(&path, MERGE, &added(true)).await.fails(403, "Forbidden"),
        "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"debugger\" must not \
         set securityContext.privileged=true)"
    );
    cluster.patch(&path, MERGE, &added(false)).await.expect(200);
    // What others report of a pod is no change of it.
    cluster.patch(&format!("{PODS}/p/status"), MERGE, &json!({"status": {"phase": "Running"}})).await.expect(200);
}

#[tokio::test]
async fn the_writer_of_a_workload_is_warned() {
    let cluster = Cluster::new().await;
    team(&cluster, &[("enforce", "baseline")]).await;
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": privileged("")["spec"]});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "a"}}, "template": template,
    }});
    let made = cluster.post("/apis/apps/v1/namespaces/team/deployments", &deployment).await;
    made.expect(201);
    assert_eq!(
        made.warnings(),
        ["\"would violate PodSecurity \\\"baseline:latest\\\": privileged (container \\\"c\\\" must not set \
          securityContext.privileged=true)\""]
    );
}

#[tokio::test]
async fn labels_are_checked_and_pods_are_looked_at() {
    let cluster = Cluster::new().await;
    assert_eq!(
        cluster.post(NAMESPACES, &namespace("bad", &[("enforce", "strict")])).await.fails(422, "Invalid"),
        "Namespace \"bad\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must \
         be one of privileged, baseline, restricted"
    );
    team(&cluster, &[]).await;
    for name in ["b", "a"] {
        cluster.post(PODS, &privileged(name)).await.expect(201);
    }
    let labels = namespace("team", &[("enforce", "baseline")]);
    let changed = cluster.patch(&format!("{NAMESPACES}/team"), MERGE, &labels).await;
    changed.expect(200);
    assert_eq!(
        changed.warnings(),
        [
            "\"existing pods in namespace \\\"team\\\" violate the new PodSecurity enforce level \\\"baseline:latest\\\"\"",
            "\"a (and 1 other pod): privileged\"",
        ]
    );
    let relaxed = namespace("team", &[("enforce", "privileged")]);
    assert!(cluster.patch(&format!("{NAMESPACES}/team"), MERGE, &relaxed).await.warnings().is_empty());
}
