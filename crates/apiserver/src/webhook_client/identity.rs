//! Whom webhooks see: the client certificate of the server. In: PEM. Out: what a handshake shows to a webhook that asks for one.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// The client certificate that the server shows to webhooks that ask for one.
///
/// kube-apiserver has it in the kubeconfig file of its admission configuration.
#[derive(Clone)]
pub struct WebhookIdentity(Arc<CertifiedKey>);

impl WebhookIdentity {
    /// The identity of a certificate, perhaps with its intermediates, and its key. The error says what is wrong with which of them.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate).filter_map(Result::ok).collect();
        if chain.is_empty() {
            return Err("there is no certificate in PEM".to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key cannot be read: {error}"))?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key);
        let key = key.map_err(|error| format!("the key cannot be used: {error}"))?;
        let certified = CertifiedKey::new(chain, key);
        let kept = certified.keys_match();
        kept.map_err(|error| format!("the key does not belong to the certificate: {error}"))?;
        Ok(Self(Arc::new(certified)))
    }
}

impl rustls::client::ResolvesClientCert for WebhookIdentity {
    fn resolve(&self, _: &[&[u8]], schemes: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for WebhookIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookIdentity").finish_non_exhaustive()
    }
}
