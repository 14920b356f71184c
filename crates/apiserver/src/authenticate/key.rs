//! The keys that tokens are signed and verified with. In: PEM, as the flags of kube-apiserver name files of, or JSON web keys of
//! an issuer. Out: keys that sign and verify, and a JSON web key of each. A private key is never printed.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::rsa;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PKCS1_SHA256, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::{Value, json};

use konverge_core::x509::der::{self, Reader};
use konverge_core::x509::{PemBlock, pem_blocks};

const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];

/// What a point of a curve begins with if both of its numbers follow.
const UNCOMPRESSED: u8 = 4;

/// How long the modulus of an RSA key may be: 2048 to 8192 bits, which is what `ring` verifies with.
const LEAST_RSA_BYTES: usize = 256;
const MOST_RSA_BYTES: usize = 1024;

/// Why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is no key in the text.
    #[error("data does not contain any valid RSA or ECDSA {0} keys")]
    None(&'static str),
    /// A key of a kind that cannot be used here.
    #[error("the key cannot be used: tokens are signed with RSA of at least 2048 bits, ECDSA P-256 or ECDSA P-384")]
    Unsupported,
}

/// The kind of a key, by the algorithm that it signs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Es256,
    Es384,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
        }
    }

    fn of_curve(curve: &[u8]) -> Option<Self> {
        match curve {
            P256 => Some(Self::Es256),
            P384 => Some(Self::Es384),
            _ => None,
        }
    }

    fn signing(self) -> &'static EcdsaSigningAlgorithm {
        if self == Self::Es384 { &ECDSA_P384_SHA384_FIXED_SIGNING } else { &ECDSA_P256_SHA256_FIXED_SIGNING }
    }

    /// How a key of this kind verifies signatures by the algorithm of this name; none if no such key makes them.
    fn verification(self, named: &str) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match (self, named) {
            (Self::Rs256, "RS256") => &RSA_PKCS1_2048_8192_SHA256,
            (Self::Rs256, "RS384") => &RSA_PKCS1_2048_8192_SHA384,
            (Self::Rs256, "RS512") => &RSA_PKCS1_2048_8192_SHA512,
            (Self::Rs256, "PS256") => &RSA_PSS_2048_8192_SHA256,
            (Self::Rs256, "PS384") => &RSA_PSS_2048_8192_SHA384,
            (Self::Rs256, "PS512") => &RSA_PSS_2048_8192_SHA512,
            (Self::Es256, "ES256") => &ECDSA_P256_SHA256_FIXED,
            (Self::Es384, "ES384") => &ECDSA_P384_SHA384_FIXED,
            _ => return None,
        })
    }
}

/// A key that verifies signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublicKey {
    algorithm: Algorithm,
    /// As `ring` takes it: the point of a curve, or modulus and exponent in DER.
    bytes: Vec<u8>,
    /// By which the header of a token names the key.
    pub(super) id: String,
}

impl PublicKey {
    fn new(algorithm: Algorithm, bytes: Vec<u8>) -> Self {
        let named = |oid: &[u8], parameters: Vec<u8>| {
            let oid = der::value(der::OBJECT_IDENTIFIER, oid);
            der::value(der::SEQUENCE, &[oid, parameters].concat())
        };
        let curve = |oid| named(EC_PUBLIC_KEY, der::value(der::OBJECT_IDENTIFIER, oid));
        let kind = match algorithm {
            Algorithm::Rs256 => named(RSA_ENCRYPTION, der::value(der::NULL, &[])),
            Algorithm::Es256 => curve(P256),
            Algorithm::Es384 => curve(P384),
        };
        let bits = der::value(der::BIT_STRING, &[&[0], &*bytes].concat());
        let info = der::value(der::SEQUENCE, &[kind, bits].concat());
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &info));
        Self { algorithm, bytes, id }
    }

    /// Every public key in a PEM text: of public keys, certificates and private keys.
    pub(super) fn all_in(pem: &str) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for PemBlock { label, bytes } in pem_blocks(pem.as_bytes()) {
            match &*label {
                "PUBLIC KEY" => keys.push(public_key(Reader::new(&bytes)).ok_or(KeyError::Unsupported)?),
                "RSA PUBLIC KEY" => keys.push(Self::new(Algorithm::Rs256, bytes)),
                "CERTIFICATE" => keys.push(certified_key(&bytes).ok_or(KeyError::Unsupported)?),
                label if label.ends_with("PRIVATE KEY") => keys.push(SigningKey::of_block(label, &bytes)?.public),
                _ => {}
            }
        }
        if keys.is_empty() { Err(KeyError::None("public")) } else { Ok(keys) }
    }

    /// A JSON web key; none for one that cannot verify tokens here: a secret, an RSA key that is too short, another curve.
    pub(super) fn from_json(json: &Value) -> Option<Self> {
        let text = |field: &str| json[field].as_str().unwrap_or_default();
        let bytes = |field: &str| URL_SAFE_NO_PAD.decode(text(field).trim_end_matches('=')).ok();
        let (algorithm, bytes) = match (text("kty"), text("crv")) {
            ("RSA", _) => {
                let (n, e) = (bytes("n")?, bytes("e")?);
                let modulus = n.iter().skip_while(|byte| **byte == 0).count();
                if !(LEAST_RSA_BYTES..=MOST_RSA_BYTES).contains(&modulus) {
                    return None;
                }
                let numbers = [unsigned(&n), unsigned(&e)].concat();
                (Algorithm::Rs256, der::value(der::SEQUENCE, &numbers))
            }
            ("EC", curve) => {
                let (algorithm, size) = match curve {
                    "P-256" => (Algorithm::Es256, 32),
                    "P-384" => (Algorithm::Es384, 48),
                    _ => return None,
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != size || y.len() != size {
                    return None;
                }
                (algorithm, [&[UNCOMPRESSED], &*x, &*y].concat())
            }
            _ => return None,
        };
        Some(Self { algorithm, bytes, id: text("kid").to_owned() })
    }

    /// Whether this key made the signature of a message, by the algorithm of this name.
    pub(super) fn verifies(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        let verification = self.algorithm.verification(algorithm);
        verification
            .is_some_and(|algorithm| UnparsedPublicKey::new(algorithm, &self.bytes).verify(message, signature).is_ok())
    }

    pub(super) fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    /// The key as a JSON web key.
    pub(super) fn to_json(&self) -> Value {
        let (id, algorithm) = (&self.id, self.algorithm.name());
        match self.algorithm {
            Algorithm::Rs256 => {
                let mut numbers = Reader::new(&self.bytes).sequence().unwrap_or(Reader::new(&[]));
                let mut number = || {
                    let bytes = numbers.expect(der::INTEGER).unwrap_or_default();
                    URL_SAFE_NO_PAD.encode(bytes.strip_prefix(&[0]).unwrap_or(bytes))
                };
                let (n, e) = (number(), number());
                json!({"use": "sig", "kty": "RSA", "kid": id, "alg": algorithm, "n": n, "e": e})
            }
            Algorithm::Es256 | Algorithm::Es384 => {
                let curve = if self.algorithm == Algorithm::Es384 { "P-384" } else { "P-256" };
                let point = self.bytes.get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
                json!({"use": "sig", "kty": "EC", "kid": id, "crv": curve, "alg": algorithm, "x": x, "y": y})
            }
        }
    }
}

/// A key that signs.
pub(super) struct SigningKey {
    pair: Pair,
    pub(super) public: PublicKey,
}

enum Pair {
    Rsa(rsa::KeyPair),
    Ecdsa(EcdsaKeyPair),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The first private key in a PEM text.
    pub(super) fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let private = pem_blocks(pem.as_bytes()).find(|block| block.label.ends_with("PRIVATE KEY"));
        let PemBlock { label, bytes } = private.ok_or(KeyError::None("private"))?;
        Self::of_block(&label, &bytes)
    }

    /// A new key, as PEM.
    pub(super) fn generate() -> String {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let made = made.expect("the system has random numbers");
        let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
        let encoded = STANDARD.encode(&made);
        for line in encoded.as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        pem
    }

    fn of_block(label: &str, bytes: &[u8]) -> Result<Self, KeyError> {
        let key = match label {
            "RSA PRIVATE KEY" => Self::rsa(bytes),
            "EC PRIVATE KEY" => Self::ecdsa(bytes, None),
            "PRIVATE KEY" => Self::pkcs8(bytes),
            _ => None,
        };
        key.ok_or(KeyError::Unsupported)
    }

    fn pkcs8(bytes: &[u8]) -> Option<Self> {
        let mut info = Reader::new(bytes).sequence()?;
        info.expect(der::INTEGER)?;
        let mut algorithm = info.sequence()?;
        let kind = algorithm.expect(der::OBJECT_IDENTIFIER)?;
        let key = info.expect(der::OCTET_STRING)?;
        match kind {
            RSA_ENCRYPTION => Self::rsa(key),
            EC_PUBLIC_KEY => Self::ecdsa(key, algorithm.expect(der::OBJECT_IDENTIFIER)),
            _ => None,
        }
    }

    fn rsa(bytes: &[u8]) -> Option<Self> {
        let pair = rsa::KeyPair::from_der(bytes).ok()?;
        let public = PublicKey::new(Algorithm::Rs256, pair.public().as_ref().to_vec());
        Some(Self { pair: Pair::Rsa(pair), public })
    }

    /// `ECPrivateKey`: the number, and in fields with numbers of their own the curve and the public key.
    fn ecdsa(bytes: &[u8], curve: Option<&[u8]>) -> Option<Self> {
        let mut key = Reader::new(bytes).sequence()?;
        key.expect(der::INTEGER)?;
        let number = key.expect(der::OCTET_STRING)?;
        let (mut curve, mut point) = (curve, None);
        while let Some((tag, content)) = key.next() {
            match tag {
                0xa0 => curve = curve.or(Reader::new(content).expect(der::OBJECT_IDENTIFIER)),
                0xa1 => point = Reader::new(content).bits(),
                _ => {}
            }
        }
        let algorithm = Algorithm::of_curve(curve?)?;
        let (signing, random) = (algorithm.signing(), SystemRandom::new());
        let pair = EcdsaKeyPair::from_private_key_and_public_key(signing, number, point?, &random).ok()?;
        let public = PublicKey::new(algorithm, pair.public_key().as_ref().to_vec());
        Some(Self { pair: Pair::Ecdsa(pair), public })
    }

    /// The signature of a message.
    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ecdsa(pair) => pair.sign(&random, message).expect("the system has random numbers").as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect("the length fits");
                signature
            }
        }
    }
}

/// A number that is not negative, as DER.
fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    // Without a zero in front, a number that begins with a one bit would be negative.
    der::value(
        der::INTEGER,
        &[&[0][..usize::from(bytes.get(first).is_none_or(|byte| *byte >= 0x80))], &bytes[first..]].concat(),
    )
}

/// A `SubjectPublicKeyInfo`.
fn public_key(mut reader: Reader<'_>) -> Option<PublicKey> {
    let mut info = reader.sequence()?;
    let mut kind = info.sequence()?;
    let algorithm = match kind.expect(der::OBJECT_IDENTIFIER)? {
        RSA_ENCRYPTION => Algorithm::Rs256,
        EC_PUBLIC_KEY => Algorithm::of_curve(kind.expect(der::OBJECT_IDENTIFIER)?)?,
        _ => return None,
    };
    Some(PublicKey::new(algorithm, info.bits()?.to_vec()))
}

/// The public key of a certificate. Whether the certificate is valid does not matter: only its key is used.
fn certified_key(certificate: &[u8]) -> Option<PublicKey> {
    let mut body = Reader::new(certificate).sequence()?.sequence()?;
    let mut next = body;
    if next.next()?.0 == 0xa0 {
        // The version.
        body = next;
    }
    // Serial number, signature algorithm, issuer, validity, subject.
    for _ in 0..5 {
        body.next()?;
    }
    public_key(body)
}
