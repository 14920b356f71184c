//! The CA: makes server certificates and recognises its own. Names and the time come in; certificates come out.
//! It never touches a file.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use konverge_core::x509::Certificate;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::{CertificateError, RENEW_BEFORE, provider};

const DAY: Duration = Duration::from_secs(86_400);
/// Clients keep the CA in files, so it stays.
pub(super) const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * DAY.as_secs());
/// Apple's tools refuse server certificates of more than 398 days.
const SERVER_LIFE: Duration = Duration::from_secs(365 * DAY.as_secs());
/// Clocks differ.
const BACKDATE: Duration = Duration::from_secs(3600);

/// A CA with its key.
#[derive(Debug)]
pub(super) struct Authority {
    pub certificate: CertificateDer<'static>,
    pub certificate_pem: String,
    pub key: KeyPair,
    pub expires: SystemTime,
}

/// A server certificate with its key.
#[derive(Debug)]
pub(super) struct Issued {
    pub certificate: CertificateDer<'static>,
    pub certificate_pem: String,
    pub key_pem: String,
    pub expires: SystemTime,
}

impl Authority {
    pub(super) fn new(now: SystemTime) -> Result<Self, CertificateError> {
        let key = KeyPair::generate().map_err(make)?;
        let expires = whole_seconds(now) + AUTHORITY_LIFE;
        let mut params = params();
        set_validity(&mut params, now, expires);
        let certificate = params.self_signed(&key).map_err(make)?;
        Ok(Authority { certificate: certificate.der().clone(), certificate_pem: certificate.pem(), key, expires })
    }

    /// A server certificate for these names, DNS or IP.
    pub(super) fn issue(&self, names: &[String], now: SystemTime) -> Result<Issued, CertificateError> {
        self.issue_for(names, vec![ExtendedKeyUsagePurpose::ServerAuth], now)
    }

    /// The same for processes that are also each other's clients.
    pub(super) fn issue_for_peers(&self, names: &[String], now: SystemTime) -> Result<Issued, CertificateError> {
        self.issue_for(names, vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth], now)
    }

    fn issue_for(
        &self,
        names: &[String],
        purposes: Vec<ExtendedKeyUsagePurpose>,
        now: SystemTime,
    ) -> Result<Issued, CertificateError> {
        if let Some(name) = names.iter().find(|name| server_name(name).is_none()) {
            return Err(CertificateError::Name { name: name.clone() });
        }
        let mut params = CertificateParams::new(names).map_err(make)?;
        params.distinguished_name.push(DnType::CommonName, "konverge");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = purposes;
        params.use_authority_key_identifier_extension = true;
        let expires = (whole_seconds(now) + SERVER_LIFE).min(self.expires);
        set_validity(&mut params, now, expires);
        let key = KeyPair::generate().map_err(make)?;
        let certificate = params.signed_by(&key, &Issuer::new(self::params(), &self.key)).map_err(make)?;
        Ok(Issued {
            certificate: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            expires,
        })
    }

    /// Whether a client that trusts this CA would believe that certificate for all these names.
    pub(super) fn vouches_for(&self, issued: &Issued, names: &[String], now: SystemTime) -> bool {
        vouches_for(&self.certificate, issued, names, now)
    }

    /// Whether a server certificate made now could have its full life.
    pub(super) fn outlives_a_certificate(&self, now: SystemTime) -> bool {
        now + SERVER_LIFE + RENEW_BEFORE < self.expires
    }

    /// Whether the key belongs to the certificate: what it signs must be believed.
    pub(super) fn is_whole(&self) -> bool {
        // At any time when both are valid; the CA's own dates are looked at elsewhere.
        let then = self.expires - DAY;
        let name = [String::from("localhost")];
        self.issue(&name, then).is_ok_and(|issued| self.vouches_for(&issued, &name, then))
    }
}

/// Whether a client that trusts this CA would believe that certificate for all these names.
pub(super) fn vouches_for(authority: &CertificateDer<'_>, issued: &Issued, names: &[String], now: SystemTime) -> bool {
    let mut roots = RootCertStore::empty();
    let Ok(since_1970) = now.duration_since(SystemTime::UNIX_EPOCH) else { return false };
    if roots.add(authority.clone().into_owned()).is_err() {
        return false;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider())).build();
    let Ok(verifier) = verifier else { return false };
    names.iter().all(|name| {
        server_name(name).is_some_and(|name| {
            let at = UnixTime::since_unix_epoch(since_1970);
            verifier.verify_server_cert(&issued.certificate, &[], &name, &[], at).is_ok()
        })
    })
}

/// The same for each CA of ours: rebuilt, not parsed, when a kept one is used again.
fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "konverge-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn set_validity(params: &mut CertificateParams, now: SystemTime, expires: SystemTime) {
    let from_1970 = |time: SystemTime| {
        rcgen::date_time_ymd(1970, 1, 1) + time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    };
    params.not_before = from_1970(whole_seconds(now) - BACKDATE);
    params.not_after = from_1970(expires);
}

/// Certificates know no fractions, and what is kept must compare equal when read again.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A name that a certificate for this one is good for; with a wildcard that is any of them.
fn server_name(name: &str) -> Option<ServerName<'static>> {
    match name.parse::<IpAddr>() {
        Ok(address) => Some(ServerName::IpAddress(address.into())),
        Err(_) => {
            let any = name.strip_prefix("*.").map(|domain| format!("any.{domain}"));
            ServerName::try_from(any.unwrap_or_else(|| name.to_owned())).ok()
        }
    }
}

fn make(error: rcgen::Error) -> CertificateError {
    CertificateError::Make(error.into())
}

/// When a certificate begins to be valid; none if it is none.
pub(super) fn begins(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    Certificate::read(certificate)?.not_before
}

/// When a certificate ends; none if it is none.
pub(super) fn expires(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    Certificate::read(certificate)?.not_after
}
