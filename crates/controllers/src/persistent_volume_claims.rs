//! A PersistentVolumeClaim as controllers see it. In: JSON. Out: what it asks for, what it got, and which pods use it. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use konverge_core::ObjectKey;
use konverge_runtime::{Cache, Object, Target};
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::Value;

use crate::meta::{HasMeta, Meta};

/// The index of pods by the claims they use.
const BY_CLAIM: &str = "claim";

/// A claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Claim {
    pub metadata: Meta,
    pub spec: ClaimSpec,
    pub status: ClaimStatus,
}

/// The spec of a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSpec {
    pub access_modes: Vec<String>,
    pub storage_class_name: Option<String>,
    pub volume_mode: Option<String>,
    pub volume_name: String,
    pub selector: Value,
    pub resources: Resources,
}

/// How much a claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    pub requests: Capacity,
}

/// So much room.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Capacity {
    pub storage: Value,
}

/// What a claim got.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimStatus {
    pub phase: String,
    pub access_modes: Vec<String>,
    pub capacity: Capacity,
}

impl HasMeta for Claim {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The kind.
pub(crate) fn api() -> ApiResource {
    ApiResource::erase::<core::PersistentVolumeClaim>(&())
}

/// All claims.
pub(crate) fn target() -> Target {
    Target::of::<core::PersistentVolumeClaim>()
}

/// The claims a pod uses.
pub(crate) fn used_by(pod: &Object) -> Vec<ObjectKey> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Volume {
        name: String,
        persistent_volume_claim: Option<Source>,
        ephemeral: Option<serde::de::IgnoredAny>,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Source {
        claim_name: String,
    }
    let volumes = pod.pointer("/spec/volumes").and_then(|volumes| serde_json::from_str::<Vec<Volume>>(volumes).ok());
    let claim = |volume: Volume| match (volume.persistent_volume_claim, volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name),
        (None, Some(_)) => Some(format!("{}-{}", pod.name(), volume.name)),
        (None, None) => None,
    };
    let names = volumes.into_iter().flatten().filter_map(claim);
    names.map(|name| ObjectKey::new(pod.namespace(), &name)).collect()
}

/// Lets a cache of pods find those that use a claim.
pub(crate) fn index(pods: &Cache) {
    pods.add_index(BY_CLAIM, |pod| used_by(pod).iter().map(ToString::to_string).collect());
}

/// The pods that use a claim.
pub(crate) fn users(pods: &Cache, claim: &ObjectKey) -> Vec<Arc<Object>> {
    pods.by_index(BY_CLAIM, &claim.to_string())
}

#[cfg(test)]
mod tests {
    use konverge_runtime::Mode;
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_name_their_claims() {
        let check = |volumes: Value, expect: &[&str]| {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"}, "spec": {"volumes": volumes},
            });
            let pod = Object::parse(&crate::pods::api(), &pod.to_string(), Mode::default()).unwrap();
            let names: Vec<String> = used_by(&pod).iter().map(ToString::to_string).collect();
            assert_eq!(names, expect, "{volumes}");
        };
        check(json!(null), &[]);
        check(json!([{"name": "tmp", "emptyDir": {}}]), &[]);
        let both =
            json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}}]);
        check(both, &["a/data", "a/p-e"]);
    }
}
