//! A request for a certificate (PKCS #10). In: PEM or DER. Out: what it asks for, and what its signature is about. Whether the
//! signature is good is not checked here.

use super::der::{BOOLEAN, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, Reader, SEQUENCE, SET};
use super::{Name, pem_blocks};

const ATTRIBUTES: u8 = 0xa0;

/// Object identifiers, as DER has them.
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 17];

const LABEL: &str = "CERTIFICATE REQUEST";
const MALFORMED: &str = "asn1: structure error: the certificate request is malformed";

/// A request for a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateRequest {
    /// What is signed, as DER.
    pub info: Vec<u8>,
    /// Whom the certificate shall be about.
    pub subject: Name,
    /// The key that it shall be for: `SubjectPublicKeyInfo`, as DER.
    pub key_info: Vec<u8>,
    /// The object identifier of the key's algorithm.
    pub key_algorithm: Vec<u8>,
    /// The object identifier of its curve; empty if it has none.
    pub curve: Vec<u8>,
    /// The key itself.
    pub key: Vec<u8>,
    /// The alternative names: their tags and their contents.
    pub alternative_names: Vec<(u8, Vec<u8>)>,
    /// The object identifier of the signature's algorithm.
    pub algorithm: Vec<u8>,
    /// The parameters of that algorithm, as DER; empty if it has none.
    pub parameters: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

impl CertificateRequest {
    /// The request in the first block of a PEM text, or what is wrong with it, in Kubernetes' words.
    ///
    /// ```
    /// let error = konverge_core::x509::CertificateRequest::from_pem(b"hello").unwrap_err();
    /// assert_eq!(error, "PEM block type must be CERTIFICATE REQUEST");
    /// ```
    pub fn from_pem(pem: &[u8]) -> Result<Self, &'static str> {
        match pem_blocks(pem).next() {
            Some(block) if block.label == LABEL => Self::from_der(&block.bytes).ok_or(MALFORMED),
            _ => Err("PEM block type must be CERTIFICATE REQUEST"),
        }
    }

    /// The request in these bytes.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let mut outer = Reader::new(der);
        let mut request = outer.sequence().filter(|_| outer.is_empty())?;
        let info = request.whole()?;
        let mut algorithm = request.sequence()?;
        let signature = request.bits().filter(|_| request.is_empty())?;
        let mut fields = Reader::new(info).sequence()?;
        fields.expect(INTEGER)?;
        let subject = Name::read(&mut fields)?;
        let key_info = fields.whole()?;
        let mut key = Reader::new(key_info).sequence()?;
        let mut kind = key.sequence()?;
        let attributes = if fields.is_empty() { &[] } else { fields.expect(ATTRIBUTES)? };
        Some(Self {
            info: info.to_vec(),
            subject,
            key_info: key_info.to_vec(),
            key_algorithm: kind.expect(OBJECT_IDENTIFIER)?.to_vec(),
            curve: kind.expect(OBJECT_IDENTIFIER).unwrap_or_default().to_vec(),
            key: key.bits()?.to_vec(),
            alternative_names: alternative_names(Reader::new(attributes))?,
            algorithm: algorithm.expect(OBJECT_IDENTIFIER)?.to_vec(),
            parameters: if algorithm.is_empty() { Vec::new() } else { algorithm.whole()?.to_vec() },
            signature: signature.to_vec(),
        })
    }
}

/// The alternative names that the attributes of a request ask for, once at most.
fn alternative_names(mut attributes: Reader<'_>) -> Option<Vec<(u8, Vec<u8>)>> {
    let mut found = None;
    while !attributes.is_empty() {
        let mut attribute = attributes.sequence()?;
        if attribute.expect(OBJECT_IDENTIFIER)? != EXTENSION_REQUEST {
            continue;
        }
        let mut extensions = Reader::new(attribute.expect(SET)?).sequence()?;
        while !extensions.is_empty() {
            let mut extension = extensions.sequence()?;
            let kind = extension.expect(OBJECT_IDENTIFIER)?;
            let (mut tag, mut content) = extension.next()?;
            if tag == BOOLEAN {
                (tag, content) = extension.next()?;
            }
            if kind == ALTERNATIVE_NAMES {
                let names = Reader::new(content).expect(SEQUENCE).filter(|_| tag == OCTET_STRING)?;
                if found.replace(general_names(Reader::new(names))?).is_some() {
                    return None;
                }
            }
        }
    }
    Some(found.unwrap_or_default())
}

fn general_names(mut names: Reader<'_>) -> Option<Vec<(u8, Vec<u8>)>> {
    let mut found = Vec::new();
    while !names.is_empty() {
        let (tag, content) = names.next()?;
        found.push((tag, content.to_vec()));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request for `CN=alice, O=developers, O=system:masters`, made by openssl.
    const ALICE: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIH4MIGgAgEAMD4xDjAMBgNVBAMMBWFsaWNlMRMwEQYDVQQKDApkZXZlbG9wZXJz
MRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVyczBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABIa966l3l1d35hZ05/5Z8vraqtzQB8Z4Xh8HB2CpC2nmyUpdyorIPdW8TaFs
a56AH+YiCKAmbEZUT0gNMwbRnIugADAKBggqhkjOPQQDAgNHADBEAiB11kD8QFqO
knEY5hIUr+HI7H11Jr/B37ZsBpFBTvPjdQIgO+5egBJU3RL1wFd7NV83NMzQtPzM
MEprULjGvqj+6kk=
-----END CERTIFICATE REQUEST-----";

    #[test]
    fn requests() {
        let request = CertificateRequest::from_pem(ALICE.as_bytes()).expect("a request");
        assert_eq!(request.subject.common_name(), "alice");
        assert_eq!(request.subject.organizations().collect::<Vec<_>>(), ["developers", "system:masters"]);
        let refused = |pem: &str| CertificateRequest::from_pem(pem.as_bytes()).err();
        assert_eq!(refused("hello"), Some("PEM block type must be CERTIFICATE REQUEST"));
        // The first block counts, whatever follows, and one that begins within a line is none.
        let empty = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----";
        assert_eq!(refused(&format!("{empty}\n{ALICE}")), Some("PEM block type must be CERTIFICATE REQUEST"));
        assert_eq!(refused(&empty.replace("CERTIFICATE", LABEL)), Some(MALFORMED));
        assert_eq!(refused(&format!("x{ALICE}")), Some("PEM block type must be CERTIFICATE REQUEST"));
        // However a request is cut off, nothing panics.
        let der = pem_blocks(ALICE.as_bytes()).next().expect("a block").bytes;
        assert!((0..der.len()).all(|end| CertificateRequest::from_der(&der[..end]).is_none()));
    }
}
