//! Certificates and requests for them, as far as a server reads them. In: PEM. Out: what a request asks for and whether its signature is
//! that of its key, in Go's words. Nothing is signed here.

pub(crate) mod der;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA384, UnparsedPublicKey, VerificationAlgorithm,
};

use der::{INTEGER, OBJECT_IDENTIFIER, Reader, SEQUENCE, SET};

/// Object identifiers, as DER has them: 2.5.4.10, and the algorithms of keys and signatures.
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];
const RSA_WITH: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
const ECDSA_WITH: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3];
const EDDSA: &[u8] = &[0x2b, 0x65, 0x70];

const MALFORMED: &str = "asn1: structure error: the certificate request is malformed";

/// A request for a certificate (PKCS #10).
pub(crate) struct CertificateRequest {
    /// What is signed.
    info: Vec<u8>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// The object identifiers of the key and of its curve, if it has one.
    curve: Vec<u8>,
    key: Vec<u8>,
    algorithm: Vec<u8>,
    signature: Vec<u8>,
}

impl CertificateRequest {
    /// The request in the first PEM block.
    pub(crate) fn of_pem(pem: &[u8]) -> Result<Self, &'static str> {
        let text = String::from_utf8_lossy(pem);
        match pem_blocks(&text).into_iter().next() {
            Some((label, bytes)) if label == "CERTIFICATE REQUEST" => Self::of_der(&bytes).ok_or(MALFORMED),
            _ => Err("PEM block type must be CERTIFICATE REQUEST"),
        }
    }

    fn of_der(bytes: &[u8]) -> Option<Self> {
        let mut outer = Reader::new(bytes);
        let mut request = outer.sequence().filter(|_| outer.is_empty())?;
        let info = request.whole()?;
        let algorithm = request.sequence()?.expect(OBJECT_IDENTIFIER)?;
        let signature = request.bits()?;
        let mut fields = Reader::new(info).sequence()?;
        fields.expect(INTEGER)?;
        let attributes = attributes(fields.sequence()?)?;
        let mut key = fields.sequence()?;
        let mut kind = key.sequence()?;
        kind.expect(OBJECT_IDENTIFIER)?;
        let curve = kind.expect(OBJECT_IDENTIFIER).unwrap_or_default();
        Some(Self {
            info: info.to_vec(),
            attributes,
            curve: curve.to_vec(),
            key: key.bits()?.to_vec(),
            algorithm: algorithm.to_vec(),
            signature: signature.to_vec(),
        })
    }

    /// The common name of the subject, which is the name of a user; empty if there is none.
    pub(crate) fn common_name(&self) -> &[u8] {
        // The last one counts, as in Go.
        let name = self.attributes.iter().rfind(|(kind, _)| kind == COMMON_NAME);
        name.map_or(&[], |(_, value)| value.as_slice())
    }

    /// The organizations of the subject, which are the groups of a user.
    pub(crate) fn organizations(&self) -> impl Iterator<Item = &[u8]> {
        self.attributes.iter().filter(|(kind, _)| kind == ORGANIZATION).map(|(_, value)| value.as_slice())
    }

    /// Whether the signature was made with the key that the certificate shall be for. Signatures of other algorithms than RSA with
    /// SHA-2, ECDSA with P-256 and P-384, and Ed25519 are believed.
    pub(crate) fn check_signature(&self) -> Result<(), &'static str> {
        const RSA: &str = "crypto/rsa: verification error";
        const ECDSA: &str = "x509: ECDSA verification failure";
        let (family, number) = self.algorithm.split_at(self.algorithm.len().saturating_sub(1));
        let (verification, failure): (&dyn VerificationAlgorithm, _) = match (family, number, &*self.curve) {
            (RSA_WITH, [5], _) => return Err("x509: cannot verify signature: insecure algorithm SHA1-RSA"),
            (RSA_WITH, [11], _) => (&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA),
            (RSA_WITH, [12], _) => (&RSA_PKCS1_2048_8192_SHA384, RSA),
            (RSA_WITH, [13], _) => (&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, RSA),
            (ECDSA_WITH, [2], P256) => (&ECDSA_P256_SHA256_ASN1, ECDSA),
            (ECDSA_WITH, [3], P256) => (&ECDSA_P256_SHA384_ASN1, ECDSA),
            (ECDSA_WITH, [2], P384) => (&ECDSA_P384_SHA256_ASN1, ECDSA),
            (ECDSA_WITH, [3], P384) => (&ECDSA_P384_SHA384_ASN1, ECDSA),
            _ if self.algorithm == EDDSA => (&ED25519, "x509: Ed25519 verification failure"),
            _ => return Ok(()),
        };
        UnparsedPublicKey::new(verification, &self.key).verify(&self.info, &self.signature).map_err(|_| failure)
    }
}

/// The attributes of a name: their object identifiers, and their values as bytes.
fn attributes(mut names: Reader<'_>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    while !names.is_empty() {
        let mut set = Reader::new(names.expect(SET)?);
        while !set.is_empty() {
            let mut attribute = set.sequence()?;
            let kind = attribute.expect(OBJECT_IDENTIFIER)?;
            found.push((kind.to_vec(), attribute.next()?.1.to_vec()));
        }
    }
    Some(found)
}

/// What is wrong with a chain of certificates in PEM.
pub(crate) fn check_certificates(pem: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(pem);
    let blocks = pem_blocks(&text);
    for (label, bytes) in &blocks {
        if label != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {label:?}"));
        }
        let mut outer = Reader::new(bytes);
        let parts = outer.sequence().filter(|_| outer.is_empty()).map(|mut parts| {
            [parts.expect(SEQUENCE), parts.expect(SEQUENCE), parts.bits()].iter().all(Option::is_some)
        });
        if parts != Some(true) {
            return Err("x509: malformed certificate".to_owned());
        }
    }
    if blocks.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    Ok(())
}

/// The blocks of a PEM text: label and content. Text around them and broken blocks are passed over.
pub(crate) fn pem_blocks(pem: &str) -> Vec<(String, Vec<u8>)> {
    let mut blocks = Vec::new();
    let mut rest = pem;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((label, after)) = after.split_once("-----") else { break };
        let Some((content, after)) = after.split_once(&format!("-----END {label}-----")) else { break };
        let content: String = content.chars().filter(|letter| !letter.is_whitespace()).collect();
        if let Ok(bytes) = STANDARD.decode(content) {
            blocks.push((label.to_owned(), bytes));
        }
        rest = after;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request for `CN=alice, O=developers, O=system:masters`, made by openssl.
    const REQUEST: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIH4MIGgAgEAMD4xDjAMBgNVBAMMBWFsaWNlMRMwEQYDVQQKDApkZXZlbG9wZXJz
MRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVyczBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABIa966l3l1d35hZ05/5Z8vraqtzQB8Z4Xh8HB2CpC2nmyUpdyorIPdW8TaFs
a56AH+YiCKAmbEZUT0gNMwbRnIugADAKBggqhkjOPQQDAgNHADBEAiB11kD8QFqO
knEY5hIUr+HI7H11Jr/B37ZsBpFBTvPjdQIgO+5egBJU3RL1wFd7NV83NMzQtPzM
MEprULjGvqj+6kk=
-----END CERTIFICATE REQUEST-----";

    fn read(pem: &str) -> Result<CertificateRequest, &'static str> {
        CertificateRequest::of_pem(pem.as_bytes())
    }

    #[test]
    fn a_request_names_its_groups_and_is_signed() {
        let request = read(REQUEST).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(request.organizations().collect::<Vec<_>>(), [&b"developers"[..], b"system:masters"]);
        assert_eq!(request.check_signature(), Ok(()));
        let other = CertificateRequest { info: b"something else".to_vec(), ..request };
        assert_eq!(other.check_signature(), Err("x509: ECDSA verification failure"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let refused = |pem: &str| read(pem).err();
        assert_eq!(refused("hello"), Some("PEM block type must be CERTIFICATE REQUEST"));
        let empty = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----";
        assert_eq!(refused(empty), Some("PEM block type must be CERTIFICATE REQUEST"));
        assert_eq!(refused(&empty.replace("CERTIFICATE", "CERTIFICATE REQUEST")), Some(MALFORMED));
        // However a request is cut off, nothing panics.
        let der = pem_blocks(REQUEST).remove(0).1;
        assert!((0..der.len()).all(|end| CertificateRequest::of_der(&der[..end]).is_none()));
    }

    #[test]
    fn certificates_are_blocks_of_one_kind() {
        for (pem, expect) in [
            ("hello", "must contain at least one CERTIFICATE PEM block"),
            (REQUEST, "only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\""),
            ("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----", "x509: malformed certificate"),
        ] {
            assert_eq!(check_certificates(pem.as_bytes()), Err(expect.to_owned()));
        }
    }
}
