//! What the flags of kube-apiserver mean here. In: flags. Out: how to run the server, and a sentence for each flag that has
//! no effect; or the refusal in the words of kube-apiserver.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use konverge_apiserver::{AdmissionPlugins, PluginError};

use super::authorization::{Authorization, MODES};
use super::flags::{Flags, quoted};

const FEATURE_GATES: &str = include_str!("../../data/kube-apiserver/feature-gates.txt");

/// The directory in which kube-apiserver keeps a certificate that it made itself.
const CERT_DIR: &str = "/var/run/kubernetes";

/// Flags that are obeyed, or whose only values are already what this server does.
const OBEYED: [&str; 21] = [
    "allow-privileged",
    "anonymous-auth",
    "authorization-mode",
    "bind-address",
    "cert-dir",
    "client-ca-file",
    "disable-admission-plugins",
    "enable-admission-plugins",
    "enable-garbage-collector",
    "feature-gates",
    "etcd-servers",
    "help",
    "logging-format",
    "secure-port",
    "service-account-issuer",
    "service-account-signing-key-file",
    "tls-cert-file",
    "tls-private-key-file",
    "token-auth-file",
    "v",
    "version",
];

/// How to run the server.
#[derive(Debug)]
pub(super) struct Settings {
    pub bind: SocketAddr,
    pub certificate: Pair,
    pub client_ca: Option<PathBuf>,
    pub tokens: Option<PathBuf>,
    pub anonymous: bool,
    pub authorization: Authorization,
    pub admission: AdmissionPlugins,
    pub collects_garbage: bool,
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
        let mut refused = check_feature_gates(flags);
        if refused.is_empty() {
            refused = check(flags);
        }
        match refused.as_slice() {
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
            _ => {
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
            // As in kube-apiserver, nobody is anonymous where everybody may do everything.
            anonymous: flags.is_set("anonymous-auth", true) && authorization != Authorization::Allow,
            authorization,
            admission: admission(flags).map_err(|error| error.to_string())?,
            // Beside kube-apiserver this is the work of kube-controller-manager, which envtest does not start, and tests
            // rely on that: some finalize the namespaces that they delete. Whoever wants it asks for it.
            collects_garbage: flags.is_set("enable-garbage-collector", false),
            verbosity: flags.last("v").and_then(|text| text.parse().ok()).unwrap_or_default(),
            notices: notices(flags, authorization),
        })
    }
}

fn port(flags: &Flags) -> i64 {
    flags.last("secure-port").and_then(|text| text.parse().ok()).unwrap_or(6443)
}

fn authorization(flags: &Flags) -> Authorization {
    let modes: Vec<&str> = flags.list("authorization-mode").collect();
    match modes.as_slice() {
        [] | ["AlwaysAllow", ..] => Authorization::Allow,
        ["AlwaysDeny"] => Authorization::Deny,
        _ => Authorization::Authenticated,
    }
}

/// The plugins that kube-apiserver would run.
fn admission(flags: &Flags) -> Result<AdmissionPlugins, PluginError> {
    let list = |name| flags.list(name).collect::<Vec<&str>>();
    AdmissionPlugins::kubernetes().with(&list("enable-admission-plugins"), &list("disable-admission-plugins"))
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

/// What kube-apiserver refuses, too.
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
    let given = |name| flags.last(name).is_some_and(|text| !text.is_empty());
    if !given("service-account-issuer") {
        refused.push("service-account-issuer is a required flag".to_owned());
    }
    let modes: Vec<&str> = flags.list("authorization-mode").collect();
    for mode in modes.iter().filter(|mode| !MODES.contains(mode)) {
        refused.push(format!("authorization-mode {mode:?} is not a valid mode"));
    }
    if modes.iter().enumerate().any(|(at, mode)| modes[..at].contains(mode)) {
        refused.push(format!("authorization-mode [{}] has mode specified more than once", quoted(&modes)));
    }
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

/// A sentence for each flag that asks for something this server does not do.
fn notices(flags: &Flags, authorization: Authorization) -> Vec<String> {
    let mut notices = vec![
        "--etcd-servers has no effect: objects are kept in memory and are gone when this process ends".to_owned(),
        "--service-account-signing-key-file has no effect: no tokens of service accounts are issued".to_owned(),
    ];
    if authorization == Authorization::Authenticated {
        let modes: Vec<&str> = flags.list("authorization-mode").collect();
        notices.push(format!(
            "--authorization-mode={} has little effect: roles are not evaluated, and every authenticated user may do everything",
            modes.join(",")
        ));
    }
    if flags.last("allow-privileged").is_some() && !flags.is_set("allow-privileged", true) {
        notices.push("--allow-privileged=false has no effect: privileged containers are allowed".to_owned());
    }
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
    if flags.last("service-cluster-ip-range").is_some() {
        notices.push("--service-cluster-ip-range has no effect: services get addresses of 10.96.0.0/16".to_owned());
    }
    let others = flags.names().filter(|name| !OBEYED.contains(name) && *name != "service-cluster-ip-range");
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
        assert_eq!((settings.anonymous, settings.authorization), (true, Authorization::Authenticated));
        assert!(!settings.collects_garbage);
        assert!(settings.admission.is_enabled("Priority") && !settings.admission.is_enabled("ServiceAccount"));
        let named: Vec<&str> = settings.notices.iter().filter_map(|notice| notice.split([' ', '=']).next()).collect();
        assert_eq!(
            named,
            [
                "--etcd-servers",
                "--service-account-signing-key-file",
                "--authorization-mode",
                "--service-cluster-ip-range",
                "--service-account-key-file"
            ]
        );
    }

    #[test]
    fn who_is_anonymous() {
        for (line, anonymous) in [
            ("--authorization-mode=RBAC", true),
            ("--authorization-mode=RBAC --anonymous-auth=false", false),
            ("--authorization-mode=AlwaysAllow", false),
            ("", false),
        ] {
            assert_eq!(settings(&format!("{REQUIRED} {line}")).expect("settings").anonymous, anonymous, "{line}");
        }
    }

    #[test]
    fn every_obeyed_flag_exists() {
        for name in OBEYED {
            let value = if name == "bind-address" { "::1" } else { "1" };
            Flags::parse([format!("--{name}={value}")]).expect("a flag of kube-apiserver");
        }
    }
}
