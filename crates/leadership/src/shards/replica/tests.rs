//! One replica, step by step.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A server that stores Leases, and one replica called `me` whose watch brings everything at once.
struct Table {
    replica: Replica,
    leases: BTreeMap<String, Lease>,
    version: u64,
    began: Instant,
    now: Instant,
    group: Group,
    drained: Vec<usize>,
}

impl Table {
    /// A group of this many shards with these other replicas, which have joined and hold these shards.
    fn new(count: usize, others: &[(&str, &[usize])]) -> Self {
        let group = Group { name: "web".into(), count };
        let replica = Replica::new(group.clone(), "me".into(), LeaseTiming::default());
        let (leases, now) = (BTreeMap::new(), Instant::now());
        let mut table = Self { replica, leases, version: 0, began: now, now, group, drained: Vec::new() };
        for (name, shards) in others {
            table.store(table.renewed(name));
            let it = Membership { identity: (*name).into(), number: 0 };
            table.store(table.group.counted(None, "somebody", Timestamp::UNIX_EPOCH));
            for shard in *shards {
                table.store(table.group.acquired(None, *shard, &it, Timestamp::UNIX_EPOCH));
            }
        }
        let all = table.leases.values().cloned().collect();
        table.replica.listed(all, now);
        table
    }

    /// The Lease of another replica, just renewed.
    fn renewed(&self, identity: &str) -> Lease {
        let mut lease = self.group.replica(Lease::default(), identity, true, None);
        let spec = lease.spec.get_or_insert_default();
        (spec.holder_identity, spec.lease_transitions) = (Some(identity.to_owned()), Some(0));
        spec.lease_duration_seconds = Some(15);
        spec.renew_time = Some(Timestamp::from_second(self.version as i64).unwrap().into());
        lease
    }

    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.leases.insert(name_of(&lease).to_owned(), lease.clone());
        lease
    }

    /// Another client writes a Lease, and the watch brings it.
    fn others_write(&mut self, lease: Lease) {
        let stored = self.store(lease);
        self.replica.saw(stored, self.now);
        self.settle();
    }

    /// What the clock on the wall shows: it began with 2026.
    fn wall(&self) -> Timestamp {
        let passed = self.now.saturating_duration_since(self.began).as_secs();
        Timestamp::from_second(1_767_225_600 + passed as i64).expect("a time")
    }

    /// Carries out everything that the replica wants now.
    fn settle(&mut self) {
        while let Some(command) = self.replica.step(self.now, self.wall()) {
            match command {
                Command::Read => {
                    let own = self.leases.get(&self.replica.own_name()).cloned();
                    self.replica.read(Ok(own), self.now);
                }
                Command::Create(lease) | Command::Replace(lease) => {
                    let stored = self.store(lease);
                    self.replica.wrote(name_of(&stored), self.now, Ok(stored.clone()), self.now);
                    self.replica.saw(stored, self.now);
                }
                Command::Delete(lease) => {
                    self.leases.remove(name_of(&lease));
                    self.replica.removed(&lease, Ok(()), self.now);
                }
                Command::Drain(shard) => self.drained.push(shard),
                Command::Watch => panic!("the watch brings everything"),
            }
        }
    }

    /// Time passes, and these replicas renew their Leases.
    fn pass(&mut self, seconds: u32, renewing: &[&str]) {
        for _ in 0..seconds {
            self.now += SECOND;
            for name in renewing {
                let known = self.leases.get(&self.group.replica_name(name)).cloned();
                let lease = Lease { metadata: known.unwrap_or_default().metadata, ..self.renewed(name) };
                self.others_write(lease);
            }
            self.settle();
        }
    }

    fn holds(&self) -> Vec<usize> {
        match self.replica.deadline(self.now) {
            Some(_) => self.replica.held().map(|(shard, _)| shard).collect(),
            None => Vec::new(),
        }
    }
}

#[test]
fn a_replica_alone_takes_everything() {
    let mut table = Table::new(4, &[]);
    table.settle();
    assert_eq!(table.holds(), [0; 0], "others may be about to start");
    table.pass(2, &[]);
    assert_eq!(table.holds(), [0, 1, 2, 3]);
}

#[test]
fn a_replica_takes_its_part_of_what_is_free() {
    let mut table = Table::new(4, &[("other", &[0])]);
    table.pass(3, &["other"]);
    assert_eq!(table.holds().len(), 2, "the rest is for the other one");
}

#[test]
fn a_replica_with_too_many_drains_before_it_gives_up() {
    let mut table = Table::new(4, &[]);
    table.pass(2, &[]);
    table.others_write(table.renewed("other"));
    assert_eq!(table.drained, [0; 0], "the other one has just come");
    table.pass(2, &["other"]);
    assert_eq!((table.holds(), &*table.drained), (vec![0, 1, 2, 3], &[3][..]), "what runs may finish");
    table.replica.drained(3);
    table.settle();
    assert_eq!(table.holds(), [0, 1, 2]);
    let shard = &table.leases["web-shard-3-of-4"];
    assert_eq!(crate::lease::object::holder(shard), None, "it is for the other one now");
    table.pass(1, &["other"]);
    assert_eq!(table.drained, [3], "the next one is given up when this one is taken");
}

#[test]
fn the_shards_of_a_dead_replica_are_taken_and_not_before() {
    let mut table = Table::new(4, &[("dead", &[0, 1]), ("other", &[2, 3])]);
    table.pass(14, &["other"]);
    assert_eq!(table.holds(), [0; 0]);
    table.pass(2, &["other"]);
    assert_eq!(table.holds(), [0, 1]);
}

#[test]
fn a_replica_that_stops_releases_all_shards_with_one_write() {
    let mut table = Table::new(2, &[("other", &[0, 1])]);
    table.pass(5, &["other"]);
    let mut stopped = table.renewed("other");
    stopped.metadata = table.leases[&table.group.replica_name("other")].metadata.clone();
    table.others_write(released(&stopped));
    assert_eq!(table.holds(), [0, 1]);
}

#[test]
fn replicas_with_another_number_of_shards_wait_for_each_other() {
    let mut table = Table::new(4, &[]);
    let eight = Group { name: "web".into(), count: 8 };
    let old = |table: &Table| Lease {
        metadata: eight.replica(Lease::default(), "old", true, None).metadata,
        ..table.renewed("old")
    };
    let it = Membership { identity: "old".into(), number: 0 };
    let counted = eight.counted(None, "somebody", Timestamp::UNIX_EPOCH);
    // All of this was there before.
    for lease in [old(&table), counted, eight.acquired(None, 7, &it, Timestamp::UNIX_EPOCH)] {
        let stored = table.store(lease);
        table.replica.saw(stored, table.now);
    }
    for _ in 0..20 {
        table.others_write(old(&table));
        table.pass(1, &[]);
    }
    assert_eq!((table.holds(), table.replica.other_count()), (Vec::new(), Some(8)));
    let stopped = released(&table.leases[&eight.replica_name("old")]);
    table.others_write(stopped);
    table.pass(1, &[]);
    assert_eq!((table.holds(), table.replica.other_count()), (vec![0, 1, 2, 3], None));
    assert!(!table.leases.contains_key("web-shard-7-of-8"), "nobody needs it any more");
}

#[test]
fn a_replica_whose_lease_is_over_holds_nothing() {
    let mut table = Table::new(2, &[]);
    table.pass(2, &[]);
    assert_eq!(table.holds(), [0, 1]);
    // No answer comes any more.
    table.now += SECOND * 11;
    assert_eq!(table.holds(), [0; 0]);
    // It comes back as another run, and takes the shards in other terms.
    table.pass(4, &[]);
    assert_eq!(table.replica.held().collect::<Vec<_>>(), [(0, 1), (1, 1)]);
}

#[test]
fn a_watch_that_falls_silent_is_begun_anew() {
    let mut table = Table::new(1, &[]);
    table.pass(2, &[]);
    for _ in 0..20 {
        table.now += SECOND;
        match table.replica.step(table.now, Timestamp::UNIX_EPOCH) {
            Some(Command::Replace(lease)) => {
                let stored = table.store(lease);
                table.replica.wrote(name_of(&stored), table.now, Ok(stored.clone()), table.now);
            }
            Some(Command::Watch) => return assert_eq!(table.holds(), [0], "what it holds stays"),
            other => assert_eq!(other, None),
        }
    }
    panic!("nobody noticed");
}

/// Whoever may write the Leases may write any number of transitions into them.
#[test]
fn the_largest_count_of_terms_stops_no_shard() {
    let mut table = Table::new(2, &[]);
    table.pass(2, &[]);
    let mut terms: Vec<u64> = table.replica.held().map(|(_, number)| number).collect();
    for name in [table.group.shard_name(1), table.replica.own_name()] {
        for is_deleted in [false, true] {
            let mut lease = table.leases[&name].clone();
            let spec = lease.spec.get_or_insert_default();
            (spec.holder_identity, spec.lease_transitions) = (Some(String::new()), Some(i32::MAX));
            table.others_write(lease.clone());
            if is_deleted {
                table.version += 1;
                lease.metadata.resource_version = Some(table.version.to_string());
                table.leases.remove(&name);
                table.replica.deleted(&lease, table.now);
            }
            table.pass(20, &[]);
            assert_eq!(table.holds(), [0, 1], "{name} {is_deleted}");
            terms.push(table.replica.held().find(|(shard, _)| *shard == 1).expect("it is held").1);
        }
    }
    assert!(terms[1..].is_sorted_by(|before, after| before < after), "{terms:?}");
}
