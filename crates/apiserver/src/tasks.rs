//! The server's own tasks. In: what a task does until the server closes. Out: the same, also after a panic: that costs the
//! round it happened in, as anywhere in the product, and never the task; and however much it has to do, requests go between.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};

/// How many steps are under way at once: enough that a disk store can commit them in groups.
const AT_ONCE: usize = 64;

/// How many steps are done before others get their turn on this thread: about a millisecond's worth.
const STEPS_A_TURN: usize = 16;

/// How long a task waits before it begins anew, so that one that panics every time costs nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// Begins a task again whenever it panics, until it ends by itself. Every task finds what it left undone when it begins.
pub(crate) async fn keep_running<T: Future<Output = ()>>(task: &'static str, begin: impl Fn() -> T) {
    while AssertUnwindSafe(async { begin().await }).catch_unwind().await.is_err() {
        tracing::error!(task, "a task of the server ended in a panic; it begins anew");
        tokio::time::sleep(PAUSE).await;
    }
}

/// One thing to do.
pub(crate) type Step<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Does things side by side, whatever becomes of each.
pub(crate) async fn together<T>(steps: Vec<Step<'_, T>>) -> Vec<T> {
    let mut outcomes = Vec::with_capacity(steps.len());
    let mut running = stream::iter(steps).buffer_unordered(AT_ONCE);
    while let Some(outcome) = running.next().await {
        outcomes.push(outcome);
        // A store in memory never waits, so that nobody else would get on.
        if outcomes.len().is_multiple_of(STEPS_A_TURN) {
            tokio::task::yield_now().await;
        }
    }
    outcomes
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// How often somebody else gets a turn on this thread while work is done.
    pub(crate) async fn turns_during(work: impl Future) -> usize {
        let turns = Arc::new(AtomicUsize::new(0));
        let counting = turns.clone();
        let other = tokio::spawn(async move {
            loop {
                counting.fetch_add(1, Relaxed);
                tokio::task::yield_now().await;
            }
        });
        work.await;
        other.abort();
        turns.load(Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_begins_anew_until_it_ends_by_itself() {
        let rounds = &AtomicUsize::new(0);
        let begun = tokio::time::Instant::now();
        keep_running("test", || {
            let round = rounds.fetch_add(1, Relaxed);
            assert!(round > 0, "before it is a future");
            async move {
                tokio::task::yield_now().await;
                assert!(round > 1, "after it has waited");
            }
        })
        .await;
        assert_eq!((rounds.load(Relaxed), begun.elapsed()), (3, 2 * PAUSE));
    }
}
