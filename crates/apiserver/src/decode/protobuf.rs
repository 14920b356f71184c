//! A body that is protobuf, as Go clients send built-in kinds. In: the body and the kind that the endpoint expects. Out: the
//! object as JSON, or the refusal in kube-apiserver's words. Strict decoding has nothing to say about protobuf:
//! a message does not name its fields, and those that are not known are skipped.

use std::fmt::{Display, Write as _};

use konverge_core::{GroupVersion, GroupVersionKind, Status};
use konverge_schema::{Budget, ProtobufError, ProtobufObject};

use super::{Decoded, check_shape};
use crate::work::over_budget;

/// How much of an unreadable body is shown.
const SUMMARY_BYTES: usize = 30;

/// Reads an object. An envelope without apiVersion or kind means what the endpoint expects; another kind is decoded, so
/// that whoever receives the object can refuse it by its name.
pub(crate) fn protobuf(body: &[u8], expect: &GroupVersionKind, budget: &Budget) -> Result<Decoded, Status> {
    let kind = &expect.kind;
    let object = read(body, expect).map_err(|why| {
        let summary = summary(body);
        Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({summary})"))
    })?;
    decode(&object, budget, |why| {
        let version = GroupVersion::parse(&object.api_version).map(|of| of.version).unwrap_or_default();
        let given = &object.kind;
        Status::bad_request(format!("{given} in version {version:?} cannot be handled as a {kind}: {why}"))
    })
}

/// Reads delete options, which belong to every group and version.
pub(crate) fn protobuf_delete_options(body: &[u8], budget: &Budget) -> Result<Decoded, Status> {
    let expect = GroupVersionKind { group: String::new(), version: "v1".to_owned(), kind: "DeleteOptions".to_owned() };
    let object = read(body, &expect).map_err(|why| Status::bad_request(why.to_string()))?;
    if object.kind != expect.kind {
        return Err(Status::bad_request("decoded object cannot be converted to DeleteOptions"));
    }
    decode(&object, budget, |why| Status::bad_request(why.to_string()))
}

fn read<'a>(body: &'a [u8], expect: &GroupVersionKind) -> Result<ProtobufObject<'a>, ProtobufError> {
    let mut object = ProtobufObject::read(body)?;
    if GroupVersion::parse(&object.api_version).is_none() {
        object.api_version = expect.api_version();
    }
    if object.kind.is_empty() {
        object.kind.clone_from(&expect.kind);
    }
    Ok(object)
}

fn decode(
    object: &ProtobufObject<'_>,
    budget: &Budget,
    refused: impl Fn(&dyn Display) -> Status,
) -> Result<Decoded, Status> {
    let value = object.decode(budget).map_err(|error| match error {
        ProtobufError::OverBudget(why) => over_budget(why),
        why => refused(&why),
    })?;
    check_shape(&value)?;
    Ok(Decoded { value, duplicates: Vec::new() })
}

/// The start of a body: as text if it looks like JSON, and in hexadecimal otherwise.
fn summary(body: &[u8]) -> String {
    let start = &body[..body.len().min(SUMMARY_BYTES)];
    let mut summary = match start {
        [] => return "<empty>".to_owned(),
        [b'{', ..] => String::from_utf8_lossy(start).into_owned(),
        _ => start.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    };
    if body.len() > SUMMARY_BYTES {
        summary.push_str(" ...");
    }
    summary
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An envelope around an empty message. Lengths are below 128.
    fn envelope(api_version: &str, kind: &str) -> Vec<u8> {
        let field = |number: u8, text: &[u8]| [&[number << 3 | 2, text.len() as u8], text].concat();
        let names = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &names)].concat()
    }

    fn expect() -> GroupVersionKind {
        GroupVersionKind { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() }
    }

    #[track_caller]
    fn check(body: &[u8], expect: Result<Value, &str>, read: impl Fn(&[u8]) -> Result<Decoded, Status>) {
        match (read(body), expect) {
            (Ok(decoded), Ok(expect)) => {
                let names = json!([decoded.value["apiVersion"], decoded.value["kind"]]);
                assert_eq!((names, decoded.duplicates), (expect, vec![]));
            }
            (Err(status), Err(expect)) => assert_eq!((status.code, status.message.as_str()), (400, expect)),
            (read, expect) => panic!("{read:?} is not {expect:?}"),
        }
    }

    #[test]
    fn objects() {
        let check =
            |body: &[u8], expected| check(body, expected, |body| protobuf(body, &expect(), Budget::unlimited()));
        check(&envelope("apps/v1", "Deployment"), Ok(json!(["apps/v1", "Deployment"])));
        check(&envelope("", ""), Ok(json!(["apps/v1", "Deployment"])));
        check(&envelope("a/b/c", "Deployment"), Ok(json!(["apps/v1", "Deployment"])));
        check(&envelope("v1", "Pod"), Ok(json!(["v1", "Pod"])));
        check(
            &envelope("apps/v9", "Deployment"),
            Err("Deployment in version \"v9\" cannot be handled as a Deployment: \
                 no kind \"Deployment\" is registered for version \"apps/v9\""),
        );
        check(
            &[envelope("apps/v1", "Deployment"), b"\x12\x02\x0a\x09".to_vec()].concat(),
            Err("Deployment in version \"v1\" cannot be handled as a Deployment: unexpected EOF"),
        );
        check(b"", Err("the object provided is unrecognized (must be of type Deployment): empty data (<empty>)"));
        check(
            b"k8s\0\x0a\x7f",
            Err("the object provided is unrecognized (must be of type Deployment): unexpected EOF (6b3873000a7f)"),
        );
        check(
            br#"{"apiVersion": "apps/v1", "kind": "Deployment"}"#,
            Err("the object provided is unrecognized (must be of type Deployment): \
                 provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] \
                 ({\"apiVersion\": \"apps/v1\", \"kin ...)"),
        );
    }

    #[test]
    fn delete_options() {
        let check = |body: &[u8], expect| {
            check(body, expect, |body| protobuf_delete_options(body, Budget::unlimited()));
        };
        for version in ["v1", "apps/v1", "meta.k8s.io/v1", "example.com/v1beta1"] {
            check(&envelope(version, "DeleteOptions"), Ok(json!([version, "DeleteOptions"])));
        }
        check(&envelope("", ""), Ok(json!(["v1", "DeleteOptions"])));
        check(&envelope("v1", "Pod"), Err("decoded object cannot be converted to DeleteOptions"));
        check(b"k8s\0", Err("empty body"));
        check(&[envelope("v1", "DeleteOptions"), b"\x12\x01\x08".to_vec()].concat(), Err("unexpected EOF"));
    }

    #[test]
    fn budgets_are_kept() {
        let status = protobuf(&envelope("apps/v1", "Deployment"), &expect(), &Budget::new(1, 1)).unwrap_err();
        assert_eq!(status, over_budget(konverge_schema::OverBudget::Bytes));
    }
}
