//! A set of children: all that is wanted is applied, what is no longer wanted goes. In: the wanted children and those
//! that are there. Out: what was done. Never deletes before everything wanted is applied, and never what is not marked
//! as a member of just this set of just this owner.

use std::collections::BTreeSet;
use std::sync::Arc;

use konverge_core::ObjectKey;
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::config::key_of;
use super::finalizer::is_deleting;
use super::{Adopt, Applied, ApplyOptions, Deleted, Owner, Writer};
use crate::error::{FieldErrors, WriteError};
use crate::object::Object;

/// The label that names the set.
pub const SET_LABEL: &str = "konverge.dev/set";

/// The label with the owner's uid, for children that cannot refer to their owner.
pub const OWNER_LABEL: &str = "konverge.dev/owner-uid";

/// A child that is wanted.
#[derive(Clone, Debug)]
pub struct Child {
    /// Its kind.
    pub api: ApiResource,
    /// What to apply.
    pub config: Value,
    /// The child as the cache has it.
    pub live: Option<Arc<Object>>,
}

/// A child that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its kind.
    pub api: ApiResource,
    /// The child as the cache has it.
    pub live: Value,
}

/// One child of a set, and what became of it.
#[derive(Clone, Copy, Debug)]
pub enum SetStep<'a> {
    /// It was wanted.
    Applied(&'a ApiResource, &'a Applied),
    /// It was no longer wanted.
    Pruned(&'a Member, &'a Deleted),
}

/// What was done to a set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetReport {
    /// What became of each wanted child, in their order.
    pub applied: Vec<Applied>,
    /// The children that were no longer wanted, and what became of them.
    pub pruned: Vec<(Member, Deleted)>,
}

impl Writer {
    /// Applies all `wanted` children, then deletes those `members` that carry the marks of this set of this owner and
    /// are not wanted. Members are what the caller found, by the labels [`SET_LABEL`] and [`OWNER_LABEL`] or by owner;
    /// others among them are left alone. If a child cannot be applied, the others still are, and nothing is deleted.
    /// `told` hears of each child as soon as the server has answered, whatever becomes of the others.
    pub async fn apply_all(
        &self,
        set: &str,
        owner: &Owner,
        adopt: Adopt<'_>,
        wanted: Vec<Child>,
        members: &[Member],
        mut told: impl FnMut(SetStep<'_>) + Send,
    ) -> Result<SetReport, WriteError> {
        let mut keys = BTreeSet::new();
        for child in &wanted {
            let key = key_of(&child.config)?;
            if !keys.insert(identity(&child.api, &key)) {
                let mut errors = FieldErrors::new();
                errors.invalid("metadata.name", key.name(), format!("{} {key} is in the set twice", child.api.kind));
                return Err(WriteError::invalid(&errors));
            }
        }
        let mut report = SetReport::default();
        let mut failed = None;
        for mut child in wanted {
            mark(&mut child.config, set, owner);
            let options = ApplyOptions { owner: Some(owner), adopt, ..ApplyOptions::default() };
            match self.apply(&child.api, child.live.as_deref(), &child.config, options).await {
                Ok(applied) => {
                    told(SetStep::Applied(&child.api, &applied));
                    report.applied.push(applied);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        for member in unwanted(set, owner, &keys, members) {
            let deleted = self.delete(&member.api, &member.live).await?;
            told(SetStep::Pruned(member, &deleted));
            if deleted != Deleted::AlreadyTerminating {
                report.pruned.push((member.clone(), deleted));
            }
        }
        Ok(report)
    }
}

/// What tells two objects apart. The version does not: it is one object in all of them.
fn identity(api: &ApiResource, key: &ObjectKey) -> (String, String, ObjectKey) {
    (api.group.clone(), api.kind.clone(), key.clone())
}

fn mark(config: &mut Value, set: &str, owner: &Owner) {
    let metadata = &mut config["metadata"];
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    metadata["labels"][SET_LABEL] = json!(set);
    metadata["labels"][OWNER_LABEL] = json!(owner.uid);
}

/// The members that are no longer wanted and not on their way out yet.
fn unwanted<'m>(
    set: &str,
    owner: &Owner,
    wanted: &BTreeSet<(String, String, ObjectKey)>,
    members: &'m [Member],
) -> Vec<&'m Member> {
    let is_unwanted = |member: &&Member| {
        let label = |name: &str| member.live.pointer("/metadata/labels").and_then(|all| all.get(name)?.as_str());
        let ours = label(SET_LABEL) == Some(set)
            && (owner.owns(&member.live) || label(OWNER_LABEL) == Some(owner.uid.as_str()));
        let known = key_of(&member.live).is_ok_and(|key| wanted.contains(&identity(&member.api, &key)));
        ours && !known && !is_deleting(&member.live)
    };
    members.iter().filter(is_unwanted).collect()
}

#[cfg(test)]
mod tests;
