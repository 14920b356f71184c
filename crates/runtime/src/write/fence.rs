//! Who may write, and who wants to know. In: the moment before a write, and the one after it. Out: go or no go.
//! Neither leadership nor metrics are known here.

use std::time::Duration;

use kube::core::ApiResource;

/// Allows writes while this instance leads. Asked before each one.
pub trait Fence: Send + Sync {
    /// The term this instance leads in, or that it does not.
    fn term(&self) -> Result<u64, Fenced>;
}

/// This instance does not lead: nothing may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("this instance does not lead any more, so it must not write")]
pub struct Fenced;

/// Allows every write, in no term: for an operator of one instance.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenFence;

impl Fence for OpenFence {
    fn term(&self) -> Result<u64, Fenced> {
        Ok(0)
    }
}

/// Told of each request, for metrics.
pub trait Observer: Send + Sync {
    /// A request has ended, or was not needed.
    fn request(&self, request: &Observation<'_>);
}

impl<F: Fn(&Observation<'_>) + Send + Sync> Observer for F {
    fn request(&self, request: &Observation<'_>) {
        self(request);
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The verb: `apply`, `patch`, `create`, `update`, `delete`, `get`.
    pub verb: &'static str,
    /// The kind.
    pub api: &'a ApiResource,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// How it ended.
    pub outcome: RequestOutcome,
    /// How long it took.
    pub took: Duration,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Nothing would have changed, so nothing was sent.
    Skipped,
    /// The fence said no, so nothing was sent.
    Fenced,
    /// The server answered with this HTTP code.
    Answered(u16),
    /// No answer.
    Lost,
}
