//! CertificateSubjectRestriction: nobody asks for a client certificate of the group that may do everything.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use konverge_core::Status;

use crate::certificate::CertificateRequest;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided};

/// The signer of client certificates.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The group that may do everything.
const MASTERS: &str = "system:masters";

pub(super) struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(Operation::Create, "certificates.k8s.io", "certificatesigningrequests")
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, request: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(check(attributes, &request["spec"]))
    }
}

fn check(attributes: &Attributes<'_>, spec: &Value) -> Result<(), Status> {
    if spec["signerName"] != SIGNER {
        return Ok(());
    }
    let request = spec["request"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    let request = CertificateRequest::of_pem(&request)
        .map_err(|why| attributes.forbidden(format!("failed to parse CSR: {why}")))?;
    match request.subject().organizations().any(|organization| organization == MASTERS) {
        true => {
            let why = format!("use of {SIGNER} signer with {MASTERS} group is not allowed");
            Err(attributes.forbidden(why))
        }
        false => Ok(()),
    }
}
