//! Memory for the reviews that arrive. In: pieces of bodies. Out: room for them, after a wait if there is none.
//!
//! A body counts as it arrives: whoever sends slowly takes only what was sent, so it keeps nobody else from being answered. The
//! first part of each body has room of its own, so that ordinary reviews do not wait for large ones.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// What of each body counts as small: a review of two objects of an ordinary size is smaller as a whole.
const SMALL_BYTES: usize = 256 << 10;

/// How long a body waits for room.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The room for bodies.
pub(super) struct BodyRoom {
    small: Semaphore,
    large: Semaphore,
    longest_wait: Duration,
}

/// What one body has taken of it, until it is dropped.
pub(super) struct Taken<'r> {
    room: &'r BodyRoom,
    bytes: usize,
    small: Option<SemaphorePermit<'r>>,
    large: Option<SemaphorePermit<'r>>,
}

/// There was no room for too long.
pub(super) struct NoRoom;

impl BodyRoom {
    /// Room for this many bytes of the first parts of bodies, and of their rests.
    pub(super) fn new(small: usize, large: usize) -> Self {
        Self { small: Semaphore::new(small), large: Semaphore::new(large), longest_wait: LONGEST_WAIT }
    }

    /// A body of which nothing has arrived.
    pub(super) fn body(&self) -> Taken<'_> {
        Taken { room: self, bytes: 0, small: None, large: None }
    }
}

impl Taken<'_> {
    /// How much has arrived.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes room for a piece that has arrived.
    pub(super) async fn grow(&mut self, piece: usize) -> Result<(), NoRoom> {
        let small = SMALL_BYTES.saturating_sub(self.bytes).min(piece);
        self.bytes += piece;
        let BodyRoom { small: first_parts, large: rests, longest_wait } = self.room;
        for (bytes, room, taken) in [(small, first_parts, &mut self.small), (piece - small, rests, &mut self.large)] {
            if bytes == 0 {
                continue;
            }
            let bytes = u32::try_from(bytes).map_err(|_| NoRoom)?;
            let waits = tokio::time::timeout(*longest_wait, room.acquire_many(bytes));
            let permit = waits.await.map_err(|_| NoRoom)?.expect("the semaphore is never closed");
            match taken {
                Some(taken) => taken.merge(permit),
                None => *taken = Some(permit),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_sent_counts_and_nothing_else() {
        let room = BodyRoom { longest_wait: Duration::ZERO, ..BodyRoom::new(2 * SMALL_BYTES, 1000) };
        // However many have sent a byte only, there is room for others.
        let mut slow: Vec<Taken<'_>> = (0..500).map(|_| room.body()).collect();
        for body in &mut slow {
            assert!(body.grow(1).await.is_ok());
        }
        let mut large = room.body();
        assert!(large.grow(SMALL_BYTES + 1000).await.is_ok());
        let mut other = room.body();
        assert!(other.grow(SMALL_BYTES - slow.len()).await.is_ok(), "ordinary bodies do not wait for large ones");
        assert!(room.body().grow(1).await.is_err(), "there is no more");
        drop(large);
        assert!(room.body().grow(SMALL_BYTES).await.is_ok(), "what is dropped counts no more");
    }
}
