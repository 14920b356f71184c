//! What a graph has after a store forgot changes while it was read.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use futures_util::FutureExt;
use serde_json::json;
use tokio::sync::watch;

use konverge_store::{BackupError, BoxFuture, Commit, CommitError, Health, Memory, Page, ReadError, Revision};

use crate::node_authorizer::graph::Start;

use super::*;

const POD: &str = "/registry/pods/ns/a";

/// A store that deletes a pod after it was first read, and has compacted the deletion before somebody watches.
#[derive(Default)]
struct Forgetful {
    memory: Memory,
    has_deleted: AtomicBool,
}

impl Forgetful {
    fn now(&self, commit: Commit) -> Revision {
        self.memory.commit(commit).now_or_never().expect("memory commits at once").expect("committed")
    }
}

impl Store for Forgetful {
    fn range(&self, range: Range<'_>) -> Result<Page, ReadError> {
        let page = self.memory.range(range);
        if !self.has_deleted.swap(true, Relaxed) {
            self.now(Commit::default().delete(POD));
            let newest = self.now(Commit::default().put("/registry/other", "{}"));
            self.memory.compact(newest);
        }
        page
    }

    fn revision(&self) -> Revision {
        self.memory.revision()
    }

    fn oldest(&self) -> Revision {
        self.memory.oldest()
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<Option<Entry>, ReadError> {
        self.memory.get(key, at)
    }

    fn count(&self, range: Range<'_>) -> Result<usize, ReadError> {
        self.memory.count(range)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Revision, CommitError>> {
        self.memory.commit(commit)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, ReadError> {
        self.memory.watch(prefix, after)
    }

    fn compact(&self, before: Revision) {
        self.memory.compact(before);
    }

    fn maintain(&self, now: Instant) {
        self.memory.maintain(now);
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.memory.health()
    }

    fn backup(&self, to: &Path) -> Result<Revision, BackupError> {
        self.memory.backup(to)
    }
}

#[tokio::test]
async fn what_is_deleted_while_it_is_read_is_not_granted() {
    let store = Arc::new(Forgetful::default());
    let pod = json!({"metadata": {"uid": "u"}, "spec": {"nodeName": "one"}});
    store.now(Commit::default().put(POD, record::encode(&pod)));
    let nodes = Nodes::default();
    let kinds = KINDS.iter().map(|(_, plural)| (format!("/registry/{plural}/").into(), None)).collect();
    *nodes.follower.lock() = Some(Follower { store: store.clone(), kinds });
    nodes.catch_up();
    assert!(store.has_deleted.load(Relaxed));
    assert!(!nodes.graph.read().reaches("one", Start::Pod, "ns", "a"), "the pod is gone");
    store.now(Commit::default().put(POD, record::encode(&pod)));
    nodes.catch_up();
    assert!(nodes.graph.read().reaches("one", Start::Pod, "ns", "a"), "the graph follows");
}
