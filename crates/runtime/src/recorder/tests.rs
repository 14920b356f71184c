//! Tests of `recorder`, as tables.

use super::journal::Journal;
use super::*;
use konverge_core::ObjectKey;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn subject(name: &str) -> Arc<Subject> {
    let key = ObjectKey::new(Some("default"), name);
    Arc::new(Subject { api_version: "example.com/v1".into(), kind: "WebApp".into(), key, uid: format!("uid-{name}") })
}

#[test]
fn repetitions_within_a_minute_are_one_event() {
    let mut journal = Journal::new(SignedDuration::from_secs(60), 100);
    let (a, b) = (subject("a"), subject("b"));
    let cases = [
        (0, &a, Event::info("Up", "now"), (0, 1)),
        (1, &a, Event::info("Up", "now"), (0, 2)),
        (2, &a, Event::warning("Up", "now"), (1, 1)),
        (3, &a, Event::info("Up", "again"), (2, 1)),
        (4, &a, Event::info("Down", "now"), (3, 1)),
        (5, &b, Event::info("Up", "now"), (4, 1)),
        (59, &a, Event::info("Up", "now"), (0, 3)),
        // The window begins with the first occurrence, not with the last.
        (60, &a, Event::info("Up", "now"), (5, 1)),
        (61, &a, Event::info("Up", "now"), (5, 2)),
    ];
    for (second, subject, event, expect) in cases {
        let recorded = journal.record(subject, event.clone(), at(second));
        assert_eq!((recorded.id, recorded.count), expect, "{second}: {event:?}");
        assert_eq!(recorded.last, at(second));
    }
}

#[test]
fn the_history_keeps_the_newest_and_can_be_searched() {
    let mut journal = Journal::new(SignedDuration::from_secs(60), 10_000);
    for second in 0..10_050 {
        let severity = if second % 100 == 0 { Severity::Critical } else { Severity::Info };
        journal.record(&subject("a"), Event::new(severity, "Tick", format!("{second}")), at(second));
    }
    let all = journal.find(&HistoryFilter::default());
    assert_eq!((all.len(), all[0].event.message.as_str()), (10_000, "50"));
    let count = |filter: HistoryFilter| journal.find(&filter).len();
    let any = HistoryFilter::default;
    assert_eq!(count(HistoryFilter { severity: Severity::Error, ..any() }), 100);
    assert_eq!(count(HistoryFilter { since: Some(at(10_000)), ..any() }), 50);
    assert_eq!(count(HistoryFilter { kind: Some("WebApp".into()), reason: Some("Tick".into()), ..any() }), 10_000);
    assert_eq!(count(HistoryFilter { reason: Some("Tock".into()), ..any() }), 0);
    assert_eq!(count(HistoryFilter { key: Some(ObjectKey::new(Some("default"), "b")), ..any() }), 0);
    // An event that was removed is not counted further.
    assert_eq!(journal.record(&subject("a"), Event::info("Tick", "9"), at(20)).count, 1);
}
