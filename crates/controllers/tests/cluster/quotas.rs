//! Resource quotas on a server with all admission plugins: measured at first, charged by the server, and given back.

use konverge_apiserver::{AdmissionPlugins, ApiServer, Collector};
use konverge_controllers::Options;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::*;

const QUOTAS: &str = "v1 ResourceQuota resourcequotas";

/// A cluster whose server has the plugins of kube-apiserver.
async fn stage() -> Stage {
    let options = konverge_apiserver::Options {
        collector: Collector::Elsewhere,
        admission: AdmissionPlugins::kubernetes(),
        ..Default::default()
    };
    Stage::on(ApiServer::open(options).await.unwrap(), Options::default())
}

async fn until_used(stage: &Stage, name: &str, used: Value) -> Value {
    stage.until(QUOTAS, name, |quota| quota["status"]["used"] == used).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_made_up_to_the_quota_and_give_back_what_they_use() {
    let stage = stage().await;
    let hard = json!({"pods": "3", "requests.cpu": "2"});
    stage.create(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let quota = until_used(&stage, "q", json!({"pods": "0", "requests.cpu": "0"})).await;
    assert_eq!(quota["status"]["hard"], hard);

    let resources = json!({"requests": {"cpu": "500m"}});
    let template = json!({"spec": {"containers": [{"name": "main", "image": "web:1", "resources": resources}]}});
    stage.create(DEPLOYMENTS, deployment("web", 5, "web:1", json!({"spec": {"template": template}}))).await;
    until_used(&stage, "q", json!({"pods": "3", "requests.cpu": "1500m"})).await;
    let failing =
        stage.until(DEPLOYMENTS, "web", |web| condition(web, "ReplicaFailure") == is("True", "FailedCreate")).await;
    let conditions = failing["status"]["conditions"].as_array().unwrap();
    let failure = conditions.iter().find(|condition| condition["type"] == "ReplicaFailure").unwrap();
    let message = failure["message"].as_str().unwrap();
    assert!(message.contains("exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"), "{message}");
    assert_eq!(stage.list(PODS).await.len(), 3);

    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"replicas": 1}})).await;
    until_used(&stage, "q", json!({"pods": "1", "requests.cpu": "500m"})).await;
    // A larger quota is measured at once, and used.
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"replicas": 4}})).await;
    stage.patch(QUOTAS, "q", json!({"spec": {"hard": {"pods": "4"}}})).await;
    until_used(&stage, "q", json!({"pods": "4", "requests.cpu": "2"})).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 4)).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_other_kinds_are_counted() {
    let stage = stage().await;
    for name in ["a", "b"] {
        stage.create(CONFIG_MAPS, json!({"metadata": {"name": name}})).await;
    }
    let hard = json!({"configmaps": "9", "count/deployments.apps": "1", "count/none.example.com": "1"});
    stage.create(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    until_used(&stage, "q", json!({"configmaps": "2", "count/deployments.apps": "0"})).await;
    stage.create(CONFIG_MAPS, json!({"metadata": {"name": "c"}})).await;
    until_used(&stage, "q", json!({"configmaps": "3", "count/deployments.apps": "0"})).await;
    stage.some(CONFIG_MAPS).delete("a", &DeleteParams::default()).await.unwrap();
    until_used(&stage, "q", json!({"configmaps": "2", "count/deployments.apps": "0"})).await;
    // A finished pod is not there any more, as far as compute is concerned.
    let hard = json!({"pods": "1", "count/pods": "5"});
    stage.create(QUOTAS, json!({"metadata": {"name": "r"}, "spec": {"hard": hard}})).await;
    until_used(&stage, "r", json!({"pods": "0", "count/pods": "0"})).await;
    let job = json!({"metadata": {"name": "once"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "job:1"}],
    }}}});
    stage.create(JOBS, job).await;
    stage.until(JOBS, "once", |once| once["status"]["succeeded"] == 1).await;
    until_used(&stage, "r", json!({"pods": "0", "count/pods": "1"})).await;
    stage.stop().await;
}
