//! The snippets "Operator" and "Context" of the documentation, word for word, and around them the least that makes them
//! whole.

#![allow(missing_docs, unused_variables, reason = "the documentation shows it like this")]

use konverge::prelude::*;

/// What the snippets call `MyResource`.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "MyResource", namespaced, status = "MyStatus")]
pub struct MyResourceSpec {}

/// What the snippets call `MyStatus`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MyStatus {
    ready: bool,
}

async fn cleanup_fn(_ctx: Context<MyResource>) -> Result<()> {
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let reconcile_fn = reconcile;
    Operator::<MyResource>::new()
        .reconcile(reconcile_fn) // Required: reconciliation function
        .on_delete(cleanup_fn) // Optional: cleanup on deletion
        .with_finalizer() // Optional: auto-manage finalizer
        .requeue_after(Duration::from_secs(300)) // Default requeue interval
        .error_requeue(Duration::from_secs(60)) // Requeue on error
        .run()
        .await
}

async fn reconcile(ctx: Context<MyResource>) -> Result<Action> {
    // Access the resource
    let resource = ctx.resource();
    let name = ctx.name();
    let namespace = ctx.namespace();

    // Apply child resources (creates or updates)
    ctx.apply(Deployment::new("my-deploy")).await?;

    // Delete child resources
    ctx.delete::<Deployment>("old-deploy").await?;

    // Get existing resources
    let deploy: Option<Deployment> = ctx.get("my-deploy").await?;

    // Set status
    ctx.set_status(MyStatus { ready: true }).await?;

    // Emit events
    ctx.event("Reconciled", "Successfully reconciled resource").await?;
    ctx.warning("Issue", "Something needs attention").await?;

    Ok(Action::requeue(Duration::from_secs(300)))
}
