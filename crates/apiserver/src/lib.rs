//! A Kubernetes API server in one process: a tower service over a revisioned store.
//!
//! ```text
//!                                              ┌ read ◀────────┐
//! request ─▶ service ─▶ authorize ─▶ handler ─┼ write, delete ─▶ store ─▶ watch ─▶ every client
//!            └ documents (discovery, OpenAPI)  │                 └ crd: new resources in the registry
//!                                              └ watch (each at its own pace)
//! ```
//!
//! Kinds are data: built-in ones come from a generated table, and a custom resource definition adds resources to the same
//! registry. No code knows a kind by name, except for namespaces, definitions, what `assign` gives to pods, jobs and services,
//! and the subresources of pods that do more than store what is sent. This crate never knows the operator side: they
//! meet over HTTP only.

mod handler;
mod server;
mod service;
mod work;

mod audit;
mod authenticate;
mod authorize;
mod context;
mod impersonate;
mod node_authorizer;
mod rbac;
mod review;
mod rights;
mod token_request;
mod user;

mod body;
mod body_memory;
mod decode;
mod in_flight;
mod negotiate;
mod request;

mod behaviour;
mod builtin;
mod lifetime;
mod registry;
mod resource;
mod verb;

mod admission;
mod assign;
mod commit;
mod commit_lock;
mod component_status;
mod conditions;
mod crd;
mod defaults;
mod delete;
mod expire;
mod fence;
mod flow_control;
mod garbage;
mod gated_fields;
mod health;
mod meta;
mod namespace;
mod patch;
mod pod;
mod pod_references;
mod scale;
mod simulation;
mod streaming;
mod subresource;
mod tasks;
mod validation;
mod warning;
mod webhook_client;
mod websocket;
mod write;
mod write_only;

mod conversion;
mod event_cache;
mod filter;
mod read;
mod record;
mod watch;

mod certificate;
mod crd_registry;
mod digest;
mod discovery;
mod documents;
mod env;
mod json_patch;
mod json_path;
mod metrics;
mod openapi;
mod partial;
mod protobuf;
mod render;
mod response;
mod table;

#[cfg(test)]
mod interrupted;

pub use admission::{AbsentPart, AdmissionPlugins, CriteriaError, PluginError, WebhookCriteria};
pub use assign::{ClusterIpRange, NodePortRange, RangeError, ServiceRanges};
pub use audit::{AuditFormat, AuditLogOptions, AuditMode, AuditOptions, AuditOutput, AuditPolicy, AuditPolicyError};
pub use authenticate::{
    Anonymous, AnonymousCondition, AnonymousConfiguration, Authentication, AuthenticationConfigError,
    AuthenticationConfiguration, CertificateRefused, JwtAuthenticator, JwtConfiguration, KeyError, OidcFlags,
    ServiceAccountIssuer, StaticTokens, TokenFileError,
};
pub use authorize::{Attributes, AuthorizationMode, Authorizer, Decision, ResourceAttributes};
pub use body::Body;
pub use crd_registry::{Checked, CrdRegistry, RegisteredKind};
pub use env::{Environment, System};
pub use in_flight::InFlightLimits;
pub use rights::{PermissionReport, ScopedRule};
pub use server::{ActingAs, Aggregation, ApiServer, Collector, MoreMetrics, OpenError, Options, Storage, Versions};
pub use streaming::ClientStream;
pub use user::UserInfo;
pub use validation::{CheckError, PrivilegedContainers, check_object};
pub use webhook_client::{ADDRESS_ANNOTATION, LocalWebhook, WebhookIdentity};
pub use work::RequestLimits;
