//! Pods as controllers use them: the fields that they read, whether a pod counts as active, ready or available, the cache
//! of pods, and how pods are created and deleted for an owner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use konverge_core::LabelSelector;
use konverge_runtime::{Cache, CacheOf, Object, Result, Subject, Target};
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::Value;

use crate::child_creator::{ChildCreator, Creation};
use crate::context::ControllerContext;
use crate::meta::{Condition, HasMeta, Meta, condition};
use crate::requests::DeleteOptions;
use crate::simulator::Affinity;

/// How many decoded pods or Services are kept: enough for clusters of a few thousand pods.
pub(crate) const KEPT: usize = 8192;

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

/// The fields of a pod's spec that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub node_name: String,
    pub affinity: Affinity,
    pub hostname: String,
    pub subdomain: String,
    pub containers: Vec<Container>,
}

/// The fields of a container that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Container {
    pub name: String,
    pub ports: Vec<ContainerPort>,
    pub resources: Resources,
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerPort {
    pub name: String,
    pub container_port: i32,
    /// TCP if absent.
    pub protocol: Option<String>,
}

/// The resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    pub requests: BTreeMap<String, Value>,
}

/// The fields of a pod's status that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub phase: String,
    pub conditions: Vec<Condition>,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    pub init_container_statuses: Vec<ContainerStatus>,
    pub container_statuses: Vec<ContainerStatus>,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PodIp {
    pub ip: String,
}

/// The fields of a container's status that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub name: String,
    pub restart_count: i32,
    pub state: ContainerState,
}

/// The state of a container: controllers only read whether it has terminated.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub terminated: Option<Terminated>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub exit_code: i32,
    pub finished_at: Option<Time>,
}

impl HasMeta for Pod {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Pod {
    /// Whether the pod succeeded or failed.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether the pod counts as a replica: it is neither finished nor being deleted.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_finished() && !self.metadata.is_terminating()
    }

    /// Whether its condition `Ready` is true.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready().is_some()
    }

    /// When it became ready, if it is.
    pub(crate) fn ready_since(&self) -> Option<Timestamp> {
        self.ready().and_then(|ready| ready.last_transition_time.as_ref()).map(|time| time.0)
    }

    /// Whether it has been ready for `min_ready_seconds`.
    pub(crate) fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        self.is_ready() && self.available_in(min_ready_seconds, now).is_none_or(|wait| wait.is_zero())
    }

    /// How long a ready pod takes until it is available; `None` if it is not ready or does not have to wait.
    pub(crate) fn available_in(&self, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
        if !self.is_ready() || min_ready_seconds <= 0 {
            return None;
        }
        let passed = self.ready_since().map(|since| now.duration_since(since));
        let needed = jiff::SignedDuration::from_secs(min_ready_seconds.into());
        // Without a time it never becomes available, as in Kubernetes; a change of the pod wakes its owner.
        let wait = passed.map_or(needed, |passed| needed - passed);
        Some(Duration::try_from(wait).unwrap_or_default())
    }

    /// Whether it is being deleted and has not finished, which is what statuses count as terminating.
    pub(crate) fn is_terminating(&self) -> bool {
        self.metadata.is_terminating() && !self.is_finished()
    }

    /// The most restarts of one of its containers.
    pub(crate) fn restarts(&self) -> i32 {
        self.status.container_statuses.iter().map(|container| container.restart_count).max().unwrap_or_default()
    }

    fn ready(&self) -> Option<&Condition> {
        condition(&self.status.conditions, "Ready").filter(|ready| ready.status == "True")
    }
}

/// The kind.
pub(crate) fn api() -> ApiResource {
    ApiResource::erase::<core::Pod>(&())
}

/// All pods.
pub(crate) fn target() -> Target {
    Target::of::<core::Pod>()
}

/// Creates pods for one owner.
#[derive(Clone, Copy)]
pub(crate) struct PodCreator<'a> {
    pub ctx: &'a ControllerContext,
    pub creator: &'a ChildCreator,
    pub owner: &'a Meta,
    pub selector: &'a LabelSelector,
    pub subject: &'a Arc<Subject>,
}

impl PodCreator<'_> {
    /// Creates a pod and records an event of its owner. If the owner or the namespace is being deleted, no pod is needed.
    pub(crate) async fn create(&self, pod: &Value) -> Result<Creation> {
        let creation = self.creator.create(self.owner, self.selector, &api(), pod).await;
        match &creation {
            Ok(Creation::Created(pod)) => {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                self.ctx.event(self.subject, "SuccessfulCreate", format!("Created pod: {name}"));
            }
            Ok(Creation::NotNeeded) => {}
            Err(error) => self.ctx.warning(self.subject, "FailedCreate", format!("Error creating: {error}")),
        }
        creation
    }
}

/// Deletes a pod and records an event of its owner.
pub(crate) async fn delete(ctx: &ControllerContext, pod: &Meta, subject: &Arc<Subject>) -> Result<()> {
    let options = DeleteOptions { uid: &pod.uid, ..DeleteOptions::default() };
    match ctx.delete(&api(), &pod.key(), &options).await {
        Ok(_) => {
            ctx.event(subject, "SuccessfulDelete", format!("Deleted pod: {}", pod.name));
            Ok(())
        }
        Err(error) => {
            ctx.warning(subject, "FailedDelete", format!("Error deleting: {error}"));
            Err(error)
        }
    }
}

/// How long it takes until the next of these pods becomes available.
pub(crate) fn next_available(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let waits = pods.iter().filter(|pod| pod.is_active());
    let waits = waits.filter_map(|pod| pod.available_in(min_ready_seconds, now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// The pods of the cluster, from the cache that all controllers share.
#[derive(Clone)]
pub(crate) struct Pods(CacheOf<Pod>);

impl Pods {
    /// The pods of a context, which are watched from now on.
    pub(crate) fn new(ctx: &ControllerContext) -> Self {
        let cache = ctx.cache(target());
        crate::controller_ref::index_orphans(&cache);
        Self(CacheOf::keeping(cache, KEPT))
    }

    /// The cache of all pods.
    pub(crate) fn cache(&self) -> &Cache {
        self.0.cache()
    }

    /// Decodes objects as pods. An object that is not a valid pod is left out, with a warning.
    pub(crate) fn decoded(&self, objects: &[Arc<Object>]) -> Vec<Arc<Pod>> {
        let decode = |object: &Arc<Object>| {
            let decoded = self.0.decoded(object);
            decoded.inspect_err(|error| tracing::warn!(%error, "a pod cannot be read and is left out")).ok()
        };
        objects.iter().filter_map(decode).collect()
    }

    /// The pods of a namespace that match a selector, sorted by name. Other pods are not decoded.
    pub(crate) fn selected(&self, namespace: &str, selector: &LabelSelector) -> Vec<Arc<Pod>> {
        let mut pods = self.decoded(&self.cache().list(Some(namespace), selector));
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pods
    }

    /// The pods a controller manages.
    pub(crate) fn managed_by(&self, uid: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.decoded(&self.cache().by_owner(uid));
        pods.retain(|pod| pod.metadata.controller().is_some_and(|controller| controller.uid == uid));
        pods
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readiness_and_availability() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let check = |status: &str, since: Option<&str>, min_ready: i32, expect: (bool, bool)| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "p"},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}]},
            }))
            .unwrap();
            let got = (pod.is_ready(), pod.is_available(min_ready, now));
            assert_eq!(got, expect, "{status} {since:?} {min_ready}");
        };
        check("True", Some("2026-01-01T00:00:30Z"), 0, (true, true));
        check("True", Some("2026-01-01T00:00:30Z"), 30, (true, true));
        check("True", Some("2026-01-01T00:00:30Z"), 31, (true, false));
        check("True", None, 0, (true, true));
        check("True", None, 1, (true, false));
        check("False", Some("2026-01-01T00:00:30Z"), 0, (false, false));
    }
}
