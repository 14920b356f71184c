//! The graph follows the store. In: committed changes of pods, persistent volumes, volume attachments and resource slices. Out: a
//! graph that is current. Every decision catches up first; a task does so, too, so that no decision has to catch up with much.

use std::sync::{Arc, Weak};

use tokio::sync::watch::Receiver;

use konverge_store::{Entry, Range, Store, Watch};

use crate::record;
use crate::server::Server;

use super::Nodes;
use super::graph::Graph;

/// How many changes are processed at once.
const BATCH: usize = 256;

/// What is followed: group and plural name.
const KINDS: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "volumeattachments"),
    ("resource.k8s.io", "resourceslices"),
];

/// How far the graph has followed the store.
pub(super) struct Follower {
    store: Arc<dyn Store>,
    /// For each kind what comes before its keys, and the changes since the last time; none before the first.
    kinds: Vec<(Box<str>, Option<Watch>)>,
}

/// Opens the store for the graph, and reads what is stored.
pub(crate) fn load(server: &Server) {
    let prefix = |(group, plural): &(&str, &str)| {
        let resource = server.registry.find(group, "v1", plural).expect("nodes need built-in kinds only");
        (resource.storage.prefix.clone(), None)
    };
    let kinds = KINDS.iter().map(prefix).map(|(prefix, watch)| (Box::from(&*prefix), watch)).collect();
    *server.nodes.follower.lock() = Some(Follower { store: server.store.clone(), kinds });
    server.nodes.catch_up();
}

/// Follows pods, until the server closes. The other kinds change seldom, and decisions follow them, too.
pub(crate) async fn run(server: Weak<Server>, mut closing: Receiver<bool>) {
    loop {
        let Some(strong) = server.upgrade() else { return };
        let from = strong.store.revision();
        strong.nodes.catch_up();
        let prefix = strong.registry.find("", "v1", "pods").expect("pods are built in").storage.prefix.clone();
        // Fails only if everything up to here was compacted in the meantime.
        let Ok(mut changes) = strong.store.watch(&prefix, from) else { continue };
        drop(strong);
        loop {
            tokio::select! {
                batch = changes.next(BATCH) => {
                    let Some(server) = server.upgrade() else { return };
                    server.nodes.catch_up();
                    if batch.is_err() {
                        break;
                    }
                }
                () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
            }
        }
    }
}

impl Nodes {
    /// Brings the graph up to what is committed.
    pub(super) fn catch_up(&self) {
        let mut follower = self.follower.lock();
        let Some(follower) = &mut *follower else { return };
        let Follower { kinds, .. } = follower;
        let current = kinds
            .iter_mut()
            .enumerate()
            .all(|(at, (prefix, changes))| changes.as_mut().is_some_and(|changes| self.take_all(at, prefix, changes)));
        if !current {
            self.read_all(follower);
        }
    }

    /// Takes what has changed of one kind. False if more was written and compacted in between.
    fn take_all(&self, kind: usize, prefix: &str, changes: &mut Watch) -> bool {
        loop {
            match changes.take(BATCH) {
                Ok(batch) if batch.is_empty() => return true,
                Ok(batch) => {
                    let mut graph = self.graph.write();
                    for change in batch {
                        take(&mut graph, kind, &change.key[prefix.len()..], change.after.as_ref());
                    }
                }
                Err(_) => return false,
            }
        }
    }

    /// Makes a new graph of everything that is stored.
    fn read_all(&self, follower: &mut Follower) {
        let mut graph = Graph::default();
        for (at, (prefix, changes)) in follower.kinds.iter_mut().enumerate() {
            let (page, watch) = loop {
                let page = follower.store.range(Range { prefix, ..Range::default() });
                let page = page.expect("the newest revision is never compacted");
                // Refused if more was written and compacted in between: then the kind is read again. Nothing was taken of the
                // page, because what it has may be deleted by now, and would be granted for ever.
                if let Ok(watch) = follower.store.watch(prefix, page.revision) {
                    break (page, watch);
                }
            };
            for entry in &page.entries {
                take(&mut graph, at, &entry.key[prefix.len()..], Some(entry));
            }
            *changes = Some(watch);
        }
        *self.graph.write() = graph;
    }
}

/// Takes one object of a kind as it is now, or that it is gone.
fn take(graph: &mut Graph, kind: usize, place: &str, now: Option<&Entry>) {
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let object = now.map(record::decode);
    match (KINDS[kind].1, object) {
        ("pods", Some(pod)) => graph.set_pod(namespace, name, &pod),
        ("pods", None) => graph.remove_pod(namespace, name),
        ("persistentvolumes", Some(volume)) => graph.set_volume(name, &volume),
        ("persistentvolumes", None) => graph.remove_volume(name),
        ("volumeattachments", attachment) => graph.set_attachment(name, attachment.as_ref()),
        (_, slice) => graph.set_slice(name, slice.as_ref()),
    }
}

#[cfg(test)]
mod tests;
