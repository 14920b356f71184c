//! Kubernetes operators that converge.
//!
//! ```text
//! prelude      everything an operator is written with
//! operator     a function for each kind, and the life around it
//! context      what a reconcile is given: the object, and the cluster around it (within: other namespaces);
//!              children are a set of what it applies
//! state        what reconciles share besides the cluster
//! watching     what is watched besides the objects themselves; index: what they are found by
//! derives      CustomResource, Serialize, Deserialize, JsonSchema: a kind of one's own
//! kind         what the API knows of a Rust type
//! definition   what `#[kube(..)]` says → a CRD; structural makes its schema one that Kubernetes accepts
//! builders     Deployment, Service, … as few words
//! rules        what an operator has to be allowed, from what it declares and does
//! testing      one reconcile at a time, for `konverge-testkit` and other test kits
//! settings     from code, flags, environment and a file; metrics, probes and log to see it run
//! ```
//!
//! This crate never knows the API server of this project: an operator meets every cluster over the same protocol.
//!
//! ```no_run
//! use konverge::prelude::*;
//!
//! #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "example.com", version = "v1", kind = "WebApp", namespaced)]
//! pub struct WebAppSpec {
//!     pub image: String,
//!     pub replicas: u32,
//! }
//!
//! async fn reconcile(ctx: Context<WebApp>) -> Result<Action> {
//!     let app = ctx.resource();
//!     let container = Container::new("app").image(&app.spec.image).port(80);
//!     ctx.apply(Deployment::new(ctx.name()).replicas(app.spec.replicas).container(container)).await?;
//!     Ok(Action::await_change())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<()> {
//!     Operator::<WebApp>::new().reconcile(reconcile).run().await
//! }
//! ```

// The derives name this crate `::konverge`, also where this crate uses them itself.
extern crate self as konverge;

pub mod prelude;

mod children;
mod context;
mod engine;
mod index;
mod operator;
mod state;
pub mod testing;
mod watching;
mod within;

pub mod builders;
mod definition;
mod derives;
mod kind;
mod structural;

mod log;
mod meter;
mod metrics;
mod probes;
mod rules;
mod settings;
mod signal;

pub use children::{Children, Converged};
pub use context::Context;
pub use kind::{Kind, Scope};
pub use konverge_core::{FieldError, FieldPath, ObjectKey};
pub use konverge_macros::types;
pub use konverge_runtime::{
    Action, Cause, ClientLayers, Condition, ConditionStatus, Conditions, DEGRADED, Error, Event, EventLog, EventReader,
    FieldErrors, HistoryFilter, PROGRESSING, Predicate, READY, Record, Recorded, RequestInfo, RequestMeter, Result,
    Severity, Subject, Verb, Verdict, What, WriteError, WriteGate, WriteOutcome, WriteRefused,
};
pub use log::{Logging, LossyStderr, start_logging};
pub use metrics::{
    Buckets, Busy, Cached, ControllerMetrics, Counter, Gauge, Histogram, KindMetrics, Labelled, METRICS_CONTENT_TYPE,
    MetricError, Metrics, Outcome, Timer, WorkerMetrics,
};
pub use operator::{IntoAction, Operator};
pub use probes::{Health, HealthCheck, Probes, ProbesError};
pub use rules::Rules;
pub use settings::{
    BackoffSettings, BindAddress, ClusterError, ControllerOverrides, ControllerSettings, Flags, HealthSettings, Loaded,
    Loader, LogFormat, LoggingSettings, MetricsSettings, Print, RateLimitSettings, Settings, SettingsError, Source,
};
pub use watching::Watch;
pub use within::Within;

// For what has no word of its own here: the types behind builders, the client, serde's and schemars' own derives, and the
// log: `konverge::tracing::info!(…)`.
pub use {k8s_openapi, kube, schemars, serde, serde_json, tracing};

/// What the derives write. Not for people: it changes with them.
#[doc(hidden)]
pub mod __private {
    pub use crate::definition::{
        Column, Definition, Scale, merge_strategy, object_schema, structural_schema, validation,
    };
    pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    pub use {kube, schemars, serde};
}
