//! Bytes of answers that wait for peers which do not read. Pieces of answers come in and are counted until the last
//! slice of them is gone; out comes whether there is room for more, and how patient to be with those that take none.
//! There is one budget for each connection, and one for all of them together. Nothing is closed here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

/// The stall timeout when the budget is used up. The timeout shrinks while the budget fills, so the peers that have stalled
/// longest are closed first.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// How often a stalled peer is checked again, because the timeout may have shrunk.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A budget of bytes.
#[derive(Debug)]
pub(crate) struct Unread {
    used: AtomicUsize,
    limit: usize,
    /// Told when there is room again.
    room: Notify,
    /// That the budget was used up was logged, and it has not been half empty since.
    logged: AtomicBool,
    /// That of all connections, unless this is it.
    all: Option<Arc<Unread>>,
}

impl Unread {
    /// The budget of all connections.
    pub(crate) fn of_all(limit: usize) -> Arc<Self> {
        Arc::new(Self::new(limit, None))
    }

    /// The budget of one connection among all.
    pub(crate) fn of_connection(self: &Arc<Self>, limit: usize) -> Arc<Self> {
        Arc::new(Self::new(limit, Some(self.clone())))
    }

    fn new(limit: usize, all: Option<Arc<Unread>>) -> Self {
        // A budget of nothing would let nobody answer.
        let limit = limit.max(1);
        Unread { used: AtomicUsize::new(0), limit, room: Notify::new(), logged: AtomicBool::new(false), all }
    }

    /// Bytes that wait now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Waits until there is room for another piece. A piece may be larger than the room, so that the budget can be
    /// passed by one piece for each thread.
    pub(crate) async fn room(&self) {
        loop {
            // Listened to before looking, and to both: the one that is full may be another by then.
            let own = self.room.notified();
            let all = self.all.as_ref().map(|all| all.room.notified());
            if self.full().is_none() {
                return;
            }
            match all {
                Some(all) => tokio::select! {
                    () = own => {}
                    () = all => {}
                },
                None => own.await,
            }
        }
    }

    /// Whether there is room for another piece now.
    pub(crate) fn has_room(&self) -> bool {
        self.full().is_none()
    }

    /// Which of the two has no room.
    fn full(&self) -> Option<&Unread> {
        match &self.all {
            _ if self.used() >= self.limit => Some(self),
            Some(all) => all.full(),
            None => None,
        }
    }

    /// Counts these bytes until the guard is dropped.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.add(bytes);
        Charge { unread: self.clone(), bytes }
    }

    /// The same piece, counted until the last slice of it is dropped.
    pub(crate) fn counted(self: &Arc<Self>, piece: Bytes) -> Bytes {
        let charge = self.charge(piece.len());
        Bytes::from_owner(Counted { piece, _charge: charge })
    }

    /// How long a peer may take nothing: all of `usual` while the budgets are half empty, and less and less after that.
    pub(crate) fn stall_timeout(&self, usual: Duration) -> Duration {
        let own = stall_timeout(usual, self.used(), self.limit);
        self.all.as_ref().map_or(own, |all| own.min(all.stall_timeout(usual)))
    }

    /// The same, only for the sake of the other connections: that this one is full does not matter.
    pub(crate) fn server_stall_timeout(&self, usual: Duration) -> Duration {
        self.all.as_ref().map_or_else(|| self.stall_timeout(usual), |all| all.stall_timeout(usual))
    }

    fn add(&self, bytes: usize) {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(all) = &self.all {
            all.add(bytes);
        } else if before + bytes >= self.limit && !self.logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limit_bytes = self.limit,
                "clients do not read their answers; new answers wait, and connections that stall are cut sooner"
            );
        }
    }

    fn sub(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        if before >= self.limit && before - bytes < self.limit {
            self.room.notify_waiters();
        }
        if before - bytes < self.limit / 2 {
            self.logged.store(false, Ordering::Relaxed);
        }
        if let Some(all) = &self.all {
            all.sub(bytes);
        }
    }
}

fn stall_timeout(usual: Duration, used: usize, limit: usize) -> Duration {
    let least = LEAST_PATIENCE.min(usual);
    let half = limit / 2;
    // Nearly always, and each wakeup of a connection asks.
    if used <= half {
        return usual;
    }
    let over = used.saturating_sub(half).min(limit - half);
    usual - (usual - least).mul_f64(over as f64 / (limit - half).max(1) as f64)
}

/// Bytes that count as unread until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    unread: Arc<Unread>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.unread.sub(self.bytes);
    }
}

struct Counted {
    piece: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stall_timeout_shrinks_while_the_budget_fills() {
        let seconds = Duration::from_secs;
        for (usual, used, expect) in [
            (30, 0, seconds(30)),
            (30, 50, seconds(30)),
            (30, 75, seconds(16)),
            (30, 100, seconds(2)),
            (30, 500, seconds(2)),
            (1, 100, seconds(1)),
        ] {
            assert_eq!(stall_timeout(seconds(usual), used, 100), expect, "{usual} s, {used} % used");
        }
    }

    #[test]
    fn what_is_dropped_counts_no_more() {
        let all = Unread::of_all(100);
        let (one, other) = (all.of_connection(60), all.of_connection(60));
        let piece = one.counted(Bytes::from(vec![0; 60]));
        assert_eq!((one.used(), other.used(), all.used()), (60, 0, 60));
        assert!(one.full().is_some() && other.full().is_none());
        // A slice holds all of its piece.
        let slice = piece.slice(..1);
        drop(piece);
        let charge = other.charge(50);
        assert_eq!(all.used(), 110);
        assert!(other.full().is_some(), "all of them are over");
        drop(slice);
        assert_eq!((one.used(), all.used()), (0, 50));
        assert!(one.full().is_none() && other.full().is_none());
        drop(charge);
        assert_eq!((other.used(), all.used()), (0, 0));
    }

    #[tokio::test]
    async fn who_waits_is_woken_by_room_in_either_budget() {
        let all = Unread::of_all(100);
        let (one, other) = (all.of_connection(50), all.of_connection(1000));
        for (holder, waiter) in [(&one, &one), (&other, &one)] {
            let held = holder.charge(200);
            let mut waiting = std::pin::pin!(waiter.room());
            let turn = std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx)));
            assert!(turn.await.is_pending());
            drop(held);
            waiting.await;
        }
    }
}
