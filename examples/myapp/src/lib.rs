//! An operator with a status: a Deployment for each MyApp, a phase and conditions, and a validation of the spec whose errors are
//! not retried until the spec changes.

use konverge::prelude::*;

/// What a user asks for.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "MyApp",
    namespaced,
    status = "MyAppStatus",
    shortname = "app",
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#
)]
pub struct MyAppSpec {
    /// How many replicas run; at least one.
    pub replicas: i32,
    /// The image to run.
    pub image: String,
    /// The port it listens on.
    pub port: i32,
}

/// What the operator has observed. No field is required: if the spec is invalid, only a condition is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MyAppStatus {
    /// `Pending` until all replicas are ready, then `Running`.
    pub phase: String,
    /// How many replicas are ready.
    pub ready_replicas: i32,
}

/// Applies a Deployment for the spec, and derives the status from the Deployment's.
pub async fn reconcile(ctx: Context<MyApp>) -> Result<Action> {
    let app = ctx.resource();
    check(&app.spec)?;

    let deployment = ctx
        .apply(
            Deployment::new(ctx.name())
                .replicas(app.spec.replicas)
                .container(Container::new("app").image(&app.spec.image).port(app.spec.port)),
        )
        .await?;

    let ready = deployment.ready_replicas();
    let running = ready >= app.spec.replicas;
    let phase = if running { "Running" } else { "Pending" };
    let message = format!("{ready} of {} replicas are ready", app.spec.replicas);
    let conditions = if running {
        let complete = Condition::no(PROGRESSING, "DeploymentComplete", "nothing is left to do");
        [Condition::yes(READY, "AllReady", message), complete]
    } else {
        let deploying = Condition::yes(PROGRESSING, "Deploying", "replicas are starting");
        [Condition::no(READY, "NotAllReady", message), deploying]
    };
    ctx.set_status_with(MyAppStatus { phase: phase.into(), ready_replicas: ready }, conditions).await?;
    if running {
        ctx.event("Running", "all replicas are ready").await?;
    }
    Ok(Action::await_change())
}

/// Validates a spec, and returns all errors at once.
fn check(spec: &MyAppSpec) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::new();
    if spec.replicas < 1 {
        errors.invalid("spec.replicas", spec.replicas, "must be greater than 0");
    }
    if !(1..=65535).contains(&spec.port) {
        errors.invalid("spec.port", spec.port, "must be between 1 and 65535");
    }
    errors.into_result()
}

/// The operator, for `main` and for tests.
pub fn operator() -> Operator<MyApp> {
    Operator::<MyApp>::new().reconcile(reconcile).owns::<Deployment>()
}
