//! JSON web tokens in their compact form. In: claims and a key, or a token and keys. Out: a token, or its claims if one of the
//! keys has signed it. Knows nothing of what claims mean.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::key::{PublicKey, SigningKey};

/// The head of a token.
#[derive(Deserialize, Serialize)]
struct Header {
    alg: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    kid: String,
    /// The extensions that a reader must know. There are none here.
    #[serde(default, skip_serializing)]
    crit: Value,
}

/// Signs claims.
pub(super) fn sign(key: &SigningKey, claims: &impl Serialize) -> String {
    let (alg, kid) = (key.public.algorithm().to_owned(), key.public.id.clone());
    let header = Header { alg, kid, crit: Value::Null };
    let encode = |bytes: Vec<u8>| URL_SAFE_NO_PAD.encode(bytes);
    let json = |value: serde_json::Result<Vec<u8>>| encode(value.expect("writing to memory does not fail"));
    let mut token = format!("{}.{}", json(serde_json::to_vec(&header)), json(serde_json::to_vec(claims)));
    let signature = encode(key.sign(token.as_bytes()));
    token.push('.');
    token.push_str(&signature);
    token
}

/// What a token says it is from, before anything is verified; none if it is not a token of this form.
pub(super) fn claimed_issuer(token: &str) -> Option<String> {
    let mut parts = token.split('.');
    let (_, claims, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else { return None };
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    claims["iss"].as_str().map(str::to_owned)
}

/// A token in its parts. Nothing in it is believed before a key has verified it.
pub(super) struct Unverified<'t> {
    /// How it says it is signed.
    pub algorithm: String,
    /// Which key it says has signed it; may be empty.
    pub key_id: String,
    message: &'t str,
    signature: Vec<u8>,
    payload: Vec<u8>,
}

impl<'t> Unverified<'t> {
    /// Takes a token apart; none if it has not the form of one, or has extensions that its reader must know.
    pub(super) fn parse(token: &'t str) -> Option<Self> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
        if !header.crit.is_null() {
            return None;
        }
        let (signature, payload) = (decode(signature)?, decode(payload)?);
        Some(Self { algorithm: header.alg, key_id: header.kid, message, signature, payload })
    }

    /// What the token says, if one of these keys has signed it.
    pub(super) fn signed_by<'k>(&self, keys: impl IntoIterator<Item = &'k PublicKey>) -> Option<&[u8]> {
        let verifies = |key: &PublicKey| key.verifies(&self.algorithm, self.message.as_bytes(), &self.signature);
        keys.into_iter().filter(|key| self.names(key)).any(verifies).then_some(&*self.payload)
    }

    /// Whether the token names this key, or none.
    pub(super) fn names(&self, key: &PublicKey) -> bool {
        self.key_id.is_empty() || key.id == self.key_id
    }
}

/// The claims of a token that one of the keys has signed, with the algorithm that the key signs with. The error never has the
/// token in it.
pub(super) fn verify<T: for<'de> Deserialize<'de>>(token: &str, keys: &[PublicKey]) -> Result<T, String> {
    let malformed = || "the token is malformed".to_owned();
    let token = Unverified::parse(token).ok_or_else(malformed)?;
    let mut named = keys.iter().filter(|key| token.names(key)).peekable();
    if named.peek().is_none() {
        return Err("invalid signature, no keys found".to_owned());
    }
    let payload = token.signed_by(named.filter(|key| key.algorithm() == token.algorithm));
    let payload = payload.ok_or("go-jose/go-jose: error in cryptographic primitive")?;
    serde_json::from_slice(payload).map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_a_key_has_signed_is_believed() {
        let (one, two) = (SigningKey::from_pem(&SigningKey::generate()), SigningKey::from_pem(&SigningKey::generate()));
        let (one, two) = (one.unwrap(), two.unwrap());
        let claims = json!({"iss": "me", "sub": "you"});
        let token = sign(&one, &claims);
        let verified = |token: &str, keys: &[PublicKey]| verify::<Value>(token, keys);
        let own = [one.public.clone()];
        assert_eq!(verified(&token, &own), Ok(claims.clone()));
        assert_eq!(verified(&token, &[two.public.clone(), one.public.clone()]), Ok(claims.clone()));
        assert_eq!(claimed_issuer(&token).as_deref(), Some("me"));
        let other = std::slice::from_ref(&two.public);
        assert_eq!(verified(&token, other), Err("invalid signature, no keys found".to_owned()));

        let parts: Vec<&str> = token.split('.').collect();
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let forged = encode(&json!({"iss": "me", "sub": "root"}));
        let header = |header: Value| encode(&header);
        for (what, token) in [
            ("other claims", format!("{}.{forged}.{}", parts[0], parts[2])),
            ("no signature", format!("{}.{}.", parts[0], parts[1])),
            ("no algorithm", format!("{}.{forged}.", header(json!({"alg": "none"})))),
            ("the wrong algorithm", format!("{}.{}.{}", header(json!({"alg": "RS256"})), parts[1], parts[2])),
            ("another key's", sign(&two, &claims)),
            ("two parts", format!("{}.{}", parts[0], parts[1])),
            ("nothing", String::new()),
            ("letters", "a.b.c".to_owned()),
        ] {
            assert!(verified(&token, &own).is_err(), "{what}");
        }
    }
}
