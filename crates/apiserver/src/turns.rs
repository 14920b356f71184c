//! Taking turns: writes that decide by what others hold, such as the addresses of services and the names of kinds, are
//! committed one after the other. In: a commit. Out: its outcome. A turn lasts until the outcome of its commit is known,
//! whatever becomes of the request that took it.

use tokio::sync::{Mutex, MutexGuard};

use konverge_store::{BoxFuture, CommitError, Revision};

type Committing = BoxFuture<'static, Result<Revision, CommitError>>;

/// One turn at a time.
#[derive(Default)]
pub(crate) struct Turns {
    /// The commit of whoever had the last turn and went away before its outcome was known. The store goes on with it.
    underway: Mutex<Option<Committing>>,
}

/// Somebody's turn.
pub(crate) struct Turn<'t>(MutexGuard<'t, Option<Committing>>);

impl Turns {
    /// Waits until everybody before is done, and their commits, too.
    pub async fn next(&self) -> Turn<'_> {
        let mut turn = Turn(self.underway.lock().await);
        turn.finish().await;
        turn
    }
}

impl Turn<'_> {
    /// Commits. Who drops this future leaves the commit to the next in turn, who waits for it.
    pub async fn commit(&mut self, committing: Committing) -> Result<Revision, CommitError> {
        *self.0 = Some(committing);
        self.finish().await.expect("the commit is there")
    }

    async fn finish(&mut self) -> Option<Result<Revision, CommitError>> {
        // It stays where it is while it is waited for, or else it would be dropped with this future.
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
    async fn a_turn_lasts_until_the_outcome_is_known() {
        let turns = Turns::default();
        let (known, outcome) = oneshot::channel();
        let mut turn = turns.next().await;
        let mut first = Box::pin(turn.commit(Box::pin(async { outcome.await.expect("an outcome") })));
        assert!(poll!(&mut first).is_pending());
        drop(first);
        drop(turn);
        // Whoever waits for it may go away as well.
        for _ in 0..2 {
            assert!(poll!(Box::pin(turns.next())).is_pending());
        }
        known.send(Ok(Revision(5))).expect("the outcome is still waited for");
        let mut turn = turns.next().await;
        let revision = turn.commit(Box::pin(std::future::ready(Ok(Revision(6))))).await;
        assert_eq!(revision.expect("a revision"), Revision(6));
    }
}
