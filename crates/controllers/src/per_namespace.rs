//! Keeps one object in every namespace. In: namespaces, and the objects of that name. Out: the object is created where it is
//! missing and repaired where it differs, unless the namespace is being deleted.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use konverge_core::ObjectKey;
use konverge_runtime::{Action, Cache, Patch, Result, Run, Target, Trigger, WriteError};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::context::ControllerContext;
use crate::control_plane::Task;

/// The object that every namespace has.
pub(crate) struct DefaultObject {
    pub api: ApiResource,
    pub name: &'static str,
    /// Fields beside `metadata`. A field that somebody changes is set back.
    pub content: Value,
    /// Annotations at creation; they are not set back.
    pub annotations: Value,
}

/// Starts the controller that keeps `wanted` in every namespace.
pub(crate) fn start(ctx: &ControllerContext, wanted: DefaultObject) -> Task {
    let controller = ctx.controller(Target::of::<core::Namespace>());
    let target = Target::all(wanted.api.clone()).fielded(format!("metadata.name={}", wanted.name));
    let namespace = |object: &konverge_runtime::Object| object.namespace().map(|name| ObjectKey::new(None, name));
    let wakes = Trigger::mapped(wanted.api.kind.as_str(), move |object| namespace(object).into_iter().collect());
    let objects = controller.watch(target, wakes);
    let namespaces = controller.primary().clone();
    let this = Arc::new(PerNamespace { ctx: ctx.clone(), namespaces, objects, wanted });
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

struct PerNamespace {
    ctx: ControllerContext,
    namespaces: Cache,
    objects: Cache,
    wanted: DefaultObject,
}

impl PerNamespace {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let is_active = self.namespaces.get(&run.key).is_some_and(|namespace| !namespace.is_terminating());
        if !is_active {
            return Ok(Action::Wait);
        }
        let DefaultObject { api, name, content, annotations } = &self.wanted;
        let key = ObjectKey::new(Some(run.key.name()), name);
        let Some(there) = self.objects.get(&key) else {
            let mut object = content.clone();
            object["apiVersion"] = api.api_version.clone().into();
            object["kind"] = api.kind.clone().into();
            object["metadata"] = json!({"name": name, "namespace": run.key.name(), "annotations": annotations});
            return match self.ctx.create(api, &object).await {
                Ok(_) | Err(WriteError::Exists { .. }) => Ok(Action::Wait),
                Err(error) if error.is_of_ending_namespace() => Ok(Action::Wait),
                Err(error) => Err(error.into()),
            };
        };
        let is = there.value();
        let fields = content.as_object().into_iter().flatten();
        let differs: serde_json::Map<String, Value> =
            fields.filter(|(name, value)| is.get(*name) != Some(*value)).map(|(n, v)| (n.clone(), v.clone())).collect();
        if !differs.is_empty() && !there.is_terminating() {
            let ops =
                differs.iter().map(|(name, value)| json!({"op": "add", "path": format!("/{name}"), "value": value}));
            let still = json!({"op": "test", "path": "/metadata/uid", "value": there.uid()});
            let ops: Vec<Value> = std::iter::once(still).chain(ops).collect();
            self.ctx.patch(api, &key, "", Patch::Json(ops.into())).await?;
        }
        Ok(Action::Wait)
    }
}
