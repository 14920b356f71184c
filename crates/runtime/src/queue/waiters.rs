//! Who waits for a key, and who of them watches the clock. In: workers that found nothing to take. Out: whom to wake.
//! At most one of them, the keeper, sleeps until the next key is due; the others sleep until they are woken, one for
//! each key that is ready. Pure: lives inside the queue's lock and hands wakers out to be called after it.

use std::task::Waker;
use std::time::Instant;

/// Where one waiting worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nobody sits here.
    Free,
    /// In no list: just came, or looking for a key right now.
    Looking,
    /// Sleeps until it is woken.
    Idle,
    /// Sleeps until the next key is due, or it is woken.
    Keeper,
    /// Was woken and has not looked yet.
    Woken,
}

#[derive(Debug)]
struct Seat {
    place: Place,
    waker: Option<Waker>,
}

/// The waiting workers.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    seats: Vec<Seat>,
    free: Vec<u32>,
    /// The newest last: it is woken first, because its memory is the warmest.
    idle: Vec<u32>,
    keeper: Option<(u32, Instant)>,
    woken: usize,
}

impl Waiters {
    /// A worker looks for a key. Gives a seat to one that has none yet only when it has to wait.
    pub(super) fn look(&mut self, seat: Option<u32>) {
        let Some(seat) = seat else { return };
        self.leave_list(seat);
        self.seats[seat as usize].place = Place::Looking;
    }

    /// A worker found nothing and sleeps; `until` is when something is due. Says whether it watches the clock.
    pub(super) fn wait(&mut self, seat: &mut Option<u32>, waker: &Waker, until: Option<Instant>) -> bool {
        let at = *seat.get_or_insert_with(|| self.sit());
        let keeps = until.is_some_and(|until| self.keeper.is_none_or(|(_, armed)| until < armed));
        if let (true, Some((old, _))) = (keeps, self.keeper) {
            // It wakes too late. Its own timer is left to it: at worst it looks once for nothing.
            self.seats[old as usize].place = Place::Idle;
            self.idle.push(old);
        }
        let place = if keeps { Place::Keeper } else { Place::Idle };
        let here = &mut self.seats[at as usize];
        here.place = place;
        match &mut here.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        match until.filter(|_| keeps) {
            Some(until) => self.keeper = Some((at, until)),
            None => self.idle.push(at),
        }
        keeps
    }

    /// A worker goes, with a key or without.
    pub(super) fn leave(&mut self, seat: &mut Option<u32>) {
        let Some(at) = seat.take() else { return };
        self.leave_list(at);
        self.seats[at as usize] = Seat { place: Place::Free, waker: None };
        self.free.push(at);
    }

    /// Whether nobody sleeps, so that there is nobody to wake.
    #[inline]
    pub(super) fn all_up(&self) -> bool {
        self.idle.is_empty() && self.keeper.is_none()
    }

    /// Whom to wake when this many keys are ready and the first of the others is due then; none if enough are up.
    pub(super) fn call(&mut self, ready: usize, first_due: Option<Instant>) -> Option<Waker> {
        let due_early = match (first_due, self.keeper) {
            (Some(due), Some((_, armed))) => due < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if ready > self.woken {
            // The keeper last: if it takes a key, somebody else has to watch the clock.
            let seat = self.idle.last().copied().or(self.keeper.map(|(seat, _)| seat))?;
            self.wake(seat)
        } else if due_early && self.woken == 0 {
            // The keeper to set its timer anew, or anybody to become the keeper.
            let seat = self.keeper.map(|(seat, _)| seat).or(self.idle.last().copied())?;
            self.wake(seat)
        } else {
            // Whoever is up will look, and take, or watch the clock.
            None
        }
    }

    /// Wakes everybody, for the last time or to look again.
    pub(super) fn call_all(&mut self) -> Vec<Waker> {
        let sleeping = |seat: &Seat| matches!(seat.place, Place::Idle | Place::Keeper);
        let seats: Vec<u32> =
            (0..self.seats.len()).filter(|at| sleeping(&self.seats[*at])).map(|at| at as u32).collect();
        seats.into_iter().filter_map(|seat| self.wake(seat)).collect()
    }

    fn wake(&mut self, seat: u32) -> Option<Waker> {
        self.leave_list(seat);
        self.seats[seat as usize].place = Place::Woken;
        self.woken += 1;
        self.seats[seat as usize].waker.take()
    }

    fn leave_list(&mut self, seat: u32) {
        match self.seats[seat as usize].place {
            Place::Idle => {
                let at = self.idle.iter().rposition(|other| *other == seat).expect("an idle worker is in the list");
                self.idle.remove(at);
            }
            Place::Keeper => self.keeper = None,
            Place::Woken => self.woken -= 1,
            Place::Free | Place::Looking => {}
        }
    }

    fn sit(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seat { place: Place::Looking, waker: None });
            // As many as there are workers.
            (self.seats.len() - 1) as u32
        })
    }
}
