//! Every route refuses every credential that is not believed: none, a wrong token, one that is expired, forged, for somebody
//! else or revoked, and a certificate of another CA.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ::konverge::kube;
use ::konverge::kube::{Client, Config};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Request, StatusCode};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use crate::envtest::{Authority, Program, assets, eventually, free_port};

/// A token with these claims, by this key.
fn sign(key: &rcgen::KeyPair, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encode(&json!({"alg": "ES256"})), encode(claims));
    let random = SystemRandom::new();
    let pair =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der(), &random).expect("a key");
    let signature = pair.sign(&random, message.as_bytes()).expect("a signature");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

async fn client(port: u16, directory: &Path, user: &str) -> Client {
    let text = format!(
        "{{clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: {}}}}}], \
         users: [{{name: a, user: {user}}}], contexts: [{{name: a, context: {{cluster: a, user: a}}}}], current-context: a}}",
        directory.join("ca.crt").display()
    );
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

async fn json_at(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json").body(body);
    let text = client.request_text(request.expect("a request")).await;
    serde_json::from_str(&text.unwrap_or_else(|error| panic!("{method} {path}: {error}"))).expect("JSON")
}

/// The paths of everything that discovery lists, and those beside it.
async fn routes(admin: &Client) -> Vec<(&'static str, String)> {
    let mut paths: BTreeSet<String> =
        ["/", "/version", "/healthz", "/livez", "/readyz/ping", "/api", "/apis", "/openapi/v2"]
            .into_iter()
            .chain([
                "/openapi/v3",
                "/openid/v1/jwks",
                "/.well-known/openid-configuration",
                "/metrics",
                "/nowhere",
                "/api/v9/pods",
            ])
            .map(str::to_owned)
            .collect();
    let groups = json_at(admin, "GET", "/apis", &Value::Null).await;
    let versions = groups["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .flat_map(|group| group["versions"].as_array().expect("versions"));
    let versions = versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().expect("a text")));
    for base in std::iter::once("/api/v1".to_owned()).chain(versions) {
        let list = json_at(admin, "GET", &base, &Value::Null).await;
        for resource in list["resources"].as_array().expect("resources") {
            let (plural, subresource) = resource["name"]
                .as_str()
                .expect("a name")
                .split_once('/')
                .unwrap_or((resource["name"].as_str().expect("a name"), ""));
            let scope = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
            let collection = format!("{base}{scope}/{plural}");
            paths.insert(match subresource {
                "" => format!("{collection}/a"),
                subresource => format!("{collection}/a/{subresource}"),
            });
            paths.insert(collection);
        }
        paths.insert(base);
    }
    assert!(paths.len() > 150, "{}", paths.len());
    paths
        .into_iter()
        .flat_map(|path| ["GET", "POST", "PUT", "PATCH", "DELETE"].map(|method| (method, path.clone())))
        .collect()
}

#[test]
fn every_route_refuses_what_is_not_believed() {
    let directory = tempfile::tempdir().expect("a directory");
    let assets = assets(directory.path());
    let certs = directory.path().join("certs");
    fs::create_dir(&certs).expect("a directory");
    let (ours, theirs) = (Authority::new(), Authority::new());
    let key = rcgen::KeyPair::generate().expect("a key");
    let path = |name: &str| certs.join(name).display().to_string();
    fs::write(path("clients.crt"), ours.pem()).expect("written");
    fs::write(path("tokens.csv"), "secret,root,0,system:masters\n").expect("written");
    fs::write(path("sa.key"), key.serialize_pem()).expect("written");
    let (certificate, private) = theirs.user("root", "system:masters");
    fs::write(path("user.crt"), certificate).expect("written");
    fs::write(path("user.key"), private).expect("written");
    let port = free_port();
    let issuer = format!("https://127.0.0.1:{port}");
    let server = Program::start(
        &assets,
        "kube-apiserver",
        &[
            format!("--cert-dir={}", certs.display()),
            format!("--client-ca-file={}", path("clients.crt")),
            format!("--token-auth-file={}", path("tokens.csv")),
            format!("--secure-port={port}"),
            format!("--service-account-issuer={issuer}"),
            format!("--service-account-signing-key-file={}", path("sa.key")),
            "--bind-address=127.0.0.1".to_owned(),
            "--etcd-servers=http://127.0.0.1:1".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--anonymous-auth=false".to_owned(),
        ],
    );
    eventually("a port", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let chain = fs::read_to_string(path("apiserver.crt")).expect("made by the server");
    fs::write(path("ca.crt"), &chain[chain.rfind("-----BEGIN").expect("a certificate")..]).expect("written");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let admin = client(port, &certs, "{token: secret}").await;
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        let account = json_at(&admin, "POST", accounts, &json!({"metadata": {"name": "robot"}})).await;
        let token = async |spec: Value| {
            let made = json_at(&admin, "POST", &format!("{accounts}/robot/token"), &json!({"spec": spec})).await;
            made["status"]["token"].as_str().expect("a token").to_owned()
        };
        let secrets = "/api/v1/namespaces/default/secrets";
        json_at(&admin, "POST", secrets, &json!({"metadata": {"name": "s"}})).await;
        let revoked = token(json!({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"}})).await;
        json_at(&admin, "DELETE", &format!("{secrets}/s"), &Value::Null).await;
        let claims = |expires: u64| {
            let robot = json!({"name": "robot", "uid": account["metadata"]["uid"]});
            json!({
                "iss": issuer, "aud": [issuer], "sub": "system:serviceaccount:default:robot", "exp": expires,
                "kubernetes.io": {"namespace": "default", "serviceaccount": robot},
            })
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
        let own = sign(&key, &claims(now + 600));
        let forged = sign(&rcgen::KeyPair::generate().expect("a key"), &claims(now + 600));
        let bearer = |token: &str| format!("{{token: {token}}}");
        let routes = routes(&admin).await;
        // What the test signs is believed, as long as nothing is wrong with it.
        let robot = client(port, &certs, &bearer(&own)).await;
        let answer =
            robot.send(Request::get("/api/v1/pods").body(kube::client::Body::empty()).expect("a request")).await;
        assert_eq!(answer.expect("an answer").status(), StatusCode::FORBIDDEN);
        for (what, user) in [
            ("none", "{}".to_owned()),
            ("bad", bearer("nonsense")),
            ("expired", bearer(&sign(&key, &claims(now - 120)))),
            ("forged", bearer(&forged)),
            ("of another audience", bearer(&token(json!({"audiences": ["vault"]})).await)),
            ("revoked", bearer(&revoked)),
            (
                "of another CA",
                format!("{{client-certificate: {}, client-key: {}}}", path("user.crt"), path("user.key")),
            ),
        ] {
            let client = client(port, &certs, &user).await;
            for (method, path) in &routes {
                let request = Request::builder().method(*method).uri(path).body(kube::client::Body::empty());
                let answer = client.send(request.expect("a request")).await.expect("an answer");
                assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{what}: {method} {path}");
            }
        }
    });
    assert_eq!(server.stop().0, Some(0));
}
