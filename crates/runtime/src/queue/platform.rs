//! What the queue needs of the world: a lock, a clock, a sleep, a fair share of the thread. In production that is
//! parking_lot and tokio; tests put a model checker's in its place and try the same code under every schedule.

use std::future::Future;
use std::task::{Context, Poll};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::task::coop;
use tokio::time::Sleep;

/// A lock around a value.
pub trait Lock<T> {
    /// Around this value.
    fn new(value: T) -> Self;
    /// Runs `act` while nobody else can.
    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R;
}

/// The world a queue runs in.
pub trait Platform: Send + Sync + 'static {
    /// Its lock.
    type Lock<T: Send>: Lock<T> + Send + Sync;
    /// Its sleep.
    type Sleep: Future<Output = ()> + Send;

    /// The time.
    fn now(&self) -> Instant;
    /// Is ready at this time.
    fn sleep_until(&self, at: Instant) -> Self::Sleep;
    /// Whether this task may go on or has to let others run first. `act` says whether it got something done.
    fn proceed<R>(&self, cx: &mut Context<'_>, act: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R>;
}

/// Tokio's clock, which tests may pause, and a lock without poisoning.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tokio;

impl<T> Lock<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Mutex::new(value)
    }

    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.lock())
    }
}

impl Platform for Tokio {
    type Lock<T: Send> = Mutex<T>;
    type Sleep = Sleep;

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn sleep_until(&self, at: Instant) -> Sleep {
        tokio::time::sleep_until(at.into())
    }

    fn proceed<R>(&self, cx: &mut Context<'_>, act: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
        // A queue that is never empty would let its worker run for ever.
        let budget = std::task::ready!(coop::poll_proceed(cx));
        let got = act(cx);
        if got.is_ready() {
            budget.made_progress();
        }
        got
    }
}
