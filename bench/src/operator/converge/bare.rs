//! The same five writes for each parent without a controller: the upper limit of the rate at this concurrency. Children are
//! applied and have an owner reference, so that the server has the same work as with a controller.

use futures_util::{StreamExt, TryStreamExt, stream};
use http::Request;
use kube::{Client, Resource};
use serde_json::{Value, json};

use super::IMAGE;
use crate::invalid_run::InvalidRun;
use crate::operator::job::CONCURRENCY;
use crate::operator::kinds::Widget;
use crate::widget;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(super) async fn write(client: Client, parents: usize) -> Result<(), InvalidRun> {
    let all = stream::iter((0..parents).map(|number| one(client.clone(), widget::name(number))));
    all.buffer_unordered(CONCURRENCY).try_collect::<()>().await.map_err(|error| InvalidRun::new(error.to_string()))
}

async fn one(client: Client, name: String) -> Result<(), BoxError> {
    let (parent, selector) = (format!("{}/{name}", widget::WIDGETS), json!({"app": name}));
    let container = json!({"name": "web", "image": IMAGE, "ports": [{"containerPort": 8080}]});
    let payload = name.repeat(80);
    let finalizers = json!({"metadata": {"finalizers": ["bench.konverge.dev/bare"]}});
    let parent_object: Widget = serde_json::from_str(&patch(&client, &parent, "merge-patch+json", finalizers).await?)?;
    let metadata = json!({"name": name, "ownerReferences": [parent_object.controller_owner_ref(&())]});
    for (path, child) in [
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"payload": payload}}),
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": 8080}]},
            }),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {
                    "replicas": 0, "selector": {"matchLabels": selector},
                    "template": {"metadata": {"labels": selector}, "spec": {"containers": [container]}},
                },
            }),
        ),
    ] {
        patch(&client, &format!("{path}/{name}?fieldManager=bare&force=true"), "apply-patch+yaml", child).await?;
    }
    let status = json!({"status": {"ready": true, "observedGeneration": parent_object.metadata.generation}});
    patch(&client, &format!("{parent}/status"), "merge-patch+json", status).await?;
    Ok(())
}

async fn patch(client: &Client, path: &str, format: &str, patch: Value) -> Result<String, BoxError> {
    let request = Request::patch(path).header("content-type", format!("application/{format}"));
    Ok(client.request_text(request.body(patch.to_string().into_bytes())?).await?)
}
