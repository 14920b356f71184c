//! Children of an operator's objects: sets that are pruned, children in other namespaces, and what an operator has to be
//! allowed for all of it.

use konverge::prelude::*;
use konverge::serde_json::json;
use konverge::{Rules, Settings};
use konverge_testkit::{Cluster, Fake, Verb};

/// Names of config maps that are wanted, here and in another namespace; and whether a Secret is.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Family", namespaced)]
pub struct FamilySpec {
    /// In the namespace of the family.
    pub here: Vec<String>,
    /// In the namespace `abroad`.
    pub abroad: Vec<String>,
    /// Whether there is one.
    pub secret: bool,
}

fn family(here: &[&str], abroad: &[&str], secret: bool) -> Family {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Family::new("f", FamilySpec { here: texts(here), abroad: texts(abroad), secret })
}

async fn all_at_once(ctx: Context<Family>) -> Result<Action> {
    let spec = &ctx.resource().spec;
    let children = Children::new()
        .all(spec.here.iter().map(|name| ConfigMap::new(name).data("for", ctx.name())))
        .all(spec.abroad.iter().map(|name| ConfigMap::new(name).namespace("abroad").data("for", ctx.name())))
        .maybe(spec.secret.then(|| Secret::new("s").data("a", "b")));
    ctx.apply_all(children).await?;
    Ok(Action::await_change())
}

fn operator() -> Operator<Family> {
    Operator::<Family>::new().across_namespaces().reconcile(all_at_once)
}

#[tokio::test]
async fn what_is_no_longer_wanted_goes_and_nothing_else() -> Result<()> {
    let fake = Fake::new()
        .with(family(&["a", "b"], &["x", "y"], true))
        .with(ConfigMap::new("foreign"))
        .with(ConfigMap::new("z").namespace("abroad"));
    fake.reconcile(&operator(), "f").await?;
    let first = [
        "apply ConfigMap default/a",
        "apply ConfigMap default/b",
        "apply ConfigMap abroad/x",
        "apply ConfigMap abroad/y",
        "apply Secret default/s",
    ];
    assert_eq!(fake.writes().lines(), first);

    // A steady state writes nothing, also after a restart.
    fake.forget_calls();
    fake.reconcile(&operator(), "f").await?;
    assert!(fake.writes().is_empty(), "{}", fake.writes());

    fake.edit("f", |one: &mut Family| one.spec = family(&["b", "c"], &["y"], false).spec).await?;
    fake.reconcile(&operator(), "f").await?;
    let mut second = fake.writes().lines();
    second.sort();
    let expect = [
        "apply ConfigMap default/c",
        "delete ConfigMap abroad/x",
        "delete ConfigMap default/a",
        "delete Secret default/s",
    ];
    assert_eq!(second, expect);
    assert!(fake.get::<ConfigMap>("foreign").await.is_ok());
    assert!(fake.get::<ConfigMap>("abroad/z").await.is_ok());
    Ok(())
}

#[tokio::test]
async fn a_child_in_another_namespace_is_put_back() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Family>().await?;
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "abroad"}})).await?;
    // The operator looks at one namespace, and into the other only for what it has put there.
    for namespaces in [vec![], vec!["default".to_owned()]] {
        let running = cluster.run_unrestricted(operator().settings(Settings { namespaces, ..Settings::default() }));
        cluster.create(family(&[], &["x"], false)).await?;
        let made: ConfigMap = cluster.wait_until("abroad/x", |_| true).await?;
        assert_eq!(made.get_annotation("konverge.dev/owner"), Some("Family.example.com/default/f"));
        assert!(made.inner().metadata.owner_references.is_none());
        cluster.edit("abroad/x", |one: &mut ConfigMap| *one = one.clone().data("for", "nobody")).await?;
        let is_back = |one: &ConfigMap| one.inner().data.as_ref().is_some_and(|data| data["for"] == "f");
        cluster.wait_until("abroad/x", is_back).await?;
        cluster.delete::<ConfigMap>("abroad/x").await?;
        cluster.wait_until("abroad/x", is_back).await?;
        running.stop().await?;
        cluster.delete::<Family>("f").await?;
        cluster.delete::<ConfigMap>("abroad/x").await?;
        cluster.wait_gone::<ConfigMap>("abroad/x").await?;
    }
    Ok(())
}

/// The last child of a kind in another namespace is found although nothing is wanted there any more: while the operator
/// runs, and after a restart wherever it looks anyway.
#[tokio::test]
async fn the_last_child_in_another_namespace_goes() -> Result<()> {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (namespaces, restarts, declared) in [
        (texts(&[]), true, false),
        (texts(&["default"]), false, false),
        (texts(&["default", "abroad"]), false, false),
        (texts(&["default", "abroad"]), true, false),
        (texts(&["default", "abroad"]), true, true),
    ] {
        let fake = Fake::new().with(family(&["a"], &["x"], false)).with(ConfigMap::new("foreign").namespace("abroad"));
        let run = || {
            let operator = operator().settings(Settings { namespaces: namespaces.clone(), ..Settings::default() });
            fake.run_unrestricted(if declared { operator.owns::<ConfigMap>() } else { operator })
        };
        let mut running = run();
        for key in ["a", "abroad/x"] {
            fake.wait_until(key, |_: &ConfigMap| true).await?;
        }
        if restarts {
            running.stop().await?;
            fake.edit("f", |one: &mut Family| one.spec.abroad.clear()).await?;
            running = run();
        } else {
            fake.edit("f", |one: &mut Family| one.spec.abroad.clear()).await?;
        }
        fake.wait_gone::<ConfigMap>("abroad/x").await?;
        running.stop().await?;
        let deleted = fake.writes().only(|call| call.verb == Verb::Delete).lines();
        assert_eq!(deleted, ["delete ConfigMap abroad/x"], "{namespaces:?}");
    }
    Ok(())
}

/// A namespace that nobody may look into is the trouble of those who want something there.
#[tokio::test]
async fn a_namespace_that_is_refused_holds_up_nobody_else() -> Result<()> {
    let fake = Fake::new().with(family(&["a"], &[], false)).with(ConfigMap::new("foreign").namespace("abroad"));
    let namespaces = vec!["default".to_owned()];
    let running = fake.run_unrestricted(operator().settings(Settings { namespaces, ..Settings::default() }));
    fake.wait_until("a", |_: &ConfigMap| true).await?;

    fake.when::<ConfigMap>([Verb::List, Verb::Watch]).fail(403);
    let mut bold = family(&[], &["x"], false);
    bold.metadata.name = Some("bold".into());
    fake.create(bold).await?;
    while fake.calls().only(|call| call.code == Some(403)).is_empty() {
        tokio::task::yield_now().await;
    }
    fake.edit("f", |one: &mut Family| one.spec = family(&["b"], &[], false).spec).await?;
    fake.wait_until("b", |_: &ConfigMap| true).await?;
    fake.wait_gone::<ConfigMap>("a").await?;
    drop(running);
    Ok(())
}

#[tokio::test]
async fn what_was_used_is_what_has_to_be_allowed() -> Result<()> {
    let fake = Fake::new().with(family(&["a"], &[], false));
    fake.reconcile(&operator(), "f").await?;
    fake.edit("f", |one: &mut Family| one.spec = family(&[], &[], true).spec).await?;
    fake.reconcile(&operator(), "f").await?;
    // Nothing of this is declared yet but the operator's own kind.
    let undeclared = fake.used().without(&operator().rules());
    assert_eq!(undeclared.to_string(), "watch, patch, delete configmaps; watch, patch secrets", "{}", fake.calls());
    let declared = operator().owns::<ConfigMap>().owns::<Secret>();
    assert!(fake.used().without(&declared.rules()).is_empty());
    // What is declared beyond that: lists for servers that cannot stream them, creates that an apply may be, and what
    // conflicts, cleanups and a wider test would use.
    let needless = declared.rules().without(&fake.used());
    assert_eq!(
        needless,
        Rules::new()
            .allow::<ConfigMap>(["get", "list", "create"])
            .allow::<Secret>(["get", "list", "create", "delete"])
            .allow::<konverge::k8s_openapi::api::events::v1::Event>(["create", "patch"])
            .allow::<Family>(["get", "list"])
            .allow_part::<Family>("status", ["patch"])
            .allow_part::<Family>("finalizers", ["update"])
    );
    Ok(())
}

#[tokio::test]
async fn nothing_is_made_in_a_namespace_that_goes_and_nobody_is_alarmed() -> Result<()> {
    // How the server refuses, for a child here and for one abroad.
    let refused = async |one: Family, namespace: &str| {
        let fake = Fake::new().with(one).with(ConfigMap::new("other").namespace("abroad"));
        let words =
            format!("forbidden: unable to create new content in namespace {namespace} because it is being terminated");
        fake.when::<ConfigMap>(Verb::Apply).fail_with(403, &words);
        let outcome = fake.reconcile(&operator(), "f").await;
        Ok::<_, Error>((outcome, fake.events().await?))
    };
    let (outcome, events) = refused(family(&["a"], &[], false), "default").await?;
    assert_eq!(outcome?, Action::await_change());
    assert!(events.is_empty(), "{events:?}");
    // Another namespace was named by somebody, who should know.
    let (outcome, _) = refused(family(&[], &["x"], false), "abroad").await?;
    assert!(outcome.is_err());
    let fake = Fake::new().with(family(&[], &["x"], false));
    let error = fake.reconcile(&operator(), "f").await.unwrap_err();
    assert!(error.to_string().contains("namespaces \"abroad\" not found"), "{error}");
    Ok(())
}
