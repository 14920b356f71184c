//! Redis in version v1 of the group cache.example.com: what users write, and what they read back.

use konverge::prelude::*;

/// What a user asks for.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "cache.example.com", version = "v1", kind = "Redis", status = "RedisStatus")]
#[kube(plural = "redis", namespaced)]
#[kube(printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".spec.replicas"}"#)]
#[kube(printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.readyReplicas"}"#)]
#[kube(printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#)]
#[serde(rename_all = "camelCase")]
pub struct RedisSpec {
    /// How many replicas run: one unless told.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
    /// The image to run.
    #[schemars(length(min = 1))]
    pub image: String,
}

fn one() -> i32 {
    1
}

/// What the operator has observed. No field is required, so that a failure can be shown before anything else is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RedisStatus {
    /// The generation of the spec that this status describes.
    pub observed_generation: i64,
    /// How many replicas are ready.
    pub ready_replicas: i32,
}
