//! CertificateSigningRequests of kubelets: approved by a review of what their user may do, and then signed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use konverge_controllers::{CertificateSigner, Options, RequestedCertificate};
use serde_json::{Value, json};

use crate::stage::*;

/// For `O=system:nodes, CN=system:node:n1`.
const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIHrMIGSAgEAMDAxFTATBgNVBAoMDHN5c3RlbTpub2RlczEXMBUGA1UEAwwOc3lz
dGVtOm5vZGU6bjEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASHU7oTgucpP2SZ
ohsqTKtaSJoQ2FTSBFCPad3TfvZ+Wz3HytPJmTkbZW6sSSKbkE1YLQ2rCC56xhbo
VGV2OW/LoAAwCgYIKoZIzj0EAwIDSAAwRQIhAO/ZnEeuWXtGZh/uldInyw961aTC
CbcKAjoYzW/zQ1BGAiB9b6lrVd4h3KaqnlVJpXCfBiCmuaiDeBLPIAzc1k4bZg==
-----END CERTIFICATE REQUEST-----
";

/// Knows that one request, and says that it cannot sign it: the server takes no certificate that is none.
struct Signer;

impl CertificateSigner for Signer {
    fn read(&self, request: &[u8]) -> Result<RequestedCertificate, String> {
        assert_eq!(request, REQUEST.as_bytes());
        let (common_name, organizations) = ("system:node:n1".to_owned(), vec!["system:nodes".to_owned()]);
        Ok(RequestedCertificate { common_name, organizations, ..RequestedCertificate::default() })
    }

    fn sign(&self, _: &[u8], _: &[String], _: Duration, _: Timestamp) -> Result<String, String> {
        Err("no key".to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_kubelets_are_approved() {
    let stage = Stage::with(Options { signer: Some(Arc::new(Signer)), ..Options::default() }).await;
    let spec = json!({
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["client auth", "digital signature"],
        "request": ByteString(REQUEST.as_bytes().to_vec()),
    });
    stage.create(SIGNING_REQUESTS, json!({"metadata": {"name": "n1"}, "spec": spec})).await;
    let of = |request: &Value, kind: &str| {
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind)
    };
    let request = stage.until(SIGNING_REQUESTS, "n1", |request| of(request, "Failed").is_some()).await;
    let approved = of(&request, "Approved").unwrap();
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    assert_eq!((&approved["reason"], &approved["message"]), (&json!("AutoApproved"), &json!(message)));
    assert_eq!(of(&request, "Failed").unwrap()["message"], "no key");
    stage.stop().await;
}
