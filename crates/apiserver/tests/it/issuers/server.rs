//! An OpenID Connect issuer for tests: an HTTPS server with a discovery document and keys, which the test changes as it likes, and
//! tokens that it signs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use ring::rand::SystemRandom;
use ring::rsa;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
    RsaEncoding,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What the issuer answers.
#[derive(Default)]
pub(super) struct Says {
    /// Its keys.
    pub keys: Vec<Value>,
    /// The headers of its keys.
    pub cache_control: Option<&'static str>,
    /// Another name than its own in the discovery document.
    pub issuer: Option<String>,
    /// Instead of any document.
    pub failure: Option<StatusCode>,
    /// Instead of its keys.
    pub nonsense: Option<Bytes>,
    /// How often its keys were asked for.
    pub asked: usize,
}

/// A running issuer.
pub(super) struct Issuer {
    address: SocketAddr,
    pub ca: String,
    pub says: Arc<Mutex<Says>>,
}

impl Issuer {
    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(super) async fn start(keys: Vec<Value>) -> Self {
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let says = Arc::new(Mutex::new(Says { keys, ..Says::default() }));
        let (acceptor, answers) = (TlsAcceptor::from(Arc::new(config)), says.clone());
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (acceptor, says) = (acceptor.clone(), answers.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let answer = service_fn(move |request: Request<Incoming>| {
                        let answered = answer(&says, address, request.uri().path());
                        std::future::ready(Ok::<_, std::convert::Infallible>(answered))
                    });
                    drop(auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), answer).await);
                });
            }
        });
        Self { address, ca: ca.as_ref().pem(), says }
    }

    /// Claims that are valid, with some of them changed; null takes one away.
    pub(super) fn claims(&self, change: Value) -> Value {
        let mut claims = json!({"iss": self.url(), "aud": "kubernetes", "sub": "alice", "exp": 4_000_000_000_u64});
        let claims_map = claims.as_object_mut().unwrap();
        claims_map.extend(change.as_object().unwrap().clone());
        claims_map.retain(|_, value| !value.is_null());
        claims
    }
}

fn answer(says: &Mutex<Says>, address: SocketAddr, path: &str) -> Response<Full<Bytes>> {
    let mut says = says.lock().unwrap();
    let response = Response::builder();
    if let Some(status) = says.failure {
        return response.status(status).body(Full::new(Bytes::from("not today"))).unwrap();
    }
    let document = match path {
        "/.well-known/openid-configuration" | "/elsewhere" => {
            let issuer = says.issuer.clone().unwrap_or_else(|| format!("https://{address}"));
            json!({"issuer": issuer, "jwks_uri": format!("https://{address}/moved")})
        }
        "/moved" => return response.status(302).header("location", "/keys").body(Full::default()).unwrap(),
        "/keys" => {
            says.asked += 1;
            if let Some(nonsense) = says.nonsense.clone() {
                return response.body(Full::new(nonsense)).unwrap();
            }
            json!({"keys": says.keys})
        }
        _ => return response.status(404).body(Full::default()).unwrap(),
    };
    let response = match says.cache_control {
        Some(value) => response.header("cache-control", value),
        None => response,
    };
    response.body(Full::new(Bytes::from(document.to_string()))).unwrap()
}

/// A key that signs tokens.
pub(super) enum Key {
    Rsa(Box<rsa::KeyPair>, String),
    Ecdsa(Box<EcdsaKeyPair>, &'static str, String),
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Key {
    /// The RSA key of the tests.
    pub(super) fn rsa(id: &str) -> Self {
        let PrivateKeyDer::Pkcs8(der) = PrivateKeyDer::from_pem_slice(include_bytes!("rsa.pem")).unwrap() else {
            panic!("the key is PKCS #8");
        };
        Self::Rsa(Box::new(rsa::KeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap()), id.to_owned())
    }

    /// A new key of a curve: `P-256` or `P-384`.
    pub(super) fn ecdsa(curve: &'static str, id: &str) -> Self {
        let algorithm: &'static EcdsaSigningAlgorithm =
            if curve == "P-384" { &ECDSA_P384_SHA384_FIXED_SIGNING } else { &ECDSA_P256_SHA256_FIXED_SIGNING };
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        Self::Ecdsa(Box::new(key), curve, id.to_owned())
    }

    /// The public key, as issuers publish it.
    pub(super) fn public(&self) -> Value {
        match self {
            Self::Rsa(key, id) => {
                let public = rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "use": "sig", "kid": id, "n": encode(public.n), "e": encode(public.e)})
            }
            Self::Ecdsa(key, curve, id) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at((key.public_key().as_ref().len() - 1) / 2);
                json!({"kty": "EC", "kid": id, "crv": curve, "x": encode(x), "y": encode(y)})
            }
        }
    }

    fn id(&self) -> &str {
        match self {
            Self::Rsa(_, id) | Self::Ecdsa(_, _, id) => id,
        }
    }

    /// A token signed by this algorithm, which names the key.
    pub(super) fn sign(&self, algorithm: &str, claims: &Value) -> String {
        self.sign_as(&json!({"alg": algorithm, "kid": self.id()}), claims)
    }

    /// A token with any header.
    pub(super) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match self {
            Self::Ecdsa(key, ..) => key.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Rsa(key, _) => {
                let encoding: &'static dyn RsaEncoding = match header["alg"].as_str().unwrap() {
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    "PS512" => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(encoding, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{message}.{}", encode(signature))
    }
}

/// A token without a signature, or with one that a secret made.
pub(super) fn forge(header: &Value, claims: &Value, secret: Option<&[u8]>) -> String {
    let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
    let signature = secret.map_or(String::new(), |secret| {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        encode(ring::hmac::sign(&key, message.as_bytes()))
    });
    format!("{message}.{signature}")
}
