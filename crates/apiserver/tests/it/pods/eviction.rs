//! Evictions, and the budgets they take from.

use serde_json::{Value, json};

use super::{BUDGETS, bind, binding};
use crate::cluster::{Answer, Cluster, MERGE, PODS, pod, version};

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}})
}

async fn evict(cluster: &Cluster, name: &str, body: &Value) -> Answer {
    cluster.post(&format!("{PODS}/{name}/eviction"), body).await
}

/// A pod on a node, in this phase, ready or not, that the budget selects.
async fn run(cluster: &Cluster, name: &str, phase: &str, ready: &str) -> Value {
    let mut object = pod(name);
    object["metadata"]["labels"] = json!({"app": "web"});
    cluster.post(PODS, &object).await.expect(201);
    bind(cluster, name, &binding(name, "node-1")).await.expect(201);
    let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
    cluster.patch(&format!("{PODS}/{name}/status"), MERGE, &status).await.expect(200)
}

/// A budget in this state.
async fn budget(cluster: &Cluster, name: &str, spec: &Value, status: &Value) {
    let mut wanted = json!({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1});
    wanted.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({"metadata": {"name": name}, "spec": wanted});
    cluster.post(BUDGETS, &object).await.expect(201);
    cluster.patch(&format!("{BUDGETS}/{name}/status"), MERGE, &json!({"status": status})).await.expect(200);
}

#[tokio::test]
async fn eviction_takes_from_the_budget() {
    let cluster = Cluster::new().await;
    run(&cluster, "a", "Running", "True").await;
    run(&cluster, "b", "Running", "True").await;
    let open = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1});
    budget(&cluster, "guard", &json!({}), &open).await;
    let path = format!("{BUDGETS}/guard");

    let before = (cluster.get(&path).await.expect(200), cluster.get(&format!("{PODS}/a")).await.expect(200));
    cluster.post(&format!("{PODS}/a/eviction?dryRun=All"), &eviction("a")).await.expect(201);
    let mut dry = eviction("a");
    dry["deleteOptions"] = json!({"dryRun": ["All"]});
    evict(&cluster, "a", &dry).await.expect(201);
    let after = (cluster.get(&path).await.expect(200), cluster.get(&format!("{PODS}/a")).await.expect(200));
    assert_eq!(before, after);

    let done = evict(&cluster, "a", &eviction("a")).await.expect(201);
    assert_eq!(done, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}));
    let going = cluster.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let target = going["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&target["type"], &target["reason"]), (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI")));
    let status = cluster.get(&path).await.expect(200)["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert_eq!(status["disruptedPods"], json!({"a": "2026-01-02T03:04:05Z"}));
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");

    let refused = evict(&cluster, "b", &eviction("b")).await;
    let message = refused.fails(429, "TooManyRequests");
    assert_eq!(message, "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(
        refused.json()["details"],
        json!({"causes": [{
            "reason": "DisruptionBudget",
            "message": "The disruption budget guard does not allow evicting pods currently",
        }]})
    );
    let stays = cluster.get(&format!("{PODS}/b")).await.expect(200);
    assert_eq!(stays["metadata"].get("deletionTimestamp"), None);
}

#[tokio::test]
async fn eviction_and_budgets() {
    let stale = json!({"observedGeneration": 0, "disruptionsAllowed": 1});
    let shut = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1});
    let short = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1});
    let always = json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
    let (plain, elsewhere) = (json!({}), json!({"selector": {"matchLabels": {"app": "other"}}}));
    let nothing = json!({"selector": null});
    for (what, phase, ready, spec, status, code) in [
        ("not up to date", "Running", "True", &plain, &stale, 429),
        ("used up", "Running", "True", &plain, &shut, 429),
        ("of other pods", "Running", "True", &elsewhere, &shut, 201),
        ("of no pods", "Running", "True", &nothing, &shut, 201),
        ("unhealthy, enough others", "Running", "False", &plain, &shut, 201),
        ("unhealthy, not enough others", "Running", "False", &plain, &short, 429),
        ("unhealthy, always allowed", "Running", "False", &always, &short, 201),
        ("ended", "Succeeded", "False", &plain, &short, 201),
        ("failed", "Failed", "False", &plain, &short, 201),
        ("not begun", "Pending", "False", &plain, &short, 201),
    ] {
        let cluster = Cluster::new().await;
        run(&cluster, "a", phase, ready).await;
        budget(&cluster, "guard", spec, status).await;
        let answer = evict(&cluster, "a", &eviction("a")).await;
        assert_eq!(answer.code, code, "{what}: {}", answer.json());
        let left = cluster.get(&format!("{PODS}/a")).await;
        let goes = left.code == 404 || left.json()["metadata"].get("deletionTimestamp").is_some();
        assert_eq!(goes, code == 201, "{what}");
        let retry = if what == "not up to date" { "10" } else { "" };
        assert_eq!(answer.header("retry-after"), retry, "{what}");
    }
}

#[tokio::test]
async fn eviction_is_refused() {
    let cluster = Cluster::new().await;
    let running = run(&cluster, "a", "Running", "True").await;
    let old = version(&running) - 1;
    let with = |options: Value| {
        let mut body = eviction("a");
        body["deleteOptions"] = options;
        body
    };
    for (name, body, code, reason) in [
        ("absent", eviction("absent"), 404, "NotFound"),
        ("a", eviction("b"), 400, "BadRequest"),
        ("a", json!({"kind": "Binding", "metadata": {"name": "a"}}), 400, "BadRequest"),
        ("a", json!({"apiVersion": "v1", "metadata": {"name": "a"}}), 400, "BadRequest"),
        ("a", with(json!({"preconditions": {"uid": "x"}})), 409, "Conflict"),
        ("a", with(json!({"preconditions": {"resourceVersion": old.to_string()}})), 409, "Conflict"),
        ("a", with(json!({"propagationPolicy": "Never"})), 422, "Invalid"),
    ] {
        evict(&cluster, name, &body).await.fails(code, reason);
    }
    for name in ["one", "two"] {
        budget(&cluster, name, &json!({}), &json!({"observedGeneration": 1, "disruptionsAllowed": 1})).await;
    }
    let status = evict(&cluster, "a", &eviction("a")).await.expect(500);
    assert_eq!(
        status["message"],
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.expect(200), running);

    // The version and the grace that were asked for count.
    cluster.delete(&format!("{BUDGETS}/two")).await.expect(200);
    let exact = json!({"gracePeriodSeconds": 5, "preconditions": {"resourceVersion": version(&running).to_string()}});
    evict(&cluster, "a", &with(exact)).await.expect(201);
    let going = cluster.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 5);
}
