//! How a question reaches another member. In: an address and a question. Out: the answer, or how far the question came. `grpc` is the
//! one over sockets; tests have one that loses messages.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::wire::{Answer, Envelope};

/// Why there is no answer from the other member.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CallError(pub String);

pub(crate) trait Transport: Send + Sync + 'static {
    /// Asks whoever listens at this address, and waits at most this long for the answer.
    fn call(&self, address: &str, question: Envelope, limit: Duration)
    -> BoxFuture<'static, Result<Answer, CallError>>;
}
