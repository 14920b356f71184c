//! The ServiceAccount `default` of every namespace: which pods use that name no other.

use k8s_openapi::api::core::v1 as core;
use kube::core::ApiResource;
use serde_json::json;

use crate::control_plane::{Manager, Task};
use crate::per_namespace::{self, DefaultObject};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "serviceaccount-controller";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let api = ApiResource::erase::<core::ServiceAccount>(&());
    per_namespace::start(
        &manager.context(NAME),
        DefaultObject { api, name: "default", content: json!({}), annotations: json!({}) },
    )
}
