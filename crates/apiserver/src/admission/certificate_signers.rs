//! CertificateApproval and CertificateSigning: who approves a certificate signing request may `approve`, and who signs it may
//! `sign`, for the signer that the request names.

use serde_json::Value;

use super::{Admission, Attributes, Operation, Plugin, Verdict};
use crate::authorize::{Attributes as Question, Authorizer, Decision, ResourceAttributes};
use crate::subresource::Subresource;

const GROUP: &str = "certificates.k8s.io";

/// One of the two plugins.
pub(super) struct CertificateSigners {
    verb: &'static str,
    subresource: Subresource,
}

impl CertificateSigners {
    /// CertificateApproval.
    pub(super) const APPROVAL: Self = Self { verb: "approve", subresource: Subresource::Approval };
    /// CertificateSigning.
    pub(super) const SIGNING: Self = Self { verb: "sign", subresource: Subresource::Status };

    /// Whether the user has the right for this signer, or for all of its domain.
    async fn allowed(&self, attributes: &Attributes<'_>, signer: &str) -> bool {
        let domain = signer.split('/').next().unwrap_or_default();
        for name in [signer, &format!("{domain}/*")] {
            let resource =
                ResourceAttributes { group: GROUP, version: "*", resource: "signers", name, ..Default::default() };
            let user = &attributes.context.user;
            let question = Question { user, verb: self.verb, path: "", resource: Some(resource) };
            if let Decision::Allow { .. } = attributes.server.authorizer.authorize(question).await {
                return true;
            }
        }
        false
    }
}

impl Plugin for CertificateSigners {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update
            && attributes.subresource == self.subresource
            && &*attributes.resource.group == GROUP
            && &*attributes.resource.plural == "certificatesigningrequests"
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        Box::pin(async move {
            let same = |field: &str| attributes.old.is_some_and(|old| old["status"][field] == object["status"][field]);
            // Whoever changes only metadata signs nothing.
            if self.subresource == Subresource::Status && same("certificate") && same("conditions") {
                return Ok(());
            }
            let signer = object["spec"]["signerName"].as_str().unwrap_or_default();
            if self.allowed(attributes, signer).await {
                return Ok(());
            }
            let verb = self.verb;
            Err(attributes.forbidden(format!("user not permitted to {verb} requests with signerName {signer:?}")))
        })
    }
}
