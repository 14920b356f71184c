//! Memory for the bodies of requests. In: pieces as they arrive. Out: room for them, after a wait if there is none, or 429. A body
//! counts until its request is answered.
//!
//! The first part of a body is counted as it arrives, not as it was announced: a client that announces much and sends nothing takes
//! nothing, and ordinary objects do not wait for large ones. A larger body, and one whose first part finds no more room, takes room for all
//! of its rest at once, and has to arrive soon then: bodies that each hold a part and wait for more would wait for each other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use konverge_core::Status;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// What of each body counts as small: 99 of 100 objects are smaller as a whole.
const SMALL_BYTES: usize = 256 * 1024;

/// Room for the small parts of all bodies: those of 256 bodies, or ten thousand of an ordinary size.
const SMALL_ROOM: usize = 64 * 1024 * 1024;

/// Room for the rest of larger bodies: that of 23 bodies of the largest size. Decoding one takes about ten times its size,
/// but only as many are decoded at the same time as there are threads.
const LARGE_ROOM: usize = 64 * 1024 * 1024;

/// How long a body waits for room; who waits longer is told to come back. Members of `system:masters` have room apart from everybody else.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How long the rest of a large body may take to arrive, while it has room that others wait for.
const LONGEST_ARRIVAL: Duration = Duration::from_secs(20);

/// The room for bodies.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    bytes: usize,
    small: Semaphore,
    large: Semaphore,
    refused: AtomicU64,
}

/// What one body has taken of it.
#[derive(Debug)]
pub(crate) struct BodyRoom<'a> {
    memory: &'a BodyMemory,
    bytes: usize,
    small: Option<SemaphorePermit<'a>>,
    /// The room for the rest, and until when that has to be here.
    large: Option<(SemaphorePermit<'a>, Instant)>,
}

impl Default for BodyMemory {
    fn default() -> Self {
        Self::new(SMALL_ROOM, LARGE_ROOM)
    }
}

impl BodyMemory {
    fn new(small: usize, large: usize) -> Self {
        let room = Semaphore::new;
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

impl<'a> BodyRoom<'a> {
    /// Takes room for a piece that has arrived, of a body that has at most so many bytes.
    pub(crate) async fn grow(&mut self, piece: usize, most: usize) -> Result<(), Status> {
        let small = SMALL_BYTES.saturating_sub(self.bytes).min(piece);
        self.bytes += piece;
        if self.large.is_some() {
            return Ok(());
        }
        let has_room = match &mut self.small {
            // Whoever holds nothing may wait: nobody waits for it.
            None => {
                self.small = Some(self.take(&self.memory.small, small).await?);
                true
            }
            Some(taken) => match self.memory.small.try_acquire_many(permits(small)) {
                Ok(permit) => {
                    taken.merge(permit);
                    true
                }
                Err(_) => false,
            },
        };
        if !has_room || self.bytes > SMALL_BYTES {
            let held = self.small.as_ref().map_or(0, SemaphorePermit::num_permits);
            let permit = self.take(&self.memory.large, most.max(self.bytes) - held).await?;
            self.large = Some((permit, Instant::now() + LONGEST_ARRIVAL));
        }
        Ok(())
    }

    /// What comes of the body next, unless that takes too long while others wait for its room.
    pub(crate) async fn arrival<T>(&self, next: impl Future<Output = T>) -> Result<T, Status> {
        match &self.large {
            Some((_, until)) => tokio::time::timeout_at(*until, next).await.map_err(|_| too_slow()),
            None => Ok(next.await),
        }
    }

    async fn take(&self, room: &'a Semaphore, bytes: usize) -> Result<SemaphorePermit<'a>, Status> {
        match tokio::time::timeout(LONGEST_WAIT, room.acquire_many(permits(bytes))).await {
            Ok(permit) => Ok(permit.expect("the semaphore is never closed")),
            Err(_) => {
                self.memory.refused.fetch_add(1, Relaxed);
                Err(too_many())
            }
        }
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn too_slow() -> Status {
    let seconds = LONGEST_ARRIVAL.as_secs();
    Status::failure(408, "Timeout", format!("the request body did not arrive within {seconds} seconds; send it again"))
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
        large.grow(SMALL_BYTES + 1000, 0).await.expect("there is room");
        // Its first part has room, its rest has none.
        let mut other = memory.body();
        assert_eq!(other.grow(SMALL_BYTES - 10, 0).await, Ok(()));
        assert_eq!(other.grow(11, 0).await.map_err(|status| status.code), Err(429));
        assert_eq!(memory.refused(), 1);
        drop(other);
        assert_eq!(memory.body().grow(SMALL_BYTES, 0).await, Ok(()));
        drop(large);
        assert_eq!(memory.body().grow(SMALL_BYTES + 1000, 0).await, Ok(()), "what is dropped counts no more");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_room_of_who_goes() {
        let memory = BodyMemory::new(1000, 0);
        let mut first = memory.body();
        first.grow(1000, 0).await.expect("there is room");
        let waits = async {
            let mut second = memory.body();
            second.grow(500, 0).await
        };
        let goes = async {
            tokio::time::sleep(LONGEST_WAIT / 2).await;
            drop(first);
        };
        assert_eq!(tokio::join!(waits, goes).0, Ok(()));
    }

    /// Twenty bodies arrive in pieces at the same time, and there is room for a few.
    #[tokio::test(start_paused = true)]
    async fn bodies_in_pieces_do_not_wait_for_each_other() {
        const PIECE: usize = 64 << 10;
        // Too little for the rests of all, then too little for the first parts.
        for (memory, most) in [
            (BodyMemory::new(SMALL_ROOM, 10 << 20), 3 << 20),
            (BodyMemory::new(2 * SMALL_BYTES, 10 << 20), SMALL_BYTES),
        ] {
            let arrives = || async {
                let mut body = memory.body();
                let mut arrived = 0;
                while arrived < most {
                    body.grow(PIECE, most).await?;
                    arrived += PIECE;
                    tokio::task::yield_now().await;
                }
                Ok::<_, Status>(())
            };
            let arrived = futures_util::future::join_all((0..20).map(|_| arrives())).await;
            assert!(arrived.iter().all(Result::is_ok), "{arrived:?}");
            assert_eq!(memory.used(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_room_that_others_need_sends_soon() {
        let memory = BodyMemory::default();
        let mut small = memory.body();
        small.grow(1, 1000).await.expect("there is room");
        let minute = Duration::from_secs(60);
        assert_eq!(small.arrival(tokio::time::sleep(minute)).await, Ok(()), "nobody waits for a byte");
        let mut large = memory.body();
        large.grow(SMALL_BYTES + 1, 1 << 20).await.expect("there is room");
        assert_eq!(large.arrival(tokio::time::sleep(minute)).await.map_err(|status| status.code), Err(408));
    }
}
