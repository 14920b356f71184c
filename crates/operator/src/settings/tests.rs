//! Tables: what each source says, who wins, and in which words bad values are refused.

use std::time::Duration;

use konverge_core::ErrorChain;

use super::table::TABLE;
use super::*;

/// Sources for one load: a file's text, variables, flags.
struct Given<'a> {
    file: &'a str,
    variables: &'a [(&'a str, &'a str)],
    flags: &'a [&'a str],
}

const NOTHING: Given<'static> = Given { file: "", variables: &[], flags: &[] };

fn loader(given: &Given<'_>) -> (Loader, Option<tempfile::TempDir>) {
    let mut args = vec!["/usr/bin/webapp".to_string()];
    args.extend(given.flags.iter().map(|flag| flag.to_string()));
    let folder = (!given.file.is_empty()).then(|| tempfile::tempdir().unwrap());
    if let Some(folder) = &folder {
        let path = folder.path().join("settings.yaml");
        std::fs::write(&path, given.file).unwrap();
        args.push(format!("--config={}", path.display()));
    }
    (Settings::loader().args(args).environment(given.variables.iter().copied()), folder)
}

fn load(given: &Given<'_>) -> Result<Loaded, SettingsError> {
    let (loader, _folder) = loader(given);
    loader.load()
}

/// The error, without the folder of the file.
fn refusal(given: &Given<'_>) -> String {
    let (loader, folder) = loader(given);
    let error = ErrorChain(&loader.load().expect_err("should be refused")).to_string();
    match folder {
        Some(folder) => error.replace(&format!("{}/", folder.path().display()), ""),
        None => error,
    }
}

#[test]
fn every_setting_can_be_given_in_every_source() {
    // Key, a value that is not the default, and how it is shown.
    let values = [
        ("name", "shop-operator", "shop-operator"),
        ("fieldManager", "shop", "shop"),
        ("namespaces", "a, b,a", "a,b"),
        ("kubeconfig", "/a:/b", "/a:/b"),
        ("context", "staging", "staging"),
        ("metrics.enabled", "false", "false"),
        ("metrics.bindAddress", "127.0.0.1:9090", "127.0.0.1:9090"),
        ("metrics.path", "/m", "/m"),
        ("health.enabled", "no", "false"),
        ("health.bindAddress", "[::1]:0", "[::1]:0"),
        ("health.livenessPath", "/live", "/live"),
        ("health.readinessPath", "/ready", "/ready"),
        ("webhook.enabled", "off", "false"),
        ("webhook.bindAddress", ":443", ":443"),
        ("webhook.certDir", "/certs", "/certs"),
        ("webhook.clientCA", "/ca.crt", "/ca.crt"),
        ("webhook.url", "https://laptop:9443/", "https://laptop:9443"),
        ("webhook.service", "shop/webhook", "shop/webhook"),
        ("leaderElection.enabled", "true", "true"),
        ("leaderElection.name", "shop-leader", "shop-leader"),
        ("leaderElection.namespace", "locks", "locks"),
        ("leaderElection.leaseDuration", "30", "30s"),
        ("leaderElection.renewDeadline", "14s", "14s"),
        ("leaderElection.retryPeriod", "500ms", "500ms"),
        ("leaderElection.exitWhenLost", "yes", "true"),
        ("shards", "12", "12"),
        ("shardCache", "OWN", "own"),
        ("logging.level", "info,kube=debug", "info,kube=debug"),
        ("logging.format", "JSON", "json"),
        ("maxConcurrentReconciles", "3", "3"),
        ("reconcileTimeout", "1m30s", "1m30s"),
        ("retryBackoff.initial", "5s", "5s"),
        ("retryBackoff.max", "16s", "16s"),
        ("retryBackoff.multiplier", "1.5", "1.5"),
        ("retryBackoff.maxRetries", "5", "5"),
        ("retryBackoff.jitter", "0", "0"),
        ("rateLimit.perSecond", "12.5", "12.5"),
        ("rateLimit.burst", "7", "7"),
        ("syncPeriod", "0", "0"),
        ("gracefulShutdownTimeout", "100ms", "100ms"),
    ];
    assert_eq!(values.map(|(key, ..)| key).as_slice(), TABLE.iter().map(|row| row.key).collect::<Vec<_>>());
    let defaults = load(&NOTHING).unwrap().settings;
    for (row, (key, value, shown)) in TABLE.iter().zip(values) {
        let mut expected = defaults.clone();
        (row.set)(&mut expected, value).unwrap();
        assert_ne!((row.get)(&defaults), shown, "{key} is the default");
        let check = |given: Given<'_>, source: &str| {
            let loaded = load(&given).unwrap_or_else(|error| panic!("{key} from {source}: {error}"));
            assert_eq!((row.get)(&loaded.settings), shown, "{key} from {source}");
            assert_eq!(loaded.settings, expected, "{key} from {source} changes something else");
            let origin = loaded.source(key).unwrap().to_string();
            assert!(origin.starts_with(source), "{key} should be from {source}, is from {origin}");
        };
        for flag in std::iter::once(row.flag).chain(row.flags.iter().copied()) {
            check(Given { flags: &[&format!("--{flag}={value}")], ..NOTHING }, "flag --");
        }
        for variable in row.variables() {
            check(Given { variables: &[(&variable, value)], ..NOTHING }, &format!("variable {variable}"));
        }
        for key in row.keys() {
            let file = match key.split_once('.') {
                Some((section, name)) => format!("{section}:\n  {name}: {value:?}\n"),
                None => format!("{key}: {value:?}\n"),
            };
            check(Given { file: &file, ..NOTHING }, &format!("{key} in /"));
        }
    }
}

#[test]
fn names_in_all_sources_are_unique() {
    let mut names: Vec<String> = Vec::new();
    for row in TABLE {
        names.extend(row.keys().map(|key| format!("key {key}")));
        names.extend(row.variables());
        names.extend(std::iter::once(row.flag).chain(row.flags.iter().copied()).map(|flag| format!("--{flag}")));
    }
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn the_stronger_source_wins() {
    let file = Given { file: "logging: {level: warn}", ..NOTHING };
    let variable = Given { variables: &[("KONVERGE_LOG_LEVEL", "debug")], ..file };
    let flag = Given { flags: &["--log-level=trace"], ..variable };
    for (given, level, source) in [
        (&NOTHING, "info", "default"),
        (&file, "warn", "logging.level in "),
        (&variable, "debug", "variable KONVERGE_LOG_LEVEL"),
        (&flag, "trace", "flag --log-level"),
    ] {
        let loaded = load(given).unwrap();
        assert_eq!(loaded.settings.logging.level, level);
        assert!(loaded.source("logging.level").unwrap().to_string().starts_with(source));
    }
    let (loader, _folder) = loader(&flag);
    let loaded = loader.code(|settings| settings.logging.level = "error".into()).load().unwrap();
    assert_eq!(loaded.settings.logging.level, "error");
    let report = loaded.report();
    let line = report.lines().find(|line| line.contains("level:")).unwrap();
    assert!(line.starts_with("  level: error"), "{line}");
    let (_, sources) = line.split_once("# code, over flag --log-level and variable KONVERGE_LOG_LEVEL and ").unwrap();
    assert!(sources.starts_with("logging.level in "), "{line}");

    // An operator's own defaults are the weakest, code is the strongest, whatever it was called with first.
    let defaults = Settings { sync_period: None, ..Settings::default() };
    let given = Settings::loader().code(|s| s.name = "fixed".into()).defaults(defaults);
    let loaded = given.args(["webapp", "--operator-name=other", "--sync-period=1h"]).load().unwrap();
    assert_eq!(
        (loaded.settings.name.as_str(), loaded.settings.sync_period),
        ("fixed", Some(Duration::from_secs(3600)))
    );
}

#[test]
fn variables_others_agreed_upon() {
    let check = |variables: &[(&str, &str)], expect: &[&str]| {
        assert_eq!(load(&Given { variables, ..NOTHING }).unwrap().settings.namespaces, expect, "{variables:?}");
    };
    check(&[("NAMESPACE", "a")], &["a"]);
    check(&[("NAMESPACE", "a"), ("WATCH_NAMESPACE", "b,c")], &["b", "c"]);
    check(&[("WATCH_NAMESPACE", "b"), ("KONVERGE_NAMESPACE", "d")], &["d"]);
    // Empty means all namespaces, and is stronger than what a weaker variable says.
    check(&[("NAMESPACE", "a"), ("WATCH_NAMESPACE", "")], &[]);
    // For other settings an empty variable is as good as none.
    let given = Given { variables: &[("KONVERGE_LOG_LEVEL", ""), ("KUBECONFIG", "")], ..NOTHING };
    assert_eq!(load(&given).unwrap().settings, load(&NOTHING).unwrap().settings);
    let given = Given { variables: &[("KONVERGE_CONFIG", "/nowhere/settings.yaml")], ..NOTHING };
    assert_eq!(
        refusal(&given),
        "cannot read the settings file /nowhere/settings.yaml: No such file or directory (os error 2)"
    );
}

#[test]
fn flags_may_be_repeated() {
    let given = Given {
        flags: &["--namespace=a", "--watch-namespace", "b,c", "--log-level=warn", "--log-level=debug"],
        ..NOTHING
    };
    let settings = load(&given).unwrap().settings;
    assert_eq!(settings.namespaces, ["a", "b", "c"]);
    assert_eq!(settings.logging.level, "debug");
    let given = Given { flags: &["--metrics-enabled", "--health-enabled=false"], ..NOTHING };
    let settings = load(&given).unwrap().settings;
    assert_eq!((settings.metrics.listen(), settings.health.listen()), (Some(BindAddress::All(8080)), None));
}

#[test]
fn addresses() {
    let check = |text: &str, expect: Result<BindAddress, &str>| {
        assert_eq!(text.parse::<BindAddress>(), expect.map_err(String::from), "{text}");
    };
    check(":8080", Ok(BindAddress::All(8080)));
    check("8080", Ok(BindAddress::All(8080)));
    check(":0", Ok(BindAddress::All(0)));
    check("0", Ok(BindAddress::Off));
    check("localhost:1", Ok(BindAddress::loopback(1)));
    check("127.0.0.1:1", Ok(BindAddress::loopback(1)));
    check("[::1]:1", Ok(BindAddress::At("[::1]:1".parse().unwrap())));
    check(":70000", Err("\"70000\" is not a port"));
    check("", Err("\"\" is not a port"));
    check("example.com:80", Err("\"example.com\" is not an IP address"));
    check("127.0.0.1", Err("\"127.0.0.1\" is not a port"));
    // A stronger address switches on again what a weaker one switched off.
    let given = Given { file: "metrics: {bindAddress: 0}", flags: &["--metrics-bind-address=:9090"], ..NOTHING };
    assert_eq!(load(&given).unwrap().settings.metrics.listen(), Some(BindAddress::All(9090)));
    let given = Given { file: "metrics: {enabled: false, port: 8080}", ..NOTHING };
    assert_eq!(load(&given).unwrap().settings.metrics.listen(), None);
}

#[test]
fn durations() {
    let check = |text: &str, expect: Result<u64, &str>| {
        let read = value::duration(text).map(|duration| duration.as_micros() as u64);
        assert_eq!(read, expect.map_err(String::from), "{text}");
        if let Ok(micros) = read {
            let shown = value::show_duration(Duration::from_micros(micros));
            assert_eq!(value::duration(&shown), Ok(Duration::from_micros(micros)), "{shown}");
        }
    };
    check("0", Ok(0));
    check("1s", Ok(1_000_000));
    check("1h30m", Ok(5_400_000_000));
    check("1.5h", Ok(5_400_000_000));
    check("100ms", Ok(100_000));
    check("0.1s", Ok(100_000));
    check("7us", Ok(7));
    check("2d", Ok(172_800_000_000));
    check("60000", Err("it has no unit: 60000s, or 60000ms?"));
    check("0s", Ok(0));
    check("", Err("it is empty"));
    check("s", Err("it is not a duration"));
    check("-1s", Err("it is not a duration"));
    check("1x", Err("\"x\" is not a unit of time"));
    check("1.2.3s", Err("it is not a duration"));
    check("1e400d", Err("\"e\" is not a unit of time"));
    check("400d", Err("it is longer than a year"));
    check("99999999999999999999999999d", Err("it is too long"));
}

#[test]
fn levels() {
    let check = |text: &str, expect: Result<&str, &str>| {
        assert_eq!(value::level(text).as_deref().map_err(String::as_str), expect, "{text}");
    };
    check("info", Ok("info"));
    check("warning", Ok("warn"));
    check("panic", Ok("error"));
    check("0", Ok("info"));
    check("1", Ok("debug"));
    check("5", Ok("trace"));
    check("info,kube=debug,webapp::reconcile=trace", Ok("info,kube=debug,webapp::reconcile=trace"));
    check("inof", Err("\"inof\" is not a level"));
    check("kube=loud", Err("\"loud\" is not a level"));
    check("=info", Err("\"=info\" names no module"));
    check("", Err("\"\" is not a level"));
}

#[test]
fn bad_values_name_the_source_the_setting_and_what_is_accepted() {
    let flag = |flag: &str, expect: &str| assert_eq!(refusal(&Given { flags: &[flag], ..NOTHING }), expect);
    flag(
        "--reconcile-timeout=60000",
        "flag --reconcile-timeout: \"60000\" cannot be used for reconcileTimeout: it has no unit: 60000s, or 60000ms?; \
         it takes a duration such as 500ms, 30s, 1m30s or 10h; 0 is none",
    );
    flag(
        "--max-concurrent-reconciles=0",
        "flag --max-concurrent-reconciles: \"0\" cannot be used for maxConcurrentReconciles: it is not a number from 1 \
         to 100000; it takes a number from 1 to 100000",
    );
    flag(
        "--retry-backoff-multiplier=NaN",
        "flag --retry-backoff-multiplier: \"NaN\" cannot be used for retryBackoff.multiplier: it is not a number from 1 \
         to 100; it takes a number from 1 to 100",
    );
    flag(
        "--metrics-path=metrics",
        "flag --metrics-path: \"metrics\" cannot be used for metrics.path: it does not begin with /; it takes a path \
         that begins with /",
    );
    flag(
        "--retry-backoff-initial=0",
        "flag --retry-backoff-initial: \"0\" cannot be used for retryBackoff.initial: it is shorter than 1ms; it takes \
         a duration such as 500ms, 30s, 1m30s or 10h",
    );
    flag(
        "--retry-backoff-max=100ms",
        "flag --retry-backoff-max: \"100ms\" cannot be used for retryBackoff.max: it is shorter than \
         retryBackoff.initial, which is 1s; it takes a duration such as 500ms, 30s, 1m30s or 10h",
    );
    flag(
        "--health-readiness-path=/healthz",
        "flag --health-readiness-path: \"/healthz\" cannot be used for health.readinessPath: it is also the path of \
         liveness; it takes a path that begins with /",
    );
    let both = &["--health-probe-bind-address=:8080", "--metrics-path=/readyz"];
    assert_eq!(
        refusal(&Given { flags: both, ..NOTHING }),
        "flag --metrics-path: \"/readyz\" cannot be used for metrics.path: it is also a path of a probe at the same \
         address; it takes a path that begins with /"
    );
    let variables = &[("WATCH_NAMESPACE", "Shop")];
    assert_eq!(
        refusal(&Given { variables, ..NOTHING }),
        "variable WATCH_NAMESPACE: \"Shop\" cannot be used for namespaces: \"Shop\" is not the name of a namespace; it \
         takes names with commas between them; empty is all namespaces"
    );
    // What a stronger source hides must be good too.
    let given = Given { variables: &[("KONVERGE_METRICS_ENABLED", "maybe")], flags: &["--metrics-enabled"], ..NOTHING };
    assert_eq!(
        refusal(&given),
        "variable KONVERGE_METRICS_ENABLED: \"maybe\" cannot be used for metrics.enabled: it is neither true nor false; \
         it takes true or false"
    );
    let unknown = refusal(&Given { flags: &["--metrics-bind-adress=:1"], ..NOTHING });
    assert!(unknown.contains("a similar argument exists: '--metrics-bind-address'"), "{unknown}");
    let code = Settings::loader().code(|settings| settings.controller.max_concurrent_reconciles = 0).load();
    assert_eq!(
        code.unwrap_err().to_string(),
        "code: \"0\" cannot be used for maxConcurrentReconciles: it is not a number from 1 to 100000; it takes a number \
         from 1 to 100000"
    );
    let settings = Settings { name: String::new(), ..Settings::default() };
    assert_eq!(
        settings.check().unwrap_err().to_string(),
        "code: \"\" cannot be used for name: it is empty; it takes up to 128 printable characters"
    );
}

#[test]
fn files_that_are_refused() {
    let check = |file: &str, expect: &str| assert_eq!(refusal(&Given { file, ..NOTHING }), expect, "{file}");
    check("metrcs: {port: 1}", "settings.yaml: there is no setting \"metrcs\"; did you mean \"metrics\"?");
    check("metrics: {prot: 1}", "settings.yaml: there is no setting \"metrics.prot\"; did you mean \"metrics.port\"?");
    check(
        "max_concurrent_reconciles: 1",
        "settings.yaml: there is no setting \"max_concurrent_reconciles\"; did you mean \"maxConcurrentReconciles\"?",
    );
    check("leadership: {enabled: true}", "settings.yaml: there is no setting \"leadership\"");
    check(
        "leaderElection: {enabled: true, leaseDuration: 10, renewDeadline: 10}",
        "leaderElection.leaseDuration in settings.yaml: \"10s\" cannot be used for leaderElection.leaseDuration: the renew deadline is 10s; it has to be shorter than \
         the lease duration, 10s, because others take over then; it takes a duration such as 15s or 500ms; a number is seconds",
    );
    check("metrics: 8080", "settings.yaml: metrics takes a table with enabled, bindAddress, path");
    check("metrics: {path: {a: b}}", "settings.yaml: metrics.path takes a path that begins with /, not a table");
    check("- a", "settings.yaml: settings are keys with values, such as `metrics: {port: 8080}`");
    check(
        "metrics: {port: 1, bindAddress: ':2'}",
        "settings.yaml: metrics.bindAddress and metrics.port are the same setting",
    );
    check(
        "retryBackoff: {initial: 5000}",
        "retryBackoff.initial in settings.yaml: \"5000\" cannot be used for retryBackoff.initial: it has no unit: \
         5000s, or 5000ms?; it takes a duration such as 500ms, 30s, 1m30s or 10h",
    );
    let broken = refusal(&Given { file: "metrics: {port: 1", ..NOTHING });
    assert!(broken.starts_with("settings.yaml: ") && broken.contains("line 1"), "{broken}");
    let twice = refusal(&Given { file: "name: a\nname: b", ..NOTHING });
    assert!(twice.starts_with("settings.yaml: ") && twice.contains("duplicate"), "{twice}");
}

#[test]
fn files_that_are_read() {
    let check = |file: &str, expect: fn(&mut Settings)| {
        let mut expected = load(&NOTHING).unwrap().settings;
        expect(&mut expected);
        assert_eq!(load(&Given { file, ..NOTHING }).unwrap().settings, expected, "{file}");
    };
    check("# nothing\n\n", |_| {});
    check("metrics:\n", |_| {});
    check("metrics: {port: null}", |_| {});
    check("namespaces: [a, b]", |s| s.namespaces = vec!["a".into(), "b".into()]);
    check("namespace: ''", |s| s.namespaces.clear());
    check("name: 7", |s| s.name = "7".into());
    let seed = "
metrics: {enabled: true, port: 9080, path: /metrics}
health: {enabled: true, port: 9081, livenessPath: /healthz, readinessPath: /readyz}
logging: {level: info, format: json}
maxConcurrentReconciles: 5
reconcileTimeout: 60s
retryBackoff: {initial: 5s, max: 300s, multiplier: 2}
";
    check(seed, |s| {
        s.metrics.address = BindAddress::All(9080);
        s.health.address = BindAddress::All(9081);
        s.logging.format = LogFormat::Json;
        s.controller.max_concurrent_reconciles = 5;
        s.controller.backoff.initial = Duration::from_secs(5);
    });
}

#[test]
fn help_explains_every_setting() {
    let Err(SettingsError::Asked(help)) = load(&Given { flags: &["--help"], ..NOTHING }) else { panic!("no help") };
    // The terminal may break lines anywhere.
    let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let defaults = load(&NOTHING).unwrap().settings;
    for row in TABLE {
        assert!(
            flat.contains(&format!("--{} ", row.flag)) || flat.contains(&format!("--{}[", row.flag)),
            "{}",
            row.flag
        );
        assert!(flat.contains(&format!("{}. Takes {}", row.help, row.accepts)), "{}", row.key);
        for flag in row.flags {
            assert!(flat.contains(&format!("--{flag}")), "{flag}");
        }
        for variable in row.variables() {
            assert!(flat.contains(&variable), "{variable}");
        }
        for key in row.keys() {
            assert!(flat.contains(key), "{key}");
        }
        let default = (row.get)(&defaults);
        assert!(default.is_empty() || flat.contains(&format!("[default: {default}]")), "{} {default}", row.key);
    }
    assert!(flat.contains("The operator's own code has precedence, then the flag, then the variable"));
    assert!(help.contains("Usage: webapp [OPTIONS]"), "{help}");
}

#[test]
fn print_config_can_be_used_as_the_file() {
    let given = Given {
        variables: &[("NAMESPACE", "a,b"), ("RUST_LOG", "kube=trace")],
        flags: &["--metrics-bind-address=127.0.0.1:0", "--reconcile-timeout=0", "--kubeconfig=/a b/c"],
        ..NOTHING
    };
    let settings = load(&given).unwrap().settings;
    let print = Given { flags: &[given.flags, &["--print-config"]].concat(), ..given };
    let Err(SettingsError::Asked(report)) = load(&print) else { panic!("no report") };
    let expected = "\
# strongest first: code, flags, environment, file, defaults
name: webapp                             # default
fieldManager: \"\"                         # default
namespaces: \"a,b\"                        # variable NAMESPACE
kubeconfig: \"/a b/c\"                     # flag --kubeconfig
context: \"\"                              # default
metrics:
  enabled: true                          # default
  bindAddress: \"127.0.0.1:0\"             # flag --metrics-bind-address
  path: \"/metrics\"                       # default
health:
  enabled: true                          # default
  bindAddress: \":8081\"                   # default
  livenessPath: \"/healthz\"               # default
  readinessPath: \"/readyz\"               # default
webhook:
  enabled: true                          # default
  bindAddress: \":9443\"                   # default
  certDir: \"\"                            # default
  clientCA: \"\"                           # default
  url: \"\"                                # default
  service: \"\"                            # default
leaderElection:
  enabled: false                         # default
  name: \"\"                               # default
  namespace: \"\"                          # default
  leaseDuration: \"15s\"                   # default
  renewDeadline: \"10s\"                   # default
  retryPeriod: \"2s\"                      # default
  exitWhenLost: false                    # default
shards: 0                                # default
shardCache: all                          # default
logging:
  level: info                            # default; RUST_LOG decides instead: kube=trace
  format: auto                           # default
maxConcurrentReconciles: 10              # default
reconcileTimeout: 0                      # flag --reconcile-timeout
retryBackoff:
  initial: \"1s\"                          # default
  max: \"5m\"                              # default
  multiplier: 2                          # default
  maxRetries: unlimited                  # default
  jitter: 0.1                            # default
rateLimit:
  perSecond: 0                           # default
  burst: 100                             # default
syncPeriod: \"10h\"                        # default
gracefulShutdownTimeout: \"25s\"           # default
";
    assert_eq!(report, expected);
    assert_eq!(load(&Given { file: &report, ..NOTHING }).unwrap().settings, settings);
}

#[test]
fn almost_variables_are_warned_about() {
    let variables = &[
        ("KONVERGE_METRIC_BIND_ADDRESS", ":1"),
        ("KONVERGE_SERVICE_HOST", "10.0.0.1"),
        ("KONVERGE_PORT", "tcp://10.0.0.1:80"),
        ("KONVERGE_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("KONVERGE_SERVICE_PORT", "80"),
        ("KONVERGE_METRICS_PORT", "8080"),
        ("KONVERGE_VERBOSITY", "3"),
    ];
    let loaded = load(&Given { variables, ..NOTHING }).unwrap();
    assert_eq!(
        loaded.warnings,
        [
            "variable KONVERGE_METRICS_PORT is not a setting; did you mean KONVERGE_METRICS_PATH?",
            "variable KONVERGE_METRIC_BIND_ADDRESS is not a setting; did you mean KONVERGE_METRICS_BIND_ADDRESS?",
            "variable KONVERGE_VERBOSITY is not a setting; --help lists those that are",
        ]
    );
    // Where members of Raft are, their own configuration reads.
    let peers = load(&Given { variables: &[("KONVERGE_RAFT_PEERS", "0=web-0:7000")], ..NOTHING }).unwrap();
    assert_eq!(peers.warnings.is_empty(), cfg!(feature = "ha"));
}

#[test]
fn controllers_inherit_what_they_do_not_say() {
    let operator = ControllerSettings { max_concurrent_reconciles: 3, ..ControllerSettings::default() };
    assert_eq!(ControllerOverrides::default().over(&operator), operator);
    let own = BackoffSettings { initial: Duration::from_secs(5), ..BackoffSettings::default() };
    let overrides =
        ControllerOverrides { reconcile_timeout: Some(None), backoff: Some(own.clone()), ..Default::default() };
    let expected = ControllerSettings { reconcile_timeout: None, backoff: own, ..operator.clone() };
    assert_eq!(overrides.over(&operator), expected);
}

#[test]
fn the_name_is_also_the_field_manager() {
    let mut settings = load(&NOTHING).unwrap().settings;
    assert_eq!((settings.name.as_str(), settings.field_manager()), ("webapp", "webapp"));
    settings.field_manager = Some("other".into());
    assert_eq!(settings.field_manager(), "other");
}

#[test]
fn own_command_lines_take_the_flags() {
    let command = clap::Command::new("x").arg(clap::Arg::new("degrees").long("degrees")).args(Settings::flags());
    let matches = command.get_matches_from(["x", "--degrees=3", "--log-format=text"]);
    let flags = <Flags as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
    let settings = Settings::loader().flags(flags).load().unwrap().settings;
    assert_eq!(settings.logging.format, LogFormat::Text);
}
