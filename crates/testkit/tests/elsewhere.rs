//! What a reconcile does outside of its object's namespace, what it says of an object that has changed meanwhile, and what it
//! may ask for.

use konverge::kube::api::{Api, PostParams};
use konverge::prelude::*;
use konverge::{PROGRESSING, READY};
use konverge_testkit::{Fake, Retry, retry};

/// In no namespace.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Tenant", status = "TenantStatus")]
pub struct TenantSpec {
    /// How many, of whatever.
    pub size: u32,
}

/// Nothing in it is required.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TenantStatus {
    /// Whatever.
    pub phase: String,
}

fn fake() -> Fake {
    Fake::new()
        .with(Tenant::new("acme", TenantSpec { size: 1 }))
        .with(ConfigMap::new("x").namespace("shop").data("a", "b"))
        .with(ConfigMap::new("x").namespace("other"))
        .with(Secret::new("x").namespace("shop"))
}

fn operator<Fut>(reconcile: fn(Context<Tenant>) -> Fut) -> Operator<Tenant>
where
    Fut: Future<Output = Result<Action>> + Send + 'static,
{
    Operator::<Tenant>::new().reconcile(reconcile)
}

#[tokio::test]
async fn other_namespaces_are_reached_by_name() -> Result<()> {
    async fn reconcile(ctx: Context<Tenant>) -> Result<Action> {
        // From the server, and from the cache that the list fills.
        assert!(ctx.within("shop").get::<ConfigMap>("x").await?.is_some_and(|found| found.get("a") == Some("b")));
        assert_eq!(ctx.within("shop").list::<ConfigMap>().await?.len(), 1);
        assert_eq!(ctx.list::<ConfigMap>().await?.len(), 2);
        assert_eq!(ctx.everywhere().list::<ConfigMap>().await?.len(), 2);
        // What is in no namespace is found from everywhere.
        assert!(ctx.everywhere().get::<Tenant>("acme").await?.is_some());
        assert!(ctx.within("shop").get::<ConfigMap>("x").await?.is_some());
        assert!(ctx.within("shop").get::<ConfigMap>("y").await?.is_none());
        ctx.within("shop").delete::<ConfigMap>("x").await?;
        ctx.within("shop").delete::<Secret>("x").await?;
        ctx.within("shop").delete::<Secret>("x").await?;
        assert!(ctx.within("shop").get::<ConfigMap>("x").await?.is_none());
        Ok(Action::await_change())
    }
    let fake = fake();
    fake.reconcile(&operator(reconcile), "acme").await?;
    assert_eq!(fake.writes().lines(), ["delete ConfigMap shop/x", "delete Secret shop/x"]);
    Ok(())
}

#[tokio::test]
async fn the_client_does_what_has_no_word_here() -> Result<()> {
    async fn reconcile(ctx: Context<Tenant>) -> Result<Action> {
        let shared = ConfigMap::new("shared").namespace("shop");
        Api::<ConfigMap>::namespaced(ctx.client(), "shop").create(&PostParams::default(), &shared).await?;
        Ok(Action::await_change())
    }
    let fake = fake();
    fake.reconcile(&operator(reconcile), "acme").await?;
    assert_eq!(fake.writes().lines(), ["create ConfigMap shop/shared"]);
    Ok(())
}

/// A cluster-scoped object has no namespace of its own to look into: that nothing is found there would mean nothing.
#[tokio::test]
async fn a_namespace_that_is_missing_is_an_error() -> Result<()> {
    async fn get(ctx: Context<Tenant>) -> Result<Action> {
        ctx.get::<ConfigMap>("x").await.map(|_| Action::await_change())
    }
    async fn get_watched(ctx: Context<Tenant>) -> Result<Action> {
        ctx.list::<ConfigMap>().await?;
        get(ctx).await
    }
    async fn get_everywhere(ctx: Context<Tenant>) -> Result<Action> {
        ctx.everywhere().get::<ConfigMap>("x").await.map(|_| Action::await_change())
    }
    async fn delete(ctx: Context<Tenant>) -> Result<Action> {
        ctx.delete::<ConfigMap>("x").await.map(|()| Action::await_change())
    }
    async fn apply(ctx: Context<Tenant>) -> Result<Action> {
        ctx.apply(ConfigMap::new("x")).await.map(|_| Action::await_change())
    }
    for operator in [operator(get), operator(get_everywhere), operator(get_watched), operator(delete), operator(apply)]
    {
        let fake = fake();
        let error = fake.reconcile(&operator, "acme").await.unwrap_err();
        assert_eq!(retry(&error), Retry::UntilChanged);
        assert!(error.to_string().starts_with("ConfigMap x needs a namespace, and none is given"), "{error}");
        assert_eq!(fake.writes().lines(), ["patch Tenant/status acme"]);
    }
    Ok(())
}

#[tokio::test]
async fn status_and_conditions_are_one_write() -> Result<()> {
    async fn reconcile(ctx: Context<Tenant>) -> Result<Action> {
        let conditions = [Condition::yes(READY, "Open", ""), Condition::no(PROGRESSING, "Done", "")];
        ctx.set_status_with(TenantStatus { phase: "Open".into() }, conditions).await?;
        Ok(Action::await_change())
    }
    async fn take_away(ctx: Context<Tenant>) -> Result<Action> {
        ctx.remove_condition(PROGRESSING).await?;
        ctx.remove_condition("NeverThere").await?;
        Ok(Action::await_change())
    }
    let fake = fake();
    fake.reconcile(&operator(reconcile), "acme").await?;
    assert_eq!(fake.writes().lines(), ["patch Tenant/status acme"]);
    assert_eq!(fake.get::<Tenant>("acme").await?.status.unwrap_or_default().phase, "Open");
    let conditions = fake.conditions::<Tenant>("acme").await?;
    assert!(conditions.is_true(READY) && conditions.get(PROGRESSING).is_some(), "{conditions:?}");

    fake.forget_calls();
    fake.reconcile(&operator(take_away), "acme").await?;
    assert_eq!(fake.writes().lines(), ["patch Tenant/status acme"]);
    let conditions = fake.conditions::<Tenant>("acme").await?;
    assert!(conditions.is_true(READY) && conditions.get(PROGRESSING).is_none(), "{conditions:?}");
    Ok(())
}

/// Whoever waits for a condition of the newest generation must not be told by one that was found for an older.
#[tokio::test]
async fn a_condition_is_of_the_generation_that_was_looked_at() -> Result<()> {
    let fake = std::sync::Arc::new(fake());
    let editor = fake.clone();
    let operator = Operator::<Tenant>::new().reconcile(move |ctx: Context<Tenant>| {
        let editor = editor.clone();
        async move {
            editor.edit("acme", |tenant: &mut Tenant| tenant.spec.size = 2).await?;
            // The cache hears of it: a look at all Tenants shows the new size.
            while ctx.get::<Tenant>("acme").await?.is_some_and(|tenant| tenant.spec.size == 1) {
                tokio::task::yield_now().await;
            }
            ctx.set_condition(Condition::yes(READY, "Looked", "")).await?;
            Ok(Action::await_change())
        }
    });
    fake.reconcile(&operator, "acme").await?;
    assert_eq!(fake.get::<Tenant>("acme").await?.metadata.generation, Some(2));
    let conditions = fake.conditions::<Tenant>("acme").await?;
    let ready = conditions.get(READY).expect("it was set");
    assert_eq!(ready["observedGeneration"], 1, "{ready}");
    Ok(())
}

/// One that always asks for another look at once would be all that is done.
#[tokio::test]
async fn another_look_comes_a_little_later() -> Result<()> {
    for (asked, expect) in [(0, 10), (10, 10), (11, 11)] {
        let milli = Duration::from_millis;
        let operator = Operator::<Tenant>::new().reconcile(move |_| async move { Ok(Action::requeue(milli(asked))) });
        assert_eq!(fake().reconcile(&operator, "acme").await?, Action::requeue(milli(expect)));
    }
    Ok(())
}

/// Who may create an object in one namespace must not get at what is in another one by it.
#[tokio::test]
async fn other_namespaces_are_out_of_reach_unless_it_is_declared() -> Result<()> {
    use konverge::testing::{Retry, retry};

    async fn reconcile(ctx: Context<Secret>) -> Result<Action> {
        match ctx.name() {
            "get" => drop(ctx.within("shop").get::<ConfigMap>("x").await?),
            "list" => drop(ctx.within("shop").list::<ConfigMap>().await?),
            "delete" => ctx.within("shop").delete::<ConfigMap>("x").await?,
            "apply" => drop(ctx.apply(ConfigMap::new("y").namespace("shop")).await?),
            "create" => drop(ctx.create(ConfigMap::new("y").namespace("shop")).await?),
            "own" => drop(ctx.within("default").get::<ConfigMap>("x").await?),
            _ => drop(ctx.everywhere().list::<ConfigMap>().await?),
        }
        Ok(Action::await_change())
    }
    for (name, refused) in [
        ("get", true),
        ("list", true),
        ("delete", true),
        ("apply", true),
        ("create", true),
        ("own", false),
        ("everywhere", false),
    ] {
        let fake = fake().with(Secret::new(name));
        let operator = || Operator::<Secret>::new().reconcile(reconcile);
        let outcome = fake.reconcile(&operator(), name).await;
        assert_eq!(outcome.is_err(), refused, "{name}: {outcome:?}");
        if let Err(error) = outcome {
            assert!(error.to_string().contains("reaches into the namespace \"shop\""), "{error}");
            assert_eq!(retry(&error), Retry::UntilChanged);
            assert!(fake.writes().only(|call| call.kind == "ConfigMap").is_empty(), "{}", fake.writes());
        }
        fake.reconcile(&operator().across_namespaces(), name).await?;
    }
    Ok(())
}
