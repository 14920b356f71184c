//! Tests of `error`, as tables.

use http::{HeaderMap, HeaderValue, StatusCode};
use konverge_core::{FieldError, FieldPath, ObjectKey, Status};

use super::*;
use crate::gate::WriteRefused;
use crate::retry::retry;

fn act() -> Act {
    let key = ObjectKey::new(Some("default"), "web");
    Act { verb: "patch", group: "apps".into(), resource: "deployments".into(), key }
}

/// What a write comes to that was answered like this.
fn refused(code: u16, headers: &[(&'static str, &'static str)], body: &str) -> WriteError {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect();
    let code = StatusCode::from_u16(code).unwrap();
    WriteError::refused(act(), true, Refusal { code, headers: &headers, body: body.as_bytes() })
}

fn json(status: Status) -> String {
    serde_json::to_string(&status).unwrap()
}

#[test]
fn an_answer_becomes_an_error_and_a_policy() {
    let after = |seconds| Retry::Hold(Duration::from_secs(seconds));
    let conflict = Status::failure(409, "Conflict", "Apply failed with 1 conflict").with_cause(
        "FieldManagerConflict",
        r#"conflict with "kubectl" using apps/v1"#,
        ".spec.replicas",
    );
    let size = FieldError::invalid(FieldPath::new("spec.size"), 0.into(), "must be greater than 0");
    let untyped = "failed to create typed patch object (default/w): .spec.x: field not declared in schema";
    type Case = (u16, &'static [(&'static str, &'static str)], String, &'static str, Retry);
    let cases: [Case; 19] = [
        (500, &[], json(Status::failure(500, "", untyped)), "Invalid", Retry::Backoff),
        (409, &[], json(Status::modified("apps", "deployments", "web")), "Conflict", Retry::Fresh),
        (409, &[], json(conflict), "Conflict", Retry::Backoff),
        (409, &[], json(Status::already_exists("apps", "deployments", "web")), "AlreadyExists", Retry::Fresh),
        (422, &[], json(Status::invalid("apps", "Deployment", "web", &[size])), "Invalid", Retry::Backoff),
        (400, &[], json(Status::bad_request("what?")), "Invalid", Retry::Backoff),
        (413, &[], "request body too large".into(), "Invalid", Retry::Backoff),
        (403, &[], json(Status::forbidden("apps", "deployments", "web", "no")), "Forbidden", Retry::Backoff),
        (404, &[], json(Status::not_found("apps", "deployments", "web")), "NotFound", Retry::Backoff),
        (404, &[], "404 page not found".into(), "NotServed", Retry::Backoff),
        (410, &[], json(Status::expired("too old")), "Gone", Retry::Fresh),
        (429, &[("retry-after", "7")], "Too many requests, please try again later.".into(), "Throttled", after(7)),
        (429, &[], json(Status::failure(429, "TooManyRequests", "slow down").retry_after(3)), "Throttled", after(3)),
        (503, &[("retry-after", "1")], String::new(), "Throttled", after(1)),
        (503, &[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], String::new(), "Throttled", Retry::Outage),
        (500, &[], json(Status::internal("etcdserver: request timed out")), "Unknown", Retry::Outage),
        (502, &[], "<html>bad gateway</html>".into(), "Unknown", Retry::Outage),
        (504, &[], String::new(), "Unknown", Retry::Outage),
        (401, &[], json(Status::failure(401, "Unauthorized", "who?")), "Failed", Retry::Backoff),
    ];
    for (code, headers, body, reason, policy) in cases {
        let error = Error::from(refused(code, headers, &body));
        assert_eq!((error.get_reason(), retry(&error)), (reason, policy), "{code} {body}");
        assert!(!error.to_string().is_empty(), "{code} {body}");
    }
}

/// An error of a kube client, as `ctx.client()` is one, counts for as much as one of our own writes.
#[test]
fn an_error_of_kube_is_judged_like_a_write() {
    let api = |status: Status| {
        let status: kube::core::Status = serde_json::from_str(&json(status)).unwrap();
        kube::Error::Api(status.boxed())
    };
    let lost = |kind: std::io::ErrorKind| kube::Error::Service(std::io::Error::from(kind).into());
    let throttled = || Status::failure(429, "TooManyRequests", "slow down");
    type Wrap = fn(kube::Error) -> Error;
    let cases: [(Wrap, &str); 3] = [
        (Error::from, "as it is"),
        (|error| Error::from(std::io::Error::other(error)), "wrapped in another"),
        (|error| Error::new(Box::new(error) as BoxError), "boxed"),
    ];
    for (wrap, how) in cases {
        for (error, reason, expect) in [
            (api(Status::modified("apps", "deployments", "web")), "Conflict", Retry::Fresh),
            // But for this: whoever sent it looked into no cache that will catch up.
            (api(Status::already_exists("apps", "deployments", "web")), "AlreadyExists", Retry::Backoff),
            (api(throttled().retry_after(3)), "Throttled", Retry::Hold(Duration::from_secs(3))),
            (api(throttled()), "Throttled", Retry::Outage),
            (api(Status::not_found("apps", "deployments", "web")), "NotFound", Retry::Backoff),
            (api(Status::forbidden("apps", "deployments", "web", "no")), "Forbidden", Retry::Backoff),
            (api(Status::bad_request("what?")), "Invalid", Retry::Backoff),
            (api(Status::internal("etcdserver: request timed out")), "Unknown", Retry::Outage),
            (lost(std::io::ErrorKind::ConnectionRefused), "Unreachable", Retry::Outage),
            (lost(std::io::ErrorKind::ConnectionReset), "Unknown", Retry::Outage),
            (kube::Error::LinesCodecMaxLineLengthExceeded, "Failed", Retry::Backoff),
        ] {
            let text = format!("{error}");
            let error = wrap(error);
            assert_eq!((error.get_reason(), retry(&error)), (reason, expect), "{text}, {how}");
        }
    }
}

/// A server that fails is there; one that does not answer may be away.
#[test]
fn an_answer_is_told_from_none() {
    let failed = || Status::internal("failed calling webhook");
    let kube = |status: Status| {
        let status: kube::core::Status = serde_json::from_str(&json(status)).unwrap();
        Error::from(kube::Error::Api(status.boxed()))
    };
    let lost = |kind: std::io::ErrorKind| Error::from(kube::Error::Service(std::io::Error::from(kind).into()));
    for (error, expect) in [
        (Error::from(refused(500, &[], &json(failed()))), false),
        (Error::from(refused(409, &[], &json(Status::modified("apps", "deployments", "web")))), false),
        (kube(failed()), false),
        (Error::new("no"), false),
        (Error::from(WriteError::unanswered(act(), true, "reset".into())), true),
        (Error::from(WriteError::unanswered(act(), false, "reset".into())), true),
        (lost(std::io::ErrorKind::ConnectionRefused), true),
        (lost(std::io::ErrorKind::ConnectionReset), true),
    ] {
        assert_eq!(error.is_unanswered(), expect, "{error:?}");
    }
}

#[test]
fn what_was_said_outright_is_what_happens() {
    let second = Duration::from_secs(1);
    let not_sent = || WriteError::from(WriteRefused::new("NotLeading", "another instance leads"));
    let by_client = || kube::Error::Service(WriteRefused::new("NotLeading", "another instance leads").into());
    let invalid = || FieldErrors::from(FieldError::required(FieldPath::new("spec.x"), ""));
    let io = || std::io::Error::other("disk");
    let cases = [
        (Error::new("text"), Retry::Backoff),
        (Error::from(io()), Retry::Backoff),
        (Error::permanent("no"), Retry::UntilChanged),
        (Error::permanent(io()), Retry::UntilChanged),
        (Error::retry_after(second, io()), Retry::After(second)),
        (Error::from(invalid()), Retry::UntilChanged),
        // Found before anything was sent: no server has to change its mind.
        (Error::from(WriteError::invalid(&invalid())), Retry::UntilChanged),
        (Error::retry_after(second, invalid()), Retry::After(second)),
        (Error::from(not_sent()), Retry::Stop),
        (Error::from(by_client()), Retry::Stop),
        // Wrapped in an error of the user it is still what it is.
        (Error::from(std::io::Error::other(not_sent())), Retry::Stop),
    ];
    for (error, expect) in cases {
        assert_eq!(retry(&error), expect, "{error:?}");
    }
}

#[test]
fn a_missing_rule_is_named() {
    let denied = r#"deployments.apps "web" is forbidden: User "system:serviceaccount:default:web" cannot create resource "deployments/scale" in API group "apps" in the namespace "default""#;
    let error = refused(403, &[], &json(Status::failure(403, "Forbidden", denied)));
    let rule = r#"verbs: ["create"], apiGroups: ["apps"], resources: ["deployments/scale"], in namespace default"#;
    assert_eq!(error.to_string(), format!("an RBAC rule is missing: {rule} ({denied})"));

    let quota = r#"pods "web" is forbidden: exceeded quota: small"#;
    let error = refused(403, &[], &json(Status::failure(403, "Forbidden", quota)));
    assert!(matches!(&error, WriteError::Forbidden { rule: None, .. }), "{error:?}");
    assert_eq!(error.to_string(), quota);
}

#[test]
fn a_connection_without_an_answer_leaves_a_write_open_unless_there_was_none() {
    use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, HostUnreachable, TimedOut};
    let cases = [
        (ConnectionRefused, "Unreachable"),
        (HostUnreachable, "Unreachable"),
        (ConnectionReset, "Unknown"),
        (BrokenPipe, "Unknown"),
        (TimedOut, "Unknown"),
    ];
    for (kind, expect) in cases {
        let wrapped = || kube::Error::Service(std::io::Error::from(kind).into());
        assert_eq!(WriteError::unanswered(act(), true, wrapped().into()).reason(), expect, "{kind:?}");
        // A read changes nothing: there is nothing to be unsure of.
        assert_eq!(WriteError::unanswered(act(), false, wrapped().into()).reason(), "Unreachable", "{kind:?}");
    }
    let error = WriteError::unanswered(act(), true, "the line went dead".into());
    assert_eq!(error.to_string(), "it is not known whether the API server did patch deployments.apps default/web");
}

#[test]
fn the_chain_is_printed_in_one_place() {
    let error = Error::from(WriteError::unanswered(act(), false, "no route".into()));
    assert_eq!(error.to_string(), "the API server cannot be reached to patch deployments.apps default/web");
    assert_eq!(format!("{error:#}"), format!("{error}: no route"));
    assert_eq!(format!("{error:?}"), format!("{error}: no route"));
}

/// kube's own text of a refusal has the whole Status in it, as Rust shows it.
#[test]
fn a_refusal_is_the_message_of_the_server() {
    let message = "customresourcedefinitions.apiextensions.k8s.io \"topic\" not found";
    let status: kube::core::Status = serde_json::from_str(&json(Status::failure(404, "NotFound", message))).unwrap();
    let error = Error::from(kube::Error::Api(status.boxed()));
    assert_eq!([format!("{error}"), format!("{error:#}"), format!("{error:?}")], [message; 3]);
    let shared = Arc::new(error);
    assert_eq!(format!("{:#}", Error::from_shared(shared.clone())), message);
}

#[test]
fn no_server_puts_an_object_to_sleep_for_good() {
    let asked = |seconds: &'static str| {
        let error = refused(429, &[("retry-after", seconds)], "");
        retry(&Error::from(error))
    };
    assert_eq!(asked("7"), Retry::Hold(Duration::from_secs(7)));
    for seconds in ["86400", "4294967295", "18446744073709551616"] {
        assert!(matches!(asked(seconds), Retry::Outage | Retry::Hold(_)), "{seconds}");
        assert!(!matches!(asked(seconds), Retry::Hold(pause) if pause > Duration::from_secs(120)), "{seconds}");
    }
}
