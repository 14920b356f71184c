//! Finalizers beside other controllers and deletes.

use std::sync::Arc;

use konverge_runtime::{Finalized, Object, WriteError};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Fault, cached, key, meddle, webapp};

const OURS: &str = "example.com/ours";
const THEIRS: &str = "example.com/theirs";

/// A custom resource with these finalizers.
async fn resource(cluster: &Cluster, finalizers: &[&str]) -> Arc<Object> {
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "WebApp",
        "metadata": {"name": "w", "namespace": "default", "finalizers": finalizers}, "spec": {},
    });
    cached(&webapp(), &cluster.create(&webapp(), object).await)
}

async fn finalizers(cluster: &Cluster) -> Option<Value> {
    cluster.see(&webapp(), "w").await.map(|object| object["metadata"]["finalizers"].clone())
}

fn then_meddle(patch: Value) -> Fault {
    Fault::After(Box::new(|client| {
        Box::pin(async {
            meddle(client, webapp(), "w".into(), patch).await;
        })
    }))
}

fn then_delete() -> Fault {
    Fault::After(Box::new(|client| {
        Box::pin(async move {
            use konverge_runtime::{FieldManager, Writer, WriterOptions};
            let other = Writer::new(client, FieldManager::new("somebody"), WriterOptions::default());
            other.delete_named(&webapp(), &key(&webapp(), "w")).await.unwrap();
        })
    }))
}

#[tokio::test]
async fn one_call_adds_and_one_removes() {
    for others in [&[][..], &[THEIRS]] {
        let cluster = Cluster::start().await;
        let live = resource(&cluster, others).await;
        let Finalized::Changed(added) = cluster.writer.add_finalizer(&webapp(), &live, OURS).await.unwrap() else {
            panic!("it was added")
        };
        let all: Vec<&str> = others.iter().copied().chain([OURS]).collect();
        assert_eq!(added.value()["metadata"]["finalizers"], json!(all));
        assert_eq!(cluster.writer.add_finalizer(&webapp(), &added, OURS).await.unwrap(), Finalized::Unchanged);
        assert_eq!(cluster.methods(), "PATCH");

        let removed = cluster.writer.remove_finalizer(&webapp(), &added, OURS).await.unwrap();
        let Finalized::Changed(removed) = removed else { panic!("it was removed") };
        assert_eq!(cluster.writer.remove_finalizer(&webapp(), &removed, OURS).await.unwrap(), Finalized::Unchanged);
        assert_eq!(cluster.methods(), "PATCH");
        assert_eq!(finalizers(&cluster).await.unwrap().as_array().map_or(0, Vec::len), others.len());
    }
}

#[tokio::test]
async fn nobody_elses_is_lost_in_a_race() {
    // Somebody adds theirs to an empty list, or to one with others, just before ours arrives.
    for before in [&[][..], &["example.com/first"]] {
        let cluster = Cluster::start().await;
        let live = resource(&cluster, before).await;
        let raced: Vec<&str> = before.iter().copied().chain([THEIRS]).collect();
        cluster.break_next([then_meddle(json!({"metadata": {"finalizers": raced}}))]);
        let added = cluster.writer.add_finalizer(&webapp(), &live, OURS).await.unwrap();
        assert!(matches!(added, Finalized::Changed(_)), "{added:?}");
        assert_eq!(cluster.methods(), "PATCH GET PATCH");
        let all: Vec<&str> = raced.iter().copied().chain([OURS]).collect();
        assert_eq!(finalizers(&cluster).await, Some(json!(all)));

        // And somebody moves ours just before it is removed.
        let live = cached(&webapp(), &cluster.see(&webapp(), "w").await.unwrap());
        cluster.break_next([then_meddle(json!({"metadata": {"finalizers": [OURS, THEIRS]}}))]);
        cluster.writer.remove_finalizer(&webapp(), &live, OURS).await.unwrap();
        assert_eq!(finalizers(&cluster).await, Some(json!([THEIRS])));
    }
}

#[tokio::test]
async fn a_status_written_meanwhile_does_not_keep_it_out() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster, &[]).await;
    cluster.break_next([then_meddle(json!({"status": {"phase": "Up"}}))]);
    assert!(matches!(cluster.writer.add_finalizer(&webapp(), &live, OURS).await.unwrap(), Finalized::Changed(_)));
    assert_eq!(finalizers(&cluster).await, Some(json!([OURS])));
}

#[tokio::test]
async fn none_is_added_to_what_is_being_deleted() {
    // The delete comes before the patch: with others' finalizers the object is still there.
    let cluster = Cluster::start().await;
    let live = resource(&cluster, &[THEIRS]).await;
    cluster.break_next([then_delete()]);
    let late = cluster.writer.add_finalizer(&webapp(), &live, OURS).await.unwrap();
    let Finalized::Deleting(object) = late else { panic!("{late:?}") };
    assert_eq!(object.value()["metadata"]["finalizers"], json!([THEIRS]));
    assert_eq!(cluster.methods(), "PATCH GET");
    // The next time it is known.
    assert!(matches!(cluster.writer.add_finalizer(&webapp(), &object, OURS).await.unwrap(), Finalized::Deleting(_)));
    assert_eq!(cluster.methods(), "");

    // Without them it is gone.
    let cluster = Cluster::start().await;
    let live = resource(&cluster, &[]).await;
    cluster.break_next([then_delete()]);
    assert_eq!(cluster.writer.add_finalizer(&webapp(), &live, OURS).await.unwrap(), Finalized::Gone);
    assert_eq!(cluster.writer.remove_finalizer(&webapp(), &live, OURS).await.unwrap(), Finalized::Unchanged);

    // Another object of the name is not touched.
    let second = resource(&cluster, &[OURS]).await;
    assert_eq!(cluster.writer.add_finalizer(&webapp(), &live, "example.com/x").await.unwrap(), Finalized::Gone);
    let mut first = second.value();
    first["metadata"]["uid"] = live.uid().into();
    let first = cached(&webapp(), &first);
    assert_eq!(cluster.writer.remove_finalizer(&webapp(), &first, OURS).await.unwrap(), Finalized::Gone);
    assert_eq!(finalizers(&cluster).await, Some(json!([OURS])));
}

#[tokio::test]
async fn the_last_one_lets_the_object_go() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster, &[OURS]).await;
    cluster.writer.delete(&webapp(), &live.value()).await.unwrap();
    let leaving = cached(&webapp(), &cluster.see(&webapp(), "w").await.unwrap());
    assert!(matches!(cluster.writer.remove_finalizer(&webapp(), &leaving, OURS).await.unwrap(), Finalized::Changed(_)));
    assert_eq!(finalizers(&cluster).await, None);
    assert_eq!(cluster.writer.remove_finalizer(&webapp(), &leaving, OURS).await.unwrap(), Finalized::Gone);
}

#[tokio::test]
async fn an_object_that_never_rests_is_left_for_later() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster, &[]).await;
    let faults = (0..5).flat_map(|at| {
        let label = at.to_string();
        [then_meddle(json!({"metadata": {"labels": {"at": label}}})), Fault::After(Box::new(|_| Box::pin(async {})))]
    });
    cluster.break_next(faults);
    let error = cluster.writer.add_finalizer(&webapp(), &live, OURS).await.unwrap_err();
    assert!(matches!(&error, WriteError::Conflict { fields, .. } if fields.is_empty()), "{error:?}");
    cluster.methods();
}

#[tokio::test]
async fn a_finalizer_that_the_server_refuses_is_not_taken_for_a_race() {
    let cluster = Cluster::start().await;
    let live = resource(&cluster, &[]).await;
    let words = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
        "message": "metadata.finalizers: Invalid value: \"ours\": name is neither a standard finalizer name nor is it \
                    fully qualified",
    });
    cluster.break_next([Fault::Answer(422, &[], words)]);
    let error = cluster.writer.add_finalizer(&webapp(), &live, "ours").await.unwrap_err();
    assert!(matches!(&error, WriteError::Invalid { message, .. } if message.contains("fully qualified")), "{error:?}");
    assert_eq!(cluster.methods(), "PATCH GET");
}
