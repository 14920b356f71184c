//! Kubernetes operators that converge.
//!
//! ```text
//! prelude      everything an operator is written with
//! operator     the process: settings, client, lifecycle, background tasks, and its controllers
//! controller   one kind: the user's functions, what triggers them, and what surrounds each call of them
//!              (watch, references, index, predicate: what triggers it; state: what reconciles share)
//! context      what a reconcile is given: the object, and the cluster around it; objects: a kind known only at run time;
//!              children: a set that is applied and pruned as one
//! reconciliation, cached_client   behind the context: one reconcile, and reads and writes for any kind
//! kind         what the API knows of a Rust type; api_kind: the same as a value
//! derives      CustomResource, Serialize, Deserialize, JsonSchema: a kind of one's own
//! definition   what `#[kube(..)]` says → a CRD; structural makes its schema one that Kubernetes accepts
//! builders     Deployment, Service, … as few words
//! webhook      functions that judge or change objects before they are stored, and how API servers reach them
//! rules        the RBAC rules that an operator needs, from what it declares and does
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

mod operator;

mod controller;
mod index;
mod predicate;
mod references;
mod state;
mod watch;

mod cached_client;
mod children;
mod context;
mod objects;
mod reconciliation;

mod test_conversions;
mod test_reconciler;
mod test_webhooks;
pub mod testing;

pub mod webhook;

mod storage_migration;
mod versions;

mod api_kind;
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

pub use api_kind::ApiKind;
pub use children::{Children, Converged};
pub use context::Context;
pub use controller::{Controller, IntoAction, KeySender, KeyStream, key_channel};
pub use kind::{Kind, Scope};
pub use konverge_core::{FieldError, FieldPath, ObjectKey};
pub use konverge_macros::types;
pub use konverge_runtime::{
    Action, Cause, ClientLayers, Condition, ConditionStatus, Conditions, DEGRADED, Error, Event, EventLog, EventReader,
    FieldErrors, HeldShard, HistoryFilter, NotServed, PROGRESSING, Patch, READY, ReconcileRecord, RecordedEvent,
    RequestInfo, RequestMeter, Result, Severity, Subject, Term, Verb, Verdict, What, WriteError, WriteGate,
    WriteOutcome, WritePass, WriteRefused,
};
pub use log::{Logging, LossyStderr, start_logging};
pub use metrics::{Buckets, Counter, Gauge, Histogram, Labelled, METRICS_CONTENT_TYPE, MetricError, Metrics, Timer};
pub use objects::{Objects, Within};
pub use operator::{BackgroundTask, ElectionGroup, Operator, Process};
pub use predicate::Predicate;
pub use probes::{Health, HealthCheck};
pub use rules::Rules;
pub use settings::{
    BackoffSettings, BindAddress, ClusterError, ControllerOverrides, ControllerSettings, Flags, HealthSettings,
    LeaderElectionSettings, Loaded, Loader, LogFormat, LoggingSettings, MetricsSettings, Print, RateLimitSettings,
    Settings, SettingsError, ShardCache, Source, WebhookSettings,
};
pub use storage_migration::{Migrated, migrate_storage};
pub use watch::Watch;
#[cfg(feature = "ha")]
pub use {
    konverge_raft::{
        Change as ReplicatedChange, MemberCertificates, RaftConfig, RaftNodeManager, RaftStartError, RaftStatus,
        Replicated, ReplicatedError, ReplicatedWatch, Versioned, WatchEvent,
    },
    operator::RaftElection,
};

// The crates whose types are in public signatures (docs/decisions/0017), so that users do not have to match versions.
pub use {clap, http, jiff, k8s_openapi, kube, schemars, serde, serde_json, tracing};

/// For the code that the derives generate, and for the program `konverge`. Not part of the public API.
#[doc(hidden)]
pub mod __private {
    pub use crate::definition::{
        Column, Definition, Scale, merge_strategy, object_schema, structural_schema, validation,
    };
    pub use crate::meter::controller_meter;
    pub use crate::metrics::metric_families;
    pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    pub use {kube, schemars, serde};
}
