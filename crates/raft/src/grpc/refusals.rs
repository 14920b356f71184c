//! What the log says of clients that are not heard. In: why, how many, and from where. Out: one line for each reason at once, and after
//! that at most one a minute, with how many there were: whoever reaches the port must not fill the log.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use konverge_serve::Counters;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long nothing is said of a reason after a line about it.
const QUIET: Duration = Duration::from_secs(60);

/// How often the listener is asked whom it has turned away.
const ASKED_EVERY: Duration = Duration::from_secs(2);

/// Reasons that are counted apart: there are about ten. Certificates of others decide which, so they get no more.
const MOST_REASONS: usize = 16;

/// Who was refused, by reason. Clones are the same.
#[derive(Clone)]
pub(super) struct Refusals {
    cluster: Arc<str>,
    said: Arc<Mutex<Said>>,
}

#[derive(Default)]
struct Said(BTreeMap<String, Reason>);

struct Reason {
    /// When the log said something of it.
    at: Instant,
    /// How many there were since then.
    since: u64,
}

impl Refusals {
    pub(super) fn new(cluster: &str) -> Self {
        Self { cluster: cluster.into(), said: Arc::default() }
    }

    pub(super) fn note(&self, why: &str, from: Option<SocketAddr>) {
        self.note_some(why, 1, from);
    }

    fn note_some(&self, why: &str, clients: u64, from: Option<SocketAddr>) {
        let counted = self.said.lock().note(why, clients, Instant::now());
        if let Some(times) = counted {
            let (cluster, from) = (&self.cluster, from.map(tracing::field::display));
            tracing::warn!(%cluster, why, from, times, "raft: a client that is no member was refused");
        }
    }

    /// Notes whom the listener turns away before there is a request; never ends.
    pub(super) async fn watch(self, counters: Arc<Counters>) {
        let read = || [&counters.handshake_failed, &counters.flooded].map(|counter| counter.load(Relaxed));
        let mut known = [0; 2];
        loop {
            let now = read();
            let reasons = ["no handshake of TLS, or not in time", "too many frames that ask for nothing"];
            for ((why, now), known) in reasons.into_iter().zip(now).zip(known) {
                if now > known {
                    self.note_some(why, now - known, None);
                }
            }
            known = now;
            tokio::time::sleep(ASKED_EVERY).await;
        }
    }
}

impl Said {
    /// How many there were since the log said something of this reason, if it is to do so now.
    fn note(&mut self, why: &str, count: u64, now: Instant) -> Option<u64> {
        let is_known = self.0.contains_key(why) || self.0.len() < MOST_REASONS;
        let why = if is_known { why } else { "another reason" };
        match self.0.get_mut(why) {
            None => {
                self.0.insert(why.to_owned(), Reason { at: now, since: 0 });
                Some(count)
            }
            Some(reason) if now - reason.at < QUIET => {
                reason.since += count;
                None
            }
            Some(reason) => {
                reason.at = now;
                Some(std::mem::take(&mut reason.since) + count)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_said_at_once_and_then_once_a_minute() {
        let (start, mut said) = (Instant::now(), Said::default());
        let mut check = |seconds: u64, why: &str, count: u64, expect: Option<u64>| {
            assert_eq!(said.note(why, count, start + Duration::from_secs(seconds)), expect, "{why} after {seconds} s");
        };
        check(0, "expired", 1, Some(1));
        check(0, "unknown", 3, Some(3));
        check(1, "expired", 1, None);
        check(59, "expired", 5, None);
        check(60, "expired", 1, Some(7));
        check(61, "expired", 1, None);
        check(120, "expired", 1, Some(2));
        // Whoever makes up reasons gets one line a minute for all of them.
        (0..20).for_each(|count| {
            // Two of the reasons were said before, and the first one beyond the bound stands for the others.
            let expect = (count <= MOST_REASONS - 2).then_some(1);
            check(200, &format!("made up {count}"), 1, expect);
        });
        assert_eq!(said.0.len(), MOST_REASONS + 1);
    }
}
