//! Requests for certificates: which of several PEM blocks counts, and which signatures are good enough. The texts are those of
//! kube-apiserver.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use crate::cluster::Cluster;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn block(der: &[u8]) -> String {
    let content = BASE64_STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{content}\n-----END CERTIFICATE REQUEST-----\n")
}

/// A request of a user in a group, signed by a key of this kind.
fn request(user: &str, group: &str, key: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
    params.distinguished_name.push(rcgen::DnType::CommonName, user);
    params.serialize_request(&rcgen::KeyPair::generate_for(key).unwrap()).unwrap().der().to_vec()
}

/// The same bytes with another text in the place of one that is there once.
fn replaced(der: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let found: Vec<usize> = (0..der.len()).filter(|at| der[*at..].starts_with(from)).collect();
    let [at] = found[..] else { panic!("{from:?} is there {} times", found.len()) };
    [&der[..at], to, &der[at + from.len()..]].concat()
}

#[tokio::test]
async fn the_first_block_counts_and_begins_a_line() {
    let cluster = Cluster::new().await;
    let [alice, root] = [("alice", "developers"), ("root", "system:masters")]
        .map(|(user, group)| block(&request(user, group, &rcgen::PKCS_ECDSA_P256_SHA256)));
    let masters = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    let no_block = "PEM block type must be CERTIFICATE REQUEST";
    for (name, pem, code, expect) in [
        ("plain", alice.clone(), 201, ""),
        ("behind-text", format!("text\n{alice}"), 201, ""),
        ("first", format!("{alice}{root}"), 201, ""),
        ("masters", format!("{root}{alice}"), 403, masters),
        ("within-a-line", format!("x{alice}\n{root}"), 403, masters),
        ("only-within-a-line", format!("x{alice}"), 422, no_block),
        ("no-end", alice.replace("END", "ENDE"), 422, no_block),
    ] {
        let spec = json!({
            "request": BASE64_STANDARD.encode(pem),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        });
        let answer = cluster.post(REQUESTS, &json!({"metadata": {"name": name}, "spec": spec})).await.expect(code);
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.contains(expect), "{name}: {message}");
    }
}

#[tokio::test]
async fn signatures() {
    let cluster = Cluster::new().await;
    let ecdsa_with = |number: u8| [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, number];
    let p256 = request("alice", "developers", &rcgen::PKCS_ECDSA_P256_SHA256);
    let ed25519 = request("alice", "developers", &rcgen::PKCS_ED25519);
    let unknown = "x509: cannot verify signature: algorithm unimplemented";
    for (name, der, expect) in [
        ("p256", p256.clone(), ""),
        ("p384", request("alice", "developers", &rcgen::PKCS_ECDSA_P384_SHA384), ""),
        ("ed25519", ed25519.clone(), ""),
        ("other-name", replaced(&p256, b"alice", b"carol"), "x509: ECDSA verification failure"),
        ("ed25519-other-name", replaced(&ed25519, b"alice", b"carol"), "x509: Ed25519 verification failure"),
        ("sha512", replaced(&p256, &ecdsa_with(2), &ecdsa_with(4)), unknown),
        ("unknown", replaced(&p256, &ecdsa_with(2), &ecdsa_with(9)), unknown),
        // Of the length of the other: RSA with nothing.
        ("rsa", replaced(&p256, &ecdsa_with(2), &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1]), unknown),
    ] {
        let spec = json!({
            "request": BASE64_STANDARD.encode(block(&der)),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        });
        let answer = cluster.post(REQUESTS, &json!({"metadata": {"name": name}, "spec": spec})).await;
        let answer = answer.expect(if expect.is_empty() { 201 } else { 422 });
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.contains(expect), "{name}: {message}");
    }
}
