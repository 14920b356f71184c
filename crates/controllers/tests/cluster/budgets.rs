//! PodDisruptionBudgets: what they allow, as pods come and go.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use konverge_apiserver::{ApiServer, Body};
use konverge_controllers::Options;
use konverge_runtime::{Meter, Verdict, WorkerMeter};
use kube::Client;
use serde_json::{Value, json};
use tower_service::Service;

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

/// A server on which somebody else, who evicts pods, changes a budget just before its status is written, some times.
#[derive(Clone)]
struct Racing {
    server: ApiServer,
    races: Arc<AtomicUsize>,
}

impl Service<http::Request<kube::client::Body>> for Racing {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let Self { mut server, races } = self.clone();
        Box::pin(async move {
            let path = request.uri().path();
            let is_status =
                path.ends_with("/poddisruptionbudgets/least/status") && request.method() == http::Method::PATCH;
            let race = || races.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).ok();
            if let Some(left) = is_status.then(race).flatten() {
                let patch = json!({"metadata": {"annotations": {"evicted": left.to_string()}}});
                let other = http::Request::patch(path.trim_end_matches("/status"))
                    .header("content-type", "application/merge-patch+json")
                    .body(Full::new(bytes::Bytes::from(patch.to_string())));
                server.call(other.unwrap()).await?;
            }
            server.call(request).await
        })
    }
}

/// Keeps how reconciles ended.
#[derive(Clone, Default)]
struct Verdicts(Arc<Mutex<Vec<Verdict>>>);

impl Meter for Verdicts {
    fn worker(&self) -> Box<dyn WorkerMeter> {
        Box::new(self.clone())
    }
}

impl WorkerMeter for Verdicts {
    fn ended(&mut self, verdict: &Verdict, _: Duration) {
        self.0.lock().unwrap().push(verdict.clone());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_with_evictions_is_run_again_at_once() {
    let races = Arc::new(AtomicUsize::new(3));
    let (verdicts, others) = (Verdicts::default(), Verdicts::default());
    let ours = verdicts.clone();
    let meter = Arc::new(move |name: &str| -> Arc<dyn Meter> {
        Arc::new(if name == "disruption-controller" { ours.clone() } else { others.clone() })
    });
    let racing = Racing { server: server().await, races: races.clone() };
    let stage = Stage::of(Client::new(racing, "default"), Options { meter, ..Options::default() });
    stage.create(BUDGETS, budget("least", json!({"minAvailable": 2}))).await;
    stage.create(DEPLOYMENTS, deployment("web", 4, "web:1", json!({}))).await;
    stage.until(BUDGETS, "least", |one| figures(one) == [4, 2, 4, 2]).await;
    assert_eq!(races.load(Ordering::SeqCst), 0, "it was raced with");
    stage.stop().await;
    let verdicts = verdicts.0.lock().unwrap();
    let failed: Vec<&Verdict> = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Failed { .. })).collect();
    let is_race = |verdict: &&&Verdict| match verdict {
        Verdict::Failed { reason, retried, .. } => *reason == "Conflict" && *retried,
        _ => false,
    };
    assert_eq!(failed.iter().filter(is_race).count(), 3, "{failed:?}");
    assert_eq!(failed.len(), 3, "{failed:?}");
}
