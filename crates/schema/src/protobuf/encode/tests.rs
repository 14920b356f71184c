//! Small cases; `cargo xtask round-trip` compares every published object, byte by byte.

use super::*;
use crate::{Budget, ProtobufObject};

#[track_caller]
fn check(kind: (&str, &str), json: &str, expect: &[u8]) {
    let message = ProtobufKind::find(kind.0, kind.1).unwrap();
    let mut encoder = ProtobufEncoder::default();
    let encoded = encoder.message(message, json.as_bytes()).unwrap();
    assert_eq!(encoded, expect, "{json}\n{}", String::from_utf8_lossy(encoded));
}

#[test]
fn fields_are_those_that_go_writes() {
    let binding = ("v1", "Binding");
    let meta = b"\x0a\x10\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0";
    let target = b"\x12\x0e\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x3a\0";
    // Messages that are held by value are there, and so are their plain fields.
    check(binding, "{}", &[&meta[..], target].concat());
    check(binding, r#"{"metadata":null,"target":{},"unknown":[1]}"#, &[&meta[..], target].concat());
    let config_map = ("v1", "ConfigMap");
    // Maps are sorted, escapes are resolved, bytes are not base64, and a pointer to false is there.
    check(
        config_map,
        r#"{"data":{"b":"","a":"\u00fc"},"binaryData":{"c":"AQI="},"immutable":false}"#,
        &[
            &meta[..],
            b"\x12\x07\x0a\x01a\x12\x02\xc3\xbc\x12\x05\x0a\x01b\x12\0\x1a\x07\x0a\x01c\x12\x02\x01\x02\x20\0",
        ]
        .concat(),
    );
    check(config_map, r#"{"data":{},"immutable":null}"#, meta);
    // Of two values the last one counts.
    check(config_map, r#"{"immutable":true,"data":null,"immutable":false}"#, &[&meta[..], b"\x20\0"].concat());
}

#[test]
fn times_are_seconds() {
    for (text, expect) in [
        ("1970-01-01T00:00:00Z", Some(0)),
        ("2000-02-29T23:59:59Z", Some(951_868_799)),
        ("2026-11-17T21:51:39Z", Some(1_794_952_299)),
        ("0001-01-01T00:00:00Z", Some(ZERO_TIME_SECONDS)),
        ("1900-03-01T00:00:00Z", Some(-2_203_891_200)),
        ("2026-11-17T21:51:39.5Z", None),
        ("2026-11-17T21:51:39+01:00", None),
        ("2026-11-1xT21:51:39Z", None),
    ] {
        assert_eq!(whole_seconds(text.as_bytes()), expect, "{text}");
        if let Some(seconds) = expect {
            assert_eq!(text.parse::<jiff::Timestamp>().unwrap().as_second(), seconds, "{text}");
        }
    }
}

#[test]
fn what_is_encoded_can_be_decoded() {
    for json in [
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"creationTimestamp":"2026-11-17T21:51:39Z","name":"a"},"spec":{"ports":[{"port":80,"targetPort":"web"},{"port":-1,"targetPort":8080}],"sessionAffinity":"None"},"status":{"loadBalancer":{}}}"#,
        r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{},"spec":{"leaseDurationSeconds":15,"renewTime":"2026-11-17T21:51:39.123456Z"}}"#,
        r#"{"apiVersion":"v1","kind":"Status","metadata":{},"status":"Failure","message":"no","reason":"NotFound","details":{"name":"a","kind":"pods"},"code":404}"#,
    ] {
        let body = ProtobufEncoder::default().object(json.as_bytes()).unwrap();
        let decoded = ProtobufObject::read(&body).unwrap().decode(Budget::unlimited()).unwrap();
        assert_eq!(decoded, serde_json::from_str::<serde_json::Value>(json).unwrap());
    }
}

#[test]
fn pieces_make_the_same_list() {
    let mut encoder = ProtobufEncoder::default();
    let list = br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"data":{"a":"b"}},{}]}"#;
    let expect = encoder.object(list).unwrap();
    let (kind, of_list) =
        (ProtobufKind::find("v1", "ConfigMap").unwrap(), ProtobufKind::find("v1", "ConfigMapList").unwrap());
    let mut message = encoder.message(of_list, br#"{"metadata":{"resourceVersion":"7"}}"#).unwrap().to_vec();
    for item in [r#"{"data":{"a":"b"}}"#, "{}"] {
        message.extend_from_slice(encoder.item(kind, item.as_bytes()).unwrap());
    }
    let (head, tail) = protobuf_envelope(("v1", "ConfigMapList"), message.len());
    assert_eq!([&head, &message[..], tail].concat(), expect);
}

#[test]
fn an_event_is_a_frame() {
    let mut encoder = ProtobufEncoder::default();
    let object = encoder.object(br#"{"kind":"ConfigMap","apiVersion":"v1"}"#).unwrap();
    let kind = ProtobufKind::find("v1", "ConfigMap").unwrap();
    let frame = encoder.event("ADDED", ("v1", "ConfigMap"), kind, b"{}").unwrap();
    let length = object.len() as u8;
    let head = [&[0, 0, 0, length + 11], &b"\x0a\x05ADDED\x12"[..], &[length + 2, 0x0a, length]].concat();
    assert_eq!(frame, [head, object].concat());
}

#[test]
fn what_cannot_be_encoded_is_said() {
    for (json, expect) in [
        ("", "the object is not JSON"),
        ("[]", "the object is not a JSON object"),
        (
            r#"{"kind":"Widget","apiVersion":"example.com/v1"}"#,
            "no kind \"Widget\" is registered for version \"example.com/v1\"",
        ),
        (r#"{"kind":"ConfigMap","apiVersion":"v1","data":[]}"#, "data cannot be encoded from List"),
        (r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":1}"#, "ObjectMeta cannot be encoded from Number"),
        (r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":1}}"#, "string cannot be encoded from Number"),
        (r#"{"kind":"ConfigMap","apiVersion":"v1","binaryData":{"a":"?"}}"#, "a field is not base64"),
    ] {
        assert_eq!(ProtobufEncoder::default().object(json.as_bytes()).unwrap_err().to_string(), expect);
    }
}
