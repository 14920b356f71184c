//! A directory of certificates as the kubelet mounts one: the files are links into a directory that is replaced as a whole, so
//! that nobody reads the certificate of one version and the key of another. Out: its path, and the CAs of all versions.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::SystemTime;

use konverge_serve::SharedCertificates;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

use crate::invalid_run::InvalidRun;

/// The link to the current version.
const CURRENT: &str = "..data";

/// Several versions of a certificate, each of a CA of its own, one of which is current.
pub(super) struct CertificateDirectory {
    directory: TempDir,
    versions: Vec<SharedCertificates>,
}

impl CertificateDirectory {
    /// Makes this number of versions. The first is current.
    pub(super) fn new(versions: usize) -> Result<Self, InvalidRun> {
        let directory = tempfile::Builder::new().prefix("konverge-bench-").tempdir()?;
        let make = |_| SharedCertificates::make(&[], SystemTime::now()).map_err(|why| InvalidRun::new(why.to_string()));
        let versions: Vec<SharedCertificates> = (0..versions).map(make).collect::<Result<_, _>>()?;
        for (number, version) in versions.iter().enumerate() {
            let of_version = directory.path().join(name(number));
            std::fs::create_dir(&of_version)?;
            for (file, text) in
                [("ca.crt", &version.ca_pem), ("tls.crt", &version.certificate_pem), ("tls.key", &version.key_pem)]
            {
                std::fs::write(of_version.join(file), text)?;
            }
        }
        for file in ["ca.crt", "tls.crt", "tls.key"] {
            symlink(Path::new(CURRENT).join(file), directory.path().join(file))?;
        }
        let directory = Self { directory, versions };
        directory.replace(0)?;
        Ok(directory)
    }

    /// Where `tls.crt` and `tls.key` are.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes this version the current one.
    pub(super) fn replace(&self, version: usize) -> Result<(), InvalidRun> {
        let (next, current) = (self.path().join("..next"), self.path().join(CURRENT));
        symlink(name(version), &next)?;
        Ok(std::fs::rename(next, current)?)
    }

    /// The CAs of all versions, as PEM.
    pub(super) fn bundle(&self) -> String {
        self.versions.iter().map(|version| version.ca_pem.as_str()).collect()
    }

    /// The certificate of a version, as DER.
    pub(super) fn certificate(&self, version: usize) -> Result<Vec<u8>, InvalidRun> {
        let read = CertificateDer::from_pem_slice(self.versions[version].certificate_pem.as_bytes());
        read.map(|der| der.to_vec()).map_err(|error| InvalidRun::new(format!("the certificate: {error}")))
    }
}

fn name(version: usize) -> String {
    format!("version-{version}")
}
