//! Health of a control plane. In: checks of its parts, and controllers that ended by themselves. Out: one line for each
//! check that fails now. Never acts: [`control_plane`](crate::control_plane) restarts controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Checks one part; the error says what is wrong.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The health of a control plane. Clones share the same checks.
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<Parts>>);

#[derive(Default)]
struct Parts {
    /// The checks of each controller.
    checks: BTreeMap<&'static str, Vec<Check>>,
    /// Controllers that ended and are not restarted yet, with the reason.
    stopped: BTreeMap<&'static str, String>,
}

impl Health {
    /// The failing checks, as kube-apiserver's health endpoints print them; empty while everything works.
    pub fn failing(&self) -> Vec<String> {
        let parts = self.0.lock();
        let stopped = parts.stopped.iter().map(|(name, why)| format!("[-]{name} failed: {why}"));
        let checks = parts.checks.iter().flat_map(|(name, checks)| checks.iter().map(move |check| (name, check)));
        let failing = checks.filter_map(|(name, check)| check().err().map(|why| format!("[-]{name} failed: {why}")));
        stopped.chain(failing).collect()
    }

    /// A controller starts or restarts: its old checks and its failure are dropped.
    pub(crate) fn started(&self, name: &'static str) {
        let mut parts = self.0.lock();
        parts.stopped.remove(name);
        parts.checks.remove(name);
    }

    /// A controller ended although the control plane is not stopping.
    pub(crate) fn stopped(&self, name: &'static str, why: String) {
        self.0.lock().stopped.insert(name, why);
    }

    /// Adds a check of a part of a controller.
    pub(crate) fn add_check(&self, name: &'static str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.0.lock().checks.entry(name).or_default().push(Box::new(check));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_failing_check_is_reported_until_it_passes() {
        let health = Health::default();
        let is_failing = Arc::new(AtomicBool::new(false));
        let checked = is_failing.clone();
        health.started("job-controller");
        health.add_check("job-controller", move || match checked.load(Ordering::Relaxed) {
            true => Err("a worker is dead".to_owned()),
            false => Ok(()),
        });
        assert!(health.failing().is_empty());
        is_failing.store(true, Ordering::Relaxed);
        assert_eq!(health.failing(), ["[-]job-controller failed: a worker is dead"]);
        health.stopped("job-controller", "it panicked".to_owned());
        assert_eq!(health.failing().len(), 2);
        health.started("job-controller");
        assert!(health.failing().is_empty(), "a restarted controller has its own checks");
    }
}
