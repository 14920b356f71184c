//! What keeps a controller from acting faster than it observes. In: an owner, its selector, and what it wants to create.
//! Out: the created object, or why there is none. A controller counts what its owner controls and selects. What it creates
//! and does not select is never counted, and it would create more of it without end. So nothing is created
//!
//! ```text
//! that the selector does not match       refused before anything is written, until the owner changes
//! for an owner that is gone or going     the cache says so before each write; before an owner that was worked on
//!                                        before gets something new, the server is asked as well
//! after the server changed its labels    what was created is deleted again, and the owner has to wait
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

use crate::desk::Desk;
use crate::meta::{Meta, Texts};
use crate::requests::DeleteOptions;

/// How long nothing is created for an owner after the server gave what was created labels that the owner does not select.
/// Whatever changes the labels (an admission webhook) is changed by a person, so a minute is soon enough.
const PAUSE: Duration = Duration::from_secs(60);

/// What became of an object that was to be created.
#[derive(Debug)]
pub(crate) enum Made {
    /// It is there.
    Yes(Value),
    /// Its owner or its namespace is gone or going.
    NotNeeded,
}

/// Creates objects for the owners of one controller.
pub(crate) struct Guard {
    desk: Desk,
    owner_api: ApiResource,
    owners: Cache,
    /// Owners for which nothing is created for a while. Most have none, and what is over goes with the next entry.
    paused: Mutex<HashMap<ObjectKey, Pause>>,
}

/// A pause is for one owner as it is: when that changes, the next try is made at once.
struct Pause {
    uid: String,
    generation: i64,
    until: Timestamp,
}

impl Guard {
    /// The guard of a controller whose owners are of this kind and in this cache.
    pub fn new(desk: &Desk, owner_api: ApiResource, owners: Cache) -> Self {
        Self { desk: desk.clone(), owner_api, owners, paused: Mutex::default() }
    }

    /// Refuses an owner that would not select what is made from its template, and tells so.
    pub fn check(
        &self,
        owner: &Meta,
        selector: &LabelSelector,
        template: &Value,
        subject: &Arc<Subject>,
    ) -> Result<()> {
        if !selects(selector, &template["metadata"]["labels"]) {
            let why = format!(
                "the selector does not match the labels of the template, so nothing is created: no pod would count as a \
                 replica; make spec.template.metadata.labels match the selector {:?}",
                selector.to_string()
            );
            self.desk.warning(subject, "SelectorMismatch", &why);
            return Err(Error::permanent(why));
        }
        match self.pause_of(owner, self.desk.now()) {
            Some(left) => {
                Err(Error::retry_after(left, "nothing is created for a while: the server changes the labels"))
            }
            None => Ok(()),
        }
    }

    /// Whether the server has the owner and it stays. The cache may not know yet that it is gone.
    pub async fn is_wanted(&self, owner: &Meta) -> Result<bool> {
        if !self.is_there(owner) {
            return Ok(false);
        }
        let fresh = self.desk.writer.get(&self.owner_api, &owner.key()).await?;
        Ok(fresh.is_some_and(|fresh| {
            fresh["metadata"]["uid"] == owner.uid.as_str() && fresh["metadata"]["deletionTimestamp"].is_null()
        }))
    }

    /// Creates an object for an owner, which selects it.
    pub async fn create(
        &self,
        owner: &Meta,
        selector: &LabelSelector,
        api: &ApiResource,
        object: &Value,
    ) -> Result<Made> {
        if !self.is_there(owner) {
            return Ok(Made::NotNeeded);
        }
        let made = match self.desk.create(api, object).await {
            Ok(made) => made,
            Err(error) if error.is_of_ending_namespace() => return Ok(Made::NotNeeded),
            Err(error) => return Err(error.into()),
        };
        if selects(selector, &made["metadata"]["labels"]) {
            return Ok(Made::Yes(made));
        }
        // First the pause: that it goes wakes the owner.
        self.pause(owner, self.desk.now());
        let meta: Meta = serde_json::from_value(made["metadata"].clone())?;
        let options = DeleteOptions { uid: &meta.uid, ..DeleteOptions::default() };
        self.desk.delete(api, &meta.key(), &options).await?;
        let (kind, name) = (&api.kind, &meta.name);
        let why = format!(
            "the server gave {kind} {name} labels that the selector does not match, so it is deleted again; look for an \
             admission webhook that changes labels"
        );
        Err(Error::retry_after(PAUSE, why))
    }

    /// Whether the cache has the owner and it stays.
    fn is_there(&self, owner: &Meta) -> bool {
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

/// Whether labels are selected by a selector that selects something in particular.
fn selects(selector: &LabelSelector, labels: &Value) -> bool {
    let labels: Texts = serde_json::from_value(labels.clone()).unwrap_or_default();
    !selector.is_everything() && selector.matches(&labels)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_selected_in_particular_counts() {
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
