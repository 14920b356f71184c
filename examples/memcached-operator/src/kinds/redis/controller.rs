//! Reconciles Redis: a Deployment of the same name, and a status that says how far it is.

use konverge::prelude::*;

use super::{Redis, RedisStatus};

/// The controller and what it may do. A kind that it writes is declared by `owns`, one that it only reads by `watches` or
/// `refers_to`; the roles of the operator follow from that.
pub fn controller() -> Controller<Redis> {
    Controller::new().reconcile(reconcile).owns::<Deployment>()
}

/// Makes the cluster look as the spec says. It runs whenever the object or its Deployment changes, and may run at any other
/// time: what is so already is not written again.
async fn reconcile(ctx: Context<Redis>) -> Result<Action> {
    let spec = &ctx.resource().spec;
    let resources = Resources::new()
        .cpu_request("100m")
        .cpu_limit("500m")
        .memory_request("128Mi")
        .memory_limit("512Mi");
    let container = Container::new("app")
        .image(&spec.image)
        .resources(resources)
        .security_context(SecurityContext::restricted());
    let deployment = Deployment::new(ctx.name())
        .label("app.kubernetes.io/managed-by", "memcached-operator")
        .replicas(spec.replicas)
        .container(container);
    let deployment = ctx.apply(deployment).await?;

    let ready_replicas = deployment.ready_replicas();
    let message = format!("{ready_replicas} of {} replicas are ready", spec.replicas);
    let condition = if deployment.has_ready(spec.replicas) {
        if !ctx.conditions().is_true(READY) {
            ctx.event("Ready", &message).await?;
        }
        Condition::yes(READY, "AllReady", message)
    } else {
        Condition::no(READY, "NotAllReady", message)
    };
    let observed_generation = ctx.resource().metadata.generation.unwrap_or_default();
    let status = RedisStatus { observed_generation, ready_replicas };
    ctx.set_status_with(status, [condition]).await?;
    Ok(Action::await_change())
}
