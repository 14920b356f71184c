//! The machine by tables: what retention keeps, and what compaction lets go and in which order.

use std::time::{Duration, Instant};

use super::*;
use crate::{Commit, Revision};

fn apply(index: &mut Index, commit: Commit, now: Instant) {
    let decided = Batch::new(index).decide(commit).expect("these commits have no conditions");
    index.apply(decided, now);
}

fn after(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const UNBOUNDED: Retention = Retention { changes: usize::MAX, bytes: usize::MAX, age: Duration::MAX };

#[test]
fn retention_keeps_what_it_says() {
    // Ten commits of one key, a hundred bytes each, ten seconds apart; the time is that of the last.
    let check = |retention: Retention, expect: u64| {
        let begin = Instant::now();
        let mut index = Index::default();
        for number in 0..10 {
            apply(&mut index, Commit::default().put("/a", vec![0; 100]), begin + after(10 * number));
        }
        let forgotten = index.trim(&retention, begin + after(90), usize::MAX);
        assert_eq!(index.compacted(), Revision(expect), "{retention:?}");
        assert_eq!(forgotten.rows.len() as u64, expect, "{retention:?}");
        // Each change that goes takes the version it replaced; the first replaced nothing.
        assert_eq!(forgotten.records.len() as u64, expect.saturating_sub(1), "{retention:?}");
        assert!(index.trim(&retention, begin + after(90), usize::MAX).rows.is_empty(), "trimmed is trimmed");
    };
    check(UNBOUNDED, 0);
    check(Retention { changes: 10, ..UNBOUNDED }, 0);
    check(Retention { changes: 9, ..UNBOUNDED }, 1);
    check(Retention { changes: 3, ..UNBOUNDED }, 7);
    check(Retention { changes: 0, ..UNBOUNDED }, 9);
    check(Retention { bytes: 900, ..UNBOUNDED }, 0);
    check(Retention { bytes: 899, ..UNBOUNDED }, 2);
    check(Retention { bytes: 450, ..UNBOUNDED }, 6);
    check(Retention { bytes: 0, ..UNBOUNDED }, 9);
    check(Retention { age: after(89), ..UNBOUNDED }, 0);
    check(Retention { age: after(88), ..UNBOUNDED }, 1);
    check(Retention { age: after(75), ..UNBOUNDED }, 2);
    check(Retention { age: after(0), ..UNBOUNDED }, 9);
    check(Retention { changes: 8, bytes: 350, age: after(60) }, 7);
}

#[test]
fn a_commit_is_kept_or_forgotten_whole() {
    let mut index = Index::default();
    let now = Instant::now();
    for _ in 0..3 {
        apply(&mut index, Commit::default().put("/a", "x").put("/b", "x").put("/c", "x"), now);
    }
    index.trim(&Retention { changes: 8, ..UNBOUNDED }, now, usize::MAX);
    assert_eq!(index.compacted(), Revision(1));
    assert_eq!(index.changes("", Revision(1), 100, 100).0.len(), 6);
}

#[test]
fn a_budget_bounds_what_is_forgotten_at_once() {
    let check = |budget: usize, expect: &[u64]| {
        let mut index = Index::default();
        let now = Instant::now();
        for _ in 0..10 {
            apply(&mut index, Commit::default().put("/a", "x").put("/b", "x"), now);
        }
        for through in expect {
            index.trim(&Retention { changes: 4, ..UNBOUNDED }, now, budget);
            assert_eq!(index.compacted(), Revision(*through), "with a budget of {budget}");
        }
    };
    check(1, &[1, 2, 3]);
    check(2, &[1, 2, 3]);
    check(3, &[2, 4, 6]);
    check(6, &[3, 6, 8, 8]);
    check(usize::MAX, &[8, 8]);
}

#[test]
fn marks_are_few_and_ages_are_never_understated() {
    let begin = Instant::now();
    let mut index = Index::default();
    for number in 0..10_000 {
        apply(&mut index, Commit::default().put("/a", "x"), begin + Duration::from_millis(number));
    }
    index.trim(&Retention { age: after(5), ..UNBOUNDED }, begin + after(10), usize::MAX);
    let kept = 10_000 - index.compacted().0;
    assert!((5_000..=7_000).contains(&kept), "history of five to seven seconds is kept, not {kept} ms");
}

#[test]
fn what_nobody_can_read_is_named_once_and_a_version_before_its_deletion() {
    let now = Instant::now();
    let commits = || {
        [
            Commit::default().put("/a", "1").put("/b", "1"),
            Commit::default().put("/a", "2"),
            Commit::default().delete("/a"),
            Commit::default().put("/a", "4").delete("/b"),
            Commit::default().put("/a", "5"),
        ]
    };
    let check = |compactions: &[u64], expect: &[(u64, u32)], keys: usize| {
        let mut index = Index::default();
        commits().into_iter().for_each(|commit| apply(&mut index, commit, now));
        let mut named = Vec::new();
        for before in compactions {
            named.extend(index.compact(Revision(*before)).records);
        }
        let named: Vec<(u64, u32)> = named.into_iter().map(|(revision, place)| (revision.0, place)).collect();
        assert_eq!(named, expect, "{compactions:?}");
        assert_eq!(index.keys.len(), keys, "{compactions:?}");
    };
    check(&[0], &[], 2);
    check(&[1], &[], 2);
    check(&[2], &[(1, 0)], 2);
    check(&[3], &[(1, 0), (2, 0), (3, 0)], 2);
    check(&[2, 3], &[(1, 0), (2, 0), (3, 0)], 2);
    check(&[4], &[(1, 0), (2, 0), (3, 0), (1, 1), (4, 1)], 1);
    check(&[5], &[(1, 0), (2, 0), (3, 0), (4, 0), (1, 1), (4, 1)], 1);
    check(&[1, 2, 3, 4, 5], &[(1, 0), (2, 0), (3, 0), (1, 1), (4, 1), (4, 0)], 1);
}

#[test]
fn a_key_costs_little() {
    // One pointer for the usual single version; the rest is the key itself.
    assert!(size_of::<(Arc<str>, chain::Chain)>() <= 40);
    assert!(size_of::<Version>() <= 56);
    assert!(size_of::<Row>() <= 32);
}
