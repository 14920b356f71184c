//! The settings of an operator. In: code, flags, environment, a file. Out: one [`Settings`] in which every value is set, and
//! the source of each value. Nothing is started here, and only [`Settings::load`] reads the process's flags and environment.
//!
//! `table` has one row for each setting: its names, its help, how it is parsed and shown. All sources are read by that table.

use std::path::PathBuf;
use std::time::Duration;

use konverge_runtime::LeaseTiming;

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
pub(crate) use value::object_name;

/// The settings of an operator. Every field has a default that suits a cluster.
///
/// An operator reads them from a file, the environment and flags, the later being stronger, and from
/// [`Operator::configure`](crate::Operator::configure), which is the strongest. `--help` lists all flags and variables,
/// `--print-config` shows the values and their sources.
///
/// ```
/// use konverge::Settings;
///
/// let settings = Settings { namespaces: vec!["shop".into()], ..Settings::default() };
/// assert_eq!(settings.metrics.address.to_string(), ":8080");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The name of the operator in its log, in events, and as the field manager of what it applies. Two operators with the
    /// same name would take each other's fields. The default is the name of the program.
    pub name: String,
    /// The field manager, if it has to differ from the name; see [`Settings::field_manager`].
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
    /// Where webhooks are served, for an operator that has some.
    pub webhook: WebhookSettings,
    /// Which of several instances of the operator works.
    pub leader_election: LeaderElectionSettings,
    /// Into how many shards objects are divided, so that all instances work, each on a part; 0 is none. See
    /// [`Operator::shards`](crate::Operator::shards). Namespace, name and durations of the Leases are those of leader election.
    pub shards: usize,
    /// What an instance keeps of objects whose shards others hold.
    pub shard_cache: ShardCache,
    /// The log.
    pub logging: LoggingSettings,
    /// The settings of all controllers; a controller may override them.
    pub controller: ControllerSettings,
    /// How often every object is reconciled although nothing changed; `None` is never. The default is 10 hours, as in
    /// controller-runtime: changes arrive by watch, and this is only a safety net.
    pub sync_period: Option<Duration>,
    /// How long running reconciles and background tasks may take to finish after SIGTERM. A Pod has 30 s until SIGKILL; the
    /// default of 25 s leaves time to write events and close connections.
    pub graceful_shutdown_timeout: Duration,
    /// What to print instead of running.
    pub print: Option<Print>,
}

/// What an operator prints instead of running, as YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Print {
    /// The CRDs of its kinds.
    Crds,
    /// The RBAC rules that it needs.
    Rbac,
    /// What its webhooks need: their configurations, a Service, and rules for certificates.
    Webhooks,
    /// What runs it if its leader is elected by Raft: a StatefulSet, a headless Service, a PodDisruptionBudget and a NetworkPolicy.
    StatefulSet,
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
            webhook: WebhookSettings::default(),
            leader_election: LeaderElectionSettings::default(),
            shards: 0,
            shard_cache: ShardCache::default(),
            logging: LoggingSettings::default(),
            controller: ControllerSettings::default(),
            sync_period: Some(Duration::from_secs(10 * 3600)),
            graceful_shutdown_timeout: Duration::from_secs(25),
            print: None,
        }
    }
}

impl Settings {
    /// Reads the flags and environment of this process, and the file that they name. `--help` and `--print-config` are
    /// answered on stdout and end the process; [`Settings::from_args`] never ends it.
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

    /// A loader, to which sources are added one by one.
    pub fn loader() -> Loader {
        Loader::default()
    }

    /// The flags, for an operator that has a command line of its own: `command.args(Settings::flags())`. Derived
    /// command lines flatten [`Flags`].
    pub fn flags() -> Vec<clap::Arg> {
        flags::args()
    }

    /// The field manager of applied fields: the name of the operator by default.
    pub fn field_manager(&self) -> &str {
        self.field_manager.as_deref().unwrap_or(&self.name)
    }

    /// The namespace that the operator runs in, as far as settings say: the only one that it watches, or `default`.
    pub fn home(&self) -> &str {
        match self.namespaces.as_slice() {
            [one] => one,
            _ => "default",
        }
    }

    /// The name of the Lease by which a leader is elected: the operator's name with `-lock` by default.
    pub fn lease_name(&self) -> String {
        self.leader_election.name.clone().unwrap_or_else(|| format!("{}-lock", self.name))
    }

    /// How the names of the Leases of shards begin: the name of the Lease of leader election if there is one, the operator's name
    /// otherwise.
    pub fn shards_name(&self) -> String {
        self.leader_election.name.clone().unwrap_or_else(|| self.name.clone())
    }

    /// Whether all values are valid, for settings that were made in code.
    pub fn check(&self) -> Result<(), SettingsError> {
        load::check(self, |_| Source::Code)
    }
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Whether metrics are served.
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
    /// The address to listen on; none if it is switched off.
    pub fn listen(&self) -> Option<BindAddress> {
        Some(self.address).filter(|address| self.enabled && *address != BindAddress::Off)
    }
}

/// Where liveness and readiness are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Whether probes are served.
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
    /// The address to listen on; none if it is switched off.
    pub fn listen(&self) -> Option<BindAddress> {
        Some(self.address).filter(|address| self.enabled && *address != BindAddress::Off)
    }
}

/// Where webhooks are served, and how API servers reach them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Whether webhooks are served.
    pub enabled: bool,
    /// Port 9443 of all interfaces: the API server calls from elsewhere.
    pub address: BindAddress,
    /// A directory with `tls.crt` and `tls.key`, as cert-manager mounts it, and perhaps `ca.crt`. It is read again when its
    /// files change. Without one, `/tmp/k8s-webhook-server/serving-certs` is used if it has a certificate; otherwise the
    /// operator makes a CA and a certificate and keeps them in a Secret.
    pub cert_dir: Option<PathBuf>,
    /// A file with the CA of the client certificates that API servers show to webhooks. It is read again when it changes. With it,
    /// nobody else is answered; without it, everybody who reaches the port is.
    pub client_ca: Option<PathBuf>,
    /// The address at which API servers reach an operator that runs outside of the cluster: `https://laptop:9443`.
    pub url: Option<String>,
    /// The Service through which API servers reach the webhooks: `name` in the operator's namespace, or `namespace/name`. The
    /// default is the operator's name with `-webhook`; with a loopback address to listen on, that address is told instead,
    /// because no Service leads there. The Secret with the certificates has its name with `-cert`.
    pub service: Option<String>,
    /// Further DNS names and IP addresses that the certificate is for if the operator makes it. Instances that elect their leader by
    /// Raft add their own, so that they can show it to each other.
    pub certificate_names: Vec<String>,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        WebhookSettings {
            enabled: true,
            address: BindAddress::All(9443),
            cert_dir: None,
            client_ca: None,
            url: None,
            service: None,
            certificate_names: Vec::new(),
        }
    }
}

impl WebhookSettings {
    /// The address to listen on; none if it is switched off.
    pub fn listen(&self) -> Option<BindAddress> {
        Some(self.address).filter(|address| self.enabled && *address != BindAddress::Off)
    }

    /// Whether only an API server on the same machine can call the webhooks.
    pub(crate) fn is_local(&self) -> bool {
        let is_loopback = matches!(self.address, BindAddress::At(address) if address.ip().is_loopback());
        is_loopback && self.url.is_none() && self.service.is_none()
    }
}

/// Leader election: which of several instances of the operator works. All others keep their caches filled and serve webhooks, and one
/// of them takes over when the leader releases its Lease or does not renew it.
///
/// The durations are those of client-go, and a Go operator may compete for the same Lease. They guarantee that there are never two
/// leaders at a time as long as no clock runs faster than another by more than `lease_duration / renew_deadline`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionSettings {
    /// Whether there is an election; without one every instance works.
    pub enabled: bool,
    /// The name of the Lease; the operator's name with `-lock` by default. All instances of an operator need the same.
    pub name: Option<String>,
    /// The namespace of the Lease; the one that the operator runs in by default.
    pub namespace: Option<String>,
    /// How long others wait after the last renewal before they take over: whole seconds.
    pub lease_duration: Duration,
    /// How long the leader goes on without a successful renewal.
    pub renew_deadline: Duration,
    /// How often the leader renews, and the pause after a failed attempt.
    pub retry_period: Duration,
    /// Whether the operator ends with an error when it has lost the lead, as controller-runtime does. By default it goes on as a
    /// standby and may lead again.
    pub exit_when_lost: bool,
}

impl Default for LeaderElectionSettings {
    fn default() -> Self {
        let LeaseTiming { duration, renew_deadline, retry_period } = LeaseTiming::default();
        LeaderElectionSettings {
            enabled: false,
            name: None,
            namespace: None,
            lease_duration: duration,
            renew_deadline,
            retry_period,
            exit_when_lost: false,
        }
    }
}

impl LeaderElectionSettings {
    pub(crate) fn timing(&self) -> LeaseTiming {
        let Self { lease_duration: duration, renew_deadline, retry_period, .. } = *self;
        LeaseTiming { duration, renew_deadline, retry_period }
    }
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggingSettings {
    /// A level, or a filter such as `info,kube=debug`. `RUST_LOG` is stronger.
    pub level: String,
    /// The format of the lines.
    pub format: LogFormat,
}

impl Default for LoggingSettings {
    fn default() -> Self {
        LoggingSettings { level: "info".into(), format: LogFormat::Auto }
    }
}

/// What an instance keeps of objects whose shards others hold ([`Operator::shards`](crate::Operator::shards)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardCache {
    /// Their names. Memory falls with more instances; a shard that moves waits until its objects are read from the server, and so do
    /// reconciles of other shards that read those kinds meanwhile.
    Own,
    /// All of them, so that a shard that moves is reconciled at once.
    #[default]
    All,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// A JSON object in each line.
    Json,
    /// Text for people.
    Text,
}

/// How a controller works through its queue.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSettings {
    /// How many objects are reconciled at the same time. Reconciles mostly wait for the API server: the default of ten keeps it
    /// busy over a slow link, and stays below what API priority and fairness would hold back.
    pub max_concurrent_reconciles: usize,
    /// How long a reconcile may take; then it is cancelled and has failed. `None` is no limit: a reconcile that hangs then
    /// occupies a worker for ever. The default is 60 s, which is also the API server's limit for a request.
    pub reconcile_timeout: Option<Duration>,
    /// When a failed reconcile is retried.
    pub backoff: BackoffSettings,
    /// How many reconciles may start in a second.
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

/// When a failed reconcile is retried: after `initial`, then each time after `multiplier` times as long, at most `max`.
#[derive(Clone, Debug, PartialEq)]
pub struct BackoffSettings {
    /// The delay after the first failure. One second by default: short for a person, long enough for many causes to pass.
    pub initial: Duration,
    /// The longest delay. Five minutes by default: whoever repairs the cause should not wait for an hour.
    pub max: Duration,
    /// By how much each delay is longer than the one before.
    pub multiplier: f64,
    /// After how many retries an object is given up until it changes. The default `None` is never: most causes lie elsewhere,
    /// and pass without a change of the object.
    pub max_retries: Option<u32>,
    /// The random part of each delay, so that objects that failed together are not retried together.
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
    /// How many a second, on average. The default 0 is no limit: concurrency is bounded, failures back off, and a server that
    /// is too busy says so.
    pub per_second: f64,
    /// How many at once, after a quiet time.
    pub burst: u32,
}

impl Default for RateLimitSettings {
    fn default() -> Self {
        RateLimitSettings { per_second: 0.0, burst: 100 }
    }
}

/// The settings of one controller that differ from the operator's [`ControllerSettings`]: see
/// [`Controller::with`](crate::Controller::with).
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
    /// The settings of the controller: these, and the operator's where there are none.
    pub fn over(&self, operator: &ControllerSettings) -> ControllerSettings {
        ControllerSettings {
            max_concurrent_reconciles: self.max_concurrent_reconciles.unwrap_or(operator.max_concurrent_reconciles),
            reconcile_timeout: self.reconcile_timeout.unwrap_or(operator.reconcile_timeout),
            backoff: self.backoff.clone().unwrap_or_else(|| operator.backoff.clone()),
            rate_limit: self.rate_limit.clone().unwrap_or_else(|| operator.rate_limit.clone()),
        }
    }
}
