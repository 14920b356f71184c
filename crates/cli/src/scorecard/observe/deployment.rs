//! The generated manifests in a cluster. In: objects. Out: what the server refuses, and whether the Pods of the operator become ready. Pods are simulated, so
//! this shows that quotas, standards and references are right, not that the image works.

use serde_json::Value;
use tokio::time::Instant;

use crate::manifests::called;
use crate::scorecard::cluster::ScoreCluster;
use crate::scorecard::observations::Deployment;
use crate::scorecard::operator_process::LOOK;
use crate::scorecard::session::Patience;

pub(super) async fn observe(manifests: &[Value], patience: Patience) -> Result<Deployment, String> {
    let cluster = ScoreCluster::start().await?;
    let mut seen = Deployment::default();
    for manifest in manifests {
        if let Err((_, why)) = cluster.apply(manifest).await {
            seen.refused.push(why);
        }
    }
    if seen.refused.is_empty() {
        let is_workload = |object: &&Value| ["Deployment", "StatefulSet"].iter().any(|kind| object["kind"] == *kind);
        for workload in manifests.iter().filter(is_workload) {
            seen.not_ready = not_ready(&cluster, workload, patience).await?;
        }
    }
    cluster.stop().await;
    Ok(seen)
}

/// What is missing until all Pods of a workload are ready; nothing if they are.
async fn not_ready(cluster: &ScoreCluster, workload: &Value, patience: Patience) -> Result<Option<String>, String> {
    let path = cluster.objects.path(workload).await.map_err(|error| error.to_string())?;
    let deadline = Instant::now() + patience.timeout;
    loop {
        let now = cluster.objects.get(&path).await.map_err(|error| error.to_string())?.unwrap_or_default();
        let (wanted, ready) =
            (now["spec"]["replicas"].as_i64().unwrap_or(1), now["status"]["readyReplicas"].as_i64().unwrap_or(0));
        if ready >= wanted {
            return Ok(None);
        }
        if Instant::now() > deadline {
            let conditions = now["status"]["conditions"].as_array().into_iter().flatten();
            let complaint = conditions.filter_map(|one| one["message"].as_str()).next_back().unwrap_or_default();
            return Ok(Some(format!("{}: {ready} of {wanted} Pods are ready; {complaint}", called(workload))));
        }
        tokio::time::sleep(LOOK).await;
    }
}
