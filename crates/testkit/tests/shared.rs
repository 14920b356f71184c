//! What reconciles share and make only once: state of the operator's own, and objects that are left alone afterwards.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use konverge::prelude::*;
use konverge_testkit::{Cluster, Fake, Retry, Verb, retry};

/// Has a password.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Vault", namespaced)]
pub struct VaultSpec {
    /// Where the password is, if not here.
    pub namespace: Option<String>,
}

fn vault(name: &str) -> Vault {
    Vault::new(name, VaultSpec { namespace: None })
}

/// Numbers from one on.
#[derive(Default)]
struct Numbers(AtomicUsize);

async fn reconcile(ctx: Context<Vault>) -> Result<Action> {
    let number = ctx.state::<Arc<Numbers>>()?.0.fetch_add(1, Relaxed);
    let secret = Secret::new(format!("{}-login", ctx.name())).data("password", format!("p{number}"));
    let secret = match &ctx.resource().spec.namespace {
        Some(namespace) => secret.namespace(namespace),
        None => secret,
    };
    let login = ctx.create_once(secret).await?;
    ctx.apply(ConfigMap::new(ctx.name()).data("seen", login.get_text("password").unwrap_or("none"))).await?;
    Ok(Action::await_change())
}

fn operator() -> Operator<Vault> {
    Operator::<Vault>::new().across_namespaces().state(Arc::new(Numbers::default())).reconcile(reconcile)
}

fn seen(text: &'static str) -> impl Fn(&ConfigMap) -> bool {
    move |map| map.get("seen") == Some(text)
}

#[tokio::test]
async fn what_is_created_once_is_never_changed_again() -> Result<()> {
    let fake = Fake::new().with(vault("v"));
    let operator = operator();
    fake.reconcile(&operator, "v").await?;
    let login: Secret = fake.get("v-login").await?;
    let owners = login.inner().metadata.owner_references.clone().unwrap_or_default();
    assert_eq!((login.get_text("password"), owners[0].name.as_str()), (Some("p0"), "v"));

    // The second reconcile has another password to offer, and nobody wants it.
    fake.forget_calls();
    fake.reconcile(&operator, "v").await?;
    assert!(fake.writes().is_empty(), "{}", fake.writes());
    fake.edit("v-login", |login: &mut Secret| *login = login.clone().data("password", "mine")).await?;
    fake.reconcile(&operator, "v").await?;
    assert_eq!(fake.get::<Secret>("v-login").await?.get_text("password"), Some("mine"));
    assert!(seen("mine")(&fake.get("v").await?));
    assert!(fake.used().without(&operator.owns::<Secret>().owns::<ConfigMap>().rules()).is_empty());
    Ok(())
}

#[tokio::test]
async fn what_somebody_else_made_is_taken_as_it_is() -> Result<()> {
    let fake = Fake::new().with(vault("v")).with(Secret::new("v-login").data("password", "brought"));
    fake.reconcile(&operator(), "v").await?;
    assert_eq!(fake.writes().lines(), ["apply ConfigMap default/v"]);
    assert!(seen("brought")(&fake.get("v").await?));
    assert!(fake.get::<Secret>("v-login").await?.inner().metadata.owner_references.is_none());
    Ok(())
}

/// The cache may not show yet what another has made, or what an answer that was lost would have told.
#[tokio::test(start_paused = true)]
async fn of_two_that_create_one_is_first() -> Result<()> {
    let fake = Fake::new().with(vault("v"));
    fake.when::<Secret>(Verb::Create).once().lose_answer();
    let running = fake.run_unrestricted(operator());
    fake.wait_until("v", seen("p0")).await?;
    running.stop().await?;
    assert_eq!(fake.events().await?, [""; 0]);

    let fake = Fake::new().with(vault("v"));
    fake.when::<Secret>(Verb::Create).fail_with(409, "secrets \"v-login\" already exists");
    let error = fake.reconcile(&operator(), "v").await.unwrap_err();
    assert_eq!(retry(&error), Retry::Fresh);
    Ok(())
}

#[tokio::test]
async fn what_was_created_once_is_made_anew_when_it_is_deleted() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Vault>().await?;
    let running = cluster.run_unrestricted(operator());
    cluster.create(vault("v")).await?;
    cluster.wait_until("v", seen("p0")).await?;
    cluster.delete::<Secret>("v-login").await?;
    cluster.wait_until("v-login", |login: &Secret| login.get_text("password") != Some("p0")).await?;
    cluster.delete::<Vault>("v").await?;
    cluster.wait_gone::<Secret>("v-login").await?;
    running.stop().await
}

/// Where there can be no owner reference an annotation names the owner, as for what is applied.
#[tokio::test]
async fn it_may_lie_in_another_namespace() -> Result<()> {
    let mut vault = vault("v");
    vault.spec.namespace = Some("safe".into());
    let fake = Fake::new().with(vault).with(Namespace::new("safe"));
    fake.reconcile(&operator(), "v").await?;
    let login: Secret = fake.get("safe/v-login").await?;
    assert_eq!(login.get_annotation("konverge.dev/owner"), Some("Vault.example.com/default/v"));
    Ok(())
}

#[tokio::test]
async fn state_that_is_missing_is_named() -> Result<()> {
    let fake = Fake::new().with(vault("v"));
    let error = fake.reconcile(&Operator::<Vault>::new().reconcile(reconcile), "v").await.unwrap_err();
    let message = error.to_string();
    let expect = "the operator of Vault has no state of the type alloc::sync::Arc<";
    assert!(message.starts_with(expect) && message.ends_with("; give it one with .state(…)"), "{message}");
    assert_eq!((retry(&error), error.get_reason()), (Retry::UntilChanged, "StateMissing"));
    Ok(())
}
