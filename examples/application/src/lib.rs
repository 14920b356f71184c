//! An operator with everything that a real one has: a custom resource with a validated schema, webhooks that refuse and default,
//! three children, a status, a finalizer, events and metrics of its own. `konverge dev` runs it.
//!
//! ```text
//! Application ─▶ ConfigMap NAME-config ─▶ Deployment NAME ─▶ Service NAME
//!      ▲                                       │
//!      └── phase, conditions, replicas ────────┘
//! ```

mod admission;
mod image;

use std::collections::BTreeMap;

use konverge::prelude::*;
use konverge::{Counter, Gauge, Labelled, MetricError};

/// What a user asks for.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "cloudnative.elide.dev", version = "v1", kind = "Application", namespaced)]
#[kube(status = "ApplicationStatus", shortname = "app", category = "all")]
#[kube(scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas"))]
#[kube(printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#)]
#[kube(printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}"#)]
#[kube(printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"}"#)]
#[kube(printcolumn = r#"{"name": "Image", "type": "string", "jsonPath": ".spec.image", "priority": 1}"#)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
pub struct ApplicationSpec {
    /// How many replicas run: one unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100), extend("default" = 1))]
    pub replicas: Option<i32>,
    /// The image to run, from gcr.io or docker.io.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, length(min = 1))]
    pub image: Option<String>,
    /// How a new version replaces the old one: replica by replica unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "RollingUpdate"))]
    pub strategy: Option<Strategy>,
    /// Configuration of the application, as environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// The port it listens on.
    #[serde(default = "http")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The resources that each replica requests, and their limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Limits>,
}

fn http() -> i32 {
    80
}

/// How a new version replaces the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Strategy {
    /// Replica by replica.
    #[default]
    RollingUpdate,
    /// All at once, after the old ones are gone.
    Recreate,
}

/// Quantities such as `cpu: 500m`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// What a replica requests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// What a replica may use at most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

/// What the operator has observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationStatus {
    /// The generation of the spec that this status describes.
    pub observed_generation: i64,
    /// How many replicas there are.
    pub replicas: i32,
    /// How many of them are ready.
    pub ready_replicas: i32,
    /// A summary in one word.
    pub phase: Phase,
}

/// The summary of an application's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Replicas are still starting.
    #[default]
    Pending,
    /// All replicas are ready.
    Running,
    /// The desired state cannot be reached.
    Failed,
    /// No replicas are desired, and none are left.
    Succeeded,
}

/// The metrics of this operator, besides those that every operator has.
#[derive(Clone, Debug)]
struct Meters {
    phases: Labelled<Counter, 1>,
    ready: Labelled<Gauge, 2>,
}

/// The operator, for `main`, for tests and for `konverge dev`. Its own metrics are added to `metrics`.
pub fn operator(metrics: &Metrics) -> Result<Operator<Application>, MetricError> {
    let meters = Meters {
        phases: metrics.counter_by(
            "application_phase_changes_total",
            "Applications that came to a phase",
            ["phase"],
        )?,
        ready: metrics.gauge_by("application_ready_replicas", "Ready replicas", ["namespace", "name"])?,
    };
    let operator = Operator::<Application>::new().state(meters).reconcile(reconcile).on_delete(cleanup);
    let operator = operator.owns::<Deployment>().owns::<Service>().owns::<ConfigMap>();
    let operator = operator.default_with(admission::defaults).validate(admission::validate);
    Ok(operator.webhook(admission::pod_policy()).metrics(metrics.clone()))
}

async fn reconcile(ctx: Context<Application>) -> Result<Action> {
    let meters = ctx.state::<Meters>()?;
    match apply_children(&ctx).await {
        Ok(deployment) => {
            update_status(&ctx, meters, &deployment).await?;
            Ok(Action::await_change())
        }
        Err(error) => {
            let status =
                ApplicationStatus { phase: Phase::Failed, ..ctx.resource().status.clone().unwrap_or_default() };
            write_status(&ctx, meters, status, "ReconciliationFailed", &error.to_string()).await?;
            Err(error)
        }
    }
}

/// The cleanup: Kubernetes deletes the children, so only the metrics of the application are left to remove.
async fn cleanup(ctx: Context<Application>) -> Result<()> {
    ctx.state::<Meters>()?.ready.remove([ctx.namespace(), ctx.name()]);
    ctx.event("Deleted", "its Deployment, Service and ConfigMap go with it").await
}

/// Applies the children. Changes that somebody else made to them are undone.
async fn apply_children(ctx: &Context<Application>) -> Result<Deployment> {
    let spec = &ctx.resource().spec;
    let config = format!("{}-config", ctx.name());
    let settings = spec.config.iter().fold(ConfigMap::new(&config), |map, (key, value)| map.data(key, value));
    let settings = ctx.apply(settings).await?;

    let limits = spec.resources.clone().unwrap_or_default();
    let resources = limits.requests.iter().fold(Resources::new(), |all, (name, amount)| all.request(name, amount));
    let resources = limits.limits.iter().fold(resources, |all, (name, amount)| all.limit(name, amount));
    let container = Container::new("app").image(spec.image.as_deref().unwrap_or_default()).port(spec.port);
    let sandbox = SecurityContext::new().allow_privilege_escalation(false);
    let container = container.resources(resources).security_context(sandbox).all_env_from_configmap(&config);
    let deployment = Deployment::new(ctx.name())
        .replicas(spec.replicas.unwrap_or(1))
        .container(container)
        .pod_labels(
            Labels::new().insert(admission::NAME, ctx.name()).insert(admission::MANAGED_BY, admission::OPERATOR),
        )
        // Containers read their environment only when they start.
        .restart_when(&settings);
    let deployment = match spec.strategy.unwrap_or_default() {
        Strategy::RollingUpdate => deployment.rolling_update("25%", "25%"),
        Strategy::Recreate => deployment.recreate(),
    };
    let deployment = ctx.apply(deployment).await?;

    let selector = Selector::new().insert("app", ctx.name());
    ctx.apply(Service::new(ctx.name()).port(80, spec.port).selector(selector)).await?;
    Ok(deployment)
}

/// Derives the status from that of the Deployment, and writes it.
async fn update_status(ctx: &Context<Application>, meters: &Meters, deployment: &Deployment) -> Result<()> {
    let app = ctx.resource();
    let (wanted, ready) = (app.spec.replicas.unwrap_or(1), deployment.ready_replicas());
    let replicas = deployment.inner().status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
    let failure = rollout_failure(deployment);
    let phase = match wanted {
        _ if failure.is_some() => Phase::Failed,
        0 if replicas == 0 => Phase::Succeeded,
        _ if ready >= wanted && wanted > 0 => Phase::Running,
        _ => Phase::Pending,
    };
    let observed_generation = app.metadata.generation.unwrap_or_default();
    let status = ApplicationStatus { observed_generation, replicas, ready_replicas: ready, phase };
    meters.ready.with([ctx.namespace(), ctx.name()]).set(f64::from(ready));
    let reason = if failure.is_some() { "ReconciliationFailed" } else { "ReconciliationSucceeded" };
    let message = failure.unwrap_or_else(|| format!("{ready} of {wanted} replicas are ready"));
    write_status(ctx, meters, status, reason, &message).await?;
    let updating = !deployment.is_rolled_out() && wanted > 0;
    let (reason, message) = if updating { ("Updating", "replicas are starting") } else { (reason, "nothing is to do") };
    ctx.set_condition(Condition::new(PROGRESSING, updating, reason, message)).await
}

/// Writes the status and the condition `Ready`. A new phase is also recorded as an event and counted.
async fn write_status(
    ctx: &Context<Application>,
    meters: &Meters,
    status: ApplicationStatus,
    reason: &str,
    message: &str,
) -> Result<()> {
    let phase = status.phase;
    let before = ctx.resource().status.as_ref().map(|status| status.phase);
    ctx.set_status(status).await?;
    let ready = matches!(phase, Phase::Running | Phase::Succeeded);
    let reason = if ready || phase == Phase::Failed { reason } else { "ReplicasNotReady" };
    ctx.set_condition(Condition::new(READY, ready, reason, message)).await?;
    if before != Some(phase) {
        meters.phases.with([&format!("{phase:?}")]).inc();
        match phase {
            Phase::Failed => ctx.warning("Failed", message).await?,
            phase => ctx.event(format!("{phase:?}"), message).await?,
        }
    }
    Ok(())
}

/// Why the rollout of a Deployment failed, if it did.
fn rollout_failure(deployment: &Deployment) -> Option<String> {
    let conditions = deployment.inner().status.as_ref()?.conditions.as_ref()?;
    let message = |kind: &str, status: &str| {
        let found = conditions
            .iter()
            .find(|one| one.type_.as_deref() == Some(kind) && one.status.as_deref() == Some(status))?;
        found.message.clone().or_else(|| found.reason.clone())
    };
    message("Progressing", "False").or_else(|| message("ReplicaFailure", "True"))
}
