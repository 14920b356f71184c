//! Tokens of OpenID Connect issuers, from the issuer's keys to the user. Whether a token is believed is seen as a listener sees it,
//! and why not as a TokenReview says it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use konverge_apiserver::{
    Anonymous, ApiServer, Authentication, AuthenticationConfiguration, AuthorizationMode, JwtAuthenticator, OidcFlags,
    Options,
};

use crate::cluster::{AT_MOST, Cluster};

mod server;

use server::{Issuer, Key, forge};

const CLIENT: &str = "kubernetes";

fn flags(issuer: &Issuer) -> OidcFlags {
    let (issuer_url, certificate_authority) = (issuer.url(), issuer.ca.clone());
    OidcFlags { issuer_url, client_id: CLIENT.to_owned(), certificate_authority, ..OidcFlags::default() }
}

async fn cluster(jwt: Vec<JwtAuthenticator>) -> Cluster {
    let authentication = Authentication { jwt, anonymous: Anonymous::Unprivileged, ..Authentication::default() };
    let authorization = vec![AuthorizationMode::Rbac];
    Cluster::with(|options| Options { authentication, authorization, ..options }).await
}

async fn with_flags(flags: OidcFlags) -> Cluster {
    let algorithms = flags.signing_algs.clone();
    cluster(AuthenticationConfiguration::of_flags(flags).authenticators(Some(&algorithms), &[]).unwrap()).await
}

/// The name and groups of a token's user, or 401.
async fn user_of(server: &ApiServer, token: &str) -> Result<String, u16> {
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    let user = server.authenticate(Ok(None), "/api", &headers).await.map_err(|status| status.code)?;
    Ok(format!("{} {}", user.name, user.groups.join(",")))
}

/// Why a token is not believed; empty if it is.
async fn why(cluster: &Cluster, token: &str) -> String {
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let request = http::Request::post(path).header("content-type", "application/json");
    let admin = konverge_apiserver::UserInfo {
        groups: vec!["system:masters".to_owned()],
        ..konverge_apiserver::UserInfo::named("root")
    };
    let body = http_body_util::Full::new(Bytes::from(json!({"spec": {"token": token}}).to_string()));
    let answer = cluster.send(request.extension(admin).body(body).unwrap()).await;
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let error = review["status"]["error"].as_str().unwrap_or_default();
    // The chain of authenticators says this in front of every reason.
    let reason = error.strip_prefix("[invalid bearer token, ").and_then(|error| error.strip_suffix(']'));
    reason.unwrap_or(error).to_owned()
}

/// Waits until a token is believed: until the issuer has answered for the first time.
async fn until_believed(cluster: &Cluster, token: &str) {
    let believed = async {
        while user_of(&cluster.server, token).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(AT_MOST, believed).await.expect("the issuer answers");
}

#[tokio::test]
async fn which_tokens_are_believed() {
    let (rsa, other) = (Key::rsa("rsa"), Key::ecdsa("P-256", "rsa"));
    let issuer = Issuer::start(vec![rsa.public()]).await;
    let url = issuer.url();
    let cluster = with_flags(OidcFlags {
        groups_claim: "groups".to_owned(),
        groups_prefix: "oidc:".to_owned(),
        required_claims: [("team".to_owned(), "a".to_owned())].into(),
        ..flags(&issuer)
    })
    .await;
    let claims = |change: Value| {
        let mut claims = issuer.claims(change);
        claims.as_object_mut().unwrap().entry("team").or_insert("a".into());
        claims
    };
    let signed = |change: Value| rsa.sign("RS256", &claims(change));
    until_believed(&cluster, &signed(json!({}))).await;
    let alice = format!("{url}#alice system:authenticated");
    for (token, expect) in [
        (signed(json!({})), alice.clone()),
        (signed(json!({"groups": ["x", "y"]})), format!("{url}#alice oidc:x,oidc:y,system:authenticated")),
        (signed(json!({"groups": "x"})), format!("{url}#alice oidc:x,system:authenticated")),
        (signed(json!({"aud": ["other", CLIENT]})), alice.clone()),
        (rsa.sign_as(&json!({"alg": "RS256"}), &claims(json!({}))), alice),
    ] {
        assert_eq!(user_of(&cluster.server, &token).await, Ok(expect));
    }
    let unsigned = "oidc: verify token: failed to verify signature: failed to verify id token signature";
    let algorithm = |got: &str| {
        format!(
            "oidc: verify token: oidc: id token signed with unsupported algorithm, expected [\"RS256\"] got \"{got}\""
        )
    };
    let expired = "oidc: verify token: oidc: token is expired (Token Expiry: 2025-01-01 00:00:00 +0000 UTC)";
    let good = signed(json!({}));
    let (head, _) = good.rsplit_once('.').unwrap();
    let n = rsa.public()["n"].as_str().unwrap().to_owned();
    for (what, token, expect) in [
        ("expired", signed(json!({"exp": 1_735_689_600})), expired.to_owned()),
        (
            "audience",
            signed(json!({"aud": "other"})),
            "oidc: verify token: oidc: expected audience \"kubernetes\" got [\"other\"]".to_owned(),
        ),
        ("issuer", signed(json!({"iss": "https://evil.example.com"})), "invalid bearer token".to_owned()),
        ("no issuer", signed(json!({"iss": null})), "invalid bearer token".to_owned()),
        ("none", forge(&json!({"alg": "none"}), &claims(json!({})), None), algorithm("none")),
        (
            "the public key as a secret",
            forge(&json!({"alg": "HS256", "kid": "rsa"}), &claims(json!({})), Some(n.as_bytes())),
            algorithm("HS256"),
        ),
        (
            "a secret under another name",
            forge(&json!({"alg": "RS256", "kid": "rsa"}), &claims(json!({})), Some(n.as_bytes())),
            unsigned.to_owned(),
        ),
        ("an algorithm that is not allowed", rsa.sign("RS512", &claims(json!({}))), algorithm("RS512")),
        ("another key", other.sign_as(&json!({"alg": "RS256", "kid": "rsa"}), &claims(json!({}))), unsigned.to_owned()),
        ("no signature", format!("{head}."), unsigned.to_owned()),
        (
            "an extension",
            rsa.sign_as(&json!({"alg": "RS256", "kid": "rsa", "crit": ["b64"]}), &claims(json!({}))),
            "oidc: verify token: oidc: malformed jwt".to_owned(),
        ),
        ("no name", signed(json!({"sub": null})), "oidc: parse username claims \"sub\": claim not present".to_owned()),
        (
            "a number for a name",
            signed(json!({"sub": 7})),
            "oidc: parse username claims \"sub\": json: cannot unmarshal number into Go value of type string".to_owned(),
        ),
        (
            "a required claim",
            signed(json!({"team": "b"})),
            "oidc: required claim team value does not match. Got = b, want = a".to_owned(),
        ),
        (
            "groups elsewhere",
            signed(json!({
                "_claim_names": {"groups": "src"}, "_claim_sources": {"src": {"endpoint": "https://groups.example.com"}},
            })),
            "oidc: could not expand distributed claims: the claim \"groups\" is kept at another server, and this server asks none"
                .to_owned(),
        ),
    ] {
        assert_eq!(user_of(&cluster.server, &token).await, Err(401), "{what}");
        let said = why(&cluster, &token).await;
        assert_eq!(said, expect, "{what}");
        assert!(!said.contains(&token), "{what}");
    }
}

#[tokio::test]
async fn every_algorithm_with_its_key() {
    let keys = [Key::rsa("r"), Key::ecdsa("P-256", "e2"), Key::ecdsa("P-384", "e3")];
    let mut published: Vec<Value> = keys.iter().map(Key::public).collect();
    // What cannot be used is passed over.
    published.insert(0, json!({"kty": "oct", "kid": "r", "k": "c2VjcmV0"}));
    published.push(json!({"kty": "EC", "kid": "e5", "crv": "P-521", "x": "AA", "y": "AA"}));
    let issuer = Issuer::start(published).await;
    let all = "RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384".split(',').map(str::to_owned).collect();
    let cluster = with_flags(OidcFlags { signing_algs: all, username_prefix: "-".to_owned(), ..flags(&issuer) }).await;
    let claims = issuer.claims(json!({}));
    until_believed(&cluster, &keys[0].sign("RS256", &claims)).await;
    for (key, algorithms) in
        keys.iter().zip([&["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"][..], &["ES256"], &["ES384"]])
    {
        for algorithm in algorithms {
            let token = key.sign(algorithm, &claims);
            assert_eq!(
                user_of(&cluster.server, &token).await.as_deref(),
                Ok("alice system:authenticated"),
                "{algorithm}"
            );
        }
    }
    // A key verifies nothing that is signed by an algorithm of another kind.
    let token = keys[1].sign_as(&json!({"alg": "ES384", "kid": "e2"}), &claims);
    assert_eq!(user_of(&cluster.server, &token).await, Err(401));
}

#[tokio::test]
async fn names_have_the_prefix_of_their_issuer() {
    let key = Key::rsa("k");
    let issuer = Issuer::start(vec![key.public()]).await;
    let url = issuer.url();
    let set = |claim: &str, prefix: &str| OidcFlags {
        username_claim: claim.to_owned(),
        username_prefix: prefix.to_owned(),
        ..flags(&issuer)
    };
    let everybody = " system:authenticated";
    for (flags, change, expect) in [
        (set("", ""), json!({}), Ok(format!("{url}#alice{everybody}"))),
        (set("name", ""), json!({"name": "bob"}), Ok(format!("{url}#bob{everybody}"))),
        (set("", "-"), json!({}), Ok(format!("alice{everybody}"))),
        (set("", "x:"), json!({}), Ok(format!("x:alice{everybody}"))),
        (set("email", ""), json!({"email": "a@b.c"}), Ok(format!("a@b.c{everybody}"))),
        (set("email", "x:"), json!({"email": "a@b.c", "email_verified": true}), Ok(format!("x:a@b.c{everybody}"))),
        (set("email", ""), json!({"email": "a@b.c", "email_verified": false}), Err("oidc: email not verified")),
        (
            set("email", ""),
            json!({"email": "a@b.c", "email_verified": "yes"}),
            Err("oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool"),
        ),
    ] {
        let cluster = with_flags(flags).await;
        let known = key.sign("RS256", &issuer.claims(json!({"name": "n", "email": "n@b.c"})));
        until_believed(&cluster, &known).await;
        let token = key.sign("RS256", &issuer.claims(change.clone()));
        let found = user_of(&cluster.server, &token).await;
        match expect {
            Ok(expect) => assert_eq!(found, Ok(expect), "{change}"),
            Err(expect) => assert_eq!((found, &*why(&cluster, &token).await), (Err(401), expect), "{change}"),
        }
    }
}

#[tokio::test]
async fn new_keys_are_read_when_they_are_needed_and_the_issuer_is_not_flooded() {
    let (old, new) = (Key::ecdsa("P-256", "old"), Key::ecdsa("P-256", "new"));
    let issuer = Issuer::start(vec![old.public()]).await;
    let cluster = with_flags(OidcFlags { signing_algs: vec!["ES256".to_owned()], ..flags(&issuer) }).await;
    let signed = |key: &Key| key.sign("ES256", &issuer.claims(json!({})));
    let asked = || issuer.says.lock().unwrap().asked;
    until_believed(&cluster, &signed(&old)).await;
    for _ in 0..50 {
        assert!(user_of(&cluster.server, &signed(&old)).await.is_ok());
    }
    assert_eq!(asked(), 1, "keys are kept");
    issuer.says.lock().unwrap().keys = vec![new.public()];
    assert!(user_of(&cluster.server, &signed(&old)).await.is_ok(), "nobody has asked yet");
    assert!(user_of(&cluster.server, &signed(&new)).await.is_ok(), "the new key is read for the first token");
    assert_eq!(user_of(&cluster.server, &signed(&old)).await, Err(401), "the old key is gone");
    assert!(asked() <= 3);

    // Two hundred forged key ids, many of them at once.
    let server = Arc::new(cluster.server.clone());
    let forged = (0..200).map(|at| {
        let token = old.sign_as(&json!({"alg": "ES256", "kid": format!("forged-{at}")}), &issuer.claims(json!({})));
        let server = server.clone();
        tokio::spawn(async move { user_of(&server, &token).await })
    });
    for refused in futures_util::future::join_all(forged).await {
        assert_eq!(refused.unwrap(), Err(401));
    }
    assert!(asked() <= 6, "asked {} times", asked());
    assert!(user_of(&cluster.server, &signed(&new)).await.is_ok(), "known keys are believed meanwhile");
}

#[tokio::test]
async fn keys_are_kept_as_long_as_the_issuer_wants() {
    let (old, new) = (Key::ecdsa("P-256", "old"), Key::ecdsa("P-256", "new"));
    let issuer = Issuer::start(vec![old.public()]).await;
    issuer.says.lock().unwrap().cache_control = Some("public, max-age=3600");
    let cluster = with_flags(OidcFlags { signing_algs: vec!["ES256".to_owned()], ..flags(&issuer) }).await;
    let signed = |key: &Key| key.sign("ES256", &issuer.claims(json!({})));
    until_believed(&cluster, &signed(&old)).await;
    issuer.says.lock().unwrap().keys = vec![new.public()];
    assert_eq!(user_of(&cluster.server, &signed(&new)).await, Err(401));
    assert!(user_of(&cluster.server, &signed(&old)).await.is_ok());
    assert_eq!(issuer.says.lock().unwrap().asked, 1);
}

#[tokio::test]
async fn an_issuer_that_fails_keeps_its_known_keys() {
    let (old, new) = (Key::ecdsa("P-256", "old"), Key::ecdsa("P-256", "new"));
    let issuer = Issuer::start(vec![old.public()]).await;
    let cluster = with_flags(OidcFlags { signing_algs: vec!["ES256".to_owned()], ..flags(&issuer) }).await;
    let signed = |key: &Key| key.sign("ES256", &issuer.claims(json!({})));
    until_believed(&cluster, &signed(&old)).await;
    let start = "oidc: verify token: failed to verify signature: fetching keys oidc: ";
    for (failure, nonsense, expect) in [
        (Some(StatusCode::BAD_GATEWAY), None, "get keys failed: 502 Bad Gateway: not today"),
        (None, Some(Bytes::from("<html>")), "failed to decode keys: expected value at line 1 column 1"),
        (None, Some(Bytes::from(vec![b' '; 2 << 20])), "get keys failed Get \"https://"),
    ] {
        {
            let mut says = issuer.says.lock().unwrap();
            (says.failure, says.nonsense) = (failure, nonsense);
        }
        let said = why(&cluster, &signed(&new)).await;
        assert!(said.starts_with(&format!("{start}{expect}")), "{said}");
        assert!(user_of(&cluster.server, &signed(&old)).await.is_ok());
    }
}

#[tokio::test]
async fn a_server_starts_without_its_issuer_and_asks_again() {
    let key = Key::ecdsa("P-256", "k");
    let issuer = Issuer::start(vec![key.public()]).await;
    issuer.says.lock().unwrap().failure = Some(StatusCode::SERVICE_UNAVAILABLE);
    let cluster = with_flags(OidcFlags { signing_algs: vec!["ES256".to_owned()], ..flags(&issuer) }).await;
    let token = key.sign("ES256", &issuer.claims(json!({})));
    assert_eq!(user_of(&cluster.server, &token).await, Err(401));
    assert_eq!(why(&cluster, &token).await, "oidc: authenticator not initialized");
    issuer.says.lock().unwrap().failure = None;
    until_believed(&cluster, &token).await;
}

#[tokio::test]
async fn several_issuers_with_expressions() {
    let key = Key::ecdsa("P-256", "k");
    let issuers = [Issuer::start(vec![key.public()]).await, Issuer::start(vec![key.public()]).await];
    let indented = |pem: &str| pem.lines().map(|line| format!("      {line}\n")).collect::<String>();
    let [first, second] = &issuers;
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions: [{{path: /healthz}}]
jwt:
- issuer:
    url: {}
    audiences: [kubernetes, other]
    audienceMatchPolicy: MatchAny
    certificateAuthority: |
{}
  claimMappings:
    username: {{expression: \"'ci:' + claims.sub\"}}
    groups: {{expression: \"claims.?roles.orValue([]).map(r, 'role:' + r)\"}}
    uid: {{claim: uid}}
    extra:
    - {{key: example.com/tenant, valueExpression: claims.tenant}}
  claimValidationRules:
  - {{expression: \"claims.tenant != 'banned'\", message: this tenant is banned}}
  userValidationRules:
  - {{expression: \"!user.username.endsWith('root')\", message: nobody is root}}
- issuer:
    url: https://second.example.com
    discoveryURL: {}/elsewhere
    audiences: [kubernetes]
    certificateAuthority: |
{}
  claimMappings:
    username: {{claim: sub, prefix: 'second:'}}
",
        first.url(),
        indented(&first.ca),
        second.url(),
        indented(&second.ca),
    );
    second.says.lock().unwrap().issuer = Some("https://second.example.com".to_owned());
    let configuration = AuthenticationConfiguration::parse(&text).unwrap();
    let cluster = cluster(configuration.authenticators(None, &[]).unwrap()).await;
    let of_first = |change: Value| {
        let mut claims = first.claims(json!({"uid": "u1", "tenant": "t"}));
        claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        key.sign("ES256", &claims)
    };
    until_believed(&cluster, &of_first(json!({}))).await;
    let of_second = key.sign("ES256", &second.claims(json!({"iss": "https://second.example.com"})));
    until_believed(&cluster, &of_second).await;
    assert_eq!(user_of(&cluster.server, &of_second).await.as_deref(), Ok("second:alice system:authenticated"));
    for (change, expect) in [
        (json!({}), Ok("ci:alice system:authenticated")),
        (json!({"aud": "other", "roles": ["a", "b"]}), Ok("ci:alice role:a,role:b,system:authenticated")),
        (
            json!({"tenant": "banned"}),
            Err(
                "oidc: error evaluating claim validation expression: validation expression 'claims.tenant != 'banned'' \
                 failed: this tenant is banned",
            ),
        ),
        (
            json!({"sub": "root"}),
            Err("oidc: error evaluating user info validation rule: validation expression \
                 '!user.username.endsWith('root')' failed: nobody is root"),
        ),
        (
            json!({"roles": [7]}),
            Err(
                "oidc: error evaluating group claim expression: expression 'claims.?roles.orValue([]).map(r, 'role:' + r)' \
                 resulted in error: no such overload",
            ),
        ),
        (
            json!({"aud": "third"}),
            Err("oidc: verify token: oidc: expected audience in [\"kubernetes\" \"other\"] got [\"third\"]"),
        ),
    ] {
        let token = of_first(change.clone());
        let found = user_of(&cluster.server, &token).await;
        match expect {
            Ok(expect) => assert_eq!(found.as_deref(), Ok(expect), "{change}"),
            Err(expect) => assert_eq!((found, &*why(&cluster, &token).await), (Err(401), expect), "{change}"),
        }
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, format!("Bearer {}", of_first(json!({"jti": "j"}))).parse().unwrap());
    let user = cluster.server.authenticate(Ok(None), "/api", &headers).await.unwrap();
    assert_eq!((&*user.uid, &user.extra["example.com/tenant"]), ("u1", &vec!["t".to_owned()]));
    assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=j"]);
}

#[test]
fn which_configurations_are_refused() {
    let of = |url: &str| OidcFlags { issuer_url: url.to_owned(), client_id: CLIENT.to_owned(), ..OidcFlags::default() };
    let invalid = "invalid authentication configuration: ";
    let own = ["https://own.example.com".to_owned()];
    for (flags, expect) in [
        (of("http://a"), format!("{invalid}jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be https")),
        (
            of("https://u:p@a"),
            format!(
                "{invalid}jwt[0].issuer.url: Invalid value: \"https://u:p@a\": URL must not contain a username or password"
            ),
        ),
        (
            of("https://a?b#c"),
            format!(
                "{invalid}[jwt[0].issuer.url: Invalid value: \"https://a?b#c\": URL must not contain a query, \
                 jwt[0].issuer.url: Invalid value: \"https://a?b#c\": URL must not contain a fragment]"
            ),
        ),
        (
            OidcFlags { certificate_authority: "nonsense".to_owned(), ..of("https://a") },
            format!(
                "{invalid}jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\": data does not contain any valid \
                 RSA or ECDSA certificates"
            ),
        ),
        (
            of(&own[0]),
            format!("issuer.url: Invalid value: \"{0}\": URL must not overlap with disallowed issuers: [{0}]", own[0]),
        ),
        (
            OidcFlags { signing_algs: vec!["HS256".to_owned()], ..of("https://a") },
            "oidc: unsupported signing alg: \"HS256\"".to_owned(),
        ),
        (
            OidcFlags { signing_algs: vec!["ES512".to_owned()], ..of("https://a") },
            "oidc: signing alg \"ES512\" cannot be verified here; the others of kube-apiserver can".to_owned(),
        ),
    ] {
        let algorithms = flags.signing_algs.clone();
        let made = AuthenticationConfiguration::of_flags(flags).authenticators(Some(&algorithms), &own);
        assert_eq!(made.unwrap_err().to_string(), expect);
    }
    let file = |jwt: &str| {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{jwt}");
        AuthenticationConfiguration::parse(&text)?.authenticators(None, &[]).map(|_| ())
    };
    let issuer = "issuer: {url: https://a, audiences: [b]}";
    for (jwt, expect) in [
        (format!("jwt: [{{{issuer}, claimMappings: {{username: {{claim: sub, prefix: ''}}}}}}]"), Ok(())),
        (
            format!("jwt: [{{{issuer}}}]"),
            Err(format!("{invalid}jwt[0].claimMappings.username: Required value: claim or expression is required")),
        ),
        (
            format!("jwt: [{{{issuer}, claimMappings: {{username: {{claim: sub}}}}}}]"),
            Err(format!(
                "{invalid}jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be \
                 set to an empty string to disable prefixing"
            )),
        ),
        (
            format!("jwt: [{{{issuer}, claimMappings: {{username: {{expression: claims.email}}}}}}]"),
            Err(format!(
                "{invalid}jwt[0].claimMappings.username.expression: Invalid value: \"claims.email\": claims.email_verified must \
                 be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or \
                 claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"
            )),
        ),
        (
            format!(
                "jwt: [{{{issuer}, claimMappings: {{username: {{expression: claims.email}}}}, claimValidationRules: \
                 [{{expression: 'claims.?email_verified.orValue(true) == true'}}]}}]"
            ),
            Ok(()),
        ),
        (
            "jwt: [{issuer: {url: https://a, audiences: [b, c]}, claimMappings: {username: {claim: sub, prefix: ''}}}]"
                .to_owned(),
            Err(format!(
                "{invalid}jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for \
                 multiple audiences"
            )),
        ),
        (
            "jwt: [{issuer: {url: https://a}, claimMappings: {username: {claim: sub, prefix: ''}}}]".to_owned(),
            Err(format!(
                "{invalid}jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"
            )),
        ),
        (
            "anonymous: {enabled: false, conditions: [{path: /healthz}]}".to_owned(),
            Err(format!(
                "{invalid}anonymous.conditions: Invalid value: [\"/healthz\"]: enabled should be set to true when conditions \
                 are defined"
            )),
        ),
        (
            format!("jwt: [{{{issuer}, claimMapping: {{}}}}]"),
            Err("unknown field `claimMapping`, expected one of `issuer`, `claimValidationRules`, `claimMappings`, \
                 `userValidationRules`"
                .to_owned()),
        ),
    ] {
        assert_eq!(file(&jwt).map_err(|error| error.to_string()), expect, "{jwt}");
    }
    let wrong = AuthenticationConfiguration::parse("apiVersion: v1\nkind: Pod").unwrap_err().to_string();
    assert!(wrong.starts_with("unknown field") || wrong.starts_with("no kind \"Pod\""), "{wrong}");
}

#[tokio::test]
async fn anonymous_requests_only_for_some_paths() {
    let authentication =
        Authentication { anonymous: Anonymous::AtPaths(vec!["/healthz".to_owned()]), ..Authentication::default() };
    let cluster = Cluster::with(|options| Options { authentication, ..options }).await;
    for (path, expect) in [("/healthz", Ok("system:anonymous")), ("/healthz/ping", Err(401)), ("/api", Err(401))] {
        let found = cluster.server.authenticate(Ok(None), path, &HeaderMap::new()).await;
        assert_eq!(found.map(|user| user.name).map_err(|status| status.code), expect.map(str::to_owned), "{path}");
    }
}
