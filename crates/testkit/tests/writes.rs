//! Writes besides apply and delete: objects that belong to nobody, objects with generated names, patches.

use konverge::prelude::*;
use konverge::serde_json::json;
use konverge::{Patch, WriteError};
use konverge_testkit::{Fake, Retry, retry};

/// What the reconcile is to do.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Order", namespaced)]
pub struct OrderSpec {
    /// One of the words below.
    pub act: String,
}

fn order(act: &str) -> Order {
    Order::new("o", OrderSpec { act: act.into() })
}

/// The version that a test read some time ago.
#[derive(Clone)]
struct Version(String);

async fn reconcile(ctx: Context<Order>) -> Result<Action> {
    let resource_version = || ctx.state::<Version>().map(|version| version.0.clone());
    let colour = json!({"data": {"colour": "blue"}});
    match ctx.resource().spec.act.as_str() {
        "apply unowned" => {
            let map = ctx.apply_unowned(ConfigMap::new("shared").data("colour", "blue")).await?;
            assert_eq!(map.get("colour"), Some("blue"));
        }
        "create" => {
            let job = ConfigMap::new("").patch(|map| map.metadata.generate_name = Some("made-".into()));
            let made = ctx.create(job).await?;
            assert!(made.name().starts_with("made-") && made.name().len() > 5, "{made:?}");
            let seen = ctx.get::<ConfigMap>(made.name()).await?.map(|map| map.inner().metadata.uid.clone());
            assert_eq!(seen, Some(made.inner().metadata.uid.clone()));
        }
        "create named" => drop(ctx.create(ConfigMap::new("shared")).await?),
        "create elsewhere" => drop(ctx.create(ConfigMap::new("far").namespace("abroad")).await?),
        "merge" => {
            let patch = Patch::Merge { patch: colour, resource_version: resource_version()? };
            let patched: ConfigMap = ctx.patch("shared", patch).await?;
            assert_eq!((patched.get("colour"), patched.get("kept")), (Some("blue"), Some("yes")));
        }
        "json" => {
            let test = json!({"op": "test", "path": "/data/colour", "value": "red"});
            let replace = json!({"op": "replace", "path": "/data/colour", "value": "blue"});
            let patched: ConfigMap = ctx.patch("shared", Patch::Json(json!([test, replace]))).await?;
            assert_eq!(patched.get("colour"), Some("blue"));
        }
        "json elsewhere" => {
            let add = json!([{"op": "add", "path": "/data", "value": {"colour": "blue"}}]);
            ctx.within("abroad").patch::<ConfigMap>("far", Patch::Json(add)).await?;
        }
        other => return Err(Error::permanent(format!("nobody knows how to {other}"))),
    }
    Ok(Action::await_change())
}

fn operator(version: &str) -> Operator<Order> {
    Operator::<Order>::new().reconcile(reconcile).across_namespaces().owns::<ConfigMap>().state(Version(version.into()))
}

fn shared(colour: &str) -> ConfigMap {
    ConfigMap::new("shared").data("colour", colour).data("kept", "yes")
}

/// It stays when the object goes, and is taken from nobody.
#[tokio::test]
async fn what_is_applied_unowned_belongs_to_nobody() -> Result<()> {
    for given in [None, Some(shared("red"))] {
        let fake = Fake::new().with(order("apply unowned"));
        let fake = given.into_iter().fold(fake, Fake::with);
        fake.reconcile(&operator(""), "o").await?;
        let map: ConfigMap = fake.get("shared").await?;
        assert_eq!((map.get("colour"), &map.inner().metadata.owner_references), (Some("blue"), &None));
        assert_eq!(map.get_annotation("konverge.dev/owner"), None);
        // A steady state writes nothing.
        fake.forget_calls();
        fake.reconcile(&operator(""), "o").await?;
        assert!(fake.writes().is_empty(), "{}", fake.writes());
    }
    Ok(())
}

#[tokio::test]
async fn what_is_created_belongs_to_the_object_and_is_seen_at_once() -> Result<()> {
    let fake = Fake::new().with(order("create"));
    fake.reconcile(&operator(""), "o").await?;
    fake.reconcile(&operator(""), "o").await?;
    let made: Vec<ConfigMap> = fake.list().await?;
    let made: Vec<&ConfigMap> = made.iter().filter(|map| map.name().starts_with("made-")).collect();
    assert_eq!(made.len(), 2, "each create makes one: {made:?}");
    for map in made {
        let owners = map.inner().metadata.owner_references.clone().unwrap_or_default();
        assert_eq!((owners[0].kind.as_str(), owners[0].name.as_str()), ("Order", "o"));
    }
    Ok(())
}

#[tokio::test]
async fn what_is_created_elsewhere_names_its_owner() -> Result<()> {
    let fake = Fake::new().with(order("create elsewhere")).with(Namespace::new("abroad"));
    fake.reconcile(&operator(""), "o").await?;
    let far: ConfigMap = fake.get("abroad/far").await?;
    assert_eq!(far.get_annotation("konverge.dev/owner"), Some("Order.example.com/default/o"));
    Ok(())
}

/// Who creates what is there already looks again.
#[tokio::test]
async fn a_create_of_what_is_there_is_a_conflict() -> Result<()> {
    let fake = Fake::new().with(order("create named")).with(shared("red"));
    let refused = fake.reconcile(&operator(""), "o").await.unwrap_err();
    assert_eq!(retry(&refused), Retry::Fresh, "{refused}");
    assert_eq!(fake.get::<ConfigMap>("shared").await?.get("colour"), Some("red"));
    Ok(())
}

/// A patch that expects what is not so any more changes nothing.
#[tokio::test]
async fn a_patch_changes_what_it_expects_to_find() -> Result<()> {
    for act in ["merge", "json"] {
        let fake = Fake::new().with(order(act)).with(shared("red"));
        let read: ConfigMap = fake.get("shared").await?;
        let version = read.inner().metadata.resource_version.clone().unwrap_or_default();
        fake.reconcile(&operator(&version), "o").await?;
        assert_eq!(fake.get::<ConfigMap>("shared").await?.get("colour"), Some("blue"));

        fake.edit("shared", |map: &mut ConfigMap| *map = map.clone().data("colour", "green")).await?;
        let refused = fake.reconcile(&operator(&version), "o").await.unwrap_err();
        assert!(refused.find::<WriteError>().is_some(), "{act}: {refused}");
        assert_eq!(fake.get::<ConfigMap>("shared").await?.get("colour"), Some("green"), "{act}");
    }
    Ok(())
}

#[tokio::test]
async fn a_patch_reaches_other_namespaces_and_needs_an_object() -> Result<()> {
    let far = ConfigMap::new("far").namespace("abroad");
    let fake = Fake::new().with(order("json elsewhere")).with(Namespace::new("abroad")).with(far);
    fake.reconcile(&operator(""), "o").await?;
    assert_eq!(fake.get::<ConfigMap>("abroad/far").await?.get("colour"), Some("blue"));

    let fake = Fake::new().with(order("json"));
    let refused = fake.reconcile(&operator(""), "o").await.unwrap_err();
    assert!(matches!(refused.find(), Some(WriteError::NotFound { .. })), "{refused}");
    Ok(())
}
