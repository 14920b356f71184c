//! The WebApp operator with two more controllers, each in an election group of its own. `prove.py --mode groups` runs several of it under
//! faults. Each controller writes kinds, or events with a reason, that no other one writes, so the audit log shows which group wrote.

use konverge::kube::Api;
use konverge::kube::api::PatchParams;
use konverge::prelude::*;
use konverge::{k8s_openapi, kube, serde_json::json};
use webapp::WebApp;

/// Group `pages`: a ConfigMap with the name of the WebApp, a write with a client of one's own, and an event.
async fn pages(ctx: Context<WebApp>) -> Result<Action> {
    let image = &ctx.resource().spec.image;
    ctx.apply(ConfigMap::new(ctx.name()).data("image", image)).await?;
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(ctx.client(), ctx.namespace());
    let published = json!({"metadata": {"annotations": {"published": image}}});
    maps.patch(ctx.name(), &PatchParams::default(), &kube::api::Patch::Merge(published)).await?;
    ctx.event("Published", format!("{image} is published")).await?;
    Ok(Action::await_change())
}

/// Group `budgets`: a PodDisruptionBudget with the name of the Deployment, which has the name of the WebApp.
async fn budgets(ctx: Context<Deployment>) -> Result<Action> {
    let pods = ctx.resource().inner().spec.replicas.unwrap_or(1);
    let selector = Selector::new().insert("app", ctx.name());
    ctx.apply(PodDisruptionBudget::new(ctx.name()).selector(selector).min_available(pods)).await?;
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() -> Result<()> {
    webapp::operator()
        .configure(|settings| settings.name = "webapp".into())
        .and(Controller::<WebApp>::new().named("pages").reconcile(pages).owns::<ConfigMap>().election_group("pages"))
        .and(Controller::<Deployment>::new().named("budgets").reconcile(budgets).election_group("budgets"))
        .run()
        .await
}
