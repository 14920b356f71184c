//! How many files and connections the system lets this process have. Shells often set 1024, which is a client's
//! number.

/// Kept back for the store, certificates and the rest of the program.
const OWN: u64 = 128;

/// Raises the limit as far as it may, and returns how many connections fit under it.
#[cfg(unix)]
pub(crate) fn connections() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        // No further than is of use: some programs loop over all descriptors.
        let wanted = limit.maximum.unwrap_or(u64::MAX).min(65_536).max(limit.current.unwrap_or(0));
        let raised = rustix::process::Rlimit { current: Some(wanted), maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit = raised,
            Err(error) => tracing::debug!(%error, "the limit of open files stays"),
        }
    }
    fitting(limit.current)
}

/// Elsewhere the system decides when a connection comes.
#[cfg(not(unix))]
pub fn connections() -> usize {
    fitting(None)
}

fn fitting(files: Option<u64>) -> usize {
    let files = files.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(OWN).max(16)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_kept_back() {
        for (files, expect) in [(Some(1024), 896), (Some(20), 16), (Some(0), 16), (None, (u64::MAX - OWN) as usize)] {
            assert_eq!(fitting(files), expect, "{files:?}");
        }
        assert!(connections() >= 16);
    }
}
