//! What an operator sees of the cluster beyond its own objects: what they name, kinds watched in part, objects found by an
//! index, events that were recorded.

use konverge::k8s_openapi::api::core::v1::Namespace;
use konverge::kube::Api;
use konverge::kube::api::{DeleteParams, DynamicObject};
use konverge::kube::core::ObjectMeta;
use konverge::prelude::*;
use konverge::{EventLog, HistoryFilter, Verdict};
use konverge_testkit::{Cluster, Fake};
use tokio::sync::mpsc::unbounded_channel;

/// Names a Secret.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Database", namespaced)]
pub struct DatabaseSpec {
    /// Where the password is.
    pub secret: String,
    /// Whose it is.
    pub team: String,
}

fn database(key: &str, secret: &str, team: &str) -> Database {
    let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
    let mut database = Database::new(name, DatabaseSpec { secret: secret.into(), team: team.into() });
    database.metadata.namespace = Some(namespace.into());
    database
}

fn namespace(name: &str) -> Namespace {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    Namespace { metadata, ..Namespace::default() }
}

async fn start() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    cluster.install::<Database>().await?;
    Ok(cluster)
}

fn says(key: &'static str, text: impl Into<String>) -> impl Fn(&ConfigMap) -> bool {
    let text = text.into();
    move |map| map.get(key) == Some(&text)
}

#[tokio::test]
async fn a_kind_can_be_watched_in_part() -> Result<()> {
    let cluster = start().await?;
    for name in ["gold", "tin"] {
        let mut one = database(name, "", "");
        one.metadata.labels = Some([("tier".to_owned(), name.to_owned())].into());
        cluster.create(one).await?;
    }
    let gold = || vec![ObjectKey::new(Some("default"), "gold")];
    let (causes, mut runs) = unbounded_channel();
    let operator = Operator::<Database>::new()
        .matching_labels("tier=gold")
        .watch(Watch::<Secret>::metadata(move |_| gold()).matching_labels("for=databases"))
        .watch(Watch::new(move |_: &ConfigMap| gold()).matching_fields("metadata.name=notes"))
        .reconcile(move |ctx: Context<Database>| {
            let why: Vec<String> = ctx.causes().iter().map(|cause| format!("{} {}", cause.kind, cause.key)).collect();
            causes.send((ctx.name().to_owned(), why.join(", "))).expect("the test listens");
            async { Ok(Action::await_change()) }
        });
    let operating = cluster.run_unrestricted(operator);
    let mut run = async || runs.recv().await.expect("the operator runs");
    let because = |why: &str| ("gold".to_owned(), why.to_owned());
    assert_eq!(run().await, because("Database default/gold"));
    cluster.create(Secret::new("another")).await?;
    cluster.create(Secret::new("password").label("for", "databases")).await?;
    assert_eq!(run().await, because("Secret default/password"));
    cluster.create(ConfigMap::new("others")).await?;
    cluster.create(ConfigMap::new("notes")).await?;
    assert_eq!(run().await, because("ConfigMap default/notes"));
    cluster.edit("tin", |tin: &mut Database| tin.spec.team = "changed".into()).await?;
    cluster.edit("gold", |gold: &mut Database| gold.spec.team = "changed".into()).await?;
    assert_eq!(run().await, because("Database default/gold"));
    operating.stop().await
}

#[tokio::test]
async fn objects_are_found_by_index() -> Result<()> {
    let cluster = start().await?;
    cluster.create(namespace("other")).await?;
    cluster.create(database("a", "", "red")).await?;
    cluster.create(database("other/b", "", "red")).await?;
    cluster.create(database("c", "", "blue")).await?;
    let operator = Operator::<Database>::new()
        .index("team", |database: &Database| vec![database.spec.team.clone()])
        .reconcile(async |ctx: Context<Database>| {
            let names = |found: Vec<Database>| {
                let mut names: Vec<String> = found.iter().map(|one| one.key().to_string()).collect();
                names.sort();
                names.join(" ")
            };
            let team = &ctx.resource().spec.team;
            let here = names(ctx.list_by_index("team", team).await?);
            let everywhere = names(ctx.everywhere().list_by_index("team", team).await?);
            let unknown = ctx.list_by_index::<Secret>("team", team).await.unwrap_err();
            let map = ConfigMap::new(ctx.name()).data("here", here).data("everywhere", everywhere);
            ctx.apply(map.data("unknown", unknown.to_string())).await?;
            Ok(Action::await_change())
        });
    let operating = cluster.run_unrestricted(operator);
    let map = cluster.wait_until("a", says("everywhere", "default/a other/b")).await?;
    assert_eq!(map.get("here"), Some("default/a"));
    assert_eq!(
        map.get("unknown"),
        Some("there is no index \"team\" of Secret; give the operator one with .index(\"team\", |object: &Secret| …)")
    );
    cluster.wait_until("c", says("everywhere", "default/c")).await?;
    // Who moves is found at the new place.
    cluster.edit("c", |database: &mut Database| database.spec.team = "red".into()).await?;
    cluster.wait_until("c", says("here", "default/a default/c")).await?;
    operating.stop().await
}

#[tokio::test]
async fn what_was_recorded_and_done_can_be_asked_for() -> Result<()> {
    let cluster = start().await?;
    cluster.create(database("a", "", "")).await?;
    let log = EventLog::default();
    let mut reader = log.follow();
    let operator = Operator::<Database>::new().events(log.clone()).reconcile(async |ctx: Context<Database>| {
        ctx.record(Severity::Critical, "Looked", format!("after {} runs", ctx.past_runs().len()))?;
        let failed = |run: &konverge::ReconcileRecord| matches!(run.verdict, Verdict::Failed { .. });
        if !ctx.past_runs().iter().any(failed) {
            return Err(Error::new("once"));
        }
        Ok(Action::await_change())
    });
    let operating = cluster.run_unrestricted(operator);
    // Between the two is what the framework tells of the failure.
    for expect in ["after 0 runs", "once", "after 1 runs"] {
        assert_eq!(reader.next().await.unwrap().event.message, expect);
    }
    let critical = HistoryFilter { severity: Severity::Critical, ..HistoryFilter::default() };
    assert_eq!(log.find(&critical).len(), 2);
    operating.stop().await
}

#[tokio::test]
async fn selectors_that_do_not_read_are_refused() -> Result<()> {
    let fake = Fake::new().knows::<Database>().with(database("a", "", ""));
    let done = async |_: Context<Database>| Ok(Action::await_change());
    let own = Operator::<Database>::new().matching_labels("a in b").reconcile(done);
    let other =
        Operator::<Database>::new().watch(Watch::<Secret>::metadata(|_| vec![]).matching_fields("a")).reconcile(done);
    for (operator, expect) in [
        (own, "Database cannot be watched: the label selector \"a in b\" does not read: "),
        (other, "Secret cannot be watched: the field selector \"a\" does not read: "),
    ] {
        let refused = fake.reconcile(&operator, "a").await.unwrap_err().to_string();
        assert!(refused.starts_with(expect), "{refused}");
    }
    Ok(())
}

/// Has a shape, of which the server knows only that it is a text.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Parcel", namespaced)]
pub struct ParcelSpec {
    #[schemars(with = "String")]
    shape: Shape,
}

/// The shapes that this version of the operator knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Round,
}

/// Another version of the operator has made it, with a finalizer. Nobody could delete it.
#[tokio::test]
async fn an_object_that_does_not_read_can_be_deleted() -> Result<()> {
    async fn idle(_: Context<Parcel>) -> Result<Action> {
        Ok(Action::await_change())
    }
    async fn cleanup(_: Context<Parcel>) -> Result<()> {
        panic!("it cannot be called")
    }
    let with = || Operator::<Parcel>::new().reconcile(idle);
    for (operator, skipped) in [(with().with_finalizer(), false), (with().on_delete(cleanup), true)] {
        let cluster = Cluster::start().await?;
        cluster.install::<Parcel>().await?;
        let parcel = serde_json::json!({
            "apiVersion": "example.com/v1", "kind": "Parcel", "spec": {"shape": "square"},
            "metadata": {"name": "p", "namespace": "default", "finalizers": ["example.com/parcel-finalizer"]}
        });
        cluster.create(parcel).await?;
        let running = cluster.run_unrestricted(operator);
        let parcels = Api::<DynamicObject>::namespaced_with(cluster.client(), "default", &Parcel::resource());
        parcels.delete("p", &DeleteParams::default()).await?;
        while parcels.get_opt("p").await?.is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        running.stop().await?;
        let told = cluster.events().await?.iter().any(|event| event.contains("CleanupSkipped"));
        assert_eq!(told, skipped);
    }
    Ok(())
}
