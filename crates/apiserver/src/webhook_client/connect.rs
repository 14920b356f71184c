//! Connections to webhooks: TCP, then TLS with the CAs of the configuration. In: a URL, and where to connect to. Out: a stream, or
//! why there is none, as Go says it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig as TlsConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use konverge_core::x509::Certificate;
use konverge_store::BoxFuture;

use super::config::ClientConfig;
use super::dial::dial;
use super::failure::{self, ConnectError};
use super::identity::WebhookIdentity;

const UNREADABLE: &str = "unable to load root certificates: unable to parse bytes as PEM block";

/// The first half is what Go says.
const NO_SYSTEM_ROOTS: &str = "x509: failed to load system roots and no roots provided: this system has no CA certificates; install \
    them (ca-certificates), name a file in SSL_CERT_FILE, or configure the CA of the server";

/// Connects to one webhook, or to all that share its CAs.
#[derive(Clone)]
pub(super) struct Connector {
    tls: TlsConnector,
    /// Where to connect to instead of the host of the URL.
    address: Option<Arc<str>>,
}

impl Connector {
    pub(super) fn new(
        config: &ClientConfig,
        address: Option<&str>,
        identity: Option<&WebhookIdentity>,
    ) -> Result<Self, String> {
        let connector = Self::trusting(&config.ca_bundle, config.http2(), identity)?;
        Ok(Self { address: address.map(Arc::from), ..connector })
    }

    /// Connects to any host that has a certificate of these CAs (PEM), or of those of the system if there are none.
    pub(super) fn trusting(ca_bundle: &[u8], http2: bool, identity: Option<&WebhookIdentity>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match ca_bundle {
            [] => system_verifier(system_roots(), &provider)?,
            bundle => {
                let bundle = certificates(bundle)?;
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(bundle.iter().cloned());
                Arc::new(BundleVerifier { webpki: verifier(roots, &provider)?, bundle })
            }
        };
        let builder = TlsConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut tls = match identity {
            Some(identity) => builder.with_client_cert_resolver(Arc::new(identity.clone())),
            None => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = match http2 {
            true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            false => vec![b"http/1.1".to_vec()],
        };
        Ok(Self { tls: TlsConnector::from(Arc::new(tls)), address: None })
    }
}

/// Whether PEM has certificates, in the words of client-go.
pub(crate) fn check_ca_bundle(pem: &[u8]) -> Result<(), String> {
    certificates(pem).map(drop)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
    if parsed.is_empty() { Err(UNREADABLE.to_owned()) } else { Ok(parsed) }
}

fn verifier(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    built.map_err(|_| UNREADABLE.to_owned())
}

fn system_verifier(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    if roots.is_empty() { Err(NO_SYSTEM_ROOTS.to_owned()) } else { verifier(roots, provider) }
}

/// The CAs of the system, read once.
fn system_roots() -> RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    };
    ROOTS.get_or_init(read).clone()
}

/// Trusts what Go trusts: certificates that a CA of the bundle signed, and a certificate that is itself in the bundle, whoever signed
/// it, also if it says that it is a CA. `openssl req -x509` makes such certificates, and envtest such bundles.
#[derive(Debug)]
struct BundleVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(_)) if self.bundle.contains(certificate) => {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
                let read = Certificate::read(certificate);
                match read.and_then(|read| Some((read.not_before?, read.not_after?))) {
                    Some((_, until)) if until < now => Err(CertificateError::Expired.into()),
                    Some((from, _)) if from > now => Err(CertificateError::NotValidYet.into()),
                    Some(_) => Ok(ServerCertVerified::assertion()),
                    None => Err(CertificateError::BadEncoding.into()),
                }
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

impl Service<Uri> for Connector {
    type Response = WebhookStream;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<WebhookStream, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { tls, address } = self.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let address = match address {
                Some(address) => address.to_string(),
                None if host.contains(':') => format!("[{host}]:{}", uri.port_u16().unwrap_or(443)),
                None => format!("{host}:{}", uri.port_u16().unwrap_or(443)),
            };
            let tcp = dial(&address).await.map_err(|error| failure::of_dialling(&address, &error))?;
            // Reviews are small, and somebody waits for each.
            tcp.set_nodelay(true).map_err(|error| failure::of_dialling(&address, &error))?;
            let name = ServerName::try_from(host.clone()).map_err(|error| ConnectError(error.to_string()))?;
            let tls = tls.connect(name, tcp).await.map_err(|error| failure::of_handshake(&error, &host))?;
            Ok(WebhookStream(TokioIo::new(tls)))
        })
    }
}

/// A connection to a webhook.
pub(super) struct WebhookStream(TokioIo<TlsStream<TcpStream>>);

impl Connection for WebhookStream {
    fn connected(&self) -> Connected {
        let (tcp, tls) = self.0.inner().get_ref();
        let connected = tcp.connected();
        if tls.alpn_protocol() == Some(b"h2") { connected.negotiated_h2() } else { connected }
    }
}

impl Read for WebhookStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(cx, buffer) {
            // Some servers close without saying so in TLS. Go takes that for the end, and so must be taken what those answer who send no
            // length; where a length was sent, an early end is still seen.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl Write for WebhookStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads it has configured no PEM that could be wrong.
    #[test]
    fn a_system_without_cas_is_said() {
        let provider = Arc::new(ring::default_provider());
        let refused = system_verifier(RootCertStore::empty(), &provider).expect_err("there is no CA");
        assert_eq!(refused, NO_SYSTEM_ROOTS);
    }
}
