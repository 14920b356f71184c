//! Resource quotas: what they refuse, and that their use is exact however many write at once.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::pod_with;
use crate::cluster::{CONFIG_MAPS, Cluster, MERGE, PODS, SECRETS, config_map, names, pod};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// Creates a quota, and measures it as the controller does: nothing is there yet.
async fn limit(cluster: &Cluster, name: &str, spec: Value) {
    let hard = spec["hard"].clone();
    cluster.post(QUOTAS, &json!({"metadata": {"name": name}, "spec": spec})).await.expect(201);
    let used: serde_json::Map<String, Value> =
        hard.as_object().unwrap().keys().map(|name| (name.clone(), json!("0"))).collect();
    let status = json!({"status": {"hard": hard, "used": used}});
    cluster.patch(&format!("{QUOTAS}/{name}/status"), MERGE, &status).await.expect(200);
}

async fn used(cluster: &Cluster, name: &str) -> Value {
    cluster.get(&format!("{QUOTAS}/{name}")).await.expect(200)["status"]["used"].clone()
}

fn sized(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

#[tokio::test]
async fn a_quota_limits_what_is_created() {
    let cluster = Cluster::new().await;
    limit(&cluster, "q", json!({"hard": {"pods": "2", "requests.cpu": "1"}})).await;
    cluster.post(PODS, &sized("a", "600m")).await.expect(201);
    assert_eq!(used(&cluster, "q").await, json!({"pods": "1", "requests.cpu": "600m"}));
    assert_eq!(
        cluster.post(PODS, &sized("b", "500m")).await.fails(403, "Forbidden"),
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: \
         requests.cpu=1"
    );
    let unsaid = cluster.post(PODS, &pod("b")).await.fails(403, "Forbidden");
    let container = pod("b")["spec"]["containers"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(unsaid, format!("pods \"b\" is forbidden: failed quota: q: must specify requests.cpu for: {container}"));
    // Neither a dry run, nor a refused write, nor a second create of the same name uses anything.
    cluster.post(&format!("{PODS}?dryRun=All"), &sized("b", "100m")).await.expect(201);
    cluster.post(PODS, &sized("a", "100m")).await.fails(409, "AlreadyExists");
    let mut invalid = sized("b", "100m");
    invalid["metadata"]["labels"] = json!({"a": "not a label"});
    cluster.post(PODS, &invalid).await.fails(422, "Invalid");
    assert_eq!(used(&cluster, "q").await, json!({"pods": "1", "requests.cpu": "600m"}));
    let mut generated = sized("", "400m");
    generated["metadata"] = json!({"generateName": "b-"});
    cluster.post(PODS, &generated).await.expect(201);
    assert_eq!(used(&cluster, "q").await, json!({"pods": "2", "requests.cpu": "1"}));
    let refused = cluster.post(PODS, &generated).await.fails(403, "Forbidden");
    let (name, why) = refused.split_once(" is forbidden: ").unwrap();
    assert!(name.starts_with("pods \"b-") && name.len() == "pods \"b-12345\"".len(), "a name was generated: {name}");
    assert_eq!(
        why,
        "exceeded quota: q, requested: pods=1,requests.cpu=400m, used: pods=2,requests.cpu=1, limited: \
         pods=2,requests.cpu=1"
    );
}

#[tokio::test]
async fn a_quota_counts_objects_of_any_kind() {
    let cluster = Cluster::with_widgets().await;
    let hard =
        json!({"configmaps": "1", "count/widgets.example.com": "1", "services.nodeports": "1", "count/secrets": "0"});
    limit(&cluster, "q", json!({"hard": hard})).await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    assert_eq!(
        cluster.post(CONFIG_MAPS, &config_map("b")).await.fails(403, "Forbidden"),
        "configmaps \"b\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1"
    );
    let widget =
        |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {}});
    cluster.post(crate::cluster::WIDGETS, &widget("a")).await.expect(201);
    assert_eq!(
        cluster.post(crate::cluster::WIDGETS, &widget("b")).await.fails(403, "Forbidden"),
        "widgets.example.com \"b\" is forbidden: exceeded quota: q, requested: count/widgets.example.com=1, used: \
         count/widgets.example.com=1, limited: count/widgets.example.com=1"
    );
    cluster.post(SECRETS, &json!({"metadata": {"name": "s"}})).await.fails(403, "Forbidden");
    // A service that becomes another type uses ports.
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}});
    cluster.post(services, &service).await.expect(201);
    let node_port = json!({"spec": {"type": "NodePort"}});
    cluster.patch(&format!("{services}/s"), MERGE, &node_port).await.expect(200);
    assert_eq!(used(&cluster, "q").await["services.nodeports"], "1");
    let more = json!({"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}});
    assert_eq!(
        cluster.patch(&format!("{services}/s"), MERGE, &more).await.fails(403, "Forbidden"),
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, \
         limited: services.nodeports=1"
    );
    cluster.patch(&format!("{services}/s"), MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    assert_eq!(used(&cluster, "q").await["services.nodeports"], "1");
    // Quotas count themselves, and one that is there is not created again.
    limit(&cluster, "r", json!({"hard": {"resourcequotas": "5"}})).await;
    let again = json!({"metadata": {"name": "r"}, "spec": {"hard": {"pods": "1"}}});
    cluster.post(QUOTAS, &again).await.fails(409, "AlreadyExists");
    assert_eq!(used(&cluster, "r").await, json!({"resourcequotas": "0"}));
}

#[tokio::test]
async fn scopes_decide_which_pods_count() {
    let cluster = Cluster::new().await;
    limit(&cluster, "ending", json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]})).await;
    limit(&cluster, "free", json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]})).await;
    cluster.post(PODS, &pod_with("a", json!({"activeDeadlineSeconds": 60}))).await.expect(201);
    assert_eq!(
        (used(&cluster, "ending").await, used(&cluster, "free").await),
        (json!({"pods": "1"}), json!({"pods": "1"}))
    );
    cluster.post(PODS, &sized("b", "1")).await.expect(201);
    assert_eq!(
        cluster.post(PODS, &pod("c")).await.fails(403, "Forbidden"),
        "pods \"c\" is forbidden: exceeded quota: free, requested: pods=1, used: pods=1, limited: pods=1"
    );
    // A pod that gets a deadline is in the scope from then on.
    let deadline = json!({"spec": {"activeDeadlineSeconds": 60}});
    assert_eq!(
        cluster.patch(&format!("{PODS}/b"), MERGE, &deadline).await.fails(403, "Forbidden"),
        "pods \"b\" is forbidden: exceeded quota: ending, requested: pods=1, used: pods=1, limited: pods=1"
    );
}

#[tokio::test]
async fn a_quota_without_a_status_says_so() {
    let cluster = Cluster::new().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}});
    cluster.post(QUOTAS, &quota).await.expect(201);
    let made = cluster.post(PODS, &pod("a")).await;
    made.expect(201);
    assert_eq!(
        made.warnings(),
        ["\"resource quota \\\"q\\\" limits nothing yet: the resource quota controller has not written its status\""]
    );
    assert!(cluster.post(CONFIG_MAPS, &config_map("a")).await.warnings().is_empty(), "it is about pods");
    let status = json!({"status": {"hard": {"pods": "0"}}});
    cluster.patch(&format!("{QUOTAS}/q/status"), MERGE, &status).await.expect(200);
    assert_eq!(
        cluster.post(PODS, &pod("b")).await.fails(403, "Forbidden"),
        "pods \"b\" is forbidden: status unknown for quota: q, resources: pods"
    );
}

/// A hundred clients create pods, and somebody writes the quota meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_as_many_as_allowed_are_created() {
    let cluster = Arc::new(Cluster::new().await);
    limit(&cluster, "q", json!({"hard": {"pods": "10", "count/pods": "50"}})).await;
    let create = |number: usize| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            if number.is_multiple_of(10) {
                let label = json!({"metadata": {"labels": {"n": number.to_string()}}});
                cluster.patch(&format!("{QUOTAS}/q"), MERGE, &label).await.expect(200);
            }
            cluster.post(PODS, &pod(&format!("p{number}"))).await.code
        })
    };
    let codes: Vec<u16> = join_all((0..100).map(create)).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 10);
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 90);
    assert_eq!(used(&cluster, "q").await, json!({"pods": "10", "count/pods": "10"}));
    assert_eq!(names(&cluster.get(PODS).await.expect(200)).len(), 10);
}
