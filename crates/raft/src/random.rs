//! Chance, as a value: a sequence that its seed decides. It spreads members over time and tells incarnations apart; nothing secret
//! comes from it.

use std::time::Duration;

/// The sequence of a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    #[cfg(test)]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// One that no other process has.
    pub(crate) fn of_this_process() -> Self {
        let mut seed = [0; 8];
        match ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut seed) {
            Ok(()) => Self(u64::from_be_bytes(seed)),
            // A system without chance: the time and the number of the process still tell incarnations apart.
            Err(_) => {
                let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                Self(time.as_nanos() as u64 ^ u64::from(std::process::id()) << 48)
            }
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than this, in microseconds.
    pub(crate) fn up_to(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(self.next() % (limit.as_micros() as u64).max(1))
    }
}
