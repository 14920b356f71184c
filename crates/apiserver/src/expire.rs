//! Deletes what is too old: events, and the store's history. In: the age that objects of a kind may reach
//! (`expires` in `kubernetes.behaviour`). Out: deletions.
//! Ownership is not considered here; that is for `garbage` and controllers.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use konverge_schema::Budget;
use konverge_store::Range;
use serde_json::Value;

use crate::delete::{DeleteOptions, Deletion};
use crate::garbage::{ignore_lost_race, report};
use crate::server::Server;
use crate::user::SystemUser;

/// How often old objects are searched.
const EVERY: Duration = Duration::from_secs(60);

/// After this many objects the task yields, so that requests are served: about a millisecond's worth.
const BATCH: usize = 100;

/// Searches from time to time until the server closes or is gone.
pub(crate) async fn run(server: Weak<Server>, mut closing: tokio::sync::watch::Receiver<bool>) {
    let mut clock = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = clock.tick() => {
                let Some(server) = server.upgrade() else { return };
                tokio::join!(expire(&server), maintain(&server));
            }
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
        }
    }
}

/// Deletes objects that are older than their kind allows.
async fn expire(server: &Arc<Server>) {
    let now = server.env.now();
    let context = server.task_context(SystemUser::ApiServer);
    let snapshot = server.registry.snapshot();
    for resource in snapshot.stored() {
        let Some(age) = resource.behaviour.expires else { continue };
        // Nobody is asked: in Kubernetes it is etcd that drops what has expired.
        let options = &DeleteOptions::default();
        let deletion = Deletion {
            server,
            context: &context,
            resource,
            options,
            admitted: true,
            collection: false,
            warnings: None,
        };
        let mut after: Option<Arc<str>> = None;
        loop {
            let range = Range {
                prefix: &resource.storage.prefix,
                after: after.as_deref(),
                limit: Some(BATCH),
                ..Range::default()
            };
            let page = server.store.range(range).expect("the newest revision can always be read");
            after = page.entries.last().map(|entry| entry.key.clone());
            let records = match resource.read_all(page.entries).await {
                Ok(records) => records,
                Err(status) => {
                    let (code, resource) = (status.code, &resource.plural);
                    tracing::warn!(code, %resource, message = %status.message, "cannot read objects that may have expired");
                    break;
                }
            };
            for entry in records {
                let object = resource.object(&entry);
                let seen = last_seen(&object);
                if seen.is_some_and(|seen| now.duration_since(seen).unsigned_abs() > age && now > seen) {
                    let (namespace, name) = resource.identity(&entry.key);
                    report(ignore_lost_race(deletion.run(namespace, name, Budget::unlimited()).await)).await;
                }
            }
            if !page.more {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Lets the store drop old history, on a thread that serves nobody.
async fn maintain(server: &Arc<Server>) {
    let store = server.store.clone();
    if tokio::task::spawn_blocking(move || store.maintain(Instant::now())).await.is_err() {
        tracing::error!("the store could not be maintained: it panicked; its history grows until a restart");
    }
}

/// The newest time in an event.
fn last_seen(event: &Value) -> Option<Timestamp> {
    let times = ["/metadata/creationTimestamp", "/lastTimestamp", "/eventTime", "/series/lastObservedTime"];
    times.iter().filter_map(|path| event.pointer(path)?.as_str()?.parse().ok()).max()
}

#[cfg(test)]
mod tests {

    use konverge_store::Commit;
    use serde_json::json;

    use super::*;
    use crate::record;
    use crate::server::{ApiServer, Options};
    use crate::tasks::tests::yields_during;

    #[tokio::test]
    async fn others_get_their_turn_while_events_are_looked_at() {
        let api = ApiServer::open(Options::default()).await.unwrap();
        let server = &api.0;
        let resource = &server.registry.find("", "v1", "events").unwrap();
        let mut all = Commit::default();
        for number in 0..20 * BATCH {
            let name = format!("e{number:05}");
            // Every tenth has outlived its time.
            let created = if number % 10 == 0 { "2020-01-01T00:00:00Z".parse().unwrap() } else { server.env.now() };
            let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {
                "name": name, "namespace": "default", "creationTimestamp": crate::env::rfc3339(created),
            }});
            all = all.put(resource.key(Some("default"), &name), record::encode(&event));
        }
        server.store.commit(all).await.unwrap();
        let turns = yields_during(expire(server)).await;
        let left = server.store.count(Range { prefix: &resource.storage.prefix, ..Range::default() });
        assert_eq!(left, Ok(18 * BATCH));
        assert!(turns >= 15, "{turns} turns");
    }
}
