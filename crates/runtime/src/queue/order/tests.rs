//! The machine's rules as scripts: one line a step, `<milliseconds> <act> [= <what it says>]`.

mod retries;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use konverge_core::ObjectKey;

use super::*;
use crate::queue::{Ageing, Rate};

/// One second doubled up to eight, three retries, no jitter; one take out of four for what was ready for a second.
fn options() -> QueueOptions {
    let backoff = Backoff {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(8),
        multiplier: 2.0,
        max_retries: Some(3),
        jitter: 0.0,
    };
    QueueOptions { backoff, ageing: Ageing { patience: Duration::from_secs(1), every: 4 }, ..Default::default() }
}

fn check(options: QueueOptions, script: &str) {
    let start = Instant::now();
    let mut order = Order::new(&options, start);
    let mut taken = HashMap::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (act, expect) = line.split_once(" = ").map_or((line, None), |(act, expect)| (act, Some(expect)));
        let words: Vec<&str> = act.split_whitespace().collect();
        let millis = |word: &str| Duration::from_millis(word.parse().expect("a number"));
        let key = |at: usize| ObjectKey::new(None, words[at]);
        let now = start + millis(words[0]);
        let said = match words[1] {
            "next" => match order.next(now) {
                Next::Take(got) => {
                    let said = format!("{} #{}", got.key, got.attempt);
                    assert!(taken.insert(got.key.clone(), got).is_none(), "{line}: it is running already");
                    said
                }
                Next::Wait(until) => format!("wait {}", (until - start).as_millis()),
                Next::Empty => "empty".into(),
                Next::Over => "over".into(),
            },
            "add" => {
                let priority =
                    Priority::ALL.into_iter().find(|priority| priority.name() == words[3]).expect("a priority");
                let after = words.get(4).map(|word| millis(&word[1..]));
                format!("{:?}", order.add(&key(2), Wakeup { priority, after, cause: line.to_owned() }, now))
                    .to_lowercase()
            }
            "forget" => order.forget(&key(2)).to_string(),
            "close" => format!("{:?}", order.close(now)),
            "stop" => format!("{:?}", order.stop(now)),
            verb => {
                let requeue = match verb {
                    "done" => Requeue::Forget,
                    "again" => Requeue::After(millis(words[3])),
                    "fail" => Requeue::RateLimited,
                    "hindered" => Requeue::AfterOutageOrConflict,
                    "hold" => Requeue::NotBefore(millis(words[3])),
                    "giveup" => Requeue::GiveUp,
                    verb => panic!("{line}: {verb}?"),
                };
                let got = taken.remove(&key(2)).expect("a key that runs");
                match order.done(got.ticket, requeue, now, 0.0) {
                    Settled::Idle => "idle".into(),
                    Settled::Ready => "ready".into(),
                    Settled::Waits { until, failures } => format!("waits {} #{failures}", (until - start).as_millis()),
                    Settled::GaveUp { failures } => format!("gave up #{failures}"),
                }
            }
        };
        if let Some(expect) = expect {
            assert_eq!(said, expect, "{line}");
        }
    }
}

#[test]
fn wakeups_of_a_key_are_one() {
    check(
        options(),
        "0 add a change = new
         0 add a change = merged
         0 add a resync = merged
         0 next = a #1
         0 next = empty
         1 done a = idle
         1 next = empty",
    );
    // The earlier time and the higher priority win, wherever they come from.
    check(
        options(),
        "0 add a resync +500
         0 add b change
         0 add a urgent +900
         0 next = b #1
         0 next = wait 500
         0 add a resync +300
         0 next = wait 300
         300 add c change
         300 next = a #1",
    );
    // A delay does not hold back what is ready already.
    check(options(), "0 add a change\n 0 add a change +500\n 0 next = a #1");
}

#[test]
fn one_reconcile_per_key_at_a_time() {
    check(
        options(),
        "0 add a change
         0 next = a #1
         1 add a urgent = merged
         1 next = empty
         2 done a = ready
         2 next = a #1
         2 next = empty",
    );
}

#[test]
fn a_wakeup_during_a_reconcile_is_not_lost() {
    let run = |finish: &str, after: &str| {
        check(options(), &format!("0 add a resync\n 0 next = a #1\n 1 add a change\n {finish}\n {after}"));
    };
    run("2 done a = ready", "2 next = a #1");
    run("2 again a 5000 = ready", "2 next = a #1");
    run("2 fail a = ready", "2 next = a #2");
    run("2 giveup a = ready", "2 next = a #1");
    run("2 hold a 3000 = waits 3002 #0", "3002 next = a #1");
    // Wakeups with a delay keep it; the earliest of them and of the requeue counts.
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 add a change +300
         0 add a change +200
         100 done a = waits 200 #0
         100 next = wait 200
         200 next = a #1
         200 add a change +900
         200 again a 100 = waits 300 #0
         300 next = a #1
         300 done a = idle",
    );
}

#[test]
fn again_runs_later_or_when_woken() {
    check(
        options(),
        "0 add a change\n 0 next = a #1\n 0 again a 5000 = waits 5000 #0\n 0 next = wait 5000\n 5000 next = a #1",
    );
    check(
        options(),
        "0 add a change\n 0 next = a #1\n 0 again a 5000\n 9 add a resync = merged\n 9 next = a #1\n 9 next = empty",
    );
    check(options(), "0 add a change\n 0 next = a #1\n 0 again a 0 = waits 0 #0\n 0 next = a #1");
    // A resync that comes before it is due does not make it more than a resync.
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 again a 5000
         1 add a resync
         2 add b retry
         2 next = b #1
         2 next = a #1",
    );
}

/// As in client-go and controller-runtime: what joins a key that is due already is no add, what makes it due is one.
#[test]
fn an_add_is_a_key_that_becomes_due() {
    let start = Instant::now();
    let mut order = Order::new(&options(), start);
    let at = |millis: u64| start + Duration::from_millis(millis);
    let key = ObjectKey::new(None, "a");
    let add = |order: &mut Order<()>, now: u64| {
        let _ = order.add(&key, Wakeup::new(Priority::Change, ()), at(now));
    };
    let take = |order: &mut Order<()>, now: u64| match order.next(at(now)) {
        Next::Take(taken) => taken.ticket,
        other => panic!("{other:?}"),
    };
    let adds = |order: &Order<()>, now: u64| order.stats(at(now)).adds;
    (0..3).for_each(|_| add(&mut order, 0));
    assert_eq!(adds(&order, 0), 1, "three wakeups of one key");
    let ticket = take(&mut order, 0);
    (0..3).for_each(|_| add(&mut order, 1));
    order.done(ticket, Requeue::Forget, at(2), 0.0);
    assert_eq!(adds(&order, 2), 2, "woken while it ran");
    let ticket = take(&mut order, 2);
    order.done(ticket, Requeue::RateLimited, at(2), 0.0);
    assert_eq!(adds(&order, 2), 2, "it waits for its retry");
    let _ = order.add(&key, Wakeup::new(Priority::Resync, ()), at(3));
    let ticket = take(&mut order, 1_002);
    assert_eq!(adds(&order, 1_002), 3, "its retry was due");
    order.done(ticket, Requeue::RateLimited, at(1_002), 0.0);
    add(&mut order, 1_003);
    let _ = order.add(&key, Wakeup::new(Priority::Urgent, ()), at(1_004));
    assert_eq!(adds(&order, 1_004), 4, "a change made it due before its retry, and a second one only more urgent");
}

#[test]
fn a_fresh_change_overtakes_a_resync() {
    check(
        options(),
        "0 add r1 resync
         0 add r2 resync
         0 add t retry
         5 add c1 change
         5 add c2 change
         5 add u urgent
         5 next = u #1
         5 next = c1 #1
         6 add r2 change
         6 next = c2 #1
         6 next = r2 #1
         6 next = t #1
         6 next = r1 #1",
    );
}

#[test]
fn fifo_within_a_priority() {
    check(
        options(),
        "0 add a change
         0 add b change
         0 add c change +5
         0 add d change +5
         0 next = a #1
         1 add a change
         1 done a = ready
         1 add b change
         7 next = b #1
         7 next = a #1
         7 next = c #1
         7 next = d #1",
    );
}

#[test]
fn nothing_starves() {
    // Three changes, then one of what has waited for a second; a change that comes meanwhile waits for one at most.
    check(
        options(),
        "0 add r1 resync
         0 add r2 resync
         900 add c1 change
         900 add c2 change
         900 add c3 change
         900 add c4 change
         900 add c5 change
         999 next = c1 #1
         999 next = c2 #1
         999 next = c3 #1
         999 next = c4 #1
         1000 add c6 change
         1000 next = r1 #1
         1000 next = c5 #1
         1000 next = c6 #1
         1001 add c7 change
         1001 add c8 change
         1001 next = c7 #1
         1001 next = r2 #1
         1001 next = c8 #1",
    );
}

#[test]
fn a_rate_limits_all_keys_together() {
    check(
        QueueOptions { rate: Some(Rate { every: Duration::from_millis(100), burst: 2 }), ..options() },
        "0 add a change
         0 add b change
         0 add c change
         0 next = a #1
         0 next = b #1
         0 next = wait 100
         50 add d urgent
         50 next = wait 100
         100 next = d #1
         100 next = wait 200
         200 next = c #1
         200 next = empty",
    );
}

#[test]
fn a_full_queue_forgets_the_given_up_and_then_refuses() {
    check(
        QueueOptions { max_keys: Some(2), ..options() },
        "0 add a change = new
         0 add b change = new
         0 add c change = full
         0 add a urgent = merged
         0 next = a #1
         0 add c change = full
         0 giveup a = gave up #1
         0 add c change = new
         0 add a change = full
         0 next = b #1
         0 done b = idle
         0 add a change = new",
    );
}

#[test]
fn a_key_can_be_forgotten_unless_it_runs() {
    check(
        options(),
        "0 forget a = false
         0 add a change +100
         0 add b change
         0 forget a = true
         0 forget b = true
         0 next = empty
         0 add a change
         0 next = a #1
         0 forget a = false
         0 fail a = waits 1000 #1
         0 forget a = true
         0 add a change = new
         0 next = a #1
         0 giveup a
         0 forget a = true
         9000 next = empty",
    );
}

#[test]
fn a_closed_queue_hands_out_what_is_ready() {
    check(
        options(),
        "0 add a change
         0 add b change
         0 add due change +100
         0 add later change +101
         0 next = a #1
         0 add a change +99
         0 add b change +300
         100 close
         100 add c change = closed
         100 add a change = closed
         100 next = b #1
         100 next = due #1
         100 fail b = idle
         100 next = empty
         100 again a 100 = ready
         100 next = a #1
         100 next = over
         100 giveup a = idle
         900 next = over",
    );
    check(
        options(),
        "0 add a change
         0 add b change
         0 next = a #1
         0 add a change
         0 stop
         0 next = over
         0 fail a = idle
         0 next = over",
    );
}

#[test]
fn causes_are_the_newest_of_the_wakeups_since_the_last_run() {
    let (start, a) = (Instant::now(), ObjectKey::new(Some("x"), "a"));
    let mut order = Order::new(&options(), start);
    let add = |order: &mut Order<u32>, causes: std::ops::Range<u32>| {
        causes.for_each(|cause| _ = order.add(&a, Wakeup::new(Priority::Change, cause), start));
    };
    let check = |order: &mut Order<u32>, expect: std::ops::Range<u32>, dropped: u16| {
        let Next::Take(taken) = order.next(start + Duration::from_secs(1)) else { panic!("nothing is ready") };
        let got: Vec<u32> = taken.causes.iter().copied().collect();
        assert_eq!((got, taken.causes.dropped()), (expect.collect(), dropped));
        taken.ticket
    };
    add(&mut order, 0..3);
    let ticket = check(&mut order, 0..3, 0);
    add(&mut order, 3..23);
    order.done(ticket, Requeue::RateLimited, start, 0.0);
    let ticket = check(&mut order, 15..23, 12);
    order.done(ticket, Requeue::After(Duration::ZERO), start, 0.0);
    let ticket = check(&mut order, 0..0, 0);
    order.done(ticket, Requeue::Forget, start, 0.0);
    add(&mut order, 5..6);
    check(&mut order, 5..6, 0);
}

#[test]
fn many_due_at_once_are_readied_in_portions_and_in_order() {
    let start = Instant::now();
    let mut order = Order::new(&QueueOptions::default(), start);
    let count = DUE_AT_ONCE * 3;
    for n in 0..count {
        let wakeup = Wakeup::new(Priority::Change, ()).after(Duration::from_millis(n as u64 + 1));
        let _ = order.add(&ObjectKey::new(None, &n.to_string()), wakeup, start);
    }
    for n in 0..count {
        let Next::Take(taken) = order.next(start + Duration::from_secs(9)) else { panic!("{n} is due") };
        assert_eq!(taken.key.name(), n.to_string());
        if n == 0 {
            assert_eq!((order.ready(), order.timers.len()), (DUE_AT_ONCE - 1, count - DUE_AT_ONCE));
        }
        order.done(taken.ticket, Requeue::Forget, start, 0.0);
    }
}
