//! How far an operator is with its stop. Controllers and background tasks wait for these phases.

/// The phases of an operator's life, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Everything works.
    Running,
    /// Workers and background tasks are told to finish. Trigger streams are still read: a background task may be sending.
    Stopping,
    /// The background tasks have ended, so nobody sends keys any more.
    BackgroundEnded,
}
