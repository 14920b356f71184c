//! The quick start of the documentation, word for word.

#![allow(missing_docs, unused_variables, reason = "the documentation shows it like this")]

use konverge::prelude::*;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "WebApp", namespaced)]
pub struct WebAppSpec {
    pub image: String,
    pub replicas: u32,
}

async fn reconcile(ctx: Context<WebApp>) -> Result<Action> {
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

#[tokio::main]
async fn main() -> Result<()> {
    Operator::<WebApp>::new().reconcile(reconcile).with_finalizer().run().await
}
