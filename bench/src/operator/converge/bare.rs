//! The same five writes for each parent and nothing else: what the server can take at this concurrency.

use futures_util::{StreamExt, TryStreamExt, stream};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::IMAGE;
use crate::operator::job::CONCURRENCY;
use crate::void::Void;
use crate::widget;

pub async fn write(client: Client, parents: usize) -> Result<(), Void> {
    let all = stream::iter((0..parents).map(|number| one(client.clone(), widget::name(number))));
    all.buffer_unordered(CONCURRENCY).try_collect::<()>().await.map_err(|error| Void::new(error.to_string()))
}

async fn one(client: Client, name: String) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (parent, selector) = (format!("{}/{name}", widget::WIDGETS), json!({"app": name}));
    let container = json!({"name": "web", "image": IMAGE, "ports": [{"containerPort": 8080}]});
    let payload = name.repeat(80);
    let finalizers = json!({"metadata": {"finalizers": ["bench.konverge.dev/bare"]}});
    patch(&client, &parent, finalizers).await?;
    for (path, child) in [
        ("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": name}, "data": {"payload": payload}})),
        (
            "/api/v1/namespaces/default/services",
            json!({
                "metadata": {"name": name},
                "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": 8080}]},
            }),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({
                "metadata": {"name": name},
                "spec": {
                    "replicas": 0, "selector": {"matchLabels": selector},
                    "template": {"metadata": {"labels": selector}, "spec": {"containers": [container]}},
                },
            }),
        ),
    ] {
        let request = Request::post(path).header("content-type", "application/json");
        client.request_text(request.body(child.to_string().into_bytes())?).await?;
    }
    patch(&client, &format!("{parent}/status"), json!({"status": {"ready": true, "observedGeneration": 1}})).await
}

async fn patch(client: &Client, path: &str, patch: Value) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let request = Request::patch(path).header("content-type", "application/merge-patch+json");
    client.request_text(request.body(patch.to_string().into_bytes())?).await?;
    Ok(())
}
