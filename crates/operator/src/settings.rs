//! What an operator can be told from outside. In: code, flags, environment, a file. Out: one [`Settings`] in which
//! every value is set, and where each came from. Nothing is started here, and only [`Settings::load`] looks at the
//! process.
//!
//! `table` has one row a setting: its names, its help, how it is read and shown. Everything else walks the table.

use std::path::PathBuf;
use std::time::Duration;

mod cluster;
mod error;
mod file;
mod flags;
mod load;
mod table;
mod value;

#[cfg(test)]
mod tests;

pub use cluster::ClusterError;
pub use error::{SettingsError, Source};
pub use flags::Flags;
pub use load::{Loaded, Loader};
pub use value::BindAddress;

/// Everything an operator can be told from outside; every field has a default that suits a cluster.
///
/// ```
/// use konverge::Settings;
///
/// let settings = Settings { namespaces: vec!["shop".into()], ..Settings::default() };
/// assert_eq!(settings.metrics.address.to_string(), ":8080");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What the operator is called: in its log, in events, and as the owner of the fields it applies. Two operators
    /// with one name would take each other's fields, so the name of the program is used unless told.
    pub name: String,
    /// The owner of applied fields, where it must differ from the name; see [`Settings::field_manager`].
    pub field_manager: Option<String>,
    /// The namespaces to watch; none means all.
    pub namespaces: Vec<String>,
    /// The kubeconfig files, merged as kubectl does; none means what kubectl would use, or the Pod's service account.
    pub kubeconfig: Vec<PathBuf>,
    /// The context in the kubeconfig, instead of the current one.
    pub context: Option<String>,
    /// Where metrics are served.
    pub metrics: MetricsSettings,
    /// Where liveness and readiness are answered.
    pub health: HealthSettings,
    /// What is logged, and how.
    pub logging: LoggingSettings,
    /// What holds for every controller that says nothing else.
    pub controller: ControllerSettings,
    /// How often every object is reconciled although nothing changed; `None` is never. 10 hours, as in
    /// controller-runtime: changes arrive by watch, this only catches what a missed requeue would leave behind.
    pub sync_period: Option<Duration>,
    /// How long running reconciles may take to finish after SIGTERM. A Pod has 30 s until SIGKILL; 25 s leave time to
    /// hand over and close.
    pub graceful_shutdown_timeout: Duration,
    /// What the operator is to print instead of running.
    pub print: Option<Print>,
}

/// What an operator can print instead of running, as YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Print {
    /// The CRDs of its kinds.
    Crds,
    /// What it has to be allowed.
    Rbac,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            name: "konverge".into(),
            field_manager: None,
            namespaces: Vec::new(),
            kubeconfig: Vec::new(),
            context: None,
            metrics: MetricsSettings::default(),
            health: HealthSettings::default(),
            logging: LoggingSettings::default(),
            controller: ControllerSettings::default(),
            sync_period: Some(Duration::from_secs(10 * 3600)),
            graceful_shutdown_timeout: Duration::from_secs(25),
            print: None,
        }
    }
}

impl Settings {
    /// Reads the flags and environment of this process, and the file they name. `--help` and `--print-config` are
    /// answered on stdout and end the process, as users expect of a program; [`Settings::from_args`] never does.
    pub fn load() -> Result<Settings, SettingsError> {
        Ok(Settings::loader().args(std::env::args_os()).environment(std::env::vars_os()).load_or_answer()?.settings)
    }

    /// Reads these flags (the first is the program's name), and no environment. For an operator's own tests.
    ///
    /// ```
    /// # use konverge::Settings;
    /// let settings = Settings::from_args(["webapp", "--namespace=shop", "--max-concurrent-reconciles=4"])?;
    /// assert_eq!(settings.namespaces, ["shop"]);
    /// assert_eq!(settings.controller.max_concurrent_reconciles, 4);
    /// assert_eq!(settings.name, "webapp");
    /// # Ok::<(), konverge::SettingsError>(())
    /// ```
    pub fn from_args<I>(args: I) -> Result<Settings, SettingsError>
    where
        I: IntoIterator,
        I::Item: Into<std::ffi::OsString> + Clone,
    {
        Ok(Settings::loader().args(args).load()?.settings)
    }

    /// Begins to gather sources, one by one.
    pub fn loader() -> Loader {
        Loader::default()
    }

    /// The flags, for an operator that has a command line of its own: `command.args(Settings::flags())`. Derived
    /// command lines flatten [`Flags`].
    pub fn flags() -> Vec<clap::Arg> {
        flags::args()
    }

    /// The owner of applied fields.
    pub fn field_manager(&self) -> &str {
        self.field_manager.as_deref().unwrap_or(&self.name)
    }

    /// The namespace the operator runs in, as far as settings tell: the one it looks at, or `default`.
    pub fn home(&self) -> &str {
        match self.namespaces.as_slice() {
            [one] => one,
            _ => "default",
        }
    }

    /// Whether all values are such that they can be used, for settings that were made in code.
    pub fn check(&self) -> Result<(), SettingsError> {
        load::check(self, |_| Source::Code)
    }
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Whether at all.
    pub enabled: bool,
    /// Port 8080 of all interfaces: Prometheus scrapes from another Pod.
    pub address: BindAddress,
    /// The path of the page.
    pub path: String,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        MetricsSettings { enabled: true, address: BindAddress::All(8080), path: "/metrics".into() }
    }
}

impl MetricsSettings {
    /// Where to listen, if at all.
    pub fn listen(&self) -> Option<BindAddress> {
        Some(self.address).filter(|address| self.enabled && *address != BindAddress::Off)
    }
}

/// Where liveness and readiness are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Whether at all.
    pub enabled: bool,
    /// Port 8081 of all interfaces: the kubelet asks at the Pod's address.
    pub address: BindAddress,
    /// The path of liveness.
    pub liveness_path: String,
    /// The path of readiness.
    pub readiness_path: String,
}

impl Default for HealthSettings {
    fn default() -> Self {
        HealthSettings {
            enabled: true,
            address: BindAddress::All(8081),
            liveness_path: "/healthz".into(),
            readiness_path: "/readyz".into(),
        }
    }
}

impl HealthSettings {
    /// Where to listen, if at all.
    pub fn listen(&self) -> Option<BindAddress> {
        Some(self.address).filter(|address| self.enabled && *address != BindAddress::Off)
    }
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggingSettings {
    /// A level, or a filter such as `info,kube=debug`. RUST_LOG is stronger.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

impl Default for LoggingSettings {
    fn default() -> Self {
        LoggingSettings { level: "info".into(), format: LogFormat::Auto }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere: people read the one, machines the other.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// How a controller works through its queue.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSettings {
    /// Reconciles at one time. They mostly wait for the API server: ten keep it busy over a slow link and are far from
    /// what API priority and fairness would hold back.
    pub max_concurrent_reconciles: usize,
    /// The longest a reconcile may take; then it is cancelled and counts as failed. `None` is as long as it likes,
    /// but one that hangs keeps its slot for ever. 60 s is also what the API server gives a request.
    pub reconcile_timeout: Option<Duration>,
    /// When a failed object is tried again.
    pub backoff: BackoffSettings,
    /// How many reconciles may start.
    pub rate_limit: RateLimitSettings,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        ControllerSettings {
            max_concurrent_reconciles: 10,
            reconcile_timeout: Some(Duration::from_secs(60)),
            backoff: BackoffSettings::default(),
            rate_limit: RateLimitSettings::default(),
        }
    }
}

/// When a failed object is tried again: after `initial`, then each time `multiplier` times as long, at most `max`.
#[derive(Clone, Debug, PartialEq)]
pub struct BackoffSettings {
    /// After the first failure. A second is short for a person and long for a cause that goes by itself.
    pub initial: Duration,
    /// The longest pause. Five minutes: who repairs the cause should not wait for an hour.
    pub max: Duration,
    /// How much longer each pause is than the one before.
    pub multiplier: f64,
    /// After how many retries to give up until the object changes; `None` is never, since most causes lie elsewhere
    /// and go away without the object changing.
    pub max_retries: Option<u32>,
    /// The part of each pause that is left to chance, so that what failed together does not come back together.
    pub jitter: f64,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        BackoffSettings {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(300),
            multiplier: 2.0,
            max_retries: None,
            jitter: 0.1,
        }
    }
}

/// How many reconciles of a controller may start.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimitSettings {
    /// A second, on average; 0 is as many as there are. That is the default: the number of reconciles at one time is
    /// bounded, failures back off, and a server that is too busy says so.
    pub per_second: f64,
    /// At once, after a quiet time.
    pub burst: u32,
}

impl Default for RateLimitSettings {
    fn default() -> Self {
        RateLimitSettings { per_second: 0.0, burst: 100 }
    }
}

/// What one controller does differently from the operator's [`ControllerSettings`].
///
/// ```
/// use konverge::{ControllerOverrides, Settings};
///
/// let slow = ControllerOverrides { max_concurrent_reconciles: Some(1), ..Default::default() };
/// let of_operator = Settings::default().controller;
/// let of_controller = slow.over(&of_operator);
/// assert_eq!(of_controller.max_concurrent_reconciles, 1);
/// assert_eq!(of_controller.backoff, of_operator.backoff);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControllerOverrides {
    /// See [`ControllerSettings::max_concurrent_reconciles`].
    pub max_concurrent_reconciles: Option<usize>,
    /// See [`ControllerSettings::reconcile_timeout`]; `Some(None)` switches it off.
    pub reconcile_timeout: Option<Option<Duration>>,
    /// See [`ControllerSettings::backoff`].
    pub backoff: Option<BackoffSettings>,
    /// See [`ControllerSettings::rate_limit`].
    pub rate_limit: Option<RateLimitSettings>,
}

impl ControllerOverrides {
    /// The settings of a controller: its own where it has some, else the operator's.
    pub fn over(&self, operator: &ControllerSettings) -> ControllerSettings {
        ControllerSettings {
            max_concurrent_reconciles: self.max_concurrent_reconciles.unwrap_or(operator.max_concurrent_reconciles),
            reconcile_timeout: self.reconcile_timeout.unwrap_or(operator.reconcile_timeout),
            backoff: self.backoff.clone().unwrap_or_else(|| operator.backoff.clone()),
            rate_limit: self.rate_limit.clone().unwrap_or_else(|| operator.rate_limit.clone()),
        }
    }
}
