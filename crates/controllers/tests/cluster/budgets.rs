//! PodDisruptionBudgets: what they allow, as pods come and go.

use serde_json::{Value, json};

use crate::stage::*;

fn budget(name: &str, spec: Value) -> Value {
    let mut object = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    merge_patch(&mut object["spec"], &spec);
    object
}

/// Healthy, desired, expected, allowed.
fn figures(budget: &Value) -> [i64; 4] {
    let status = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
    [status("currentHealthy"), status("desiredHealthy"), status("expectedPods"), status("disruptionsAllowed")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_follow_their_pods() {
    let stage = Stage::new().await;
    stage.create(BUDGETS, budget("least", json!({"minAvailable": 2}))).await;
    stage.create(BUDGETS, budget("share", json!({"minAvailable": "50%"}))).await;
    stage.create(BUDGETS, budget("most", json!({"maxUnavailable": 1}))).await;
    stage.create(DEPLOYMENTS, deployment("web", 4, "web:1", json!({}))).await;
    let least = stage.until(BUDGETS, "least", |one| figures(one) == [4, 2, 4, 2]).await;
    assert_eq!(condition(&least, "DisruptionAllowed"), is("True", "SufficientPods"));
    assert_eq!(least["status"]["observedGeneration"], least["metadata"]["generation"]);
    stage.until(BUDGETS, "share", |one| figures(one) == [4, 2, 4, 2]).await;
    stage.until(BUDGETS, "most", |one| figures(one) == [4, 3, 4, 1]).await;

    // The scale of the Deployment counts, not how many pods there are; and without pods nothing is allowed.
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"replicas": 1}})).await;
    let least = stage.until(BUDGETS, "least", |one| figures(one) == [1, 2, 1, 0]).await;
    assert_eq!(condition(&least, "DisruptionAllowed"), is("False", "InsufficientPods"));
    stage.until(BUDGETS, "most", |one| figures(one) == [1, 0, 1, 1]).await;
    stage.patch(BUDGETS, "most", json!({"spec": {"maxUnavailable": 0}})).await;
    stage.until(BUDGETS, "most", |one| figures(one) == [1, 1, 1, 0]).await;
    stage.stop().await;
}
