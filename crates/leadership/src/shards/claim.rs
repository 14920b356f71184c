//! The right of a replica to work with its number of shards. In: whether it wants to, and what the watch brings. Out: what it writes into
//! its own Lease, and whether it may work. Pure.
//!
//! The Lease of all says how many shards there are, and lets replicas of one number go first. That nobody works with another number does
//! not hang on it, because somebody may delete it. A replica that has joined writes a claim into its own Lease, and works only if, when the
//! watch brings that claim, no living replica of another number has one. A watch brings changes in the order of their commits, so of two
//! claims the later one sees the earlier one, and gives way.

/// The claim of one replica, for as long as it is a member.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// How many claims there were. Each has a number, so that the watch does not bring an old one for a new one.
    made: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    /// It is written with the own Lease, and the watch has not brought it.
    Made,
    /// Nobody who works with another number came first.
    Confirmed,
}

impl Claim {
    /// Makes one, unless there is one. Whether it is new, and has to be written.
    pub(super) fn make(&mut self) -> bool {
        let is_new = self.state == State::None;
        if is_new {
            (self.made, self.state) = (self.made + 1, State::Made);
        }
        is_new
    }

    /// The watch shows this claim in the own Lease, and whether another replica has one to another number of shards.
    pub(super) fn brought(&mut self, claim: Option<u64>, is_divided_otherwise: bool) {
        if self.state == State::Made && claim == Some(self.made) {
            self.state = if is_divided_otherwise { State::None } else { State::Confirmed };
        }
    }

    /// This replica is no member any more.
    pub(super) fn end(&mut self) {
        self.state = State::None;
    }

    /// What is written into the own Lease.
    pub(super) fn number(&self) -> Option<u64> {
        (self.state != State::None).then_some(self.made)
    }

    /// Whether this replica may hold shards.
    pub(super) fn is_confirmed(&self) -> bool {
        self.state == State::Confirmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_confirmed_when_it_comes_first() {
        let check = |brought: &[(Option<u64>, bool)], number: Option<u64>, is_confirmed: bool| {
            let mut claim = Claim::default();
            assert!(claim.make() && !claim.make(), "there is one at a time");
            brought.iter().for_each(|(number, otherwise)| claim.brought(*number, *otherwise));
            assert_eq!((claim.number(), claim.is_confirmed()), (number, is_confirmed), "{brought:?}");
        };
        check(&[], Some(1), false);
        check(&[(None, false)], Some(1), false);
        check(&[(Some(1), false)], Some(1), true);
        check(&[(Some(1), true)], None, false);
        // Whoever comes later gives way, so a confirmed claim stays.
        check(&[(Some(1), false), (Some(1), true)], Some(1), true);
        // What is left of an earlier claim says nothing of this one.
        check(&[(Some(0), true)], Some(1), false);
    }
}
