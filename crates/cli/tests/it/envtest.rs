//! What `konverge envtest` writes, started as envtest starts it: `etcd` that is asked for its health, and `kube-apiserver` with
//! the flags and certificates of a test.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use ::konverge::k8s_openapi::api::core::v1::Namespace;
use ::konverge::kube;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

use crate::konverge::{PATIENCE, runs};

/// A program from the directory, killed if the test fails.
pub(crate) struct Program {
    child: Child,
}

impl Program {
    pub(crate) fn start(assets: &Path, name: &str, arguments: &[String]) -> Self {
        let child = Command::new(assets.join(name)).args(arguments).stderr(Stdio::piped()).spawn().expect("it starts");
        Program { child }
    }

    /// Asks it to stop; returns its exit code and what it said on stderr.
    pub(crate) fn stop(mut self) -> (Option<i32>, String) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
        self.ends()
    }

    fn ends(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        (self.child.wait().expect("it ends").code(), said)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The directory that `konverge envtest` writes.
pub(crate) fn assets(directory: &Path) -> PathBuf {
    let said = runs(directory, &["envtest", "assets"]);
    assert!(said.starts_with("wrote kube-apiserver, etcd"), "{said}");
    let line = runs(directory, &["envtest", "env", "assets"]);
    let path = line.trim_end().strip_prefix("export KUBEBUILDER_ASSETS=").expect("a line for a shell");
    assert_eq!(Path::new(path), fs::canonicalize(directory.join("assets")).expect("a directory"));
    path.into()
}

/// A port that nobody uses now, found as envtest finds it.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Polls until `look` finds something, as envtest polls.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what} did not happen");
}

/// The answer to a plain request; none if nobody listens.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    std::io::Write::write_all(&mut stream, request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn etcd_is_healthy_and_stores_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let assets = assets(directory.path());
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let arguments = [
        format!("--advertise-client-urls={url}"),
        format!("--data-dir={}", directory.path().display()),
        format!("--listen-client-urls={url}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
    ];
    let etcd = Program::start(&assets, "etcd", &arguments);
    let health = eventually("an answer", || get(port, "/health"));
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with(r#"{"health":"true","reason":""}"#), "{health}");
    assert!(get(port, "/v3/kv/put").expect("an answer").starts_with("HTTP/1.1 404"));
    let (code, said) = etcd.stop();
    assert_eq!(code, Some(0));
    assert!(said.contains("stores nothing") && said.contains("--data-dir has no effect"), "{said}");
}

/// A CA for clients, and clients of it.
pub(crate) struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority { params, key: KeyPair::generate().expect("a key") }
    }

    pub(crate) fn pem(&self) -> String {
        self.params.self_signed(&self.key).expect("a certificate").pem()
    }

    /// The certificate and key of a user, as PEM.
    pub(crate) fn user(&self, name: &str, group: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &Issuer::new(self.params.clone(), &self.key)).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

/// Who asks.
enum Credential {
    Nothing,
    Certificate((String, String)),
    Token(&'static str),
}

/// How many namespaces a client sees, or the code and the message of the refusal.
fn namespaces(port: u16, ca: &Path, credential: &Credential) -> Result<usize, (u16, String)> {
    let user = match credential {
        Credential::Nothing => "{}".to_owned(),
        Credential::Token(token) => format!("{{token: {token}}}"),
        Credential::Certificate((certificate, key)) => {
            let directory = ca.parent().expect("a directory");
            fs::write(directory.join("user.crt"), certificate).expect("written");
            fs::write(directory.join("user.key"), key).expect("written");
            let path = |name: &str| directory.join(name).display().to_string();
            format!("{{client-certificate: {}, client-key: {}}}", path("user.crt"), path("user.key"))
        }
    };
    let text = format!(
        "{{clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: {}}}}}], \
         users: [{{name: a, user: {user}}}], contexts: [{{name: a, context: {{cluster: a, user: a}}}}], current-context: a}}",
        ca.display()
    );
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).expect("a kubeconfig");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a config");
        let client = kube::Client::try_from(config).expect("a client");
        match kube::Api::<Namespace>::all(client).list(&Default::default()).await {
            Ok(list) => Ok(list.items.len()),
            Err(kube::Error::Api(status)) => Err((status.code, status.message)),
            Err(other) => panic!("{other}"),
        }
    })
}

#[test]
fn kube_apiserver_believes_the_client_ca() {
    let directory = tempfile::tempdir().expect("a directory");
    let assets = assets(directory.path());
    let certs = directory.path().join("certs");
    fs::create_dir(&certs).expect("a directory");
    let (ours, theirs) = (Authority::new(), Authority::new());
    fs::write(certs.join("clients.crt"), ours.pem()).expect("written");
    fs::write(certs.join("tokens.csv"), "secret,bob,7\n").expect("written");
    let key = rcgen::KeyPair::generate().expect("a key");
    fs::write(certs.join("sa-signer.key"), key.serialize_pem()).expect("written");
    let start = |port: u16, more: &[&str]| {
        let path = |name: &str| certs.join(name).display().to_string();
        let mut arguments = vec![
            format!("--cert-dir={}", certs.display()),
            format!("--client-ca-file={}", path("clients.crt")),
            format!("--token-auth-file={}", path("tokens.csv")),
            format!("--secure-port={port}"),
            format!("--service-account-issuer=https://127.0.0.1:{port}/"),
            format!("--service-account-signing-key-file={}", path("sa-signer.key")),
            "--bind-address=127.0.0.1".to_owned(),
            "--etcd-servers=http://127.0.0.1:1".to_owned(),
        ];
        arguments.extend(more.iter().map(|flag| (*flag).to_owned()));
        Program::start(&assets, "kube-apiserver", &arguments)
    };
    let ca = certs.join("ca.crt");
    let ready = |port: u16| {
        eventually("a port", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        // The chain that the server made for itself ends with its CA.
        let chain = fs::read_to_string(certs.join("apiserver.crt")).expect("made by the server");
        let begin = chain.rfind("-----BEGIN").expect("a certificate");
        fs::write(&ca, &chain[begin..]).expect("written");
    };
    let alice = || Credential::Certificate(ours.user("alice", "developers"));
    let forbidden = |user: &str| {
        let why = "cannot list resource \"namespaces\" in API group \"\" at the cluster scope";
        Err((403, format!("namespaces is forbidden: User {user:?} {why}")))
    };
    let unauthorized = || Err((401, "Unauthorized".to_owned()));

    let port = free_port();
    let server = start(port, &["--authorization-mode=RBAC"]);
    ready(port);
    for (who, credential, expect) in [
        ("an administrator", Credential::Certificate(ours.user("carol", "system:masters")), Ok(4)),
        ("alice", alice(), forbidden("alice")),
        ("bob", Credential::Token("secret"), forbidden("bob")),
        ("nobody", Credential::Nothing, forbidden("system:anonymous")),
        ("a stranger", Credential::Certificate(theirs.user("alice", "developers")), unauthorized()),
        ("a wrong token", Credential::Token("nonsense"), unauthorized()),
    ] {
        assert_eq!(namespaces(port, &ca, &credential), expect, "{who}");
    }
    let (code, said) = server.stop();
    assert_eq!(code, Some(0));
    assert!(said.contains("kube-apiserver: --etcd-servers has no effect: objects are kept in memory"), "{said}");

    // Where everybody may do everything, nobody is anonymous.
    let port = free_port();
    let server = start(port, &[]);
    ready(port);
    assert_eq!(namespaces(port, &ca, &alice()), Ok(4));
    assert_eq!(namespaces(port, &ca, &Credential::Nothing), unauthorized());
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn flags_are_refused_as_by_kube_apiserver() {
    let directory = tempfile::tempdir().expect("a directory");
    let assets = assets(directory.path());
    for (flags, expect) in [
        (&["--nonsense"][..], "Error: unknown flag: --nonsense\n"),
        (&["--feature-gates=Nonsense=true"], "Error: unrecognized feature gate: Nonsense\n"),
        (&["--secure-port"], "Error: flag needs an argument: --secure-port\n"),
    ] {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (code, said) = Program::start(&assets, "kube-apiserver", &flags).ends();
        assert_eq!((code, said.as_str()), (Some(1), expect), "{flags:?}");
    }
}
