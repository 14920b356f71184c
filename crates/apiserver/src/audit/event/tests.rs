//! Lines of events, held against those of kube-apiserver.

use super::*;
use crate::audit::policy::Level;

fn event(level: Level, facts: Facts) -> Event {
    let head = Head {
        level,
        omit_managed_fields: false,
        audit_id: "a1".into(),
        uri: "/api/v1/namespaces/shop/pods?a=b&watch=true".to_owned(),
        verb: "watch".to_owned(),
        user: Some(Arc::new(UserInfo { groups: vec!["g<1>".into()], ..UserInfo::named("alice") })),
        source_ips: vec!["10.0.0.1".parse().unwrap()],
        user_agent: "kubectl".to_owned(),
        received: "2026-01-02T03:04:05.5Z".parse().unwrap(),
    };
    let at = "2026-01-02T03:04:06Z".parse().unwrap();
    Event { head: Arc::new(head), stage: Stage::ResponseComplete, at, facts }
}

fn json(event: &Event) -> String {
    let line = String::from_utf8(event.json()).expect("a text");
    line.strip_suffix('\n').expect("a line").to_owned()
}

#[test]
fn lines_have_the_order_and_the_escapes_of_go() {
    let facts = Facts {
        impersonated: Some(Impersonated {
            user: Arc::new(UserInfo::named("bob")),
            constraint: "impersonate:user-info".to_owned(),
        }),
        object: Some(ObjectReference {
            resource: "pods".into(),
            namespace: "shop".into(),
            api_version: "v1".into(),
            ..ObjectReference::default()
        }),
        status: Some(ResponseStatus::of(Status::not_found("", "pods", "x"), 404)),
        request: Some(SentObject::Patch(Bytes::from_static(b"{\n  \"b\": \"<\\\" \\\\\",\n \"a\" : [1, 2]}"))),
        response: Some(Bytes::from_static("{\"text\":\"a \u{2028} & b\"}".as_bytes())),
        annotations: [("b".to_owned(), String::new()), ("a".to_owned(), "1".to_owned())].into(),
    };
    assert_eq!(
        json(&event(Level::RequestResponse, facts)),
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"a1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/pods?a=b\u0026watch=true","verb":"watch","user":{"username":"alice","groups":["g\u003c1\u003e"]},"impersonatedUser":{"username":"bob"},"authenticationMetadata":{"impersonationConstraint":"impersonate:user-info"},"sourceIPs":["10.0.0.1"],"userAgent":"kubectl","objectRef":{"resource":"pods","namespace":"shop","apiVersion":"v1"},"responseStatus":{"metadata":{},"status":"Failure","message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404},"requestObject":{"b":"\u003c\" \\","a":[1,2]},"responseObject":{"text":"a \u2028 \u0026 b"},"requestReceivedTimestamp":"2026-01-02T03:04:05.500000Z","stageTimestamp":"2026-01-02T03:04:06.000000Z","annotations":{"a":"1","b":""}}"#
    );
    assert_eq!(
        json(&event(Level::Metadata, Facts { status: Some(ResponseStatus::code(200)), ..Facts::default() })),
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/pods?a=b\u0026watch=true","verb":"watch","user":{"username":"alice","groups":["g\u003c1\u003e"]},"sourceIPs":["10.0.0.1"],"userAgent":"kubectl","responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.500000Z","stageTimestamp":"2026-01-02T03:04:06.000000Z"}"#
    );
}

#[test]
fn managed_fields_are_left_out_of_objects_and_lists() {
    let managed = r#"{"metadata":{"managedFields":[1],"name":"a"}}"#;
    for (json, strip, expect) in [
        (managed.to_owned(), false, managed.to_owned()),
        (managed.to_owned(), true, r#"{"metadata":{"name":"a"}}"#.to_owned()),
        (format!(r#"{{"items":[{managed}]}}"#), true, r#"{"items":[{"metadata":{"name":"a"}}]}"#.to_owned()),
        (
            format!(r#"{{"rows":[{{"object":{managed}}}, {{}}]}}"#),
            true,
            r#"{"rows":[{"object":{"metadata":{"name":"a"}}},{}]}"#.to_owned(),
        ),
        ("[]".to_owned(), true, "[]".to_owned()),
    ] {
        assert_eq!(raw(json.as_bytes(), strip).expect("JSON").get(), expect, "{json}");
    }
    assert!(raw(b"{a: b}", false).is_none() && raw(b"{a: b}", true).is_none());
}

#[test]
fn the_text_of_old_releases() {
    let facts = Facts { status: Some(ResponseStatus::code(200)), ..Facts::default() };
    let line = String::from_utf8(event(Level::Metadata, facts).legacy()).expect("a text");
    assert_eq!(
        line,
        "2026-01-02T03:04:05.5Z AUDIT: id=\"a1\" stage=\"ResponseComplete\" ip=\"10.0.0.1\" method=\"watch\" user=\"alice\" \
         groups=\"\\\"g<1>\\\"\" as=\"<self>\" asgroups=\"<lookup>\" user-agent=\"kubectl\" namespace=\"<none>\" \
         uri=\"/api/v1/namespaces/shop/pods?a=b&watch=true\" response=\"200\"\n"
    );
}

/// The bound of the queue is a bound of memory only if it counts what clients choose.
#[test]
fn every_text_that_a_client_chooses_is_counted() {
    let long = || "x".repeat(100_000);
    let user = || Arc::new(UserInfo { groups: vec![long()], ..UserInfo::named(long()) });
    let bare = event(Level::Metadata, Facts::default());
    let head = |change: &dyn Fn(&mut Head)| {
        let mut event = event(Level::Metadata, Facts::default());
        change(Arc::get_mut(&mut event.head).expect("nobody else has it"));
        event
    };
    let facts = |facts: Facts| event(Level::Metadata, facts);
    let object = |object: ObjectReference| facts(Facts { object: Some(object), ..Facts::default() });
    let reference = ObjectReference::default;
    for (what, event, texts) in [
        ("nothing", bare.clone(), 0),
        ("the path", head(&|head| head.uri = long()), 1),
        ("the audit id", head(&|head| head.audit_id = long().into()), 1),
        ("the user", head(&|head| head.user = Some(user())), 2),
        ("the name", object(ObjectReference { name: long(), ..reference() }), 1),
        ("the namespace", object(ObjectReference { namespace: long(), ..reference() }), 1),
        ("the uid", object(ObjectReference { uid: long(), ..reference() }), 1),
        ("the version", object(ObjectReference { resource_version: long(), ..reference() }), 1),
        (
            "the status",
            facts(Facts {
                status: Some(ResponseStatus::of(Status::not_found("", "pods", &long()), 404)),
                ..Facts::default()
            }),
            2,
        ),
        ("an annotation", facts(Facts { annotations: [("a".to_owned(), long())].into(), ..Facts::default() }), 1),
        (
            "another user",
            facts(Facts {
                impersonated: Some(Impersonated { user: user(), constraint: String::new() }),
                ..Facts::default()
            }),
            2,
        ),
        ("an answer", facts(Facts { response: Some(long().into()), ..Facts::default() }), 1),
    ] {
        let more = event.bytes() - bare.bytes().min(event.bytes());
        assert!((texts * 99_000..texts * 100_000 + 1000).contains(&more), "{what}: {more}");
    }
}
