//! A single pod.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::pods::{Pods, pods};
use super::wrapper::{kind, named, spec};

kind! {
    /// A single pod. Nothing replaces it when its node fails; a [`Deployment`](super::Deployment) does.
    Pod(core::Pod) with pods
}
spec!(Pod, core::PodSpec);
pods!(Pod(core::Pod));

impl Pods for core::Pod {
    fn pod_spec(&mut self) -> &mut core::PodSpec {
        self.spec.get_or_insert_default()
    }

    fn pod_metadata(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn pod_selector(&mut self) -> Option<&mut LabelSelector> {
        None
    }
}

impl Pod {
    /// A pod called `name`, labelled `app: name`.
    pub fn new(name: impl Into<String>) -> Self {
        let pod = core::Pod { metadata: named(name), spec: Some(core::PodSpec::default()), status: None };
        let app = pod.metadata.name.clone().unwrap_or_default();
        Self(pod).label("app", app)
    }

    /// Its phase: `Pending`, `Running`, `Succeeded`, `Failed`; none until the control plane has seen the pod.
    pub fn phase(&self) -> Option<&str> {
        self.0.status.as_ref()?.phase.as_deref()
    }

    /// Whether the pod is ready: services send it requests.
    pub fn is_ready(&self) -> bool {
        let conditions = self.0.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// Its IP address, once it has one.
    pub fn ip(&self) -> Option<&str> {
        self.0.status.as_ref()?.pod_ip.as_deref()
    }
}
