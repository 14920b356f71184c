//! Kinds that are known only at run time: no Rust type of this file describes a Widget or a Gadget.

use konverge::prelude::*;
use konverge::serde_json::{Value, json};
use konverge::{READY, Scope};
use konverge_testkit::{Cluster, Fake};

fn definition(kind: &str, scope: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// A cluster that serves Widgets, in namespaces, and Gadgets.
async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    cluster.create(definition("Widget", "Namespaced")).await?;
    cluster.create(definition("Gadget", "Namespaced")).await?;
    Ok(cluster)
}

fn gadgets() -> ApiKind {
    ApiKind::new("example.com/v1", "Gadget", "gadgets", Scope::Namespaced)
}

/// What a cluster says of a kind, as soon as it serves it.
async fn discovered(cluster: &Cluster, kind: &str) -> Result<ApiKind> {
    loop {
        match ApiKind::discover(&cluster.client(), "example.com/v1", kind).await {
            Ok(kind) => return Ok(kind),
            Err(error) if error.to_string().contains("does not serve") => tokio::task::yield_now().await,
            Err(error) => return Err(error),
        }
    }
}

fn text(object: &DynamicObject, path: &str) -> String {
    object.data.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A widget has a ConfigMap, and gadgets of its colours.
async fn reconcile(ctx: Context<DynamicObject>) -> Result<Action> {
    let colour = text(ctx.resource(), "/spec/colour");
    if colour == "none" {
        return Err(Error::permanent("a widget has to have a colour"));
    }
    ctx.apply(ConfigMap::new(ctx.name()).data("colour", &colour)).await?;
    let gadgets = ctx.dynamic(&gadgets());
    let gadget = |name: &str| {
        let spec = json!({"spec": {"colour": colour}});
        DynamicObject::new(name, self::gadgets().resource()).data(spec)
    };
    let applied = gadgets.apply(gadget(ctx.name())).await?;
    assert_eq!(text(&applied, "/spec/colour"), colour);
    gadgets.create_once(gadget("shared")).await?;
    let found = gadgets.get(ctx.name()).await?.ok_or_else(|| Error::new("a read after a write sees it"))?;
    assert_eq!(found.metadata.uid, applied.metadata.uid);
    let names: Vec<String> = gadgets.list().await?.into_iter().filter_map(|gadget| gadget.metadata.name).collect();
    ctx.set_status(json!({"gadgets": names.len()})).await?;
    Ok(Action::await_change())
}

async fn cleanup(ctx: Context<DynamicObject>) -> Result<()> {
    ctx.dynamic(&gadgets()).delete("shared").await?;
    ctx.event("Cleaned", "it is tidy").await
}

fn operator(kind: &ApiKind) -> Operator<DynamicObject> {
    Operator::dynamic(kind).reconcile(reconcile).on_delete(cleanup).owns::<ConfigMap>().owns_dynamic(&gadgets())
}

fn coloured(colour: &'static str) -> impl Fn(&ConfigMap) -> bool {
    move |map| map.get("colour") == Some(colour)
}

#[tokio::test]
async fn a_kind_of_others_is_reconciled() -> Result<()> {
    let cluster = cluster().await?;
    let widgets = discovered(&cluster, "Widget").await?;
    assert_eq!(widgets, ApiKind::new("example.com/v1", "Widget", "widgets", Scope::Namespaced));
    discovered(&cluster, "Gadget").await?;
    let operator = operator(&widgets);
    let rules = operator.rules();
    assert!(operator.definitions().is_empty());
    let running = cluster.run_unrestricted(operator);
    cluster.create(widget("w", json!({"colour": "red"}))).await?;
    cluster.wait_until("w", coloured("red")).await?;

    // A gadget that somebody changed is put back: its change reconciles its owner.
    let client = cluster.client();
    let api = konverge::kube::Api::<DynamicObject>::namespaced_with(client.clone(), "default", gadgets().resource());
    let own = konverge::kube::Api::<DynamicObject>::namespaced_with(client, "default", widgets.resource());
    let patch = |value: Value| konverge::kube::api::Patch::Merge(value);
    let until = async |check: &dyn Fn(Option<DynamicObject>) -> bool, name: &str| -> Result<()> {
        while !check(api.get_opt(name).await?) {
            tokio::task::yield_now().await;
        }
        Ok(())
    };
    let is = |colour: &'static str| {
        move |gadget: Option<DynamicObject>| gadget.is_some_and(|gadget| text(&gadget, "/spec/colour") == colour)
    };
    until(&is("red"), "w").await?;
    api.patch("w", &Default::default(), &patch(json!({"spec": {"colour": "grey"}}))).await?;
    until(&is("red"), "w").await?;
    own.patch("w", &Default::default(), &patch(json!({"spec": {"colour": "blue"}}))).await?;
    cluster.wait_until("w", coloured("blue")).await?;
    until(&is("blue"), "w").await?;
    // The second gadget was made once, and keeps its colour.
    until(&is("red"), "shared").await?;
    while own.get("w").await?.data["status"]["gadgets"] != 2 {
        tokio::task::yield_now().await;
    }

    own.delete("w", &Default::default()).await?;
    until(&|gadget| gadget.is_none(), "shared").await?;
    until(&|gadget| gadget.is_none(), "w").await?;
    running.stop().await?;
    assert_eq!(cluster.events().await?, ["Normal Cleaned Widget default/w: it is tidy"]);
    let tests_own = konverge::Rules::new().allow_dynamic(&widgets, "", ["get", "patch", "delete"]).allow_dynamic(
        &gadgets(),
        "",
        ["get", "patch"],
    );
    let missing = cluster.used().without(&rules.and(tests_own));
    assert!(missing.is_empty(), "{missing}");
    Ok(())
}

/// Failures are shown as for other custom resources, and single reconciles work in unit tests.
#[tokio::test]
async fn a_failure_is_shown_on_it() -> Result<()> {
    let fake = Fake::new().with(definition("Widget", "Namespaced")).with(widget("w", json!({"colour": "none"})));
    let widgets = discovered(&fake, "Widget").await?;
    let failed = fake.reconcile(&operator(&widgets), "w").await.unwrap_err();
    assert_eq!(failed.to_string(), "a widget has to have a colour");
    let own = konverge::kube::Api::<DynamicObject>::namespaced_with(fake.client(), "default", widgets.resource());
    let conditions = konverge::Conditions::of(&json!(own.get("w").await?));
    assert_eq!(conditions.get(READY).map(|ready| ready["status"].clone()), Some(json!("False")));
    Ok(())
}

#[tokio::test]
async fn a_kind_that_is_not_served_is_named() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.create(definition("Gadget", "Namespaced")).await?;
    discovered(&cluster, "Gadget").await?;
    for (api_version, kind, why) in [
        ("example.org/v1", "Widget", "there is no kind of the group example.org; install its CustomResourceDefinition"),
        ("example.com/v1", "Widget", "example.com/v1 has Gadget; install its CustomResourceDefinition"),
        (
            "example.com/v2",
            "Gadget",
            "it is served as example.com/v1; use that version, or let the CustomResourceDefinition serve v2",
        ),
        ("apps/v1beta1", "Deployment", "it is served as apps/v1; use that version"),
    ] {
        let missing = ApiKind::discover(&cluster.client(), api_version, kind).await.unwrap_err();
        assert_eq!(missing.to_string(), format!("the server does not serve {kind} of {api_version}: {why}"));
    }
    let missing = ApiKind::discover(&cluster.client(), "v1", "Widget").await.unwrap_err().to_string();
    assert!(missing.ends_with("; this version of Kubernetes does not have it, or it is not enabled"), "{missing}");
    let nodes = ApiKind::discover(&cluster.client(), "v1", "Node").await?;
    assert_eq!((nodes.resource().plural.as_str(), nodes.scope()), ("nodes", Scope::Cluster));
    Ok(())
}

/// Watches, references, indexes and sets of children take such kinds as well.
#[tokio::test]
async fn it_is_watched_referenced_and_found() -> Result<()> {
    async fn count(ctx: Context<ConfigMap>) -> Result<Action> {
        let gadgets = gadgets();
        let named = ctx.dynamic(&gadgets).list_by_index("map", ctx.name()).await?.len();
        let labelled = ctx.dynamic(&gadgets).everywhere().list_by(Selector::new().insert("on", "sale")).await?.len();
        let children = (0..named).map(|at| {
            DynamicObject::new(&format!("{}-{at}", ctx.name()), gadgets.resource()).data(json!({"spec": {}}))
        });
        ctx.apply_all(Children::new().dynamic(&gadgets, children)).await?;
        ctx.apply(Secret::new(ctx.name()).data("found", format!("{named} {labelled}"))).await?;
        Ok(Action::await_change())
    }
    let gadget = |name: &str, map: &str| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Gadget",
            "metadata": {"name": name, "labels": {"on": "sale"}}, "spec": {"map": map},
        })
    };
    let map_of = |gadget: &DynamicObject| text(gadget, "/spec/map");
    let fake = Fake::new()
        .with(definition("Gadget", "Namespaced"))
        .with(ConfigMap::new("a").label("counts", "yes"))
        .with(gadget("one", "a"));
    discovered(&fake, "Gadget").await?;
    let operator = Operator::<ConfigMap>::new()
        .reconcile(count)
        .matching_labels("counts=yes")
        .owns::<Secret>()
        .owns_dynamic(&gadgets())
        .index_dynamic(&gadgets(), "map", move |gadget| vec![map_of(gadget)])
        .refers_to_dynamic(&gadgets(), |map: &ConfigMap| map.get("names").map(str::to_owned).into_iter().collect())
        .watch(
            Watch::dynamic(&gadgets(), move |gadget| vec![ObjectKey::new(Some("default"), &map_of(gadget))])
                .when(Predicate::new(move |old, new| map_of(old) != map_of(new))),
        );
    let rules = operator.rules();
    let running = fake.run_unrestricted(operator);
    let found = |text: &'static str| move |secret: &Secret| secret.get_text("found") == Some(text);
    fake.wait_until("a", found("1 1")).await?;
    fake.create(gadget("two", "a")).await?;
    fake.wait_until("a", found("2 2")).await?;
    running.stop().await?;
    let made = fake.writes().only(|call| call.kind == "Gadget").lines();
    assert!(made.contains(&"apply Gadget default/a-1".to_owned()), "{made:?}");
    let missing = fake.used().without(&rules);
    assert!(missing.is_empty(), "{missing}");
    Ok(())
}
