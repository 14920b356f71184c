//! The audit log of the program: what is refused at the start, and what a log has after the stop.

use std::fs;

use serde_json::Value;

use crate::konverge::{Running, fails};

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";

#[test]
fn a_policy_that_is_wrong_stops_the_start() {
    for (policy, expect) in [
        (None, "loading audit policy file: failed to read file path \"policy.yaml\""),
        (Some("rules: []"), "loading audit policy file: failed decoding: Object 'Kind' is missing"),
        (
            Some("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: All}]}"),
            "loading audit policy file: rules[0].level: Unsupported value: \"All\": supported values: \"None\", \"Metadata\", \
             \"Request\", \"RequestResponse\": from file policy.yaml",
        ),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        if let Some(policy) = policy {
            fs::write(directory.path().join("policy.yaml"), policy).expect("written");
        }
        for command in ["apiserver", "dev"] {
            let arguments =
                [command, "--memory", "--port", "0", "--audit-policy-file", "policy.yaml", "--audit-log-path", "a.log"];
            let why = fails(directory.path(), &arguments);
            assert!(why.contains(expect), "{command} {policy:?}: {why}");
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("policy.yaml"), POLICY).expect("written");
    let arguments = [
        "apiserver",
        "--memory",
        "--port",
        "0",
        "--audit-policy-file",
        "policy.yaml",
        "--audit-log-path",
        "policy.yaml/a",
    ];
    let why = fails(directory.path(), &arguments);
    assert!(why.contains("the audit log cannot be opened: policy.yaml/a"), "{why}");
}

/// In every mode the log is whole after the stop.
#[test]
fn every_request_is_in_the_log() {
    for mode in ["blocking", "blocking-strict", "batch"] {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("policy.yaml"), POLICY).expect("written");
        let arguments = [
            ["apiserver", "--memory", "--port", "0"].as_slice(),
            &["--audit-policy-file", "policy.yaml", "--audit-log-path", "logs/audit.log", "--audit-log-mode", mode],
        ];
        let server = Running::start(directory.path(), &arguments.concat());
        let (code, _) = server.curl("GET", "/api/v1/pods?limit=1", &[("audit-id", "list")], "");
        assert_eq!(code, 200, "{mode}");
        let wrong = [("audit-id", "wrong"), ("authorization", "Bearer wrong")];
        assert_eq!(server.curl("GET", "/api/v1/pods", &wrong, "").0, 401, "{mode}");
        let watch = server.open("/api/v1/namespaces?watch=true");
        assert_eq!(server.stop().0, Some(0), "{mode}");
        drop(watch);
        let text = fs::read_to_string(directory.path().join("logs/audit.log")).expect("a log");
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let of = |id: &str| -> Vec<String> {
            let events = events.iter().filter(|event| event["auditID"] == id);
            events.map(|event| format!("{} {}", event["stage"], event["responseStatus"]["code"])).collect()
        };
        assert_eq!(of("list"), [r#""RequestReceived" null"#, r#""ResponseComplete" 200"#], "{mode}");
        assert_eq!(of("wrong"), [r#""ResponseStarted" 401"#], "{mode}");
        let listed = events.iter().find(|event| event["auditID"] == "list").expect("an event");
        assert_eq!(listed["sourceIPs"], serde_json::json!(["127.0.0.1"]), "{mode}");
        assert_eq!(listed["user"]["username"], "konverge-admin", "{mode}");
        let stages =
            events.iter().filter(|event| event["verb"] == "watch" && event["user"]["username"] == "konverge-admin");
        assert_eq!(stages.count(), 3, "{mode}: the watch has ended, too");
    }
}
