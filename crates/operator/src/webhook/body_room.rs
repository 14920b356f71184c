//! Memory for the reviews that arrive. In: pieces of bodies. Out: room for them, after a wait if there is none.
//!
//! The first part of each body counts as it arrives: whoever sends slowly takes only what was sent, so it keeps nobody else from being
//! answered, and ordinary reviews do not wait for large ones. A larger body, and one whose first part finds no more room, takes room for
//! all of its rest at once, and has to arrive soon then: bodies that each hold a part and wait for more would wait for each other.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// What of each body counts as small: a review of two objects of an ordinary size is smaller as a whole.
const SMALL_BYTES: usize = 256 << 10;

/// How long a body waits for room. API servers wait 30 seconds for a conversion, and do not ask again.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// How long the rest of a large body may take to arrive, while it has room that others wait for.
const LONGEST_ARRIVAL: Duration = Duration::from_secs(10);

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
    large: Option<(SemaphorePermit<'r>, Instant)>,
}

/// There was no room for too long.
#[derive(Debug)]
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

impl<'r> Taken<'r> {
    /// How much has arrived.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes room for a piece that has arrived, of a body that has at most so many bytes.
    pub(super) async fn grow(&mut self, piece: usize, most: usize) -> Result<(), NoRoom> {
        let small = SMALL_BYTES.saturating_sub(self.bytes).min(piece);
        self.bytes += piece;
        if self.large.is_some() {
            return Ok(());
        }
        let has_room = match &mut self.small {
            // Whoever holds nothing may wait: nobody waits for it.
            None => {
                self.small = Some(self.take(&self.room.small, small).await?);
                true
            }
            Some(taken) => match self.room.small.try_acquire_many(u32::try_from(small).map_err(|_| NoRoom)?) {
                Ok(permit) => {
                    taken.merge(permit);
                    true
                }
                Err(_) => false,
            },
        };
        if !has_room || self.bytes > SMALL_BYTES {
            let held = self.small.as_ref().map_or(0, SemaphorePermit::num_permits);
            let permit = self.take(&self.room.large, most.max(self.bytes) - held).await?;
            self.large = Some((permit, Instant::now() + LONGEST_ARRIVAL));
        }
        Ok(())
    }

    /// Until when the body has to be here; none while it takes no room that others may need.
    pub(super) fn until(&self) -> Option<Instant> {
        self.large.as_ref().map(|(_, until)| *until)
    }

    async fn take(&self, room: &'r Semaphore, bytes: usize) -> Result<SemaphorePermit<'r>, NoRoom> {
        let bytes = u32::try_from(bytes).map_err(|_| NoRoom)?;
        let waits = tokio::time::timeout(self.room.longest_wait, room.acquire_many(bytes));
        Ok(waits.await.map_err(|_| NoRoom)?.expect("the semaphore is never closed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_sent_counts_and_nothing_else() {
        let room = BodyRoom { longest_wait: Duration::ZERO, ..BodyRoom::new(2 * SMALL_BYTES, 1000) };
        let most = SMALL_BYTES + 1000;
        // However many have sent a byte only, there is room for others.
        let mut slow: Vec<Taken<'_>> = (0..500).map(|_| room.body()).collect();
        for body in &mut slow {
            body.grow(1, most).await.expect("a byte has room");
            assert!(body.until().is_none(), "who takes nothing that others need may send slowly");
        }
        let mut large = room.body();
        large.grow(SMALL_BYTES + 1000, most).await.expect("the only large body has room");
        let mut other = room.body();
        assert!(other.grow(SMALL_BYTES - slow.len(), most).await.is_ok(), "ordinary bodies do not wait for large ones");
        assert!(room.body().grow(1, most).await.is_err(), "there is no more");
        drop(large);
        assert!(room.body().grow(SMALL_BYTES, most).await.is_ok(), "what is dropped counts no more");
    }

    /// Many bodies arrive in pieces at the same time, and there is no room for all.
    #[tokio::test(start_paused = true)]
    async fn bodies_do_not_wait_for_each_other() {
        const PIECE: usize = 64 << 10;
        let check = async |what: &str, small: usize, large: usize, most: usize| {
            let room = BodyRoom::new(small, large);
            let arrives = || async {
                let mut body = room.body();
                while body.bytes() < most {
                    body.grow(PIECE, most).await?;
                    tokio::task::yield_now().await;
                }
                assert!(body.until().is_none_or(|until| until > Instant::now()));
                Ok::<_, NoRoom>(body.until().is_some())
            };
            let begun = Instant::now();
            let arrived = futures_util::future::join_all((0..20).map(|_| arrives())).await;
            assert!(arrived.iter().all(Result::is_ok), "{what}: {arrived:?}");
            assert!(begun.elapsed() < LONGEST_WAIT, "{what}");
        };
        check("each is more than half of the room for rests", 64 << 20, 8 << 20, 5 << 20).await;
        check("first parts fill their room", 2 * SMALL_BYTES, SMALL_BYTES, SMALL_BYTES).await;
        check("first parts of large ones fill their room", 2 * SMALL_BYTES, 8 << 20, 5 << 20).await;
    }
}
