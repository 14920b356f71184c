//! A review of a Pod, and the check of its answer. In: a number for the uid. Out: the bytes of a request, and whether the answer
//! is right: the uid, that the Pod is allowed, and exactly the patch that is expected.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::pod_rules::{LABEL, VALUE};
use crate::http;
use crate::invalid_run::{InvalidRun, expect};
use crate::pod;

/// A webhook of the measured server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// Decides.
    Validate,
    /// Adds a label.
    Mutate,
    /// The same with a type that has only the fields that are looked at.
    ValidateFewFields,
    /// The same with a type that has only the fields that are looked at.
    MutateFewFields,
}

impl Hook {
    /// Its path. The first two are those that controller-runtime makes.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Validate => "/validate--v1-pod",
            Self::Mutate => "/mutate--v1-pod",
            Self::ValidateFewFields => "/validate-few-fields",
            Self::MutateFewFields => "/mutate-few-fields",
        }
    }

    /// Its name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::Mutate => "mutate",
            Self::ValidateFewFields => "validate, few fields",
            Self::MutateFewFields => "mutate, few fields",
        }
    }

    fn patches(self) -> bool {
        matches!(self, Self::Mutate | Self::MutateFewFields)
    }
}

/// Requests for a webhook, each with a uid of its own, and the check of their answers.
pub(super) struct Reviews {
    hook: Hook,
    request: Vec<u8>,
    uid_at: usize,
    uid: String,
    /// The patch as the server writes it, after it was found to be right.
    patch: Option<String>,
}

impl Reviews {
    /// Reviews for this webhook.
    pub(super) fn of(hook: Hook) -> Self {
        let uid = uid(0);
        let request = http::request("POST", hook.path(), "application/json", body(&uid).as_bytes());
        let uid_at = request.windows(uid.len()).position(|bytes| bytes == uid.as_bytes());
        Self { hook, uid_at: uid_at.expect("the body has the uid"), request, uid, patch: None }
    }

    /// The bytes of the request with this number.
    pub(super) fn request(&mut self, number: u64) -> &[u8] {
        self.uid = uid(number);
        self.request[self.uid_at..self.uid_at + self.uid.len()].copy_from_slice(self.uid.as_bytes());
        &self.request
    }

    /// Whether this is the right answer to the last request.
    pub(super) fn check(&mut self, body: &[u8]) -> Result<(), InvalidRun> {
        let unreadable = |error: serde_json::Error| {
            let text = String::from_utf8_lossy(body).chars().take(300).collect::<String>();
            InvalidRun::new(format!("the answer cannot be read: {error}: {text}"))
        };
        let Answer { response: Response { uid, allowed, patch } } = serde_json::from_slice(body).map_err(unreadable)?;
        if !allowed || uid != self.uid {
            let text = String::from_utf8_lossy(body);
            return Err(InvalidRun::new(format!("not allowed, or of another uid than {}: {text}", self.uid)));
        }
        let patch = patch.map(RawValue::get);
        if patch.is_some() && patch == self.patch.as_deref() {
            return Ok(());
        }
        expect("whether there is a patch", patch.is_some(), self.hook.patches())?;
        if let Some(patch) = patch {
            expect("the patch", operations(patch).map_err(unreadable)?, expected_patch())?;
            self.patch = Some(patch.to_owned());
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    response: Response<'a>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    allowed: bool,
    #[serde(borrow)]
    patch: Option<&'a RawValue>,
}

/// The operations of a patch. kube writes the bytes as numbers, all others write them as base64; Go reads both.
fn operations(patch: &str) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Patch {
        Text(String),
        Numbers(Vec<u8>),
    }
    let bytes = match serde_json::from_str(patch)? {
        Patch::Text(text) => BASE64_STANDARD.decode(text).map_err(serde::de::Error::custom)?,
        Patch::Numbers(bytes) => bytes,
    };
    serde_json::from_slice(&bytes)
}

/// The only patch that is right: the label, and nothing else.
fn expected_patch() -> Value {
    json!([{"op": "add", "path": format!("/metadata/labels/{}", LABEL.replace('/', "~1")), "value": VALUE}])
}

/// The size of a review.
pub(super) fn size() -> usize {
    body(&uid(0)).len()
}

/// The size of its Pod.
pub(super) fn pod_size() -> usize {
    pod::stored(7, 8).to_string().len()
}

fn uid(number: u64) -> String {
    format!("0c9a8d74-9cb7-44dd-b98e-{number:012x}")
}

/// An AdmissionReview as kube-apiserver sends it.
fn body(uid: &str) -> String {
    let pod = pod::stored(7, 8);
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uid, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": pod["metadata"]["name"], "namespace": "default", "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "7e5a3d0c-8c1a-4f1c-9d8e-000000000042",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
            },
            "object": pod, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    });
    review.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answers_are_found() {
        let patch = BASE64_STANDARD.encode(expected_patch().to_string());
        let numbers = expected_patch().to_string().into_bytes();
        let other = BASE64_STANDARD.encode(r#"[{"op":"remove","path":"/spec"}]"#);
        let answer = |number: u64, allowed: bool, patch: Value| {
            json!({"response": {"uid": uid(number), "allowed": allowed, "patch": patch}}).to_string()
        };
        for (hook, answer, expect) in [
            (Hook::Validate, answer(5, true, Value::Null), true),
            (Hook::Validate, answer(6, true, Value::Null), false),
            (Hook::Validate, answer(5, false, Value::Null), false),
            (Hook::Validate, answer(5, true, json!(patch)), false),
            (Hook::Mutate, answer(5, true, json!(patch)), true),
            (Hook::Mutate, answer(5, true, json!(numbers)), true),
            (Hook::Mutate, answer(5, true, json!(other)), false),
            (Hook::Mutate, answer(5, true, Value::Null), false),
            (Hook::Mutate, "{}".to_owned(), false),
        ] {
            let mut reviews = Reviews::of(hook);
            let request = String::from_utf8_lossy(reviews.request(5)).into_owned();
            assert!(request.contains(&uid(5)) && !request.contains(&uid(0)));
            assert_eq!(reviews.check(answer.as_bytes()).is_ok(), expect, "{hook:?} {answer}");
        }
    }
}
