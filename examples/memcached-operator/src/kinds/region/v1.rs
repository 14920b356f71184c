//! Region in version v1 of the group fleet.example.com: what users write, and what they read back.

use konverge::prelude::*;

/// What a user asks for.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "fleet.example.com", version = "v1", kind = "Region")]
#[kube(printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".spec.replicas"}"#)]
#[kube(printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#)]
#[serde(rename_all = "camelCase")]
pub struct RegionSpec {
    /// How many replicas run: one unless told.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
    /// The image to run.
    #[schemars(length(min = 1))]
    pub image: String,
    /// The namespace that the replicas run in.
    #[serde(default = "default_namespace")]
    pub namespace: String,
}

fn one() -> i32 {
    1
}

fn default_namespace() -> String {
    "default".into()
}
