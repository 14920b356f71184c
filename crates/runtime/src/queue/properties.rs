//! The machine under random wakeups, times and outcomes. Each run is a script made by proptest, played against the
//! machine and written down; each property is a question asked of what was written down. A failing script is made
//! smaller and printed, and its seed is kept next to this file.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use konverge_core::ObjectKey;
use proptest::prelude::*;

use super::order::{Next, Order, Ticket};
use super::{Ageing, Backoff, Priority, QueueOptions, Rate, Requeue, Settled, Wakeup};

/// One step of a script.
#[derive(Debug, Clone)]
enum Step {
    Add { key: u8, priority: Priority, after: Option<u64> },
    Take,
    Finish { which: prop::sample::Index, requeue: Requeue },
    Pass { millis: u64 },
}

/// What happened, and when.
#[derive(Debug)]
enum Fact {
    Added {
        key: u8,
        priority: Priority,
        due: Duration,
    },
    /// Before it, the ready keys, with their priority and when they took their place.
    Took {
        key: u8,
        attempt: u32,
        ready: Vec<(u8, Priority, Duration)>,
    },
    Finished {
        key: u8,
        requeue: Requeue,
        settled: Settled,
    },
}

struct Run {
    options: QueueOptions,
    start: Instant,
    facts: Vec<(Duration, Fact)>,
    /// The most keys the machine held at once.
    most: usize,
    /// How many it held in the end, when everything that wanted to run had run.
    left: usize,
    /// How many of those had been given up.
    resting: usize,
}

const KEYS: u8 = 6;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = prop::sample::select(Priority::ALL.to_vec());
    let after = prop_oneof![4 => Just(None), 1 => (0u64..3_000).prop_map(Some)];
    let millis = || 0u64..4_000;
    let requeue = prop_oneof![
        4 => Just(Requeue::Forget),
        4 => Just(Requeue::RateLimited),
        1 => Just(Requeue::AfterOutageOrConflict),
        1 => millis().prop_map(|millis| Requeue::After(Duration::from_millis(millis))),
        1 => millis().prop_map(|millis| Requeue::NotBefore(Duration::from_millis(millis))),
        1 => Just(Requeue::GiveUp),
    ];
    let step = prop_oneof![
        5 => (0..KEYS, priority, after).prop_map(|(key, priority, after)| Step::Add { key, priority, after }),
        4 => Just(Step::Take),
        3 => (any::<prop::sample::Index>(), requeue).prop_map(|(which, requeue)| Step::Finish { which, requeue }),
        2 => millis().prop_map(|millis| Step::Pass { millis }),
    ];
    prop::collection::vec(step, 1..200)
}

fn options() -> impl Strategy<Value = QueueOptions> {
    let retries = prop::sample::select(vec![None, Some(0), Some(2)]);
    let rate = prop::option::of((1u64..500, 1u32..4));
    (retries, 0u8..3, 1u64..3_000, 1u32..5, rate).prop_map(|(max_retries, jitter, patience, every, rate)| {
        QueueOptions {
            backoff: Backoff {
                initial: Duration::from_secs(1),
                max: Duration::from_secs(8),
                multiplier: 2.0,
                max_retries,
                jitter: f64::from(jitter) / 4.0,
            },
            ageing: Ageing { patience: Duration::from_millis(patience), every },
            rate: rate.map(|(every, burst)| Rate { every: Duration::from_millis(every), burst }),
            max_keys: None,
        }
    })
}

fn key(n: u8) -> ObjectKey {
    ObjectKey::new(Some("default"), &n.to_string())
}

fn number(key: &ObjectKey) -> u8 {
    key.name().parse().expect("keys are numbers here")
}

/// Plays the script, then lets everything that is left run to its end without a further failure.
fn play(options: QueueOptions, script: Vec<Step>) -> Run {
    let start = Instant::now();
    let mut order = Order::new(&options, start);
    let mut run = Run { options, start, facts: Vec::new(), most: 0, left: 0, resting: 0 };
    let (mut now, mut running, mut random) = (start, Vec::new(), 0.0);
    for step in script {
        match step {
            Step::Add { key: n, priority, after } => {
                let after = after.map(Duration::from_millis);
                let _ = order.add(&key(n), Wakeup { priority, after, cause: () }, now);
                let due = now - start + after.unwrap_or_default();
                run.facts.push((now - start, Fact::Added { key: n, priority, due }));
            }
            Step::Take => _ = run.take(&mut order, &mut running, now),
            Step::Finish { which, requeue } if !running.is_empty() => {
                let (n, ticket) = running.swap_remove(which.index(running.len()));
                random = (random + 0.618) % 1.0;
                let settled = order.done(ticket, requeue, now, random);
                run.facts.push((now - start, Fact::Finished { key: n, requeue, settled }));
            }
            Step::Finish { .. } => {}
            Step::Pass { millis } => now += Duration::from_millis(millis),
        }
        run.most = run.most.max(order.keys());
    }
    loop {
        for (n, ticket) in running.drain(..) {
            let settled = order.done(ticket, Requeue::Forget, now, 0.0);
            run.facts.push((now - start, Fact::Finished { key: n, requeue: Requeue::Forget, settled }));
        }
        match run.take(&mut order, &mut running, now) {
            Take::Key => {}
            Take::Later(until) => {
                assert!(until > now, "a wait ends later");
                now = until;
            }
            Take::Nothing => break,
        }
    }
    (run.left, run.resting) = (order.keys(), order.stats(now).resting);
    run
}

/// What a take gave.
enum Take {
    Key,
    Later(Instant),
    Nothing,
}

impl Run {
    fn take(&mut self, order: &mut Order<()>, running: &mut Vec<(u8, Ticket)>, now: Instant) -> Take {
        let ready = order.ready_keys(now).into_iter();
        let ready = ready.map(|(key, priority, at)| (number(&key), priority, at - self.start)).collect();
        match order.next(now) {
            Next::Take(taken) => {
                let key = number(&taken.key);
                self.facts.push((now - self.start, Fact::Took { key, attempt: taken.attempt, ready }));
                running.push((key, taken.ticket));
                Take::Key
            }
            Next::Wait(until) => Take::Later(until),
            Next::Empty => Take::Nothing,
            Next::Over => panic!("nobody closed it"),
        }
    }

    /// The takes: when, which key, its attempt, and what was ready then.
    fn takes(&self) -> impl Iterator<Item = (Duration, u8, &Vec<(u8, Priority, Duration)>)> {
        self.facts.iter().filter_map(|(at, fact)| match fact {
            Fact::Took { key, ready, .. } => Some((*at, *key, ready)),
            _ => None,
        })
    }
}

/// What is known of one key from the facts alone.
#[derive(Debug, Default)]
struct Known {
    running: bool,
    /// Failures in a row.
    failures: u32,
    /// Runs in a row in which others were in the way.
    hindered: u32,
    /// A change came while it ran.
    changed: bool,
    resting: bool,
    /// It backs off, and at the earliest a retry, or else a change, may run it.
    backoff: Option<Duration>,
    changed_in_backoff: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_reconcile_per_key_at_a_time(options in options(), script in steps()) {
        let run = play(options, script);
        let mut running = HashMap::new();
        for (at, fact) in &run.facts {
            match fact {
                Fact::Took { key, .. } => prop_assert!(running.insert(*key, at).is_none(), "{key} ran twice at {at:?}"),
                Fact::Finished { key, .. } => prop_assert!(running.remove(key).is_some()),
                Fact::Added { .. } => {}
            }
        }
    }

    /// Nor is any other: after each wakeup its key is taken, not before the wakeup is due.
    #[test]
    fn a_wakeup_during_a_reconcile_is_not_lost(options in options(), script in steps()) {
        let run = play(options, script);
        for (i, (_, fact)) in run.facts.iter().enumerate() {
            let Fact::Added { key: woken, .. } = fact else { continue };
            let served = |(_, fact): &(Duration, Fact)| matches!(fact, Fact::Took { key, .. } if key == woken);
            prop_assert!(run.facts[i..].iter().any(served), "the wakeup of {woken}, fact {i}, led to nothing");
        }
    }

    /// Only outcomes count, and no wakeup but a change runs a key before its backoff is over.
    #[test]
    fn spurious_wakeups_do_not_inflate_backoff(options in options(), script in steps()) {
        let run = play(options, script);
        let backoff = &run.options.backoff;
        let mut known: HashMap<u8, Known> = HashMap::new();
        for (at, fact) in &run.facts {
            match fact {
                Fact::Added { key, priority, .. } => {
                    let known = known.entry(*key).or_default();
                    let change = *priority >= Priority::Change;
                    known.changed |= change && known.running;
                    known.changed_in_backoff |= change;
                    if change && std::mem::take(&mut known.resting) {
                        (known.failures, known.hindered) = (0, 0);
                    }
                }
                Fact::Took { key, attempt, .. } => {
                    let known = known.entry(*key).or_default();
                    prop_assert_eq!(*attempt, known.failures + known.hindered + 1, "attempt of {} at {:?}", key, at);
                    if let Some(until) = known.backoff.take().filter(|_| !known.changed_in_backoff) {
                        prop_assert!(*at >= until, "{key} ran at {at:?}, but backs off until {until:?}");
                    }
                    (known.running, known.changed, known.resting) = (true, false, false);
                }
                Fact::Finished { key, requeue, settled } => {
                    let known = known.entry(*key).or_default();
                    known.running = false;
                    let ends = |failures| backoff.max_retries.is_some_and(|most| failures > most);
                    match requeue {
                        Requeue::Forget | Requeue::After(_) => (known.failures, known.hindered) = (0, 0),
                        Requeue::RateLimited | Requeue::GiveUp => known.failures += 1,
                        Requeue::AfterOutageOrConflict => known.hindered += 1,
                        Requeue::NotBefore(_) => {}
                    }
                    let rests = *requeue == Requeue::GiveUp || *requeue == Requeue::RateLimited && ends(known.failures);
                    if rests && known.changed {
                        (known.failures, known.hindered) = (0, 0);
                    }
                    known.resting = rests && !known.changed;
                    if known.resting && matches!(settled, Settled::GaveUp { .. }) {
                        prop_assert_eq!(*settled, Settled::GaveUp { failures: known.failures });
                    }
                    let least = backoff.delay(known.failures).mul_f64(1.0 - backoff.jitter) - Duration::from_nanos(known.failures.min(1).into());
                    known.backoff = match requeue {
                        // Counted from the beginning of the run, which is never less than one step before its end.
                        Requeue::AfterOutageOrConflict => Some(*at + backoff.delay(1).mul_f64(1.0 - backoff.jitter) - Duration::from_nanos(1)),
                        Requeue::RateLimited if !rests => Some(*at + least),
                        Requeue::NotBefore(span) => Some(*at + *span),
                        _ => None,
                    };
                    known.changed_in_backoff = known.changed && !matches!(requeue, Requeue::NotBefore(_));
                }
            }
        }
    }

    /// The bound that `order.rs` promises, for every key that was ready at any take.
    #[test]
    fn nothing_starves(options in options(), script in steps()) {
        let run = play(options, script);
        let Ageing { patience, every } = run.options.ageing;
        // For each place (a key, and when it took it): how many takes may pass before it is its turn.
        let mut left: HashMap<(u8, Duration), u32> = HashMap::new();
        for (now, taken, ready) in run.takes() {
            for (key, _, place) in ready.iter().filter(|(_, _, place)| *place + patience <= now) {
                let before = ready.iter().filter(|(_, _, other)| other <= place).count() as u32;
                let left = left.entry((*key, *place)).or_insert(every * before);
                prop_assert!(*left > 0, "{key} has been ready since {place:?} and is passed by at {now:?}");
                *left -= 1;
            }
            left.retain(|(key, _), _| *key != taken);
        }
    }

    /// Strictly by priority and then by place, unless the oldest of all takes its turn; and that only after its patience.
    #[test]
    fn a_fresh_change_overtakes_a_resync(options in options(), script in steps()) {
        let run = play(options, script);
        let (patience, every) = (run.options.ageing.patience, run.options.ageing.every);
        let mut since = every;
        for (now, taken, ready) in run.takes() {
            let (_, priority, place) = *ready.iter().find(|(key, ..)| *key == taken).expect("what is taken was ready");
            let top = ready.iter().map(|(_, priority, _)| *priority).max().expect("something was ready");
            since += 1;
            if priority < top {
                prop_assert!(place + patience <= now, "{taken} was taken before its patience ran out");
                prop_assert!(ready.iter().all(|(_, _, other)| place <= *other), "{taken} was not the oldest");
                prop_assert!(since >= every, "{taken} was taken {since} takes after the turn of another");
                since = 0;
            }
        }
    }

    #[test]
    fn fifo_within_a_priority(options in options(), script in steps()) {
        let run = play(options, script);
        for (now, taken, ready) in run.takes() {
            let (_, priority, place) = *ready.iter().find(|(key, ..)| *key == taken).expect("what is taken was ready");
            let first = ready.iter().filter(|(_, other, _)| *other == priority).all(|(_, _, other)| place <= *other);
            prop_assert!(first, "{taken} was taken at {now:?}, but is not the first of {ready:?}");
        }
    }

    /// The same against a model of four plain queues, when nothing waits and nothing ages.
    #[test]
    fn the_order_is_that_of_four_queues(adds in prop::collection::vec((0u8..12, 0usize..4, any::<bool>()), 1..100)) {
        let start = Instant::now();
        let ageing = Ageing { patience: Duration::from_secs(1), every: 1 };
        let mut order = Order::new(&QueueOptions { ageing, ..QueueOptions::default() }, start);
        let mut model: [VecDeque<u8>; 4] = Default::default();
        for (n, priority, take) in adds {
            let _ = order.add(&key(n), Wakeup::new(Priority::ALL[priority], ()), start);
            if !model[priority..].iter().any(|queue| queue.contains(&n)) {
                model.iter_mut().for_each(|queue| queue.retain(|other| *other != n));
                model[priority].push_back(n);
            }
            if take {
                let expect = model.iter_mut().rev().find_map(VecDeque::pop_front);
                let Next::Take(taken) = order.next(start) else { panic!("something is ready") };
                prop_assert_eq!(Some(number(&taken.key)), expect);
                order.done(taken.ticket, Requeue::Forget, start, 0.0);
            }
        }
    }

    #[test]
    fn a_rate_holds_over_every_span(options in options(), script in steps()) {
        let run = play(options, script);
        let Some(Rate { every, burst }) = run.options.rate else { return Ok(()) };
        let takes: Vec<Duration> = run.takes().map(|(at, ..)| at).collect();
        for (i, from) in takes.iter().enumerate() {
            for (count, to) in (1u32..).zip(&takes[i..]) {
                prop_assert!(every * count.saturating_sub(burst) <= *to - *from, "{count} takes from {from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn there_is_one_entry_per_key_and_none_is_left_behind(options in options(), script in steps()) {
        let run = play(options, script);
        prop_assert!(run.most <= usize::from(KEYS));
        prop_assert_eq!(run.left, run.resting);
    }

    /// Delays are kept: what was only ever woken for later never runs earlier.
    #[test]
    fn a_delayed_wakeup_is_not_early(options in options(), script in steps()) {
        let run = play(options, script);
        let mut due: HashMap<u8, Duration> = HashMap::new();
        let mut again: HashMap<u8, Duration> = HashMap::new();
        for (at, fact) in &run.facts {
            match fact {
                Fact::Added { key, due: other, .. } => {
                    due.entry(*key).and_modify(|due| *due = (*due).min(*other)).or_insert(*other);
                }
                Fact::Took { key, .. } => {
                    let earliest = due.remove(key).into_iter().chain(again.remove(key)).min();
                    prop_assert!(earliest.is_some_and(|due| due <= *at), "{key} ran at {at:?}, due {earliest:?}");
                }
                Fact::Finished { key, requeue: Requeue::After(span), .. } => _ = again.insert(*key, *at + *span),
                // How long these wait at least is asked above.
                Fact::Finished { key, requeue: Requeue::RateLimited | Requeue::AfterOutageOrConflict | Requeue::NotBefore(_), .. } => _ = again.insert(*key, *at),
                Fact::Finished { .. } => {}
            }
        }
    }
}
