//! Certificates and keys in a directory. Each file is replaced whole or not at all, and keys are for their owner only.
//! A kept CA that cannot be read is named and refused; a kept server certificate is only a saving.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::CertificateError;
use super::issue::{Authority, Issued, expires};

const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const SERVER_CERTIFICATE: &str = "server.crt";
const SERVER_KEY: &str = "server.key";

/// Who may read a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Readers {
    Everyone,
    Owner,
}

/// A file's name, its text, and who may read it.
pub(super) type Text = (&'static str, String, Readers);

/// The directory.
#[derive(Clone, Debug)]
pub(super) struct Files(PathBuf);

/// Certificates that are in use and not in their directory yet.
#[derive(Debug)]
#[must_use = "the next start makes other certificates unless these are kept"]
pub struct UnkeptCertificates {
    files: Files,
    texts: Vec<Text>,
}

impl UnkeptCertificates {
    pub(super) fn new(files: &Files) -> Self {
        Self { files: files.clone(), texts: Vec::new() }
    }

    pub(super) fn add(&mut self, texts: [Text; 2]) {
        self.texts.extend(texts);
    }

    /// Writes them, and waits for the disk.
    pub fn keep(self) -> Result<(), CertificateError> {
        self.files.keep(self.texts)
    }
}

/// The files of a CA. The key comes first: a certificate without its key is refused.
pub(super) fn authority_texts(authority: &Authority) -> [Text; 2] {
    let key = (CA_KEY, authority.key.serialize_pem(), Readers::Owner);
    [key, (CA_CERTIFICATE, authority.certificate_pem.clone(), Readers::Everyone)]
}

/// The files of a server certificate.
pub(super) fn server_texts(issued: &Issued) -> [Text; 2] {
    let key = (SERVER_KEY, issued.key_pem.clone(), Readers::Owner);
    [key, (SERVER_CERTIFICATE, issued.certificate_pem.clone(), Readers::Everyone)]
}

impl Files {
    pub(super) fn open(directory: &Path) -> Result<Self, CertificateError> {
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
        Ok(Files(directory.into()))
    }

    /// The kept CA; none if there is none at all.
    pub(super) fn authority(&self) -> Result<Option<Authority>, CertificateError> {
        let (Some(certificate_pem), Some(key_pem)) = (self.read(CA_CERTIFICATE)?, self.read(CA_KEY)?) else {
            return match (self.0.join(CA_CERTIFICATE).exists(), self.0.join(CA_KEY).exists()) {
                (false, false) => Ok(None),
                (true, _) => Err(self.unusable(CA_KEY, "is missing beside its certificate")),
                (false, _) => Err(self.unusable(CA_CERTIFICATE, "is missing beside its key")),
            };
        };
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|_| self.unusable(CA_CERTIFICATE, "is not a PEM certificate"))?;
        let expires =
            expires(&certificate).ok_or_else(|| self.unusable(CA_CERTIFICATE, "is not an X.509 certificate"))?;
        let key = KeyPair::from_pem(&key_pem).map_err(|_| self.unusable(CA_KEY, "is not a PEM private key"))?;
        let authority = Authority { certificate, certificate_pem, key, expires };
        match authority.is_whole() {
            true => Ok(Some(authority)),
            false => Err(self.unusable(CA_KEY, "does not belong to the certificate beside it")),
        }
    }

    /// The kept server certificate, if it can be read.
    pub(super) fn server(&self) -> Option<Issued> {
        let certificate_pem = self.read(SERVER_CERTIFICATE).ok()??;
        let key_pem = self.read(SERVER_KEY).ok()??;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
        let expires = expires(&certificate)?;
        let issued = Issued { certificate, certificate_pem, key_pem, expires };
        // The two files are replaced one after the other; a crash between leaves a pair that does not match.
        super::Current::made(&issued).ok().map(|_| issued)
    }

    /// Writes files in this order.
    pub(super) fn keep(&self, texts: impl IntoIterator<Item = Text>) -> Result<(), CertificateError> {
        texts.into_iter().try_for_each(|(name, text, readers)| write(&self.0.join(name), &text, readers))
    }

    fn read(&self, name: &str) -> Result<Option<String>, CertificateError> {
        read(&self.0.join(name))
    }

    fn unusable(&self, name: &str, problem: &'static str) -> CertificateError {
        CertificateError::Unusable { path: self.0.join(name), problem }
    }
}

/// The texts of a certificate and its key; none if neither file is there.
pub(super) fn read_pair(certificate: &Path, key: &Path) -> Result<Option<(String, String)>, CertificateError> {
    match (read(certificate)?, read(key)?) {
        (Some(chain_pem), Some(key_pem)) => Ok(Some((chain_pem, key_pem))),
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err(CertificateError::Unusable { path: key.into(), problem: "is missing beside its certificate" })
        }
        (None, Some(_)) => {
            Err(CertificateError::Unusable { path: certificate.into(), problem: "is missing beside its key" })
        }
    }
}

/// Keeps a certificate and its key.
pub(super) fn write_pair(
    certificate: &Path,
    chain_pem: &str,
    key: &Path,
    key_pem: &str,
) -> Result<(), CertificateError> {
    for directory in [certificate, key].into_iter().filter_map(Path::parent) {
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
    }
    write(key, key_pem, Readers::Owner)?;
    write(certificate, chain_pem, Readers::Everyone)
}

fn read(path: &Path) -> Result<Option<String>, CertificateError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

fn write(path: &Path, text: &str, readers: Readers) -> Result<(), CertificateError> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = PathBuf::from(next);
    let write = || {
        // Left by a crash, and perhaps readable for others.
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = create(&next, readers)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, path)
    };
    write().map_err(failed("write", path))
}

fn create(path: &Path, readers: Readers) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(match readers {
            Readers::Everyone => 0o644,
            Readers::Owner => 0o600,
        });
    }
    #[cfg(not(unix))]
    let _ = readers;
    options.open(path)
}

fn failed(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CertificateError {
    let path = path.to_path_buf();
    move |source| CertificateError::File { act, path, source }
}
