//! One candidate, step by step.

use std::collections::BTreeMap;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A candidate called `me`, and the time.
struct Table {
    candidate: Candidate,
    now: Instant,
}

impl Table {
    fn new() -> Self {
        let mut candidate = Candidate::new("me".into(), LeaseTiming::default());
        candidate.watching(true);
        Self { candidate, now: Instant::now() }
    }

    /// Somebody leads, and the candidate has seen it.
    fn following(holder: &str) -> Self {
        let mut table = Self::new();
        table.candidate.saw(Some(lease(holder, 5, 3)), table.now);
        table
    }

    /// The candidate leads in term 6 since now.
    fn leading() -> Self {
        let mut table = Self::following("");
        let Some(Command::Replace(acquired)) = table.step() else { panic!("a free Lease is acquired") };
        let answer = stored(acquired, 7);
        table.candidate.wrote(table.now, Ok(answer), table.now);
        assert_eq!(table.leads(), Some(6));
        table
    }

    fn after(mut self, seconds: u32) -> Self {
        self.now += SECOND * seconds;
        self
    }

    fn step(&mut self) -> Option<Command> {
        self.candidate.step(self.now, Timestamp::UNIX_EPOCH)
    }

    /// The Lease is free: the candidate writes it and leads.
    fn leads_next(&mut self, version: &mut u64) -> u64 {
        for _ in 0..20 {
            match self.step() {
                Some(Command::Create(written) | Command::Replace(written)) => {
                    *version += 1;
                    self.candidate.wrote(self.now, Ok(stored(written, *version)), self.now);
                }
                Some(Command::Read) => panic!("it was just seen"),
                None => self.now += SECOND,
            }
            if let Some(number) = self.leads() {
                return number;
            }
        }
        panic!("it does not lead")
    }

    fn leads(&self) -> Option<u64> {
        match self.candidate.standing(self.now) {
            Standing::Leading { number, .. } => Some(number),
            Standing::Following { .. } => None,
        }
    }

    fn leader(&self) -> Option<String> {
        match self.candidate.standing(self.now) {
            Standing::Leading { .. } => Some("me".into()),
            Standing::Following { leader } => leader.map(|leader| leader.to_string()),
        }
    }
}

fn lease(holder: &str, transitions: i32, version: u64) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        lease_transitions: Some(transitions),
        others: BTreeMap::from([("preferredHolder".to_owned(), "favourite".into())]),
        ..LeaseSpec::default()
    };
    stored(Lease { spec: Some(spec), ..Lease::default() }, version)
}

fn stored(mut lease: Lease, version: u64) -> Lease {
    lease.metadata.resource_version = Some(version.to_string());
    lease
}

/// A renewal of the term of `Table::leading`.
fn renewed_by_me(version: u64) -> Lease {
    let mut lease = renewed("me", version);
    lease.spec.as_mut().unwrap().lease_transitions = Some(6);
    lease
}

/// A renewal by somebody else.
fn renewed(holder: &str, version: u64) -> Lease {
    let mut lease = lease(holder, 5, version);
    lease.spec.as_mut().unwrap().renew_time = Some(Timestamp::from_second(version as i64).unwrap().into());
    lease
}

#[test]
fn the_first_candidate_creates_the_lease_as_client_go_does() {
    let mut table = Table::new();
    assert_eq!(table.step(), Some(Command::Read));
    assert_eq!(table.step(), None, "an answer is waited for");
    table.candidate.read(Ok(None), table.now);
    let Some(Command::Create(created)) = table.step() else { panic!("it is not created") };
    let spec = created.spec.clone().unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("me"), Some(0)));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    table.candidate.wrote(table.now, Ok(stored(created, 1)), table.now);
    assert_eq!(table.leads(), Some(0));
}

#[test]
fn a_lease_is_taken_when_it_has_not_changed_for_its_duration() {
    let mut table = Table::following("other").after(14);
    assert_eq!((table.step(), table.leader()), (None, Some("other".into())));
    table.candidate.saw(Some(renewed("other", 4)), table.now);
    let mut table = table.after(14);
    assert_eq!(table.step(), None, "it was renewed");
    // The same content once more is no renewal.
    table.candidate.saw(Some(renewed("other", 4)), table.now);
    let mut table = table.after(1);
    assert_eq!(table.leader(), None);
    let Some(Command::Replace(taken)) = table.step() else { panic!("it is not taken") };
    let spec = taken.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("me"), Some(6)));
    assert_eq!(spec.others["preferredHolder"], "favourite", "what others wrote stays");
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut table = Table::following("other");
    table.candidate.saw(Some(lease("", 5, 4)), table.now);
    assert!(matches!(table.step(), Some(Command::Replace(_))));
}

#[test]
fn a_leader_renews_and_its_term_counts_from_when_it_sent() {
    let mut table = Table::leading().after(2);
    let Some(Command::Replace(renewal)) = table.step() else { panic!("it is not renewed") };
    assert_eq!(renewal.spec.as_ref().unwrap().lease_transitions, Some(6), "a renewal is no new term");
    let sent = table.now;
    let mut table = table.after(3);
    table.candidate.wrote(sent, Ok(stored(renewal, 8)), table.now);
    let Standing::Leading { deadline, .. } = table.candidate.standing(table.now) else { panic!("it leads") };
    assert_eq!(deadline, sent + 10 * SECOND);
}

#[test]
fn a_leader_without_answers_stops_at_its_deadline() {
    let mut table = Table::leading().after(2);
    assert!(matches!(table.step(), Some(Command::Replace(_))));
    let sent = table.now;
    let mut table = table.after(5);
    assert!(matches!(table.step(), Some(Command::Replace(_))), "the first connection may be dead");
    let mut table = table.after(2);
    assert_eq!((table.step(), table.leads()), (None, Some(6)));
    let mut table = table.after(1);
    assert_eq!(table.leads(), None);
    // An answer that comes now does not bring the term back: whoever worked for it was cut off.
    table.step();
    table.candidate.wrote(sent, Ok(lease("me", 6, 8)), table.now);
    assert_eq!(table.leads(), None);
}

#[test]
fn a_leader_stops_when_the_lease_is_not_its_own_any_more() {
    for (seen, why) in [
        (Some(lease("other", 7, 9)), "another holder"),
        (Some(lease("me", 7, 9)), "another process with the same identity"),
        (None, "deleted"),
    ] {
        let mut table = Table::leading();
        table.candidate.saw(seen, table.now);
        assert_eq!(table.leads(), None, "{why}");
    }
    // What a watch brings late is older than the candidate's own write.
    let mut table = Table::leading();
    table.candidate.saw(Some(lease("other", 5, 6)), table.now);
    table.candidate.deleted(&lease("other", 5, 5), table.now);
    assert_eq!(table.leads(), Some(6));
}

#[test]
fn a_deleted_lease_is_reserved_for_its_last_holder() {
    let mut table = Table::following("other").after(5);
    table.candidate.deleted(&lease("other", 5, 4), table.now);
    assert_eq!(table.step(), None, "its holder may not know it yet");
    let mut table = table.after(10);
    let Some(Command::Create(created)) = table.step() else { panic!("it is not created") };
    assert_eq!(created.spec.unwrap().lease_transitions, Some(6), "numbers only grow");
}

#[test]
fn a_write_that_failed_is_followed_by_a_read() {
    for failure in [Failure::Conflict, Failure::Other] {
        let mut table = Table::leading().after(2);
        assert!(matches!(table.step(), Some(Command::Replace(_))));
        let sent = table.now;
        table.candidate.wrote(sent, Err(failure), table.now);
        assert_eq!(table.step(), None, "there is a pause");
        let mut table = table.after(1);
        assert_eq!(table.step(), Some(Command::Read));
        table.candidate.read(Ok(Some(lease("me", 6, 8))), table.now);
        assert!(matches!(table.step(), Some(Command::Replace(_))), "it still leads and renews");
        assert_eq!(table.leads(), Some(6));
    }
}

#[test]
fn a_renewal_that_was_stored_without_an_answer_is_found_by_a_read() {
    let mut table = Table::leading().after(2);
    assert!(matches!(table.step(), Some(Command::Replace(_))), "this one is stored, and its answer is lost");
    let mut table = table.after(5);
    assert!(matches!(table.step(), Some(Command::Replace(_))));
    let sent = table.now;
    table.candidate.wrote(sent, Err(Failure::Conflict), table.now);
    assert_eq!(table.step(), None, "there is a pause");
    let mut table = table.after(1);
    assert_eq!(table.step(), Some(Command::Read));
    table.candidate.read(Ok(Some(renewed_by_me(8))), table.now);
    let Some(Command::Replace(renewal)) = table.step() else { panic!("it is not renewed") };
    assert_eq!(renewal.metadata.resource_version.as_deref(), Some("8"));
    let sent = table.now;
    table.candidate.wrote(sent, Ok(stored(renewal, 9)), table.now);
    assert_eq!(table.after(9).leads(), Some(6));
}

#[test]
fn a_read_counts_although_versions_went_back() {
    // A server that was restored, or keeps its objects in memory and was started again.
    let mut table = Table::leading().after(2);
    assert!(matches!(table.step(), Some(Command::Replace(_))));
    let sent = table.now;
    table.candidate.wrote(sent, Err(Failure::Conflict), table.now);
    let mut table = table.after(1);
    assert_eq!(table.step(), Some(Command::Read));
    table.candidate.read(Ok(Some(lease("other", 1, 2))), table.now);
    assert_eq!((table.leads(), table.leader()), (None, Some("other".into())));
    let mut table = table.after(15);
    let Some(Command::Replace(taken)) = table.step() else { panic!("it is not taken") };
    assert_eq!(taken.metadata.resource_version.as_deref(), Some("2"));
    assert_eq!(taken.spec.unwrap().lease_transitions, Some(7), "numbers only grow");
}

#[test]
fn a_read_that_was_overtaken_by_a_write_does_not_count() {
    let mut table = Table::leading();
    table.candidate.refresh();
    assert_eq!(table.step(), Some(Command::Read));
    table.candidate.saw(Some(renewed_by_me(9)), table.now);
    table.candidate.read(Ok(Some(renewed_by_me(8))), table.now);
    let mut table = table.after(2);
    let Some(Command::Replace(renewal)) = table.step() else { panic!("it is not renewed") };
    assert_eq!(renewal.metadata.resource_version.as_deref(), Some("9"));
}

/// Whoever may write the Lease may write any number of transitions into it. The number of terms then begins anew, and nobody stays
/// without a leader.
#[test]
fn the_largest_count_of_terms_stops_nobody() {
    let mut table = Table::new();
    let (mut version, mut terms) = (3, Vec::new());
    for _ in 0..4 {
        version += 1;
        table.candidate.saw(Some(lease("", i32::MAX, version)), table.now);
        terms.push(table.leads_next(&mut version));
        // The next term is for a Lease that was deleted.
        version += 1;
        table.candidate.deleted(&lease("me", 0, version), table.now);
        terms.push(table.leads_next(&mut version));
    }
    assert!(terms.is_sorted_by(|before, after| before < after), "{terms:?}");
    assert!(terms[7] < i32::MAX as u64 / 2, "there is room for more: {terms:?}");
}

#[test]
fn without_a_watch_the_lease_is_read_again_and_again() {
    let mut table = Table::following("other");
    table.candidate.watching(false);
    assert_eq!(table.step(), None);
    let mut table = table.after(2);
    assert_eq!(table.step(), Some(Command::Read));
    table.candidate.read(Err(Failure::Other), table.now);
    assert_eq!(table.step(), None);
    assert_eq!(table.after(2).step(), Some(Command::Read));
}

#[test]
fn a_release_is_written_as_client_go_writes_it() {
    let mut table = Table::leading();
    let released = table.candidate.release(Timestamp::UNIX_EPOCH).unwrap();
    let spec = released.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some(""), Some(1)));
    assert_eq!((spec.lease_transitions, released.metadata.resource_version.as_deref()), (Some(6), Some("7")));
    assert_eq!(table.leads(), None);
    assert!(Table::following("other").candidate.release(Timestamp::UNIX_EPOCH).is_none());
}

/// Whoever may write the Lease may write any time into it.
#[test]
fn the_largest_time_of_a_renewal_does_no_harm() {
    let mut table = Table::following("other");
    let mut last = lease("other", 5, 4);
    last.spec.as_mut().unwrap().renew_time = Some(Timestamp::MAX.into());
    table.candidate.saw(Some(last), table.now);
    let mut table = table.after(16);
    assert!(matches!(table.step(), Some(Command::Replace(_))), "it is taken");
}

/// A process that leads elsewhere leaves a Lease to others for a moment after it became free, however it did.
#[test]
fn a_free_lease_is_left_to_others_first() {
    let half = SECOND / 2;
    let check = |mut table: Table, name: &str| {
        table.candidate.defer(half);
        assert_eq!(table.step(), None, "{name}: at once");
        assert_eq!(table.candidate.next(table.now), Some(table.now + half), "{name}");
        table.now += half;
        assert!(matches!(table.step(), Some(Command::Create(_) | Command::Replace(_))), "{name}: it is not taken");
    };
    check(Table::following(""), "released");
    check(Table::following("other").after(15), "not renewed");
    let mut missing = Table::new();
    assert_eq!(missing.step(), Some(Command::Read));
    missing.candidate.read(Ok(None), missing.now);
    check(missing, "missing");
    // Whoever leads does not wait with renewals.
    let mut leading = Table::leading().after(2);
    leading.candidate.defer(half);
    assert!(matches!(leading.step(), Some(Command::Replace(_))));
}
