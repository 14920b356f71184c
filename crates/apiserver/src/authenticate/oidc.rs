//! Tokens of OpenID Connect issuers. In: who issues tokens and what their claims mean, and a token. Out: the user it proves, or why
//! it is not believed. The texts are those of kube-apiserver, and never have the token in them.
//!
//! ```text
//! configuration ─▶ validation ─▶ mapping (claims become a user; expressions are compiled)
//! token ─▶ issuer (has a key of it signed the token?) ─▶ claims (audience, times) ─▶ mapping ─▶ user
//!             └─ refresh: when the issuer is asked for its keys
//! ```

mod claims;
mod configuration;
mod issuer;
mod mapping;
mod refresh;
mod validation;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use konverge_schema::go_quote;

use super::jwt::{self, Unverified};
use crate::user::UserInfo;
use claims::Claims;
use issuer::Issuer;
use mapping::Mapping;

pub use configuration::{
    AnonymousCondition, AnonymousConfiguration, AuthenticationConfigError, AuthenticationConfiguration,
    JwtConfiguration, OidcFlags,
};

/// How issuers may sign tokens: everything that kube-apiserver allows, except for one.
const ALGORITHMS: [&str; 8] = ["ES256", "ES384", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];

/// Nothing here verifies with the curve P-521.
const NOT_HERE: &str = "ES512";

/// How issuers sign if nobody says otherwise.
const DEFAULT: &str = "RS256";

/// Believes the tokens of one issuer. Clones share what is known of it.
#[derive(Clone)]
pub struct JwtAuthenticator(Arc<Inner>);

struct Inner {
    issuer: Issuer,
    audiences: Vec<String>,
    algorithms: Vec<String>,
    mapping: Mapping,
}

impl std::fmt::Debug for JwtAuthenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwtAuthenticator").field("issuer", &self.0.issuer.url()).finish_non_exhaustive()
    }
}

impl AuthenticationConfiguration {
    /// One authenticator for each issuer. `algorithms` are those by which tokens may be signed; all that are known if there are
    /// none. `own` are the issuers that the server itself is, which others must not be.
    pub fn authenticators(
        &self,
        algorithms: Option<&[String]>,
        own: &[String],
    ) -> Result<Vec<JwtAuthenticator>, AuthenticationConfigError> {
        let refused = AuthenticationConfigError;
        let mappings =
            validation::compile(self).map_err(|why| refused(format!("invalid authentication configuration: {why}")))?;
        let algorithms = check_algorithms(algorithms).map_err(refused)?;
        let mut authenticators = Vec::new();
        for (jwt, mapping) in self.jwt.iter().zip(mappings) {
            let configured = &jwt.issuer;
            validation::check_own(&configured.url, own).map_err(refused)?;
            let issuer = Issuer::new(&configured.url, &configured.discovery_url, &configured.certificate_authority);
            let (audiences, algorithms) = (configured.audiences.clone(), algorithms.clone());
            authenticators.push(JwtAuthenticator(Arc::new(Inner { issuer, audiences, algorithms, mapping })));
        }
        Ok(authenticators)
    }
}

fn check_algorithms(given: Option<&[String]>) -> Result<Vec<String>, String> {
    let Some(given) = given else { return Ok(ALGORITHMS.map(str::to_owned).into()) };
    match given.iter().find(|name| !ALGORITHMS.contains(&name.as_str())) {
        Some(name) if name == NOT_HERE => {
            Err(format!("oidc: signing alg {name:?} cannot be verified here; the others of kube-apiserver can"))
        }
        Some(name) => Err(format!("oidc: unsupported signing alg: {}", go_quote(name))),
        None if given.is_empty() => Ok(vec![DEFAULT.to_owned()]),
        None => Ok(given.to_vec()),
    }
}

impl JwtAuthenticator {
    /// The user of a token; none if the token is not from this issuer.
    pub(super) async fn authenticate(&self, token: &str, now: Timestamp) -> Result<Option<UserInfo>, String> {
        let Inner { issuer, audiences, algorithms, mapping } = &*self.0;
        let claimed = jwt::claimed_issuer(token);
        if claimed.as_deref().map(claims::issuer_of) != Some(issuer.url()) {
            return Ok(None);
        }
        if !issuer.is_known() {
            return Err("oidc: authenticator not initialized".to_owned());
        }
        let verify = |why: String| format!("oidc: verify token: {why}");
        let token = Unverified::parse(token).ok_or_else(|| verify("oidc: malformed jwt".to_owned()))?;
        if !algorithms.contains(&token.algorithm) {
            let expected = algorithms.iter().map(|name| go_quote(name)).collect::<Vec<_>>().join(" ");
            let got = go_quote(&token.algorithm);
            return Err(verify(format!(
                "oidc: id token signed with unsupported algorithm, expected [{expected}] got {got}"
            )));
        }
        let payload = issuer.verify(&token).await.map_err(verify)?;
        let claims = Claims::read(payload, issuer.url(), audiences, now).map_err(verify)?;
        check_distributed(&claims, mapping)?;
        mapping.user(&claims).map(Some)
    }

    /// Keeps what is known of the issuer current, until the server closes.
    pub(crate) async fn follow(self, closing: watch::Receiver<bool>) {
        self.0.issuer.follow(closing).await;
    }
}

/// Groups that another server would have to be asked for are not there, and a user without them might be allowed what a group is
/// meant to take away. So such a token is refused.
fn check_distributed(claims: &Claims, mapping: &Mapping) -> Result<(), String> {
    let Some(groups) = mapping.groups_claim().filter(|groups| !claims.has(groups)) else { return Ok(()) };
    let Some(source) = claims.0.get("_claim_names").and_then(|names| names.get(groups)) else { return Ok(()) };
    let sources = claims.0.get("_claim_sources").unwrap_or(&Value::Null);
    match sources[source.as_str().unwrap_or_default()]["endpoint"].as_str() {
        None | Some("") => Ok(()),
        Some(_) => Err(format!(
            "oidc: could not expand distributed claims: the claim {} is kept at another server, and this server asks none",
            go_quote(groups)
        )),
    }
}
