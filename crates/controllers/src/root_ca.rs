//! The ConfigMap `kube-root-ca.crt` of every namespace: by what pods know the API server. Without a certificate authority
//! there is nothing to publish.

use k8s_openapi::api::core::v1 as core;
use kube::core::ApiResource;
use serde_json::json;

use crate::control_plane::{Manager, Task};
use crate::per_namespace::{self, DefaultObject};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "root-ca-certificate-publisher-controller";

/// What the ConfigMap is for, in the words of Kubernetes.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                           endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                           guaranteed across distributions of Kubernetes clusters.";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let Some(pem) = &manager.options.root_ca else {
        let mut stop = manager.stop.clone();
        return Box::pin(async move { drop(stop.wait_for(|stop| *stop).await) });
    };
    let resident = DefaultObject {
        api: ApiResource::erase::<core::ConfigMap>(&()),
        name: "kube-root-ca.crt",
        content: json!({"data": {"ca.crt": pem}}),
        annotations: json!({"kubernetes.io/description": DESCRIPTION}),
    };
    per_namespace::start(&manager.context(NAME), resident)
}
