//! The quick start: a web application from an image and a number of replicas. It is a library, so that tests can run it.

use konverge::prelude::*;

/// What a user asks for.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "WebApp", namespaced)]
pub struct WebAppSpec {
    /// The image to run.
    pub image: String,
    /// How many replicas run.
    pub replicas: u32,
}

/// Applies a Deployment and a Service, both with the name of the WebApp.
pub async fn reconcile(ctx: Context<WebApp>) -> Result<Action> {
    let app = ctx.resource();

    ctx.apply(
        Deployment::new(ctx.name())
            .replicas(app.spec.replicas)
            .container(Container::new("app").image(&app.spec.image).port(80)),
    )
    .await?;

    ctx.apply(Service::new(ctx.name()).port(80, 80).selector(Selector::new().insert("app", ctx.name()))).await?;

    Ok(Action::requeue(Duration::from_secs(300)))
}

/// The operator, for `main` and for tests.
pub fn operator() -> Operator<WebApp> {
    Operator::<WebApp>::new().reconcile(reconcile).with_finalizer().owns::<Deployment>().owns::<Service>()
}
