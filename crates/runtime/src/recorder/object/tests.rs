//! Tests of `object`, as tables.

use std::sync::Arc;

use super::super::journal::{Event, Subject};
use super::*;

fn recorded(namespace: Option<&str>, name: &str, event: Event, count: u32) -> RecordedEvent {
    let key = ObjectKey::new(namespace, name);
    let subject = Subject { api_version: "example.com/v1".into(), kind: "WebApp".into(), key, uid: "u".into() };
    let first: Timestamp = "2026-01-01T00:00:00.123456789Z".parse().unwrap();
    let last = first + jiff::SignedDuration::from_secs(5);
    RecordedEvent { id: 10, subject: Arc::new(subject), event: Arc::new(event), count, first, last }
}

#[test]
fn an_event_is_written_as_the_api_takes_it() {
    let object = event_object(&recorded(Some("n"), "web", Event::info("Up", "now"), 1), "op", "op-0");
    let expect = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "web.18867251f555cd15.a", "namespace": "n"},
        "eventTime": "2026-01-01T00:00:00.123456Z", "type": "Normal", "reason": "Up", "action": "Reconcile",
        "note": "now", "reportingController": "op", "reportingInstance": "op-0",
        "regarding": {"apiVersion": "example.com/v1", "kind": "WebApp", "namespace": "n", "name": "web", "uid": "u"},
    });
    assert_eq!(object, expect);

    let critical = Event::new(Severity::Critical, "", "ä".repeat(1000));
    let object = event_object(&recorded(None, "web", critical, 3), "op", "op-0");
    assert_eq!(object["metadata"]["namespace"], "default");
    assert_eq!(object["metadata"]["annotations"], json!({"konverge.dev/severity": "Critical"}));
    assert_eq!(object["regarding"].get("namespace"), None);
    assert_eq!((&object["type"], &object["reason"]), (&json!("Warning"), &json!("Unknown")));
    assert_eq!(object["note"].as_str().unwrap().len(), 1024);
    assert_eq!(object["series"], json!({"count": 3, "lastObservedTime": "2026-01-01T00:00:05.123456Z"}));
}

#[test]
fn names_fit() {
    let cases = [
        ("web", "web"),
        ("web.example.com", "web.example.com"),
        ("system:node:A", "systemxnodexx"),
        (&"a".repeat(253), &"a".repeat(219)),
        (&format!("{}-b", "a".repeat(218)), &"a".repeat(218)),
    ];
    for (name, expect) in cases {
        let key = event_key(&recorded(None, name, Event::default(), 1));
        assert_eq!(key.name(), format!("{expect}.18867251f555cd15.a"));
        assert!(key.name().len() <= 253);
    }
    let reporters = [
        ("webapp-operator", "webapp-operator"),
        ("example.com/webapp", "example.com/webapp"),
        ("Example.com/a/b", "example.com/a-b"),
        ("web app!", "web-app"),
        ("", "operator"),
        ("/x", "x"),
        ("ä", "operator"),
    ];
    for (name, expect) in reporters {
        assert_eq!(reporter(name), expect, "{name}");
    }
}
