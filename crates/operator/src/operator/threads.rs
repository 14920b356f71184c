//! The threads that an operator runs on. In: the operator's lifecycle as a future. Out: its result. If the program's runtime
//! has few threads, as tokio makes them in a container with one CPU, the operator starts some of its own: a reconcile that
//! blocks its thread (a slow library, a sleep in the wrong place) would hold up every other key, the watches and the probes.
//! A current-thread runtime was chosen on purpose, and is used as it is.

use std::future::Future;

use konverge_runtime::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// How many threads are enough: the operator goes on while all but one of them are blocked.
const ENOUGH: usize = 4;

/// Runs a future on enough threads. If the returned future is dropped, the inner one is cut off at its next await.
pub(super) async fn with_enough_threads<T: Send + 'static>(
    lifecycle: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let here = Handle::current();
    if here.runtime_flavor() != RuntimeFlavor::MultiThread || here.metrics().num_workers() >= ENOUGH {
        return lifecycle.await;
    }
    let runtime = Builder::new_multi_thread().worker_threads(ENOUGH).thread_name("operator").enable_all().build();
    let threads = Threads(Some(runtime.map_err(|error| Error::permanent(format!("no threads to work on: {error}")))?));
    match threads.spawn(lifecycle).await.map_err(|error| error.try_into_panic()) {
        Ok(ended) => ended,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_cancelled)) => Err(Error::permanent("the operator's threads were ended")),
    }
}

/// A runtime that ends when this is dropped, without waiting for blocked threads.
struct Threads(Option<Runtime>);

impl Threads {
    fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
        self.0.as_ref().expect("the runtime is taken only by drop").spawn(future)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
