//! The server's own tasks. In: what a task does until the server closes. Out: the same, also after a panic: that costs the
//! round it happened in, as anywhere in the product, and never the task.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;

/// How long a task waits before it begins anew, so that one that panics every time costs nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// Begins a task again whenever it panics, until it ends by itself. Every task finds what it left undone when it begins.
pub(crate) async fn keep_running<T: Future<Output = ()>>(task: &'static str, begin: impl Fn() -> T) {
    while AssertUnwindSafe(async { begin().await }).catch_unwind().await.is_err() {
        tracing::error!(task, "a task of the server ended in a panic; it begins anew");
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

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
