//! The operator with `kube::runtime::Controller`, as its documentation shows it: its `finalizer` helper, and a server-side apply
//! of every child and of the status in every reconcile.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource};
use serde_json::json;

use super::{IMAGE, Reconciles};
use crate::operator::job::CONCURRENCY;
use crate::operator::kinds::Widget;

const FINALIZER: &str = "bench.konverge.dev/stock";

struct Stock {
    client: Client,
    reconciles: Reconciles,
}

pub(super) fn start(client: Client, reconciles: Reconciles) {
    let config = watcher::Config::default().streaming_lists();
    let controller = Controller::new(Api::<Widget>::all(client.clone()), config.clone())
        .with_config(Config::default().concurrency(CONCURRENCY as u16))
        .owns(Api::<ConfigMap>::all(client.clone()), config.clone())
        .owns(Api::<Service>::all(client.clone()), config.clone())
        .owns(Api::<Deployment>::all(client.clone()), config);
    let stock = Arc::new(Stock { client, reconciles });
    let on_error =
        |_: Arc<Widget>, _: &finalizer::Error<kube::Error>, _: Arc<Stock>| Action::requeue(Duration::from_secs(1));
    tokio::spawn(controller.run(reconcile, on_error, stock).for_each(|_| std::future::ready(())));
}

async fn reconcile(widget: Arc<Widget>, stock: Arc<Stock>) -> Result<Action, finalizer::Error<kube::Error>> {
    let widgets = Api::<Widget>::namespaced(stock.client.clone(), "default");
    let done = finalizer(&widgets, FINALIZER, widget, |event| async {
        match event {
            finalizer::Event::Apply(widget) => apply(&widget, &stock.client, &widgets).await,
            finalizer::Event::Cleanup(_) => Ok(Action::await_change()),
        }
    })
    .await;
    stock.reconciles.count(&done);
    done
}

async fn apply(widget: &Widget, client: &Client, widgets: &Api<Widget>) -> kube::Result<Action> {
    let name = widget.metadata.name.as_deref().unwrap_or_default();
    let metadata = json!({"name": name, "ownerReferences": [widget.controller_owner_ref(&())]});
    let params = PatchParams::apply("bench").force();
    let selector = json!({"app": name});
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"payload": widget.spec.payload},
    });
    Api::<ConfigMap>::namespaced(client.clone(), "default").patch(name, &params, &Patch::Apply(config_map)).await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    Api::<Service>::namespaced(client.clone(), "default").patch(name, &params, &Patch::Apply(service)).await?;
    let container = json!({"name": "web", "image": IMAGE, "ports": [{"containerPort": 8080}]});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": 0, "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": {"containers": [container]}},
        },
    });
    Api::<Deployment>::namespaced(client.clone(), "default").patch(name, &params, &Patch::Apply(deployment)).await?;
    let status = json!({
        "apiVersion": "bench.konverge.dev/v1", "kind": "Widget", "metadata": {"name": name},
        "status": {"ready": true, "observedGeneration": widget.metadata.generation},
    });
    widgets.patch_status(name, &params, &Patch::Apply(status)).await?;
    Ok(Action::await_change())
}
