//! Why a run does not count. Out: a sentence for the table. A fast wrong run is a failure, so every check of a run ends
//! here.

/// The reason a run is void.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Void(String);

impl Void {
    /// A run that is void because of `why`.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Adds what was being done.
    pub fn during(self, act: &str) -> Self {
        Self(format!("{act}: {}", self.0))
    }
}

impl From<std::io::Error> for Void {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Voids the run unless what was found is what was expected.
pub fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), Void> {
    if found == expected { Ok(()) } else { Err(Void::new(format!("{what}: {found:?}, expected {expected:?}"))) }
}
