//! The kinds of the benchmark as Rust types, the same for every subject that has types.

use konverge::prelude::*;

/// What a widget asks for.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "bench.konverge.dev", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
pub struct WidgetSpec {
    /// Red, green or blue.
    pub color: String,
    /// A KiB of random text.
    pub payload: String,
    /// A number, or when a change was due.
    pub sequence: u64,
    /// Up to a hundred.
    pub size: u32,
}

/// What is true of a widget.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WidgetStatus {
    /// Whether it has its children.
    #[serde(default)]
    pub ready: bool,
    /// For which generation.
    pub observed_generation: Option<i64>,
}
