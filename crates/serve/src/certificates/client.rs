//! Certificates of clients. CAs come in; out comes, for each request, whom the client's certificate is about, or why it
//! is not believed. A certificate that ends, or whose CA is replaced, while its connection is open is not believed from then on. A client without one, or with one that is not believed, still gets its connection: what that means is
//! for the service to say.
//!
//! As in kube-apiserver, a certificate that says what it is for has to be for clients or for any purpose. The verifier of rustls
//! does not know the latter, so certificates are verified by webpki itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use konverge_core::x509::Certificate;
use parking_lot::{Mutex, RwLock};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use webpki::{
    EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage, RequiredEkuNotFoundContext,
};

use super::{CertificateError, Subject, provider};

const SECOND: Duration = Duration::from_secs(1);

/// The CAs whose client certificates are believed. A listener that has some asks its clients for a certificate. Clones share
/// them: [`replace`](Self::replace) changes whom a running listener believes.
#[derive(Clone, Debug)]
pub struct ClientCa {
    authorities: Arc<RwLock<Arc<Authorities>>>,
    /// A certificate has to be for one of these; none if its names do not matter.
    names: Option<Arc<[ServerName<'static>]>>,
}

/// The CAs of one time.
#[derive(Debug)]
pub(crate) struct Authorities {
    roots: Arc<RootCertStore>,
    /// What is asked during a handshake: which CAs there are, and whether the client has the key.
    handshake: Arc<dyn ClientCertVerifier>,
}

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
        let authorities = Arc::new(Authorities::from_pem(pem)?);
        Ok(Self { authorities: Arc::new(RwLock::new(authorities)), names: None })
    }

    /// The same CAs, of whose certificates only those are believed that are for one of these DNS names or IP addresses: for peers that
    /// share a CA with others.
    pub fn only_for<N: AsRef<str>>(self, names: impl IntoIterator<Item = N>) -> Result<Self, CertificateError> {
        let parse = |name: N| {
            let name = name.as_ref();
            let parsed = match name.parse::<IpAddr>() {
                Ok(address) => Some(ServerName::IpAddress(address.into())),
                Err(_) => ServerName::try_from(name.to_owned()).ok(),
            };
            parsed.ok_or_else(|| CertificateError::Name { name: name.to_owned() })
        };
        let names: Arc<[ServerName<'static>]> = names.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { names: Some(names), ..self })
    }

    /// Believes these CAs (PEM) instead, from the next request on, also on connections that are open. If this fails, nothing has
    /// changed.
    pub fn replace(&self, pem: &str) -> Result<(), CertificateError> {
        *self.authorities.write() = Arc::new(Authorities::from_pem(pem)?);
        Ok(())
    }

    /// The CAs that are believed now.
    pub(crate) fn current(&self) -> Arc<Authorities> {
        self.authorities.read().clone()
    }

    /// What the certificates that a client presented prove, if these are the CAs.
    fn examine_by(
        &self,
        authorities: &Authorities,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Option<ClientCertificate> {
        let (leaf, intermediates) = chain.split_first()?;
        let subject = match authorities.verify(leaf, intermediates, now) {
            Ok(()) if !self.is_for_a_name(leaf) => Err("it is for none of the names that are expected here".into()),
            Ok(()) => Subject::of(leaf).ok_or_else(|| "its subject cannot be read".into()),
            Err(error) => Err(why(&error).into()),
        };
        Some(match subject {
            Ok(subject) => ClientCertificate::Trusted(Arc::new(subject)),
            Err(why) => ClientCertificate::Refused(why),
        })
    }

    fn is_for_a_name(&self, leaf: &CertificateDer<'_>) -> bool {
        let Some(names) = &self.names else { return true };
        let Ok(certificate) = EndEntityCert::try_from(leaf) else { return false };
        names.iter().any(|name| certificate.verify_is_valid_for_subject_name(name).is_ok())
    }
}

/// The certificates that a client presented when it opened its connection, and what they prove.
pub(crate) struct Presented {
    client_ca: ClientCa,
    chain: Vec<CertificateDer<'static>>,
    examined: Mutex<Examined>,
}

/// What certificates prove, and how long that is known.
struct Examined {
    result: ClientCertificate,
    authorities: Arc<Authorities>,
    /// When the next of the certificates begins or ends.
    until: Option<SystemTime>,
}

impl Presented {
    /// Examines the certificates; none if there are none.
    pub(crate) fn new(client_ca: &ClientCa, chain: &[CertificateDer<'_>], now: SystemTime) -> Option<Self> {
        let chain: Vec<_> = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let examined = Mutex::new(Examined::new(client_ca, &chain, now)?);
        Some(Self { client_ca: client_ca.clone(), chain, examined })
    }

    /// What the certificates prove now. They are verified again only if the CAs are others, or if the time of one has begun or ended:
    /// a signature takes longer to verify than many a request.
    pub(crate) fn examine(&self, now: SystemTime) -> ClientCertificate {
        let mut examined = self.examined.lock();
        let is_known = examined.until.is_none_or(|until| now < until)
            && Arc::ptr_eq(&examined.authorities, &self.client_ca.current());
        if !is_known && let Some(again) = Examined::new(&self.client_ca, &self.chain, now) {
            *examined = again;
        }
        examined.result.clone()
    }
}

impl Examined {
    fn new(client_ca: &ClientCa, chain: &[CertificateDer<'_>], now: SystemTime) -> Option<Self> {
        let authorities = client_ca.current();
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let result = client_ca.examine_by(&authorities, chain, UnixTime::since_unix_epoch(since))?;
        let bounds = chain.iter().filter_map(|certificate| Certificate::read(certificate));
        // A certificate is valid until the end of its last second.
        let bounds = bounds.flat_map(|Certificate { not_before, not_after, .. }| {
            [not_before, not_after.and_then(|end| end.checked_add(SECOND))]
        });
        let until = bounds.flatten().filter(|bound| *bound > now).min();
        Some(Self { result, authorities, until })
    }
}

impl Authorities {
    fn from_pem(pem: &str) -> Result<Self, CertificateError> {
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
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), Arc::new(provider())).build();
        Ok(Self { roots, handshake: verifier.map_err(|source| given(source.into()))? })
    }

    /// What the handshake uses: it asks for a certificate, takes any, and checks only that the client has its key.
    pub(super) fn asking(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Asking(self.handshake.clone()))
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let algorithms = provider().signature_verification_algorithms.all;
        let certificate = EndEntityCert::try_from(leaf)?;
        let path =
            certificate.verify_for_usage(algorithms, &self.roots.roots, intermediates, now, ForClients, None, None);
        path.map(drop)
    }
}

/// Certificates that are for clients, for any purpose, or do not say what they are for.
struct ForClients;

impl ForClients {
    /// `id-kp-clientAuth` (1.3.6.1.5.5.7.3.2) and `anyExtendedKeyUsage` (2.5.29.37.0), as DER has them.
    const PURPOSES: [KeyPurposeId<'static>; 2] =
        [KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 2]), KeyPurposeId::new(&[0x55, 0x1d, 0x25, 0])];
}

impl ExtendedKeyUsageValidator for ForClients {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let mut present = Vec::new();
        for purpose in purposes {
            let purpose = purpose?;
            if Self::PURPOSES.contains(&purpose) {
                return Ok(());
            }
            present.push(purpose.to_decoded_oid());
        }
        if present.is_empty() {
            return Ok(());
        }
        let required = KeyUsage::client_auth();
        Err(webpki::Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext { required, present }))
    }
}

/// Why a certificate is not believed, for the log.
fn why(error: &webpki::Error) -> String {
    match error {
        webpki::Error::CertExpired { .. } => "it has expired".to_owned(),
        webpki::Error::CertNotValidYet { .. } => "it is not valid yet".to_owned(),
        webpki::Error::UnknownIssuer => "none of the client CAs has signed it".to_owned(),
        webpki::Error::RequiredEkuNotFoundContext(_) => "it is not for clients".to_owned(),
        other => format!("it cannot be verified ({other})"),
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
