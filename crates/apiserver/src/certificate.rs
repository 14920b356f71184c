//! Certificates and requests for them, as far as a server reads them. In: PEM. Out: what a request asks for and whether its signature is
//! that of its key, in Go's words. Nothing is signed here.

use konverge_core::x509::der::{INTEGER, NULL, OBJECT_IDENTIFIER, Reader, SEQUENCE, value};
use konverge_core::x509::{self, Name, PemBlock, pem_blocks};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA384, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};

/// Object identifiers of the algorithms of keys and signatures, as DER has them.
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];
const RSA_WITH: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
const ECDSA_WITH: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3];
const SHA_2: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2];
const MASK_GENERATION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8];

/// The kinds of keys: the object identifier, Go's words for the kind and for its type, and what Go says of a wrong signature.
type KeyKind = (&'static [u8], &'static str, &'static str, &'static str);
const RSA: KeyKind =
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1], "RSA", "*rsa.PublicKey", "crypto/rsa: verification error");
const ECDSA: KeyKind =
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1], "ECDSA", "*ecdsa.PublicKey", "x509: ECDSA verification failure");
const ED25519_KEY: KeyKind =
    (&[0x2b, 0x65, 0x70], "Ed25519", "ed25519.PublicKey", "x509: Ed25519 verification failure");

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

    /// Whether the signature was made with the key that the certificate shall be for. What cannot be verified is refused: ECDSA with
    /// SHA-1, SHA-512 or other curves than P-256 and P-384, which Go knows, and everything that Go does not know either.
    pub(crate) fn check_signature(&self) -> Result<(), String> {
        let request = &self.0;
        let curve = &*request.curve;
        let (family, number) = request.algorithm.split_at(request.algorithm.len().saturating_sub(1));
        let (wanted, verification): (_, Option<&dyn VerificationAlgorithm>) = match (family, number) {
            (RSA_WITH, [4]) => return Err("x509: cannot verify signature: insecure algorithm MD5-RSA".to_owned()),
            (RSA_WITH, [5]) => (RSA, Some(&RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY)),
            (RSA_WITH, [10]) => (RSA, pss(&request.parameters)),
            (RSA_WITH, [11]) => (RSA, Some(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY)),
            (RSA_WITH, [12]) => (RSA, Some(&RSA_PKCS1_2048_8192_SHA384)),
            (RSA_WITH, [13]) => (RSA, Some(&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY)),
            (ECDSA_WITH, [2]) if curve == P256 => (ECDSA, Some(&ECDSA_P256_SHA256_ASN1)),
            (ECDSA_WITH, [3]) if curve == P256 => (ECDSA, Some(&ECDSA_P256_SHA384_ASN1)),
            (ECDSA_WITH, [2]) if curve == P384 => (ECDSA, Some(&ECDSA_P384_SHA256_ASN1)),
            (ECDSA_WITH, [3]) if curve == P384 => (ECDSA, Some(&ECDSA_P384_SHA384_ASN1)),
            // The key is not on a curve at all: say that.
            (ECDSA_WITH, [2 | 3]) if curve.is_empty() => (ECDSA, Some(&ECDSA_P256_SHA256_ASN1)),
            _ if request.algorithm == ED25519_KEY.0 && request.parameters.is_empty() => (ED25519_KEY, Some(&ED25519)),
            _ => (RSA, None),
        };
        let key = [RSA, ECDSA, ED25519_KEY].into_iter().find(|kind| kind.0 == &*request.key_algorithm);
        let (Some(verification), Some(key)) = (verification, key) else {
            return Err("x509: cannot verify signature: algorithm unimplemented".to_owned());
        };
        if key.0 != wanted.0 {
            return Err(format!(
                "x509: signature algorithm specifies an {} public key, but have public key of type {}",
                wanted.1, key.2
            ));
        }
        let verified = UnparsedPublicKey::new(verification, &request.key).verify(&request.info, &request.signature);
        verified.map_err(|_| wanted.3.to_owned())
    }
}

/// How a signature of RSA-PSS with these parameters is verified: with one hash everywhere, and a salt as long as it.
fn pss(parameters: &[u8]) -> Option<&'static dyn VerificationAlgorithm> {
    let kinds: [(u8, u8, &'static dyn VerificationAlgorithm); 3] =
        [(1, 32, &RSA_PSS_2048_8192_SHA256), (2, 48, &RSA_PSS_2048_8192_SHA384), (3, 64, &RSA_PSS_2048_8192_SHA512)];
    let is_like = |hash: u8, salt: u8, nulls: [&[u8]; 2]| {
        let named = |oid: &[u8], rest: &[u8]| value(SEQUENCE, &[&*value(OBJECT_IDENTIFIER, oid), rest].concat());
        let [hashed, masked] = nulls.map(|null| named(&[SHA_2, &[hash]].concat(), null));
        let fields = [
            value(0xa0, &hashed),
            value(0xa1, &named(MASK_GENERATION, &masked)),
            value(0xa2, &value(INTEGER, &[salt])),
        ];
        parameters == value(SEQUENCE, &fields.concat())
    };
    let null = &[NULL, 0][..];
    let found = kinds.into_iter().find(|(hash, salt, _)| {
        [[null, null], [null, &[]], [&[], null], [&[], &[]]].into_iter().any(|nulls| is_like(*hash, *salt, nulls))
    });
    found.map(|(.., verification)| verification)
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

    /// Requests for `O=developers, CN=alice` of an RSA key, signed by PSS with SHA-384 and with SHA-1, made by openssl.
    const PSS: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIICnjCCAVICAQAwJTETMBEGA1UECgwKZGV2ZWxvcGVyczEOMAwGA1UEAwwFYWxp
Y2UwggEiMA0GCSqGSIb3DQEBAQUAA4IBDwAwggEKAoIBAQDJZ9/7ZEl1MlqAVf85
q/cMQfivLhQ76/YqNyGvSmRou+U3P6yT8N/igsk+rkQmiFa2h4e2mAlsl9akA2SI
cN9Ge01gWrEwbIet36pZCuoD8rxk613MrmzGGzG1nDST2w8JNYZEN7GCfQ9YV614
qsntjjVRlEQdMIHgp/cNvHEolwYVzZaMhxYuYHQPNjJ1zEvSm6qm9RJQObdE+Trj
8GDunJhDX5AQyzTtvJVj4x/x1ntW6X+JAKm9D/bGihixYEhxSHJWhPbeobrJ2GuN
biMsPhroNWTe13UVHjY1/pXE87jKqG9IWxTqWKvJTvqEWf5HqjeknlVYvMcrFlzz
HJBVAgMBAAGgADBBBgkqhkiG9w0BAQowNKAPMA0GCWCGSAFlAwQCAgUAoRwwGgYJ
KoZIhvcNAQEIMA0GCWCGSAFlAwQCAgUAogMCATADggEBAHgWW/NCH6bocqRhTF5a
60PGBdz5z75uWehheZnyGbhlIOs5qqU5DpNFh3NB5aKpEIs/mDlJxdTmf5HqCEO8
Eg86/mLq6fhwQd0SL2LlQXsv32U+PHuNyNZVuRE/GZdX4D97pX18t7deNQWBtyi9
XtVh6SXgPwfljxakAf3nVWQzTZvsMoIoithYMz7SuxHxnWOlavSqf7iovcSZYhvD
pJq38aTEOWHAzBOfYAAveJIw6qpjoFei4aVNKuOWEbQ6ZP57jDjDGW13VtyHKHFo
Wb9Yc8Dc+UlNopKxggZM2emO/XhMRtjsU9I8lOlc9wdjhpMjbhSvrdtsAeZ282Gl
kMo=
-----END CERTIFICATE REQUEST-----";
    const SHA1: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIICajCCAVICAQAwJTETMBEGA1UECgwKZGV2ZWxvcGVyczEOMAwGA1UEAwwFYWxp
Y2UwggEiMA0GCSqGSIb3DQEBAQUAA4IBDwAwggEKAoIBAQDJZ9/7ZEl1MlqAVf85
q/cMQfivLhQ76/YqNyGvSmRou+U3P6yT8N/igsk+rkQmiFa2h4e2mAlsl9akA2SI
cN9Ge01gWrEwbIet36pZCuoD8rxk613MrmzGGzG1nDST2w8JNYZEN7GCfQ9YV614
qsntjjVRlEQdMIHgp/cNvHEolwYVzZaMhxYuYHQPNjJ1zEvSm6qm9RJQObdE+Trj
8GDunJhDX5AQyzTtvJVj4x/x1ntW6X+JAKm9D/bGihixYEhxSHJWhPbeobrJ2GuN
biMsPhroNWTe13UVHjY1/pXE87jKqG9IWxTqWKvJTvqEWf5HqjeknlVYvMcrFlzz
HJBVAgMBAAGgADANBgkqhkiG9w0BAQUFAAOCAQEATsEQ+eVzfWR8VhHh2NTAUVY1
4urkCRkX1p1LyBwPI3f8b7b8j6sGRAG2C66HoFtrerAsbm/Tb8+hdbD8vx3R7Muk
8JOGRjq1rCvQL7OQOEI2t+2+5Vq+VJfxkoWBfgjrmziuSapNsiN6ATGojqW9O9CJ
SVZNIVC1fJr24sf9AVGvC2ovbls3AIa8r8575+EhZbp5oov3Zqdyc08TzpYzN0NP
g8t+3FhMzCBlDYVIq6XJ8IAhTa4JmlcXPhEtk/hy7eVQ3wKIJ5w38v1EYJ2+/gcX
9CqXjhXq/YxzFFMOUGepVhzfySSkb3oO9ueaiRVB5TmaA7imZ9LcKliewpwOqw==
-----END CERTIFICATE REQUEST-----";

    #[test]
    fn signatures_of_rsa() {
        #[track_caller]
        fn check(pem: &str, change: impl Fn(&mut x509::CertificateRequest), expect: Result<(), &str>) {
            let mut request = CertificateRequest::of_pem(pem.as_bytes()).unwrap_or_else(|why| panic!("{why}"));
            change(&mut request.0);
            assert_eq!(request.check_signature(), expect.map_err(str::to_owned));
        }
        const UNKNOWN: &str = "x509: cannot verify signature: algorithm unimplemented";
        for pem in [PSS, SHA1] {
            check(pem, |_| {}, Ok(()));
            check(pem, |request| request.info.push(0), Err("crypto/rsa: verification error"));
            check(pem, |request| request.key_algorithm = vec![1], Err(UNKNOWN));
            let other =
                "x509: signature algorithm specifies an RSA public key, but have public key of type *ecdsa.PublicKey";
            check(pem, |request| request.key_algorithm = ECDSA.0.to_vec(), Err(other));
        }
        // Another salt, another hash for the mask, no parameters.
        check(PSS, |request| *request.parameters.last_mut().unwrap() = 32, Err(UNKNOWN));
        check(PSS, |request| request.parameters[46] = 1, Err(UNKNOWN));
        check(PSS, |request| request.parameters.clear(), Err(UNKNOWN));
        let md5 = "x509: cannot verify signature: insecure algorithm MD5-RSA";
        check(SHA1, |request| *request.algorithm.last_mut().unwrap() = 4, Err(md5));
    }

    #[test]
    fn a_request_names_its_groups_and_is_signed() {
        let request = CertificateRequest::of_pem(REQUEST.as_bytes()).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(request.subject().organizations().collect::<Vec<_>>(), ["developers", "system:masters"]);
        assert_eq!(request.check_signature(), Ok(()));
        let mut other = request;
        other.0.info = b"something else".to_vec();
        assert_eq!(other.check_signature(), Err("x509: ECDSA verification failure".to_owned()));
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
