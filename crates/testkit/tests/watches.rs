//! Other kinds that wake an operator's objects: for several reasons at once, and because the objects name them.

use konverge::k8s_openapi::api::core::v1::Namespace;
use konverge::kube::api::ObjectMeta;
use konverge::prelude::*;
use konverge::{Rules, Settings};
use konverge_testkit::{Call, Cluster, Verb};

/// Shows how long the text in a Secret is, in a ConfigMap; and has a Secret of its own.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Reader", namespaced)]
pub struct ReaderSpec {
    /// The Secret to read.
    pub reads: String,
}

fn reader(name: &str, reads: &str) -> Reader {
    Reader::new(name, ReaderSpec { reads: reads.into() })
}

async fn reconcile(ctx: Context<Reader>) -> Result<Action> {
    ctx.apply(Secret::new(format!("{}-own", ctx.name())).data("a", "b")).await?;
    let read = ctx.get::<Secret>(&ctx.resource().spec.reads).await?;
    let length = read.and_then(|secret| secret.get_text("text").map(str::len)).unwrap_or_default();
    ctx.apply(ConfigMap::new(ctx.name()).data("length", length.to_string())).await?;
    Ok(Action::await_change())
}

/// Whom a Secret names as its reader.
fn named(secret: &Secret) -> Vec<ObjectKey> {
    secret.get_label("reader").map(|name| ObjectKey::new(Some("default"), name)).into_iter().collect()
}

fn length(wanted: usize) -> impl Fn(&ConfigMap) -> bool {
    move |config| config.get("length") == Some(wanted.to_string().as_str())
}

/// A kind that belongs to the objects and concerns them in another way wakes them for both reasons, whichever is said
/// first.
#[tokio::test]
async fn a_kind_is_watched_for_every_reason() -> Result<()> {
    let operators = [
        Operator::<Reader>::new().reconcile(reconcile).owns::<Secret>().watches::<Secret>(named),
        Operator::<Reader>::new().reconcile(reconcile).watches::<Secret>(named).owns::<Secret>(),
        // Here the first apply says that Secrets belong to Readers.
        Operator::<Reader>::new().reconcile(reconcile).watches::<Secret>(named),
    ];
    for operator in operators {
        let cluster = Cluster::start().await?;
        cluster.install::<Reader>().await?;
        let running = cluster.run_unrestricted(operator);
        cluster.create(reader("r", "foreign")).await?;
        cluster.wait_until("r", length(0)).await?;

        cluster.create(Secret::new("foreign").label("reader", "r").data("text", "hello")).await?;
        cluster.wait_until("r", length(5)).await?;
        cluster.delete::<Secret>("r-own").await?;
        cluster.wait_until("r-own", |_: &Secret| true).await?;
        running.stop().await?;
    }
    Ok(())
}

/// Reads what it names, here or in another namespace.
async fn read_anywhere(ctx: Context<Reader>) -> Result<Action> {
    let reads = &ctx.resource().spec.reads;
    let read = match reads.split_once('/') {
        Some((namespace, name)) => ctx.within(namespace).get::<Secret>(name).await?,
        None => ctx.get::<Secret>(reads).await?,
    };
    let length = read.and_then(|secret| secret.get_text("text").map(str::len)).unwrap_or_default();
    ctx.apply(ConfigMap::new(ctx.name()).data("length", length.to_string()).data("of", reads)).await?;
    Ok(Action::await_change())
}

/// The objects say whom they read: whatever happens to that one wakes them, here and in other namespaces.
#[tokio::test]
async fn those_that_name_an_object_are_woken() -> Result<()> {
    // Everywhere, or where the operator is told to look, or only where the objects are.
    for namespaces in [&[][..], &["default", "shop"], &["default"]] {
        let namespaces = namespaces.iter().map(ToString::to_string).collect();
        let settings = Settings { namespaces, ..Settings::default() };
        let operator = Operator::<Reader>::new()
            .reconcile(read_anywhere)
            .settings(settings)
            .across_namespaces()
            .refers_to::<Secret>(|reader| {
                assert_ne!(reader.spec.reads, "panic", "one that makes the function panic names nobody");
                vec![reader.spec.reads.clone()]
            });
        assert!(Rules::new().allow::<Secret>(["get", "list", "watch"]).without(&operator.rules()).is_empty());
        let cluster = Cluster::start().await?;
        cluster.install::<Reader>().await?;
        cluster
            .create(Namespace {
                metadata: ObjectMeta { name: Some("shop".into()), ..ObjectMeta::default() },
                ..Namespace::default()
            })
            .await?;
        let running = cluster.run_unrestricted(operator);
        for (name, reads) in [("here", "a"), ("twin", "a"), ("abroad", "shop/a"), ("later", "b"), ("panics", "panic")] {
            cluster.create(reader(name, reads)).await?;
            cluster.wait_until(name, length(0)).await?;
        }

        cluster.create(Secret::new("a").data("text", "hello")).await?;
        cluster.create(Secret::new("a").namespace("shop").data("text", "goodbye")).await?;
        for (name, expected) in [("here", 5), ("twin", 5), ("abroad", 7)] {
            cluster.wait_until(name, length(expected)).await?;
        }
        // Who names another one from now on hears of that.
        cluster.edit("later", |reader: &mut Reader| reader.spec.reads = "a".into()).await?;
        cluster.wait_until("later", length(5)).await?;
        cluster.delete::<Secret>("a").await?;
        for name in ["here", "twin", "later"] {
            cluster.wait_until(name, length(0)).await?;
        }
        assert!(length(7)(&cluster.get("abroad").await?), "another Secret of that name went");
        running.stop().await?;
    }
    Ok(())
}

/// A predicate decides which changes of the named object count.
#[tokio::test]
async fn changes_of_named_objects_can_be_filtered() -> Result<()> {
    let text_changed = Predicate::new(|old: &Secret, new: &Secret| old.get_text("text") != new.get_text("text"));
    let operator = Operator::<Reader>::new()
        .reconcile(|ctx: Context<Reader>| async move {
            ctx.event("Read", "again").await?;
            read_anywhere(ctx).await
        })
        .refers_to_when::<Secret>(|reader| vec![reader.spec.reads.clone()], text_changed);
    let cluster = Cluster::start().await?;
    cluster.install::<Reader>().await?;
    cluster.create(Secret::new("a").data("text", "hello")).await?;
    cluster.create(Secret::new("b")).await?;
    let log = EventLog::default();
    let running = cluster.run_unrestricted(operator.events(log.clone()));
    cluster.create(reader("r", "a")).await?;
    cluster.create(reader("s", "b")).await?;
    cluster.wait_until("r", length(5)).await?;
    cluster.wait_until("s", length(0)).await?;
    let runs = || {
        let of_r = HistoryFilter { key: Some(ObjectKey::new(Some("default"), "r")), ..HistoryFilter::default() };
        log.find(&of_r).iter().map(|event| event.count).sum::<u32>()
    };
    let before = runs();
    // This change does not count. The next one, of another Secret, comes after it and does.
    cluster.edit("a", |secret: &mut Secret| *secret = secret.clone().data("other", "x")).await?;
    cluster.edit("b", |secret: &mut Secret| *secret = secret.clone().data("text", "goodbye")).await?;
    cluster.wait_until("s", length(7)).await?;
    assert_eq!(runs(), before);
    cluster.edit("a", |secret: &mut Secret| *secret = secret.clone().data("text", "bye")).await?;
    cluster.wait_until("r", length(3)).await?;
    running.stop().await?;
    Ok(())
}

/// An object that names something which the operator may not watch says so, instead of being reconciled once and never again.
#[tokio::test]
async fn a_name_that_may_not_be_watched_is_shown_with_the_missing_rule() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Reader>().await?;
    let settings = Settings { namespaces: vec!["default".into()], ..Settings::default() };
    let operator = Operator::<Reader>::new().reconcile(reconcile).across_namespaces().settings(settings);
    let running = cluster.run_unrestricted(operator.refers_to::<Secret>(|reader| vec![reader.spec.reads.clone()]));
    cluster.create(reader("here", "a")).await?;
    cluster.wait_until("here", length(0)).await?;
    // What it watches already goes on.
    cluster.when::<Secret>([Verb::Watch, Verb::List]).fail(403);
    cluster.create(reader("abroad", "shop/a")).await?;
    let event = loop {
        let events = cluster.events().await?;
        if let Some(event) = events.into_iter().find(|event| event.contains("Forbidden")) {
            break event;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert!(event.contains("names a Secret in the namespace shop"), "{event}");
    assert!(event.contains("a Role in namespace shop needs the rule"), "{event}");
    assert!(cluster.find::<ConfigMap>("abroad").await?.is_none());
    running.stop().await
}

/// A namespace is not watched for ever because somebody once named something in it.
#[tokio::test]
async fn a_namespace_is_watched_while_something_in_it_is_named() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Reader>().await?;
    let shop = ObjectMeta { name: Some("shop".into()), ..ObjectMeta::default() };
    cluster.create(Namespace { metadata: shop, ..Namespace::default() }).await?;
    let settings = Settings { namespaces: vec!["default".into()], ..Settings::default() };
    let operator = Operator::<Reader>::new().reconcile(read_anywhere).across_namespaces().settings(settings);
    let running = cluster.run_unrestricted(operator.refers_to::<Secret>(|reader| vec![reader.spec.reads.clone()]));
    let opened = || {
        let calls = cluster.calls();
        let in_shop = |call: &&Call| call.kind == "Secret" && call.namespace.as_deref() == Some("shop");
        calls.iter().filter(in_shop).filter(|call| call.verb == Verb::Watch).count()
    };
    let reads = async |name: &str, what: &'static str| {
        cluster.edit(name, move |reader: &mut Reader| reader.spec.reads = what.into()).await?;
        cluster.wait_until(name, move |config: &ConfigMap| config.get("of") == Some(what)).await
    };
    for name in ["a", "b"] {
        cluster.create(reader(name, "shop/x")).await?;
        cluster.wait_until(name, length(0)).await?;
    }
    reads("a", "x").await?;
    reads("a", "shop/x").await?;
    assert_eq!(opened(), 1, "the other one names it all the time");

    // Nobody tells when a watch is closed; but who names something there again opens another.
    reads("b", "x").await?;
    for _ in 0..500 {
        reads("a", "x").await?;
        reads("a", "shop/x").await?;
        if opened() > 1 {
            break;
        }
    }
    assert_eq!(opened(), 2, "nobody named it any more");
    cluster.create(Secret::new("x").namespace("shop").data("text", "hello")).await?;
    cluster.wait_until("a", length(5)).await?;

    cluster.delete::<Reader>("a").await?;
    for round in 0..500 {
        // The deletion has come when what happened after it has.
        let (later, name) = (format!("later-{round}"), format!("c{round}"));
        cluster.create(reader(&later, "x")).await?;
        cluster.wait_until(&later, length(0)).await?;
        cluster.create(reader(&name, "shop/x")).await?;
        cluster.wait_until(&name, length(5)).await?;
        if opened() > 2 {
            break;
        }
        cluster.delete::<Reader>(&name).await?;
    }
    assert_eq!(opened(), 3, "the one that named it was deleted");
    running.stop().await
}
