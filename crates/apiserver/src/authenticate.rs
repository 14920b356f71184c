//! Who makes a request. In: the user of a client certificate, if there is one, the path and the headers. Out: a user, or 401. As in
//! kube-apiserver, one credential that is believed is enough, a credential that is not believed is refused even where anonymous
//! requests are allowed, and who shows none is the anonymous user, unless that is switched off.

mod jwt;
mod key;
mod oidc;
mod service_account;
mod token_file;

use http::{HeaderMap, header};

use konverge_core::Status;

use crate::server::{ApiServer, Server};
use crate::user::{ANONYMOUS, UNAUTHENTICATED, UserInfo};
use crate::websocket;

pub use key::KeyError;
pub use oidc::{
    AnonymousCondition, AnonymousConfiguration, AuthenticationConfigError, AuthenticationConfiguration,
    JwtAuthenticator, JwtConfiguration, OidcFlags,
};
pub use service_account::ServiceAccountIssuer;
pub use token_file::{StaticTokens, TokenFileError};

pub(crate) use service_account::{BoundObject, Claims, KubernetesClaims};

/// The group of everybody who has shown a credential.
const AUTHENTICATED: &str = "system:authenticated";

/// What is said of a token that nobody knows.
const INVALID: &str = "invalid bearer token";

/// What requests are authenticated by.
#[derive(Clone, Debug, Default)]
pub struct Authentication {
    /// Users with a token that never changes.
    pub tokens: StaticTokens,
    /// Who issues the tokens of service accounts. The default has a key that is made for this server and is gone with it.
    pub service_accounts: ServiceAccountIssuer,
    /// Who else issues tokens: OpenID Connect issuers.
    pub jwt: Vec<JwtAuthenticator>,
    /// Who makes a request without a credential.
    pub anonymous: Anonymous,
}

/// Who makes a request without a credential.
#[derive(Clone, Debug, Default)]
pub enum Anonymous {
    /// The user `system:anonymous`, in the group `system:unauthenticated`.
    #[default]
    Unprivileged,
    /// The user `system:anonymous`, in these groups besides `system:unauthenticated`.
    InGroups(Vec<String>),
    /// The user `system:anonymous`, in the group `system:unauthenticated`, but only for these paths; a request for any other is
    /// refused with 401.
    AtPaths(Vec<String>),
    /// Nobody: the request is refused with 401.
    Refused,
}

/// What a token proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenUser {
    pub user: UserInfo,
    /// The audiences that the token is for, of those that were asked about.
    pub audiences: Vec<String>,
}

impl ApiServer {
    /// The user who makes a request: who a client certificate names, or whose bearer token the headers have, or the anonymous
    /// user. `certificate` is an error if the client showed a certificate that is not believed.
    ///
    /// A listener calls this and puts the user into the extensions of the request. Requests in the same process need no
    /// credential. Waits only if an OpenID Connect issuer has to be asked for its keys.
    pub async fn authenticate(
        &self,
        certificate: Result<Option<UserInfo>, CertificateRefused>,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<UserInfo, Status> {
        let unauthorized = || Status::failure(401, "Unauthorized", "Unauthorized");
        let token = match (bearer(headers), websocket::bearer(headers)) {
            // Whoever has a certificate needs no token, and no issuer is asked about it.
            _ if matches!(certificate, Ok(Some(_))) => Ok(None),
            (Some(token), _) => authenticate_token(&self.0, token, &[]).await.map(Some),
            (None, Some(Ok(token))) => authenticate_token(&self.0, &token, &[]).await.map(Some),
            (None, Some(Err(why))) => Err(why.to_owned()),
            (None, None) => Ok(None),
        };
        match (certificate, token) {
            (Ok(Some(user)), _) | (_, Ok(Some(TokenUser { user, .. }))) => Ok(authenticated(user)),
            (Ok(None), Ok(None)) => match &self.0.authentication.anonymous {
                Anonymous::Unprivileged => Ok(UserInfo::anonymous()),
                Anonymous::InGroups(groups) => {
                    let mut user = UserInfo::anonymous();
                    user.groups.extend(groups.iter().cloned());
                    Ok(user)
                }
                Anonymous::AtPaths(paths) if paths.iter().any(|known| known == path) => Ok(UserInfo::anonymous()),
                Anonymous::AtPaths(_) | Anonymous::Refused => Err(unauthorized()),
            },
            (_, Err(why)) => {
                tracing::info!(%why, "unable to authenticate a request: its bearer token is not believed");
                Err(unauthorized())
            }
            (Err(CertificateRefused), Ok(None)) => Err(unauthorized()),
        }
    }
}

/// A client certificate that is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateRefused;

/// The user of a token, if it is for one of these audiences; without any, it has to be for this server. The error says why the
/// token is not believed, for access reviews and logs, and never has the token in it.
pub(crate) async fn authenticate_token(
    server: &Server,
    token: &str,
    audiences: &[String],
) -> Result<TokenUser, String> {
    let Authentication { tokens, service_accounts, jwt, .. } = &server.authentication;
    let own = service_accounts.audiences();
    let asked = if audiences.is_empty() { own } else { audiences };
    // Tokens that know nothing of this server's audiences are for all of them.
    let implied: Vec<String> = own.iter().filter(|one| asked.contains(one)).cloned().collect();
    if let Some(user) = tokens.find(token).filter(|_| !implied.is_empty()) {
        return Ok(TokenUser { user: user.clone(), audiences: implied });
    }
    // The two errors that the chain of kube-apiserver has then.
    let refused = |why: String| format!("[{INVALID}, {why}]");
    if let Some(found) = service_account::authenticate(server, token, asked).map_err(refused)? {
        return Ok(found);
    }
    // After service accounts, whose tokens are verified without asking anybody.
    for issuer in jwt.iter().filter(|_| !implied.is_empty()) {
        if let Some(user) = issuer.authenticate(token, server.env.now()).await.map_err(refused)? {
            return Ok(TokenUser { user, audiences: implied });
        }
    }
    Err(INVALID.to_owned())
}

/// The user with the group of all authenticated users. Whoever is called as the anonymous user is called is not in it, whatever
/// certificate or token says so, as in kube-apiserver.
pub(crate) fn authenticated(mut user: UserInfo) -> UserInfo {
    let known = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    if user.name != ANONYMOUS && !user.groups.iter().any(known) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    // What is no text is a wrong credential, and not none.
    let value = std::str::from_utf8(headers.get(header::AUTHORIZATION)?.as_bytes()).unwrap_or("Bearer ?").trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Options;

    #[tokio::test]
    async fn tokens_and_the_anonymous_user() {
        let tokens = StaticTokens::parse(
            "secret,alice,7,\"developers, testers\"\nother,bob,8\nno,system:anonymous,9\n",
            "tokens.csv",
        )
        .unwrap();
        let server = |anonymous| {
            let authentication = Authentication { tokens: tokens.clone(), anonymous, ..Authentication::default() };
            ApiServer::open(Options { authentication, ..Options::default() })
        };
        let open = server(Anonymous::Unprivileged).await.unwrap();
        let grouped = server(Anonymous::InGroups(vec!["system:masters".into()])).await.unwrap();
        let closed = server(Anonymous::Refused).await.unwrap();
        let certificate = || Ok(Some(UserInfo::named("carol")));
        // Whoever gets such a certificate is neither in the group of those who have shown one nor in those of the anonymous user.
        let nobody = || Ok(Some(UserInfo { groups: vec!["testers".into()], ..UserInfo::named("system:anonymous") }));
        let alice = "alice developers testers system:authenticated";
        for (server, certificate, header, expect) in [
            (&open, Ok(None), Some("Bearer secret"), Some(alice)),
            (&open, Ok(None), Some("bearer other"), Some("bob system:authenticated")),
            (&open, Ok(None), Some("Bearer wrong"), None),
            (&open, Ok(None), Some("Bearer a.b.c"), None),
            (&open, Ok(None), Some("Basic secret"), Some("system:anonymous system:unauthenticated")),
            (&open, Ok(None), None, Some("system:anonymous system:unauthenticated")),
            (&grouped, Ok(None), None, Some("system:anonymous system:unauthenticated system:masters")),
            (&grouped, Ok(None), Some("Bearer wrong"), None),
            (&closed, Ok(None), None, None),
            (&closed, Ok(None), Some("Bearer secret"), Some(alice)),
            (&closed, certificate(), None, Some("carol system:authenticated")),
            (&open, certificate(), Some("Bearer secret"), Some("carol system:authenticated")),
            (&open, certificate(), Some("Bearer wrong"), Some("carol system:authenticated")),
            (&open, nobody(), None, Some("system:anonymous testers")),
            (&grouped, nobody(), None, Some("system:anonymous testers")),
            (&closed, nobody(), None, Some("system:anonymous testers")),
            (&grouped, Ok(None), Some("Bearer no"), Some("system:anonymous ")),
            (&open, Err(CertificateRefused), Some("Bearer secret"), Some(alice)),
            (&open, Err(CertificateRefused), None, None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(header::AUTHORIZATION, header.parse().unwrap());
            }
            let found = server.authenticate(certificate.clone(), "/api/v1/pods", &headers).await;
            let shown = found.map(|user| format!("{} {}", user.name, user.groups.join(" "))).map_err(|s| s.code);
            assert_eq!(shown, expect.map(str::to_owned).ok_or(401), "{certificate:?} {header:?}");
        }
    }
}
