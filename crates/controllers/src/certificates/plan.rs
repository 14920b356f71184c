//! Decides what happens to a CertificateSigningRequest. In: the request, and what it asks for. Out: which permissions would let it be
//! approved, and whether it is signed. Refusals are in the words of Kubernetes. Pure.

use std::time::Duration;

use super::{LIFE, RequestedCertificate, SigningRequest};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// The shortest life of a certificate: twice of what it is backdated.
const SHORTEST_LIFE: Duration = Duration::from_secs(600);

/// A way in which a request can be approved without a person.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Approval {
    /// The subresource of requests that the user must be allowed to create.
    pub subresource: &'static str,
    pub message: &'static str,
}

/// What a signer does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Signing {
    /// Nothing: the request is not approved, has failed, or is for the signer of somebody else.
    None,
    /// The certificate is valid for so long.
    For(Duration),
    /// The request will never be signed.
    Refused(String),
}

/// How a request that nobody has decided about can be approved, in the order in which they are tried.
pub(super) fn approvals(request: &SigningRequest, asked: &RequestedCertificate) -> Vec<Approval> {
    let spec = &request.spec;
    let decided = request.has("Approved") || request.has("Denied");
    if decided || spec.signer_name != KUBELET_CLIENT || kubelet_client(asked, &spec.usages).is_err() {
        return Vec::new();
    }
    let own = Approval {
        subresource: "selfnodeclient",
        message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
    };
    let any = Approval {
        subresource: "nodeclient",
        message: "Auto approving kubelet client certificate after SubjectAccessReview.",
    };
    if spec.username == asked.common_name { vec![own, any] } else { vec![any] }
}

/// What is done with a request that has no certificate.
pub(super) fn signing(request: &SigningRequest, asked: &RequestedCertificate) -> Signing {
    let spec = &request.spec;
    if !request.has("Approved") || request.has("Denied") || request.has("Failed") {
        return Signing::None;
    }
    let checked = match spec.signer_name.as_str() {
        CLIENT => client(&spec.usages),
        KUBELET_CLIENT => kubelet_client(asked, &spec.usages),
        KUBELET_SERVING => kubelet_serving(asked, &spec.usages),
        LEGACY => Ok(()),
        _ => return Signing::None,
    };
    match checked {
        Ok(()) => Signing::For(life(spec.expiration_seconds)),
        Err(why) => Signing::Refused(why),
    }
}

fn life(seconds: Option<u64>) -> Duration {
    seconds.map_or(LIFE, |seconds| Duration::from_secs(seconds).clamp(SHORTEST_LIFE, LIFE))
}

fn client(usages: &[String]) -> Result<(), String> {
    let optional = |usage: &str| matches!(usage, "digital signature" | "key encipherment" | "client auth");
    if let Some(usage) = usages.iter().find(|usage| !optional(usage)) {
        return Err(format!("invalid usage for client certificate: {usage}"));
    }
    match usages.iter().any(|usage| usage == "client auth") {
        true => Ok(()),
        false => Err("missing required usage for client certificate: client auth".to_owned()),
    }
}

fn kubelet_client(asked: &RequestedCertificate, usages: &[String]) -> Result<(), String> {
    first_failure([
        (asked.organizations != ["system:nodes"], "subject organization is not system:nodes"),
        (asked.dns_names > 0, "DNS subjectAltNames are not allowed"),
        (asked.email_addresses > 0, "Email subjectAltNames are not allowed"),
        (asked.ip_addresses > 0, "IP subjectAltNames are not allowed"),
        (asked.uris > 0, "URI subjectAltNames are not allowed"),
        (!is_node(asked), "subject common name does not begin with system:node:"),
        (!are_usages(usages, "client auth"), "usages did not match [client auth digital signature key encipherment]"),
    ])
}

fn kubelet_serving(asked: &RequestedCertificate, usages: &[String]) -> Result<(), String> {
    first_failure([
        (asked.organizations != ["system:nodes"], "subject organization is not system:nodes"),
        (asked.dns_names == 0 && asked.ip_addresses == 0, "DNS or IP subjectAltName is required"),
        (asked.email_addresses > 0, "Email subjectAltNames are not allowed"),
        (asked.uris > 0, "URI subjectAltNames are not allowed"),
        (!are_usages(usages, "server auth"), "usages did not match [digital signature key encipherment server auth]"),
        (!is_node(asked), "subject common name does not begin with system:node:"),
    ])
}

fn first_failure<const N: usize>(checks: [(bool, &str); N]) -> Result<(), String> {
    match checks.iter().find(|(failed, _)| *failed) {
        Some((_, why)) => Err((*why).to_owned()),
        None => Ok(()),
    }
}

fn is_node(asked: &RequestedCertificate) -> bool {
    asked.common_name.starts_with("system:node:")
}

/// Whether the usages are those of a kubelet. Only RSA keys encipher other keys.
fn are_usages(usages: &[String], purpose: &str) -> bool {
    let known = |usage: &str| usage == purpose || matches!(usage, "digital signature" | "key encipherment");
    let has = |name: &str| usages.iter().any(|usage| usage == name);
    usages.iter().all(|usage| known(usage)) && has(purpose) && has("digital signature")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(signer: &str, usages: &str, conditions: &[&str]) -> SigningRequest {
        let usages: Vec<&str> = usages.split(", ").collect();
        let conditions: Vec<_> = conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        serde_json::from_value(json!({
            "spec": {"signerName": format!("kubernetes.io/{signer}"), "usages": usages, "username": "system:node:a"},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn node(name: &str, organization: &str) -> RequestedCertificate {
        RequestedCertificate {
            common_name: name.into(),
            organizations: vec![organization.into()],
            ..RequestedCertificate::default()
        }
    }

    #[test]
    fn what_is_signed() {
        let check = |signer: &str, usages: &str, conditions: &[&str], asked: &RequestedCertificate, expect: &str| {
            let got = match signing(&request(signer, usages, conditions), asked) {
                Signing::None => "nothing".to_owned(),
                Signing::For(life) => format!("{} days", life.as_secs() / 86_400),
                Signing::Refused(why) => why,
            };
            assert_eq!(got, expect, "{signer} {usages} {conditions:?}");
        };
        let alice = &node("alice", "developers");
        let kubelet = &node("system:node:a", "system:nodes");
        let serving = &RequestedCertificate { ip_addresses: 1, ..kubelet.clone() };
        check("kube-apiserver-client", "client auth", &[], alice, "nothing");
        check("kube-apiserver-client", "client auth", &["Approved"], alice, "365 days");
        check("kube-apiserver-client", "client auth", &["Denied"], alice, "nothing");
        check("kube-apiserver-client", "client auth", &["Approved", "Failed"], alice, "nothing");
        let missing = "missing required usage for client certificate: client auth";
        check("kube-apiserver-client", "digital signature", &["Approved"], alice, missing);
        let invalid = "invalid usage for client certificate: server auth";
        check("kube-apiserver-client", "client auth, server auth", &["Approved"], alice, invalid);
        check("legacy-unknown", "any", &["Approved"], alice, "365 days");
        check("other", "any", &["Approved"], alice, "nothing");
        let (client, server) = ("digital signature, client auth", "digital signature, key encipherment, server auth");
        check("kube-apiserver-client-kubelet", client, &["Approved"], kubelet, "365 days");
        let organization = "subject organization is not system:nodes";
        check("kube-apiserver-client-kubelet", client, &["Approved"], alice, organization);
        let name = "subject common name does not begin with system:node:";
        check("kube-apiserver-client-kubelet", client, &["Approved"], &node("a", "system:nodes"), name);
        check("kube-apiserver-client-kubelet", client, &["Approved"], serving, "IP subjectAltNames are not allowed");
        let usages = "usages did not match [client auth digital signature key encipherment]";
        check("kube-apiserver-client-kubelet", "client auth", &["Approved"], kubelet, usages);
        check("kubelet-serving", server, &["Approved"], serving, "365 days");
        check("kubelet-serving", server, &["Approved"], kubelet, "DNS or IP subjectAltName is required");
        let usages = "usages did not match [digital signature key encipherment server auth]";
        check("kubelet-serving", client, &["Approved"], serving, usages);
    }

    #[test]
    fn how_long_certificates_live() {
        for (asked, expect) in [(None, 31_536_000), (Some(600), 600), (Some(1), 600), (Some(u64::MAX), 31_536_000)] {
            assert_eq!(life(asked).as_secs(), expect, "{asked:?}");
        }
    }

    #[test]
    fn what_is_approved_without_a_person() {
        let check = |signer: &str, conditions: &[&str], asked: &RequestedCertificate, expect: &[&str]| {
            let usages = "digital signature, client auth";
            let approvals = approvals(&request(signer, usages, conditions), asked);
            let got: Vec<&str> = approvals.iter().map(|approval| approval.subresource).collect();
            assert_eq!(got, expect, "{signer} {conditions:?} {asked:?}");
        };
        let own = &node("system:node:a", "system:nodes");
        check("kube-apiserver-client-kubelet", &[], own, &["selfnodeclient", "nodeclient"]);
        check("kube-apiserver-client-kubelet", &[], &node("system:node:b", "system:nodes"), &["nodeclient"]);
        check("kube-apiserver-client-kubelet", &[], &node("alice", "developers"), &[]);
        check("kube-apiserver-client-kubelet", &["Denied"], own, &[]);
        check("kube-apiserver-client", &[], own, &[]);
    }
}
