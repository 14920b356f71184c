//! The CA of the listener as the signer of the control plane. In: requests for certificates that were approved. Out: certificates that
//! the listener believes. Controllers do not know listeners, so this is where they meet.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use konverge_controllers::{CertificateSigner, RequestedCertificate};
use konverge_core::ErrorChain;
use konverge_serve::{CertificateRequest, Certificates, SignError};

/// The CA that made the server's certificate.
pub(crate) struct OwnAuthority(pub Certificates);

impl CertificateSigner for OwnAuthority {
    fn read(&self, request: &[u8]) -> Result<RequestedCertificate, String> {
        let request = CertificateRequest::from_pem(request).map_err(in_words)?;
        let CertificateRequest { common_name, organizations, dns_names, ip_addresses, email_addresses, uris, .. } =
            request;
        Ok(RequestedCertificate { common_name, organizations, dns_names, ip_addresses, email_addresses, uris })
    }

    fn sign(&self, request: &[u8], usages: &[String], life: Duration, now: Timestamp) -> Result<String, String> {
        let request = CertificateRequest::from_pem(request).map_err(in_words)?;
        self.0.sign(&request, usages, life, SystemTime::from(now)).map_err(in_words)
    }
}

fn in_words(error: SignError) -> String {
    ErrorChain(&error).to_string()
}
