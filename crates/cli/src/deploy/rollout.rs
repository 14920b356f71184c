//! How far the rollout of a Deployment or StatefulSet is. In: the object, its Pods and events. Out: done, still waiting for what, or failed and why. `judge` is
//! pure and decides as `kubectl rollout status` does.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::Instant;

use super::DeployError;
use crate::description::text;
use crate::manifests::called;
use crate::remote_cluster::{RemoteCluster, RemoteError};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(300);

/// How many of the newest warnings are shown.
const WARNINGS: usize = 5;

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rollout {
    Done,
    Waiting(String),
    Failed(String),
}

/// Whether an object is of a kind whose Pods a deploy waits for.
pub(crate) fn is_rolled_out(object: &Value) -> bool {
    ["Deployment", "StatefulSet"].iter().any(|kind| object["kind"] == *kind)
}

/// Waits until all Pods of such an object are new and available.
pub(super) async fn wait(
    cluster: &RemoteCluster,
    path: &str,
    within: Duration,
    progress: impl Fn(&str),
) -> Result<(), DeployError> {
    let deadline = Instant::now() + within;
    let mut said = String::new();
    loop {
        let deployment = cluster.get(path).await?.unwrap_or_default();
        let why = match judge(&deployment) {
            Rollout::Done => return Ok(()),
            Rollout::Waiting(why) if Instant::now() <= deadline => {
                if why != said {
                    progress(&why);
                    said = why;
                }
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Rollout::Waiting(why) => format!("after {} s {why}", within.as_secs()),
            Rollout::Failed(why) => why,
        };
        let mut message = format!("{} is not rolled out: {why}", called(&deployment));
        for trouble in troubles(cluster, &deployment).await.unwrap_or_default() {
            message += &format!("\n  {trouble}");
        }
        let namespace = text(&deployment["metadata"]["namespace"]);
        message += &format!(
            "\n`konverge logs` shows what the operator says, `kubectl -n {namespace} get pods` how its Pods are"
        );
        return Err(DeployError::Rollout(message));
    }
}

/// Why such an object is not rolled out; none if it is.
pub(crate) fn unfinished(deployment: &Value) -> Option<String> {
    match judge(deployment) {
        Rollout::Done => None,
        Rollout::Waiting(why) | Rollout::Failed(why) => Some(why),
    }
}

fn judge(deployment: &Value) -> Rollout {
    let (metadata, status) = (&deployment["metadata"], &deployment["status"]);
    if metadata.is_null() {
        return Rollout::Failed("somebody deleted it".to_owned());
    }
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    if number(&status["observedGeneration"]) < number(&metadata["generation"]) {
        return Rollout::Waiting("no controller has seen the new specification yet".to_owned());
    }
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let progressing = conditions.iter().find(|condition| condition["type"] == "Progressing");
    if let Some(condition) = progressing.filter(|condition| condition["reason"] == "ProgressDeadlineExceeded") {
        return Rollout::Failed(text(&condition["message"]));
    }
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let count = |field: &str| number(&status[field]);
    let (updated, available) = (count("updatedReplicas"), count("availableReplicas"));
    let failure =
        conditions.iter().find(|condition| condition["type"] == "ReplicaFailure" && condition["status"] == "True");
    match failure {
        _ if updated >= wanted && count("replicas") <= updated && available >= updated => Rollout::Done,
        Some(condition) => Rollout::Waiting(format!("its Pods are refused: {}", text(&condition["message"]))),
        None if updated < wanted => Rollout::Waiting(format!("{updated} of {wanted} Pods are new")),
        None if count("replicas") > updated => {
            Rollout::Waiting(format!("{} old Pods are still there", count("replicas") - updated))
        }
        None => Rollout::Waiting(format!("{available} of {wanted} new Pods are available")),
    }
}

/// What its Pods and the newest events complain about.
async fn troubles(cluster: &RemoteCluster, deployment: &Value) -> Result<Vec<String>, RemoteError> {
    let namespace = text(&deployment["metadata"]["namespace"]);
    let mut troubles = Vec::new();
    for pod in pods(cluster, deployment).await? {
        troubles.extend(complaints(&pod));
    }
    let name = text(&deployment["metadata"]["name"]);
    let events =
        cluster.list(&format!("/api/v1/namespaces/{namespace}/events"), "&fieldSelector=type%3DWarning").await?;
    let about = |event: &&Value| {
        let object = text(&event["involvedObject"]["name"]);
        object == name || object.starts_with(&format!("{name}-"))
    };
    let mut warnings: Vec<&Value> = events.iter().filter(about).collect();
    warnings.sort_by_key(|event| text(&event["lastTimestamp"]));
    for event in warnings.iter().rev().take(WARNINGS) {
        let object = &event["involvedObject"];
        troubles.push(format!(
            "event of {} {}: {}: {}",
            text(&object["kind"]),
            text(&object["name"]),
            text(&event["reason"]),
            text(&event["message"])
        ));
    }
    Ok(troubles)
}

/// The Pods that a Deployment or StatefulSet selects.
pub(crate) async fn pods(cluster: &RemoteCluster, deployment: &Value) -> Result<Vec<Value>, RemoteError> {
    let namespace = text(&deployment["metadata"]["namespace"]);
    cluster.list(&format!("/api/v1/namespaces/{namespace}/pods"), &pod_query(deployment)).await
}

/// The part of a query that selects the Pods of a Deployment or StatefulSet.
pub(crate) fn pod_query(deployment: &Value) -> String {
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
    let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={}", text(value))).collect();
    format!("&labelSelector={}", utf8_percent_encode(&labels.join(","), NON_ALPHANUMERIC))
}

/// What is wrong with a Pod.
pub(crate) fn complaints(pod: &Value) -> Vec<String> {
    let name = text(&pod["metadata"]["name"]);
    let mut found = Vec::new();
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    for condition in
        conditions.filter(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False")
    {
        found.push(format!("Pod {name} has no node: {}", text(&condition["message"])));
    }
    for container in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
        let (waiting, last) = (&container["state"]["waiting"], &container["lastState"]["terminated"]);
        let ended = if container["state"]["terminated"].is_object() { &container["state"]["terminated"] } else { last };
        if let Some(reason) = waiting["reason"].as_str().filter(|reason| *reason != "ContainerCreating") {
            found.push(format!(
                "Pod {name}, container {}: {reason} {}",
                text(&container["name"]),
                text(&waiting["message"])
            ));
        }
        if let Some(code) = ended["exitCode"].as_i64() {
            let reason = text(&ended["reason"]);
            found.push(format!("Pod {name}, container {}: it ended with {code} ({reason})", text(&container["name"])));
        } else if container["state"]["running"].is_object() && container["ready"] == false {
            found.push(format!("Pod {name}, container {}: it runs, and is not ready", text(&container["name"])));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(status: Value, expect: &str) {
        let deployment = json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status});
        let found = match judge(&deployment) {
            Rollout::Done => "done".to_owned(),
            Rollout::Waiting(why) => format!("waiting: {why}"),
            Rollout::Failed(why) => format!("failed: {why}"),
        };
        assert_eq!(found, expect, "{status}");
    }

    #[test]
    fn how_far_a_rollout_is() {
        check(json!({}), "waiting: no controller has seen the new specification yet");
        check(json!({"observedGeneration": 2}), "waiting: 0 of 2 Pods are new");
        check(
            json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2}),
            "waiting: 1 old Pods are still there",
        );
        check(
            json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}),
            "waiting: 1 of 2 new Pods are available",
        );
        check(json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}), "done");
        let conditions = json!([{"type": "ReplicaFailure", "status": "True", "message": "violates PodSecurity"}]);
        check(
            json!({"observedGeneration": 2, "conditions": conditions}),
            "waiting: its Pods are refused: violates PodSecurity",
        );
        let conditions = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too slow"}]);
        check(json!({"observedGeneration": 2, "conditions": conditions}), "failed: too slow");
    }

    #[test]
    fn what_pods_complain_about() {
        let pod = json!({"metadata": {"name": "x"}, "status": {
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "no nodes"}],
            "containerStatuses": [
                {"name": "a", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
                {"name": "b", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}}},
                {"name": "c", "state": {"running": {}}, "ready": false},
                {"name": "d", "state": {"running": {}}, "ready": true},
            ],
        }});
        let expect = [
            "Pod x has no node: no nodes",
            "Pod x, container a: ImagePullBackOff no such image",
            "Pod x, container b: CrashLoopBackOff ",
            "Pod x, container b: it ended with 2 (Error)",
            "Pod x, container c: it runs, and is not ready",
        ];
        assert_eq!(complaints(&pod), expect);
    }
}
