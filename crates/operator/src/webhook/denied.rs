//! The error of a webhook function that refuses an object. In: a sentence, a code and a reason. Out: an error that `?` and
//! `Err` take, and that the client sees.

use std::fmt;

use konverge_core::Status;

/// Refuses a request, with a sentence that the client sees, a code and a reason.
///
/// For problems of fields use [`FieldErrors`](crate::FieldErrors): the client sees all of them, each with its path.
///
/// ```
/// use konverge::prelude::*;
/// use konverge::webhook::{Admission, Denied};
///
/// async fn validate(request: Admission<ConfigMap>) -> Result<()> {
///     if request.user().username == "intern" {
///         return Err(Denied::new("interns change nothing on Fridays").into());
///     }
///     if request.get::<Namespace>("frozen").await?.is_some() {
///         return Err(Denied::new("the cluster is frozen").code(409).reason("Conflict").into());
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Denied(pub(super) Status);

impl Denied {
    /// Refuses with this sentence, the code 403 and the reason `Forbidden`.
    pub fn new(message: impl Into<String>) -> Self {
        Self(Status::failure(403, "Forbidden", message))
    }

    /// Sets the HTTP code that the client gets. It should be one of 400 to 499: anything else counts as 403.
    pub fn code(mut self, code: u16) -> Self {
        self.0.code = if (400..500).contains(&code) { code } else { 403 };
        self
    }

    /// Sets the reason that programs read: `Conflict`, `Forbidden`.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.0.reason = reason.into();
        self
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Denied {}
