//! Requests to the API server, counted by how they ended. In: one call a request. Out: numbers that the table of
//! families shows. A request takes a hundred microseconds at least, so a lock and a search do not matter here.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::latency::{Latency, REQUEST};

#[derive(Default)]
pub(super) struct Requests {
    /// By host and method.
    seen: Mutex<BTreeMap<(String, String), Seen>>,
}

struct Seen {
    codes: BTreeMap<Option<u16>, u64>,
    took: Latency,
}

impl Default for Seen {
    fn default() -> Self {
        Seen { codes: BTreeMap::new(), took: Latency::at(&[&REQUEST]) }
    }
}

impl Requests {
    pub(super) fn ended(&self, method: &str, host: &str, status: Option<u16>, took: Duration) {
        let mut seen = self.seen.lock();
        let seen = seen.entry((host.into(), method.into())).or_default();
        *seen.codes.entry(status).or_insert(0) += 1;
        seen.took.observe(took);
    }

    /// Calls with host, method, code and how often; `<error>` is client-go's word for no answer.
    pub(super) fn codes(&self, mut each: impl FnMut(&str, &str, &str, u64)) {
        for ((host, method), seen) in &*self.seen.lock() {
            for (code, count) in &seen.codes {
                each(host, method, &code.map_or("<error>".into(), |code| code.to_string()), *count);
            }
        }
    }

    /// Calls with host, method and how long its requests took.
    pub(super) fn times(&self, mut each: impl FnMut(&str, &str, &Latency)) {
        for ((host, method), seen) in &*self.seen.lock() {
            each(host, method, &seen.took);
        }
    }
}
