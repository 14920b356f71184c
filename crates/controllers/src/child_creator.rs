//! Creates the children of an owner without runaway creation. In: an owner, its selector, and the object to create. Out: the
//! created object, or why there is none. A controller counts the objects that its owner controls and selects. A child that
//! the selector does not match is never counted, so the controller would create one after the other without end. Therefore:
//!
//! ```text
//! the selector does not match the template   an error before anything is written, until the owner changes
//! the owner is gone or being deleted         nothing is created; the cache is read before each write, and the server is
//!                                            asked before an owner gets another child
//! the server changed the child's labels      the child is deleted again, and its owner gets no more for a while
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Cache, Error, Result, Subject};
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde_json::Value;

use crate::context::ControllerContext;
use crate::controller_ref;
use crate::meta::{Meta, StringMap};
use crate::requests::DeleteOptions;

/// How long nothing is created for an owner after the server has changed the labels of a child so that the selector does not
/// match it. The cause is an admission webhook, which a person has to change, so a minute is short enough.
const PAUSE: Duration = Duration::from_secs(60);

/// The outcome of creating a child.
#[derive(Debug)]
pub(crate) enum Creation {
    /// The child as the server answered.
    Created(Value),
    /// The owner or its namespace is gone or being deleted.
    NotNeeded,
}

/// Creates children for the owners of one controller.
pub(crate) struct ChildCreator {
    ctx: ControllerContext,
    owner_api: ApiResource,
    owners: Cache,
    /// Owners for which nothing is created for a while. Most owners are never in it; each insert removes expired entries.
    paused: Mutex<HashMap<ObjectKey, Pause>>,
}

/// A pause ends early when the owner's spec changes.
struct Pause {
    uid: String,
    generation: i64,
    until: Timestamp,
}

impl ChildCreator {
    /// A creator for the owners of this kind, which are in this cache.
    pub(crate) fn new(ctx: &ControllerContext, owner_api: ApiResource, owners: Cache) -> Self {
        Self { ctx: ctx.clone(), owner_api, owners, paused: Mutex::default() }
    }

    /// Fails, and records a warning, if the selector of an owner does not match the labels of its template. Fails as well while
    /// the owner is paused.
    pub(crate) fn check(
        &self,
        owner: &Meta,
        selector: &LabelSelector,
        template: &Value,
        subject: &Arc<Subject>,
    ) -> Result<()> {
        if !selects(selector, &template["metadata"]["labels"]) {
            let why = format!(
                "the selector does not match the labels of the template, so no pod is created: it would not count as a \
                 replica; make spec.template.metadata.labels match the selector {:?}",
                selector.to_string()
            );
            self.ctx.warning(subject, "SelectorMismatch", &why);
            return Err(Error::permanent(why));
        }
        match self.pause_of(owner, self.ctx.now()) {
            Some(left) => Err(Error::retry_after(
                left,
                "no pod is created for a while, because the server changes the labels of new pods",
            )),
            None => Ok(()),
        }
    }

    /// Whether the owner exists on the server and is not being deleted. The cache may not know of a deletion yet.
    pub(crate) async fn owner_exists(&self, owner: &Meta) -> Result<bool> {
        if !self.is_cached(owner) {
            return Ok(false);
        }
        controller_ref::owner_exists(&self.ctx, &self.owner_api, owner).await
    }

    /// Creates a child of an owner.
    pub(crate) async fn create(
        &self,
        owner: &Meta,
        selector: &LabelSelector,
        api: &ApiResource,
        object: &Value,
    ) -> Result<Creation> {
        if !self.is_cached(owner) {
            return Ok(Creation::NotNeeded);
        }
        let made = match self.ctx.create(api, object).await {
            Ok(made) => made,
            Err(error) if error.is_of_ending_namespace() => return Ok(Creation::NotNeeded),
            Err(error) => return Err(error.into()),
        };
        if selects(selector, &made["metadata"]["labels"]) {
            return Ok(Creation::Created(made));
        }
        // The pause begins before the delete, because the deletion wakes the owner.
        self.pause(owner, self.ctx.now());
        let meta: Meta = serde_json::from_value(made["metadata"].clone())?;
        let options = DeleteOptions { uid: &meta.uid, ..DeleteOptions::default() };
        self.ctx.delete(api, &meta.key(), &options).await?;
        let (kind, name) = (&api.kind, &meta.name);
        let why = format!(
            "the server changed the labels of {kind} {name} so that the selector does not match it, and it is deleted again; \
             look for an admission webhook that changes labels"
        );
        Err(Error::retry_after(PAUSE, why))
    }

    /// Whether the owner is in the cache and not being deleted.
    fn is_cached(&self, owner: &Meta) -> bool {
        let there = self.owners.get(&owner.key());
        there.is_some_and(|there| there.uid() == owner.uid && !there.is_terminating())
    }

    fn pause(&self, owner: &Meta, now: Timestamp) {
        let mut paused = self.paused.lock();
        paused.retain(|_, pause| pause.until > now);
        let until = now.checked_add(PAUSE).unwrap_or(Timestamp::MAX);
        paused.insert(owner.key(), Pause { uid: owner.uid.clone(), generation: owner.generation, until });
    }

    fn pause_of(&self, owner: &Meta, now: Timestamp) -> Option<Duration> {
        let paused = self.paused.lock();
        let pause = paused.get(&owner.key())?;
        let left = Duration::try_from(pause.until.duration_since(now)).unwrap_or_default();
        let same = pause.uid == owner.uid && pause.generation == owner.generation;
        (same && !left.is_zero()).then_some(left)
    }
}

/// Whether a selector matches labels. A selector without requirements matches nothing here.
fn selects(selector: &LabelSelector, labels: &Value) -> bool {
    let labels: StringMap = serde_json::from_value(labels.clone()).unwrap_or_default();
    !selector.is_everything() && selector.matches(&labels)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_selector_matches_nothing() {
        let check = |selector: &str, labels: Value, expect: bool| {
            let selector = LabelSelector::parse(selector).unwrap();
            assert_eq!(selects(&selector, &labels), expect, "{selector} {labels}");
        };
        check("app=a", json!({"app": "a", "more": "b"}), true);
        check("app=a", json!({"app": "b"}), false);
        check("app=a", Value::Null, false);
        check("app!=a", Value::Null, true);
        check("", json!({"app": "a"}), false);
    }
}
