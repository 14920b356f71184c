//! Whom a certificate is about. DER bytes come in, the attributes of the subject come out. It reads only as far as the
//! subject and checks nothing else: webpki does that.

use std::fmt;

use konverge_core::x509::der::Reader;
use konverge_core::x509::{Certificate, Name};

/// The name in a certificate, and the certificate's fingerprint.
#[derive(Clone, PartialEq, Eq)]
pub struct Subject {
    name: Name,
    sha256: [u8; 32],
}

impl Subject {
    /// The object identifier of a common name (2.5.4.3), as DER has it.
    pub const COMMON_NAME: &'static [u8] = Name::COMMON_NAME;
    /// The object identifier of an organization (2.5.4.10), as DER has it.
    pub const ORGANIZATION: &'static [u8] = Name::ORGANIZATION;

    /// The subject of a certificate; none if these bytes are not one.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let name = Name::read(&mut Reader::new(Certificate::read(certificate)?.subject))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let sha256 = digest.as_ref().try_into().ok()?;
        Some(Self { name, sha256 })
    }

    /// The values of the attributes with this object identifier (in DER, without tag and length), in their order.
    pub fn values(&self, object_identifier: &[u8]) -> impl Iterator<Item = &str> {
        self.name.values(object_identifier)
    }

    /// The SHA-256 fingerprint of the whole certificate.
    pub fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.name.all_values()).finish()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    #[test]
    fn subjects() {
        let key = KeyPair::generate().expect("a key");
        let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, DnValue::PrintableString("system:masters".try_into().expect("text")));
        name.push(DnType::CommonName, "zoë");
        name.push(uid(), "7");
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        let certificate = params.self_signed(&key).expect("a certificate");
        let subject = Subject::of(certificate.der()).expect("a subject");
        let values = |kind| subject.values(kind).collect::<Vec<_>>();
        assert_eq!(values(Subject::COMMON_NAME), ["zoë"]);
        assert_eq!(values(Subject::ORGANIZATION), ["system:masters"]);
        assert_eq!(values(&[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2]), ["7"]);
        assert_eq!(values(&[0x55, 4, 6]), Vec::<&str>::new());
        // Cut anywhere before the end of the subject it is no certificate, and never a panic.
        for end in 0..60 {
            assert_eq!(Subject::of(&certificate.der()[..end]), None);
        }
    }
}
