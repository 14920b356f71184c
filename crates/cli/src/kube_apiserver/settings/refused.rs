//! What kube-apiserver refuses of its flags, in its words and order.

use konverge_apiserver::{AdmissionPlugins, PluginError};

use super::super::flags::{Flags, quoted};
use super::{BUFFER, MAX_AGE, MAX_BACKUPS, MAX_EVENT, MAX_SIZE, READING, WRITING, admission, in_flight, number, port};
use crate::audit;

const FEATURE_GATES: &str = include_str!("../../../data/kube-apiserver/feature-gates.txt");

/// The modes of `--authorization-mode`.
const MODES: [&str; 6] = ["AlwaysAllow", "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node"];

/// What is said of a mode that does not exist here.
const THERE_ARE: &str = "there are AlwaysAllow, AlwaysDeny, RBAC and Node";

const BATCH: (&str, usize) = ("audit-log-batch-max-size", 1);
const MAX_BATCH: (&str, usize) = ("audit-log-truncate-max-batch-size", audit::DEFAULTS.max_batch_size);
const AUDIT_MODES: [&str; 3] = ["batch", "blocking", "blocking-strict"];
const AUDIT_FORMATS: [&str; 2] = ["legacy", "json"];
const AUDIT_VERSION: &str = "audit.k8s.io/v1";

/// The refusals, none if the flags are fine.
pub(super) fn of(flags: &Flags) -> Vec<String> {
    match check_feature_gates(flags) {
        gates if gates.is_empty() => check(flags),
        gates => gates,
    }
}

/// The lines of a table that are not comments.
fn table(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

fn check_feature_gates(flags: &Flags) -> Vec<String> {
    let gates = flags.list("feature-gates").map(|gate| gate.strip_prefix("kube:").unwrap_or(gate));
    let problem = |gate: &str| match gate.split_once('=') {
        None => Some(format!("missing bool value for {gate}")),
        Some((name, value)) if !["true", "false", "True", "False", "1", "0", "t", "f"].contains(&value) => {
            Some(format!("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax"))
        }
        Some((name, _)) if !table(FEATURE_GATES).any(|known| known == name) => {
            Some(format!("unrecognized feature gate: {name}"))
        }
        Some(_) => None,
    };
    gates.filter_map(problem).collect()
}

fn check(flags: &Flags) -> Vec<String> {
    let mut refused = Vec::new();
    if flags.list("etcd-servers").next().is_none() {
        refused.push("--etcd-servers must be specified".to_owned());
    }
    if !(1..=65535).contains(&port(flags)) {
        refused.push(format!(
            "--secure-port {} must be between 1 and 65535, inclusive. It cannot be turned off with 0",
            port(flags)
        ));
    }
    for flag in [READING, WRITING].into_iter().filter(|flag| in_flight(flags, *flag) < 0) {
        refused.push(format!("--{} can not be negative value", flag.0));
    }
    let given = |name| flags.last(name).is_some_and(|text| !text.is_empty());
    let oidc = flags.any_given("oidc-");
    if given("authentication-config") && oidc {
        refused.push("authentication-config file and oidc-* flags are mutually exclusive".to_owned());
    }
    if !given("authentication-config") && oidc && !(given("oidc-issuer-url") && given("oidc-client-id")) {
        let why = "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set";
        refused.push(why.to_owned());
    }
    if !given("service-account-issuer") {
        refused.push("service-account-issuer is a required flag".to_owned());
    }
    let modes: Vec<&str> = flags.list("authorization-mode").collect();
    for mode in modes.iter().filter(|mode| !MODES.contains(mode)) {
        refused.push(format!("authorization-mode {mode:?} is not a valid mode"));
    }
    for (mode, flag, what) in
        [("ABAC", "authorization-policy-file", "policy"), ("Webhook", "authorization-webhook-config-file", "config")]
    {
        match (modes.contains(&mode), given(flag)) {
            (true, false) => refused.push(format!("authorization-mode {mode}'s authorization {what} file not passed")),
            (false, true) => refused.push(format!("cannot specify --{flag} without mode {mode}")),
            // Without it, requests would be refused, or allowed, that kube-apiserver answers otherwise.
            (true, true) => refused.push(format!("authorization-mode {mode:?} does not exist here; {THERE_ARE}")),
            (false, false) => {}
        }
    }
    if given("authorization-config") {
        refused.push(format!("--authorization-config cannot be read here; use --authorization-mode: {THERE_ARE}"));
    }
    if modes.iter().enumerate().any(|(at, mode)| modes[..at].contains(mode)) {
        refused.push(format!("authorization-mode [{}] has mode specified more than once", quoted(&modes)));
    }
    refused.extend(check_audit(flags));
    for flag in ["enable-admission-plugins", "disable-admission-plugins"] {
        for name in flags.list(flag).filter(|name| !AdmissionPlugins::known().any(|known| known == *name)) {
            refused.push(format!("{flag} plugin {name:?} is unknown"));
        }
    }
    if let Err(error @ PluginError::Overlap(_)) = admission(flags) {
        refused.push(error.to_string());
    }
    if !given("service-account-issuer") || !given("service-account-signing-key-file") {
        refused.push("--service-account-signing-key-file and --service-account-issuer are required flags".to_owned());
    }
    refused
}

/// What kube-apiserver refuses of the flags of an audit log that is switched on.
fn check_audit(flags: &Flags) -> Vec<String> {
    let mut refused = Vec::new();
    if flags.last("audit-log-path").is_none_or(str::is_empty) {
        return refused;
    }
    let number = |(name, default)| number(flags, name, default);
    let mode = flags.last("audit-log-mode").unwrap_or("blocking");
    let too_small =
        [(BUFFER, "buffer size"), (BATCH, "max batch size")].into_iter().find(|(flag, _)| number(*flag) <= 0);
    if !AUDIT_MODES.contains(&mode) {
        let modes = AUDIT_MODES.join(",");
        refused.push(format!("invalid audit log mode {mode}, allowed modes are {modes:?}"));
    } else if let ("batch", Some((flag, what))) = (mode, too_small) {
        refused.push(format!("invalid audit batch log {what} {}, must be a positive number", number(flag)));
    }
    let (event, batch) = (number(MAX_EVENT), number(MAX_BATCH));
    if event <= 0 {
        refused.push(format!("invalid audit truncate log max event size {event}, must be a positive number"));
    } else if batch < event {
        refused.push(format!(
            "invalid audit truncate log max batch size {batch}, must be greater than max event size ({event})"
        ));
    }
    match flags.last("audit-log-version").unwrap_or(AUDIT_VERSION) {
        AUDIT_VERSION => {}
        version if version.matches('/').count() > 1 => {
            refused.push(format!("unexpected GroupVersion string: {version}"));
        }
        _ => refused.push(format!("invalid group version, allowed versions are [{AUDIT_VERSION:?}]")),
    }
    let format = flags.last("audit-log-format").unwrap_or("json");
    if !AUDIT_FORMATS.contains(&format) {
        let formats = AUDIT_FORMATS.join(",");
        refused.push(format!("invalid audit log format {format}, allowed formats are {formats:?}"));
    }
    for flag in [MAX_AGE, MAX_BACKUPS, MAX_SIZE].into_iter().filter(|flag| number(*flag) < 0) {
        refused.push(format!("--{} {} can't be a negative number", flag.0, number(flag)));
    }
    refused
}
