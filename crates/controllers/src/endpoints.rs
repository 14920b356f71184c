//! The Endpoints controller. In: Services and pods. Out: one Endpoints object for each Service, created, changed, and deleted
//! with it. `plan` decides; this file reads caches and sends writes.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use konverge_core::ObjectKey;
use konverge_runtime::{Action, CacheOf, Controller, Patch, Result, Run, Target, Trigger};
use kube::core::ApiResource;
use serde_json::json;

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::meta::pointer_step;
use crate::pods::{self, KEPT, Pods};
use crate::requests::DeleteOptions;
use crate::selector_wakeups;
use crate::service::{self, Service};

use plan::{Content, Endpoints, OVER_CAPACITY};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "endpoints-controller";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(service::target());
    let pods = Pods::new(&ctx);
    controller.watch(pods::target(), selector_wakeups::by_labels("Pod"));
    let endpoints = controller.watch(Target::of::<core::Endpoints>(), Trigger::itself("Endpoints"));
    let this = Arc::new(AllEndpoints {
        services: CacheOf::keeping(controller.primary().clone(), KEPT),
        endpoints: CacheOf::new(endpoints),
        pods,
        api: ApiResource::erase::<core::Endpoints>(&()),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct AllEndpoints {
    ctx: ControllerContext,
    services: CacheOf<Service>,
    endpoints: CacheOf<Endpoints>,
    pods: Pods,
    api: ApiResource,
    controller: Arc<Controller>,
}

impl AllEndpoints {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if let Some(labels) = selector_wakeups::labels_of(&run.key) {
            let selects = |service: &Service| service.selects(&labels);
            selector_wakeups::wake(&self.controller, &self.services, &run.key, "Pod", selects);
            return Ok(Action::Wait);
        }
        let there = self.endpoints.get(&run.key)?;
        match self.services.get(&run.key)? {
            Some(service) if service.has_endpoints() => {
                let pods = self.pods.selected(&service.metadata.namespace, &service.selector());
                self.write(&run.key, there.as_deref(), &plan::content(&service, &pods)).await?;
            }
            // Users write the Endpoints of a Service without a selector.
            Some(_) => {}
            None => {
                if let Some(gone) = there.filter(|there| there.is_ours()) {
                    let options = DeleteOptions { uid: &gone.metadata.uid, ..DeleteOptions::default() };
                    self.ctx.delete(&self.api, &run.key, &options).await?;
                }
            }
        }
        Ok(Action::Wait)
    }

    async fn write(&self, key: &ObjectKey, there: Option<&Endpoints>, content: &Content) -> Result<()> {
        let Some(there) = there else { return self.create(key, content).await };
        if there.has(content) {
            return Ok(());
        }
        let meta = &there.metadata;
        let mut patch = vec![
            meta.uid_test(),
            json!({"op": "add", "path": "/subsets", "value": content.subsets}),
            json!({"op": "add", "path": "/metadata/labels", "value": content.labels}),
        ];
        let path = format!("/metadata/annotations/{}", pointer_step(OVER_CAPACITY));
        match (meta.annotations.contains_key(OVER_CAPACITY), content.truncated) {
            (true, false) => patch.push(json!({"op": "remove", "path": path})),
            (false, true) if meta.annotations.is_empty() => {
                let value = json!({OVER_CAPACITY: "truncated"});
                patch.push(json!({"op": "add", "path": "/metadata/annotations", "value": value}));
            }
            (false, true) => patch.push(json!({"op": "add", "path": path, "value": "truncated"})),
            _ => {}
        }
        self.ctx.patch_if_exists(&self.api, key, "", Patch::Json(patch.into())).await.map(drop)
    }

    async fn create(&self, key: &ObjectKey, content: &Content) -> Result<()> {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": key.name(), "namespace": key.namespace(), "labels": content.labels},
            "subsets": content.subsets,
        });
        if content.truncated {
            object["metadata"]["annotations"] = json!({OVER_CAPACITY: "truncated"});
        }
        match self.ctx.create(&self.api, &object).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_of_ending_namespace() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
