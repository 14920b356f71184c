//! What an operator may rely on while its watches are late: what it has written, and what it has cleaned up. Time is virtual.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use konverge::kube::client::Body;
use konverge::kube::{Client, Resource};
use konverge::{Children, prelude::*};
use konverge_testkit::{Cluster, Verb};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Says how large something is.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Thing", namespaced, status = "ThingStatus")]
pub struct ThingSpec {
    /// How large.
    pub size: i32,
}

/// Nothing but conditions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ThingStatus {}

/// A client whose watches bring everything a little late, as those of a busy cluster do; or only those of the kinds whose
/// path this text is part of.
#[derive(Clone)]
struct Late(Client, &'static str);

const LAG: Duration = Duration::from_millis(100);

impl tower_service::Service<http::Request<Body>> for Late {
    type Response = http::Response<UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>>;
    type Error = konverge::kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let client = self.0.clone();
        let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
        let watches = watches && request.uri().path().contains(self.1);
        Box::pin(async move {
            let answer = client.send(request).await?;
            let lag = if watches { LAG } else { Duration::ZERO };
            Ok(answer.map(|body| {
                let pieces = BodyStream::new(body).then(move |piece| async move {
                    tokio::time::sleep(lag).await;
                    piece
                });
                StreamBody::new(pieces).map_err(Into::into).boxed_unsync()
            }))
        })
    }
}

/// Runs an operator whose watches are late.
fn run_late(cluster: &Cluster, operator: Operator<Thing>) -> (oneshot::Sender<()>, JoinHandle<Result<()>>) {
    run_late_for("", cluster, operator)
}

/// Runs an operator some of whose watches are late.
fn run_late_for(
    kinds: &'static str,
    cluster: &Cluster,
    operator: Operator<Thing>,
) -> (oneshot::Sender<()>, JoinHandle<Result<()>>) {
    let (stop, stopped) = oneshot::channel();
    let operator = operator.in_test(Client::new(Late(cluster.client(), kinds), "default"));
    (stop, tokio::spawn(operator.run_until(async { drop(stopped.await) })))
}

fn thing(size: i32) -> Thing {
    Thing::new("t", ThingSpec { size })
}

async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    cluster.install::<Thing>().await?;
    Ok(cluster)
}

#[tokio::test(start_paused = true)]
async fn what_is_cleaned_up_is_not_cleaned_up_again() -> Result<()> {
    let cluster = cluster().await?;
    let cleaned = Arc::new(AtomicUsize::new(0));
    let counts = cleaned.clone();
    let cleanup = move |ctx: konverge::Context<Thing>| {
        let counts = counts.clone();
        async move {
            counts.fetch_add(1, Ordering::SeqCst);
            // Something wakes the object while it is being cleaned up, so that it is looked at once more.
            ctx.apply(ConfigMap::new("last-words").data("n", "1")).await?;
            tokio::time::sleep(3 * LAG).await;
            Ok(())
        }
    };
    let idle = async |_: konverge::Context<Thing>| Ok(Action::await_change());
    let operator = Operator::<Thing>::new().reconcile(idle).on_delete(cleanup).owns::<ConfigMap>();
    let (stop, running) = run_late(&cluster, operator);
    for (others, times) in [(false, 1), (true, 2)] {
        cluster.create(thing(1)).await?;
        let ours = "example.com/thing-finalizer".to_owned();
        let has = |thing: &Thing| thing.metadata.finalizers.iter().flatten().any(|name| *name == ours);
        cluster.wait_until("t", has).await?;
        if others {
            let add = |thing: &mut Thing| thing.metadata.finalizers.get_or_insert_default().push("a.b/c".into());
            cluster.edit("t", add).await?;
        }
        cluster.delete::<Thing>("t").await?;
        if others {
            cluster.wait_until("t", |thing: &Thing| !has(thing)).await?;
            tokio::time::sleep(3 * LAG).await;
            cluster.edit("t", |thing: &mut Thing| thing.metadata.finalizers = None).await?;
        }
        cluster.wait_gone::<Thing>("t").await?;
        assert_eq!(cleaned.load(Ordering::SeqCst), times);
    }
    drop(stop);
    running.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_came_through_is_seen_although_the_rest_failed() -> Result<()> {
    let cluster = cluster().await?;
    cluster.when::<Secret>(Verb::Apply).once().fail(500);
    let (seen, tries) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (sees, counts) = (seen.clone(), tries.clone());
    let reconcile = move |ctx: konverge::Context<Thing>| {
        let (sees, counts) = (sees.clone(), counts.clone());
        async move {
            counts.fetch_add(1, Ordering::SeqCst);
            let children = Children::new().add(ConfigMap::new("a").data("a", "b")).add(Secret::new("s").data("a", "b"));
            let applied = ctx.apply_all(children).await;
            if applied.is_err() && ctx.get::<ConfigMap>("a").await?.is_some() {
                sees.fetch_add(1, Ordering::SeqCst);
            }
            applied.map(|_| Action::await_change())
        }
    };
    let operator = Operator::<Thing>::new().reconcile(reconcile).owns::<ConfigMap>().owns::<Secret>();
    let (stop, running) = run_late(&cluster, operator);
    cluster.create(thing(1)).await?;
    cluster.wait_until("s", |_: &Secret| true).await?;
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    drop(stop);
    running.await.unwrap()
}

/// A write whose answer was lost may come through when nobody waits for it any more. A cleanup must not miss what it made
/// because the cache does not know of it: nothing else would ever delete it in another namespace.
#[tokio::test(start_paused = true)]
async fn a_cleanup_does_not_believe_that_nothing_is_there() -> Result<()> {
    async fn idle(_: konverge::Context<Thing>) -> Result<Action> {
        Ok(Action::await_change())
    }
    async fn by_name(ctx: konverge::Context<Thing>) -> Result<()> {
        ctx.within("kube-system").delete::<ConfigMap>("lost").await
    }
    async fn after_a_look(ctx: konverge::Context<Thing>) -> Result<()> {
        match ctx.within("kube-system").get::<ConfigMap>("lost").await? {
            Some(_) => by_name(ctx).await,
            None => Ok(()),
        }
    }
    async fn by_labels(ctx: konverge::Context<Thing>) -> Result<()> {
        let there = ctx.within("kube-system");
        for map in there.list_by::<ConfigMap>(Selector::new().insert("of", "t")).await? {
            there.delete::<ConfigMap>(map.key().name()).await?;
        }
        Ok(())
    }
    async fn by_index(ctx: konverge::Context<Thing>) -> Result<()> {
        for map in ctx.everywhere().list_by_index::<ConfigMap>("data", "of t").await? {
            let key = map.key();
            ctx.within(key.namespace().unwrap_or_default()).delete::<ConfigMap>(key.name()).await?;
        }
        Ok(())
    }
    let data = |map: &ConfigMap| map.get("of").map(|of| format!("of {of}")).into_iter().collect();
    for (at, operator) in [
        Operator::new().on_delete(by_name),
        Operator::new().on_delete(after_a_look),
        Operator::new().on_delete(by_labels),
        Operator::new().on_delete(by_index).index("data", data),
    ]
    .into_iter()
    .enumerate()
    {
        let cluster = cluster().await?;
        let operator = operator.reconcile(idle).across_namespaces().owns::<ConfigMap>();
        let rules = operator.rules();
        let (stop, running) = run_late_for("/configmaps", &cluster, operator);
        cluster.create(thing(1)).await?;
        cluster.wait_until("t", |thing: &Thing| thing.metadata.finalizers.is_some()).await?;
        tokio::time::sleep(3 * LAG).await;
        let lost = ConfigMap::new("lost").namespace("kube-system").label("of", "t").data("of", "t");
        cluster.create(ConfigMap::new("other").namespace("kube-system").data("of", "s")).await?;
        cluster.create(lost).await?;
        cluster.delete::<Thing>("t").await?;
        cluster.wait_gone::<Thing>("t").await?;
        assert!(cluster.find::<ConfigMap>("kube-system/lost").await?.is_none(), "cleanup {at}: it is left behind");
        assert!(cluster.find::<ConfigMap>("kube-system/other").await?.is_some(), "cleanup {at}: it took another's");
        drop(stop);
        running.await.unwrap()?;
        let missing = cluster.used().without(&rules);
        assert!(missing.is_empty(), "cleanup {at}: undeclared: {missing}");
    }
    Ok(())
}

/// An owner that is deleted without its children loses their references first. The operator hears of that before it hears
/// that the owner goes, and must not put the references back: the children would be collected with the owner.
#[tokio::test(start_paused = true)]
async fn children_of_an_owner_that_is_deleted_without_them_stay() -> Result<()> {
    async fn one_by_one(ctx: konverge::Context<Thing>) -> Result<Action> {
        for name in ["a", "b"] {
            ctx.apply(ConfigMap::new(name).data("n", "1")).await?;
        }
        Ok(Action::await_change())
    }
    async fn as_a_set(ctx: konverge::Context<Thing>) -> Result<Action> {
        let children = ["a", "b"].map(|name| ConfigMap::new(name).data("n", "1"));
        ctx.apply_all(Children::new().all(children)).await?;
        Ok(Action::await_change())
    }
    // A cleanup that changes a child must not take it over again, either.
    async fn cleanup(ctx: konverge::Context<Thing>) -> Result<()> {
        ctx.apply(ConfigMap::new("a").data("n", "2")).await.map(drop)
    }
    let operators: [fn() -> Operator<Thing>; 3] = [
        || Operator::<Thing>::new().reconcile(one_by_one),
        || Operator::<Thing>::new().reconcile(as_a_set),
        || Operator::<Thing>::new().reconcile(one_by_one).on_delete(cleanup),
    ];
    for (at, operator) in operators.into_iter().enumerate() {
        // The owner's watch is late; or the children's; or all of them.
        for late in ["/things", "/configmaps", ""] {
            let cluster = cluster().await?;
            let (stop, running) = run_late_for(late, &cluster, operator().owns::<ConfigMap>());
            cluster.create(thing(1)).await?;
            cluster.wait_until("b", |map: &ConfigMap| map.meta().owner_references.is_some()).await?;
            tokio::time::sleep(3 * LAG).await;
            let things = konverge::kube::Api::<Thing>::namespaced(cluster.client(), "default");
            things.delete("t", &konverge::kube::api::DeleteParams::orphan()).await?;
            cluster.wait_gone::<Thing>("t").await?;
            tokio::time::sleep(10 * LAG).await;
            for name in ["a", "b"] {
                let found = cluster.get::<ConfigMap>(name).await.ok();
                let owners = found.map(|map| map.meta().owner_references.clone().unwrap_or_default());
                assert_eq!(owners, Some(vec![]), "operator {at}, {late:?} late: {name}");
            }
            drop(stop);
            running.await.unwrap()?;
        }
    }
    Ok(())
}

/// An apply that may not take an object over names the version it expects. If another writer was faster the object is read
/// again, which the rules of the operator have to allow.
#[tokio::test(start_paused = true)]
async fn what_is_read_after_a_conflict_is_declared() -> Result<()> {
    async fn copy(ctx: konverge::Context<Thing>) -> Result<Action> {
        ctx.apply(ConfigMap::new("c").data("size", ctx.resource().spec.size.to_string())).await?;
        Ok(Action::await_change())
    }
    let operator = || Operator::<Thing>::new().reconcile(copy).owns::<ConfigMap>();
    let fake = konverge_testkit::Fake::new().with(thing(1));
    fake.reconcile(&operator(), "t").await?;
    fake.edit("t", |thing: &mut Thing| thing.spec.size = 2).await?;
    fake.when::<ConfigMap>(Verb::Apply).once().conflict();
    fake.reconcile(&operator(), "t").await?;
    let missing = fake.used().without(&operator().rules());
    assert!(missing.is_empty(), "undeclared: {missing}, {}", fake.calls());
    assert!(fake.calls().to_string().contains("get ConfigMap"), "{}", fake.calls());
    Ok(())
}
