//! How the parts of a control plane are doing. In: a check of each part, and the controllers that ended by themselves. Out:
//! what is wrong now, in a line each. Never acts: [`plane`](crate::plane) starts again what has ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Asks one part how it is doing; the text says what is wrong.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// How the parts of a control plane are doing. Clones are the same.
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<Parts>>);

#[derive(Default)]
struct Parts {
    /// What each controller is made of.
    checks: BTreeMap<&'static str, Vec<Check>>,
    /// Controllers that ended and do not run again yet, and why.
    ended: BTreeMap<&'static str, String>,
}

impl Health {
    /// What is wrong now; nothing while all is well.
    pub fn ailing(&self) -> Vec<String> {
        let parts = self.0.lock();
        let ended = parts.ended.iter().map(|(name, why)| format!("[-]{name} failed: {why}"));
        let checks = parts.checks.iter().flat_map(|(name, checks)| checks.iter().map(move |check| (name, check)));
        let sick = checks.filter_map(|(name, check)| check().err().map(|why| format!("[-]{name} failed: {why}")));
        ended.chain(sick).collect()
    }

    /// A controller begins, perhaps not for the first time.
    pub(crate) fn began(&self, name: &'static str) {
        let mut parts = self.0.lock();
        parts.ended.remove(name);
        parts.checks.remove(name);
    }

    /// A controller ended although nobody told it to.
    pub(crate) fn ended(&self, name: &'static str, why: String) {
        self.0.lock().ended.insert(name, why);
    }

    /// Asks from now on a part of a controller.
    pub(crate) fn ask(&self, name: &'static str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.0.lock().checks.entry(name).or_default().push(Box::new(check));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_is_wrong_is_said_until_it_is_right() {
        let health = Health::default();
        let sick = Arc::new(AtomicBool::new(false));
        let told = sick.clone();
        health.began("job-controller");
        health.ask("job-controller", move || match told.load(Ordering::Relaxed) {
            true => Err("a worker is dead".to_owned()),
            false => Ok(()),
        });
        assert!(health.ailing().is_empty());
        sick.store(true, Ordering::Relaxed);
        assert_eq!(health.ailing(), ["[-]job-controller failed: a worker is dead"]);
        health.ended("job-controller", "it panicked".to_owned());
        assert_eq!(health.ailing().len(), 2);
        health.began("job-controller");
        assert!(health.ailing().is_empty(), "one that begins anew has parts of its own");
    }
}
