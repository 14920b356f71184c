//! Tokens of service accounts. In: the account, what the token is bound to, for how long and for whom; or a token. Out: a
//! signed token, or the user it proves. A token ends with its account and with the object that it is bound to, at once: both
//! are looked up in the store whenever the token is used.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use konverge_schema::go_quote;

use crate::meta;
use crate::record;
use crate::server::Server;
use crate::user::{UserInfo, service_account_groups, service_account_name};

use super::TokenUser;
use super::jwt;
use super::key::{KeyError, PublicKey, SigningKey};

/// How far the clocks of client and server may differ.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// Who issues the tokens of service accounts, if nobody says otherwise; what kubeadm says.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Issues tokens of service accounts, and knows its own again.
///
/// Clones share the key. The default makes a key of its own when it is first needed.
#[derive(Clone, Debug)]
pub struct ServiceAccountIssuer {
    issuers: Vec<String>,
    audiences: Vec<String>,
    /// The longest that a token is valid; none for no limit.
    max_expiration: Option<i64>,
    jwks_uri: Option<String>,
    keys: Arc<OnceLock<Keys>>,
}

#[derive(Debug)]
struct Keys {
    signing: SigningKey,
    verifying: Vec<PublicKey>,
}

impl Default for ServiceAccountIssuer {
    fn default() -> Self {
        Self {
            issuers: vec![ISSUER.to_owned()],
            audiences: vec![ISSUER.to_owned()],
            max_expiration: None,
            jwks_uri: None,
            keys: Arc::default(),
        }
    }
}

impl ServiceAccountIssuer {
    /// Signs with a private key and believes what it or the public keys of `verifying` have signed, all as PEM.
    pub fn new(signing: &str, verifying: &[String]) -> Result<Self, KeyError> {
        let signing = SigningKey::from_pem(signing)?;
        let mut keys = Vec::new();
        for pem in verifying {
            keys.extend(PublicKey::all_in(pem)?);
        }
        // As in kube-apiserver, the signing key is believed only if no others are named.
        if verifying.is_empty() {
            keys.push(signing.public.clone());
        }
        let keys = Arc::new(OnceLock::from(Keys { signing, verifying: keys }));
        Ok(Self { keys, ..Self::default() })
    }

    /// A new private key, as PEM.
    pub fn generate_key() -> String {
        SigningKey::generate()
    }

    /// The name of the issuer in new tokens, and older names whose tokens are still believed. Tokens are for these audiences
    /// if nobody asks for others; without any, for the issuer.
    #[must_use]
    pub fn named(mut self, issuers: Vec<String>, audiences: Vec<String>) -> Self {
        if !issuers.is_empty() {
            self.issuers = issuers;
        }
        self.audiences = if audiences.is_empty() { self.issuers[..1].to_vec() } else { audiences };
        self
    }

    /// Limits how many seconds a token is valid.
    #[must_use]
    pub fn at_most(mut self, seconds: Option<i64>) -> Self {
        self.max_expiration = seconds;
        self
    }

    /// Where others find the public keys.
    #[must_use]
    pub fn with_jwks_uri(mut self, uri: String) -> Self {
        self.jwks_uri = Some(uri);
        self
    }

    /// The names of the issuer whose tokens are believed. No other issuer may have one of them.
    pub fn issuers(&self) -> &[String] {
        &self.issuers
    }

    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    pub(crate) fn max_expiration(&self) -> Option<i64> {
        self.max_expiration
    }

    fn keys(&self) -> &Keys {
        self.keys.get_or_init(|| {
            let signing = SigningKey::from_pem(&SigningKey::generate()).expect("a key that was just made can be read");
            let verifying = vec![signing.public.clone()];
            Keys { signing, verifying }
        })
    }

    /// The document at `/.well-known/openid-configuration`; none if the issuer is not a URL that others can reach.
    pub(crate) fn discovery(&self, own_address: &str) -> Option<Value> {
        let issuer = &self.issuers[0];
        if !issuer.starts_with("https://") || issuer.contains(['?', '#']) {
            return None;
        }
        let mut algorithms: Vec<&str> = self.keys().verifying.iter().map(PublicKey::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let jwks_uri = self.jwks_uri.clone().unwrap_or_else(|| format!("https://{own_address}/openid/v1/jwks"));
        Some(json!({
            "issuer": issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        }))
    }

    /// The document at `/openid/v1/jwks`.
    pub(crate) fn key_set(&self) -> Value {
        json!({"keys": self.keys().verifying.iter().map(PublicKey::to_json).collect::<Vec<_>>()})
    }

    /// A signed token.
    pub(crate) fn sign(&self, claims: &Claims) -> String {
        jwt::sign(&self.keys().signing, &Claims { iss: self.issuers[0].clone(), ..claims.clone() })
    }
}

/// What a token says.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Claims {
    #[serde(deserialize_with = "one_or_several")]
    pub aud: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    pub iss: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub jti: String,
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    pub sub: String,
}

/// The account, and what the token is bound to.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct KubernetesClaims {
    pub namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<BoundObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<BoundObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<BoundObject>,
    pub serviceaccount: BoundObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// An object that a token ends with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct BoundObject {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// An audience may be one string or a list.
fn one_or_several<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Audience::deserialize(deserializer)? {
        Audience::One(one) => vec![one],
        Audience::Several(several) => several,
    })
}

/// The user of a token; none if it is not a token of this issuer. The error has the words of kube-apiserver.
pub(super) fn authenticate(server: &Server, token: &str, audiences: &[String]) -> Result<Option<TokenUser>, String> {
    let issuer = &server.authentication.service_accounts;
    let claimed = jwt::claimed_issuer(token).filter(|claimed| issuer.issuers.contains(claimed));
    if claimed.is_none() {
        return Ok(None);
    }
    let claims: Claims = jwt::verify(token, &issuer.keys().verifying)?;
    let audiences: Vec<String> = claims.aud.iter().filter(|one| audiences.contains(one)).cloned().collect();
    if audiences.is_empty() {
        let quoted = |list: &[String]| list.iter().map(|text| go_quote(text)).collect::<Vec<_>>().join(" ");
        return Err(format!(
            "token audiences [{}] is invalid for the target audiences [{}]",
            quoted(&claims.aud),
            quoted(issuer.audiences())
        ));
    }
    let now = server.env.now();
    check_time(&claims, now)?;
    check_objects(server, &claims.kubernetes, now)?;
    Ok(Some(TokenUser { user: user(&claims), audiences }))
}

fn check_time(claims: &Claims, now: Timestamp) -> Result<(), String> {
    let at = |seconds: i64| Timestamp::from_second(seconds).unwrap_or(Timestamp::MIN);
    if claims.nbf.is_some_and(|time| now + LEEWAY < at(time)) {
        return Err("service account token is not valid yet".to_owned());
    }
    if claims.exp.is_none_or(|time| now - LEEWAY > at(time)) {
        return Err("service account token has expired".to_owned());
    }
    if claims.iat.is_some_and(|time| now + LEEWAY < at(time)) {
        return Err("service account token is issued in the future".to_owned());
    }
    Ok(())
}

/// Whether the account and what the token is bound to are still there, and are the same.
fn check_objects(server: &Server, claims: &KubernetesClaims, now: Timestamp) -> Result<(), String> {
    let invalidated = || "service account token has been invalidated".to_owned();
    let namespace = Some(&*claims.namespace);
    let (name, account) = (&claims.serviceaccount.name, &claims.serviceaccount);
    match find(server, "serviceaccounts", namespace, name, now) {
        Found::Nothing => return Err(format!("serviceaccounts {} not found", go_quote(name))),
        Found::Deleted => return Err(format!("service account {}/{name} has been deleted", claims.namespace)),
        Found::Uid(uid) if uid != account.uid => {
            return Err(format!("service account UID ({uid}) does not match claim ({})", account.uid));
        }
        Found::Uid(_) => {}
    }
    // A token of a pod names its node, too, which may be gone.
    let node = claims.node.as_ref().filter(|_| claims.pod.is_none());
    for (plural, kind, namespace, bound) in [
        ("secrets", "secret", namespace, claims.secret.as_ref()),
        ("pods", "pod", namespace, claims.pod.as_ref()),
        ("nodes", "node", None, node),
    ] {
        let Some(bound) = bound else { continue };
        match find(server, plural, namespace, &bound.name, now) {
            Found::Nothing | Found::Deleted => return Err(invalidated()),
            Found::Uid(uid) if uid != bound.uid => {
                return Err(format!(
                    "{kind} UID ({uid}) does not match service account {kind} ref claim ({})",
                    bound.uid
                ));
            }
            Found::Uid(_) => {}
        }
    }
    Ok(())
}

/// What is there of an object that a token needs.
enum Found {
    Nothing,
    /// It is there, but its deletion began some time ago.
    Deleted,
    Uid(String),
}

fn find(server: &Server, plural: &str, namespace: Option<&str>, name: &str, now: Timestamp) -> Found {
    let resource = server.registry.find("", "v1", plural).expect("tokens are bound to built-in kinds");
    // A name from a token that is signed is a valid one, but nothing else should be found by a strange one.
    if name.contains('/') || namespace.is_some_and(|namespace| namespace.contains('/')) {
        return Found::Nothing;
    }
    let Ok(Some(entry)) = server.store.get(&resource.key(namespace, name), None) else { return Found::Nothing };
    let object = record::decode(&entry);
    let deleted = meta::text(&object, "deletionTimestamp").parse::<Timestamp>();
    match deleted {
        Ok(deleted) if deleted < now - LEEWAY => Found::Deleted,
        _ => Found::Uid(meta::text(&object, "uid").to_owned()),
    }
}

fn user(claims: &Claims) -> UserInfo {
    let KubernetesClaims { namespace, serviceaccount, pod, node, .. } = &claims.kubernetes;
    let mut extra = BTreeMap::new();
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        }
    };
    if let Some(pod) = pod {
        add("pod-name", &pod.name);
        add("pod-uid", &pod.uid);
    }
    if !claims.jti.is_empty() {
        add("credential-id", &format!("JTI={}", claims.jti));
    }
    if let Some(node) = node {
        add("node-name", &node.name);
        add("node-uid", &node.uid);
    }
    UserInfo {
        uid: serviceaccount.uid.clone(),
        groups: service_account_groups(namespace),
        extra,
        ..UserInfo::named(service_account_name(namespace, &serviceaccount.name))
    }
}
