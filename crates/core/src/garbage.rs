//! The decisions of garbage collection. In: the fields of an object's metadata about its deletion and its owners, the state
//! of those owners, and the object's dependents. Out: what to do with the object. Pure: the API server's own collector and
//! the garbage collector of the control plane use the same decisions, and differ only in where they read and write.
//!
//! ```text
//! an object with owners            is kept while one of them exists, and loses the references to absent or waiting owners;
//!                                  is deleted when none is left
//! deleted with foregroundDeletion  is removed after all dependents that block it
//! deleted with orphan              is removed after its dependents have lost their reference to it
//! ```

use serde::{Deserialize, Deserializer};

/// The finalizer of an object that is deleted in the foreground: its dependents are deleted first.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// The finalizer of an object whose dependents are orphaned before it is deleted.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// The entry in a namespace's `spec.finalizers` for its content. The namespace controller removes this entry and no other,
/// when the namespace is empty.
pub const NAMESPACE_CONTENT_FINALIZER: &str = "kubernetes";

/// What happens to the dependents of a deleted object: the propagation policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after the object.
    Background,
    /// They are deleted before the object.
    Foreground,
    /// They are kept, without the reference to the object.
    Orphan,
}

impl Propagation {
    /// The value of `propagationPolicy` in `DeleteOptions`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// One owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// The group and version of its kind.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid: another object of the same name is not the owner.
    pub uid: String,
    /// Whether the owner, deleted in the foreground, waits for this object.
    #[serde(deserialize_with = "or_default")]
    pub block_owner_deletion: bool,
}

/// What garbage collection reads of an object's metadata.
///
/// ```
/// use konverge_core::{Deletion, Ownership};
/// let metadata = r#"{"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}"#;
/// let ownership: Ownership = serde_json::from_str(metadata).unwrap();
/// assert_eq!(ownership.deletion(), Deletion::Foreground);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ownership {
    /// The uid of the object.
    pub uid: String,
    /// Whether its deletion has begun.
    #[serde(rename = "deletionTimestamp", deserialize_with = "is_set")]
    pub is_terminating: bool,
    /// Its finalizers.
    #[serde(deserialize_with = "or_default")]
    pub finalizers: Vec<String>,
    /// Its owners.
    #[serde(rename = "ownerReferences", deserialize_with = "or_default")]
    pub owners: Vec<OwnerReference>,
}

/// Whether and how an object is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It is not being deleted.
    None,
    /// It is being deleted, and does not wait for garbage collection.
    Terminating,
    /// It is deleted in the foreground: after its dependents.
    Foreground,
    /// It is deleted after its dependents have lost their reference to it.
    Orphan,
}

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// It exists and keeps its dependents, or its state cannot be known.
    Present,
    /// It does not exist.
    Absent,
    /// It is deleted in the foreground, and waits for its dependents.
    Waiting,
}

/// The dependents of an object, as far as decisions need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    /// There are none.
    None,
    /// There are some.
    Some,
    /// One of them waits for its own dependents, so the references may be a cycle.
    Waiting,
}

/// What to do with an object that is not being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: it has an existing owner, or never had one.
    Keep,
    /// Remove the references to the owners with these uids; another owner exists.
    Forget(Vec<String>),
    /// Delete it: no owner is left.
    Delete {
        /// The propagation policy of the delete.
        propagation: Propagation,
        /// Whether `blockOwnerDeletion` has to be removed first, because a cycle of references would never end.
        unblock: bool,
    },
}

/// Which objects have to be processed because an object has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// The object itself.
    pub itself: bool,
    /// Owners that may wait for it.
    pub owners: Vec<OwnerReference>,
    /// Its dependents.
    pub dependents: bool,
}

impl Ownership {
    /// Whether and how it is being deleted.
    pub fn deletion(&self) -> Deletion {
        let has = |finalizer: &str| self.finalizers.iter().any(|there| there == finalizer);
        match self.is_terminating {
            false => Deletion::None,
            true if has(ORPHAN_FINALIZER) => Deletion::Orphan,
            true if has(FOREGROUND_FINALIZER) => Deletion::Foreground,
            true => Deletion::Terminating,
        }
    }

    /// Its state as an owner.
    pub fn as_owner(&self) -> OwnerState {
        match self.deletion() {
            Deletion::Foreground => OwnerState::Waiting,
            Deletion::None | Deletion::Terminating | Deletion::Orphan => OwnerState::Present,
        }
    }

    /// Whether an owner that is deleted in the foreground has to wait for this object.
    pub fn blocks(&self, owner_uid: &str) -> bool {
        self.owners.iter().any(|owner| owner.uid == owner_uid && owner.block_owner_deletion)
    }

    /// Whether an object that is deleted in the foreground may be removed: none of its dependents blocks it. As long as one
    /// does, the dependents that are not being deleted have to be processed, because their owner has begun to wait.
    pub fn may_be_removed<'o>(&self, dependents: impl IntoIterator<Item = &'o Ownership>) -> bool {
        !dependents.into_iter().any(|dependent| dependent.blocks(&self.uid))
    }

    /// Decides about an object that is not being deleted. `owners` has the state of each owner, in the order of the references.
    pub fn decide(&self, owners: &[OwnerState], dependents: Dependents) -> Decision {
        if owners.is_empty() {
            return Decision::Keep;
        }
        if owners.contains(&OwnerState::Present) {
            let all = self.owners.iter().zip(owners);
            let lost: Vec<String> =
                all.filter(|(_, state)| **state != OwnerState::Present).map(|(owner, _)| owner.uid.clone()).collect();
            return if lost.is_empty() { Decision::Keep } else { Decision::Forget(lost) };
        }
        if owners.contains(&OwnerState::Waiting) && dependents != Dependents::None {
            let unblock = dependents == Dependents::Waiting;
            return Decision::Delete { propagation: Propagation::Foreground, unblock };
        }
        // A propagation policy that was requested before it lost its owners still counts.
        let has = |finalizer: &str| self.finalizers.iter().any(|there| there == finalizer);
        let propagation = match (has(ORPHAN_FINALIZER), has(FOREGROUND_FINALIZER)) {
            (true, _) => Propagation::Orphan,
            (_, true) => Propagation::Foreground,
            _ => Propagation::Background,
        };
        Decision::Delete { propagation, unblock: false }
    }
}

impl Dependents {
    /// Summarizes dependents.
    pub fn of<'o>(dependents: impl IntoIterator<Item = &'o Ownership>) -> Self {
        let mut found = Self::None;
        for dependent in dependents {
            if dependent.as_owner() == OwnerState::Waiting {
                return Self::Waiting;
            }
            found = Self::Some;
        }
        found
    }
}

impl Concerned {
    /// Which objects have to be processed because an object was created (no `before`), changed, or deleted (no `after`).
    pub fn by(before: Option<&Ownership>, after: Option<&Ownership>) -> Self {
        match (before, after) {
            (None, None) => Self::default(),
            (None, Some(after)) => {
                let itself = after.is_terminating || !after.owners.is_empty();
                Self { itself, ..Self::default() }
            }
            (Some(before), Some(after)) => {
                let lost = before.owners.iter().filter(|owner| !after.owners.contains(owner));
                Self { itself: before != after, owners: lost.cloned().collect(), dependents: false }
            }
            (Some(before), None) => Self { itself: false, owners: before.owners.clone(), dependents: true },
        }
    }
}

/// Whether a field is present, with any value.
fn is_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// A field that may be null.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str, finalizers: &[&str], terminating: bool, owners: &[(&str, bool)]) -> Ownership {
        let owner = |(uid, blocks): &(&str, bool)| OwnerReference {
            uid: (*uid).to_owned(),
            block_owner_deletion: *blocks,
            ..OwnerReference::default()
        };
        Ownership {
            uid: uid.to_owned(),
            is_terminating: terminating,
            finalizers: finalizers.iter().map(|text| (*text).to_owned()).collect(),
            owners: owners.iter().map(owner).collect(),
        }
    }

    #[test]
    fn metadata_says_what_a_deletion_asks_for() {
        let check = |metadata: &str, expect: Deletion| {
            let read: Ownership = serde_json::from_str(metadata).unwrap();
            assert_eq!(read.deletion(), expect, "{metadata}");
        };
        let going = r#""deletionTimestamp": "2026-01-01T00:00:00Z""#;
        check("{}", Deletion::None);
        check(r#"{"deletionTimestamp": null, "finalizers": null, "ownerReferences": null}"#, Deletion::None);
        check(r#"{"finalizers": ["orphan"]}"#, Deletion::None);
        check(&format!("{{{going}}}"), Deletion::Terminating);
        check(&format!(r#"{{{going}, "finalizers": ["example.com/hold"]}}"#), Deletion::Terminating);
        check(&format!(r#"{{{going}, "finalizers": ["foregroundDeletion"]}}"#), Deletion::Foreground);
        check(&format!(r#"{{{going}, "finalizers": ["foregroundDeletion", "orphan"]}}"#), Deletion::Orphan);
    }

    #[test]
    fn owners_decide() {
        use OwnerState::{Absent, Present, Waiting};
        let check = |finalizers: &[&str], owners: &[OwnerState], dependents: Dependents, expect: Decision| {
            let names: Vec<String> = (0..owners.len()).map(|at| format!("o{at}")).collect();
            let references: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), true)).collect();
            let object = object("u", finalizers, false, &references);
            assert_eq!(object.decide(owners, dependents), expect, "{finalizers:?} {owners:?} {dependents:?}");
        };
        let delete = |propagation| Decision::Delete { propagation, unblock: false };
        check(&[], &[], Dependents::None, Decision::Keep);
        check(&[], &[Present], Dependents::None, Decision::Keep);
        check(&[], &[Present, Absent], Dependents::None, Decision::Forget(vec!["o1".into()]));
        // An owner that waits would wait for ever for what another one keeps.
        check(&[], &[Waiting, Present], Dependents::None, Decision::Forget(vec!["o0".into()]));
        check(&[], &[Waiting, Present, Absent], Dependents::Some, Decision::Forget(vec!["o0".into(), "o2".into()]));
        check(&[], &[Absent], Dependents::None, delete(Propagation::Background));
        check(&[], &[Absent, Absent], Dependents::Some, delete(Propagation::Background));
        check(&["orphan"], &[Absent], Dependents::None, delete(Propagation::Orphan));
        check(&["foregroundDeletion"], &[Absent], Dependents::None, delete(Propagation::Foreground));
        check(&[], &[Waiting], Dependents::None, delete(Propagation::Background));
        check(&[], &[Waiting], Dependents::Some, delete(Propagation::Foreground));
        let unblock = Decision::Delete { propagation: Propagation::Foreground, unblock: true };
        check(&[], &[Waiting, Absent], Dependents::Waiting, unblock);
    }

    #[test]
    fn an_owner_waits_for_those_that_block_it() {
        let check = |dependents: &[Ownership], expect: (bool, Dependents)| {
            let me = object("me", &["foregroundDeletion"], true, &[]);
            assert_eq!((me.may_be_removed(dependents), Dependents::of(dependents)), expect, "{dependents:?}");
        };
        let waits = object("w", &["foregroundDeletion"], true, &[("me", false)]);
        check(&[], (true, Dependents::None));
        check(&[object("a", &[], false, &[("me", false)])], (true, Dependents::Some));
        check(&[object("a", &[], false, &[("other", true), ("me", false)])], (true, Dependents::Some));
        check(&[object("a", &[], false, &[("me", true)])], (false, Dependents::Some));
        check(&[object("a", &[], true, &[("me", true)])], (false, Dependents::Some));
        check(&[object("a", &[], false, &[("me", true)]), waits.clone()], (false, Dependents::Waiting));
        check(&[waits], (true, Dependents::Waiting));
    }

    #[test]
    fn changes_concern_those_that_wait_for_them() {
        let check = |before: Option<Ownership>, after: Option<Ownership>, expect: (bool, &[&str], bool)| {
            let got = Concerned::by(before.as_ref(), after.as_ref());
            let owners: Vec<&str> = got.owners.iter().map(|owner| owner.uid.as_str()).collect();
            assert_eq!((got.itself, owners.as_slice(), got.dependents), expect, "{before:?} {after:?}");
        };
        let plain = || object("u", &[], false, &[]);
        let owned = |owners: &[(&str, bool)]| object("u", &[], false, owners);
        check(None, Some(plain()), (false, &[], false));
        check(None, Some(owned(&[("o", true)])), (true, &[], false));
        check(None, Some(object("u", &[], true, &[])), (true, &[], false));
        check(Some(plain()), Some(plain()), (false, &[], false));
        // An update that adds an owner, which may be gone already.
        check(Some(plain()), Some(owned(&[("o", true)])), (true, &[], false));
        // An update that takes an owner away, or no longer blocks it: the owner may have waited.
        check(Some(owned(&[("o", true), ("p", true)])), Some(owned(&[("p", true)])), (true, &["o"], false));
        check(Some(owned(&[("o", true)])), Some(owned(&[("o", false)])), (true, &["o"], false));
        check(Some(plain()), Some(object("u", &["orphan"], true, &[])), (true, &[], false));
        check(Some(owned(&[("o", false)])), None, (false, &["o"], true));
    }
}
