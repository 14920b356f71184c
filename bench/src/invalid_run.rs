//! Why a run is invalid. Out: a sentence for the report. A run with a wrong result is a failure however fast it was, so every
//! check of a run returns this error.

/// The reason why a run is invalid.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidRun(String);

impl InvalidRun {
    /// A run that is invalid because of `why`.
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Adds what the program was doing.
    pub(crate) fn during(self, act: &str) -> Self {
        Self(format!("{act}: {}", self.0))
    }
}

impl From<std::io::Error> for InvalidRun {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Fails unless `found` equals `expected`.
pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), InvalidRun> {
    if found == expected { Ok(()) } else { Err(InvalidRun::new(format!("{what}: {found:?}, expected {expected:?}"))) }
}
