//! How long rows of the table of kinds hold. In: the revision at which they do not any more. Out: a future for those who
//! go on reading through such a row. Built-in rows stay, so nobody waits for the end of one.

use std::sync::Arc;

use tokio::sync::watch;

use konverge_store::Revision;

/// The time during which a CRD says the same. Clones are the same tenure; all rows of the CRD share it.
#[derive(Clone, Debug, Default)]
pub struct Tenure(Arc<watch::Sender<Option<Revision>>>);

impl Tenure {
    /// Ends it: what is committed after `revision` is no longer for those who came through these rows.
    pub(crate) fn end(&self, revision: Revision) {
        self.0.send_replace(Some(revision));
    }

    /// Waits for the end, also if that was before; gives its revision.
    pub(crate) fn over(&self) -> impl Future<Output = Revision> + Send + 'static {
        let tenure = self.clone();
        async move {
            let mut ended = tenure.0.subscribe();
            let ended = ended.wait_for(Option::is_some).await.expect("the sender is held here");
            ended.expect("that was waited for")
        }
    }
}
