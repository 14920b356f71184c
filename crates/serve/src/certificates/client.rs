//! Certificates of clients. CAs come in; out comes, for each connection, whom the client's certificate is about, or why it
//! is not believed. A client without one, or with one that is not believed, still gets its connection: what that means is
//! for the service to say.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::{CertificateError, Subject, provider};

/// The CAs whose client certificates are believed. A listener that has some asks its clients for a certificate.
#[derive(Clone, Debug)]
pub struct ClientCa(Arc<dyn ClientCertVerifier>);

/// What the certificate of a client proved. A request has it among its extensions if the client presented a certificate
/// and the listener has a [`ClientCa`].
#[derive(Clone, Debug)]
pub enum ClientCertificate {
    /// The certificate is of one of the CAs, valid, and for clients.
    Trusted(Arc<Subject>),
    /// It is not believed, for this reason.
    Refused(Arc<str>),
}

impl ClientCa {
    /// The CAs in this PEM text; at least one.
    pub fn from_pem(pem: &str) -> Result<Self, CertificateError> {
        let given =
            |source: Box<dyn std::error::Error + Send + Sync>| CertificateError::Given { what: "client CA", source };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|source| given(source.into()))?;
            roots.add(certificate).map_err(|source| given(source.into()))?;
        }
        if roots.is_empty() {
            return Err(given("no X.509 certificate in it".into()));
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider())).build();
        Ok(Self(verifier.map_err(|source| given(source.into()))?))
    }

    /// What the handshake uses: it asks for a certificate, takes any, and checks only that the client has its key.
    pub(super) fn asking(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Asking(self.0.clone()))
    }

    /// What the certificates that a client presented prove.
    pub(crate) fn examine(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Option<ClientCertificate> {
        let (leaf, intermediates) = chain.split_first()?;
        let subject = match self.0.verify_client_cert(leaf, intermediates, now) {
            Ok(_) => Subject::of(leaf).ok_or_else(|| "its subject cannot be read".into()),
            Err(error) => Err(error.to_string().into()),
        };
        Some(match subject {
            Ok(subject) => ClientCertificate::Trusted(Arc::new(subject)),
            Err(why) => ClientCertificate::Refused(why),
        })
    }
}

#[derive(Debug)]
struct Asking(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Asking {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
