//! What answers of admission webhooks mean.

use serde_json::json;

use super::*;

fn webhook(ty: WebhookType) -> Webhook {
    let json = json!({"name": "w.example.com", "rules": [{}], "clientConfig": {"url": "https://x"}});
    Webhook::compile(ty, "c", 0, &json).expect("it has a rule")
}

/// The operations of the patch, or what a failure says.
fn check(ty: WebhookType, version: ReviewVersion, review: Value, expect: Result<usize, &str>) {
    let answer = version.response("u", &review, &webhook(ty));
    let found = match answer.and_then(|answer| answer.patch) {
        Ok(operations) => Ok(operations.len()),
        Err(Failure::Call { why, .. }) => Err(why),
        Err(Failure::Rejected(status) | Failure::Internal(status)) => {
            Err(format!("{} {} {}", status.code, status.reason, status.message))
        }
    };
    assert_eq!(found, expect.map_err(str::to_owned), "{review}");
}

fn v1(response: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

#[test]
fn answers_of_admission_webhooks() {
    use ReviewVersion::{V1, V1beta1};
    use WebhookType::{Mutating, Validating};
    let operations = r#"[{"op":"add","path":"/a","value":1}]"#;
    let (patch, numbers) = (BASE64_STANDARD.encode(operations), operations.as_bytes());
    let denied = "400  admission webhook \"w.example.com\" denied the request without explanation";
    for (ty, version, review, expect) in [
        (Validating, V1, v1(json!({"uid": "u", "allowed": true})), Ok(0)),
        (Validating, V1, v1(json!({"uid": "u"})), Err(denied)),
        (
            Validating,
            V1,
            v1(json!({"uid": "u", "allowed": false, "status": {"reason": "Forbidden", "code": 403}})),
            Err("403 Forbidden admission webhook \"w.example.com\" denied the request: Forbidden"),
        ),
        (
            Validating,
            V1,
            v1(json!({"uid": "u", "status": {"status": "Success", "message": "no", "code": 200}})),
            Err("400  admission webhook \"w.example.com\" denied the request: no"),
        ),
        (
            Validating,
            V1,
            v1(json!({"uid": "u", "allowed": null, "warnings": null, "status": {"metadata": null, "reason": null,
                "message": "no", "details": {"causes": null, "name": null}, "code": 70000}})),
            Err("999  admission webhook \"w.example.com\" denied the request: no"),
        ),
        (
            Validating,
            V1,
            v1(json!({"uid": "u", "status": {"message": "no", "code": -1}})),
            Err("400  admission webhook \"w.example.com\" denied the request: no"),
        ),
        (
            Validating,
            V1,
            v1(json!({"uid": "u", "allowed": true, "status": {"message": 1}})),
            Err("failed to call webhook: invalid type: integer `1`, expected a string"),
        ),
        (Validating, V1, v1(Value::Null), Err("received invalid webhook response: webhook response was absent")),
        (
            Validating,
            V1,
            v1(json!({"uid": "x", "allowed": true})),
            Err("received invalid webhook response: expected response.uid=\"u\", got \"x\""),
        ),
        (
            Validating,
            V1,
            json!({"response": {"uid": "u", "allowed": true}}),
            Err("received invalid webhook response: expected webhook response of admission.k8s.io/v1, \
                 Kind=AdmissionReview, got /, Kind="),
        ),
        (
            Validating,
            V1,
            v1(json!({"uid": "u", "allowed": true, "patch": patch})),
            Err("received invalid webhook response: validating webhook may not return response.patch"),
        ),
        (
            Validating,
            V1,
            v1(json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})),
            Err("received invalid webhook response: validating webhook may not return response.patchType"),
        ),
        (Mutating, V1, v1(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"})), Ok(1)),
        (Mutating, V1, v1(json!({"uid": "u", "allowed": true, "patch": numbers, "patchType": "JSONPatch"})), Ok(1)),
        (
            Mutating,
            V1,
            v1(json!({"uid": "u", "allowed": true, "patch": patch})),
            Err("received invalid webhook response: webhook returned response.patch but not response.patchType"),
        ),
        (
            Mutating,
            V1,
            v1(json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})),
            Err("received invalid webhook response: webhook returned response.patchType but not response.patch"),
        ),
        (
            Mutating,
            V1,
            v1(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "Merge"})),
            Err("unsupported patch type \"Merge\""),
        ),
        // Earlier versions looked at neither the type nor the uid.
        (Mutating, V1beta1, json!({"response": {"allowed": true, "patch": patch}}), Ok(1)),
        (Validating, V1beta1, json!({"response": {"allowed": true, "patch": patch}}), Ok(0)),
        (Validating, V1beta1, json!({}), Err("received invalid webhook response: webhook response was absent")),
    ] {
        check(ty, version, review, expect);
    }
}

/// Go reads null as no value, so that a test for null is one for absence.
#[test]
fn a_null_of_a_patch_is_no_value() {
    let patch = BASE64_STANDARD
        .encode(r#"[{"op":"test","path":"/a","value":null},{"op":"add","path":"/a","value":{"b":null}}]"#);
    let review = v1(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"}));
    let answer = ReviewVersion::V1.response("u", &review, &webhook(WebhookType::Mutating));
    let Ok(operations) = answer.and_then(|answer| answer.patch) else { panic!("it is a patch") };
    assert_eq!(
        operations,
        [json!({"op": "test", "path": "/a"}), json!({"op": "add", "path": "/a", "value": {"b": null}})]
    );
}

#[test]
fn remarks_come_with_refusals_too() {
    let review = v1(json!({
        "uid": "u", "allowed": false, "warnings": ["careful"], "auditAnnotations": {"why": "because"},
    }));
    let answer = ReviewVersion::V1.response("u", &review, &webhook(WebhookType::Validating)).ok().unwrap();
    let annotations = vec![("why".to_owned(), "because".to_owned())];
    assert_eq!(answer.remarks, Remarks { warnings: vec!["careful".to_owned()], annotations });
    assert!(answer.patch.is_err());
}

#[test]
fn the_first_version_that_is_known_is_spoken() {
    for (versions, expect) in [
        (json!(["v2", "v1beta1", "v1"]), Some(ReviewVersion::V1beta1)),
        (json!(["v1"]), Some(ReviewVersion::V1)),
        (json!(["v2"]), None),
    ] {
        assert_eq!(ReviewVersion::first_known(&versions), expect, "{versions}");
    }
}
