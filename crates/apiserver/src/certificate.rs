//! Certificates and requests for them, as far as a server reads them. In: PEM. Out: what a request asks for and whether its signature is
//! that of its key, in Go's words. Nothing is signed here.

use konverge_core::x509::der::{INTEGER, Reader, SEQUENCE};
use konverge_core::x509::{self, Name, PemBlock, pem_blocks};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA384, UnparsedPublicKey, VerificationAlgorithm,
};

/// Object identifiers of the algorithms of keys and signatures, as DER has them.
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];
const RSA_WITH: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
const ECDSA_WITH: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3];
const EDDSA: &[u8] = &[0x2b, 0x65, 0x70];

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const EXPLICIT_VERSION: u8 = 0xa0;

/// A request for a certificate whose signature can be checked.
pub(crate) struct CertificateRequest(x509::CertificateRequest);

impl CertificateRequest {
    /// The request in the first PEM block.
    pub(crate) fn of_pem(pem: &[u8]) -> Result<Self, &'static str> {
        x509::CertificateRequest::from_pem(pem).map(Self)
    }

    /// Whom the certificate shall be about.
    pub(crate) fn subject(&self) -> &Name {
        &self.0.subject
    }

    /// Whether the signature was made with the key that the certificate shall be for. Signatures of other algorithms than RSA with
    /// SHA-2, ECDSA with P-256 and P-384, and Ed25519 are believed.
    pub(crate) fn check_signature(&self) -> Result<(), &'static str> {
        const RSA: &str = "crypto/rsa: verification error";
        const ECDSA: &str = "x509: ECDSA verification failure";
        let (family, number) = self.0.algorithm.split_at(self.0.algorithm.len().saturating_sub(1));
        let (verification, failure): (&dyn VerificationAlgorithm, _) = match (family, number, &*self.0.curve) {
            (RSA_WITH, [5], _) => return Err("x509: cannot verify signature: insecure algorithm SHA1-RSA"),
            (RSA_WITH, [11], _) => (&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA),
            (RSA_WITH, [12], _) => (&RSA_PKCS1_2048_8192_SHA384, RSA),
            (RSA_WITH, [13], _) => (&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, RSA),
            (ECDSA_WITH, [2], P256) => (&ECDSA_P256_SHA256_ASN1, ECDSA),
            (ECDSA_WITH, [3], P256) => (&ECDSA_P256_SHA384_ASN1, ECDSA),
            (ECDSA_WITH, [2], P384) => (&ECDSA_P384_SHA256_ASN1, ECDSA),
            (ECDSA_WITH, [3], P384) => (&ECDSA_P384_SHA384_ASN1, ECDSA),
            _ if self.0.algorithm == EDDSA => (&ED25519, "x509: Ed25519 verification failure"),
            _ => return Ok(()),
        };
        UnparsedPublicKey::new(verification, &self.0.key).verify(&self.0.info, &self.0.signature).map_err(|_| failure)
    }
}

/// What is wrong with a chain of certificates in PEM.
pub(crate) fn check_certificates(pem: &[u8]) -> Result<(), String> {
    let blocks: Vec<PemBlock> = pem_blocks(pem).collect();
    for PemBlock { label, bytes } in &blocks {
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

/// The seconds since 1970 from which and until which a certificate is valid.
pub(crate) fn certificate_validity(certificate: &[u8]) -> Option<(u64, u64)> {
    let mut fields = Reader::new(certificate).sequence()?.sequence()?;
    let mut first = fields;
    // The version is not there in certificates of the first version.
    if first.next()?.0 == EXPLICIT_VERSION {
        fields.next()?;
    }
    fields.expect(INTEGER)?;
    fields.sequence()?;
    fields.sequence()?;
    let mut validity = fields.sequence()?;
    Some((time(validity.next()?)?, time(validity.next()?)?))
}

fn time((tag, content): (u8, &[u8])) -> Option<u64> {
    let text = std::str::from_utf8(content).ok()?;
    let text = match tag {
        // Years of two digits are between 1950 and 2049.
        UTC_TIME if text < "5" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    u64::try_from(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second()).ok()
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

    #[test]
    fn a_request_names_its_groups_and_is_signed() {
        let request = CertificateRequest::of_pem(REQUEST.as_bytes()).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(request.subject().organizations().collect::<Vec<_>>(), ["developers", "system:masters"]);
        assert_eq!(request.check_signature(), Ok(()));
        let mut other = request;
        other.0.info = b"something else".to_vec();
        assert_eq!(other.check_signature(), Err("x509: ECDSA verification failure"));
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
