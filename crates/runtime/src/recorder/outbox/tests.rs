//! Tests of `outbox`, as tables.

use konverge_core::ObjectKey;

use super::super::journal::{Event, Journal, Subject};
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

/// An outbox, and the journal that its events come from.
struct Setup {
    journal: Journal,
    outbox: Outbox,
}

impl Setup {
    fn new() -> Self {
        let limits = EventLimits { window: seconds(60), series_delay: seconds(10), burst: 3, refill: seconds(30) };
        Self { journal: Journal::new(limits.window, 1000), outbox: Outbox::new(limits) }
    }

    fn record(&mut self, second: i64, object: &str, message: &str) -> Offered {
        let key = ObjectKey::new(None, object);
        let subject = Arc::new(Subject { api_version: "v1".into(), kind: "K".into(), key, uid: String::new() });
        let recorded = self.journal.record(&subject, Event::info("R", message), at(second));
        self.outbox.add(recorded, at(second))
    }

    /// What is due: id, count and whether it is an update.
    fn take(&mut self, second: i64) -> Option<(u64, u32, bool)> {
        self.outbox.take(at(second)).map(|task| (task.recorded.id, task.recorded.count, task.exists))
    }

    /// Writes what is due.
    fn write(&mut self, second: i64) -> Option<(u64, u32, bool)> {
        let task = self.take(second)?;
        assert!(!self.outbox.finish(task.0, WriteResult::Written, at(second)));
        Some(task)
    }
}

#[test]
fn many_repetitions_are_one_update() {
    let mut setup = Setup::new();
    setup.record(0, "a", "m");
    assert_eq!(setup.write(0), Some((0, 1, false)));
    for second in 1..=8 {
        setup.record(second, "a", "m");
        assert_eq!(setup.take(second), None, "{second}");
    }
    assert_eq!(setup.outbox.next_due(), Some(at(11)));
    assert_eq!(setup.write(11), Some((0, 9, true)));
    assert_eq!(setup.outbox.next_due(), None);
    // A repetition that comes while the update is being written waits for the next update.
    setup.record(12, "a", "m");
    assert_eq!(setup.take(22), Some((0, 10, true)));
    setup.record(23, "a", "m");
    assert!(!setup.outbox.finish(0, WriteResult::Written, at(24)));
    assert_eq!(setup.write(34), Some((0, 11, true)));
    // After its window the event is removed; the next occurrence is a new event.
    setup.outbox.remove_expired(at(60));
    assert!(setup.outbox.entries.is_empty() && setup.outbox.due.is_empty());
    setup.record(61, "a", "m");
    assert_eq!(setup.write(61), Some((1, 1, false)));
}

#[test]
fn an_event_that_was_deleted_is_created_again_with_its_count() {
    let mut setup = Setup::new();
    setup.record(0, "a", "m");
    setup.write(0);
    setup.record(1, "a", "m");
    assert_eq!(setup.take(11), Some((0, 2, true)));
    assert!(!setup.outbox.finish(0, WriteResult::Vanished, at(11)));
    assert_eq!(setup.write(11), Some((0, 2, false)));
    assert_eq!(setup.take(100), None);
}

#[test]
fn an_event_whose_response_was_lost_gets_its_count() {
    let mut setup = Setup::new();
    setup.record(0, "a", "m");
    setup.take(0);
    setup.record(1, "a", "m");
    setup.outbox.finish(0, WriteResult::Later(seconds(0)), at(1));
    assert_eq!(setup.take(3), Some((0, 2, false)));
    assert!(!setup.outbox.finish(0, WriteResult::Exists, at(3)));
    assert_eq!(setup.write(3), Some((0, 2, true)));
    assert_eq!(setup.take(100), None);
}

#[test]
fn a_failed_write_is_tried_five_times() {
    let mut setup = Setup::new();
    setup.record(0, "a", "m");
    let mut now = 0;
    for (attempt, pause) in [(1, 2), (2, 4), (3, 30), (4, 16)] {
        assert_eq!(setup.take(now), Some((0, 1, false)), "{attempt}");
        let retry_after = if attempt == 3 { seconds(30) } else { seconds(0) };
        assert!(!setup.outbox.finish(0, WriteResult::Later(retry_after), at(now)));
        assert_eq!(setup.take(now + pause - 1), None, "{attempt}");
        now += pause;
    }
    assert_eq!(setup.take(now), Some((0, 1, false)));
    assert!(setup.outbox.finish(0, WriteResult::Later(seconds(0)), at(now)));
    assert_eq!(setup.outbox.next_due(), None);
    setup.record(now, "b", "m");
    let task = setup.take(now).unwrap();
    assert!(setup.outbox.finish(task.0, WriteResult::Refused, at(now)));
    assert!(setup.outbox.entries.is_empty());
}

#[test]
fn the_new_events_of_an_object_are_limited() {
    let mut setup = Setup::new();
    let results: Vec<_> = (0..5).map(|at| setup.record(0, "a", &at.to_string())).collect();
    use Offered::{Limited, Taken};
    assert_eq!(results, [Taken, Taken, Taken, Limited, Limited]);
    assert_eq!(setup.record(0, "b", "x"), Taken);
    // Repetitions are not limited, because they create no Event.
    assert_eq!(setup.record(1, "a", "0"), Taken);
    assert_eq!(setup.record(29, "a", "new"), Limited);
    assert_eq!(setup.record(30, "a", "newer"), Taken);
    assert_eq!(setup.record(31, "a", "newest"), Limited);
    // A bucket that is full again is removed.
    setup.outbox.remove_expired(at(300));
    assert!(setup.outbox.buckets.is_empty());
}

#[test]
fn all_waiting_events_can_be_made_due() {
    let mut setup = Setup::new();
    setup.record(0, "a", "m");
    setup.write(0);
    setup.record(1, "a", "m");
    setup.outbox.make_all_due(at(2));
    assert_eq!(setup.write(2), Some((0, 2, true)));
    assert_eq!(setup.write(2), None);
}
