//! Whom members believe: a CA, and a certificate of it with its key, as texts or as the files of a mounted Secret (`ca.crt`, `tls.crt`,
//! `tls.key`, as cert-manager writes them). In: those. Out: what servers and clients of TLS need. All of it can be replaced while the
//! member runs: new connections use what is new.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use konverge_serve::{CertificateError, Certificates, ClientCa};
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::RaftStartError;

/// How often the files are looked at: three small ones. Secrets that change reach a Pod within a minute or two.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(2);

/// The certificates of a member: the CAs that it believes, and the certificate that it shows. Clones are the same.
#[derive(Clone)]
pub struct MemberCertificates {
    server: Certificates,
    client_ca: ClientCa,
    client: Arc<RwLock<Arc<ClientConfig>>>,
    generation: Arc<AtomicU64>,
}

impl MemberCertificates {
    /// As PEM: one CA or several, and a certificate of one of them, for servers and for clients, with its key.
    pub fn from_pem(ca: &str, certificate: &str, key: &str) -> Result<Self, RaftStartError> {
        let unusable = |source: TlsError| RaftStartError::Tls(source.into());
        let client = client_config(ca, certificate, key).map_err(unusable)?;
        Ok(Self {
            server: Certificates::given(certificate, key).map_err(|source| unusable(source.into()))?,
            client_ca: ClientCa::from_pem(ca).map_err(|source| unusable(source.into()))?,
            client: Arc::new(RwLock::new(Arc::new(client))),
            generation: Arc::default(),
        })
    }

    /// Uses these from now on; members that run do so from their next connection on. If this fails, the ones before stay.
    ///
    /// Others have to believe the new certificate, and this member theirs: while the CA changes, `ca` has the old and the new one.
    pub fn replace(&self, ca: &str, certificate: &str, key: &str) -> Result<(), RaftStartError> {
        // What cannot be used is found before anything is changed.
        let next = Self::from_pem(ca, certificate, key)?;
        let unusable = |source: CertificateError| RaftStartError::Tls(source.into());
        self.client_ca.replace(ca).map_err(unusable)?;
        self.server.replace(certificate, key).map_err(unusable)?;
        *self.client.write() = next.client();
        self.generation.fetch_add(1, Relaxed);
        Ok(())
    }

    /// What this member shows, and whom it hears: those with a certificate for one of these names.
    pub(crate) fn server(&self, names: &[String]) -> Result<(Certificates, ClientCa), RaftStartError> {
        let client_ca = self.client_ca.clone().only_for(names).map_err(|source| RaftStartError::Tls(source.into()))?;
        Ok((self.server.clone(), client_ca))
    }

    pub(super) fn client(&self) -> Arc<ClientConfig> {
        self.client.read().clone()
    }

    /// Changes when they are replaced.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }
}

/// Without the key, which must not get into a log.
impl fmt::Debug for MemberCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberCertificates").field("expires", &self.server.expires()).finish_non_exhaustive()
    }
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
enum TlsError {
    #[error("cannot read {}; the directory has to have ca.crt, tls.crt and tls.key", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Server(#[from] CertificateError),
    #[error("the certificate, its key or the CA cannot be used")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

fn client_config(ca: &str, certificate: &str, key: &str) -> Result<ClientConfig, TlsError> {
    let make = || -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
        let certificates = |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate)?;
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(certificate)?, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    };
    make().map_err(TlsError::Client)
}

#[derive(PartialEq, Eq)]
struct Files {
    ca: String,
    certificate: String,
    key: String,
}

impl Files {
    fn read(directory: &Path) -> Result<Self, RaftStartError> {
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read_to_string(&path).map_err(|source| RaftStartError::Tls(TlsError::Read { path, source }.into()))
        };
        Ok(Self { ca: read("ca.crt")?, certificate: read("tls.crt")?, key: read("tls.key")? })
    }
}

/// The certificates in the files of a directory, and a task that uses new ones when the files change, and never ends. New files that
/// cannot be used are logged, and the ones before stay.
pub(crate) fn follow(
    directory: &Path,
) -> Result<(MemberCertificates, impl Future<Output = ()> + use<>), RaftStartError> {
    let mut known = Files::read(directory)?;
    let certificates = MemberCertificates::from_pem(&known.ca, &known.certificate, &known.key)?;
    let (following, directory) = (certificates.clone(), directory.to_owned());
    let task = async move {
        let mut said = String::new();
        loop {
            tokio::time::sleep(LOOKED_AT_EVERY).await;
            match reload(&directory, &following, &mut known) {
                Ok(false) => said.clear(),
                Ok(true) => tracing::info!(directory = %directory.display(), "raft: new certificates are used"),
                Err(why) if why == said => {}
                Err(why) => {
                    tracing::warn!(why, "raft: new certificates cannot be used; those before are used on");
                    said = why;
                }
            }
        }
    };
    Ok((certificates, task))
}

/// Says whether there are new ones.
fn reload(directory: &Path, certificates: &MemberCertificates, known: &mut Files) -> Result<bool, String> {
    let use_new = || -> Result<Option<Files>, RaftStartError> {
        let files = Files::read(directory)?;
        if *known == files {
            return Ok(None);
        }
        certificates.replace(&files.ca, &files.certificate, &files.key)?;
        Ok(Some(files))
    };
    match use_new() {
        Ok(None) => Ok(false),
        Ok(Some(files)) => {
            *known = files;
            Ok(true)
        }
        Err(error) => Err(super::client::chain(&error)),
    }
}
