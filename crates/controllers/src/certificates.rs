//! CertificateSigningRequests: who approves them by himself, and who signs what is approved. In: requests for the signers of
//! Kubernetes. Out: the approval of requests of kubelets, certificates, or the reason why there is none. What a request asks for is
//! read, and signed, by the [`CertificateSigner`] of the options; without one nothing is signed.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1 as certificates;
use konverge_runtime::{Action, CacheOf, Result, Run, Target};
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::ControllerContext;
use crate::control_plane::{Manager, Task};
use crate::meta::Meta;
use crate::requests;

use plan::{Approval, Signing};

/// The names in kube-controller-manager.
pub(crate) const APPROVING: &str = "certificatesigningrequest-approving-controller";
pub(crate) const SIGNING: &str = "certificatesigningrequest-signing-controller";

/// How long a certificate is valid that does not ask for less: `--cluster-signing-duration` of kube-controller-manager.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// When a kubelet that may not have its certificate now is looked at again: roles can change.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What a request for a certificate asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedCertificate {
    /// The common name of the subject.
    pub common_name: String,
    /// The organizations of the subject.
    pub organizations: Vec<String>,
    /// How many DNS names it is for.
    pub dns_names: usize,
    /// How many IP addresses it is for.
    pub ip_addresses: usize,
    /// How many e-mail addresses it is for.
    pub email_addresses: usize,
    /// How many URIs it is for.
    pub uris: usize,
}

/// A certificate authority. Both methods get the request as PEM; an error is a sentence.
pub trait CertificateSigner: Send + Sync {
    /// Reads a request.
    fn read(&self, request: &[u8]) -> Result<RequestedCertificate, String>;

    /// Signs a request: a certificate as PEM for these usages, in the words of Kubernetes (`client auth`).
    fn sign(&self, request: &[u8], usages: &[String], life: Duration, now: Timestamp) -> Result<String, String>;
}

/// Starts the controller that approves the requests of kubelets.
pub(crate) fn start_approving(manager: &Manager) -> Task {
    start(manager, APPROVING, |this, request| Box::pin(async move { this.approve(&request).await }))
}

/// Starts the controller that signs approved requests.
pub(crate) fn start_signing(manager: &Manager) -> Task {
    start(manager, SIGNING, |this, request| Box::pin(async move { this.sign(&request).await }))
}

type Handling = konverge_runtime::BoxFuture<Result<Action>>;

fn start(
    manager: &Manager,
    name: &'static str,
    handle: fn(Arc<CertificateController>, Arc<SigningRequest>) -> Handling,
) -> Task {
    let Some(signer) = manager.options.signer.clone() else {
        let mut stop = manager.stop.clone();
        return Box::pin(async move { drop(stop.wait_for(|stop| *stop).await) });
    };
    let ctx = manager.context(name);
    let controller = ctx.controller(Target::of::<certificates::CertificateSigningRequest>());
    let requests = CacheOf::new(controller.primary().clone());
    let api = ApiResource::erase::<certificates::CertificateSigningRequest>(&());
    let this = Arc::new(CertificateController { ctx: ctx.clone(), requests, api, signer });
    ctx.run_controller(controller, move |run: Run| {
        let this = this.clone();
        async move {
            match this.requests.get(&run.key)? {
                Some(request) if request.status.certificate.0.is_empty() => handle(this, request).await,
                _ => Ok(Action::Wait),
            }
        }
    })
}

/// A CertificateSigningRequest.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct SigningRequest {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    request: ByteString,
    signer_name: String,
    usages: Vec<String>,
    expiration_seconds: Option<u64>,
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Status {
    certificate: ByteString,
    conditions: Vec<Value>,
}

impl SigningRequest {
    /// Whether a condition of this type is true.
    fn has(&self, kind: &str) -> bool {
        self.status.conditions.iter().any(|condition| condition["type"] == kind && condition["status"] != "False")
    }
}

struct CertificateController {
    ctx: ControllerContext,
    requests: CacheOf<SigningRequest>,
    api: ApiResource,
    signer: Arc<dyn CertificateSigner>,
}

impl CertificateController {
    /// Approves the request of a kubelet whose user may ask for such a certificate.
    async fn approve(&self, request: &SigningRequest) -> Result<Action> {
        let Ok(asked) = self.signer.read(&request.spec.request.0) else { return Ok(Action::Wait) };
        let approvals = plan::approvals(request, &asked);
        for Approval { subresource, message } in &approvals {
            if self.is_allowed(&request.spec, subresource).await? {
                let condition =
                    json!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message});
                self.add_condition(request, "approval", condition).await?;
                return Ok(Action::Wait);
            }
        }
        Ok(if approvals.is_empty() { Action::Wait } else { Action::requeue(LOOK_AGAIN) })
    }

    /// Signs an approved request, or says why it cannot be signed.
    async fn sign(&self, request: &SigningRequest) -> Result<Action> {
        let Ok(asked) = self.signer.read(&request.spec.request.0) else { return Ok(Action::Wait) };
        let now = self.ctx.now();
        let failure = match plan::signing(request, &asked) {
            Signing::None => return Ok(Action::Wait),
            Signing::Refused(why) => why,
            Signing::For(life) => match self.signer.sign(&request.spec.request.0, &request.spec.usages, life, now) {
                Ok(pem) => {
                    let status = json!({"status": {"certificate": ByteString(pem.into_bytes())}});
                    self.ctx.merge_patch(&self.api, &request.metadata, "status", status).await?;
                    return Ok(Action::Wait);
                }
                Err(why) => why,
            },
        };
        let condition = json!({
            "type": "Failed",
            "status": "True",
            "reason": "SignerValidationFailure",
            "message": failure,
            "lastUpdateTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        self.add_condition(request, "status", condition).await?;
        Ok(Action::Wait)
    }

    async fn add_condition(&self, request: &SigningRequest, subresource: &str, condition: Value) -> Result<()> {
        let conditions: Vec<&Value> = request.status.conditions.iter().chain([&condition]).collect();
        let patch = json!({"status": {"conditions": conditions}});
        self.ctx.merge_patch(&self.api, &request.metadata, subresource, patch).await
    }

    /// Whether the user who asks may create such requests.
    async fn is_allowed(&self, spec: &Spec, subresource: &str) -> Result<bool> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": spec.username,
                "uid": spec.uid,
                "groups": spec.groups,
                "extra": spec.extra,
                "resourceAttributes": {
                    "group": "certificates.k8s.io",
                    "version": "*",
                    "resource": "certificatesigningrequests",
                    "subresource": subresource,
                    "verb": "create",
                },
            },
        });
        // Not by the writer, because a review has no name.
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = requests::send(&self.ctx.client, Method::POST, path, Some(&review)).await?;
        let answer: Value = serde_json::from_str(&answer)?;
        Ok(answer["status"]["allowed"] == true)
    }
}
