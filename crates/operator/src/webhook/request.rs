//! What an API server asks: the `AdmissionRequest` of admission.k8s.io/v1. In: a body. Out: the request, with its objects
//! still as text, because only a webhook knows their Rust type.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The only version that is spoken. API servers have it since Kubernetes 1.16.
pub(super) const API_VERSION: &str = "admission.k8s.io/v1";

pub(super) const KIND: &str = "AdmissionReview";

/// A body as it is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<AdmissionRequest>,
}

/// What somebody wants to do to which object, as the API server tells a webhook.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AdmissionRequest {
    /// The id of this request; each webhook that is called for it sees the same.
    pub uid: String,
    /// The kind of the object that is sent. With the match policy `Equivalent` it may have been converted from another
    /// version.
    pub kind: AdmissionKind,
    /// The resource that is sent: `deployments`.
    pub resource: AdmissionResource,
    /// Which part of the object: `status`, `scale`; empty for the object itself.
    #[serde(default)]
    pub sub_resource: String,
    /// The kind that the client used, if it was converted.
    pub request_kind: Option<AdmissionKind>,
    /// The name of the object; empty if the server has still to make it up.
    #[serde(default)]
    pub name: String,
    /// The namespace of the object; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// What is to happen.
    pub operation: Operation,
    /// Who asks.
    #[serde(default)]
    pub user_info: UserInfo,
    /// Whether nothing will be stored: a webhook must not change anything outside of the object then.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// The options of the request, such as `DeleteOptions`.
    pub options: Option<Box<RawValue>>,
    /// The object as it is to be stored.
    pub(super) object: Option<Box<RawValue>>,
    /// The object as it is stored now.
    pub(super) old_object: Option<Box<RawValue>>,
}

/// Group, version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AdmissionKind {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind: `Deployment`.
    pub kind: String,
}

/// Group, version and plural name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AdmissionResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name: `deployments`.
    pub resource: String,
}

/// What is to happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted. There is no object to be stored, only the one that is.
    Delete,
    /// Somebody connects to it: `exec`, `attach`, `port-forward`, `proxy`.
    Connect,
}

impl Operation {
    /// As the API spells it: `CREATE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Who asks, as the API server authenticated them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UserInfo {
    /// The name: `system:serviceaccount:shop:deployer`.
    pub username: String,
    /// The id, if there is one.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Reads a body. The error says what is wrong with it.
pub(super) fn parse(body: &[u8]) -> Result<AdmissionRequest, String> {
    let review: AdmissionReview =
        serde_json::from_slice(body).map_err(|error| format!("the body is no AdmissionReview: {error}"))?;
    if review.api_version != API_VERSION || review.kind != KIND {
        return Err(format!(
            "the body is {:?} of {:?}, and this webhook takes {KIND} of {API_VERSION}",
            review.kind, review.api_version
        ));
    }
    let request = review.request.ok_or("the AdmissionReview has no request")?;
    if request.uid.is_empty() {
        return Err("the request of the AdmissionReview has no uid".to_owned());
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        let review = |request: &str| {
            format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}}}"#)
        };
        let whole = r#"{"uid":"1","kind":{"group":"","version":"v1","kind":"Pod"},"operation":"CREATE",
            "resource":{"group":"","version":"v1","resource":"pods"},"object":{"a":1},"oldObject":null}"#;
        let parsed = parse(review(whole).as_bytes()).unwrap();
        assert_eq!((parsed.operation, parsed.kind.kind.as_str()), (Operation::Create, "Pod"));
        assert_eq!(parsed.object.unwrap().get(), r#"{"a":1}"#);
        assert!(parsed.old_object.is_none());
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for (body, expect) in [
            (String::new(), "the body is no AdmissionReview: EOF while parsing a value"),
            ("junk".into(), "the body is no AdmissionReview: expected value"),
            (deep, "the body is no AdmissionReview: "),
            ("{}".into(), "the body is \"\" of \"\", and this webhook takes AdmissionReview of admission.k8s.io/v1"),
            (
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#.into(),
                "the body is \"AdmissionReview\" of \"admission.k8s.io/v1beta1\", and",
            ),
            (review("null"), "the AdmissionReview has no request"),
            (review("{}"), "the body is no AdmissionReview: missing field `uid`"),
            (review(&whole.replace("\"1\"", "\"\"")), "the request of the AdmissionReview has no uid"),
            (review(&whole.replace("CREATE", "PAINT")), "the body is no AdmissionReview: unknown variant `PAINT`"),
        ] {
            let error = parse(body.as_bytes()).unwrap_err();
            assert!(error.starts_with(expect), "{error}");
        }
    }
}
