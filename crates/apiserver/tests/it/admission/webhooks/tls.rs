//! Webhooks over the network: certificates, connections, Services.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use konverge_apiserver::{Options, WebhookIdentity};

use crate::cluster::{CONFIG_MAPS, Cluster, config_map};

use super::{VALIDATING, configuration, hook};

/// A webhook that allows everything, and counts connections.
struct Listening {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    served: Served,
}

/// A CA, and a certificate of it for a name.
fn certificate(name: &str) -> (String, Arc<CertifiedKey>) {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    (ca.as_ref().pem(), certified(leaf.der().clone(), &key))
}

/// A certificate that signs itself and says that it is a CA, as `openssl req -x509` makes it.
fn self_signed(name: &str) -> (String, Arc<CertifiedKey>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), certified(certificate.der().clone(), &key))
}

/// A certificate that is trusted itself, and not the CA that signed it, as envtest does it.
fn pinned(name: &str) -> (String, Arc<CertifiedKey>) {
    let ca = CertifiedIssuer::self_signed(CertificateParams::new(Vec::new()).unwrap(), KeyPair::generate().unwrap())
        .unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    (leaf.pem(), certified(leaf.der().clone(), &key))
}

fn certified(certificate: CertificateDer<'static>, key: &KeyPair) -> Arc<CertifiedKey> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    Arc::new(CertifiedKey::new(vec![certificate], key))
}

/// A certificate that is served until it is replaced.
#[derive(Clone, Debug)]
struct Served(Arc<Mutex<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.lock().unwrap().clone())
    }
}

async fn listen(certificate: Arc<CertifiedKey>) -> Listening {
    listen_to(certificate, None).await
}

/// The same, for clients with a certificate of this CA only.
async fn listen_to(certificate: Arc<CertifiedKey>, clients: Option<CertificateDer<'static>>) -> Listening {
    let served = Served(Arc::new(Mutex::new(certificate)));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(ca).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(served.clone()));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections: Arc<AtomicUsize> = Arc::default();
    let (acceptor, counted) = (TlsAcceptor::from(Arc::new(config)), connections.clone());
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let (acceptor, counted) = (acceptor.clone(), counted.clone());
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                counted.fetch_add(1, SeqCst);
                let answer = service_fn(async |request: Request<Incoming>| {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let review: Value = serde_json::from_slice(&body).unwrap();
                    let response = json!({"uid": review["request"]["uid"], "allowed": true});
                    let body =
                        json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
                    Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(body.to_string()))))
                });
                drop(auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), answer).await);
            });
        }
    });
    Listening { address, connections, served }
}

async fn configure(cluster: &Cluster, client: Value) {
    let made = configuration("c", &[hook("h", &json!({"clientConfig": client}))]);
    cluster.post(VALIDATING, &made).await.expect(201);
}

/// What a request is answered by a webhook that is reached like this.
async fn words(client: Value) -> String {
    let cluster = Cluster::new().await;
    configure(&cluster, client).await;
    let said = cluster.post(CONFIG_MAPS, &config_map("a")).await.fails(500, "InternalError");
    let start = "Internal error occurred: failed calling webhook \"h.example.com\": ";
    said.strip_prefix(start).unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[tokio::test]
async fn a_webhook_is_called_over_https_and_its_connection_is_kept() {
    for (pem, config) in [certificate("127.0.0.1"), self_signed("127.0.0.1"), pinned("127.0.0.1")] {
        let (cluster, webhook) = (Cluster::new().await, listen(config).await);
        let url = format!("https://{}/check", webhook.address);
        configure(&cluster, json!({"url": url, "caBundle": BASE64_STANDARD.encode(pem)})).await;
        for name in ["a", "b", "c"] {
            cluster.post(CONFIG_MAPS, &config_map(name)).await.expect(201);
        }
        assert_eq!(webhook.connections.load(SeqCst), 1);
    }
}

#[tokio::test]
async fn webhooks_that_ask_for_a_certificate_see_one() {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["apiserver".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let identity = WebhookIdentity::from_pem(leaf.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    let other = KeyPair::generate().unwrap().serialize_pem();
    for (certificate, key, expect) in [
        ("", &key.serialize_pem(), "there is no certificate in PEM"),
        (&leaf.pem(), &String::new(), "the key cannot be read"),
        (&leaf.pem(), &other, "the key does not belong to the certificate"),
    ] {
        let refused = WebhookIdentity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
        assert!(refused.starts_with(expect), "{refused}");
    }
    let (pem, served) = certificate("127.0.0.1");
    let webhook = listen_to(served, Some(ca.as_ref().der().clone())).await;
    let client = json!({"url": format!("https://{}/check", webhook.address), "caBundle": BASE64_STANDARD.encode(pem)});
    for (webhook_identity, code) in [(Some(identity), 201), (None, 500)] {
        let cluster = Cluster::with(|options| Options { webhook_identity, ..options }).await;
        configure(&cluster, client.clone()).await;
        cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(code);
    }
}

#[tokio::test]
async fn a_service_is_found_by_its_annotation() {
    let cluster = Cluster::new().await;
    let (pem, config) = certificate("w.default.svc");
    let webhook = listen(config).await;
    let service = json!({"name": "w", "namespace": "default", "path": "/check"});
    configure(&cluster, json!({"service": service, "caBundle": BASE64_STANDARD.encode(pem)})).await;
    let failed = |why: &str| {
        format!(
            "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: Post \
             \"https://w.default.svc:443/check?timeout=10s\": {why}"
        )
    };
    let said = cluster.post(CONFIG_MAPS, &config_map("a")).await.fails(500, "InternalError");
    assert_eq!(said, failed("service \"w\" not found"));
    let services = "/api/v1/namespaces/default/services";
    let made = json!({"metadata": {"name": "w"}, "spec": {"ports": [{"port": 443}]}});
    cluster.post(services, &made).await.expect(201);
    let said = cluster.post(CONFIG_MAPS, &config_map("a")).await.fails(500, "InternalError");
    assert!(said.contains("kubectl annotate service -n default w konverge.dev/address=127.0.0.1:9443"), "{said}");
    let annotations = json!({"konverge.dev/address": webhook.address.to_string()});
    let annotated = json!({"metadata": {"annotations": annotations}});
    cluster.patch(&format!("{services}/w"), crate::cluster::MERGE, &annotated).await.expect(200);
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
}

#[tokio::test]
async fn failures_have_the_words_of_go() {
    let (pem, config) = certificate("other.example.com");
    let (bundle, webhook) = (BASE64_STANDARD.encode(pem), listen(config).await);
    let url = format!("https://{}/check", webhook.address);
    let post = |why: &str| format!("failed to call webhook: Post \"{url}?timeout=10s\": {why}");
    let x509 = "tls: failed to verify certificate: x509: certificate";
    assert_eq!(
        words(json!({"url": url, "caBundle": bundle})).await,
        post(&format!("{x509} is valid for other.example.com, not 127.0.0.1"))
    );
    let (pin, certificate_of_other) = pinned("other.example.com");
    let other = listen(certificate_of_other).await;
    let said =
        words(json!({"url": format!("https://{}/", other.address), "caBundle": BASE64_STANDARD.encode(pin)})).await;
    assert!(said.ends_with("certificate is valid for other.example.com, not 127.0.0.1"), "{said}");
    let (stranger, _) = certificate("x");
    assert_eq!(
        words(json!({"url": url, "caBundle": BASE64_STANDARD.encode(stranger)})).await,
        post(&format!("{x509} signed by unknown authority"))
    );
    assert_eq!(
        words(json!({"url": url, "caBundle": BASE64_STANDARD.encode("nonsense")})).await,
        "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
    );
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let said = words(json!({"url": format!("https://{address}/"), "caBundle": bundle})).await;
    assert_eq!(
        said,
        format!(
            "failed to call webhook: Post \"https://{address}/?timeout=10s\": dial tcp {address}: connect: connection refused"
        )
    );
}

/// Ten times a new CA is trusted beside the former one, then its certificate is served, then the former CA is forgotten. No request
/// fails meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_under_load() {
    let cluster = Arc::new(Cluster::new().await);
    let (mut trusted, first) = certificate("127.0.0.1");
    let webhook = listen(first).await;
    let url = format!("https://{}/check", webhook.address);
    configure(&cluster, json!({"url": url, "caBundle": BASE64_STANDARD.encode(&trusted)})).await;
    let done = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (cluster, done) = (cluster.clone(), done.clone());
            tokio::spawn(async move {
                let mut written = 0;
                while done.load(SeqCst) == 0 {
                    cluster.post(CONFIG_MAPS, &config_map(&format!("m-{writer}-{written}"))).await.expect(201);
                    written += 1;
                }
                written
            })
        })
        .collect();
    for _ in 0..10 {
        let (next, certificate) = certificate("127.0.0.1");
        let trust = async |bundle: &str| {
            let mut configuration = cluster.get(&format!("{VALIDATING}/c")).await.expect(200);
            configuration["webhooks"][0]["clientConfig"]["caBundle"] = BASE64_STANDARD.encode(bundle).into();
            cluster.put(&format!("{VALIDATING}/c"), &configuration).await.expect(200);
        };
        trust(&format!("{trusted}{next}")).await;
        cluster.post(CONFIG_MAPS, &json!({"metadata": {"generateName": "between-"}})).await.expect(201);
        *webhook.served.0.lock().unwrap() = certificate;
        cluster.post(CONFIG_MAPS, &json!({"metadata": {"generateName": "between-"}})).await.expect(201);
        trust(&next).await;
        trusted = next;
    }
    done.store(1, SeqCst);
    for writer in writers {
        assert!(writer.await.unwrap() > 0);
    }
    assert!(webhook.connections.load(SeqCst) > 10);
}
