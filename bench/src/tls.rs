//! TLS to the measured server. In: the kubeconfig that it wrote. Out: a connector that trusts the CA of that kubeconfig and no
//! other.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::invalid_run::InvalidRun;

/// A connector that trusts the CA of a kubeconfig.
pub(crate) fn connector(kubeconfig: &Path) -> Result<TlsConnector, InvalidRun> {
    let text = std::fs::read_to_string(kubeconfig)?;
    let data = text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data:"));
    let pem = base64(data.ok_or_else(|| InvalidRun::new("the kubeconfig has no CA"))?.trim())?;
    let unusable = |error: &dyn std::fmt::Display| InvalidRun::new(format!("the CA of the kubeconfig: {error}"));
    let ca = CertificateDer::from_pem_slice(&pem).map_err(|error| unusable(&error))?;
    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(|error| unusable(&error))?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Decodes base64 with the PEM reader, because a PEM block is base64 between two lines.
fn base64(text: &str) -> Result<Vec<u8>, InvalidRun> {
    let block = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
    let read = PrivatePkcs8KeyDer::from_pem_slice(block.as_bytes());
    read.map(|bytes| bytes.secret_pkcs8_der().to_vec()).map_err(|error| InvalidRun::new(format!("not base64: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        for (text, expect) in [("aGVsbG8=", Some("hello")), ("aGVsbG8h", Some("hello!")), ("*", None)] {
            assert_eq!(base64(text).ok().as_deref(), expect.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn a_kubeconfig_without_a_ca_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, "clusters: []\n").unwrap();
        assert_eq!(connector(&file).err().unwrap().to_string(), "the kubeconfig has no CA");
    }
}
