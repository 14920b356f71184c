//! Memory for the bodies of requests. In: pieces as they arrive. Out: room for them, after a wait if there is none, or 429. A body
//! counts until its request is answered.
//!
//! A body is counted as it arrives, not as it was announced: a client that announces much and sends nothing takes nothing. The
//! first part of each body has room of its own, so that ordinary objects do not wait for large ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use konverge_core::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What of each body counts as small: 99 of 100 objects are smaller as a whole.
const SMALL_BYTES: usize = 256 * 1024;

/// Room for the small parts of all bodies: those of 256 bodies, or ten thousand of an ordinary size.
const SMALL_ROOM: usize = 64 * 1024 * 1024;

/// Room for the rest of larger bodies: that of 23 bodies of the largest size. Decoding one takes about ten times its size,
/// but only as many are decoded at the same time as there are threads.
const LARGE_ROOM: usize = 64 * 1024 * 1024;

/// How long a body waits for room; who waits longer is told to come back. A slow sender keeps its room until the listener cuts
/// it, after a minute at most, so members of `system:masters` have room apart from everybody else.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The room for bodies.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    bytes: usize,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    refused: AtomicU64,
}

/// What one body has taken of it.
#[derive(Debug)]
pub(crate) struct BodyRoom<'a> {
    memory: &'a BodyMemory,
    bytes: usize,
    small: Option<OwnedSemaphorePermit>,
    large: Option<OwnedSemaphorePermit>,
}

impl Default for BodyMemory {
    fn default() -> Self {
        Self::new(SMALL_ROOM, LARGE_ROOM)
    }
}

impl BodyMemory {
    fn new(small: usize, large: usize) -> Self {
        let room = |bytes| Arc::new(Semaphore::new(bytes));
        Self { bytes: small + large, small: room(small), large: room(large), refused: AtomicU64::default() }
    }

    /// The room of a body of which nothing has arrived.
    pub(crate) fn body(&self) -> BodyRoom<'_> {
        BodyRoom { memory: self, bytes: 0, small: None, large: None }
    }

    /// How many bytes bodies take now.
    pub(crate) fn used(&self) -> usize {
        self.bytes.saturating_sub(self.small.available_permits() + self.large.available_permits())
    }

    /// How many bodies were refused for want of room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

impl BodyRoom<'_> {
    /// Takes room for a piece that has arrived.
    pub(crate) async fn grow(&mut self, piece: usize) -> Result<(), Status> {
        let small = SMALL_BYTES.saturating_sub(self.bytes).min(piece);
        self.bytes += piece;
        for (bytes, room, taken) in
            [(small, &self.memory.small, &mut self.small), (piece - small, &self.memory.large, &mut self.large)]
        {
            if bytes == 0 {
                continue;
            }
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let permit = match room.clone().try_acquire_many_owned(bytes) {
                Ok(permit) => permit,
                Err(_) => match tokio::time::timeout(LONGEST_WAIT, room.clone().acquire_many_owned(bytes)).await {
                    Ok(permit) => permit.expect("the semaphore is never closed"),
                    Err(_) => {
                        self.memory.refused.fetch_add(1, Relaxed);
                        return Err(too_many());
                    }
                },
            };
            match taken {
                Some(taken) => taken.merge(permit),
                None => *taken = Some(permit),
            }
        }
        Ok(())
    }
}

fn too_many() -> Status {
    let why = "the bodies of other requests take all memory that there is for them; try again later";
    Status::failure(429, "TooManyRequests", why).retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ordinary_bodies_do_not_wait_for_large_ones() {
        let memory = BodyMemory::new(2 * SMALL_BYTES, 1000);
        let mut large = memory.body();
        large.grow(SMALL_BYTES + 1000).await.expect("there is room");
        // Its first part has room, its rest has none.
        let mut other = memory.body();
        assert_eq!(other.grow(SMALL_BYTES - 10).await, Ok(()));
        assert_eq!(other.grow(11).await.map_err(|status| status.code), Err(429));
        assert_eq!(memory.refused(), 1);
        drop(other);
        assert_eq!(memory.body().grow(SMALL_BYTES).await, Ok(()));
        drop(large);
        assert_eq!(memory.body().grow(SMALL_BYTES + 1000).await, Ok(()), "what is dropped counts no more");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_room_of_who_goes() {
        let memory = BodyMemory::new(1000, 0);
        let mut first = memory.body();
        first.grow(1000).await.expect("there is room");
        let waits = async {
            let mut second = memory.body();
            second.grow(500).await
        };
        let goes = async {
            tokio::time::sleep(LONGEST_WAIT / 2).await;
            drop(first);
        };
        assert_eq!(tokio::join!(waits, goes).0, Ok(()));
    }
}
