//! How long a Lease is held, and how often it is renewed. Plain values.

use std::time::Duration;

/// How long a Lease is held, and how often it is renewed. The defaults are those of client-go: 15 s, 10 s and 2 s.
///
/// A leader stops at the latest `renew_deadline` after it *sent* its last successful renewal. Others take over `duration` after they
/// *saw* that renewal. So there are never two leaders at the same time, as long as no clock runs faster than another by more than
/// `duration / renew_deadline`, which is 1.5 by default. Clocks that show another time do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long others wait after a renewal before they take over. Kubernetes stores whole seconds.
    pub duration: Duration,
    /// How long a leader goes on without a successful renewal.
    pub renew_deadline: Duration,
    /// How often a leader renews, and the pause after a failed attempt.
    pub retry_period: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl LeaseTiming {
    /// Whether the three fit together; if not, a sentence that says what to change.
    pub fn check(&self) -> Result<(), String> {
        let Self { duration, renew_deadline, retry_period } = *self;
        if duration < Duration::from_secs(1) || duration.subsec_nanos() != 0 {
            return Err(format!("the lease duration is {duration:?}; it has to be whole seconds, at least one"));
        }
        if duration > Duration::from_secs(i32::MAX as u64) {
            return Err(format!("the lease duration is {duration:?}; that is more than a Lease can say"));
        }
        if renew_deadline >= duration {
            return Err(format!(
                "the renew deadline is {renew_deadline:?}; it has to be shorter than the lease duration, {duration:?}, because \
                 others take over then"
            ));
        }
        if retry_period.is_zero() {
            return Err("the retry period is 0; a leader would renew without a pause".into());
        }
        if retry_period.saturating_mul(2) > renew_deadline {
            return Err(format!(
                "the retry period is {retry_period:?}; it has to be at most half of the renew deadline, {renew_deadline:?}, so that \
                 one failed renewal does not cost the lead"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fit_together() {
        let check = |duration: u64, renew: u64, retry: u64| {
            let milliseconds = Duration::from_millis;
            let timing = LeaseTiming {
                duration: milliseconds(duration),
                renew_deadline: milliseconds(renew),
                retry_period: milliseconds(retry),
            };
            timing.check().err().unwrap_or_default()
        };
        for (given, expect) in [
            ((15_000, 10_000, 2_000), ""),
            ((1_000, 900, 450), ""),
            ((500, 300, 100), "the lease duration is 500ms; it has to be whole seconds"),
            ((1_500, 300, 100), "the lease duration is 1.5s; it has to be whole seconds"),
            ((15_000, 15_000, 2_000), "the renew deadline is 15s; it has to be shorter"),
            ((15_000, 10_000, 0), "the retry period is 0"),
            ((15_000, 10_000, 5_001), "the retry period is 5.001s; it has to be at most half"),
        ] {
            let (duration, renew, retry) = given;
            let said = check(duration, renew, retry);
            assert!(said.starts_with(expect) && said.is_empty() == expect.is_empty(), "{given:?}: {said}");
        }
    }
}
