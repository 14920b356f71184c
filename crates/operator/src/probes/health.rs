//! Named checks, and whether all pass. In: the checks of the operator's parts. Out: the answers of the liveness and readiness
//! probes, in the format of the API server's own. A check never waits.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

/// The checks of an operator. Cheap to clone; all clones are the same.
///
/// ```
/// use konverge::Health;
///
/// let health = Health::new();
/// let cache = health.readiness("cache-webapps");
/// assert!(!health.is_ready());
/// cache.pass();
/// assert!(health.is_ready());
/// ```
#[derive(Clone, Default)]
pub struct Health(Arc<Checks>);

#[derive(Default)]
struct Checks {
    live: RwLock<BTreeMap<String, Check>>,
    ready: RwLock<BTreeMap<String, Check>>,
}

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |probe| self.checks(probe).read().keys().cloned().collect::<Vec<_>>();
        f.debug_struct("Health").field("live", &names(Probe::Live)).field("ready", &names(Probe::Ready)).finish()
    }
}

/// Which question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Live,
    Ready,
}

impl Health {
    /// No checks: alive and ready.
    pub fn new() -> Health {
        Health::default()
    }

    /// Adds a liveness check: while it fails, Kubernetes restarts the Pod. It passes until [`HealthCheck::fail`] is called.
    pub fn liveness(&self, name: &str) -> HealthCheck {
        self.register(Probe::Live, name, Ok(()))
    }

    /// Adds a readiness check: while it fails, the operator is not ready. It fails until [`HealthCheck::pass`] is called.
    pub fn readiness(&self, name: &str) -> HealthCheck {
        self.register(Probe::Ready, name, Err("not yet".into()))
    }

    /// Adds a liveness check that is computed for each probe. It has to return at once; the probe shows the reason of a failure.
    pub fn liveness_from(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks(Probe::Live).write().insert(name.into(), Arc::new(check));
    }

    /// Adds a readiness check that is computed for each probe. It has to return at once; the probe shows the reason of a failure.
    pub fn readiness_from(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks(Probe::Ready).write().insert(name.into(), Arc::new(check));
    }

    /// Whether all checks of liveness pass.
    pub fn is_live(&self) -> bool {
        self.answer(Probe::Live, "", "", "").passed
    }

    /// Whether all checks of readiness pass.
    pub fn is_ready(&self) -> bool {
        self.answer(Probe::Ready, "", "", "").passed
    }

    /// The liveness checks that fail now, each with its reason.
    pub fn failing_liveness(&self) -> Vec<(String, String)> {
        self.failing(Probe::Live)
    }

    /// The readiness checks that fail now, each with its reason: for a controller, which kinds it waits for and why.
    pub fn failing_readiness(&self) -> Vec<(String, String)> {
        self.failing(Probe::Ready)
    }

    fn failing(&self, probe: Probe) -> Vec<(String, String)> {
        // A copy, so that no lock is held while the checks run.
        let checks = self.checks(probe).read().clone();
        checks.into_iter().filter_map(|(name, check)| Some((name, ask(&check).err()?))).collect()
    }

    fn register(&self, probe: Probe, name: &str, state: Result<(), String>) -> HealthCheck {
        let state = Arc::new(Mutex::new(state));
        let asked = state.clone();
        self.checks(probe).write().insert(name.into(), Arc::new(move || asked.lock().clone()));
        HealthCheck(state)
    }

    fn checks(&self, probe: Probe) -> &RwLock<BTreeMap<String, Check>> {
        match probe {
            Probe::Live => &self.0.live,
            Probe::Ready => &self.0.ready,
        }
    }

    /// The answer to a probe: of all checks, or of the one that is named. `title` is what the probe is called.
    /// `?verbose` shows those that pass too, `?exclude=name` leaves one out.
    pub(super) fn answer(&self, probe: Probe, title: &str, only: &str, query: &str) -> Answer {
        // A copy, so that no lock is held while others' code runs.
        let checks = self.checks(probe).read().clone();
        if !only.is_empty() {
            return match checks.get(only) {
                None => Answer { found: false, passed: false, text: format!("there is no check {only}\n") },
                Some(check) => match ask(check) {
                    Ok(()) => Answer { found: true, passed: true, text: "ok".into() },
                    Err(why) => Answer { found: true, passed: false, text: format!("{why}\n") },
                },
            };
        }
        let excluded: Vec<&str> = query.split('&').filter_map(|pair| pair.strip_prefix("exclude=")).collect();
        let verbose = query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
        let mut passed = true;
        let mut text = String::new();
        for (name, check) in &checks {
            if excluded.contains(&name.as_str()) {
                let _ = writeln!(text, "[+]{name} excluded: ok");
                continue;
            }
            let _ = match ask(check) {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(why) => {
                    passed = false;
                    writeln!(text, "[-]{name} failed: {why}")
                }
            };
        }
        let _ = writeln!(text, "{title} check {}", if passed { "passed" } else { "failed" });
        // The kubelet shows what a failed probe said.
        Answer { found: true, passed, text: if passed && !verbose { "ok".into() } else { text } }
    }
}

/// What a probe says.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub found: bool,
    pub passed: bool,
    pub text: String,
}

fn ask(check: &Check) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| check())).unwrap_or_else(|_| Err("the check panicked".into()))
}

/// The handle of one check. The check keeps its last state when this is dropped.
#[derive(Clone, Debug)]
pub struct HealthCheck(Arc<Mutex<Result<(), String>>>);

impl HealthCheck {
    /// The check passes from now on.
    pub fn pass(&self) {
        *self.0.lock() = Ok(());
    }

    /// The check fails from now on, for this reason. Everybody who can reach the probe can read the reason.
    pub fn fail(&self, why: impl Into<String>) {
        *self.0.lock() = Err(why.into());
    }
}
