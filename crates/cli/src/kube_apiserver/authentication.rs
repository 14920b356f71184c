//! Who makes a request. In: what the listener found out about the client's certificate, and the bearer token. Out: a user, or
//! the refusal. As in kube-apiserver, a credential that is not believed is refused with 401, and a request without any is
//! from the anonymous user, unless that is switched off.

use std::collections::HashMap;
use std::path::Path;

use http::{HeaderMap, Request, header};
use konverge_apiserver::UserInfo;
use konverge_core::Status;
use konverge_serve::{ClientCertificate, Subject};

/// The object identifier 1.3.6.1.4.1.57683.2, under which Kubernetes looks for the uid of a user.
const UID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

/// The extra information by which audit logs recognise a credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The group of everybody who has shown a credential.
const AUTHENTICATED: &str = "system:authenticated";

/// What requests are authenticated by, besides certificates.
#[derive(Debug, Default)]
pub(super) struct Authentication {
    /// The users by their tokens.
    pub tokens: HashMap<String, UserInfo>,
    /// Whether a request without a credential is from the anonymous user.
    pub anonymous: bool,
}

impl Authentication {
    /// The user who makes a request.
    pub(super) fn authenticate<B>(&self, request: &Request<B>) -> Result<UserInfo, Status> {
        let unauthorized = || Status::failure(401, "Unauthorized", "Unauthorized");
        let certificate = match request.extensions().get() {
            Some(ClientCertificate::Trusted(subject)) => user_of(subject),
            Some(ClientCertificate::Refused(why)) => {
                tracing::error!(%why, "unable to authenticate the request: a client certificate is not believed");
                Err(())
            }
            None => Ok(None),
        };
        let token = match bearer(request.headers()) {
            Some(token) => self.tokens.get(token).cloned().map(Some).ok_or(()),
            None => Ok(None),
        };
        // Another credential may do if one is not believed.
        match (certificate, token) {
            (Ok(Some(user)), _) | (_, Ok(Some(user))) => Ok(authenticated(user)),
            (Ok(None), Ok(None)) if self.anonymous => Ok(UserInfo::anonymous()),
            _ => Err(unauthorized()),
        }
    }
}

/// The user that a certificate is about: its common name, in the groups that are its organizations. None without a name.
fn user_of(subject: &Subject) -> Result<Option<UserInfo>, ()> {
    let Some(name) = subject.values(Subject::COMMON_NAME).last().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let mut uids = subject.values(UID);
    let uid = match (uids.next(), uids.next()) {
        (None, _) => "",
        (Some(uid), None) if !uid.is_empty() => uid,
        _ => return Err(()),
    };
    let fingerprint: String = subject.sha256().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(UserInfo {
        uid: uid.to_owned(),
        groups: subject.values(Subject::ORGANIZATION).map(str::to_owned).collect(),
        extra: [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])].into(),
        ..UserInfo::named(name)
    }))
}

fn authenticated(mut user: UserInfo) -> UserInfo {
    if !user.groups.iter().any(|group| group == AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Reads a file of tokens: lines of token, user name, user uid, and perhaps groups in quotes.
pub(super) fn read_tokens(path: &Path) -> Result<HashMap<String, UserInfo>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("open {}: {error}", path.display()))?;
    let mut tokens = HashMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let columns = columns(line);
        let [token, name, uid, rest @ ..] = columns.as_slice() else {
            return Err(format!(
                "token file '{}' must have at least 3 columns (token, user name, user uid), found {}",
                path.display(),
                columns.len()
            ));
        };
        if token.is_empty() {
            tracing::warn!("a line of the token file has an empty token; it is passed over");
            continue;
        }
        let groups = rest.first().map(String::as_str).unwrap_or_default();
        let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect();
        tokens.insert(token.clone(), UserInfo { uid: uid.clone(), groups, ..UserInfo::named(name) });
    }
    Ok(tokens)
}

/// The columns of a line of comma-separated values; a column in quotes may have commas in it.
fn columns(line: &str) -> Vec<String> {
    let mut columns = vec![String::new()];
    let mut in_quotes = false;
    for letter in line.chars() {
        match letter {
            '"' => in_quotes = !in_quotes,
            ',' if !in_quotes => columns.push(String::new()),
            _ => columns.last_mut().expect("there is a column from the beginning").push(letter),
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_the_anonymous_user() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens.csv");
        std::fs::write(&path, "secret,alice,7,\"developers, testers\"\nother,bob,8\n").expect("written");
        let tokens = read_tokens(&path).expect("tokens");
        let mut authentication = Authentication { tokens, anonymous: true };
        let check = |authentication: &Authentication, header: Option<&str>, expect: Result<(&str, &[&str]), u16>| {
            let mut request = Request::get("/");
            if let Some(header) = header {
                request = request.header("authorization", header);
            }
            let user = authentication.authenticate(&request.body(()).expect("a request"));
            let user = user.as_ref().map(|user| (user.name.as_str(), user.groups.iter().map(String::as_str).collect()));
            let expect = expect.map(|(name, groups)| (name, groups.to_vec()));
            assert_eq!(user.map_err(|status| status.code), expect, "{header:?}");
        };
        check(&authentication, Some("Bearer secret"), Ok(("alice", &["developers", "testers", AUTHENTICATED])));
        check(&authentication, Some("bearer other"), Ok(("bob", &[AUTHENTICATED])));
        check(&authentication, Some("Bearer nonsense"), Err(401));
        let anonymous = Ok(("system:anonymous", &["system:unauthenticated"][..]));
        check(&authentication, None, anonymous);
        check(&authentication, Some("Basic c2VjcmV0"), anonymous);
        check(&authentication, Some("Bearer"), anonymous);
        authentication.anonymous = false;
        check(&authentication, None, Err(401));
        check(&authentication, Some("Bearer secret"), Ok(("alice", &["developers", "testers", AUTHENTICATED])));
    }

    #[test]
    fn a_file_without_uids() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens.csv");
        std::fs::write(&path, "secret,alice\n").expect("written");
        let error = read_tokens(&path).expect_err("refused");
        assert!(error.ends_with("must have at least 3 columns (token, user name, user uid), found 2"), "{error}");
    }
}
