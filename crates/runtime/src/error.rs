//! Why a reconcile failed. In: any error of a reconciler. Out: [`Error`], which shows its causes and finds the one that
//! matters. What becomes of the object is decided in `retry.rs`.

mod fields;
mod reason;
mod refused;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use konverge_core::{ErrorChain, error_chain};

use crate::retry::Retry;
use crate::watch::NotServed;

pub use fields::FieldErrors;
pub(crate) use refused::Refusal;
pub use refused::{Act, FieldConflict, Missing, Rule, WriteError};

/// What a reconciler answers with.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error from outside.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a reconcile failed.
///
/// Every error type turns into one by `?`; a `Box<dyn Error>` by [`Error::new`]. What happens then follows from what it is ([`retry`](crate::retry)); [`Error::permanent`] and
/// [`Error::retry_after`] say it outright. An error of your own that wraps a [`WriteError`] or a `kube::Error` is treated like that, as
/// long as it is its `source()` (with `thiserror`: `#[from]`, but not `#[error(transparent)]`). It is no
/// `std::error::Error` itself, or `?` could not take every other one; [`Error::cause`] is one.
///
/// ```
/// use konverge_runtime::{Error, Result, Retry, retry};
/// use std::time::Duration;
///
/// fn parse(size: &str) -> Result<u32> {
///     Ok(size.parse::<u32>()?)
/// }
/// assert_eq!(retry(&parse("x").unwrap_err()), Retry::Backoff);
/// assert_eq!(retry(&Error::permanent("spec.size makes no sense")), Retry::UntilChanged);
/// let busy = Error::retry_after(Duration::from_secs(30), "the backup still runs");
/// assert_eq!(retry(&busy), Retry::After(Duration::from_secs(30)));
/// ```
pub struct Error {
    cause: BoxError,
    /// What the user said outright.
    retry: Option<Retry>,
    reason: Option<String>,
}

/// A reconcile took longer than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reconcile took longer than {limit:?}")]
pub struct TimedOut {
    /// What it may take.
    pub limit: Duration,
}

impl Error {
    /// A failure that is retried with backoff, from an error or a text.
    pub fn new(cause: impl Into<BoxError>) -> Self {
        Self { cause: cause.into(), retry: None, reason: None }
    }

    /// A failure that no retry can mend: the object is left alone until it changes.
    pub fn permanent(cause: impl Into<BoxError>) -> Self {
        Self { cause: cause.into(), retry: Some(Retry::UntilChanged), reason: None }
    }

    /// A failure to look at again after `pause`, or earlier if something changes.
    pub fn retry_after(pause: Duration, cause: impl Into<BoxError>) -> Self {
        Self { cause: cause.into(), retry: Some(Retry::After(pause)), reason: None }
    }

    /// The same error for somebody who wants to own it, while others still look at it.
    pub fn from_shared(shared: Arc<Self>) -> Self {
        Arc::try_unwrap(shared).unwrap_or_else(|shared| {
            let (retry, reason) = (shared.retry, shared.reason.clone());
            Self { cause: Box::new(Shared(shared)), retry, reason }
        })
    }

    /// Says why in one word, for the event and the condition that show the error on its object. Kubernetes wants such a
    /// word in CamelCase and without spaces: one that is not is made so.
    ///
    /// ```
    /// use konverge_runtime::Error;
    /// let error = Error::permanent("the Secret login is not there").reason("SecretMissing");
    /// assert_eq!(error.get_reason(), "SecretMissing");
    /// assert_eq!(Error::new("no").reason("secret missing").get_reason(), "SecretMissing");
    /// assert_eq!(Error::new("no").get_reason(), "Failed");
    /// ```
    pub fn reason(mut self, reason: impl AsRef<str>) -> Self {
        self.reason = reason::camel_case(reason.as_ref());
        self
    }

    /// What went wrong, for whoever needs a `std::error::Error`.
    pub fn cause(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.cause
    }

    /// The first error of this type among the causes.
    pub fn find<E: StdError + 'static>(&self) -> Option<&E> {
        self.chain().find_map(|error| error.downcast_ref())
    }

    /// One word for conditions and events: what [`Error::reason`] said, else `Invalid`, `Forbidden`, `Conflict`,
    /// `NotServed` (the server does not have the kind), `TimedOut`, `Failed`.
    pub fn get_reason(&self) -> &str {
        if let Some(reason) = &self.reason {
            return reason;
        }
        if self.find::<TimedOut>().is_some() {
            return "TimedOut";
        }
        if self.find::<FieldErrors>().is_some() {
            return "Invalid";
        }
        if self.find::<NotServed>().is_some() {
            return "NotServed";
        }
        self.judge(WriteError::reason).unwrap_or("Failed")
    }

    /// Whether no answer came: the server could not be reached, or its answer was lost. That is the same for all objects.
    pub fn is_unanswered(&self) -> bool {
        let unanswered = |error: &WriteError| {
            matches!(error, WriteError::Unreachable { .. } | WriteError::Unknown { answered: false, .. })
        };
        self.judge(unanswered).unwrap_or(false)
    }

    /// What becomes of the object, if the user said it outright.
    pub(crate) fn explicit_retry(&self) -> Option<Retry> {
        self.retry
    }

    /// What is to be said of the write that failed; a request of a kube client is judged like one.
    fn judge<T>(&self, judge: impl Fn(&WriteError) -> T) -> Option<T> {
        let own = self.find::<WriteError>().map(&judge);
        own.or_else(|| WriteError::of_kube(self.find::<kube::Error>()?).as_ref().map(judge))
    }

    /// Every cause with its own causes.
    fn chain(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        error_chain(&*self.cause)
    }
}

/// An error that somebody else looks at, too.
struct Shared(Arc<Error>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.cause.fmt(f)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Shared {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0.cause)
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(cause: E) -> Self {
        Self::new(cause)
    }
}

/// The error itself; `{:#}` adds its causes, as far as they say something new: some errors repeat theirs.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (refusal_of(&*self.cause), f.alternate()) {
            (Some(message), _) => f.write_str(message),
            (None, true) => ErrorChain(&*self.cause).fmt(f),
            (None, false) => write!(f, "{}", self.cause),
        }
    }
}

/// What the server said, if the error is kube's for a refusal. Its own text is the message twice and Rust's view of the whole `Status`.
fn refusal_of<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e str> {
    if let Some(Shared(shared)) = error.downcast_ref() {
        return refusal_of(&*shared.cause);
    }
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) if !status.message.is_empty() => Some(&status.message),
        _ => None,
    }
}

/// What `main` prints when it returns an error: the whole chain.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

#[cfg(test)]
mod tests;
