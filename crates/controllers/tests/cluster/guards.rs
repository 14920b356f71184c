//! No controller acts faster than it observes: whatever a server hands out, nothing is created without end.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use konverge_apiserver::{ApiServer, Body};
use konverge_controllers::Options;
use konverge_store::{Commit, Write};
use kube::Client;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower_service::Service;

use crate::stage::*;

/// One of each kind that makes pods, named like its kind in the singular, with a selector that fits its template.
fn workloads() -> Vec<(&'static str, &'static str, Value)> {
    let workload = |name: &str, restart: &str, more: Value| {
        let mut object = json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"restartPolicy": restart, "containers": [{"name": "main", "image": "web:1"}]},
                },
            },
        });
        merge_patch(&mut object["spec"], &more);
        object
    };
    vec![
        (DEPLOYMENTS, "deployments", workload("deployment", "Always", json!({"replicas": 2}))),
        (REPLICA_SETS, "replicasets", workload("replicaset", "Always", json!({"replicas": 2}))),
        (STATEFUL_SETS, "statefulsets", workload("statefulset", "Always", json!({"replicas": 2}))),
        (DAEMON_SETS, "daemonsets", workload("daemonset", "Always", json!({}))),
        (JOBS, "jobs", workload("job", "Never", json!({"manualSelector": true, "parallelism": 2}))),
    ]
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// A Deployment that is created last and is whole: what came before has been looked at.
async fn until_all_is_quiet(stage: &Stage) {
    stage.create(DEPLOYMENTS, deployment("after", 2, "web:1", json!({}))).await;
    stage.until(DEPLOYMENTS, "after", |after| is_rolled_out(after, 2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_select_its_own_template_makes_nothing() {
    for selector in [json!({"app": "other"}), json!({})] {
        let server = server().await;
        let bare = Stage::of(Client::new(server.clone(), "default"), Options { off: all_off(), ..Options::default() });
        for (kind, plural, object) in workloads() {
            bare.create(kind, object.clone()).await;
            // The server refuses such an object, so it gets into the store behind its back.
            let group = if kind == JOBS { "batch" } else { "apps" };
            let key = format!("/registry/{group}/{plural}/default/{}", name(&object));
            let entry = server.store().get(&key, None).unwrap().unwrap();
            let kept = String::from_utf8(entry.value.to_vec()).unwrap();
            let fits = format!("\"matchLabels\":{}", json!({"app": name(&object)}));
            let parted = kept.replace(&fits, &format!("\"matchLabels\":{selector}"));
            assert_ne!(kept, parted, "{kind}");
            let writes = vec![Write::Put(entry.key, parted.into())];
            server.store().commit(Commit { conditions: Vec::new(), writes }).await.unwrap();
        }
        bare.stop().await;

        let stage = Stage::on(server, Options::default());
        for (kind, _, object) in workloads() {
            // A Job whose selector is empty selects by its uid.
            if kind == JOBS && selector == json!({}) {
                stage.until(JOBS, "job", |job| job["status"]["succeeded"] == 1 || job["status"]["active"] == 2).await;
                continue;
            }
            let reason = match (kind, &selector) {
                (DEPLOYMENTS | DAEMON_SETS, Value::Object(labels)) if labels.is_empty() => "SelectingAll",
                _ => "SelectorMismatch",
            };
            stage.events(name(&object), reason).await;
        }
        until_all_is_quiet(&stage).await;
        let made = stage.list(PODS).await.into_iter().chain(stage.list(REPLICA_SETS).await);
        let made: Vec<String> = made.map(|made| name(&made).to_owned()).collect();
        let allowed = |made: &String| made.starts_with("after") || made == "replicaset" || made.starts_with("job-");
        let runaway: Vec<&String> = made.iter().filter(|made| !allowed(made)).collect();
        assert_eq!(runaway, Vec::<&String>::new());
        let jobs = made.iter().filter(|made| made.starts_with("job-")).count();
        assert!(jobs <= if selector == json!({}) { 2 } else { 0 }, "{made:?}");
        // Such an object says in its status what hinders it, and can be deleted.
        let set = stage.get(REPLICA_SETS, "replicaset").await.unwrap();
        assert_eq!(condition(&set, "ReplicaFailure"), is("True", "FailedCreate"), "{set}");
        for (kind, _, object) in workloads() {
            stage.some(kind).delete(name(&object), &DeleteParams::foreground()).await.unwrap();
            stage.until_all(kind, |all| (!all.iter().any(|one| name(one) == name(&object))).then_some(())).await;
        }
        stage.stop().await;
    }
}

/// Every controller is off: objects are only kept.
fn all_off() -> std::collections::BTreeSet<String> {
    konverge_controllers::ControlPlane::controllers().map(str::to_owned).collect()
}

/// A server that a test stands in front of.
#[derive(Clone)]
struct Fronted {
    server: ApiServer,
    front: Arc<Front>,
}

#[derive(Default)]
struct Front {
    /// Pods are created with another label than was sent, and counted.
    relabels: AtomicBool,
    created: AtomicUsize,
    /// Watches of ReplicaSets stand still.
    stalls: AtomicBool,
    /// Somebody asked for the ReplicaSet `web`.
    asked: Notify,
}

impl Service<http::Request<kube::client::Body>> for Fronted {
    type Response = http::Response<Stalling>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let Self { mut server, front } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let mut body = body.collect().await.unwrap().to_bytes();
            let path = parts.uri.path();
            let makes_pods = parts.method == http::Method::POST && path.ends_with("/pods");
            if makes_pods && front.relabels.load(Ordering::SeqCst) {
                let mut pod: Value = serde_json::from_slice(&body).unwrap();
                if pod["metadata"]["labels"]["app"] != "after" {
                    front.created.fetch_add(1, Ordering::SeqCst);
                    pod["metadata"]["labels"] = json!({"app": "changed"});
                    body = pod.to_string().into();
                }
            }
            let asked = parts.method == http::Method::GET && path.ends_with("/default/replicasets/web");
            let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch="));
            let stalls = (is_watch && path.ends_with("/replicasets")).then(|| front.clone());
            let answer = server.call(http::Request::from_parts(parts, Full::new(body))).await?;
            if asked && front.stalls.load(Ordering::SeqCst) {
                front.asked.notify_one();
            }
            Ok(answer.map(|body| Stalling { body, stalls }))
        })
    }
}

/// A body that stands still when it is told to.
struct Stalling {
    body: Body,
    stalls: Option<Arc<Front>>,
}

impl http_body::Body for Stalling {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // What a stalled watch has to say is taken and lost; nobody waits for the rest.
        loop {
            let frame = Pin::new(&mut self.body).poll_frame(cx);
            let lost = self.stalls.as_ref().is_some_and(|front| front.stalls.load(Ordering::SeqCst));
            match frame {
                Poll::Ready(Some(Ok(_))) if lost => {}
                frame => return frame.map(|frame| frame.map(|frame| Ok(frame.unwrap_or_else(|_| unreachable!())))),
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_back_with_other_labels_is_made_once_and_not_again_and_again() {
    for (kind, _, object) in workloads() {
        let front = Arc::new(Front::default());
        front.relabels.store(true, Ordering::SeqCst);
        let fronted = Fronted { server: server().await, front: front.clone() };
        let stage = Stage::of(Client::new(fronted, "default"), Options::default());
        stage.create(kind, object.clone()).await;
        match kind {
            DEPLOYMENTS => {
                let set = |sets: &[Value]| sets.iter().find(|set| name(set).starts_with("deployment-")).cloned();
                let set = stage.until_all(REPLICA_SETS, set).await;
                stage.events(name(&set), "FailedCreate").await;
            }
            _ => drop(stage.events(name(&object), "FailedCreate").await),
        }
        until_all_is_quiet(&stage).await;
        // It is tried again after a minute at the earliest.
        let created = front.created.load(Ordering::SeqCst);
        assert!((1..=2).contains(&created), "{kind}: {created}");
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_for_an_owner_that_only_the_cache_still_has() {
    let front = Arc::new(Front::default());
    let fronted = Fronted { server: server().await, front: front.clone() };
    let off = ["garbage-collector-controller".to_owned()].into();
    let stage = Stage::of(Client::new(fronted, "default"), Options { off, ..Options::default() });
    let (_, _, mut object) = workloads().remove(1);
    object["metadata"]["name"] = "web".into();
    stage.create(REPLICA_SETS, object).await;
    stage.until(REPLICA_SETS, "web", |set| set["status"]["availableReplicas"] == 2).await;

    front.stalls.store(true, Ordering::SeqCst);
    stage.some(REPLICA_SETS).delete("web", &DeleteParams::background()).await.unwrap();
    let pods = stage.pods().await;
    assert_eq!(pods.len(), 2);
    stage.some(PODS).delete(pods[0].metadata.name.as_ref().unwrap(), &DeleteParams::default()).await.unwrap();
    // The controller sees that a pod is missing, and asks.
    let asked = tokio::time::timeout(std::time::Duration::from_secs(60), front.asked.notified());
    asked.await.expect("the server is asked for the owner");
    stage
        .create(PODS, json!({"metadata": {"name": "after"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .await;
    stage.until(PODS, "after", |pod| pod["status"]["phase"] == "Running").await;
    let left: Vec<_> = stage.pods().await.into_iter().filter_map(|pod| pod.metadata.name).collect();
    assert_eq!(left, ["after".to_owned(), pods[1].metadata.name.clone().unwrap()]);
    stage.stop().await;
}
