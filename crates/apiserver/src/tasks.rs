//! The server's own tasks. In: a task that runs until the server closes. Out: the same task, which starts again after a panic;
//! however much it has to do, requests are served in between.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};

/// How many steps run at once: enough that a disk store can commit them in groups.
const AT_ONCE: usize = 64;

/// After this many steps the task yields, so that requests are served: about a millisecond's worth.
const STEPS_A_TURN: usize = 16;

/// How long a task waits before it starts again, so that one that always panics costs little.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts a task again whenever it panics, until it ends by itself. At its start, every task finds what is left to do.
pub(crate) async fn keep_running<T: Future<Output = ()>>(task: &'static str, begin: impl Fn() -> T) {
    while AssertUnwindSafe(async { begin().await }).catch_unwind().await.is_err() {
        tracing::error!(task, "a task of the server panicked; starting it again");
        tokio::time::sleep(PAUSE).await;
    }
}

/// One step of a task.
pub(crate) type TaskStep<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs all steps, several at once, and gives their outcomes.
pub(crate) async fn run_concurrently<T>(steps: Vec<TaskStep<'_, T>>) -> Vec<T> {
    let mut outcomes = Vec::with_capacity(steps.len());
    let mut running = stream::iter(steps).buffer_unordered(AT_ONCE);
    while let Some(outcome) = running.next().await {
        outcomes.push(outcome);
        // A store in memory never waits, so nothing else would run on this thread.
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

    /// How often another task runs on this thread while work is done.
    pub(crate) async fn yields_during(work: impl Future) -> usize {
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
