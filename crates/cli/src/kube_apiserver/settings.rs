//! What the flags of kube-apiserver mean here. In: flags. Out: how to run the server, and a sentence for each flag that has
//! no effect; or the refusal in the words of kube-apiserver.

mod refused;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use konverge_apiserver::{
    AdmissionPlugins, AuditFormat, AuditLogOptions, AuditMode, AuthorizationMode, InFlightLimits, NodePortRange,
    OidcFlags, PluginError, PrivilegedContainers, RangeError, ServiceRanges,
};

use super::flags::Flags;
use crate::audit;
use crate::issuers::{self, TokenIssuers};

/// The directory in which kube-apiserver keeps a certificate that it made itself.
const CERT_DIR: &str = "/var/run/kubernetes";

/// The range of cluster IPs without a flag.
const DEFAULT_CLUSTER_IPS: &str = "10.0.0.0/24";

/// How to run the server.
#[derive(Debug)]
pub(super) struct Settings {
    pub bind: SocketAddr,
    pub certificate: Pair,
    pub client_ca: Option<PathBuf>,
    pub tokens: Option<PathBuf>,
    pub signing_key: PathBuf,
    pub verifying_keys: Vec<PathBuf>,
    pub issuers: Vec<String>,
    pub audiences: Vec<String>,
    pub jwks_uri: Option<String>,
    /// The longest that tokens of service accounts are valid, in seconds.
    pub max_expiration: Option<i64>,
    /// Who else issues tokens.
    pub token_issuers: TokenIssuers,
    pub anonymous: bool,
    /// Whether a flag says who is anonymous.
    pub anonymous_given: bool,
    pub authorization: Vec<AuthorizationMode>,
    pub admission: AdmissionPlugins,
    pub in_flight: InFlightLimits,
    pub audit_policy: Option<PathBuf>,
    /// Where audit events go. Without a policy there are none.
    pub audit_log: Option<AuditLogOptions>,
    pub collects_garbage: bool,
    pub aggregates_roles: bool,
    pub service_ranges: ServiceRanges,
    pub privileged: PrivilegedContainers,
    pub verbosity: u8,
    /// Sentences about what has no effect.
    pub notices: Vec<String>,
}

/// The files of the server's certificate and key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pair {
    /// They must be there.
    Given { certificate: PathBuf, key: PathBuf },
    /// They are made if they are not there.
    Kept { certificate: PathBuf, key: PathBuf },
}

impl Settings {
    /// What flags mean.
    pub(super) fn new(flags: &Flags) -> Result<Self, String> {
        match refused::of(flags).as_slice() {
            [] => {}
            [one] => return Err(one.clone()),
            several => return Err(format!("[{}]", several.join(", "))),
        }
        let address = flags.last("bind-address").and_then(|text| text.parse().ok());
        let port = u16::try_from(port(flags)).unwrap_or_default();
        let authorization = authorization(flags);
        let path = |name| flags.last(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        let certificate = match (path("tls-cert-file"), path("tls-private-key-file")) {
            (Some(certificate), Some(key)) => Pair::Given { certificate, key },
            (Some(_), None) | (None, Some(_)) => {
                let why = "missing filename for serving cert: --tls-cert-file and --tls-private-key-file go together";
                return Err(why.to_owned());
            }
            (None, None) => {
                let directory = path("cert-dir").unwrap_or_else(|| PathBuf::from(CERT_DIR));
                let [certificate, key] = ["apiserver.crt", "apiserver.key"].map(|name| directory.join(name));
                Pair::Kept { certificate, key }
            }
        };
        Ok(Self {
            bind: SocketAddr::new(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), port),
            certificate,
            client_ca: path("client-ca-file"),
            tokens: path("token-auth-file"),
            signing_key: path("service-account-signing-key-file").unwrap_or_default(),
            verifying_keys: flags.list("service-account-key-file").map(PathBuf::from).collect(),
            issuers: flags.list("service-account-issuer").map(str::to_owned).collect(),
            audiences: flags.list("api-audiences").map(str::to_owned).collect(),
            jwks_uri: flags.last("service-account-jwks-uri").filter(|uri| !uri.is_empty()).map(str::to_owned),
            max_expiration: flags
                .last("service-account-max-token-expiration")
                .and_then(seconds)
                .filter(|most| *most > 0),
            token_issuers: token_issuers(flags)?,
            anonymous_given: flags.last("anonymous-auth").is_some(),
            // As in kube-apiserver, nobody is anonymous where everybody may do everything.
            anonymous: flags.is_set("anonymous-auth", true)
                && !authorization.iter().any(|mode| matches!(mode, AuthorizationMode::AlwaysAllow)),
            authorization,
            admission: admission(flags).map_err(|error| error.to_string())?,
            in_flight: InFlightLimits {
                reading: in_flight(flags, READING).try_into().unwrap_or_default(),
                writing: in_flight(flags, WRITING).try_into().unwrap_or_default(),
            },
            audit_policy: path("audit-policy-file"),
            audit_log: audit_log(flags),
            // Beside kube-apiserver this is the work of kube-controller-manager, which envtest does not start, and tests
            // rely on that: some finalize the namespaces that they delete. Whoever wants it asks for it.
            collects_garbage: flags.is_set("enable-garbage-collector", false),
            // The same: without a controller manager, `admin`, `edit` and `view` have no rules.
            aggregates_roles: flags.is_set("enable-garbage-collector", false),
            service_ranges: service_ranges(flags)?,
            privileged: match flags.is_set("allow-privileged", false) {
                true => PrivilegedContainers::Allowed,
                false => PrivilegedContainers::Refused,
            },
            verbosity: flags.last("v").and_then(|text| text.parse().ok()).unwrap_or_default(),
            notices: notices(flags),
        })
    }
}

/// The whole seconds of a duration as Go writes it: `1h30m`.
fn seconds(text: &str) -> Option<i64> {
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
        let (number, tail) = rest.split_at(end);
        let unit = tail.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(tail.len());
        let factor = match &tail[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => 0.0,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = &tail[unit..];
    }
    Some(total as i64)
}

fn port(flags: &Flags) -> i64 {
    flags.last("secure-port").and_then(|text| text.parse().ok()).unwrap_or(6443)
}

const READING: (&str, usize) = ("max-requests-inflight", InFlightLimits::KUBERNETES.reading);
const WRITING: (&str, usize) = ("max-mutating-requests-inflight", InFlightLimits::KUBERNETES.writing);

/// How many requests are answered at the same time.
fn in_flight(flags: &Flags, (name, default): (&str, usize)) -> i64 {
    flags.last(name).and_then(|text| text.parse().ok()).unwrap_or(default as i64)
}

/// Who issues tokens besides the server.
fn token_issuers(flags: &Flags) -> Result<TokenIssuers, String> {
    let text = |name| flags.last(name).unwrap_or_default().to_owned();
    let path = |name| flags.last(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    if let Some(path) = path("authentication-config") {
        return Ok(TokenIssuers::File(path));
    }
    if text("oidc-issuer-url").is_empty() {
        return Ok(TokenIssuers::None);
    }
    let flags = OidcFlags {
        issuer_url: text("oidc-issuer-url"),
        client_id: text("oidc-client-id"),
        username_claim: text("oidc-username-claim"),
        username_prefix: text("oidc-username-prefix"),
        groups_claim: text("oidc-groups-claim"),
        groups_prefix: text("oidc-groups-prefix"),
        required_claims: issuers::pairs(flags.all("oidc-required-claim"))?,
        signing_algs: flags.list("oidc-signing-algs").map(str::to_owned).collect(),
        certificate_authority: String::new(),
    };
    Ok(TokenIssuers::Flags(Box::new(flags), path("oidc-ca-file")))
}

/// The modes in their order. `check` has refused those that do not exist here.
fn authorization(flags: &Flags) -> Vec<AuthorizationMode> {
    let modes: Vec<&str> = flags.list("authorization-mode").collect();
    if modes.is_empty() {
        return vec![AuthorizationMode::AlwaysAllow];
    }
    let mode = |name: &&str| match *name {
        "AlwaysAllow" => Some(AuthorizationMode::AlwaysAllow),
        "AlwaysDeny" => Some(AuthorizationMode::AlwaysDeny),
        "RBAC" => Some(AuthorizationMode::Rbac),
        "Node" => Some(AuthorizationMode::Node),
        _ => None,
    };
    modes.iter().filter_map(mode).collect()
}

/// The number of a flag.
fn number(flags: &Flags, name: &str, default: usize) -> i64 {
    flags.last(name).and_then(|text| text.parse().ok()).unwrap_or(default as i64)
}

const BUFFER: (&str, usize) = ("audit-log-batch-buffer-size", audit::DEFAULTS.buffer);
const MAX_AGE: (&str, usize) = ("audit-log-maxage", audit::DEFAULTS.max_age as usize);
const MAX_BACKUPS: (&str, usize) = ("audit-log-maxbackup", audit::DEFAULTS.max_backups);
const MAX_SIZE: (&str, usize) = ("audit-log-maxsize", audit::DEFAULTS.max_size as usize);
const MAX_EVENT: (&str, usize) = ("audit-log-truncate-max-event-size", audit::DEFAULTS.max_event_size);

/// Where and how audit events are written; none without a path.
fn audit_log(flags: &Flags) -> Option<AuditLogOptions> {
    let path = flags.last("audit-log-path").filter(|path| !path.is_empty())?;
    let number = |(name, default)| number(flags, name, default).try_into().unwrap_or_default();
    let mut log = AuditLogOptions::new(audit::output(Path::new(path)));
    log.format = match flags.last("audit-log-format") {
        Some("legacy") => AuditFormat::Legacy,
        _ => AuditFormat::Json,
    };
    log.mode = match flags.last("audit-log-mode") {
        Some("batch") => AuditMode::Batch,
        Some("blocking-strict") => AuditMode::BlockingStrict,
        _ => AuditMode::Blocking,
    };
    (log.buffer, log.max_backups) = (number(BUFFER), number(MAX_BACKUPS));
    (log.max_size, log.max_age) = (number(MAX_SIZE) as u64, number(MAX_AGE) as u64);
    log.compress = flags.is_set("audit-log-compress", false);
    log.max_event_bytes = flags.is_set("audit-log-truncate-enabled", false).then(|| number(MAX_EVENT));
    Some(log)
}

/// The ranges of services. Without a flag, addresses are those that kube-apiserver takes.
fn service_ranges(flags: &Flags) -> Result<ServiceRanges, String> {
    let given = |name| flags.last(name).filter(|text| !text.is_empty());
    let refused = |name: &str, error: RangeError| format!("--{name} {error}");
    let (addresses, ports) = ("service-cluster-ip-range", "service-node-port-range");
    Ok(ServiceRanges {
        cluster_ips: given(addresses)
            .unwrap_or(DEFAULT_CLUSTER_IPS)
            .parse()
            .map_err(|error| refused(addresses, error))?,
        node_ports: match given(ports) {
            Some(text) => text.parse().map_err(|error| refused(ports, error))?,
            None => NodePortRange::default(),
        },
    })
}

/// The plugins that kube-apiserver would run.
fn admission(flags: &Flags) -> Result<AdmissionPlugins, PluginError> {
    let list = |name| flags.list(name).collect::<Vec<&str>>();
    AdmissionPlugins::kubernetes().with(&list("enable-admission-plugins"), &list("disable-admission-plugins"))
}

/// A sentence for each flag that asks for something this server does not do.
fn notices(flags: &Flags) -> Vec<String> {
    let mut notices =
        vec!["--etcd-servers has no effect: objects are kept in memory and are gone when this process ends".to_owned()];
    let missing: Vec<&str> = flags
        .list("enable-admission-plugins")
        .filter(|name| AdmissionPlugins::missing().any(|missing| missing == *name))
        .collect();
    if !missing.is_empty() {
        let names = missing.join(",");
        notices.push(format!("--enable-admission-plugins={names} has no effect: this server does not have them, and admits what they would refuse"));
    }
    let gates: Vec<&str> = flags.list("feature-gates").collect();
    if !gates.is_empty() {
        notices.push(format!("--feature-gates={} has no effect: there are no gates here", gates.join(",")));
    }
    let given = |name| flags.last(name).is_some_and(|text| !text.is_empty());
    match (given("audit-policy-file"), given("audit-log-path")) {
        (true, false) => {
            notices.push("--audit-policy-file has no effect without --audit-log-path: there is no audit log".to_owned())
        }
        (false, true) => notices
            .push("--audit-log-path has no effect without --audit-policy-file: no events are recorded".to_owned()),
        _ => {}
    }
    let others = flags.without_effect();
    notices.extend(others.map(|name| format!("--{name} has no effect")));
    notices
}

/// The names that a certificate is made for: those of the service `kubernetes`, the address, and the machine itself.
pub(super) fn certificate_names(bind: &SocketAddr) -> Vec<String> {
    let service =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    let mut names: Vec<String> = service.map(str::to_owned).into();
    if !bind.ip().is_unspecified() {
        names.push(bind.ip().to_string());
    }
    names
}

impl Pair {
    /// The paths of the certificate and the key.
    pub(super) fn paths(&self) -> (&Path, &Path) {
        match self {
            Self::Given { certificate, key } | Self::Kept { certificate, key } => (certificate, key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: &str =
        "--etcd-servers=http://a:1 --service-account-issuer=https://a --service-account-signing-key-file=key";

    fn settings(line: &str) -> Result<Settings, String> {
        Settings::new(&Flags::parse(line.split_whitespace().map(str::to_owned))?)
    }

    #[test]
    fn what_is_refused() {
        for (line, expect) in [
            (
                "",
                "[--etcd-servers must be specified, service-account-issuer is a required flag, \
                 --service-account-signing-key-file and --service-account-issuer are required flags]",
            ),
            ("--feature-gates=Nonsense=true", "unrecognized feature gate: Nonsense"),
            ("--feature-gates=AllAlpha", "missing bool value for AllAlpha"),
            (
                "--feature-gates=AllAlpha=maybe",
                r#"invalid value of AllAlpha=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax"#,
            ),
        ] {
            assert_eq!(settings(line).map(|_| ()), Err(expect.to_owned()), "{line}");
        }
        for (line, expect) in [
            (
                "--secure-port=0",
                "--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
            ),
            ("--authorization-mode=Nonsense", r#"authorization-mode "Nonsense" is not a valid mode"#),
            (
                "--authorization-mode=RBAC,RBAC",
                r#"authorization-mode ["RBAC" "RBAC"] has mode specified more than once"#,
            ),
            ("--authorization-mode=ABAC", "authorization-mode ABAC's authorization policy file not passed"),
            ("--authorization-mode=Webhook", "authorization-mode Webhook's authorization config file not passed"),
            ("--authorization-policy-file=a", "cannot specify --authorization-policy-file without mode ABAC"),
            (
                "--authorization-mode=Node,ABAC --authorization-policy-file=a",
                r#"authorization-mode "ABAC" does not exist here; there are AlwaysAllow, AlwaysDeny, RBAC and Node"#,
            ),
            (
                "--authorization-config=a",
                "--authorization-config cannot be read here; use --authorization-mode: there are AlwaysAllow, AlwaysDeny, RBAC and Node",
            ),
            (
                "--oidc-issuer-url=https://a",
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            ),
            (
                "--oidc-groups-claim=groups",
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            ),
            (
                "--authentication-config=a --oidc-client-id=b",
                "authentication-config file and oidc-* flags are mutually exclusive",
            ),
            ("--max-requests-inflight=-1", "--max-requests-inflight can not be negative value"),
            (
                "--service-node-port-range=9-1",
                r#"--service-node-port-range "9-1" must be a range of ports from a smaller to a larger one, without 0"#,
            ),
            (
                "--tls-cert-file=a.crt",
                "missing filename for serving cert: --tls-cert-file and --tls-private-key-file go together",
            ),
            (
                "--tls-private-key-file=a.key",
                "missing filename for serving cert: --tls-cert-file and --tls-private-key-file go together",
            ),
            (
                "--audit-log-path=a --audit-log-mode=x",
                r#"invalid audit log mode x, allowed modes are "batch,blocking,blocking-strict""#,
            ),
            (
                "--audit-log-path=a --audit-log-mode=batch --audit-log-batch-buffer-size=0",
                "invalid audit batch log buffer size 0, must be a positive number",
            ),
            (
                "--audit-log-path=a --audit-log-truncate-max-event-size=9 --audit-log-truncate-max-batch-size=8",
                "invalid audit truncate log max batch size 8, must be greater than max event size (9)",
            ),
            (
                "--audit-log-path=a --audit-log-version=audit.k8s.io/v1beta1",
                r#"invalid group version, allowed versions are ["audit.k8s.io/v1"]"#,
            ),
            (
                "--audit-log-path=a --audit-log-format=xml",
                r#"invalid audit log format xml, allowed formats are "legacy,json""#,
            ),
            (
                "--audit-log-path=- --audit-log-maxage=-1 --audit-log-maxsize=-2",
                "[--audit-log-maxage -1 can't be a negative number, --audit-log-maxsize -2 can't be a negative number]",
            ),
            ("--disable-admission-plugins=X", r#"disable-admission-plugins plugin "X" is unknown"#),
            ("--enable-admission-plugins=X", r#"enable-admission-plugins plugin "X" is unknown"#),
            (
                "--enable-admission-plugins=Priority --disable-admission-plugins=Priority",
                "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
            ),
        ] {
            assert_eq!(settings(&format!("{REQUIRED} {line}")).map(|_| ()), Err(expect.to_owned()), "{line}");
        }
    }

    #[test]
    fn what_envtest_passes() {
        let settings = settings(&format!(
            "{REQUIRED} --allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 --cert-dir=/certs \
             --client-ca-file=/certs/client-cert-auth-ca.crt --disable-admission-plugins=ServiceAccount --secure-port=40000 \
             --service-account-key-file=/certs/sa-signer.crt --service-cluster-ip-range=10.0.0.0/24"
        ))
        .expect("nothing is refused");
        assert_eq!(settings.bind.to_string(), "127.0.0.1:40000");
        let (certificate, key) = ("/certs/apiserver.crt".into(), "/certs/apiserver.key".into());
        assert_eq!(settings.certificate, Pair::Kept { certificate, key });
        assert_eq!(settings.client_ca.as_deref(), Some(Path::new("/certs/client-cert-auth-ca.crt")));
        assert!(settings.anonymous && matches!(settings.authorization.as_slice(), [AuthorizationMode::Rbac]));
        assert!(!settings.collects_garbage);
        assert_eq!(settings.service_ranges.cluster_ips.to_string(), "10.0.0.0/24");
        assert!(settings.admission.is_enabled("Priority") && !settings.admission.is_enabled("ServiceAccount"));
        let named: Vec<&str> = settings.notices.iter().filter_map(|notice| notice.split([' ', '=']).next()).collect();
        assert_eq!(named, ["--etcd-servers"]);
    }

    #[test]
    fn the_audit_log() {
        let of = |line: &str| settings(&format!("{REQUIRED} {line}")).expect("settings");
        assert_eq!(of("--audit-log-maxsize=-1 --audit-log-mode=x").audit_log, None, "is switched off");
        let defaults = of("--audit-log-path=a.log").audit_log.expect("a log");
        assert_eq!(defaults, AuditLogOptions::new(audit::output(Path::new("a.log"))));
        let log = of("--audit-log-path=- --audit-log-mode=batch --audit-log-format=legacy --audit-log-maxsize=1 \
                      --audit-log-maxage=2 --audit-log-maxbackup=3 --audit-log-compress --audit-log-batch-buffer-size=4 \
                      --audit-log-truncate-enabled --audit-log-truncate-max-event-size=5");
        let mut expect = AuditLogOptions::new(konverge_apiserver::AuditOutput::Stdout);
        (expect.mode, expect.format, expect.compress) = (AuditMode::Batch, AuditFormat::Legacy, true);
        (expect.max_size, expect.max_age, expect.max_backups, expect.buffer) = (1, 2, 3, 4);
        expect.max_event_bytes = Some(5);
        assert_eq!(log.audit_log, Some(expect));
        for (line, expect) in [
            (
                "--audit-log-path=a",
                "--audit-log-path has no effect without --audit-policy-file: no events are recorded",
            ),
            (
                "--audit-policy-file=a",
                "--audit-policy-file has no effect without --audit-log-path: there is no audit log",
            ),
            ("--audit-webhook-mode=batch", "--audit-webhook-mode has no effect"),
            ("--audit-log-batch-max-wait=1s", "--audit-log-batch-max-wait has no effect"),
        ] {
            assert_eq!(of(line).notices[1..], [expect], "{line}");
        }
        assert_eq!(of("--audit-log-path=a --audit-policy-file=b").notices.len(), 1);
    }

    #[test]
    fn privileged_containers() {
        for (line, expect) in [
            ("", PrivilegedContainers::Refused),
            ("--allow-privileged=false", PrivilegedContainers::Refused),
            ("--allow-privileged", PrivilegedContainers::Allowed),
            ("--allow-privileged=true", PrivilegedContainers::Allowed),
        ] {
            assert_eq!(settings(&format!("{REQUIRED} {line}")).expect("settings").privileged, expect, "{line}");
        }
    }

    #[test]
    fn who_is_anonymous() {
        for (line, anonymous) in [
            ("--authorization-mode=RBAC", true),
            ("--authorization-mode=RBAC --anonymous-auth=false", false),
            ("--authorization-mode=AlwaysAllow", false),
            ("--authorization-mode=Node,AlwaysAllow", false),
            ("", false),
        ] {
            assert_eq!(settings(&format!("{REQUIRED} {line}")).expect("settings").anonymous, anonymous, "{line}");
        }
    }
}
