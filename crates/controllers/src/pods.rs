//! A pod as controllers see it: whose it is, where it is, how it is doing. In: JSON, of which most is left unread. Out:
//! answers to what controllers ask again and again. Pure.

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

/// How many pods, or Services, are kept decoded: what controllers of a few thousand look at again and again.
pub(crate) const KEPT: usize = 8192;

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

/// What of a pod's spec controllers look at.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub node_name: String,
    pub affinity: Affinity,
    pub hostname: String,
    pub subdomain: String,
    pub containers: Vec<Container>,
}

/// What of a container controllers look at.
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
    /// TCP if it does not say.
    pub protocol: Option<String>,
}

/// The spec of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    pub requests: BTreeMap<String, Value>,
}

/// What of a pod's status controllers look at.
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

/// What of a container's status controllers look at.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub name: String,
    pub restart_count: i32,
    pub state: ContainerState,
}

/// How a container is, as far as controllers ask: whether it has ended.
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
    /// Whether it has come to its end.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether it counts as a replica: it has not come to its end and is not being deleted.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_finished() && !self.metadata.is_terminating()
    }

    /// Whether it says it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready().is_some()
    }

    /// When it became ready, if it is.
    pub(crate) fn ready_since(&self) -> Option<Timestamp> {
        self.ready().and_then(|ready| ready.last_transition_time.as_ref()).map(|time| time.0)
    }

    /// Whether it has been ready for so many seconds.
    pub(crate) fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        self.is_ready() && self.available_in(min_ready_seconds, now).is_none_or(|wait| wait.is_zero())
    }

    /// How long it takes until it is available, if it is ready and stays so; nothing if its time of readiness is unknown.
    pub(crate) fn available_in(&self, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
        if !self.is_ready() || min_ready_seconds <= 0 {
            return None;
        }
        let passed = self.ready_since().map(|since| now.duration_since(since));
        let needed = jiff::SignedDuration::from_secs(min_ready_seconds.into());
        // Without a time it never becomes available, as in Kubernetes; it is looked at again when that changes.
        let wait = passed.map_or(needed, |passed| needed - passed);
        Some(Duration::try_from(wait).unwrap_or_default())
    }

    /// Whether it is on its way out and has not come to its end.
    pub(crate) fn is_leaving(&self) -> bool {
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

/// Who creates pods for one owner.
#[derive(Clone, Copy)]
pub(crate) struct Maker<'a> {
    pub ctx: &'a ControllerContext,
    pub creator: &'a ChildCreator,
    pub owner: &'a Meta,
    pub selector: &'a LabelSelector,
    pub subject: &'a Arc<Subject>,
}

/// What became of a pod that was to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    Yes,
    /// Its owner or its namespace is going.
    NoNeed,
}

impl Maker<'_> {
    /// Creates a pod for the owner, which tells of it. That owner or namespace are going is fine: nothing is needed then.
    pub(crate) async fn create(&self, pod: &Value) -> Result<Created> {
        match self.creator.create(self.owner, self.selector, &api(), pod).await {
            Ok(Creation::Created(pod)) => {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                self.ctx.event(self.subject, "SuccessfulCreate", format!("Created pod: {name}"));
                Ok(Created::Yes)
            }
            Ok(Creation::NotNeeded) => Ok(Created::NoNeed),
            Err(error) => {
                self.ctx.warning(self.subject, "FailedCreate", format!("Error creating: {error}"));
                Err(error)
            }
        }
    }
}

/// Deletes a pod for its owner, which tells of it.
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

/// When the next of some pods becomes available without anything happening.
pub(crate) fn next_available(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let waits = pods.iter().filter(|pod| pod.is_active());
    let waits = waits.filter_map(|pod| pod.available_in(min_ready_seconds, now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// The pods of the cluster, from the cache that all controllers share.
#[derive(Clone)]
pub(crate) struct Pods(CacheOf<Pod>);

impl Pods {
    /// The pods a context sees; watched from now on.
    pub(crate) fn new(ctx: &ControllerContext) -> Self {
        let cache = ctx.cache(target());
        crate::controller_ref::index_orphans(&cache);
        Self(CacheOf::keeping(cache, KEPT))
    }

    /// The cache behind it.
    pub(crate) fn cache(&self) -> &Cache {
        self.0.cache()
    }

    /// Objects as pods. One that does not read as a pod is nobody's replica, and is reported.
    pub(crate) fn decoded(&self, objects: &[Arc<Object>]) -> Vec<Arc<Pod>> {
        let decode = |object: &Arc<Object>| {
            let decoded = self.0.decoded(object);
            decoded.inspect_err(|error| tracing::warn!(%error, "a pod cannot be read and is left out")).ok()
        };
        objects.iter().filter_map(decode).collect()
    }

    /// The pods of a namespace that a selector selects, by name. Only those are decoded.
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
