//! The controller of simulated nodes. In: settings, and nodes with the label. Out: nodes, their status and taints, and a Lease
//! that is renewed at every heartbeat. `node` decides how they look; this file reads and writes.

use std::sync::Arc;

use k8s_openapi::api::{coordination::v1 as coordination, core::v1 as core};
use konverge_core::ObjectKey;
use konverge_runtime::{Action, Cache, Cause, Object, Patch, Predicate, Result, Run, Target, What, WriteError};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::kind::SIMULATED;
use super::node;
use super::settings::SimulationSettings;
use crate::context::ControllerContext;
use crate::control_plane::Task;

/// The namespace of node Leases.
const LEASES: &str = "kube-node-lease";

/// Starts the controller.
pub(super) fn start(ctx: &ControllerContext, settings: &SimulationSettings) -> Task {
    let changed = Predicate::spec_changed().or(Predicate::labels_changed()).or(Predicate::annotations_changed());
    let options = konverge_runtime::ControllerOptions { predicate: changed, ..Default::default() };
    let controller = ctx.controller_with(Target::of::<core::Node>(), options);
    let names: Vec<String> = (1..=settings.nodes).map(node::name).collect();
    for name in &names {
        let key = ObjectKey::new(None, name);
        let cause =
            Cause { kind: "Node".into(), key: key.clone(), what: What::Resync, resource_version: String::new() };
        controller.wake(&key, cause);
    }
    let this = Arc::new(Nodes {
        ctx: ctx.clone(),
        settings: settings.clone(),
        names,
        nodes: controller.primary().clone(),
        api: ApiResource::erase::<core::Node>(&()),
        leases: ApiResource::erase::<coordination::Lease>(&()),
    });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct Nodes {
    ctx: ControllerContext,
    settings: SimulationSettings,
    names: Vec<String>,
    nodes: Cache,
    api: ApiResource,
    leases: ApiResource,
}

impl Nodes {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let now = self.ctx.now();
        let object: Value = match self.nodes.get(&run.key) {
            Some(node) if is_simulated(&node) => node.value(),
            Some(_) => return Ok(Action::Wait),
            None if self.names.iter().any(|name| name == run.key.name()) => {
                self.ctx.create(&self.api, &node::new(run.key.name(), &self.settings, now)).await?
            }
            None => return Ok(Action::Wait),
        };
        if let Some(taints) = node::taints(&object, now) {
            self.write(&run.key, "", &object, json!({"spec": {"taints": taints}})).await?;
            // The status depends on the taints, so it is computed from the patched node in the next reconcile.
            return Ok(Action::Requeue(std::time::Duration::ZERO));
        }
        let status = node::status(&object, &self.settings, now);
        if status != object["status"] {
            self.write(&run.key, "status", &object, json!({"status": status})).await?;
        }
        let lost = object["spec"]["taints"].as_array().into_iter().flatten();
        if !lost.into_iter().any(|taint| taint["key"] == super::schedule::UNREACHABLE) {
            self.renew(&object).await?;
        }
        Ok(Action::requeue(node::requeue_after(&self.settings)))
    }

    async fn write(&self, key: &ObjectKey, subresource: &str, node: &Value, patch: Value) -> Result<()> {
        let resource_version = node["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        self.ctx.patch_if_exists(&self.api, key, subresource, Patch::Merge { patch, resource_version }).await.map(drop)
    }

    /// Renews the Lease of a node.
    async fn renew(&self, node: &Value) -> Result<()> {
        let text = |field: &str| node["metadata"][field].as_str().unwrap_or_default();
        let (name, now) = (text("name"), self.ctx.now());
        let key = ObjectKey::new(Some(LEASES), name);
        let renewed = json!([{"op": "add", "path": "/spec/renewTime", "value": node::renewed(now)}]);
        match self.ctx.patch(&self.leases, &key, "", Patch::Json(renewed)).await {
            Err(WriteError::NotFound { .. }) => {
                match self.ctx.create(&self.leases, &node::lease(name, text("uid"), now)).await {
                    // Without the namespace there is no Lease. Nothing on a simulated node needs it.
                    Ok(_) | Err(WriteError::NotFound { .. } | WriteError::Exists { .. }) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_simulated(node: &Object) -> bool {
    node.label(SIMULATED).is_some_and(|value| value == "true")
}
