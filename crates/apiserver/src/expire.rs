//! Objects that expire: events. In: the age their kind may reach. Out: deletions, as any client makes them. Never asks who
//! owns what; `collect` and controllers do.

use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use konverge_store::Range;
use serde_json::Value;

use crate::collect::{done, report};
use crate::delete::{DeleteOptions, delete};
use crate::server::Server;

/// How often they are looked for.
const EVERY: Duration = Duration::from_secs(60);

/// Looks now and then until the server closes or is gone.
pub(crate) async fn run(server: Weak<Server>, mut closing: tokio::sync::watch::Receiver<bool>) {
    let mut clock = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = clock.tick() => {
                let Some(server) = server.upgrade() else { return };
                expire(&server).await;
            }
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
        }
    }
}

/// Deletes objects that have outlived their kind's time.
async fn expire(server: &Arc<Server>) {
    let now = server.env.now();
    let kinds = server.kinds.snapshot();
    for row in kinds.stored() {
        let Some(age) = row.behaviour.expires else { continue };
        let page = server.store.range(Range { prefix: &row.shelf.prefix, ..Range::default() });
        let page = page.expect("the newest revision can always be read");
        for entry in page.entries {
            let object = row.view(&entry);
            let seen = last_seen(&object);
            if seen.is_some_and(|seen| now.duration_since(seen).unsigned_abs() > age && now > seen) {
                let (namespace, name) = row.identity(&entry.key);
                report(done(delete(server, row, namespace, name, &DeleteOptions::default()).await)).await;
            }
        }
    }
}

/// The newest time an event tells of.
fn last_seen(event: &Value) -> Option<Timestamp> {
    let times = ["/metadata/creationTimestamp", "/lastTimestamp", "/eventTime", "/series/lastObservedTime"];
    times.iter().filter_map(|path| event.pointer(path)?.as_str()?.parse().ok()).max()
}
