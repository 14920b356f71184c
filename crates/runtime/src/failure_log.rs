//! How many lines failures are worth. In: the reason of a failure, and the time. Out: whether it is written to the log, and how many of
//! the same reason were not since the last line. When a server is away, every object fails again and again, and whoever reaches the port of
//! a webhook may send nonsense without end; some lines say so, and metrics count all of them.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::token_bucket::{TokenBucket, ticks};

/// How many lines of one reason come at once, and how often one more comes after that. Enough to see which objects fail.
const BURST: u32 = 30;
const EVERY: Duration = Duration::from_secs(10);

/// How many reasons are told apart; more of them share their lines. A program has a handful.
const MAX_REASONS: usize = 64;

/// The failures of one controller, or of the webhooks of an operator.
#[derive(Debug)]
pub struct FailureLog {
    began: Instant,
    reasons: Mutex<HashMap<String, Lines>>,
}

#[derive(Debug)]
struct Lines {
    bucket: TokenBucket,
    left_out: u64,
}

impl FailureLog {
    /// A log that has admitted nothing yet.
    pub fn new(now: Instant) -> Self {
        Self { began: now, reasons: Mutex::default() }
    }

    /// Whether a failure is written to the log: then with the number of those before it that were not.
    pub fn admit(&self, reason: &str, now: Instant) -> Option<u64> {
        let tick = ticks(now.saturating_duration_since(self.began));
        let mut reasons = self.reasons.lock();
        let reason = if reasons.len() < MAX_REASONS || reasons.contains_key(reason) { reason } else { "" };
        // Most of the time the reason is known, and needs no copy.
        if !reasons.contains_key(reason) {
            reasons.insert(reason.to_owned(), Lines { bucket: TokenBucket::new(EVERY, BURST), left_out: 0 });
        }
        let lines = reasons.get_mut(reason)?;
        if lines.bucket.try_take(tick) {
            return Some(std::mem::take(&mut lines.left_out));
        }
        lines.left_out += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_some_lines() {
        let begin = Instant::now();
        let log = FailureLog::new(begin);
        let said = |reason: &str, count: u32, at: Duration| -> Vec<u64> {
            (0..count).filter_map(|_| log.admit(reason, begin + at)).collect()
        };
        assert_eq!(said("Away", 1_000, Duration::ZERO).len(), BURST as usize);
        assert_eq!(said("Away", 10, EVERY), [1_000 - u64::from(BURST)], "and one says how many were left out");
        assert_eq!(said("Forbidden", 2, EVERY), [0, 0], "another reason is not hidden");
        assert_eq!(said("Away", 1, EVERY * 1_000), [9]);
        // Reasons without end are one.
        for number in 0..1_000 {
            log.admit(&format!("Reason{number}"), begin);
        }
        assert!(log.reasons.lock().len() <= MAX_REASONS + 1);
    }
}
