//! The kinds of the benchmark as Rust types, the same for every implementation that uses types.

use konverge::prelude::*;

/// The spec of a widget.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "bench.konverge.dev", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
pub(crate) struct WidgetSpec {
    /// Red, green or blue.
    pub color: String,
    /// A KiB of random text.
    pub payload: String,
    /// A number, or the time at which a change was due.
    pub sequence: u64,
    /// A number below a hundred.
    pub size: u32,
}

/// The status of a widget.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WidgetStatus {
    /// Whether all children exist.
    #[serde(default)]
    pub ready: bool,
    /// The generation that was reconciled.
    pub observed_generation: Option<i64>,
}
