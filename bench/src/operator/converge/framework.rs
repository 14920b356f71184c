//! The operator with `konverge::Operator`, as a user writes it.

use konverge::prelude::*;
use kube::Client;

use super::{IMAGE, Reconciles};
use crate::operator::controllers;
use crate::operator::kinds::{Widget, WidgetStatus};

pub(super) fn start(client: Client, reconciles: Reconciles) {
    let operator =
        Operator::<Widget>::new().settings(controllers::settings()).client(client).with_finalizer().reconcile(
            move |ctx| {
                let reconciles = reconciles.clone();
                async move {
                    let done = reconcile(&ctx).await;
                    reconciles.count(&done);
                    done
                }
            },
        );
    tokio::spawn(async move {
        if let Err(error) = operator.run_until(std::future::pending()).await {
            eprintln!("the operator ended: {error}");
        }
    });
}

async fn reconcile(ctx: &Context<Widget>) -> Result<Action> {
    let (name, widget) = (ctx.name(), ctx.resource());
    ctx.apply(ConfigMap::new(name).data("payload", &widget.spec.payload)).await?;
    ctx.apply(Service::new(name).selector([("app", name)]).port(80, 8080)).await?;
    ctx.apply(Deployment::new(name).replicas(0).container(Container::new("web").image(IMAGE).port(8080))).await?;
    ctx.set_status(WidgetStatus { ready: true, observed_generation: widget.metadata.generation }).await?;
    Ok(Action::await_change())
}
