//! TLS spoken well, badly and not at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use konverge_serve::{BindOptions, Certificates, Limits, Tls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::clients::{connect, http2, http2_text, send_and_read, soon};
use crate::service::serve_with;

/// Certificates and a client that trusts them.
pub(crate) fn trusted() -> (Certificates, ClientConfig) {
    let certificates = Certificates::in_memory(&[], SystemTime::now()).expect("certificates");
    let config = trusting(&certificates);
    (certificates, config)
}

pub(crate) fn trusting(certificates: &Certificates) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(certificates.ca_pem().expect("a CA").as_bytes()).expect("PEM"))
        .expect("a CA");
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

pub(crate) async fn handshake(config: &ClientConfig, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").expect("a name");
    soon("a handshake", TlsConnector::from(Arc::new(config.clone())).connect(name, stream)).await
}

#[tokio::test]
async fn both_protocols_are_offered() {
    let (certificates, mut config) = trusted();
    let (server, _) = serve_with(BindOptions { tls: Tls::On(certificates), ..BindOptions::default() });
    assert!(server.url().starts_with("https://127.0.0.1:"));
    let mut one = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
    let answer = send_and_read(&mut one, b"GET /ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.ends_with("ok"), "{answer}");

    config.alpn_protocols = vec![b"h2".to_vec()];
    let two = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
    assert_eq!(two.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(http2_text(&mut http2(two).await, "/ok").await, "ok");
}

#[tokio::test]
async fn what_is_not_tls_is_closed() {
    let (certificates, config) = trusted();
    let limits = Limits { handshake: Duration::from_millis(300), ..Limits::default() };
    let (server, _) = serve_with(BindOptions { tls: Tls::On(certificates), limits, ..BindOptions::default() });
    let noise: Vec<u8> = (0..2000u32).map(|i| 128 + ((i.wrapping_mul(2_654_435_761) >> 25) as u8)).collect();
    // What is sent, and what the text of the answer must have in it.
    let table: [(&[u8], &str); 6] = [
        (b"", ""),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ""),
        (b"\x16\x03\x01\xff\xff\x01", ""),
        (b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00", ""),
        (&noise, ""),
        (b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n", "use https://"),
    ];
    let count = table.len() * 10;
    let attacks: Vec<_> = std::iter::repeat_n(table, 10)
        .flatten()
        .map(|(bytes, expect)| {
            let (address, bytes) = (server.local_addr(), bytes.to_vec());
            tokio::spawn(async move {
                let answer = send_and_read(&mut connect(address).await, &bytes).await;
                assert!(answer.contains(expect), "{answer:?}");
            })
        })
        .collect();
    for attack in attacks {
        handshake(&config, connect(server.local_addr()).await).await.expect("a good client");
        attack.await.expect("as expected");
    }
    assert_eq!(server.counters().handshake_failed.load(Ordering::Relaxed), count as u64);
}

#[tokio::test]
async fn a_head_that_does_not_end_within_tls() {
    let (certificates, config) = trusted();
    let limits = Limits { header: Duration::from_millis(200), ..Limits::default() };
    let (server, _) = serve_with(BindOptions { tls: Tls::On(certificates), limits, ..BindOptions::default() });
    for head in [&b""[..], b"GET /ok HT"] {
        let mut stream = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
        assert_eq!(send_and_read(&mut stream, head).await, "");
    }
    assert_eq!(server.counters().header_timeout.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_certificate_is_swapped_under_a_running_listener() {
    let now = SystemTime::now();
    let (certificates, config) = trusted();
    let (server, _) = serve_with(BindOptions { tls: Tls::On(certificates.clone()), ..BindOptions::default() });
    let served = async || {
        let stream = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
        stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone().into_owned()
    };
    let first = served().await;
    assert_eq!(served().await, first);
    let almost = certificates.expires() - Duration::from_secs(86_400);
    assert_eq!(certificates.renew_if_due(now).expect("no need"), konverge_serve::Renewal::Current);
    assert_eq!(served().await, first);
    // A new one made a day before the end is not valid yet for this client's clock, whose error says which it saw.
    assert_eq!(certificates.renew_if_due(almost).expect("a new one"), konverge_serve::Renewal::Renewed);
    let error = handshake(&config, connect(server.local_addr()).await).await.expect_err("not valid yet");
    assert!(error.to_string().contains("NotValidYet") || error.to_string().contains("not valid yet"), "{error}");
}
