//! Several candidates and one server in virtual time: clocks of different rates, slow and lost messages, partitions, pauses. At no time
//! do two candidates lead, and when the faults are over one of them does.
//!
//! `KONVERGE_SEEDS=10000` runs it for longer, `KONVERGE_SEED=7` runs one seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::*;
use crate::random::Random;

/// Milliseconds of the world's clock.
type Millis = u64;

/// Faults happen until then; afterwards everything works.
const FAULTS_UNTIL: Millis = 120_000;

/// By then somebody has to lead again.
const HEALED_UNTIL: Millis = FAULTS_UNTIL + 60_000;

/// The most requests that one candidate may send within a second: conflicts are tried again ten times a second, each with a read and
/// a write, by clocks that are up to 1.45 times too fast.
const MOST_REQUESTS: u32 = 40;

/// What happens at a time, and to whom.
#[derive(Clone, Debug)]
enum Happening {
    /// A candidate's timer rings.
    Timer(usize),
    /// A request reaches the server.
    Arrives(usize, u64, Command),
    /// An answer reaches a candidate.
    Answered(usize, u64, Answer),
    /// Nobody waits for the answer any longer.
    TimedOut(usize, u64),
    /// A watch brings a change.
    Watched(usize, Option<Lease>),
    /// The connection of a watch breaks, or is there again.
    Watching(usize, bool),
    /// A candidate is killed, and starts again as another process.
    Restarts(usize),
    /// Somebody deletes the Lease by hand.
    Deleted,
    /// Somebody writes the largest number and a time that is too late into the Lease by hand.
    Spoilt,
    /// The server is restored from a backup: versions and the Lease go back.
    Restored,
}

#[derive(Clone, Debug)]
enum Answer {
    Read(Option<Lease>),
    Wrote(Result<Lease, Failure>),
}

/// One candidate, with its clock and what it waits for.
struct Process {
    candidate: Candidate,
    /// Thousandths of the world's clock: 1450 runs 1.45 times as fast.
    rate: u64,
    /// Requests that have not ended, with the local time at which they were sent, and whether they are reads.
    waiting: BTreeMap<u64, (Instant, bool)>,
    /// Nothing is handled before then.
    paused_until: Millis,
    /// Nothing is sent or received before then.
    cut_until: Millis,
    /// The number and the deadline that writes are checked against.
    seat: Option<(u64, Instant)>,
    /// How often it was started.
    life: u32,
    /// The last second in which it sent requests, and how many.
    sent: (Millis, u32),
}

struct World {
    seed: u64,
    random: Random,
    base: Instant,
    now: Millis,
    order: u64,
    agenda: BinaryHeap<Reverse<(Millis, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    lease: Option<Lease>,
    /// The Lease after each version, the newest last.
    history: Vec<Option<Lease>>,
    version: u64,
    processes: Vec<Process>,
    terms: BTreeSet<u64>,
    request: u64,
    /// Whether somebody deletes or spoils the Lease or restores the server in this run. A candidate that never saw the Lease may create it anew at
    /// once then, and the numbers may begin anew, so only the rest is checked.
    forgets: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let count = 2 + random.below(4);
        let base = Instant::now();
        let processes = (0..count).map(|at| Process {
            candidate: Candidate::new(format!("process-{at}").into(), LeaseTiming::default()),
            rate: 1000 + random.below(450),
            waiting: BTreeMap::new(),
            paused_until: 0,
            cut_until: 0,
            seat: None,
            life: 0,
            sent: (0, 0),
        });
        let processes: Vec<Process> = processes.collect();
        let mut world = Self {
            seed,
            base,
            now: 0,
            order: 0,
            agenda: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            lease: None,
            history: vec![None],
            version: 0,
            processes,
            terms: BTreeSet::new(),
            request: 0,
            forgets: random.chance(20),
            random,
        };
        for who in 0..world.processes.len() {
            let at = world.random.below(3_000);
            world.at(at, Happening::Timer(who));
            world.at(at + 500, Happening::Watching(who, true));
        }
        world.plan_faults();
        world
    }

    fn plan_faults(&mut self) {
        for _ in 0..self.random.below(12) {
            let who = self.random.below(self.processes.len() as u64) as usize;
            let at = self.random.below(FAULTS_UNTIL);
            let happening = match self.random.below(6) {
                0 if self.forgets && self.random.chance(50) => Happening::Deleted,
                0 if self.forgets && self.random.chance(50) => Happening::Restored,
                0 if self.forgets => Happening::Spoilt,
                0 | 1 => Happening::Restarts(who),
                _ => Happening::Watching(who, false),
            };
            self.at(at, happening);
        }
        self.at(FAULTS_UNTIL, Happening::Timer(0));
        for who in 0..self.processes.len() {
            self.at(FAULTS_UNTIL + 1_000, Happening::Watching(who, true));
        }
    }

    fn at(&mut self, time: Millis, happening: Happening) {
        self.order += 1;
        self.agenda.push(Reverse((time, self.order)));
        self.happenings.insert(self.order, happening);
    }

    /// The time by a candidate's own clock.
    fn local(&self, who: usize) -> Instant {
        self.base + Duration::from_millis(self.now * self.processes[who].rate / 1000)
    }

    /// When a candidate's clock shows this time.
    fn global(&self, who: usize, local: Instant) -> Millis {
        let millis = local.saturating_duration_since(self.base).as_millis() as u64;
        (millis * 1000).div_ceil(self.processes[who].rate)
    }

    fn delay(&mut self) -> Millis {
        match self.is_faulty() && self.random.chance(10) {
            true => self.random.below(14_000),
            false => 1 + self.random.below(40),
        }
    }

    fn is_faulty(&self) -> bool {
        self.now < FAULTS_UNTIL
    }

    fn run(mut self) {
        while let Some(Reverse((time, order))) = self.agenda.pop() {
            if time > HEALED_UNTIL {
                break;
            }
            self.now = self.now.max(time);
            let happening = self.happenings.remove(&order).expect("each is planned once");
            self.handle(happening);
        }
        let leading = (0..self.processes.len()).filter(|who| self.leads(*who)).count();
        assert_eq!(leading, 1, "seed {}: {leading} lead after the faults are over", self.seed);
    }

    fn handle(&mut self, happening: Happening) {
        let who = match &happening {
            Happening::Arrives(who, request, command) => return self.serve(*who, *request, command.clone()),
            Happening::Deleted => return self.delete(),
            Happening::Spoilt => return self.spoil(),
            Happening::Restored => return self.restore(),
            Happening::Timer(who)
            | Happening::Answered(who, ..)
            | Happening::TimedOut(who, _)
            | Happening::Watched(who, _)
            | Happening::Watching(who, _)
            | Happening::Restarts(who) => *who,
        };
        if self.is_faulty() && self.random.chance(1) {
            self.processes[who].paused_until = self.now + self.random.below(30_000);
        }
        if self.is_faulty() && self.random.chance(1) {
            self.processes[who].cut_until = self.now + self.random.below(30_000);
        }
        if self.processes[who].paused_until > self.now {
            let later = self.processes[who].paused_until;
            return self.at(later, happening);
        }
        let now = self.local(who);
        let process = &mut self.processes[who];
        match happening {
            Happening::Answered(_, request, answer) => {
                let Some((sent, _)) = process.waiting.remove(&request) else { return };
                match answer {
                    Answer::Read(lease) => process.candidate.read(Ok(lease), now),
                    Answer::Wrote(answer) => process.candidate.wrote(sent, answer, now),
                }
            }
            Happening::TimedOut(_, request) => {
                let Some((sent, is_read)) = process.waiting.remove(&request) else { return };
                match is_read {
                    true => process.candidate.read(Err(Failure::Other), now),
                    false => process.candidate.wrote(sent, Err(Failure::Other), now),
                }
            }
            Happening::Watched(_, Some(lease)) => process.candidate.saw(Some(lease), now),
            Happening::Watched(_, None) => {
                let mut gone = Lease::default();
                gone.metadata.resource_version = Some(self.version.to_string());
                process.candidate.deleted(&gone, now);
            }
            Happening::Watching(_, is_watching) => {
                process.candidate.watching(is_watching);
                if is_watching {
                    process.candidate.refresh();
                }
            }
            Happening::Restarts(_) => {
                process.life += 1;
                let identity = format!("process-{who}-{}", process.life);
                process.candidate = Candidate::new(identity.into(), LeaseTiming::default());
                process.candidate.watching(true);
                process.waiting.clear();
                process.seat = None;
            }
            // Other elections of this process begin and cease to lead.
            Happening::Timer(_) if self.random.chance(10) => {
                process.candidate.defer(Duration::from_millis(250 * self.random.below(9)));
            }
            Happening::Timer(_)
            | Happening::Arrives(..)
            | Happening::Deleted
            | Happening::Spoilt
            | Happening::Restored => {}
        }
        self.step(who);
    }

    /// What the shell around a candidate does after each event.
    fn step(&mut self, who: usize) {
        let now = self.local(who);
        while let Some(command) = self.processes[who].candidate.step(now, Timestamp::UNIX_EPOCH) {
            self.request += 1;
            let (second, sent) = self.processes[who].sent;
            let sent = if second == self.now / 1000 { sent + 1 } else { 1 };
            self.processes[who].sent = (self.now / 1000, sent);
            assert!(sent <= MOST_REQUESTS, "seed {} at {} ms: {who} floods the server", self.seed, self.now);
            let (request, is_read) = (self.request, command == Command::Read);
            self.processes[who].waiting.insert(request, (now, is_read));
            let limit = LeaseTiming::default().renew_deadline;
            let late = self.global(who, now + if is_read { limit / 2 } else { limit });
            self.at(late, Happening::TimedOut(who, request));
            let arrives = self.now + self.delay();
            if !self.is_lost(who) {
                self.at(arrives, Happening::Arrives(who, request, command));
            }
        }
        let led = self.processes[who].seat;
        self.processes[who].seat = match self.processes[who].candidate.standing(now) {
            Standing::Leading { number, deadline } => Some((number, deadline)),
            Standing::Following { .. } => None,
        };
        self.check(who, led);
        if let Some(next) = self.processes[who].candidate.next(now) {
            let at = self.global(who, next).max(self.now + 1);
            self.at(at, Happening::Timer(who));
        }
    }

    fn is_lost(&mut self, who: usize) -> bool {
        self.processes[who].cut_until > self.now || self.is_faulty() && self.random.chance(3)
    }

    fn leads(&self, who: usize) -> bool {
        self.processes[who].seat.is_some_and(|(_, deadline)| self.local(who) < deadline)
    }

    /// A candidate that has just begun to lead is the only one, and its term is later than all others.
    fn check(&mut self, who: usize, led: Option<(u64, Instant)>) {
        let Some((number, _)) = self.processes[who].seat else { return };
        if led.is_some_and(|(before, _)| before == number) {
            return;
        }
        let newest = self.terms.last().copied();
        self.terms.insert(number);
        if self.forgets {
            return;
        }
        let others: Vec<usize> =
            (0..self.processes.len()).filter(|other| *other != who && self.leads(*other)).collect();
        assert!(
            others.is_empty(),
            "seed {} at {} ms: {who} leads in term {number} beside {others:?}",
            self.seed,
            self.now
        );
        assert!(newest.is_none_or(|newest| newest < number), "seed {}: term {number} after {newest:?}", self.seed);
    }

    /// The server: one write at a time, and only by who knows the newest version.
    fn serve(&mut self, who: usize, request: u64, command: Command) {
        let answer = match command {
            Command::Read => Answer::Read(self.lease.clone()),
            Command::Create(_) if self.lease.is_some() => Answer::Wrote(Err(Failure::Conflict)),
            Command::Replace(lease) if self.lease.as_ref().is_none_or(|known| version(known) != version(&lease)) => {
                Answer::Wrote(Err(Failure::Conflict))
            }
            Command::Create(lease) | Command::Replace(lease) => Answer::Wrote(Ok(self.store(lease))),
        };
        let at = self.now + self.delay();
        if !self.is_lost(who) {
            self.at(at, Happening::Answered(who, request, answer));
        }
    }

    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        self.history.push(self.lease.clone());
        self.notify(Some(lease.clone()));
        lease
    }

    fn delete(&mut self) {
        self.version += 1;
        let was_there = self.lease.take().is_some();
        self.history.push(None);
        if was_there {
            self.notify(None);
        }
    }

    fn spoil(&mut self) {
        let Some(mut lease) = self.lease.clone() else { return };
        let spec = lease.spec.get_or_insert_default();
        spec.lease_transitions = Some(i32::MAX);
        spec.renew_time = serde_json::from_str("\"9999-12-31T23:59:59.000000Z\"").ok();
        self.store(lease);
    }

    /// Watches end with it, and begin again a second later.
    fn restore(&mut self) {
        self.version = self.random.below(self.version + 1);
        self.history.truncate(self.version as usize + 1);
        self.lease = self.history.last().cloned().flatten();
        for who in 0..self.processes.len() {
            self.at(self.now, Happening::Watching(who, false));
            self.at(self.now + 1_000, Happening::Watching(who, true));
        }
    }

    fn notify(&mut self, lease: Option<Lease>) {
        for who in 0..self.processes.len() {
            let at = self.now + self.delay();
            if !self.is_lost(who) {
                self.at(at, Happening::Watched(who, lease.clone()));
            }
        }
    }
}

#[test]
fn at_no_time_do_two_lead() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("KONVERGE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("KONVERGE_SEEDS").unwrap_or(300),
    };
    for seed in seeds {
        World::new(seed).run();
    }
}
