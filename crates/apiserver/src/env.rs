//! What the server asks of the world outside: the time and random numbers. A test can decide both.

use std::fmt;

use jiff::Timestamp;

/// The time and random numbers.
pub trait Environment: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
    /// 128 random bits.
    fn random(&self) -> u128;
}

/// The machine's clock and its random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Environment for System {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn random(&self) -> u128 {
        uuid::Uuid::new_v4().as_u128()
    }
}

impl fmt::Debug for dyn Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

/// A time as objects carry it: RFC 3339, whole seconds, UTC.
pub(crate) fn rfc3339(now: Timestamp) -> String {
    format!("{now:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_whole_seconds() {
        for (time, expect) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.999999999Z", "2026-01-02T03:04:05Z"),
            ("2026-12-31T23:59:59.5+00:00", "2026-12-31T23:59:59Z"),
            ("1969-12-31T23:59:58.25Z", "1969-12-31T23:59:58Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(time.parse().unwrap()), expect, "{time}");
        }
    }
}
