//! What asks for a reconcile. In: why and how urgently, from triggers. Out: the values the queue orders by and hands
//! on. Knows nothing of order or time.

use std::time::Duration;

/// How urgent a wakeup is; the order of the variants is their order. What is higher is taken first, but nothing starves
/// (see [`Ageing`](crate::Ageing)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Nothing is known to have changed: the first list, a look now and then.
    Resync,
    /// A retry after a failure, or a reconcile that asked to run again. The queue gives this one itself.
    Retry,
    /// Something changed: the object, a child, whatever is mapped to it.
    Change,
    /// Something that must not wait behind changes.
    Urgent,
}

impl Priority {
    /// All of them, lowest first.
    pub const ALL: [Priority; 4] = [Priority::Resync, Priority::Retry, Priority::Change, Priority::Urgent];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Retry => "retry",
            Self::Change => "change",
            Self::Urgent => "urgent",
        }
    }

    /// Whether it stands for something new, which is worth a try while a key backs off or rests.
    pub(super) fn is_change(self) -> bool {
        self >= Self::Change
    }
}

/// One request for a reconcile of a key.
///
/// ```
/// use konverge_runtime::{Priority, Wakeup};
/// use std::time::Duration;
/// let soon = Wakeup::new(Priority::Change, "its Secret changed").after(Duration::from_millis(100));
/// assert_eq!(soon.after, Some(Duration::from_millis(100)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wakeup<C> {
    /// How urgent it is.
    pub priority: Priority,
    /// Not before this long from now; at once without it.
    pub after: Option<Duration>,
    /// Why: handed to the reconcile it leads to. Small and cheap to drop, which happens under the queue's lock: a
    /// number, or an `Arc`.
    pub cause: C,
}

impl<C> Wakeup<C> {
    /// A wakeup for now.
    pub const fn new(priority: Priority, cause: C) -> Self {
        Self { priority, after: None, cause }
    }

    /// The same wakeup, for later.
    pub fn after(self, after: Duration) -> Self {
        Self { after: Some(after), ..self }
    }
}

/// What became of a wakeup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a wakeup that was refused is lost unless the caller makes up for it"]
pub enum Added {
    /// Its key is in the queue because of it.
    New,
    /// Its key was in the queue or running; they are one now.
    Merged,
    /// Refused: the queue holds [`max_keys`](crate::QueueOptions::max_keys) other keys. Whoever limits the queue has
    /// to add the key again later, for example by a relist.
    Full,
    /// Refused: the queue was closed.
    Closed,
}

/// How many causes a waiting key keeps: enough to see what woke it, small enough for a hundred thousand keys.
pub(super) const CAUSES: usize = 8;

/// Why a key was woken since it ran last: the newest eight causes, oldest first. A retry, or a reconcile that asked to
/// run again, has none unless something else woke the key as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Causes<C> {
    newest: [Option<C>; CAUSES],
    len: u8,
    dropped: u16,
}

impl<C> Causes<C> {
    pub(super) fn none(dropped: u16) -> Self {
        Self { newest: [const { None }; CAUSES], len: 0, dropped }
    }

    /// Adds a cause; the queue never has more than fit.
    pub(super) fn push(&mut self, cause: C) {
        self.newest[usize::from(self.len)] = Some(cause);
        self.len += 1;
    }

    /// The causes, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &C> + Clone {
        self.newest[..self.len()].iter().map(|cause| cause.as_ref().expect("the first `len` causes are there"))
    }

    /// The causes themselves, oldest first.
    pub(crate) fn into_all(self) -> impl Iterator<Item = C> {
        let len = self.len();
        self.newest.into_iter().take(len).map(|cause| cause.expect("the first `len` causes are there"))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many older causes made room for these; stops counting at 65,535.
    pub fn dropped(&self) -> u16 {
        self.dropped
    }
}
