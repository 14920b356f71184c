//! Where requests compute. In: a request that can be answered more than once until it commits. Out: its answer, or the
//! `Status` that says that it is too expensive.
//!
//! Every request first runs where it arrived, on a thread that serves connections, with a budget of about a millisecond. One
//! that needs more is abandoned before it has committed anything, and runs again on a thread of its own with the full budget.
//! Only a few of those run at a time, so that others are served beside them. When the client disconnects, the future is
//! dropped, which cancels the budget, and the thread stops at its next step, or at once if it waits.

use std::sync::Arc;

use konverge_core::Status;
use konverge_schema::{Budget, OverBudget};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::in_flight;

/// What a request may compute on a thread that serves connections: about a millisecond. An ordinary object takes a tenth.
pub(crate) const INLINE_STEPS: u64 = 20_000;
const INLINE_BYTES: u64 = 512 * 1024;

/// How many expensive requests may wait for a thread. Each holds a body of at most 3 MiB; more requests get 429.
const MAX_WAITING: usize = 64;

/// Texts longer than this are turned into YAML on another thread: that takes about 100 ns a byte.
const LONG_TEXT: usize = 32 * 1024;

/// The memory for all long YAML answers together, from before they are written until their clients have read them. The
/// listener reserves memory before a request begins, but these wait for a thread after that, so without this limit thousands
/// of them could be in memory. Enough for 30 of the largest objects; a list that is larger is written alone.
const TEXTS_KIB: u32 = 64 * 1024;

/// The most that one request may compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// How long a request may take until its answer begins, the body it sends included. A watch that has begun goes on.
    pub timeout: std::time::Duration,
    /// How many steps decoding, defaulting, patching and validating may take together; some 50 ns each.
    pub steps: u64,
    /// How many bytes defaulting, patching and the aliases of YAML may add.
    pub bytes: u64,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            // What kube-apiserver has.
            timeout: std::time::Duration::from_secs(60),
            // A second or two. The largest object that can be stored, a list of 700,000 numbers, takes a quarter of it.
            steps: 20_000_000,
            // Ten times what can be stored, so that a list may shrink again on its way.
            bytes: 16 * 1024 * 1024,
        }
    }
}

/// The threads for expensive requests.
pub(crate) struct Workers {
    limits: RequestLimits,
    slots: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// For writing YAML. Separate from `slots`, so that a request that has a slot can wait for it.
    writers: Arc<Semaphore>,
    /// Each permit is a KiB of texts.
    texts: Arc<Semaphore>,
}

/// The slot of an expensive request. The request gives it back while it waits for somebody else.
struct Slot {
    slots: Arc<Semaphore>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// The place in the queue, which the request leaves for good when it waits for somebody else for the first time.
    queued: Mutex<Option<OwnedSemaphorePermit>>,
}

tokio::task_local! {
    static SLOT: Arc<Slot>;
}

/// Waits for what others do, such as a webhook, without keeping other expensive requests from computing.
pub(crate) async fn without_slot<T>(waiting: impl Future<Output = T>) -> T {
    let Ok(slot) = SLOT.try_with(Clone::clone) else { return waiting.await };
    // Several webhooks are called at the same time, and only the first call finds the permit.
    let permit = slot.permit.lock().take();
    let was_held = permit.is_some();
    drop(permit);
    drop(slot.queued.lock().take());
    let done = waiting.await;
    if was_held {
        let permit = acquire(&slot.slots).await;
        *slot.permit.lock() = Some(permit);
    }
    done
}

/// Makes sure that a request has so many steps left before others are asked, who would be asked again if it ran over its small
/// budget afterwards. If it has not, it moves to a thread of its own now.
pub(crate) fn leave(budget: &Budget, steps: u64) -> Result<(), Status> {
    if budget.steps_left() < steps {
        budget.spend(INLINE_STEPS);
    }
    budget.check().map_err(over_budget)
}

/// Cancels the work when nobody waits for it any more: the budget ends what computes, and the channel, which closes, ends
/// what waits for something else.
struct CancelOnDrop(Arc<Budget>, #[expect(dead_code, reason = "dropping it is the message")] oneshot::Sender<()>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Workers {
    pub(crate) fn new(limits: RequestLimits) -> Self {
        // Half of the cores: the others serve.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let slots = (cores / 2).max(1);
        Self {
            limits,
            slots: Arc::new(Semaphore::new(slots)),
            waiting: Arc::new(Semaphore::new(slots + MAX_WAITING)),
            writers: Arc::new(Semaphore::new(slots)),
            texts: Arc::new(Semaphore::new(TEXTS_KIB as usize)),
        }
    }

    pub(crate) fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// Runs a request here, and again on a thread of its own if it needs more than a small budget. A request that is over
    /// its budget must fail before it commits.
    pub(crate) async fn run<T, F>(&self, request: impl Fn(Arc<Budget>) -> F + Send + 'static) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send,
    {
        let small = Arc::new(Budget::new(INLINE_STEPS.min(self.limits.steps), INLINE_BYTES.min(self.limits.bytes)));
        let answer = request(small.clone()).await;
        if answer.is_ok() || small.check().is_ok() {
            return answer;
        }
        let Ok(queued) = self.waiting.clone().try_acquire_owned() else {
            let why = "too many requests that take much computing; try again later";
            return Err(Status::failure(429, "TooManyRequests", why).retry_after(1));
        };
        let permit = Mutex::new(Some(acquire(&self.slots).await));
        let slot = Arc::new(Slot { slots: self.slots.clone(), permit, queued: Mutex::new(Some(queued)) });
        let in_flight = in_flight::slot();
        let budget = Arc::new(Budget::new(self.limits.steps, self.limits.bytes));
        let (waits, gone) = oneshot::channel();
        let _cancel = CancelOnDrop(budget.clone(), waits);
        let answer = async move {
            tokio::select! {
                biased;
                answer = request(budget) => answer,
                // The client has disconnected, so the slot must not wait for a webhook.
                _ = gone => Err(timed_out()),
            }
        };
        let answer = in_flight::with_slot(in_flight, answer);
        on_a_thread(slot.clone(), move |runtime| runtime.block_on(SLOT.scope(slot, answer))).await
    }

    /// Waits for memory for a text of about this many bytes; a short text needs none. Must not be awaited while holding a slot:
    /// how long it takes depends on how fast other clients read.
    pub(crate) async fn text_room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes <= LONG_TEXT {
            return None;
        }
        // For the JSON and for the text that is made of it.
        let kib = u32::try_from(bytes / 512).map_or(TEXTS_KIB, |kib| kib.min(TEXTS_KIB));
        Some(self.texts.clone().acquire_many_owned(kib).await.expect("the semaphore is never closed"))
    }

    /// Runs `write` on another thread if the text is long.
    pub(crate) async fn write_text<T: Send + 'static>(
        &self,
        json: Vec<u8>,
        write: impl FnOnce(Vec<u8>) -> T + Send + 'static,
    ) -> T {
        if json.len() <= LONG_TEXT {
            return write(json);
        }
        on_a_thread(acquire(&self.writers).await, move |_| write(json)).await
    }
}

async fn acquire(slots: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    slots.clone().acquire_owned().await.expect("the semaphore is never closed")
}

/// Runs a job on a blocking thread, which holds its slot until it ends, also when nobody waits for it.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    slot: impl Send + 'static,
    job: impl FnOnce(&tokio::runtime::Handle) -> T + Send + 'static,
) -> T {
    let runtime = tokio::runtime::Handle::current();
    let thread = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        job(&runtime)
    });
    match thread.await {
        Ok(answer) => answer,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down and drops this task as well, so there is nobody to answer.
        Err(_) => std::future::pending().await,
    }
}

/// 400, 413 or 504: a request was over its budget.
pub(crate) fn over_budget(why: OverBudget) -> Status {
    match why {
        // A 400, because the same request fails again: no client should repeat it.
        OverBudget::Steps => Status::bad_request(
            "the request takes more computing than one request may use: the object is large, or the anyOf, oneOf and \
             allOf of its schema multiply the work; send a smaller object, or simplify the schema",
        ),
        OverBudget::Bytes => Status::too_large(
            "Request entity too large: with its defaults, copies and aliases written out, the object is too large; \
             send a smaller one, or shorten the defaults of its schema",
        ),
        OverBudget::Cancelled => timed_out(),
    }
}

/// 504: a request took too long.
pub(crate) fn timed_out() -> Status {
    Status::failure(504, "Timeout", "Timeout: request did not complete within the allotted timeout")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(steps: u64) -> Workers {
        Workers::new(RequestLimits { steps, ..RequestLimits::default() })
    }

    /// Spends so many steps, one by one.
    async fn spend(budget: Arc<Budget>, steps: u64) -> Result<u64, Status> {
        for _ in 0..steps {
            budget.spend(1);
        }
        budget.check().map_err(over_budget).map(|()| steps)
    }

    #[tokio::test]
    async fn small_requests_run_here_large_ones_elsewhere() {
        for (steps, limit, elsewhere, code) in [
            (10, 1_000_000, false, None),
            (INLINE_STEPS, 1_000_000, false, None),
            (INLINE_STEPS + 1, 1_000_000, true, None),
            (1_000_001, 1_000_000, true, Some(400)),
        ] {
            let here = std::thread::current().id();
            let moved = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let seen = moved.clone();
            let request = move |budget| {
                if std::thread::current().id() != here {
                    seen.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                spend(budget, steps)
            };
            let answer = workers(limit).run(request).await;
            assert_eq!(answer.err().map(|status| status.code), code, "{steps}");
            assert_eq!(moved.load(std::sync::atomic::Ordering::Relaxed), elsewhere, "{steps}");
        }
    }

    /// On a runtime with one thread: the second request is answered while the first one computes, for the first one
    /// waits until it was.
    #[tokio::test(flavor = "current_thread")]
    async fn others_are_answered_while_one_computes() {
        let workers = workers(1_000_000);
        let (answered, wait) = std::sync::mpsc::channel::<()>();
        let wait = parking_lot::Mutex::new(wait);
        let expensive = workers.run(move |budget| {
            let wait = &wait;
            let first = !budget.spend(INLINE_STEPS + 1);
            if !first {
                wait.lock().recv().expect("the other request is answered");
            }
            std::future::ready(budget.check().map_err(over_budget).map(|()| "expensive"))
        });
        let cheap = async {
            let answer = workers.run(|_| std::future::ready(Ok("cheap"))).await;
            answered.send(()).expect("the first request waits");
            answer
        };
        let (expensive, cheap) = tokio::join!(expensive, cheap);
        assert_eq!((expensive.expect("in its budget"), cheap.expect("in its budget")), ("expensive", "cheap"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn work_ends_when_its_client_goes() {
        let workers = workers(u64::MAX - 1);
        let (began, mut beginning) = tokio::sync::mpsc::channel(1);
        let (ended, mut ending) = tokio::sync::mpsc::channel(1);
        let request = move |budget: Arc<Budget>| {
            let (began, ended) = (began.clone(), ended.clone());
            async move {
                if budget.spend(INLINE_STEPS + 1) {
                    began.try_send(()).expect("is the first");
                    while budget.spend(1) {}
                    ended.try_send(budget.check()).expect("is the first");
                }
                budget.check().map_err(over_budget)
            }
        };
        {
            let running = workers.run(request);
            tokio::pin!(running);
            tokio::select! {
                _ = &mut running => panic!("would compute for centuries"),
                () = async { beginning.recv().await.expect("begins") } => {}
            }
        }
        assert_eq!(ending.recv().await, Some(Err(OverBudget::Cancelled)));
        let slot = acquire(&workers.slots).await;
        drop(slot);
    }

    /// A request may wait for a conversion webhook while it has a slot.
    #[tokio::test(flavor = "current_thread")]
    async fn a_request_that_waits_gives_its_slot_back_when_its_client_goes() {
        let workers = workers(1_000_000);
        let (began, mut beginning) = tokio::sync::mpsc::channel(1);
        let request = move |budget: Arc<Budget>| {
            let began = began.clone();
            async move {
                if budget.spend(INLINE_STEPS + 1) {
                    began.try_send(()).expect("is the first");
                    std::future::pending::<()>().await;
                }
                budget.check().map_err(over_budget)
            }
        };
        {
            let running = workers.run(request);
            tokio::pin!(running);
            tokio::select! {
                _ = &mut running => panic!("waits for ever"),
                () = async { beginning.recv().await.expect("begins") } => {}
            }
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let all = workers.slots.acquire_many((cores / 2).max(1) as u32);
        drop(tokio::time::timeout(std::time::Duration::from_secs(20), all).await.expect("the slot is given back"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_request_that_waits_for_others_lends_its_slot() {
        let workers = workers(1_000_000);
        let waiting = move |budget: Arc<Budget>| async move {
            if budget.spend(INLINE_STEPS + 1) {
                without_slot(std::future::pending::<()>()).await;
            }
            budget.check().map_err(over_budget)
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut waiters: Vec<_> = (0..=cores).map(|_| Box::pin(workers.run(waiting))).collect();
        let all = futures_util::future::join_all(waiters.iter_mut());
        let other = workers.run(|budget| spend(budget, INLINE_STEPS + 1));
        let places = (cores / 2).max(1) + MAX_WAITING;
        let lent = async {
            assert!(other.await.is_ok());
            // Who waits for others has begun by then, or begins soon.
            while workers.waiting.available_permits() < places {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = all => panic!("waits for ever"),
            lent = tokio::time::timeout(std::time::Duration::from_secs(20), lent) => lent.expect("slots and places are lent"),
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_queue_that_is_full_says_so() {
        let workers = workers(1_000_000);
        let _all = workers.waiting.try_acquire_many(workers.waiting.available_permits() as u32).expect("nobody waits");
        let refused = workers.run(|budget| spend(budget, INLINE_STEPS + 1)).await.expect_err("nobody may wait");
        assert_eq!((refused.code, refused.details.expect("says when").retry_after_seconds), (429, 1));
        assert!(workers.run(|budget| spend(budget, 1)).await.is_ok());
    }
}
