//! What the second run of the plugins that change objects has to know of the first one. When a policy or a webhook has changed the
//! object, all these plugins run again; then only policies and webhooks whose reinvocation policy is `IfNeeded` are asked again,
//! and only if something changed after them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::policy::PolicyKey;

/// The state of both runs.
#[derive(Default)]
pub(crate) struct Reinvocation {
    /// Whether the plugins have to run again.
    pub needed: bool,
    /// Whether this is the second run.
    pub begun: bool,
    pub policies: Invoked<PolicyKey>,
    /// By configuration, name and place.
    pub webhooks: Invoked<String>,
}

/// What one plugin has asked.
pub(crate) struct Invoked<K> {
    /// What was asked, and is again if something changes after it.
    asked: BTreeSet<K>,
    /// What is asked in the second run.
    again: BTreeSet<K>,
    /// The object after the first run of the plugin.
    output: Option<Value>,
}

impl<K> Default for Invoked<K> {
    fn default() -> Self {
        Self { asked: BTreeSet::new(), again: BTreeSet::new(), output: None }
    }
}

impl<K: Ord> Invoked<K> {
    /// Begins a run of the plugin with this object.
    pub(crate) fn begin(&mut self, again: bool, object: &Value) {
        if again && self.output.as_ref().is_some_and(|output| output != object) {
            self.changed();
        }
    }

    /// The object has changed after all that were asked so far.
    pub(crate) fn changed(&mut self) {
        self.again.append(&mut self.asked);
    }

    pub(crate) fn invoked(&mut self, key: K) {
        self.asked.insert(key);
    }

    /// Whether the second run asks this one.
    pub(crate) fn is_due(&self, key: &K) -> bool {
        self.again.contains(key)
    }

    pub(crate) fn end(&mut self, object: &Value) {
        self.output = Some(object.clone());
    }
}
