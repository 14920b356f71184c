//! CertificateSubjectRestriction: nobody asks for a client certificate of the group that may do everything.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use konverge_core::Status;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided};

/// The signer of client certificates.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The group that may do everything.
const MASTERS: &str = "system:masters";

/// The object identifier of an organization: 2.5.4.10.
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];

/// ASN.1 tags.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;

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
    let organizations = pem(&request)
        .ok_or("PEM block type must be CERTIFICATE REQUEST")
        .and_then(|der| organizations(&der).ok_or("the certificate request is malformed"))
        .map_err(|why| attributes.forbidden(format!("failed to parse CSR: {why}")))?;
    match organizations.iter().any(|organization| organization == MASTERS.as_bytes()) {
        true => {
            let why = format!("use of {SIGNER} signer with {MASTERS} group is not allowed");
            Err(attributes.forbidden(why))
        }
        false => Ok(()),
    }
}

/// The content of the first PEM block, if it is a certificate request.
fn pem(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, rest) = text.split_once("-----BEGIN CERTIFICATE REQUEST-----")?;
    let (body, _) = rest.split_once("-----END CERTIFICATE REQUEST-----")?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok()
}

/// The organizations in the subject of a certificate request.
fn organizations(der: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (request, _) = element(der, SEQUENCE)?;
    let (info, _) = element(request, SEQUENCE)?;
    let (_, info) = element(info, INTEGER)?;
    let (mut subject, _) = element(info, SEQUENCE)?;
    let mut found = Vec::new();
    while !subject.is_empty() {
        let (mut set, rest) = element(subject, SET)?;
        subject = rest;
        while !set.is_empty() {
            let (attribute, rest) = element(set, SEQUENCE)?;
            set = rest;
            let (kind, value) = element(attribute, OBJECT_IDENTIFIER)?;
            if kind == ORGANIZATION {
                // The value is a string of any sort: only its bytes count.
                found.push(element(value, *value.first()?)?.0.to_vec());
            }
        }
    }
    Some(found)
}

/// The content of the element of this tag at the start of `der`, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    if *found == tag { rest.split_at_checked(length) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request for `CN=alice, O=developers, O=system:masters`, made by openssl.
    const REQUEST: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIH4MIGgAgEAMD4xDjAMBgNVBAMMBWFsaWNlMRMwEQYDVQQKDApkZXZlbG9wZXJz
MRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVyczBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABIa966l3l1d35hZ05/5Z8vraqtzQB8Z4Xh8HB2CpC2nmyUpdyorIPdW8TaFs
a56AH+YiCKAmbEZUT0gNMwbRnIugADAKBggqhkjOPQQDAgNHADBEAiB11kD8QFqO
knEY5hIUr+HI7H11Jr/B37ZsBpFBTvPjdQIgO+5egBJU3RL1wFd7NV83NMzQtPzM
MEprULjGvqj+6kk=
-----END CERTIFICATE REQUEST-----";

    #[test]
    fn organizations_are_found() {
        let der = pem(REQUEST.as_bytes()).unwrap();
        assert_eq!(organizations(&der).unwrap(), [b"developers".to_vec(), b"system:masters".to_vec()]);
        assert_eq!(pem(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"), None);
        // However a request is cut off, nothing panics.
        for end in 0..der.len() {
            let _ = organizations(&der[..end]);
        }
    }
}
