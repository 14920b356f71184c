//! Who takes which shard, and who gives one up. In: how many shards each replica holds, and which are free. Out: a plan that is the
//! same on every replica that sees the same. Pure. When no two replicas differ by more than one shard, nothing moves.

/// A replica that takes shards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Load<'a> {
    /// How many it holds.
    pub held: usize,
    pub identity: &'a str,
    /// Whether shards may be moved to it. One that has just come may not have seen that it is counted.
    pub is_settled: bool,
}

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan<'a> {
    /// Which free shard is for whom.
    pub takes: Vec<(usize, &'a str)>,
    /// Who gives up a shard, once for each shard.
    pub gives: Vec<&'a str>,
}

/// Free shards are for those who have the fewest. Then whoever has at least two more than another gives one up for it.
pub(super) fn plan<'a>(mut loads: Vec<Load<'a>>, free: &[usize]) -> Plan<'a> {
    let mut plan = Plan::default();
    for shard in free {
        let Some(least) = loads.iter_mut().min() else { return plan };
        least.held += 1;
        plan.takes.push((*shard, least.identity));
    }
    loop {
        let (Some(least), Some(most)) = (loads.iter().min(), loads.iter().max()) else { return plan };
        if most.held < least.held + 2 || !least.is_settled {
            return plan;
        }
        let (least, most) = (least.identity, most.identity);
        plan.gives.push(most);
        for load in &mut loads {
            load.held += usize::from(load.identity == least);
            load.held -= usize::from(load.identity == most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(loads: &[(&'static str, usize)], free: &[usize], takes: &[(usize, &'static str)], gives: &[&'static str]) {
        let load = |(identity, held): &(&'static str, usize)| Load { held: *held, identity, is_settled: true };
        let planned = plan(loads.iter().map(load).collect(), free);
        assert_eq!((planned.takes, planned.gives), (takes.to_vec(), gives.to_vec()), "{loads:?} {free:?}");
    }

    #[test]
    fn nobody_has_two_more_than_another() {
        check(&[], &[0, 1], &[], &[]);
        check(&[("a", 0)], &[0, 1], &[(0, "a"), (1, "a")], &[]);
        check(&[("a", 0), ("b", 0)], &[0, 1, 2], &[(0, "a"), (1, "b"), (2, "a")], &[]);
        // Whoever has less is first.
        check(&[("a", 3), ("b", 2), ("c", 0)], &[5], &[(5, "c")], &["a"]);
        check(&[("a", 4), ("b", 4), ("c", 0)], &[], &[], &["b", "a"]);
        check(&[("a", 8), ("b", 0)], &[], &[], &["a", "a", "a", "a"]);
        // A difference of one stays, whoever has it.
        check(&[("a", 2), ("b", 3), ("c", 3)], &[], &[], &[]);
        check(&[("a", 1), ("b", 0), ("c", 0)], &[], &[], &[]);
    }

    #[test]
    fn shards_are_not_moved_to_who_has_just_come() {
        let load = |identity, held, is_settled| Load { held, identity, is_settled };
        let planned = plan(vec![load("a", 8, true), load("b", 0, false)], &[]);
        assert_eq!(planned, Plan::default());
        let planned = plan(vec![load("a", 8, true), load("b", 0, false)], &[7]);
        assert_eq!(planned.takes, [(7, "b")]);
    }
}
