//! What the documentation of operators promises beyond the common path: a clean stop, two controllers of one kind, predicates
//! over objects that do not decode, children that are created, failures of kinds without a status.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use konverge::prelude::*;
use konverge::serde_json::{Value, json};
use konverge::{BackgroundTask, Metrics, Patch, READY, Scope, Watch, WriteError, key_channel};
use konverge_testkit::{Fake, Retry, Verb, retry};

/// Sells something.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
pub struct ShopSpec {}

/// Takes the money.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Till", namespaced)]
pub struct TillSpec {}

/// Grows, unless it is paused.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Plant", namespaced, status = "PlantStatus")]
pub struct PlantSpec {
    /// Whether changes wait.
    pub paused: bool,
}

/// What is seen of a plant.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlantStatus {
    /// Filled by the framework.
    pub conditions: Vec<konverge::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
}

fn shop() -> Shop {
    Shop::new("s", ShopSpec {})
}

async fn idle<R>(_: Context<R>) -> Result<Action> {
    Ok(Action::await_change())
}

/// A reconcile that only counts its calls.
fn counting<R>(count: &Arc<AtomicUsize>) -> impl Fn(Context<R>) -> std::future::Ready<Result<Action>> + use<R> {
    let count = count.clone();
    move |_| {
        count.fetch_add(1, SeqCst);
        std::future::ready(Ok(Action::await_change()))
    }
}

/// Time is paused in these tests: this is as long as everything that is due takes.
async fn settled() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

/// A definition of plants that takes every spec and has no status, as an older version of an operator may have left it.
fn loose_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "plants.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Plant", "plural": "plants", "singular": "plant"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// The example in the documentation of `Operator::background`: the task is sending a key when the operator stops.
#[tokio::test(start_paused = true)]
async fn a_task_that_sends_keys_while_the_operator_stops_is_no_error() -> Result<()> {
    let fake = Fake::new().with(shop());
    let (keys, triggered) = key_channel();
    let sync = move |task: BackgroundTask| async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(1)) => {
                    // The other system takes its time to say which object it is about.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    keys.send(ObjectKey::new(Some("default"), "s")).await?;
                }
                () = task.stopped() => return Ok(()),
            }
        }
    };
    let operator = Operator::<Shop>::new().reconcile(idle).triggered_by("prices", triggered);
    let running = fake.run_unrestricted(operator.background("price-sync", sync));
    settled().await;
    running.stop().await
}

/// Whoever stops an operator has what they want; an exit code of 1 would look like a crash.
#[tokio::test(start_paused = true)]
async fn a_task_that_fails_after_the_stop_does_not_fail_the_operator() -> Result<()> {
    let fake = Fake::new().with(shop());
    let fails = |task: BackgroundTask| async move {
        task.stopped().await;
        Err(Error::new("the market is closed"))
    };
    let running = fake.run_unrestricted(Operator::<Shop>::new().reconcile(idle).background("prices", fails));
    settled().await;
    running.stop().await
}

/// With one finalizer for two cleanups, the first that succeeds would release the object.
#[tokio::test(start_paused = true)]
async fn two_controllers_of_a_kind_need_two_finalizers() -> Result<()> {
    let fake = Fake::new().with(shop());
    let second = || Controller::<Shop>::new().named("second").reconcile(idle);
    let run = |second: Controller<Shop>| {
        let operator = Operator::<Shop>::new().reconcile(idle).with_finalizer().and(second);
        operator.in_test(fake.client()).run_until(settled())
    };
    let refused = run(second().with_finalizer()).await.unwrap_err().to_string();
    assert!(refused.contains("shop.example.com and second both keep the finalizer"), "{refused}");
    assert!(refused.contains("example.com/shop-finalizer"), "{refused}");
    run(second()).await?;
    run(second().finalizer("example.com/second")).await
}

#[tokio::test(start_paused = true)]
async fn a_change_that_a_predicate_cannot_decide_counts_also_when_negated() -> Result<()> {
    let fake = Fake::new().with(loose_definition());
    fake.list::<ConfigMap>().await?;
    let plant = json!({"apiVersion": "example.com/v1", "kind": "Plant", "metadata": {"name": "p"},
        "spec": {"paused": "yes"}});
    fake.create(plant).await?;
    let count = Arc::new(AtomicUsize::new(0));
    let is_paused = Predicate::new(|_: &Plant, new: &Plant| new.spec.paused);
    let running = fake.run_unrestricted(Operator::<Plant>::new().when(is_paused.not()).reconcile(counting(&count)));
    settled().await;
    assert_eq!(count.load(SeqCst), 0, "it does not decode");
    let plants: konverge::kube::Api<Plant> = konverge::kube::Api::namespaced(fake.client(), "default");
    let mended = json!({"spec": {"paused": false}});
    plants.patch("p", &Default::default(), &konverge::kube::api::Patch::Merge(&mended)).await?;
    settled().await;
    assert_eq!(count.load(SeqCst), 1, "the mended object is not reconciled");
    running.stop().await
}

/// A watch of metadata does not see a spec, so it cannot say that the spec stayed the same.
#[tokio::test(start_paused = true)]
async fn a_predicate_on_what_metadata_does_not_show_lets_changes_through() -> Result<()> {
    let fake = Fake::new().with(shop()).with(Secret::new("x").data("a", "1"));
    let count = Arc::new(AtomicUsize::new(0));
    let secrets = Watch::<Secret>::metadata(|secret| vec![ObjectKey::new(secret.namespace.as_deref(), "s")]);
    let secrets = secrets.when(Predicate::spec_changed());
    let running = fake.run_unrestricted(Operator::<Shop>::new().watch(secrets).reconcile(counting(&count)));
    settled().await;
    let before = count.load(SeqCst);
    fake.edit("x", |secret: &mut Secret| *secret = secret.clone().data("a", "2")).await?;
    settled().await;
    assert!(count.load(SeqCst) > before, "the change was filtered");
    running.stop().await
}

/// Each controller owns its own fields, so that one does not remove what another applied.
#[tokio::test(start_paused = true)]
async fn two_controllers_apply_different_fields_to_one_object() -> Result<()> {
    async fn shops(ctx: Context<Shop>) -> Result<Action> {
        ctx.apply_unowned(ConfigMap::new("shared").data("shop", "1")).await?;
        Ok(Action::await_change())
    }
    async fn tills(ctx: Context<Till>) -> Result<Action> {
        ctx.apply_unowned(ConfigMap::new("shared").data("till", "1")).await?;
        Ok(Action::await_change())
    }
    let fake = Fake::new().with(shop()).with(Till::new("t", TillSpec {}));
    let operator = Operator::<Shop>::new().reconcile(shops).configure(|settings| settings.name = "trade".into());
    let running = fake.run_unrestricted(operator.and(Controller::<Till>::new().reconcile(tills)));
    settled().await;
    let shared = fake.get::<ConfigMap>("shared").await?;
    assert_eq!((shared.get("shop"), shared.get("till")), (Some("1"), Some("1")), "{}", fake.writes());
    let mut managers: Vec<String> =
        shared.inner().metadata.managed_fields.iter().flatten().filter_map(|fields| fields.manager.clone()).collect();
    managers.sort();
    assert_eq!(managers, ["trade", "trade-till.example.com"]);
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn two_controllers_of_a_kind_count_its_objects_once() -> Result<()> {
    let fake = Fake::new().with(shop());
    let metrics = Metrics::default();
    let operator = Operator::<Shop>::new().reconcile(idle).metrics(metrics.clone());
    let operator = operator.and(Controller::<Shop>::new().named("second").reconcile(idle));
    assert_eq!(operator.definitions().len(), 1);
    let running = fake.run_unrestricted(operator);
    settled().await;
    let page = metrics.page();
    let counted: Vec<&str> =
        page.lines().filter(|line| line.contains("resource_count{") && line.contains("\"Shop\"")).collect();
    assert!(counted.len() == 1 && counted[0].ends_with(" 1"), "{counted:?}\n{page}");
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn the_kind_of_a_created_child_is_watched() -> Result<()> {
    let fake = Fake::new().with(shop());
    let count = Arc::new(AtomicUsize::new(0));
    let counts = count.clone();
    let operator = Operator::<Shop>::new().reconcile(move |ctx: Context<Shop>| {
        let is_first = counts.fetch_add(1, SeqCst) == 0;
        async move {
            if is_first {
                ctx.create(ConfigMap::new("child")).await?;
            }
            Ok(Action::await_change())
        }
    });
    let running = fake.run_unrestricted(operator);
    settled().await;
    let before = count.load(SeqCst);
    fake.delete::<ConfigMap>("child").await?;
    settled().await;
    assert!(count.load(SeqCst) > before, "the deletion of a created child reconciles nobody");
    running.stop().await
}

/// A merge patch without a resource version would overwrite whatever is there.
#[tokio::test(start_paused = true)]
async fn a_merge_patch_without_a_guard_is_refused() -> Result<()> {
    for (patch, resource_version) in [(json!({"data": {"a": "2"}}), ""), (json!([1]), "1"), (json!(null), "1")] {
        let fake = Fake::new().with(shop()).with(ConfigMap::new("m").data("a", "1"));
        let patch = Patch::Merge { patch, resource_version: resource_version.into() };
        let operator = Operator::<Shop>::new().state(patch.clone()).reconcile(async |ctx: Context<Shop>| {
            ctx.patch::<ConfigMap>("m", ctx.state::<Patch>()?.clone()).await?;
            Ok(Action::await_change())
        });
        let refused = fake.reconcile(&operator, "s").await.unwrap_err();
        assert!(matches!(refused.find(), Some(WriteError::Invalid { by_server: false, .. })), "{patch:?}: {refused}");
        assert_eq!(retry(&refused), Retry::UntilChanged);
        assert!(fake.writes().only(|call| call.is_about("ConfigMap")).is_empty(), "{}", fake.writes());
    }
    Ok(())
}

/// The children of an object that is being deleted would be left behind.
#[tokio::test(start_paused = true)]
async fn nothing_is_created_for_an_object_whose_deletion_began() -> Result<()> {
    let fake = Fake::new().with(shop());
    let operator = Operator::<Shop>::new().with_finalizer().reconcile(async |ctx: Context<Shop>| {
        ctx.delete::<Shop>(ctx.name()).await?;
        ctx.create_once(ConfigMap::new("child")).await?;
        Ok(Action::await_change())
    });
    let refused = fake.reconcile(&operator, "s").await.unwrap_err().to_string();
    assert!(refused.contains("is being deleted"), "{refused}");
    assert!(fake.writes().only(|call| call.is_about("ConfigMap")).is_empty(), "{}", fake.writes());
    Ok(())
}

/// A kind without a status has no place for a condition; that a conflict lasts is an event all the same.
#[tokio::test(start_paused = true)]
async fn a_conflict_that_lasts_is_shown_for_a_kind_without_a_status() -> Result<()> {
    let fake = Fake::new().with(loose_definition());
    fake.list::<ConfigMap>().await?;
    fake.create(json!({"apiVersion": "example.com/v1", "kind": "Plant", "metadata": {"name": "p"}})).await?;
    fake.when::<ConfigMap>(Verb::Apply).fail(409);
    let plants = ApiKind::new("example.com/v1", "Plant", "plants", Scope::Namespaced);
    let operator = Operator::dynamic(&plants).reconcile(async |ctx: Context<DynamicObject>| {
        ctx.apply(ConfigMap::new("child")).await?;
        Ok(Action::await_change())
    });
    let running = fake.run_unrestricted(operator);
    tokio::time::sleep(Duration::from_secs(300)).await;
    running.stop().await?;
    let events = fake.events().await?;
    assert!(events.iter().any(|event| event.starts_with("Warning Conflict Plant default/p")), "{events:?}");
    let conditions = fake.writes().only(|call| call.subresource.as_deref() == Some("status"));
    assert_eq!(conditions.len(), 1, "it is tried once: {conditions}");
    Ok(())
}

/// JSON escapes quotes, so the name does not stand in the object's text as it was given.
#[tokio::test(start_paused = true)]
async fn a_controller_of_any_name_removes_its_report() -> Result<()> {
    let fake = Fake::new().with(Plant::new("p", PlantSpec { paused: true }));
    let operator = Operator::<Plant>::new().named(r#"the "green" \ <one>"#).reconcile(async |ctx: Context<Plant>| {
        match ctx.resource().spec.paused {
            true => Err(Error::permanent("it is winter")),
            false => Ok(Action::await_change()),
        }
    });
    let running = fake.run_unrestricted(operator);
    let has_report = |plant: &Plant| {
        let conditions = plant.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == READY && condition.status == "False")
    };
    fake.wait_until("p", has_report).await?;
    fake.edit("p", |plant: &mut Plant| plant.spec.paused = false).await?;
    settled().await;
    assert!(!has_report(&fake.get("p").await?), "the report stays although the reconcile succeeded");
    running.stop().await
}
