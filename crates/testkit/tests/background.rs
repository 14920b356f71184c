//! What background tasks read: kinds that are not installed yet, that may not be watched, and namespaces that the operator
//! does not watch. Time is virtual.

use std::time::Duration;

use konverge::BackgroundTask;
use konverge::prelude::*;
use konverge::serde_json::json;
use konverge_testkit::{Cluster, Running, Verb};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A shop that asks for nothing.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
pub struct ShopSpec {}

/// Installed while the operator runs.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Gadget", namespaced)]
pub struct GadgetSpec {}

/// Runs a background task, which tells the test what it saw.
fn run<F, Fut>(cluster: &Cluster, namespaces: &[&str], work: F) -> (Running, mpsc::UnboundedReceiver<String>)
where
    F: FnOnce(BackgroundTask, mpsc::UnboundedSender<String>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let (saw, seen) = mpsc::unbounded_channel();
    let namespaces: Vec<String> = namespaces.iter().map(|&namespace| namespace.to_owned()).collect();
    let operator = Operator::<Shop>::new()
        .reconcile(async |_: Context<Shop>| Ok(Action::await_change()))
        .configure(move |settings| settings.namespaces = namespaces.clone())
        .background("reader", move |task: BackgroundTask| work(task, saw));
    (cluster.run_unrestricted(operator), seen)
}

async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    cluster.install::<Shop>().await?;
    Ok(cluster)
}

fn gadget() -> Gadget {
    Gadget::new("g", GadgetSpec {})
}

/// A task waits for a kind as a controller does, whether it lists or reads.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_installed_is_waited_for() -> Result<()> {
    for lists in [true, false] {
        let cluster = cluster().await?;
        let (running, mut seen) = run(&cluster, &[], move |task, saw| async move {
            let found = match lists {
                true => task.list::<Gadget>().await?.len(),
                false => task.get::<Gadget>(&ObjectKey::new(Some("default"), "g")).await?.into_iter().count(),
            };
            let _ = saw.send(format!("{found} gadgets"));
            task.stopped().await;
            Ok(())
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(seen.try_recv().is_err(), "there was nothing to be seen");
        cluster.install::<Gadget>().await?;
        cluster.create(gadget()).await?;
        // The watch may see the kind before the gadget is there.
        let saw = seen.recv().await;
        assert!(matches!(saw.as_deref(), Some("0 gadgets" | "1 gadgets")), "lists: {lists}, {saw:?}");
        running.stop().await?;
    }
    Ok(())
}

/// Nobody has to wait for such a task: it ends when the operator is told to stop.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_a_kind_does_not_hold_up_the_shutdown() -> Result<()> {
    let cluster = cluster().await?;
    let (running, mut seen) = run(&cluster, &[], |task, saw| async move {
        let error = task.list::<Gadget>().await.unwrap_err();
        let _ = saw.send(format!("{}: {error}", error.get_reason()));
        Ok(())
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let began = Instant::now();
    running.stop().await?;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let saw = seen.recv().await.unwrap_or_default();
    let expect = "Stopping: the operator stops; still waiting for Gadget of example.com/v1: the server does not serve";
    assert!(saw.starts_with(expect), "{saw}");
    Ok(())
}

/// A watch that is forbidden, or still being filled, says nothing about one object. The server does.
#[tokio::test(start_paused = true)]
async fn a_read_does_not_wait_behind_a_watch_that_is_not_filled() -> Result<()> {
    let cluster = cluster().await?;
    cluster.create(ConfigMap::new("c").data("a", "b")).await?;
    cluster.when::<ConfigMap>([Verb::List, Verb::Watch]).fail(403);
    let (running, mut seen) = run(&cluster, &[], |task, saw| async move {
        let list = task.clone();
        let listing = tokio::spawn(async move { list.list::<ConfigMap>().await.map(drop) });
        tokio::time::sleep(Duration::from_secs(5)).await;
        let began = Instant::now();
        let found = task.get::<ConfigMap>(&ObjectKey::new(Some("default"), "c")).await?;
        let _ = saw.send(format!("{} after {:?}", found.is_some(), began.elapsed()));
        listing.abort();
        task.stopped().await;
        Ok(())
    });
    let saw = tokio::time::timeout(Duration::from_secs(120), seen.recv()).await?;
    assert_eq!(saw.as_deref(), Some("true after 0ns"));
    running.stop().await
}

/// A watch for each namespace that somebody once asked about would stay for ever.
#[tokio::test(start_paused = true)]
async fn namespaces_that_the_operator_does_not_watch_are_listed_without_a_watch() -> Result<()> {
    let cluster = cluster().await?;
    for name in ["near", "far", "away"] {
        cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await?;
        cluster.create(ConfigMap::new("c").namespace(name)).await?;
    }
    let (running, mut seen) = run(&cluster, &["near"], |task, saw| async move {
        for name in ["near", "far", "away", "near", "far", "nowhere"] {
            let found = task.list_in::<ConfigMap>(name).await?;
            let names: Vec<String> = found.iter().map(|map| map.key().to_string()).collect();
            let _ = saw.send(names.join(" "));
        }
        task.stopped().await;
        Ok(())
    });
    for expect in ["near/c", "far/c", "away/c", "near/c", "far/c", ""] {
        assert_eq!(seen.recv().await.as_deref(), Some(expect));
    }
    let asked = cluster.calls().only(|call| call.is_about("ConfigMap")).lines();
    let expect = ["watch ConfigMap near/", "list ConfigMap far/", "list ConfigMap away/", "list ConfigMap far/"];
    assert_eq!(asked, [&expect[..], &["list ConfigMap nowhere/"]].concat());
    running.stop().await
}
