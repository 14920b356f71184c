//! Deployments on their way from one template to the next, as `kubectl` sees them.

use konverge_controllers::{Options, SimulationSettings};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::*;

fn revision(object: &Value) -> &str {
    object["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str().unwrap_or_default()
}

fn image(object: &Value) -> &str {
    object["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_of_a_hundred_becomes_available() {
    let stage = Stage::new().await;
    stage.create(DEPLOYMENTS, deployment("web", 100, "web:1", json!({}))).await;
    let web = stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 100)).await;
    assert_eq!(condition(&web, "Available"), is("True", "MinimumReplicasAvailable"));
    let web = stage
        .until(DEPLOYMENTS, "web", |web| condition(web, "Progressing") == is("True", "NewReplicaSetAvailable"))
        .await;
    assert_eq!(revision(&web), "1");
    assert!(web["status"].get("unavailableReplicas").is_none(), "{}", web["status"]);

    let sets = stage.list(REPLICA_SETS).await;
    assert_eq!(sets.len(), 1);
    let status = &sets[0]["status"];
    for field in ["replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas"] {
        assert_eq!(status[field], 100, "{field} of {status}");
    }
    let pods = stage.pods().await;
    assert_eq!(pods.len(), 100);
    let ips: std::collections::BTreeSet<_> =
        pods.iter().map(|pod| pod.status.as_ref().unwrap().pod_ip.clone().unwrap()).collect();
    assert_eq!(ips.len(), 100, "each pod has an address of its own");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_of_each_deployment_are_spread_over_the_nodes() {
    let simulation = SimulationSettings { nodes: 3, ..SimulationSettings::default() };
    let stage = Stage::with(Options { simulation, ..Options::default() }).await;
    stage.until_all(NODES, |nodes| (nodes.len() == 3).then_some(())).await;
    let names = ["a", "b", "c", "d"];
    for name in names {
        stage.create(DEPLOYMENTS, deployment(name, 3, "web:1", json!({}))).await;
    }
    for name in names {
        stage.until(DEPLOYMENTS, name, |found| is_rolled_out(found, 3)).await;
    }
    let pods = stage.list(PODS).await;
    for name in names {
        let of_it = pods.iter().filter(|pod| text(&pod["metadata"], "name").starts_with(&format!("{name}-")));
        let mut nodes: Vec<&str> = of_it.filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, ["konverge-node-1", "konverge-node-2", "konverge-node-3"], "{name}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_update_keeps_enough_available_and_undo_goes_back() {
    let stage = Stage::new().await;
    stage.create(DEPLOYMENTS, deployment("web", 4, "web:1", json!({}))).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 4)).await;
    let first = stage.list(REPLICA_SETS).await.remove(0);

    let template =
        |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
    stage.patch(DEPLOYMENTS, "web", template("web:2")).await;
    let web = stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 4)).await;
    assert_eq!((image(&web), revision(&web)), ("web:2", "2"));
    let sets = stage.list(REPLICA_SETS).await;
    let size = |of: &str| sets.iter().find(|set| image(set) == of).map(|set| set["spec"]["replicas"].as_i64().unwrap());
    assert_eq!((sets.len(), size("web:1"), size("web:2")), (2, Some(0), Some(4)));

    // What `kubectl rollout undo` does: the old template again, and the old ReplicaSet is used again.
    stage.patch(DEPLOYMENTS, "web", template("web:1")).await;
    let web = stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 4) && revision(web) == "3").await;
    assert_eq!(image(&web), "web:1");
    let again = stage.get(REPLICA_SETS, first["metadata"]["name"].as_str().unwrap()).await.unwrap();
    assert_eq!((&again["metadata"]["uid"], revision(&again)), (&first["metadata"]["uid"], "3"));
    assert_eq!(again["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    let told = stage.events("web", "ScalingReplicaSet").await;
    assert!(told.iter().any(|(_, note)| note.starts_with("Scaled up replica set web-")), "{told:?}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_goes_up_and_down() {
    let stage = Stage::new().await;
    stage.create(DEPLOYMENTS, deployment("web", 1, "web:1", json!({}))).await;
    for replicas in [1, 7, 2, 0, 3] {
        stage.patch(DEPLOYMENTS, "web", json!({"spec": {"replicas": replicas}})).await;
        stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, replicas)).await;
        stage.until_all(PODS, |pods| (pods.len() as i64 == replicas).then_some(())).await;
    }
    assert_eq!(stage.list(REPLICA_SETS).await.len(), 1, "scaling makes no revision");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreation_never_runs_both() {
    let stage = Stage::new().await;
    let recreate = json!({"spec": {"strategy": {"type": "Recreate"}}});
    stage.create(DEPLOYMENTS, deployment("web", 3, "web:1", recreate)).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 3)).await;
    let watched = stage.client.clone();
    let (done, mut is_done) = tokio::sync::oneshot::channel::<()>();
    // Looks at every change of a pod: the images that run in_parallel.
    let in_parallel = tokio::spawn(async move {
        use futures_util::TryStreamExt;
        use k8s_openapi::api::core::v1::Pod;
        use kube::runtime::watcher;
        let api: kube::Api<Pod> = kube::Api::namespaced(watched, "default");
        let mut there: std::collections::BTreeMap<String, String> = Default::default();
        let mut events = Box::pin(watcher(api, watcher::Config::default()));
        let mut both = false;
        loop {
            tokio::select! {
                biased;
                event = events.try_next() => match event.unwrap().unwrap() {
                    watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                        // One that has come to its end does not run, although it may still be there.
                        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                        if matches!(phase, Some("Succeeded" | "Failed")) {
                            there.remove(&pod.metadata.uid.unwrap());
                            continue;
                        }
                        let image = pod.spec.unwrap().containers[0].image.clone().unwrap();
                        there.insert(pod.metadata.uid.unwrap(), image);
                        both |= there.values().collect::<std::collections::BTreeSet<_>>().len() > 1;
                    }
                    watcher::Event::Delete(pod) => drop(there.remove(&pod.metadata.uid.unwrap())),
                    watcher::Event::Init | watcher::Event::InitDone => {}
                },
                _ = &mut is_done => return both,
            }
        }
    });
    let template = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}});
    stage.patch(DEPLOYMENTS, "web", template).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 3) && revision(web) == "2").await;
    done.send(()).unwrap();
    assert!(!in_parallel.await.unwrap(), "pods of both templates were there at the same time");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_deployment_takes_everything_with_it() {
    let stage = Stage::new().await;
    stage.create(DEPLOYMENTS, deployment("web", 3, "web:1", json!({}))).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 3)).await;
    stage.some(DEPLOYMENTS).delete("web", &DeleteParams::background()).await.unwrap();
    stage.until_none(DEPLOYMENTS).await;
    stage.until_none(REPLICA_SETS).await;
    stage.until_none(PODS).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_that_cannot_succeed_keeps_what_runs_and_says_so() {
    let stage = Stage::new().await;
    let limits = json!({"spec": {"progressDeadlineSeconds": 1}});
    stage.create(DEPLOYMENTS, deployment("web", 4, "web:1", limits)).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 4)).await;
    let broken = json!({"spec": {"template": {
        "metadata": {"annotations": {"simulate.konverge.dev/fail": "image-pull"}},
    }}});
    stage.patch(DEPLOYMENTS, "web", broken).await;
    // A quarter may be missing, and no more.
    let stuck = |web: &Value| {
        web["status"]["availableReplicas"] == 3
            && condition(web, "Progressing") == is("False", "ProgressDeadlineExceeded")
    };
    let web = stage.until(DEPLOYMENTS, "web", stuck).await;
    assert_eq!(condition(&web, "Available"), is("True", "MinimumReplicasAvailable"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_deployments_wait_and_still_scale() {
    let stage = Stage::new().await;
    stage.create(DEPLOYMENTS, deployment("web", 2, "web:1", json!({}))).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 2)).await;
    let paused = json!({"spec": {"paused": true, "replicas": 3, "template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}});
    stage.patch(DEPLOYMENTS, "web", paused).await;
    let web = stage.until(DEPLOYMENTS, "web", |web| web["status"]["availableReplicas"] == 3).await;
    assert_eq!(condition(&web, "Progressing"), is("Unknown", "DeploymentPaused"));
    let sets = stage.list(REPLICA_SETS).await;
    assert_eq!((sets.len(), image(&sets[0])), (1, "web:1"));
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"paused": null}})).await;
    let web = stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 3) && revision(web) == "2").await;
    assert_eq!(image(&web), "web:2");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_adopted_and_released_by_their_labels() {
    let stage = Stage::new().await;
    let stray = json!({
        "metadata": {"name": "stray", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "web:1"}]},
    });
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}},
        },
    });
    stage.create(PODS, stray.clone()).await;
    let uid = stage.create(REPLICA_SETS, set).await["metadata"]["uid"].clone();
    stage.until(REPLICA_SETS, "web", |web| web["status"]["availableReplicas"] == 2).await;
    let adopted = stage.get(PODS, "stray").await.unwrap();
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["uid"], uid);

    // A pod with other labels is let go, and replaced.
    stage.patch(PODS, "stray", json!({"metadata": {"labels": {"app": "other"}}})).await;
    stage.until(PODS, "stray", |pod| pod["metadata"].get("ownerReferences").is_none_or(|all| all == &json!([]))).await;
    let mine = |pods: &[Value]| pods.iter().filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == uid).count();
    stage.until_all(PODS, |pods| (mine(pods) == 2).then_some(())).await;

    // And taken back when the labels are right again; then there is one too many.
    stage.patch(PODS, "stray", json!({"metadata": {"labels": {"app": "web"}}})).await;
    stage.until_all(PODS, |pods| (pods.len() == 2 && mine(pods) == 2).then_some(())).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_taken_leads_to_another_one() {
    let stage = Stage::new().await;
    let web = || deployment("web", 1, "web:1", json!({}));
    stage.create(DEPLOYMENTS, web()).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 1)).await;
    let name = stage.list(REPLICA_SETS).await[0]["metadata"]["name"].clone();
    stage.some(DEPLOYMENTS).delete("web", &DeleteParams::background()).await.unwrap();
    stage.until_none(PODS).await;
    stage.until_none(REPLICA_SETS).await;

    let foreign = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "other"}},
            "template": {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "main", "image": "other"}]}},
        },
    });
    stage.create(REPLICA_SETS, foreign).await;
    stage.create(DEPLOYMENTS, web()).await;
    let web = stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 1)).await;
    assert_eq!(web["status"]["collisionCount"], 1);
    let sets = stage.list(REPLICA_SETS).await;
    assert_eq!(sets.len(), 2, "the other one is left alone");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_have_to_stay_ready_before_they_are_available() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
    // A clock that stands still until the test moves it.
    let second = Arc::new(AtomicI64::new(1_000_000));
    let hand = second.clone();
    let clock = Arc::new(move || jiff::Timestamp::from_second(hand.load(SeqCst)).unwrap());
    let stage = Stage::with(konverge_controllers::Options { clock, ..Default::default() }).await;
    let patient = json!({"spec": {"minReadySeconds": 3600, "progressDeadlineSeconds": 7200}});
    stage.create(DEPLOYMENTS, deployment("web", 2, "web:1", patient)).await;
    let web = stage.until(DEPLOYMENTS, "web", |web| web["status"]["readyReplicas"] == 2).await;
    assert!(web["status"].get("availableReplicas").is_none(), "{}", web["status"]);
    second.fetch_add(3600, SeqCst);
    // Whatever happens to a pod is a reason to look.
    let pod = stage.list(PODS).await.remove(0);
    let name = pod["metadata"]["name"].as_str().unwrap();
    stage.patch(PODS, name, json!({"metadata": {"annotations": {"touched": "yes"}}})).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 2)).await;
    stage.stop().await;
}
