//! Two replicas and an API server through ten rotations: listeners, handshakes and a Secret with versions are real, the time is not.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use konverge_serve::{BindOptions, Listener, RequestBody, Server, Tls};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tower_service::Service;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const NAME: &str = "shop-webhook-cert";

/// An API server with Secrets: a write has to have the version that is stored.
#[derive(Clone, Default)]
struct Secrets(Arc<Mutex<BTreeMap<String, Value>>>);

impl Secrets {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let mut stored = self.0.lock();
        let refused = |code: StatusCode| {
            let reason = if code == StatusCode::NOT_FOUND { "NotFound" } else { "Conflict" };
            (code, json!({"status": "Failure", "code": code.as_u16(), "message": "", "reason": reason}))
        };
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let version =
            |secret: &Value| secret["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok());
        match (method.as_str(), stored.get(name)) {
            ("GET", Some(found)) => (StatusCode::OK, found.clone()),
            ("GET", None) => refused(StatusCode::NOT_FOUND),
            ("PUT", Some(found)) if version(found) == version(&sent) => {
                sent["metadata"]["resourceVersion"] = (version(found).unwrap_or(0) + 1).to_string().into();
                stored.insert(name.to_owned(), sent.clone());
                (StatusCode::OK, sent)
            }
            ("POST", None) if !stored.contains_key(NAME) => {
                sent["metadata"]["resourceVersion"] = "1".into();
                stored.insert(NAME.to_owned(), sent.clone());
                (StatusCode::CREATED, sent)
            }
            _ => refused(StatusCode::CONFLICT),
        }
    }

    /// What the guide says to force a rotation: the key of the CA is removed.
    fn remove_key(&self) {
        let mut stored = self.0.lock();
        let secret = stored.get_mut(NAME).expect("there is a Secret");
        secret["data"].as_object_mut().expect("it has data").remove(CA_KEY);
        let version = secret["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
        secret["metadata"]["resourceVersion"] = (version + 1).to_string().into();
    }
}

impl Service<Request<Body>> for Secrets {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let secrets = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            // Others may come between a read and a write.
            tokio::task::yield_now().await;
            let (code, answer) = secrets.answer(&head.method, head.uri.path(), &body);
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = code;
            Ok(response)
        })
    }
}

/// Answers every request.
#[derive(Clone)]
struct Hello;

impl Service<Request<RequestBody>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        std::future::ready(Ok(Response::new(Full::new(Bytes::from_static(b"hello")))))
    }
}

/// A replica of an operator: as `registration` does, it looks, serves, and then tells.
struct Replica {
    trust: Trust,
    certificates: Certificates,
    server: Server,
    known: Option<SharedCertificates>,
}

impl Replica {
    fn new(secrets: &Secrets) -> Self {
        let client = Client::new(secrets.clone(), "shop");
        let names = vec!["localhost".to_owned()];
        let certificates = Certificates::in_memory(&names, SystemTime::now()).unwrap();
        let options = BindOptions { port: 0, tls: Tls::On(certificates.clone()), ..BindOptions::default() };
        let server = Listener::bind(options).unwrap().serve(Hello);
        Self { trust: Trust::in_secret(client, "shop", NAME.to_owned(), names), certificates, server, known: None }
    }

    /// One look. Returns what API servers are told.
    async fn step(&mut self, now: SystemTime) -> String {
        let shared = self.trust.look(self.known.as_ref(), now).await.unwrap();
        serve(&self.certificates, &shared).unwrap();
        let bundle = shared.ca_pem.clone();
        self.known = Some(shared);
        bundle
    }

    /// Whether an API server that trusts this bundle gets an answer over a new connection.
    async fn answers(&self, bundle: &str) -> Result<(), String> {
        let mut config = kube::Config::new(format!("https://{}", self.server.local_addr()).parse().unwrap());
        let certificates = bundle.split_inclusive("-----END CERTIFICATE-----\n").map(|pem| {
            let text: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
            BASE64_STANDARD.decode(text).unwrap()
        });
        config.root_cert = Some(certificates.collect());
        let client = Client::try_from(config).map_err(|error| error.to_string())?;
        let request = Request::post("/").body(Vec::new()).unwrap();
        client.request_text(request).await.map(drop).map_err(|error| format!("{error:?}"))
    }
}

fn authorities(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

fn first_authority(bundle: &str) -> &str {
    bundle.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap_or_default()
}

/// Both replicas look once a minute, one half a minute after the other. `every` is the time between two forced rotations.
async fn ten_rotations(every: Duration) {
    let secrets = Secrets::default();
    let (mut first, mut second) = (Replica::new(&secrets), Replica::new(&secrets));
    // Certificates are judged by the clock of this machine, so that all of it ends now.
    let mut now = SystemTime::now() - 10 * every - 60 * MINUTE;
    // They begin at the same time, and only one of them makes the CA.
    let (told, also_told) = tokio::join!(first.step(now), second.step(now));
    assert_eq!(told, also_told);
    let (mut told, mut seen) = (told, Vec::new());
    for rotation in 0..10 {
        secrets.remove_key();
        let ends = now + every;
        while now < ends {
            now += MINUTE / 2;
            for at in 0..2 {
                let replica = if at == 0 { &mut first } else { &mut second };
                // Certificates are served before API servers are told, and afterwards.
                let bundle = replica.step(now).await;
                replica.answers(&told).await.unwrap_or_else(|why| panic!("rotation {rotation}, before: {why}"));
                told = bundle;
                for replica in [&first, &second] {
                    replica.answers(&told).await.unwrap_or_else(|why| panic!("rotation {rotation}: {why}"));
                }
                now += MINUTE / 2;
            }
        }
        let (ours, theirs) = (first.step(now).await, second.step(now).await);
        assert_eq!(first_authority(&ours), first_authority(&theirs), "both have the same CA");
        assert!(!seen.contains(&first_authority(&ours).to_owned()), "it is a new one");
        assert!(authorities(&ours) <= 5, "{} CAs", authorities(&ours));
        seen.push(first_authority(&ours).to_owned());
    }
    for _ in 0..30 {
        now += MINUTE;
        told = first.step(now).await;
        assert_eq!(second.step(now).await, told);
        first.answers(&told).await.unwrap();
        second.answers(&told).await.unwrap();
    }
    assert_eq!((authorities(&told), first_authority(&told)), (1, seen[9].as_str()), "the former ones are forgotten");
}

#[tokio::test]
async fn replicas_share_one_ca_through_ten_rotations() {
    ten_rotations(25 * MINUTE).await;
}

/// Somebody forces rotations faster than a new CA comes into use.
#[tokio::test]
async fn replicas_share_one_ca_through_hasty_rotations() {
    ten_rotations(2 * MINUTE).await;
}

#[cfg(unix)]
#[test]
fn whose_files_are_used_without_being_asked_for() {
    for (owner, mode, user, expect) in [
        // As a kubelet mounts them, and as a developer puts them there.
        (0, 0o100_644, 65532, Ok(())),
        (0, 0o100_440, 65532, Ok(())),
        (1000, 0o100_600, 1000, Ok(())),
        (1000, 0o100_660, 1000, Ok(())),
        (1001, 0o100_644, 1000, Err("it belongs to the user 1001, and this process runs as 1000")),
        (1001, 0o100_644, 0, Err("it belongs to the user 1001, and this process runs as 0")),
        (1000, 0o100_666, 1000, Err("every user may write it (mode 666)")),
    ] {
        assert_eq!(judge_owner(owner, mode, user), expect.map_err(str::to_owned), "{owner} {mode:o} {user}");
    }
}

#[cfg(unix)]
#[test]
fn files_that_anybody_may_write_are_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let has_certificate = || Trust::UsualDirectory(folder.path().to_owned()).has_certificate();
    assert!(!has_certificate(), "there is none");
    for name in [CERTIFICATE, KEY, CA] {
        let path = folder.path().join(name);
        std::fs::write(&path, name).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    assert!(has_certificate());
    for name in [CERTIFICATE, KEY, CA] {
        let mode = |mode| std::fs::set_permissions(folder.path().join(name), std::fs::Permissions::from_mode(mode));
        mode(0o646).unwrap();
        assert!(!has_certificate(), "{name}");
        assert!(Trust::Directory(folder.path().to_owned()).has_certificate(), "one that settings name is trusted");
        mode(0o644).unwrap();
    }
}
