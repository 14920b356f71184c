//! A lock for writes that depend on what other objects hold, such as the addresses of services and the names of kinds. In: a
//! commit. Out: its outcome. The lock is held until the outcome of the commit is known, also if the request that took it is
//! dropped before.

use tokio::sync::{Mutex, MutexGuard};

use konverge_store::{BoxFuture, CommitError, Revision};

type Committing = BoxFuture<'static, Result<Revision, CommitError>>;

/// Lets one write at a time read, decide and commit.
#[derive(Default)]
pub(crate) struct CommitLock {
    /// The commit of a request that was dropped before its outcome was known. The store goes on with it.
    pending: Mutex<Option<Committing>>,
}

/// Holds the lock.
pub(crate) struct CommitGuard<'l>(MutexGuard<'l, Option<Committing>>);

impl CommitLock {
    /// Waits until the writes before this one have ended, and their commits, too.
    pub(crate) async fn lock(&self) -> CommitGuard<'_> {
        let mut guard = CommitGuard(self.pending.lock().await);
        guard.finish().await;
        guard
    }
}

impl CommitGuard<'_> {
    /// Commits. If this future is dropped, the next one who locks waits for the commit.
    pub(crate) async fn commit(&mut self, committing: Committing) -> Result<Revision, CommitError> {
        *self.0 = Some(committing);
        self.finish().await.expect("the commit is there")
    }

    async fn finish(&mut self) -> Option<Result<Revision, CommitError>> {
        // The commit stays behind the lock while this waits for it; otherwise it would be dropped with this future.
        let outcome = self.0.as_mut()?.await;
        *self.0 = None;
        Some(outcome)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn the_lock_is_held_until_the_outcome_is_known() {
        let lock = CommitLock::default();
        let (known, outcome) = oneshot::channel();
        let mut guard = lock.lock().await;
        let mut first = Box::pin(guard.commit(Box::pin(async { outcome.await.expect("an outcome") })));
        assert!(poll!(&mut first).is_pending());
        drop(first);
        drop(guard);
        // A request that waits for it may be dropped as well.
        for _ in 0..2 {
            assert!(poll!(Box::pin(lock.lock())).is_pending());
        }
        known.send(Ok(Revision(5))).expect("the outcome is still waited for");
        let mut guard = lock.lock().await;
        let revision = guard.commit(Box::pin(std::future::ready(Ok(Revision(6))))).await;
        assert_eq!(revision.expect("a revision"), Revision(6));
    }
}
