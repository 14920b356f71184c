//! What becomes of an object that has owners. In: its finalizers, how each of its owners stands, and what depends on it.
//! Out: leave it, let it forget some owners, or delete it. Pure.

use crate::meta::Meta;

/// Set on what goes after what depends on it.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Set on what goes and leaves what depends on it.
pub(super) const ORPHAN: &str = "orphan";

/// How an owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is there and stays, or nobody can tell.
    Solid,
    /// It is gone.
    Gone,
    /// It goes, and waits for what depends on it.
    Waits,
}

/// What depends on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dependents {
    None,
    Some,
    /// One of them waits in turn for what depends on it: who waits for whom may be a circle.
    Waiting,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It has an owner, or needs none.
    Leave,
    /// It has an owner that stays; those of these uids are gone or going.
    Forget(Vec<String>),
    /// Nobody owns it any more. `unblock` says that it must not hold up its owners, or a circle would never end.
    Delete { propagation: &'static str, unblock: bool },
}

/// Decides about an object that is not going by itself. `standings` are those of its owners, in their order.
pub(super) fn decide(meta: &Meta, standings: &[Standing], dependents: Dependents) -> Decision {
    if standings.is_empty() {
        return Decision::Leave;
    }
    let uids = || {
        let owners = meta.owner_references.iter().zip(standings);
        let lost = owners.filter(|(_, standing)| **standing != Standing::Solid);
        lost.map(|(owner, _)| owner.uid.clone()).collect::<Vec<_>>()
    };
    if standings.contains(&Standing::Solid) {
        let lost = uids();
        return if lost.is_empty() { Decision::Leave } else { Decision::Forget(lost) };
    }
    if standings.contains(&Standing::Waits) && dependents != Dependents::None {
        return Decision::Delete { propagation: "Foreground", unblock: dependents == Dependents::Waiting };
    }
    // What was asked of it before it lost its owners still counts.
    let has = |finalizer: &str| meta.finalizers.iter().any(|there| there == finalizer);
    let propagation = match (has(ORPHAN), has(FOREGROUND)) {
        (true, _) => "Orphan",
        (_, true) => "Foreground",
        _ => "Background",
    };
    Decision::Delete { propagation, unblock: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::OwnerReference;

    #[test]
    fn owners_decide() {
        use Standing::{Gone, Solid, Waits};
        let check = |finalizers: &[&str], standings: &[Standing], dependents: Dependents, expect: Decision| {
            let owner = |at: usize| OwnerReference { uid: format!("o{at}"), ..OwnerReference::default() };
            let meta = Meta {
                finalizers: finalizers.iter().map(|text| text.to_string()).collect(),
                owner_references: (0..standings.len()).map(owner).collect(),
                ..Meta::default()
            };
            assert_eq!(decide(&meta, standings, dependents), expect, "{finalizers:?} {standings:?} {dependents:?}");
        };
        let delete = |propagation| Decision::Delete { propagation, unblock: false };
        check(&[], &[], Dependents::None, Decision::Leave);
        check(&[], &[Solid], Dependents::None, Decision::Leave);
        check(&[], &[Solid, Gone], Dependents::None, Decision::Forget(vec!["o1".into()]));
        check(&[], &[Waits, Solid], Dependents::Some, Decision::Forget(vec!["o0".into()]));
        check(&[], &[Gone], Dependents::None, delete("Background"));
        check(&[], &[Gone, Gone], Dependents::Some, delete("Background"));
        check(&["orphan"], &[Gone], Dependents::None, delete("Orphan"));
        check(&["foregroundDeletion"], &[Gone], Dependents::None, delete("Foreground"));
        check(&[], &[Waits], Dependents::None, delete("Background"));
        check(&[], &[Waits], Dependents::Some, delete("Foreground"));
        let unblock = Decision::Delete { propagation: "Foreground", unblock: true };
        check(&[], &[Waits, Gone], Dependents::Waiting, unblock);
    }
}
