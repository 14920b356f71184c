//! Certificates made on the spot: a CA of our own and a server certificate under it. Names and a directory (or none)
//! come in; what a TLS listener serves and the CA that clients trust come out. The one in use can be swapped while
//! connections run. A certificate of the caller can be served instead.

mod client;
mod files;
mod issue;
mod shared;
mod sign;
mod subject;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use konverge_core::x509::Certificate;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

pub(crate) use client::{Authorities, Presented};
pub use client::{ClientCa, ClientCertificate};
pub use shared::SharedCertificates;
pub use sign::{CertificateRequest, SignError};
pub use subject::Subject;

pub use files::UnkeptCertificates;

use files::Files;

/// When each certificate of a PEM text ends, in its order. What is no certificate is passed over.
///
/// ```
/// assert!(konverge_serve::certificate_expiries(b"no certificate").is_empty());
/// ```
pub fn certificate_expiries(pem: &[u8]) -> Vec<SystemTime> {
    let certificates = CertificateDer::pem_slice_iter(pem).flatten();
    certificates.filter_map(|certificate| Certificate::read(&certificate)?.not_after).collect()
}
use issue::{Authority, Issued};

/// A server certificate with less than this is replaced.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 86_400);

/// The server certificate in use. Unless the caller gave it, also a CA and how to make the next one. Clones share all of it.
#[derive(Clone, Debug)]
pub struct Certificates(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// None if the caller gave the certificate.
    authority: Option<Authority>,
    names: Vec<String>,
    files: Option<Files>,
    current: RwLock<Current>,
}

#[derive(Clone, Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    expires: SystemTime,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Ours to renew.
    Made,
    /// The caller's.
    Given,
}

/// What [`Certificates::renew_if_due`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The certificate is good for a while.
    Current,
    /// A new one is in use, under the same CA.
    Renewed,
}

impl Certificates {
    /// A CA and a certificate for localhost, its addresses and `names` (DNS names or IP addresses), gone with the
    /// process.
    pub fn in_memory(names: &[String], now: SystemTime) -> Result<Self, CertificateError> {
        let names = with_local(names);
        let authority = Authority::new(now)?;
        let issued = authority.issue(&names, now)?;
        Self::new(authority, names, None, issued)
    }

    /// The caller's certificate chain and key, as PEM.
    pub fn given(chain_pem: &str, key_pem: &str) -> Result<Self, CertificateError> {
        let current = RwLock::new(Current::given(chain_pem, key_pem)?);
        Ok(Certificates(Arc::new(Inner { authority: None, names: Vec::new(), files: None, current })))
    }

    /// The certificate chain and the key in these two files. If neither file is there, makes a pair for localhost, its
    /// addresses and `names`, and keeps it in the files. The chain then ends with the CA that clients can trust.
    pub fn in_files(
        certificate: &Path,
        key: &Path,
        names: &[String],
        now: SystemTime,
    ) -> Result<Self, CertificateError> {
        if let Some((chain_pem, key_pem)) = files::read_pair(certificate, key)? {
            return Self::given(&chain_pem, &key_pem);
        }
        let authority = Authority::new(now)?;
        let issued = authority.issue(&with_local(names), now)?;
        let chain_pem = format!("{}{}", issued.certificate_pem, authority.certificate_pem);
        files::write_pair(certificate, &chain_pem, key, &issued.key_pem)?;
        Self::given(&chain_pem, &issued.key_pem)
    }

    /// The same, kept in `directory` as `ca.crt`, `ca.key`, `server.crt` and `server.key`: what is there and good for
    /// a while is used again, so that clients' copies of the CA stay true.
    pub fn in_directory(directory: &Path, names: &[String], now: SystemTime) -> Result<Self, CertificateError> {
        let (certificates, unkept) = Self::from_directory(directory, names, now)?;
        unkept.keep()?;
        Ok(certificates)
    }

    /// The same, without waiting for the disk: what was made has to be kept afterwards.
    pub fn from_directory(
        directory: &Path,
        names: &[String],
        now: SystemTime,
    ) -> Result<(Self, UnkeptCertificates), CertificateError> {
        let names = with_local(names);
        let files = Files::open(directory)?;
        let mut unkept = UnkeptCertificates::new(&files);
        let authority = match files.authority()? {
            Some(authority) if authority.outlives_a_certificate(now) => authority,
            _ => {
                let authority = Authority::new(now)?;
                unkept.add(files::authority_texts(&authority));
                authority
            }
        };
        let issued = match files.server() {
            Some(kept) if authority.vouches_for(&kept, &names, now) && !due(kept.expires, now) => kept,
            _ => {
                let issued = authority.issue(&names, now)?;
                unkept.add(files::server_texts(&issued));
                issued
            }
        };
        Ok((Self::new(authority, names, Some(files), issued)?, unkept))
    }

    fn new(
        authority: Authority,
        names: Vec<String>,
        files: Option<Files>,
        issued: Issued,
    ) -> Result<Self, CertificateError> {
        let current = RwLock::new(Current::made(&issued)?);
        Ok(Certificates(Arc::new(Inner { authority: Some(authority), names, files, current })))
    }

    /// The CA that clients are to trust, as PEM; none if the caller gave the certificate.
    pub fn ca_pem(&self) -> Option<&str> {
        self.0.authority.as_ref().map(|authority| authority.certificate_pem.as_str())
    }

    /// Signs a request with the CA: a certificate as PEM, for these usages in the words of Kubernetes (`client auth`). The caller has
    /// decided that it may be signed, and has checked that the request is signed with its own key.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[String],
        life: Duration,
        now: SystemTime,
    ) -> Result<String, SignError> {
        let authority = self.0.authority.as_ref().ok_or(SignError::NoAuthority)?;
        authority.sign(request, usages, life, now)
    }

    /// The names and addresses that certificates are made for.
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    /// When the certificate in use ends.
    pub fn expires(&self) -> SystemTime {
        self.0.current.read().expires
    }

    /// Makes the next certificate if the one in use ends within 30 days. The running listener does this by itself.
    /// New connections get it at once; running ones are not disturbed.
    pub fn renew_if_due(&self, now: SystemTime) -> Result<Renewal, CertificateError> {
        let current = self.0.current.read().clone();
        let Some(authority) = &self.0.authority else { return Ok(Renewal::Current) };
        if current.source == Source::Given || !due(current.expires, now) {
            return Ok(Renewal::Current);
        }
        let issued = authority.issue(&self.0.names, now)?;
        let next = Current::made(&issued)?;
        if let Some(files) = &self.0.files {
            files.keep(files::server_texts(&issued))?;
        }
        *self.0.current.write() = next;
        Ok(Renewal::Renewed)
    }

    /// Serves the caller's certificate chain and key (PEM) from now on, and no longer renews.
    pub fn replace(&self, chain_pem: &str, key_pem: &str) -> Result<(), CertificateError> {
        *self.0.current.write() = Current::given(chain_pem, key_pem)?;
        Ok(())
    }

    /// What a TLS listener needs; it asks for the certificate at each handshake.
    pub(crate) fn server_config(&self, clients: Option<&Authorities>) -> Arc<ServerConfig> {
        let config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has ciphers for TLS 1.2 and 1.3");
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(clients) => config.with_client_cert_verifier(clients.asking()),
        };
        let mut config = config.with_cert_resolver(self.0.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl ResolvesServerCert for Inner {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().key.clone())
    }
}

impl Current {
    fn given(chain_pem: &str, key_pem: &str) -> Result<Self, CertificateError> {
        let chain = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| CertificateError::Given { what: "certificate", source: source.into() })?;
        let expires = chain.first().and_then(|leaf| Certificate::read(leaf)?.not_after).ok_or_else(|| {
            CertificateError::Given { what: "certificate", source: "no X.509 certificate in it".into() }
        })?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|source| CertificateError::Given { what: "key", source: source.into() })?;
        let key = CertifiedKey::from_der(chain, key, &provider())
            .map_err(|source| CertificateError::Given { what: "pair of certificate and key", source: source.into() })?;
        Ok(Current { key: Arc::new(key), expires, source: Source::Given })
    }

    fn made(issued: &Issued) -> Result<Self, CertificateError> {
        let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes())
            .map_err(|source| CertificateError::Make(source.into()))?;
        let key = CertifiedKey::from_der(vec![issued.certificate.clone()], key, &provider())
            .map_err(|source| CertificateError::Make(source.into()))?;
        Ok(Current { key: Arc::new(key), expires: issued.expires, source: Source::Made })
    }
}

fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

fn due(expires: SystemTime, now: SystemTime) -> bool {
    now + RENEW_BEFORE > expires
}

fn with_local(names: &[String]) -> Vec<String> {
    let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).into();
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A certificate cannot be for this.
    #[error("{name:?} is neither a DNS name nor an IP address, so no certificate can be for it")]
    Name {
        /// What was asked for.
        name: String,
    },
    /// The directory cannot be read or written.
    #[error("cannot {act} {}", path.display())]
    File {
        /// `read`, `write`, …
        act: &'static str,
        /// Which file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// A kept CA cannot be used. It is not replaced in silence, as clients trust it.
    #[error("{} {problem}; restore it, or remove the directory to begin with a new CA, which clients must then be given", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
    /// What [`Certificates::replace`] got.
    #[error("the given {what} cannot be used")]
    Given {
        /// Which part.
        what: &'static str,
        /// In the library's words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The library failed.
    #[error("cannot make a certificate")]
    Make(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl CertificateError {
    /// Whether a file could not be written only because there is no space for it.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let CertificateError::File { source, .. } = self else { return false };
        matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }
}
