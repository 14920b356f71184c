//! HorizontalPodAutoscalers: how they follow the values somebody sets.

use serde_json::{Value, json};

use crate::stage::*;

/// An autoscaler of the Deployment `web` that wants half a core used on average, of one asked for.
fn autoscaler(spec: Value) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
    let mut object = json!({
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    });
    merge_patch(&mut object["spec"], &spec);
    object
}

fn scaled() -> Value {
    let container = json!({"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "1"}}});
    deployment("web", 2, "web:1", json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
}

/// All pods in_parallel use so much.
async fn used(stage: &Stage, cpu: &str) {
    stage
        .patch(AUTOSCALERS, "web", json!({"metadata": {"annotations": {"simulate.konverge.dev/total-cpu": cpu}}}))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_follow_the_work() {
    let stage = Stage::new().await;
    stage.create(DEPLOYMENTS, scaled()).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 2)).await;
    let at_once = json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}});
    stage.create(AUTOSCALERS, autoscaler(at_once)).await;
    let unknown = |web: &Value| condition(web, "ScalingActive") == is("False", "FailedGetResourceMetric");
    stage.until(AUTOSCALERS, "web", unknown).await;

    used(&stage, "2").await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 4)).await;
    let uses = |web: &Value, percent: i64| {
        web["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == percent
    };
    // It was 100 %, and is what it should be when the new pods take their share. The same amount in other words makes it
    // look at once.
    used(&stage, "2000m").await;
    let web = stage.until(AUTOSCALERS, "web", |web| uses(web, 50)).await;
    assert_eq!(condition(&web, "AbleToScale"), is("True", "ReadyForNewScale"));
    assert_eq!(condition(&web, "ScalingActive"), is("True", "ValidMetricFound"));
    assert_eq!((&web["status"]["currentReplicas"], &web["status"]["desiredReplicas"]), (&json!(4), &json!(4)));
    assert!(web["status"]["lastScaleTime"].is_string());
    let told = stage.events("web", "SuccessfulRescale").await;
    let why = "New size: 4; reason: cpu resource utilization (percentage of request) above target";
    assert!(told.iter().any(|(_, note)| note == why), "{told:?}");

    // Within the tolerance nothing happens, then it shrinks, as far as it may.
    used(&stage, "2160m").await;
    let web = stage.until(AUTOSCALERS, "web", |web| uses(web, 54)).await;
    assert_eq!(web["status"]["desiredReplicas"], 4);
    used(&stage, "1m").await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 2)).await;
    stage.until(AUTOSCALERS, "web", |web| condition(web, "ScalingLimited") == is("True", "TooFewReplicas")).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_whatever_metrics_say() {
    let stage = Stage::new().await;
    stage.create(DEPLOYMENTS, scaled()).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 2)).await;
    stage.create(AUTOSCALERS, autoscaler(json!({"minReplicas": 3, "maxReplicas": 4}))).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 3)).await;
    used(&stage, "8").await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 4)).await;
    let limited = |web: &Value| condition(web, "ScalingLimited") == is("True", "TooManyReplicas");
    stage.until(AUTOSCALERS, "web", limited).await;

    // Of what is not there nobody knows the scale.
    let mut lost = autoscaler(json!({"scaleTargetRef": {"name": "nobody"}}));
    lost["metadata"]["name"] = "lost".into();
    stage.create(AUTOSCALERS, lost).await;
    stage.until(AUTOSCALERS, "lost", |lost| condition(lost, "AbleToScale") == is("False", "FailedGetScale")).await;
    stage.stop().await;
}
