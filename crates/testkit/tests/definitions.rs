//! What an operator makes of it when the definition of its kind goes, comes back, and changes while it runs.

use std::time::Duration;

use konverge::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::prelude::*;
use konverge_testkit::{Call, Cluster, Verb};
use tokio::time::{sleep, timeout};

/// Wants a ConfigMap with a text.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Note", namespaced)]
pub struct NoteSpec {
    /// What is in it.
    pub text: String,
}

const DEFINITION: &str = "notes.example.com";

fn note(text: &str) -> Note {
    Note::new("n", NoteSpec { text: text.into() })
}

fn says(text: &'static str) -> impl Fn(&ConfigMap) -> bool {
    move |map| map.get("text") == Some(text)
}

async fn reconcile(ctx: Context<Note>) -> Result<Action> {
    ctx.apply(ConfigMap::new(ctx.name()).data("text", &ctx.resource().spec.text)).await?;
    Ok(Action::await_change())
}

/// Whether somebody asked for Notes in vain.
fn in_vain(call: &Call) -> bool {
    call.verb == Verb::Watch && call.code == Some(404)
}

/// Nobody tells the operator. That the kind is gone it learns because its watch ends, and then it asks until the kind is
/// back; the pauses between take no time here.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_gone_is_missed_and_taken_up_again() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Note>().await?;
    let running = cluster.run_unrestricted(Operator::<Note>::new().reconcile(reconcile));
    for text in ["one", "two", "three"] {
        cluster.create(note(text)).await?;
        cluster.wait_until("n", says(text)).await?;
        cluster.forget_calls();
        cluster.delete::<CustomResourceDefinition>(DEFINITION).await?;
        // The objects go with their kind, and what belongs to them goes after them.
        cluster.wait_gone::<CustomResourceDefinition>(DEFINITION).await?;
        cluster.wait_gone::<ConfigMap>("n").await?;
        let missed = async {
            while cluster.calls().only(in_vain).is_empty() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(Duration::from_secs(30), missed).await.expect("the operator should ask for its kind");
        cluster.install::<Note>().await?;
    }
    running.stop().await
}

/// A watch ends also when its kind only looks different from now on. Nothing is lost, and nothing is listed again.
#[tokio::test(start_paused = true)]
async fn a_kind_that_changes_is_watched_on() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Note>().await?;
    let running = cluster.run_unrestricted(Operator::<Note>::new().reconcile(reconcile));
    cluster.create(note("one")).await?;
    cluster.wait_until("n", says("one")).await?;
    let of_notes = |call: &Call| call.kind == "Note" && matches!(call.verb, Verb::Watch | Verb::List);
    let before = cluster.calls().only(of_notes).len();
    cluster
        .edit(DEFINITION, |definition: &mut CustomResourceDefinition| {
            definition.spec.names.short_names = Some(vec!["nt".into()]);
        })
        .await?;
    cluster.edit("n", |note: &mut Note| note.spec.text = "two".into()).await?;
    cluster.wait_until("n", says("two")).await?;
    let asked = cluster.calls().only(of_notes).lines();
    assert_eq!(asked[before..], ["watch Note"], "{asked:?}");
    running.stop().await
}
