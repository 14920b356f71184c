//! What becomes of a key whose reconcile did not go well: how long it waits, what ends that, and when it is given up.

use super::*;

#[test]
fn failures_back_off_and_end() {
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 fail a = waits 1000 #1
         999 next = wait 1000
         1000 next = a #2
         1000 fail a = waits 3000 #2
         3000 next = a #3
         3000 fail a = waits 7000 #3
         7000 next = a #4
         7000 fail a = gave up #4
         7000 next = empty",
    );
    // A success begins anew.
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 fail a = waits 1000 #1
         1000 next = a #2
         1000 done a = idle
         1000 add a change = new
         1000 next = a #1
         1000 fail a = waits 2000 #1
         2000 next = a #2
         2000 again a 10 = waits 2010 #0
         2010 next = a #1",
    );
    // Held by the server: later, and no failure. Without a delay worth the name, the backoff's first.
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 fail a = waits 1000 #1
         1000 next = a #2
         1000 hold a 30000 = waits 31000 #1
         2000 add a urgent
         2000 next = wait 31000
         31000 next = a #2
         31000 hold a 0 = waits 32000 #1",
    );
}

#[test]
fn who_is_hindered_waits_half_a_minute_at_most_from_when_it_began() {
    let given_up = |max_retries| QueueOptions {
        backoff: Backoff { max: Duration::from_secs(300), max_retries, ..options().backoff },
        ..options()
    };
    let script = "0 add a change
         0 next = a #1
         0 hindered a = waits 1000 #1
         1000 next = a #2
         1500 hindered a = waits 3000 #2
         3000 next = a #3
         3000 hindered a = waits 7000 #3
         7000 next = a #4
         7000 hindered a = waits 15000 #4
         15000 next = a #5
         15000 hindered a = waits 31000 #5
         31000 next = a #6
         31000 hindered a = waits 61000 #6
         61000 next = a #7
         91000 hindered a = waits 92000 #7
         91500 add a change
         91500 next = a #8";
    check(given_up(None), script);
    // What others are to blame for is not held against the key.
    check(given_up(Some(2)), script);
}

/// Three retries are three retries, however long the server was away before them or between them.
#[test]
fn outages_do_not_use_up_the_retries() {
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 hindered a = waits 1000 #1
         1000 next = a #2
         1000 hindered a = waits 3000 #2
         3000 next = a #3
         3000 hindered a = waits 7000 #3
         7000 next = a #4
         7000 hindered a = waits 15000 #4
         15000 next = a #5
         15000 fail a = waits 16000 #5
         16000 next = a #6
         16000 fail a = waits 18000 #6
         18000 next = a #7
         18000 hindered a = waits 26000 #7
         26000 next = a #8
         26000 fail a = waits 30000 #8
         30000 next = a #9
         30000 fail a = gave up #4",
    );
    // A success forgets both.
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 hindered a = waits 1000 #1
         1000 next = a #2
         1000 done a = idle
         1000 add a change
         1000 next = a #1
         1000 hindered a = waits 2000 #1",
    );
}

#[test]
fn spurious_wakeups_do_not_inflate_backoff() {
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 fail a = waits 1000 #1
         1 add a resync = merged
         2 add a retry = merged
         3 add a resync +1 = merged
         999 next = wait 1000
         1000 add a resync = merged
         1000 next = a #2
         1001 add a resync = merged
         1002 fail a = waits 3002 #2
         3002 next = a #3",
    );
}

#[test]
fn a_change_cuts_a_backoff_short_and_keeps_the_count() {
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 fail a = waits 1000 #1
         10 add a change
         10 next = a #2
         10 fail a = waits 2010 #2
         2010 next = a #3
         2010 fail a = waits 6010 #3
         2020 add a urgent
         2020 next = a #4",
    );
    // A reconciler that wakes itself by its own writes still backs off: at once, then one second, then two.
    check(
        QueueOptions { backoff: Backoff { max_retries: None, ..options().backoff }, ..options() },
        "0 add a change
         0 next = a #1
         0 add a change
         0 fail a = ready
         0 next = a #2
         0 add a change
         0 fail a = waits 1000 #2
         1000 next = a #3
         1000 add a change
         1000 fail a = waits 3000 #3
         2000 add a change
         2000 next = wait 3000
         3000 next = a #4",
    );
    // A change with a delay of its own keeps it, up to the retry.
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 fail a = waits 1000 #1
         0 add a change +400
         0 next = wait 400
         0 add a change +2000
         0 next = wait 400
         100 add a resync
         100 next = wait 400
         400 next = a #2",
    );
}

#[test]
fn what_was_given_up_rests_until_woken() {
    // A change brings all retries back.
    check(
        options(),
        "0 add a change
         0 next = a #1
         0 giveup a = gave up #1
         0 next = empty
         10 add a change = merged
         10 next = a #1
         10 fail a = waits 1010 #1",
    );
    // A resync is worth one try once the retries are used up.
    let exhausted = QueueOptions { backoff: Backoff { max_retries: Some(0), ..options().backoff }, ..options() };
    check(
        exhausted.clone(),
        "0 add a change
         0 next = a #1
         0 fail a = gave up #1
         10 add a resync = merged
         10 next = a #2
         10 fail a = gave up #2
         20 add a change
         20 next = a #1
         20 done a = idle",
    );
    // Nor is giving up a way into a hot loop.
    check(
        exhausted,
        "0 add a change
         0 next = a #1
         0 add a change
         0 fail a = ready
         0 next = a #1
         0 add a change
         0 fail a = waits 1000 #0
         1000 next = a #1
         1000 add a change
         1000 fail a = waits 3000 #0",
    );
}

/// Somebody else keeps changing what a broken object depends on. The change that repairs it is not heard minutes later.
#[test]
fn a_change_is_waited_for_ten_seconds_at_most() {
    check(
        QueueOptions { backoff: Backoff { max: Duration::from_secs(300), ..options().backoff }, ..options() },
        "0 add a change
         0 next = a #1
         0 giveup a = gave up #1
         10 add a change
         10 next = a #1
         10 giveup a = gave up #1
         20 add a change
         20 next = wait 1010
         1010 next = a #1
         1010 giveup a = gave up #1
         1020 add a change
         1020 next = wait 3010
         3010 next = a #1
         3010 giveup a = gave up #1
         3020 add a change
         3020 next = wait 7010
         7010 next = a #1
         7010 giveup a = gave up #1
         7020 add a change
         7020 next = wait 15010
         15010 next = a #1
         15010 giveup a = gave up #1
         15020 add a change
         15020 next = wait 25010
         25010 next = a #1
         25010 giveup a = gave up #1
         25020 add a change
         25020 next = wait 35010",
    );
}
