//! The threads that an operator runs on. In: its life. Out: what came of it. Where the program has few threads, as tokio
//! makes them in a container with one CPU, the operator gets some of its own, because a reconcile that blocks its thread
//! (a slow library, a sleep in the wrong place) would hold up every other key, the watches and the probes. A runtime of a
//! single thread by choice is left as it is.

use std::future::Future;

use konverge_runtime::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// How many threads are enough: all but one of them may be blocked at the same time.
const ENOUGH: usize = 4;

/// Runs where there are enough threads. What is dropped halfway is cut off at its next await.
pub(super) async fn on_enough<T: Send + 'static>(life: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let here = Handle::current();
    if here.runtime_flavor() != RuntimeFlavor::MultiThread || here.metrics().num_workers() >= ENOUGH {
        return life.await;
    }
    let runtime = Builder::new_multi_thread().worker_threads(ENOUGH).thread_name("operator").enable_all().build();
    let threads = Threads(Some(runtime.map_err(|error| Error::permanent(format!("no threads to work on: {error}")))?));
    match threads.spawn(life).await.map_err(|error| error.try_into_panic()) {
        Ok(ended) => ended,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_cancelled)) => Err(Error::permanent("the operator's threads were ended")),
    }
}

/// Threads that end with this; nobody waits for those that are blocked.
struct Threads(Option<Runtime>);

impl Threads {
    fn spawn<T: Send + 'static>(&self, life: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
        self.0.as_ref().expect("it is taken when this is dropped").spawn(life)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
