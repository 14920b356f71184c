//! The time by which terms end. In: nothing. Out: an instant that goes on while the machine sleeps. `Instant` alone stands still when
//! a laptop is closed or a virtual machine is suspended, and whoever wakes up then would believe that its term goes on.

use std::time::Duration;

use tokio::time::Instant;

/// Now, as terms count it. Timers do not count sleep, so they ring late after it; whoever asks this clock then learns that it is late.
pub fn now() -> Instant {
    Instant::now() + slept()
}

/// How long the machine has slept since it was started.
#[cfg(target_os = "linux")]
fn slept() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let read = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
    };
    let with_sleep = read(ClockId::Boottime);
    longest(with_sleep, read(ClockId::Monotonic))
}

/// How long the machine has slept, by the clock that counts sleep and one without that was read after it. The time between the two
/// readings makes this too short, never too long, and differs from call to call; so the longest that was found counts, and time never
/// goes back.
#[cfg(target_os = "linux")]
fn longest(with_sleep: Duration, without_sleep: Duration) -> Duration {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static LONGEST: AtomicU64 = AtomicU64::new(0);
    let slept = u64::try_from(with_sleep.saturating_sub(without_sleep).as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(LONGEST.fetch_max(slept, Relaxed).max(slept))
}

/// How long the machine has slept: other systems do not tell it in this way.
#[cfg(not(target_os = "linux"))]
fn slept() -> Duration {
    Duration::ZERO
}
