//! Whom members believe: the files of a mounted Secret, `ca.crt`, `tls.crt` and `tls.key`, as cert-manager writes them. In: a directory.
//! Out: what servers and clients of TLS need. The files are looked at from time to time, and a new certificate is used for new
//! connections; a server believes a new CA when it starts again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use konverge_serve::{CertificateError, Certificates, ClientCa};
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// How often the files are looked at. Secrets that change reach a Pod within a minute or two.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(10);

/// The certificates of this member. Clones are the same.
#[derive(Clone)]
pub(crate) struct TlsFiles {
    directory: PathBuf,
    server: Certificates,
    client_ca: ClientCa,
    client: Arc<RwLock<Arc<ClientConfig>>>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read {}; the directory has to have ca.crt, tls.crt and tls.key", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot use the certificate in {}", path.display())]
    Server { path: PathBuf, source: CertificateError },
    #[error("cannot use the certificate in {}", path.display())]
    Client { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

#[derive(PartialEq, Eq)]
struct Files {
    ca: String,
    certificate: String,
    key: String,
}

impl Files {
    fn read(directory: &Path) -> Result<Self, TlsError> {
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read_to_string(&path).map_err(|source| TlsError::Read { path, source })
        };
        Ok(Self { ca: read("ca.crt")?, certificate: read("tls.crt")?, key: read("tls.key")? })
    }

    fn client(&self) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
        let certificates = |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate)?;
        }
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(&self.certificate)?, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

impl TlsFiles {
    pub(crate) fn load(directory: &Path) -> Result<Self, TlsError> {
        let files = Files::read(directory)?;
        let server = |source| TlsError::Server { path: directory.to_owned(), source };
        let client = files.client().map_err(|source| TlsError::Client { path: directory.to_owned(), source })?;
        Ok(Self {
            directory: directory.to_owned(),
            server: Certificates::given(&files.certificate, &files.key).map_err(server)?,
            client_ca: ClientCa::from_pem(&files.ca).map_err(server)?,
            client: Arc::new(RwLock::new(Arc::new(client))),
        })
    }

    pub(super) fn server(&self) -> (Certificates, ClientCa) {
        (self.server.clone(), self.client_ca.clone())
    }

    pub(super) fn client(&self) -> Arc<ClientConfig> {
        self.client.read().clone()
    }

    /// Uses new certificates when the files change; never ends. Files that cannot be used are logged, and the ones before stay.
    pub(crate) async fn follow(self) {
        let mut known = Files::read(&self.directory).ok();
        loop {
            tokio::time::sleep(LOOKED_AT_EVERY).await;
            match self.reload(&mut known) {
                Ok(false) => {}
                Ok(true) => tracing::info!(directory = %self.directory.display(), "raft: new certificates are used"),
                Err(error) => {
                    tracing::warn!(%error, "raft: new certificates cannot be used; those before are used on")
                }
            }
        }
    }

    /// Says whether there are new ones.
    fn reload(&self, known: &mut Option<Files>) -> Result<bool, TlsError> {
        let files = Files::read(&self.directory)?;
        if known.as_ref() == Some(&files) {
            return Ok(false);
        }
        let path = || self.directory.clone();
        let client = files.client().map_err(|source| TlsError::Client { path: path(), source })?;
        self.server
            .replace(&files.certificate, &files.key)
            .map_err(|source| TlsError::Server { path: path(), source })?;
        *self.client.write() = Arc::new(client);
        *known = Some(files);
        Ok(true)
    }
}
