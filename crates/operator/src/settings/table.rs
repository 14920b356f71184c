//! The table of settings: the names of each setting in all sources, its help, how it is parsed and shown. Flags, environment,
//! file, help and report use this table, and there is no other list.
//!
//! The variable of a setting is `KONVERGE_` and its flag in capitals, so that users can guess it.

use std::path::Path;

use super::Settings;
use super::value::{
    boolean, duration, format, https, level, limit, manager, namespace, namespaces, number, object_name, path, pause,
    seconds, service, shard_cache, show_duration, show_format, show_shard_cache, unless,
};

/// A setting.
pub(super) struct Setting {
    /// Its key in the file: `metrics.bindAddress`.
    pub key: &'static str,
    /// Other keys that mean the same in the file.
    pub keys: &'static [&'static str],
    /// The flag, without its dashes.
    pub flag: &'static str,
    /// Other flags that mean the same.
    pub flags: &'static [&'static str],
    /// Variables that other tools use for it; the setting's own is stronger, then in this order.
    pub variables: &'static [&'static str],
    /// The name of the value in the help.
    pub value: &'static str,
    /// What the setting does.
    pub help: &'static str,
    /// Which values are accepted, for the help and for errors.
    pub accepts: &'static str,
    /// Whether an empty variable is a value; otherwise it counts as unset.
    pub empty: bool,
    /// Parses a value and sets it.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// Shows the value as `set` parses it.
    pub get: fn(&Settings) -> String,
}

impl Setting {
    /// `KONVERGE_METRICS_BIND_ADDRESS`
    pub(super) fn variable(&self) -> String {
        format!("KONVERGE_{}", self.flag.to_ascii_uppercase().replace('-', "_"))
    }

    /// Its own variable first, then those of other tools.
    pub(super) fn variables(&self) -> impl Iterator<Item = String> {
        std::iter::once(self.variable()).chain(self.variables.iter().map(|name| name.to_string()))
    }

    /// Its keys in the file.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.key).chain(self.keys.iter().copied())
    }

    /// Whether the flag without a value means true.
    pub(super) fn is_switch(&self) -> bool {
        self.value == SWITCH
    }
}

const SWITCH: &str = "BOOL";
const BOOLEAN: &str = "true or false";
const DURATION: &str = "a duration such as 500ms, 30s, 1m30s or 10h";
const DURATION_OR_NONE: &str = "a duration such as 500ms, 30s, 1m30s or 10h; 0 is none";
const ADDRESS: &str =
    ":8080 for a port of all interfaces, 127.0.0.1:8080 or [::1]:8080 for one; :0 picks a port, 0 switches it off";
const SECONDS: &str = "a duration such as 15s or 500ms; a number is seconds";
const PATH: &str = "a path that begins with /";

/// Each shard is a Lease. More would cost more to look at than they spread the work.
const MOST_SHARDS: usize = 1000;

/// The defaults of a row.
const ROW: Setting = Setting {
    key: "",
    keys: &[],
    flag: "",
    flags: &[],
    variables: &[],
    value: "",
    help: "",
    accepts: "",
    empty: false,
    set: |_, _| Ok(()),
    get: |_| String::new(),
};

/// Every setting, in the order of the help.
pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "name",
        flag: "operator-name",
        value: "NAME",
        help: "The name of the operator in its log and events, and as the field manager of what it applies",
        accepts: "up to 128 printable characters",
        set: |s, text| manager(text).map(|name| s.name = name),
        get: |s| s.name.clone(),
        ..ROW
    },
    Setting {
        key: "fieldManager",
        flag: "field-manager",
        value: "NAME",
        help: "The field manager of what it applies, if that has to differ from the operator's name",
        accepts: "up to 128 printable characters; empty is the operator's name",
        set: |s, text| unless("", text, manager).map(|name| s.field_manager = name),
        get: |s| s.field_manager.clone().unwrap_or_default(),
        ..ROW
    },
    Setting {
        key: "namespaces",
        keys: &["namespace"],
        flag: "namespace",
        flags: &["watch-namespace"],
        variables: &["WATCH_NAMESPACE", "NAMESPACE"],
        value: "NAMES",
        help: "The namespaces to watch; may be repeated",
        accepts: "names with commas between them; empty is all namespaces",
        empty: true,
        set: |s, text| namespaces(text).map(|names| s.namespaces = names),
        get: |s| s.namespaces.join(","),
    },
    Setting {
        key: "kubeconfig",
        flag: "kubeconfig",
        variables: &["KUBECONFIG"],
        value: "FILE",
        help: "The kubeconfig that says which cluster, instead of ~/.kube/config or the Pod's service account",
        accepts: "a path, or several as in KUBECONFIG",
        set: |s, text| {
            s.kubeconfig = std::env::split_paths(text).filter(|path| path != Path::new("")).collect();
            Ok(())
        },
        get: |s| std::env::join_paths(&s.kubeconfig).unwrap_or_default().to_string_lossy().into_owned(),
        ..ROW
    },
    Setting {
        key: "context",
        flag: "context",
        value: "NAME",
        help: "The context of the kubeconfig, instead of its current one",
        accepts: "a name in the kubeconfig; empty is the current one",
        set: |s, text| unless("", text, |text| Ok(text.to_string())).map(|name| s.context = name),
        get: |s| s.context.clone().unwrap_or_default(),
        ..ROW
    },
    Setting {
        key: "metrics.enabled",
        flag: "metrics-enabled",
        value: SWITCH,
        help: "Whether metrics are served",
        accepts: BOOLEAN,
        set: |s, text| boolean(text).map(|on| s.metrics.enabled = on),
        get: |s| s.metrics.enabled.to_string(),
        ..ROW
    },
    Setting {
        key: "metrics.bindAddress",
        keys: &["metrics.address", "metrics.port"],
        flag: "metrics-bind-address",
        value: "ADDRESS",
        help: "The address for metrics. All interfaces by default, because Prometheus runs in another Pod",
        accepts: ADDRESS,
        set: |s, text| text.parse().map(|address| s.metrics.address = address),
        get: |s| s.metrics.address.to_string(),
        ..ROW
    },
    Setting {
        key: "metrics.path",
        flag: "metrics-path",
        value: "PATH",
        help: "The path of the metrics",
        accepts: PATH,
        set: |s, text| path(text).map(|path| s.metrics.path = path),
        get: |s| s.metrics.path.clone(),
        ..ROW
    },
    Setting {
        key: "health.enabled",
        flag: "health-enabled",
        value: SWITCH,
        help: "Whether liveness and readiness are served",
        accepts: BOOLEAN,
        set: |s, text| boolean(text).map(|on| s.health.enabled = on),
        get: |s| s.health.enabled.to_string(),
        ..ROW
    },
    Setting {
        key: "health.bindAddress",
        keys: &["health.address", "health.port"],
        flag: "health-probe-bind-address",
        value: "ADDRESS",
        help: "The address for liveness and readiness. All interfaces by default, because the kubelet asks at the \
               Pod's address",
        accepts: ADDRESS,
        set: |s, text| text.parse().map(|address| s.health.address = address),
        get: |s| s.health.address.to_string(),
        ..ROW
    },
    Setting {
        key: "health.livenessPath",
        flag: "health-liveness-path",
        value: "PATH",
        help: "The path of liveness",
        accepts: PATH,
        set: |s, text| path(text).map(|path| s.health.liveness_path = path),
        get: |s| s.health.liveness_path.clone(),
        ..ROW
    },
    Setting {
        key: "health.readinessPath",
        flag: "health-readiness-path",
        value: "PATH",
        help: "The path of readiness",
        accepts: PATH,
        set: |s, text| path(text).map(|path| s.health.readiness_path = path),
        get: |s| s.health.readiness_path.clone(),
        ..ROW
    },
    Setting {
        key: "webhook.enabled",
        flag: "webhook-enabled",
        value: SWITCH,
        help: "Whether webhooks are served, if the operator has some",
        accepts: BOOLEAN,
        set: |s, text| boolean(text).map(|on| s.webhook.enabled = on),
        get: |s| s.webhook.enabled.to_string(),
        ..ROW
    },
    Setting {
        key: "webhook.bindAddress",
        keys: &["webhook.address", "webhook.port"],
        flag: "webhook-bind-address",
        flags: &["webhook-port"],
        value: "ADDRESS",
        help: "The address for webhooks. All interfaces by default, because the API server calls from elsewhere",
        accepts: ADDRESS,
        set: |s, text| text.parse().map(|address| s.webhook.address = address),
        get: |s| s.webhook.address.to_string(),
        ..ROW
    },
    Setting {
        key: "webhook.certDir",
        flag: "webhook-cert-dir",
        flags: &["webhook-cert-path"],
        value: "DIR",
        help: "The directory with tls.crt and tls.key for webhooks, as cert-manager mounts it, instead of certificates \
               that the operator makes",
        accepts: "a path; empty is /tmp/k8s-webhook-server/serving-certs if that has a certificate, else none",
        set: |s, text| unless("", text, |text| Ok(text.into())).map(|directory| s.webhook.cert_dir = directory),
        get: |s| s.webhook.cert_dir.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        ..ROW
    },
    Setting {
        key: "webhook.clientCA",
        flag: "webhook-client-ca",
        value: "FILE",
        help: "The CA of the client certificates that API servers show to webhooks; nobody else is answered",
        accepts: "a path; empty is none, and everybody is answered who reaches the port",
        set: |s, text| unless("", text, |text| Ok(text.into())).map(|file| s.webhook.client_ca = file),
        get: |s| s.webhook.client_ca.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        ..ROW
    },
    Setting {
        key: "webhook.url",
        flag: "webhook-url",
        value: "URL",
        help: "The address at which API servers reach the webhooks of an operator outside of the cluster",
        accepts: "an address such as https://laptop.example.com:9443; empty is a Service in the cluster",
        set: |s, text| unless("", text, https).map(|url| s.webhook.url = url),
        get: |s| s.webhook.url.clone().unwrap_or_default(),
        ..ROW
    },
    Setting {
        key: "webhook.service",
        flag: "webhook-service",
        value: "NAME",
        help: "The Service through which API servers reach the webhooks",
        accepts: "a name, or namespace/name; empty is the operator's name with -webhook in its namespace",
        set: |s, text| unless("", text, service).map(|service| s.webhook.service = service),
        get: |s| s.webhook.service.clone().unwrap_or_default(),
        ..ROW
    },
    Setting {
        key: "leaderElection.enabled",
        flag: "leader-elect",
        value: SWITCH,
        help: "Whether only one of several instances works, the one that holds a Lease",
        accepts: BOOLEAN,
        set: |s, text| boolean(text).map(|on| s.leader_election.enabled = on),
        get: |s| s.leader_election.enabled.to_string(),
        ..ROW
    },
    Setting {
        key: "leaderElection.name",
        flag: "leader-election-id",
        flags: &["leader-elect-resource-name"],
        value: "NAME",
        help: "The name of the Lease by which the leader is elected",
        accepts: "the name of an object; empty is the operator's name with -lock",
        set: |s, text| unless("", text, object_name).map(|name| s.leader_election.name = name),
        get: |s| s.leader_election.name.clone().unwrap_or_default(),
        ..ROW
    },
    Setting {
        key: "leaderElection.namespace",
        flag: "leader-election-namespace",
        flags: &["leader-elect-resource-namespace"],
        value: "NAME",
        help: "The namespace of that Lease",
        accepts: "the name of a namespace; empty is the one that the operator runs in",
        set: |s, text| unless("", text, namespace).map(|name| s.leader_election.namespace = name),
        get: |s| s.leader_election.namespace.clone().unwrap_or_default(),
        ..ROW
    },
    Setting {
        key: "leaderElection.leaseDuration",
        flag: "leader-elect-lease-duration",
        value: "DURATION",
        help: "How long others wait after the leader's last renewal before they take over",
        accepts: SECONDS,
        set: |s, text| seconds(text).map(|time| s.leader_election.lease_duration = time),
        get: |s| show_duration(s.leader_election.lease_duration),
        ..ROW
    },
    Setting {
        key: "leaderElection.renewDeadline",
        flag: "leader-elect-renew-deadline",
        value: "DURATION",
        help: "How long the leader goes on without a successful renewal",
        accepts: SECONDS,
        set: |s, text| seconds(text).map(|time| s.leader_election.renew_deadline = time),
        get: |s| show_duration(s.leader_election.renew_deadline),
        ..ROW
    },
    Setting {
        key: "leaderElection.retryPeriod",
        flag: "leader-elect-retry-period",
        value: "DURATION",
        help: "How often the leader renews the Lease",
        accepts: SECONDS,
        set: |s, text| seconds(text).map(|time| s.leader_election.retry_period = time),
        get: |s| show_duration(s.leader_election.retry_period),
        ..ROW
    },
    Setting {
        key: "leaderElection.exitWhenLost",
        flag: "leader-elect-exit-when-lost",
        value: SWITCH,
        help: "Whether the operator ends when it has lost the lead, instead of going on as a standby",
        accepts: BOOLEAN,
        set: |s, text| boolean(text).map(|on| s.leader_election.exit_when_lost = on),
        get: |s| s.leader_election.exit_when_lost.to_string(),
        ..ROW
    },
    Setting {
        key: "shards",
        flag: "shards",
        value: "NUMBER",
        help: "Into how many shards objects are divided over all instances, so that each works on a part. A few times the \
               number of instances; all need the same",
        accepts: "a number from 1 to 1000; 0 is none",
        set: |s, text| number(text, 0, MOST_SHARDS).map(|n| s.shards = n),
        get: |s| s.shards.to_string(),
        ..ROW
    },
    Setting {
        key: "shardCache",
        flag: "shard-cache",
        value: "WHICH",
        help: "With shards: which objects an instance keeps in memory. With own, a shard that moves is read from the server first",
        accepts: "own or all",
        set: |s, text| shard_cache(text).map(|keeps| s.shard_cache = keeps),
        get: |s| show_shard_cache(s.shard_cache),
        ..ROW
    },
    Setting {
        key: "logging.level",
        flag: "log-level",
        flags: &["zap-log-level"],
        value: "LEVEL",
        help: "What is logged. RUST_LOG is stronger",
        accepts: "trace, debug, info, warn, error or off; or a filter such as info,kube=debug",
        set: |s, text| level(text).map(|level| s.logging.level = level),
        get: |s| s.logging.level.clone(),
        ..ROW
    },
    Setting {
        key: "logging.format",
        flag: "log-format",
        flags: &["zap-encoder"],
        value: "FORMAT",
        help: "The format of log lines",
        accepts: "json, text, or auto: text on a terminal and JSON elsewhere",
        set: |s, text| format(text).map(|format| s.logging.format = format),
        get: |s| show_format(s.logging.format),
        ..ROW
    },
    Setting {
        key: "maxConcurrentReconciles",
        flag: "max-concurrent-reconciles",
        value: "NUMBER",
        help: "How many objects each controller reconciles at the same time",
        accepts: "a number from 1 to 100000",
        set: |s, text| number(text, 1, 100_000).map(|n| s.controller.max_concurrent_reconciles = n),
        get: |s| s.controller.max_concurrent_reconciles.to_string(),
        ..ROW
    },
    Setting {
        key: "reconcileTimeout",
        flag: "reconcile-timeout",
        value: "DURATION",
        help: "How long a reconcile may take; then it is cancelled and has failed",
        accepts: DURATION_OR_NONE,
        set: |s, text| limit(text).map(|limit| s.controller.reconcile_timeout = limit),
        get: |s| s.controller.reconcile_timeout.map_or("0".into(), show_duration),
        ..ROW
    },
    Setting {
        key: "retryBackoff.initial",
        flag: "retry-backoff-initial",
        value: "DURATION",
        help: "The delay of the first retry",
        accepts: DURATION,
        set: |s, text| pause(text).map(|pause| s.controller.backoff.initial = pause),
        get: |s| show_duration(s.controller.backoff.initial),
        ..ROW
    },
    Setting {
        key: "retryBackoff.max",
        flag: "retry-backoff-max",
        value: "DURATION",
        help: "The longest delay of a retry",
        accepts: DURATION,
        set: |s, text| pause(text).map(|pause| s.controller.backoff.max = pause),
        get: |s| show_duration(s.controller.backoff.max),
        ..ROW
    },
    Setting {
        key: "retryBackoff.multiplier",
        flag: "retry-backoff-multiplier",
        value: "NUMBER",
        help: "By how much each delay is longer than the one before",
        accepts: "a number from 1 to 100",
        set: |s, text| number(text, 1.0, 100.0).map(|n| s.controller.backoff.multiplier = n),
        get: |s| s.controller.backoff.multiplier.to_string(),
        ..ROW
    },
    Setting {
        key: "retryBackoff.maxRetries",
        flag: "max-retries",
        value: "NUMBER",
        help: "After how many retries an object is given up until it changes",
        accepts: "a number, or unlimited",
        set: |s, text| {
            unless("unlimited", text, |text| number(text, 0, u32::MAX)).map(|n| s.controller.backoff.max_retries = n)
        },
        get: |s| s.controller.backoff.max_retries.map_or("unlimited".into(), |n| n.to_string()),
        ..ROW
    },
    Setting {
        key: "retryBackoff.jitter",
        flag: "retry-backoff-jitter",
        value: "NUMBER",
        help: "The random part of each delay",
        accepts: "a number from 0 to 1",
        set: |s, text| number(text, 0.0, 1.0).map(|n| s.controller.backoff.jitter = n),
        get: |s| s.controller.backoff.jitter.to_string(),
        ..ROW
    },
    Setting {
        key: "rateLimit.perSecond",
        flag: "rate-limit",
        value: "NUMBER",
        help: "How many reconciles of each controller may start in a second, on average",
        accepts: "a number; 0 is no limit",
        set: |s, text| number(text, 0.0, 1e9).map(|n| s.controller.rate_limit.per_second = n),
        get: |s| s.controller.rate_limit.per_second.to_string(),
        ..ROW
    },
    Setting {
        key: "rateLimit.burst",
        flag: "rate-limit-burst",
        value: "NUMBER",
        help: "How many reconciles may start at once after a quiet time, with a rate limit",
        accepts: "a number from 1",
        set: |s, text| number(text, 1, u32::MAX).map(|n| s.controller.rate_limit.burst = n),
        get: |s| s.controller.rate_limit.burst.to_string(),
        ..ROW
    },
    Setting {
        key: "syncPeriod",
        keys: &["resyncPeriod"],
        flag: "sync-period",
        flags: &["resync-period"],
        value: "DURATION",
        help: "How often every object is reconciled although nothing changed",
        accepts: DURATION_OR_NONE,
        set: |s, text| limit(text).map(|period| s.sync_period = period),
        get: |s| s.sync_period.map_or("0".into(), show_duration),
        ..ROW
    },
    Setting {
        key: "gracefulShutdownTimeout",
        flag: "graceful-shutdown-timeout",
        value: "DURATION",
        help: "How long running reconciles and background tasks may take to finish after SIGTERM",
        accepts: "a duration such as 500ms, 30s or 1m30s; 0 cancels them at once",
        set: |s, text| duration(text).map(|limit| s.graceful_shutdown_timeout = limit),
        get: |s| show_duration(s.graceful_shutdown_timeout),
        ..ROW
    },
];

/// Whether settings are valid together. The error is the key of the wrong setting, and what is wrong with it.
pub(super) fn together(s: &Settings) -> Result<(), (&'static str, String)> {
    let backoff = &s.controller.backoff;
    if backoff.max < backoff.initial {
        let initial = show_duration(backoff.initial);
        return Err(("retryBackoff.max", format!("it is shorter than retryBackoff.initial, which is {initial}")));
    }
    if let Err(why) = s.leader_election.timing().check()
        && s.leader_election.enabled
    {
        return Err(("leaderElection.leaseDuration", why));
    }
    if s.leader_election.enabled && object_name(&s.lease_name()).is_err() {
        let name = s.lease_name();
        return Err((
            "leaderElection.name",
            format!("it is {name:?} by default, which cannot be the name of a Lease; set it"),
        ));
    }
    if s.shards > 0 {
        shards(s)?;
    }
    let health = &s.health;
    if health.enabled && health.liveness_path == health.readiness_path {
        return Err(("health.readinessPath", "it is also the path of liveness".into()));
    }
    let one_listener = s.metrics.listen().is_some() && s.metrics.listen() == health.listen();
    if one_listener && [&health.liveness_path, &health.readiness_path].contains(&&s.metrics.path) {
        return Err(("metrics.path", "it is also a path of a probe at the same address".into()));
    }
    Ok(())
}

/// Whether shards are possible under these settings.
fn shards(s: &Settings) -> Result<(), (&'static str, String)> {
    if s.leader_election.enabled {
        let why = "with shards every instance works, and leader election lets only one; leave out one of them".into();
        return Err(("shards", why));
    }
    s.leader_election.timing().check().map_err(|why| ("leaderElection.leaseDuration", why))?;
    // The longest name that is made of it.
    let longest = format!("{}-replica-{:016x}", s.shards_name(), 0);
    object_name(&longest).map(drop).map_err(|_| {
        let name = s.shards_name();
        let why = format!("the names of the Leases of shards would begin with {name:?}, which they cannot; set it");
        ("leaderElection.name", why)
    })
}
