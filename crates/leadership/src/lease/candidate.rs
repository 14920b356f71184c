//! What one candidate does about a Lease. In: what it saw of the Lease, how its requests ended, and the time by its own clock. Out:
//! the next request, and whether it leads. Pure, and never compares its clock with another machine's.
//!
//! ```text
//! saw, wrote, failed → plan → step → Read | Create | Replace
//!                        └→ standing: leading until a deadline, or following
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::object::{Lease, LeaseSpec, LeaseTime, duration, holder, is_last, next_number, number, version};
use super::timing::LeaseTiming;

/// How many renewals may be unanswered at the same time. The second is sent when half of the time is over, because the connection of
/// the first may be dead.
const MOST_RENEWALS: usize = 2;

/// One candidate for a Lease.
#[derive(Debug)]
pub(crate) struct Candidate {
    identity: Arc<str>,
    timing: LeaseTiming,
    seen: Seen,
    held: Option<Held>,
    /// When the unanswered writes were sent, oldest first.
    unanswered: Vec<Instant>,
    /// The version that was known when the unanswered read was sent.
    reading: Option<u64>,
    /// Whether changes of the Lease come by themselves. Otherwise the Lease is read again and again.
    is_watching: bool,
    /// The pause after a request that failed.
    not_before: Option<Instant>,
    /// Whether a write failed, so that the Lease is read before it is written again.
    is_stale: bool,
    /// The highest number of a term that was seen.
    highest: u64,
    /// The number of the newest term of this candidate. A term that is over does not begin again.
    led: Option<u64>,
    /// For how long a Lease that became free is left to others.
    deference: Duration,
    /// Whether the Lease is renewed at once, because something that goes with it has changed.
    is_due: bool,
}

/// The Lease as it was seen last.
#[derive(Debug)]
enum Seen {
    /// It has to be read first, or again.
    Unknown,
    /// There has been none since then. Whoever held the one that was deleted may go on until `reserved_until`.
    Missing { since: Instant, reserved_until: Option<Instant> },
    /// It is there; its content has been the same since then.
    Lease { lease: Box<Lease>, since: Instant, read_at: Instant },
}

/// The term of this candidate.
#[derive(Clone, Copy, Debug)]
struct Held {
    number: u64,
    /// When the last successful renewal was sent.
    renewed: Instant,
}

/// A request that is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Read,
    Create(Lease),
    Replace(Lease),
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Another writer was faster.
    Conflict,
    /// It was refused, or there was no answer.
    Other,
}

/// Whether a candidate leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Leading { number: u64, deadline: Instant },
    Following { leader: Option<Arc<str>> },
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Read,
    Create,
    Acquire,
    Renew,
}

impl Candidate {
    pub(crate) fn new(identity: Arc<str>, timing: LeaseTiming) -> Self {
        Self {
            identity,
            timing,
            seen: Seen::Unknown,
            held: None,
            unanswered: Vec::new(),
            reading: None,
            is_watching: false,
            not_before: None,
            is_stale: false,
            highest: 0,
            led: None,
            deference: Duration::ZERO,
            is_due: false,
        }
    }

    /// For how long a Lease that became free is left to others, because this process leads elsewhere already.
    pub(crate) fn defer(&mut self, deference: Duration) {
        self.deference = deference;
    }

    /// Renews the Lease at once, because something that is written with it has changed.
    pub(crate) fn hasten(&mut self) {
        self.is_due = true;
    }

    /// Whether the candidate leads, or has sent what may make it lead.
    pub(crate) fn is_engaged(&self) -> bool {
        self.held.is_some() || !self.unanswered.is_empty()
    }

    /// When something is to be done next, unless something happens before.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let planned = self.plan().map(|(at, _)| at.unwrap_or(now));
        self.deadline().into_iter().chain(planned).min()
    }

    /// What is due now. `wall` is what is written into the Lease for people and other clients; nothing is decided by it.
    pub(crate) fn step(&mut self, now: Instant, wall: Timestamp) -> Option<Command> {
        self.give_up_in_time(now);
        let (at, plan) = self.plan()?;
        if at.is_some_and(|at| at > now) {
            return None;
        }
        self.not_before = None;
        self.is_due &= plan == Plan::Read;
        let command = match plan {
            Plan::Read => {
                self.reading = Some(self.lease().map(version).unwrap_or_default());
                return Some(Command::Read);
            }
            Plan::Create => Command::Create(self.acquired(Lease::default(), wall)),
            Plan::Acquire => Command::Replace(self.acquired(self.lease()?.clone(), wall)),
            Plan::Renew => Command::Replace(self.renewed(self.lease()?.clone(), wall)),
        };
        self.unanswered.push(now);
        Some(command)
    }

    /// The Lease as a watch or a read shows it; none if it was deleted. What is older than what was seen already is ignored: a watch
    /// may be behind a candidate's own writes.
    pub(crate) fn saw(&mut self, lease: Option<Lease>, now: Instant) {
        let Some(lease) = lease else { return self.saw_none(now) };
        match self.lease().map(version) {
            Some(known) if known > version(&lease) => return,
            Some(known) if known == version(&lease) => {}
            _ => self.is_stale = false,
        }
        // The count of terms has begun anew if there could be no greater number.
        self.highest = if is_last(self.highest) { number(&lease) } else { self.highest.max(number(&lease)) };
        // A leader only renews. Its own name in another term is another process with the same identity.
        let is_mine = holder(&lease) == Some(&self.identity);
        self.held = self.held.filter(|held| is_mine && held.number == number(&lease));
        let since = match &self.seen {
            Seen::Lease { lease: known, since, .. } if known.spec == lease.spec => *since,
            _ => now,
        };
        self.seen = Seen::Lease { lease: Box::new(lease), since, read_at: now };
    }

    /// A watch says that the Lease was deleted.
    pub(crate) fn deleted(&mut self, lease: &Lease, now: Instant) {
        if self.lease().is_none_or(|known| version(known) <= version(lease)) {
            self.saw_none(now);
        }
    }

    /// Something may have been missed: the Lease is read again.
    pub(crate) fn refresh(&mut self) {
        self.is_stale = true;
    }

    fn saw_none(&mut self, now: Instant) {
        // A leader whose Lease is deleted stops: somebody who has never seen the Lease may create it at once.
        let was_leading = self.held.take().is_some();
        let (since, reserved_until) = match &self.seen {
            Seen::Lease { .. } if was_leading => (now, None),
            Seen::Lease { .. } => (now, self.taken_until().filter(|until| *until > now)),
            Seen::Missing { since, reserved_until } => (*since, *reserved_until),
            Seen::Unknown => (now, None),
        };
        self.seen = Seen::Missing { since, reserved_until };
    }

    /// A read has ended. What it shows may be older than a write that was answered meanwhile, but never older than what was known
    /// when it was sent, unless the server was restored from a backup or has begun anew: then what was known does not count any more.
    pub(crate) fn read(&mut self, answer: Result<Option<Lease>, Failure>, now: Instant) {
        let known = self.reading.take().unwrap_or_default();
        match answer {
            Ok(lease) => {
                self.is_stale = false;
                if lease.as_ref().is_some_and(|lease| version(lease) < known) {
                    self.seen = Seen::Unknown;
                }
                self.saw(lease, now);
            }
            Err(_) => self.not_before = Some(now + self.timing.retry_period),
        }
    }

    /// A write that was sent at `sent` has ended. A term counts from when the write was sent, because others may have seen it then.
    pub(crate) fn wrote(&mut self, sent: Instant, answer: Result<Lease, Failure>, now: Instant) {
        if let Some(at) = self.unanswered.iter().position(|known| *known == sent) {
            self.unanswered.remove(at);
        }
        // Whoever works for the term has stopped at its deadline, and an answer that comes later does not bring it back.
        self.give_up_in_time(now);
        match answer {
            Ok(lease) => {
                let number = number(&lease);
                self.saw(Some(lease), now);
                let is_mine = self.lease().is_some_and(|seen| is_of(seen, &self.identity, number));
                let is_acquired = self.led != Some(number) && now < sent + self.timing.renew_deadline;
                match &mut self.held {
                    Some(held) => held.renewed = held.renewed.max(sent),
                    None if is_mine && is_acquired => {
                        self.held = Some(Held { number, renewed: sent });
                        self.led = Some(number);
                    }
                    // The Lease names this candidate, or somebody else by now: what comes next is planned from that.
                    None => self.not_before = Some(now + self.timing.retry_period / 2),
                }
            }
            Err(Failure::Conflict) => {
                self.is_stale = true;
                // Without a pause, two writers that are always in each other's way would keep the server busy.
                self.not_before = Some(now + self.timing.retry_period / 20);
            }
            // Its outcome is not known, so the Lease is read again: the write may have come through.
            Err(Failure::Other) => {
                self.is_stale = true;
                self.not_before = Some(now + self.timing.retry_period / 2);
            }
        }
    }

    /// Whether changes of the Lease come by themselves from now on.
    pub(crate) fn watching(&mut self, is_watching: bool) {
        self.is_watching = is_watching;
    }

    /// Whether the candidate leads now, and for how long at least.
    pub(crate) fn standing(&self, now: Instant) -> Standing {
        match (self.held, self.deadline()) {
            (Some(held), Some(deadline)) if now < deadline => Standing::Leading { number: held.number, deadline },
            _ => Standing::Following { leader: self.other_leader(now) },
        }
    }

    /// Ends the term, and gives the Lease as it is to be written so that another candidate can take over at once; none if this
    /// candidate does not lead. It is written as client-go writes it: without a holder, and for one second.
    pub(crate) fn release(&mut self, wall: Timestamp) -> Option<Lease> {
        self.held.take()?;
        let mut lease = self.lease()?.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        (spec.acquire_time, spec.renew_time) = (Some(wall.into()), Some(wall.into()));
        Some(lease)
    }

    /// What is to be done next, and when, if not at once; nothing if an answer is waited for.
    fn plan(&self) -> Option<(Option<Instant>, Plan)> {
        if self.reading.is_some() {
            return None;
        }
        if let Some(first) = self.unanswered.first() {
            let may_send = self.held.is_some() && self.unanswered.len() < MOST_RENEWALS;
            // The first may have been stored without an answer: then a renewal of what is known fails, and the Lease has to be read.
            let (at, plan) = match self.is_stale {
                true => (None, Plan::Read),
                false => (Some(*first + self.timing.renew_deadline / 2), Plan::Renew),
            };
            return may_send.then(|| (at.max(self.not_before), plan));
        }
        let (at, plan) = match &self.seen {
            _ if self.is_stale => (None, Plan::Read),
            Seen::Unknown => (None, Plan::Read),
            Seen::Missing { since, reserved_until } => (self.after_others(*since, *reserved_until), Plan::Create),
            Seen::Lease { since, read_at, .. } => match self.held {
                Some(_) if self.is_due => (None, Plan::Renew),
                Some(held) => (Some(held.renewed + self.timing.retry_period), Plan::Renew),
                None => {
                    let acquire = self.after_others(*since, self.taken_until());
                    let read = *read_at + self.timing.retry_period;
                    let reads_first = !self.is_watching && acquire.is_some_and(|acquire| read < acquire);
                    if reads_first { (Some(read), Plan::Read) } else { (acquire, Plan::Acquire) }
                }
            },
        };
        // None is the earliest.
        Some((at.max(self.not_before), plan))
    }

    /// Until when the Lease belongs to another candidate; none if nobody else has it.
    fn taken_until(&self) -> Option<Instant> {
        let Seen::Lease { lease, since, .. } = &self.seen else { return None };
        let holder = holder(lease)?;
        (holder != &*self.identity).then(|| *since + duration(lease, &self.timing))
    }

    /// When this candidate takes a Lease that is the same since then and free from then on; none is at once.
    fn after_others(&self, since: Instant, free_from: Option<Instant>) -> Option<Instant> {
        match self.deference.is_zero() {
            true => free_from,
            false => Some(free_from.unwrap_or(since) + self.deference),
        }
    }

    fn other_leader(&self, now: Instant) -> Option<Arc<str>> {
        self.taken_until().filter(|until| now < *until)?;
        self.lease().and_then(holder).map(Arc::from)
    }

    fn deadline(&self) -> Option<Instant> {
        self.held.map(|held| held.renewed + self.timing.renew_deadline)
    }

    fn give_up_in_time(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.held = None;
        }
    }

    fn lease(&self) -> Option<&Lease> {
        match &self.seen {
            Seen::Lease { lease, .. } => Some(lease),
            Seen::Unknown | Seen::Missing { .. } => None,
        }
    }

    fn acquired(&self, mut lease: Lease, wall: Timestamp) -> Lease {
        let is_new = lease.spec.is_none();
        let spec = lease.spec.get_or_insert_default();
        let transitions = match is_new && self.highest == 0 && self.led.is_none() {
            // As client-go begins.
            true => 0,
            false => next_number(self.highest, self.led, wall),
        };
        spec.lease_transitions = Some(transitions);
        spec.acquire_time = Some(wall.into());
        self.claimed(spec, wall);
        lease
    }

    fn renewed(&self, mut lease: Lease, wall: Timestamp) -> Lease {
        self.claimed(lease.spec.get_or_insert_default(), wall);
        lease
    }

    /// Strategy and preferred holder stay as others wrote them. Others see a renewal by its changed time, so no two have the same: also if
    /// this machine's clock stands still or is set back.
    fn claimed(&self, spec: &mut LeaseSpec, wall: Timestamp) {
        // Anybody may have written the largest time there is, after which none comes.
        let before = spec.renew_time.as_ref().and_then(LeaseTime::timestamp);
        let least = before.and_then(|before| before.checked_add(SignedDuration::from_micros(1)).ok());
        let wall = least.map_or(wall, |least| wall.max(least));
        spec.holder_identity = Some(self.identity.to_string());
        spec.lease_duration_seconds = i32::try_from(self.timing.duration.as_secs()).ok();
        spec.renew_time = Some(wall.into());
    }
}

/// Whether the Lease is in this term of this holder.
fn is_of(lease: &Lease, identity: &str, term: u64) -> bool {
    holder(lease) == Some(identity) && number(lease) == term
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
