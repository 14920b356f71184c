//! Reviews of webhooks, counted by how they ended. In: the beginning and end of each request, and the verdict of each review.
//! Out: numbers that the table of families shows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::latency::{COMMON, Latency, QUEUE};

/// The codes that controller-runtime shows from the beginning.
const USUAL_CODES: [u16; 2] = [200, 500];

pub(super) struct State {
    in_flight: AtomicU64,
    codes: Mutex<BTreeMap<u16, u64>>,
    /// By operation and verdict.
    verdicts: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    pub took: Latency,
}

impl Default for State {
    fn default() -> Self {
        State {
            in_flight: AtomicU64::new(0),
            codes: Mutex::new(USUAL_CODES.map(|code| (code, 0)).into()),
            verdicts: Mutex::default(),
            took: Latency::at(&[&QUEUE, &COMMON]),
        }
    }
}

impl State {
    pub(super) fn in_flight(&self) -> f64 {
        self.in_flight.load(Relaxed) as f64
    }

    /// Calls with each code and how often.
    pub(super) fn codes(&self, mut each: impl FnMut(&str, f64)) {
        for (code, count) in &*self.codes.lock() {
            each(&code.to_string(), *count as f64);
        }
    }

    /// Calls with each operation and verdict, and how often.
    pub(super) fn verdicts(&self, mut each: impl FnMut(&str, &str, f64)) {
        for ((operation, verdict), count) in &*self.verdicts.lock() {
            each(operation, verdict, *count as f64);
        }
    }
}

/// The handles of one webhook.
#[derive(Clone)]
pub(crate) struct WebhookMetrics(Arc<State>);

/// A request that is being answered. It is no longer in flight when this is dropped, whatever became of it.
pub(crate) struct WebhookRequest {
    state: Arc<State>,
    began: Instant,
}

impl WebhookMetrics {
    pub(super) fn of(state: Arc<State>) -> Self {
        Self(state)
    }

    pub(crate) fn begin(&self) -> WebhookRequest {
        self.0.in_flight.fetch_add(1, Relaxed);
        WebhookRequest { state: self.0.clone(), began: Instant::now() }
    }

    /// A review ended like this.
    pub(crate) fn reviewed(&self, operation: &'static str, verdict: &'static str) {
        *self.0.verdicts.lock().entry((operation, verdict)).or_insert(0) += 1;
    }
}

impl WebhookRequest {
    /// The request was answered with this code.
    pub(crate) fn answered(self, code: u16) {
        *self.state.codes.lock().entry(code).or_insert(0) += 1;
        self.state.took.observe(self.elapsed());
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for WebhookRequest {
    fn drop(&mut self) {
        self.state.in_flight.fetch_sub(1, Relaxed);
    }
}
