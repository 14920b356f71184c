//! The EndpointSlice controller. In: Services, pods and slices. Out: slices created, changed and deleted. `plan` decides; this
//! file reads caches and sends writes.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::discovery::v1 as discovery;
use konverge_core::ObjectKey;
use konverge_runtime::{Action, CacheOf, Controller, Object, Patch, Result, Run, Subject, Target, Trigger};
use kube::core::ApiResource;
use serde_json::json;

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::pods::{self, KEPT, Pods};
use crate::requests::DeleteOptions;
use crate::service::{self, Service};
use crate::{hash, selector_wakeups};

use plan::{Content, SERVICE_NAME, Slice};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "endpointslice-controller";

/// The index of slices by the key of their Service.
const BY_SERVICE: &str = "service";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(service::target());
    let pods = Pods::new(&ctx);
    controller.watch(pods::target(), selector_wakeups::by_labels("Pod"));
    let slices = controller.watch(
        Target::of::<discovery::EndpointSlice>(),
        Trigger::mapped("EndpointSlice", |slice| service_of(slice).into_iter().collect()),
    );
    slices.add_index(BY_SERVICE, |slice| service_of(slice).map(|key| key.to_string()).into_iter().collect());
    let this = Arc::new(Slices {
        services: CacheOf::keeping(controller.primary().clone(), KEPT),
        slices: CacheOf::new(slices),
        pods,
        api: ApiResource::erase::<discovery::EndpointSlice>(&()),
        services_api: service::api(),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct Slices {
    ctx: ControllerContext,
    services: CacheOf<Service>,
    slices: CacheOf<Slice>,
    pods: Pods,
    api: ApiResource,
    services_api: ApiResource,
    controller: Arc<Controller>,
}

impl Slices {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        if let Some(labels) = selector_wakeups::labels_of(&run.key) {
            let selects = |service: &Service| service.selects(&labels);
            selector_wakeups::wake(&self.controller, &self.services, &run.key, "Pod", selects);
            return Ok(Action::Wait);
        }
        // Slices of a Service that is gone are collected by the garbage collector.
        let Some(service) = self.services.get(&run.key)?.filter(|service| service.has_endpoints()) else {
            return Ok(Action::Wait);
        };
        let slices = self.slices.by_index(BY_SERVICE, &run.key.to_string()).into_iter().flatten();
        let slices: Vec<Arc<Slice>> = slices.filter(|slice| slice.is_ours()).collect();
        let pods = self.pods.selected(&service.metadata.namespace, &service.selector());
        let plan = plan::plan(&service, &pods, &slices);
        let subject = Arc::new(service.metadata.subject(&self.services_api));
        let done = self.carry_out(&service, plan).await;
        if let Err(error) = &done {
            let (namespace, name) = (&service.metadata.namespace, &service.metadata.name);
            self.warn(&subject, format!("Error updating Endpoint Slices for Service {namespace}/{name}: {error}"));
        }
        done.map(|()| Action::Wait)
    }

    fn warn(&self, subject: &Arc<Subject>, message: String) {
        self.ctx.warning(subject, "FailedToUpdateEndpointSlices", message);
    }

    async fn carry_out(&self, service: &Service, plan: plan::Plan) -> Result<()> {
        let changes = plan.change.iter().map(|(slice, content)| self.change(slice, content));
        self.ctx.in_parallel(changes).await.into_iter().collect::<Result<()>>()?;
        let creates = plan.create.iter().map(|content| self.create(service, content));
        self.ctx.in_parallel(creates).await.into_iter().collect::<Result<()>>()?;
        let deletes = plan.delete.iter().map(|slice| async move {
            let options = DeleteOptions { uid: &slice.metadata.uid, ..DeleteOptions::default() };
            self.ctx.delete(&self.api, &slice.metadata.key(), &options).await.map(drop)
        });
        self.ctx.in_parallel(deletes).await.into_iter().collect()
    }

    async fn create(&self, service: &Service, content: &Content) -> Result<()> {
        let mut object = content.object(service);
        let metadata = &mut object["metadata"];
        metadata["name"] = format!("{}-{}", service.metadata.name, hash::suffix(self.ctx.random())).into();
        metadata["ownerReferences"] = json!([service.metadata.as_controller(&self.services_api)]);
        match self.ctx.create(&self.api, &object).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_of_ending_namespace() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn change(&self, slice: &Slice, content: &Content) -> Result<()> {
        let patch = json!([
            slice.metadata.uid_test(),
            {"op": "add", "path": "/endpoints", "value": content.endpoints},
            {"op": "add", "path": "/ports", "value": content.ports},
            {"op": "add", "path": "/metadata/labels", "value": content.labels},
        ]);
        self.ctx.patch_if_exists(&self.api, &slice.metadata.key(), "", Patch::Json(patch)).await.map(drop)
    }
}

/// The Service a slice is of.
fn service_of(slice: &Object) -> Option<ObjectKey> {
    slice.label(SERVICE_NAME).map(|name| ObjectKey::new(slice.namespace(), &name))
}
