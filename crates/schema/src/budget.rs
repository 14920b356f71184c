//! What one request may cost. In: the steps that a walk takes and the bytes that it produces. Out: whether to go on.
//!
//! A schema can make a small object expensive: defaults multiply it, and nested `anyOf` and `allOf` walk each value again
//! and again. So the functions that can multiply work count it here. Counting costs a load, a comparison and a store. Once
//! a budget is used up or cancelled, every walk returns at once and its public function returns [`OverBudget`]: callers
//! never see a partial result.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;

/// Steps and bytes that are left. One thread spends; any other may cancel.
#[derive(Debug)]
pub struct Budget {
    steps: AtomicU64,
    bytes: AtomicU64,
    cancelled: AtomicBool,
    /// Set when more was asked for than was left.
    out_of_steps: AtomicBool,
    out_of_bytes: AtomicBool,
}

/// Why a walk ended before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    /// The object and its schema take too much computing.
    #[error("the request takes more computing than one request may use")]
    Steps,
    /// The object would become too large.
    #[error("the object grows larger than one request may make it")]
    Bytes,
    /// The caller no longer waits for the result.
    #[error("the request was cancelled")]
    Cancelled,
}

impl Budget {
    /// A budget of so many steps and bytes. `u64::MAX` is no limit.
    ///
    /// ```
    /// use konverge_schema::{Budget, OverBudget};
    /// let budget = Budget::new(2, 100);
    /// assert!(budget.spend(2));
    /// assert!(!budget.spend(1));
    /// assert_eq!(budget.check(), Err(OverBudget::Steps));
    /// ```
    pub const fn new(steps: u64, bytes: u64) -> Self {
        Self {
            steps: AtomicU64::new(steps),
            bytes: AtomicU64::new(bytes),
            cancelled: AtomicBool::new(false),
            out_of_steps: AtomicBool::new(false),
            out_of_bytes: AtomicBool::new(false),
        }
    }

    /// A budget that is never used up, for objects and schemas that are trusted.
    pub fn unlimited() -> &'static Self {
        static UNLIMITED: Budget = Budget::new(u64::MAX, u64::MAX);
        &UNLIMITED
    }

    /// Spends steps. `false` says that the budget is used up, its steps or its bytes, or was cancelled: return at once.
    pub fn spend(&self, steps: u64) -> bool {
        !self.cancelled.load(Ordering::Relaxed)
            && !self.out_of_bytes.load(Ordering::Relaxed)
            && take(&self.steps, steps, &self.out_of_steps)
    }

    /// Spends bytes that are about to be produced, and the steps of producing them.
    pub fn produce(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        take(&self.bytes, bytes, &self.out_of_bytes) && self.spend(1 + bytes / BYTES_PER_STEP)
    }

    /// Spends what a copy of this value takes. Measuring the value takes time as well, so it is skipped when the budget is
    /// already used up.
    pub(crate) fn copy(&self, value: &Value) -> bool {
        self.spend(0) && self.produce(size(value))
    }

    /// Ends every walk that spends from this budget.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Fails if the budget was used up or cancelled.
    pub fn check(&self) -> Result<(), OverBudget> {
        if self.cancelled.load(Ordering::Relaxed) {
            Err(OverBudget::Cancelled)
        } else if self.out_of_bytes.load(Ordering::Relaxed) {
            Err(OverBudget::Bytes)
        } else if self.out_of_steps.load(Ordering::Relaxed) {
            Err(OverBudget::Steps)
        } else {
            Ok(())
        }
    }

    /// How many steps are left.
    pub fn steps_left(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

/// How many bytes are copied in about the time of one step.
const BYTES_PER_STEP: u64 = 64;

/// Only one thread spends, so a load and a store are enough. Without a limit nothing is stored, because all threads share
/// the unlimited budget.
fn take(left: &AtomicU64, amount: u64, out: &AtomicBool) -> bool {
    let had = left.load(Ordering::Relaxed);
    if had == u64::MAX {
        return true;
    }
    match had.checked_sub(amount) {
        Some(rest) => left.store(rest, Ordering::Relaxed),
        None => {
            left.store(0, Ordering::Relaxed);
            out.store(true, Ordering::Relaxed);
        }
    }
    !out.load(Ordering::Relaxed)
}

/// About how many bytes a value takes as JSON.
pub fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value) + 4).sum::<usize>() + 2,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_used_up_stays_used_up() {
        for (steps, bytes, spent, produced, expect) in [
            (10, 100, 10, 0, Ok(())),
            (10, 100, 11, 0, Err(OverBudget::Steps)),
            (10, 100, 0, 100, Ok(())),
            (10, 100, 0, 101, Err(OverBudget::Bytes)),
            (3, 1000, 0, 256, Err(OverBudget::Steps)),
        ] {
            let budget = Budget::new(steps, bytes);
            let within = budget.spend(spent) && (produced == 0 || budget.produce(produced));
            assert_eq!((within, budget.check()), (expect.is_ok(), expect), "{steps} {bytes} {spent} {produced}");
            assert_eq!(budget.spend(0), expect.is_ok(), "{steps} {bytes} {spent} {produced}");
        }
        let budget = Budget::new(10, 10);
        budget.cancel();
        assert!(!budget.spend(0));
        assert_eq!(budget.check(), Err(OverBudget::Cancelled));
        assert!(Budget::unlimited().spend(u64::MAX) && Budget::unlimited().produce(usize::MAX));
    }
}
