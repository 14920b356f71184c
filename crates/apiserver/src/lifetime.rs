//! How long the resources of a custom resource definition stay valid. In: the revision at which the definition changed. Out: a
//! future for watches, which end when their resource does. Built-in resources are always valid and have no lifetime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use konverge_store::Revision;

/// The time during which a definition stands for the same resources. Clones are the same lifetime; all resources of a
/// definition share one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lifetime {
    ended: Arc<watch::Sender<Option<Revision>>>,
    /// The newest revision of the definition that stands for these resources.
    confirmed: Arc<AtomicU64>,
}

impl Lifetime {
    /// The same lifetime for new resources that differ in nothing a watch would notice.
    pub(crate) fn continued(&self) -> Self {
        Self { ended: self.ended.clone(), confirmed: Arc::default() }
    }

    /// Notes that the definition of this revision stands for the same resources.
    pub(crate) fn confirm(&self, revision: Revision) {
        self.confirmed.store(revision.0, Ordering::Release);
    }

    /// Whether the definition of this revision stands for these resources.
    pub(crate) fn is_confirmed(&self, revision: Revision) -> bool {
        self.confirmed.load(Ordering::Acquire) == revision.0
    }

    /// Ends the lifetime: watches of these resources show no change after `revision`.
    pub(crate) fn end(&self, revision: Revision) {
        self.ended.send_replace(Some(revision));
    }

    /// Waits for the end, which may have been before, and gives its revision.
    pub(crate) fn ended(&self) -> impl Future<Output = Revision> + Send + 'static {
        let lifetime = self.clone();
        async move {
            let mut ended = lifetime.ended.subscribe();
            let ended = ended.wait_for(Option::is_some).await.expect("the sender is held here");
            ended.expect("that was waited for")
        }
    }
}
