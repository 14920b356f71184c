//! Named checks, and whether all pass. In: what parts of the operator say of themselves. Out: the answers of liveness
//! and readiness, in the form that the API server's own have. A check never waits.

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

    /// A part that must work, or the Pod is to be restarted. It passes until it says otherwise.
    pub fn liveness(&self, name: &str) -> HealthCheck {
        self.register(Probe::Live, name, Ok(()))
    }

    /// A part that must be there before the operator is ready. It fails until it says otherwise.
    pub fn readiness(&self, name: &str) -> HealthCheck {
        self.register(Probe::Ready, name, Err("not yet".into()))
    }

    /// A check of liveness that is asked each time. It must answer at once; the reason is shown to whoever asks.
    pub fn liveness_from(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks(Probe::Live).write().insert(name.into(), Arc::new(check));
    }

    /// A check of readiness that is asked each time. It must answer at once; the reason is shown to whoever asks.
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

/// One check, in the hands of the part that it is about. It keeps its last word when this is dropped.
#[derive(Clone, Debug)]
pub struct HealthCheck(Arc<Mutex<Result<(), String>>>);

impl HealthCheck {
    /// All is well.
    pub fn pass(&self) {
        *self.0.lock() = Ok(());
    }

    /// It is not, and why. Whoever may ask the probe can read this.
    pub fn fail(&self, why: impl Into<String>) {
        *self.0.lock() = Err(why.into());
    }
}
