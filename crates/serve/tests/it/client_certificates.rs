//! Clients with a certificate, without one, and with one that is not believed.

use std::time::{Duration, SystemTime};

use konverge_serve::{BindOptions, CertificateRequest, Certificates, ClientCa, Tls};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::clients::{connect, http2, http2_text, send_and_read, soon};
use crate::service::serve_with;
use crate::tls::{handshake, trusted, trusting};

const REQUEST: &[u8] = b"GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// A CA for clients.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { params, key, pem }
    }

    /// The certificate and key of a client.
    fn client(&self, usage: ExtendedKeyUsagePurpose, year: i32) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        self.client_for(&[], usage, year)
    }

    /// The same, for these names.
    fn client_for(
        &self,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
        year: i32,
    ) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.distinguished_name.push(DnType::OrganizationName, "developers");
        params.extended_key_usages = vec![usage];
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &Issuer::new(self.params.clone(), &self.key)).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        (certificate.der().clone(), key)
    }
}

fn with_certificate(
    certificates: &Certificates,
    (certificate, key): (CertificateDer<'static>, PrivateKeyDer<'static>),
) -> ClientConfig {
    let mut config = trusting(certificates);
    let key = rustls::crypto::ring::sign::any_supported_type(&key).expect("a key");
    let certified = rustls::sign::CertifiedKey::new(vec![certificate], key);
    config.client_auth_cert_resolver = std::sync::Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    config
}

#[tokio::test]
async fn whom_a_certificate_is_believed() {
    let (certificates, plain) = trusted();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let client_ca = Some(ClientCa::from_pem(&ours.pem).expect("a CA"));
    let tls = Tls::On(certificates.clone());
    let (server, _) = serve_with(BindOptions { tls, client_ca, ..BindOptions::default() });
    let client = ExtendedKeyUsagePurpose::ClientAuth;
    let table = [
        (None, "nobody"),
        (Some(ours.client(client.clone(), 2040)), "alice of developers"),
        (Some(ours.client(client.clone(), 2001)), "not believed"),
        (Some(ours.client(ExtendedKeyUsagePurpose::ServerAuth, 2040)), "not believed"),
        (Some(ours.client(ExtendedKeyUsagePurpose::Any, 2040)), "alice of developers"),
        (Some(theirs.client(client, 2040)), "not believed"),
    ];
    for (identity, expect) in table {
        let mut config = identity.map_or_else(|| plain.clone(), |identity| with_certificate(&certificates, identity));
        // The second handshake resumes the session of the first, which must not lose the certificate.
        for _ in 0..2 {
            let mut one = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
            let answer = send_and_read(&mut one, REQUEST).await;
            assert!(answer.ends_with(expect), "{expect}: {answer}");
        }
        config.alpn_protocols = vec![b"h2".to_vec()];
        let two = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
        assert_eq!(http2_text(&mut http2(two).await, "/who").await, expect);
    }
}

/// What the server says of a client with this certificate.
async fn who(
    address: std::net::SocketAddr,
    certificates: &Certificates,
    identity: (CertificateDer<'static>, PrivateKeyDer<'static>),
) -> String {
    let config = with_certificate(certificates, identity);
    let mut one = handshake(&config, connect(address).await).await.expect("a handshake");
    let answer = send_and_read(&mut one, REQUEST).await;
    answer.rsplit("\r\n").next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_certificate_may_have_to_be_for_a_name() {
    let (certificates, _) = trusted();
    let ours = Authority::new("ours");
    let client_ca =
        ClientCa::from_pem(&ours.pem).expect("a CA").only_for(["web-0.web.shop.svc", "::1"]).expect("names");
    let tls = Tls::On(certificates.clone());
    let (server, _) = serve_with(BindOptions { tls, client_ca: Some(client_ca), ..BindOptions::default() });
    let believed = "alice of developers";
    for (names, expect) in [
        (&[][..], "not believed"),
        (&["web-0.web.shop.svc"], believed),
        (&["*.web.shop.svc"], believed),
        (&["mail.shop.svc", "*.web.shop.svc"], believed),
        (&["::1"], believed),
        (&["web-1.web.shop.svc"], "not believed"),
        (&["*.mail.shop.svc"], "not believed"),
        (&["*.shop.svc"], "not believed"),
        (&["127.0.0.1"], "not believed"),
    ] {
        let identity = ours.client_for(names, ExtendedKeyUsagePurpose::ClientAuth, 2040);
        assert_eq!(who(server.local_addr(), &certificates, identity).await, expect, "{names:?}");
    }
    assert!(ClientCa::from_pem(&ours.pem).expect("a CA").only_for(["no name"]).is_err());
}

#[tokio::test]
async fn other_cas_are_believed_without_a_restart() {
    let (certificates, _) = trusted();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let client_ca = ClientCa::from_pem(&old.pem).expect("a CA");
    let (tls, given) = (Tls::On(certificates.clone()), Some(client_ca.clone()));
    let (server, _) = serve_with(BindOptions { tls, client_ca: given, ..BindOptions::default() });
    let both = format!("{}{}", old.pem, new.pem);
    let (yes, no) = ("alice of developers", "not believed");
    for (bundle, old_expect, new_expect) in
        [(None, yes, no), (Some("noise"), yes, no), (Some(both.as_str()), yes, yes), (Some(new.pem.as_str()), no, yes)]
    {
        if let Some(bundle) = bundle {
            assert_eq!(client_ca.replace(bundle).is_ok(), bundle != "noise");
        }
        for (authority, expect) in [(&old, old_expect), (&new, new_expect)] {
            let identity = authority.client(ExtendedKeyUsagePurpose::ClientAuth, 2040);
            assert_eq!(who(server.local_addr(), &certificates, identity).await, expect, "{bundle:?}");
        }
    }
}

#[tokio::test]
async fn an_open_connection_is_believed_as_long_as_its_certificate() {
    let (certificates, _) = trusted();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let client_ca = ClientCa::from_pem(&old.pem).expect("a CA");
    let (tls, given) = (Tls::On(certificates.clone()), Some(client_ca.clone()));
    let (server, _) = serve_with(BindOptions { tls, client_ca: given, ..BindOptions::default() });
    let open = async |identity| {
        let mut config = with_certificate(&certificates, identity);
        config.alpn_protocols = vec![b"h2".to_vec()];
        http2(handshake(&config, connect(server.local_addr()).await).await.expect("a handshake")).await
    };
    let (yes, no) = ("alice of developers", "not believed");
    // Whom the listener believes changes.
    let mut connection = open(old.client(ExtendedKeyUsagePurpose::ClientAuth, 2040)).await;
    let both = format!("{}{}", old.pem, new.pem);
    for (pem, expect) in [(&old.pem, yes), (&new.pem, no), (&both, yes)] {
        client_ca.replace(pem).expect("a CA");
        for _ in 0..2 {
            assert_eq!(http2_text(&mut connection, "/who").await, expect);
        }
    }
    // The certificate ends.
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "developers");
    params.distinguished_name.push(DnType::CommonName, "alice");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let request = CertificateRequest::from_pem(pem.as_bytes()).expect("a request");
    let (usages, life) = (["client auth".to_owned()], Duration::from_secs(3));
    let signed = certificates.sign(&request, &usages, life, SystemTime::now()).expect("signed");
    client_ca.replace(certificates.ca_pem().expect("a CA")).expect("a CA");
    let certificate = CertificateDer::from_pem_slice(signed.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
    let mut connection = open((certificate, key)).await;
    assert_eq!(http2_text(&mut connection, "/who").await, yes);
    soon("the end of the certificate", async {
        while http2_text(&mut connection, "/who").await != no {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_signed_certificate_is_about_whom_its_request_names() {
    let (certificates, _) = trusted();
    let client_ca = ClientCa::from_pem(certificates.ca_pem().expect("a CA")).expect("a CA");
    let tls = Tls::On(certificates.clone());
    let (server, _) = serve_with(BindOptions { tls, client_ca: Some(client_ca), ..BindOptions::default() });
    let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
    let t61 = |text: &str| DnValue::TeletexString(text.try_into().expect("text"));
    let bmp = |text: &str| DnValue::BmpString(text.try_into().expect("text"));
    for (first, last) in [
        (utf8("system:kube-controller-manager"), t61("system:node:n1")),
        (utf8("system:kube-controller-manager"), bmp("system:node:n1")),
        (t61("system:kube-controller-manager"), utf8("system:node:n1")),
    ] {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, first);
        // Another common name.
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), last);
        let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        let request = CertificateRequest::from_pem(pem.as_bytes()).expect("a request");
        assert_eq!(request.common_name, "system:node:n1");
        let (usages, day) = (["client auth".to_owned()], Duration::from_secs(86_400));
        let signed = certificates.sign(&request, &usages, day, SystemTime::now()).expect("signed");
        let certificate = CertificateDer::from_pem_slice(signed.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        assert_eq!(who(server.local_addr(), &certificates, (certificate, key)).await, "system:node:n1 of system:nodes");
    }
}

#[tokio::test]
async fn without_a_ca_for_clients_nobody_is_asked() {
    let (certificates, _) = trusted();
    let alice = Authority::new("ours").client(ExtendedKeyUsagePurpose::ClientAuth, 2040);
    let config = with_certificate(&certificates, alice);
    let (server, _) = serve_with(BindOptions { tls: Tls::On(certificates), ..BindOptions::default() });
    let mut stream = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
    assert!(send_and_read(&mut stream, REQUEST).await.ends_with("nobody"));
}

#[test]
fn a_ca_that_is_none() {
    for pem in ["", "noise", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let error = ClientCa::from_pem(pem).expect_err("refused");
        assert_eq!(error.to_string(), "the given client CA cannot be used", "{pem}");
    }
}

#[tokio::test]
async fn one_port_for_both() {
    let (certificates, mut config) = trusted();
    let (server, _) = serve_with(BindOptions { tls: Tls::Either(certificates), ..BindOptions::default() });
    assert!(server.url().starts_with("http://127.0.0.1:"));
    let request = b"GET /ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for _ in 0..3 {
        let answer = send_and_read(&mut connect(server.local_addr()).await, request).await;
        assert!(answer.ends_with("ok"), "{answer}");
        let mut tls = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
        let answer = send_and_read(&mut tls, request).await;
        assert!(answer.ends_with("ok"), "{answer}");
        assert_eq!(http2_text(&mut http2(connect(server.local_addr()).await).await, "/ok").await, "ok");
    }
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
    assert_eq!(http2_text(&mut http2(tls).await, "/ok").await, "ok");
}

#[test]
fn a_pair_in_files() {
    let now = SystemTime::now();
    let directory = tempfile::tempdir().expect("a directory");
    let [crt, key] = ["new/apiserver.crt", "new/apiserver.key"].map(|name| directory.path().join(name));
    let made = Certificates::in_files(&crt, &key, &["api.example".to_owned()], now).expect("made");
    assert!(made.expires() > now + Duration::from_secs(300 * 86_400));
    let chain = std::fs::read_to_string(&crt).expect("kept");
    assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2, "the certificate and its CA");
    let kept = Certificates::in_files(&crt, &key, &[], now).expect("read");
    assert_eq!(kept.expires(), made.expires());
    assert_eq!(std::fs::read_to_string(&crt).expect("kept"), chain, "left as it was");
    std::fs::remove_file(&key).expect("removed");
    let error = Certificates::in_files(&crt, &key, &[], now).expect_err("half a pair");
    assert!(error.to_string().contains("apiserver.key is missing beside its certificate"), "{error}");
}
