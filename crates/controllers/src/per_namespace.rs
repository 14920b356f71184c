//! One object in every namespace. In: namespaces, and the objects of that name. Out: the object where it is missing or
//! different, as long as the namespace stays.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use konverge_core::ObjectKey;
use konverge_runtime::{Action, Cache, Patch, Result, Run, Target, Trigger, WriteError};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::plane::Task;

/// What is to be in every namespace.
pub(crate) struct Resident {
    pub api: ApiResource,
    pub name: &'static str,
    /// Fields beside metadata that it has to have: they are put back.
    pub content: Value,
    /// Annotations it is created with.
    pub annotations: Value,
}

/// Keeps it there.
pub(crate) fn start(desk: &Desk, resident: Resident) -> Task {
    let controller = desk.controller(Target::of::<core::Namespace>());
    let target = Target::all(resident.api.clone()).fielded(format!("metadata.name={}", resident.name));
    let namespace = |object: &konverge_runtime::Object| object.namespace().map(|name| ObjectKey::new(None, name));
    let wakes = Trigger::mapped(resident.api.kind.as_str(), move |object| namespace(object).into_iter().collect());
    let residents = controller.watch(target, wakes);
    let namespaces = controller.primary().clone();
    let this = Arc::new(Residents { desk: desk.clone(), namespaces, residents, resident });
    desk.work(controller, move |run| this.clone().reconcile(run))
}

struct Residents {
    desk: Desk,
    namespaces: Cache,
    residents: Cache,
    resident: Resident,
}

impl Residents {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        let stays = self.namespaces.get(&run.key).is_some_and(|namespace| !namespace.is_terminating());
        if !stays {
            return Ok(Action::Wait);
        }
        let Resident { api, name, content, annotations } = &self.resident;
        let key = ObjectKey::new(Some(run.key.name()), name);
        let Some(there) = self.residents.get(&key) else {
            let mut object = content.clone();
            object["apiVersion"] = api.api_version.clone().into();
            object["kind"] = api.kind.clone().into();
            object["metadata"] = json!({"name": name, "namespace": run.key.name(), "annotations": annotations});
            return match self.desk.create(api, &object).await {
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
            self.desk.patch(api, &key, "", Patch::Json(ops.into())).await?;
        }
        Ok(Action::Wait)
    }
}
