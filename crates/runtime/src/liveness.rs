//! Whether a loop of the engine still does its work. In: rounds that succeeded, and rounds that panicked. Out: how long the
//! loop pauses before its next round, and the answer of the liveness probe. A panic ends the round that it happened in, never
//! the loop: without its watch, a worker or the recorder an operator would look healthy and do nothing.
//!
//! Most panics here come from the program around the engine: a subscriber of `tracing` that cannot write its line, a
//! [`Meter`](crate::Meter) of the program's own. They may pass, so the loop goes on; if they do not, the probe fails until
//! a round goes through, and whoever asks it (a kubelet) starts the process anew.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::reconciler::panic_message;

/// The pause after the first panic, and the longest: it doubles from one to the other. A loop that panics in every round
/// then costs next to nothing, and one whose trouble has passed is back before a kubelet gives up on it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What a loop knows of its own health.
#[derive(Debug)]
pub struct Liveness {
    /// Who it is about, as people read it: `the watch of ConfigMap`.
    name: String,
    /// Panics since a round went through.
    panics: AtomicU32,
    /// What the last panic said.
    said: Mutex<String>,
}

impl Liveness {
    /// A loop of this name, which works.
    pub fn of(name: impl Into<String>) -> Self {
        Self { name: name.into(), panics: AtomicU32::new(0), said: Mutex::default() }
    }

    /// A round went through. Every round says so, and writes only after a panic: others read the same memory.
    pub fn worked(&self) {
        if self.panics.load(Relaxed) != 0 {
            self.panics.store(0, Relaxed);
        }
    }

    /// A round panicked. Says so in the log, and answers how long to wait before the next one.
    pub fn panicked(&self, panic: &(dyn Any + Send)) -> Duration {
        let (message, before) = (panic_message(panic), self.panics.fetch_add(1, Relaxed));
        let pause = FIRST_PAUSE.saturating_mul(1 << before.min(16)).min(LONGEST_PAUSE);
        quietly(|| tracing::error!(part = self.name, message, ?pause, "a part of the engine panicked and goes on"));
        *self.said.lock() = message;
        pause
    }

    /// Fine, or why not.
    pub fn check(&self) -> Result<(), String> {
        match self.panics.load(Relaxed) {
            0 => Ok(()),
            1 => Err(format!("{} panicked: {}", self.name, self.said.lock())),
            times => Err(format!("{} panicked {times} times in a row: {}", self.name, self.said.lock())),
        }
    }
}

/// Logs where a panic would end a loop. A subscriber that panics loses its line, and nothing else.
pub(crate) fn quietly(log: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(log));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_goes_through_ends_the_alarm() {
        let liveness = Liveness::of("the watch of ConfigMap");
        let panic = || liveness.panicked(&"no").as_secs();
        assert_eq!(liveness.check(), Ok(()));
        assert_eq!(panic(), 1);
        assert_eq!(liveness.check(), Err("the watch of ConfigMap panicked: no".into()));
        assert_eq!([panic(), panic(), panic(), panic(), panic(), panic()], [2, 4, 8, 16, 30, 30]);
        assert_eq!(liveness.check(), Err("the watch of ConfigMap panicked 7 times in a row: no".into()));
        liveness.worked();
        assert_eq!((liveness.check(), panic()), (Ok(()), 1));
    }
}
