//! The quick start's kind, in a crate with the dependencies of a user: `konverge` and `tokio`.

use konverge::prelude::*;

/// What is wanted of a web application.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "WebApp", namespaced)]
pub struct WebAppSpec {
    /// What it runs.
    pub image: String,
    /// How many of it.
    pub replicas: u32,
}
