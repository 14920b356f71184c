//! The retry policy: what becomes of an object whose reconcile failed. In: an error, and how often in a row the object was
//! tried. Out: when it is tried again, and how loud the failure is. All decisions are here; the queue only keeps the time
//! ([`Backoff`](crate::Backoff) has the pauses) and counts the retries ([`QueueStats`](crate::QueueStats)), the worker only
//! carries them out. `status`, `write/finalizer` and `write/apply` read an object again and retry three to five times when
//! another writer is faster; this policy is for what is left after that.
//!
//! | the error | [`Retry`] | the object is tried again |
//! |---|---|---|
//! | any error, a refusal by policy, quota or RBAC | `Backoff` | after a growing pause, at most `max_retries` times |
//! | another writer was faster | `Fresh` | after a growing pause of at most 30 s, however often |
//! | the server is away or fails | `Outage` | the same |
//! | [`Error::retry_after`](crate::Error::retry_after) | `After` | after that time, or when something changes |
//! | 429 or 503 with `Retry-After` | `Hold` | after that time and not earlier |
//! | [`Error::permanent`](crate::Error::permanent), an object that makes no sense | `UntilChanged` | when something changes |
//! | a gate refused the write | `Stop` | when something changes, or by the instance that may write |

use std::time::Duration;

use http::{HeaderMap, header};

use crate::error::{Error, FieldErrors, WriteError};
use crate::queue::Requeue;

/// The shortest pause before a failed reconcile is tried again. Nobody notices it, and a reconcile that fails at once does
/// not keep a core busy.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause that a server can ask for: an object, or a watch, that waits longer looks forgotten.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// From this attempt on, an error that usually passes by itself counts as one that lasts. With the default backoff that is
/// seven seconds after the first attempt.
const PERSISTENT_FROM: u32 = 5;

/// What becomes of an object whose reconcile failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Again after a pause that grows with each failure.
    Backoff,
    /// The server is away or has too much to do: again after a pause that grows, but never past half a minute. The server
    /// comes back for all objects at once, and how long it was away says nothing about this one.
    Outage,
    /// Again with fresh data, after a pause that grows, but never past half a minute: another writer was faster.
    Fresh,
    /// Again after this time, or earlier if something changes.
    After(Duration),
    /// The server asked for this pause: nothing before it is over, not even for a change.
    Hold(Duration),
    /// Not before the object, or something it owns or watches, has changed: trying again would fail again.
    UntilChanged,
    /// Not here: a gate refused the write, for example because another instance leads. The failure is not shown, either.
    Stop,
}

/// The retry policy: what becomes of an object whose reconcile ended with this error.
pub fn retry(error: &Error) -> Retry {
    if let Some(retry) = error.explicit_retry() {
        return retry;
    }
    if error.find::<FieldErrors>().is_some() {
        return Retry::UntilChanged;
    }
    match error.find::<WriteError>() {
        Some(error) => retry_write(error),
        None => match error.find::<kube::Error>().and_then(WriteError::of_kube) {
            // A create with a client of the user's own did not look into a cache that will catch up: the object will
            // still be there.
            Some(WriteError::Exists { .. }) | None => Retry::Backoff,
            Some(error) => retry_write(&error),
        },
    }
}

fn retry_write(error: &WriteError) -> Retry {
    match error {
        // The other manager will still be there: only a person or a pause helps.
        WriteError::Conflict { fields, .. } if !fields.is_empty() => Retry::Backoff,
        WriteError::Conflict { .. } | WriteError::Exists { .. } | WriteError::Gone { .. } => Retry::Fresh,
        WriteError::Invalid { by_server: false, .. } => Retry::UntilChanged,
        // Policies, quotas and CRDs change without a change of the object.
        WriteError::Invalid { by_server: true, .. } => Retry::Backoff,
        WriteError::Throttled { retry_after: Some(pause), .. } => Retry::Hold(*pause),
        WriteError::NotSent(_) => Retry::Stop,
        // Rules, kinds and namespaces may appear without a change of the object.
        WriteError::Forbidden { .. } | WriteError::NotFound { .. } => Retry::Backoff,
        WriteError::Throttled { .. } | WriteError::Unreachable { .. } => Retry::Outage,
        // Writes can be repeated: applies are idempotent, the others carry what they expect to find.
        WriteError::Unknown { .. } | WriteError::Other { code: 500.., .. } => Retry::Outage,
        WriteError::Other { .. } => Retry::Backoff,
    }
}

impl Retry {
    /// What the queue does with the key.
    pub(crate) fn requeue(self) -> Requeue {
        match self {
            Self::Backoff => Requeue::RateLimited,
            Self::Fresh | Self::Outage => Requeue::AfterOutageOrConflict,
            Self::After(pause) => Requeue::After(pause.max(MIN_PAUSE)),
            Self::Hold(pause) => Requeue::NotBefore(pause),
            Self::UntilChanged => Requeue::GiveUp,
            // The instance that may write reconciles every object anyway.
            Self::Stop => Requeue::Forget,
        }
    }

    /// Whether the object is tried again without a change.
    pub(crate) fn is_retried(self) -> bool {
        !matches!(self, Self::UntilChanged | Self::Stop)
    }

    /// Whether this attempt failed as it is meant to happen now and then: another writer was faster, and the next attempt
    /// will see what it wrote. Not worth a warning.
    pub(crate) fn is_expected(self, attempt: u32) -> bool {
        self == Self::Fresh && !is_persistent(attempt)
    }
}

/// Whether an error that usually passes by itself has been in the way for so long that it does not pass.
pub(crate) fn is_persistent(attempt: u32) -> bool {
    attempt >= PERSISTENT_FROM
}

/// How long a server asks to be left alone, in whole seconds. Dates are not read: API servers do not send them.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reconcile_fails_with_is_what_the_queue_does() {
        const SECOND: Duration = Duration::from_secs(1);
        let throttled = WriteError::Throttled { retry_after: Some(SECOND), message: "slow down".into() };
        let refused = crate::WriteRefused::new("NotLeading", "another instance leads");
        let cases = [
            (Error::new("no"), Requeue::RateLimited, true),
            (Error::permanent("no"), Requeue::GiveUp, false),
            // A pause of the user's is over when something changes, one that the server asked for is not.
            (Error::retry_after(SECOND, "no"), Requeue::After(SECOND), true),
            (Error::retry_after(Duration::ZERO, "no"), Requeue::After(MIN_PAUSE), true),
            (Error::from(throttled), Requeue::NotBefore(SECOND), true),
            (Error::from(WriteError::NotSent(refused)), Requeue::Forget, false),
        ];
        for (error, expect, retried) in cases {
            let retry = retry(&error);
            assert_eq!((retry.requeue(), retry.is_retried()), (expect, retried), "{error:?}");
        }
    }
}
