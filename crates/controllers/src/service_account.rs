//! The ServiceAccount `default` of every namespace: what pods run as that do not say.

use k8s_openapi::api::core::v1 as core;
use kube::core::ApiResource;
use serde_json::json;

use crate::per_namespace::{self, Resident};
use crate::plane::{Plane, Task};

/// As kube-controller-manager calls it.
pub(crate) const NAME: &str = "serviceaccount-controller";

/// Starts the controller.
pub(crate) fn start(plane: &Plane) -> Task {
    let api = ApiResource::erase::<core::ServiceAccount>(&());
    per_namespace::start(
        &plane.desk(NAME),
        Resident { api, name: "default", content: json!({}), annotations: json!({}) },
    )
}
