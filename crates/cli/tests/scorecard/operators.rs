//! Operators that are measured: one that is right, and some that are each wrong in one way. They are run by this very program, under a name in the environment.

use konverge::prelude::*;

/// What a user asks for.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced, status = "ShopStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShopSpec {
    /// How many replicas run.
    #[schemars(range(min = 0, max = 9))]
    pub replicas: i32,
    /// Whether its data are copied.
    #[serde(default)]
    pub backup: bool,
}

/// What the operator has observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ShopStatus {
    /// The generation of the spec that this status describes.
    pub observed_generation: i64,
}

/// An older version of the same kind, which is served and converted.
pub(crate) mod v1beta1 {
    use super::ShopStatus;
    use konverge::prelude::*;

    /// What a user asks for.
    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Shop", namespaced, status = "ShopStatus")]
    pub(crate) struct ShopSpec {
        /// How many replicas run.
        pub size: i32,
    }
}

impl From<v1beta1::Shop> for Shop {
    fn from(old: v1beta1::Shop) -> Self {
        let spec = ShopSpec { replicas: old.spec.size, backup: false };
        Self { metadata: old.metadata, spec, status: old.status }
    }
}

impl From<Shop> for v1beta1::Shop {
    fn from(new: Shop) -> Self {
        let spec = v1beta1::ShopSpec { size: new.spec.replicas };
        Self { metadata: new.metadata, spec, status: new.status }
    }
}

/// Runs the operator of a name.
pub(crate) async fn run(name: &str) -> Result<()> {
    let operator = Operator::<Shop>::new();
    match name {
        "right" => operator.reconcile(right).owns::<Deployment>().owns::<ConfigMap>().run().await,
        "converting" => {
            let operator = operator.version::<v1beta1::Shop>();
            operator.reconcile(right).owns::<Deployment>().owns::<ConfigMap>().run().await
        }
        "older" => Operator::<v1beta1::Shop>::new().reconcile(older).owns::<ConfigMap>().run().await,
        "chatty" => operator.reconcile(chatty).owns::<Deployment>().run().await,
        "forbidden" => operator.reconcile(forbidden).owns::<Deployment>().run().await,
        "forgetful" => operator.reconcile(forgetful).owns::<ConfigMap>().run().await,
        "crashing" if std::env::args().len() == 1 => {
            println!("no luck today");
            std::process::exit(3)
        }
        _ => operator.reconcile(right).owns::<Deployment>().owns::<ConfigMap>().run().await,
    }
}

async fn right(ctx: Context<Shop>) -> Result<Action> {
    let spec = &ctx.resource().spec;
    if spec.backup {
        ctx.apply(ConfigMap::new(format!("{}-backup", ctx.name())).data("done", "yes")).await?;
    }
    let deployment = ctx.apply(deployment(&ctx)).await?;
    let is_ready = deployment.has_ready(spec.replicas);
    if is_ready && !ctx.conditions().is_true(READY) {
        ctx.event("Ready", "all replicas are ready").await?;
    }
    tell(&ctx, is_ready).await
}

/// Knows the older version only.
async fn older(ctx: Context<v1beta1::Shop>) -> Result<Action> {
    let size = ctx.resource().spec.size;
    ctx.apply(ConfigMap::new(ctx.name()).data("size", size.to_string())).await?;
    let observed_generation = ctx.resource().metadata.generation.unwrap_or_default();
    ctx.set_status(ShopStatus { observed_generation }).await?;
    Ok(Action::await_change())
}

/// Tells an event in every reconcile.
async fn chatty(ctx: Context<Shop>) -> Result<Action> {
    let deployment = ctx.apply(deployment(&ctx)).await?;
    ctx.event("Reconciled", "and again").await?;
    tell(&ctx, deployment.has_ready(ctx.resource().spec.replicas)).await
}

/// Writes a kind that it does not declare.
async fn forbidden(ctx: Context<Shop>) -> Result<Action> {
    ctx.apply(Secret::new(ctx.name())).await?;
    tell(&ctx, true).await
}

/// Makes something only if the status says that it has not done so yet, and says so before it has. Killed in between, it never makes it.
async fn forgetful(ctx: Context<Shop>) -> Result<Action> {
    if ctx.resource().status.is_none() {
        tell(&ctx, true).await?;
        ctx.apply(ConfigMap::new(ctx.name()).data("made", "yes")).await?;
    }
    Ok(Action::await_change())
}

fn deployment(ctx: &Context<Shop>) -> Deployment {
    let resources = Resources::new().cpu_request("100m").memory_request("64Mi").cpu_limit("1").memory_limit("64Mi");
    let container = Container::new("app").image("nginx:1.29").resources(resources);
    let container = container.security_context(SecurityContext::restricted());
    Deployment::new(ctx.name()).replicas(ctx.resource().spec.replicas).container(container)
}

async fn tell(ctx: &Context<Shop>, is_ready: bool) -> Result<Action> {
    let condition = match is_ready {
        true => Condition::yes(READY, "AllReady", "all replicas are ready"),
        false => Condition::no(READY, "NotReady", "some replicas are not ready"),
    };
    let observed_generation = ctx.resource().metadata.generation.unwrap_or_default();
    ctx.set_status_with(ShopStatus { observed_generation }, [condition]).await?;
    Ok(Action::await_change())
}
