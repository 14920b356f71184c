//! How long rows of the table of kinds hold. In: the revision at which they do not any more. Out: a future for those who
//! go on reading through such a row. Built-in rows stay, so nobody waits for the end of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use konverge_store::Revision;

/// The time during which a CRD says the same. Clones are the same tenure; all rows of the CRD share it.
#[derive(Clone, Debug, Default)]
pub struct Tenure {
    ended: Arc<watch::Sender<Option<Revision>>>,
    /// The newest revision of the CRD from which the same rows would be made.
    confirmed: Arc<AtomicU64>,
}

impl Tenure {
    /// The same tenure for rows that differ in nothing that readers would notice.
    pub(crate) fn again(&self) -> Self {
        Self { ended: self.ended.clone(), confirmed: Arc::default() }
    }

    /// Notes that the CRD of this revision says the same.
    pub(crate) fn confirm(&self, revision: Revision) {
        self.confirmed.store(revision.0, Ordering::Release);
    }

    /// Whether these rows are what the CRD of this revision says.
    pub(crate) fn is_confirmed(&self, revision: Revision) -> bool {
        self.confirmed.load(Ordering::Acquire) == revision.0
    }

    /// Ends it: what is committed after `revision` is no longer for those who came through these rows.
    pub(crate) fn end(&self, revision: Revision) {
        self.ended.send_replace(Some(revision));
    }

    /// Waits for the end, also if that was before; gives its revision.
    pub(crate) fn over(&self) -> impl Future<Output = Revision> + Send + 'static {
        let tenure = self.clone();
        async move {
            let mut ended = tenure.ended.subscribe();
            let ended = ended.wait_for(Option::is_some).await.expect("the sender is held here");
            ended.expect("that was waited for")
        }
    }
}
