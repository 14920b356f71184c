//! TLS to the measured server. In: the kubeconfig that it wrote, or the CAs of its certificates. Out: a connector that trusts
//! these CAs and no other.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::invalid_run::InvalidRun;

/// A connector that trusts the CA of a kubeconfig.
pub(crate) fn connector(kubeconfig: &Path) -> Result<TlsConnector, InvalidRun> {
    let text = std::fs::read_to_string(kubeconfig)?;
    let data = text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data:"));
    let data = data.ok_or_else(|| InvalidRun::new("the kubeconfig has no CA"))?.trim();
    let pem = BASE64_STANDARD.decode(data).map_err(|error| unusable(&error))?;
    trusting(&pem)
}

/// A connector that trusts these CAs.
pub(crate) fn trusting(pem: &[u8]) -> Result<TlsConnector, InvalidRun> {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(pem) {
        roots.add(ca.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A resumed session would show the certificate of an earlier connection, and cost less than a new one.
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn unusable(error: &dyn std::fmt::Display) -> InvalidRun {
    InvalidRun::new(format!("the CA cannot be used: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_without_a_ca_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, "clusters: []\n").unwrap();
        assert_eq!(connector(&file).err().unwrap().to_string(), "the kubeconfig has no CA");
    }
}
