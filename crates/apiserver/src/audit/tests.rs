//! What is known of a request before it is processed.

use super::*;

#[test]
fn where_a_request_comes_from() {
    for (forwarded, real, connection, expect) in [
        ("", "", None, ""),
        ("", "", Some("10.0.0.9"), "10.0.0.9"),
        ("1.1.1.1, 2.2.2.2,x", "", Some("10.0.0.9"), "1.1.1.1 2.2.2.2 10.0.0.9"),
        ("1.1.1.1", "1.1.1.1", Some("10.0.0.9"), "1.1.1.1 10.0.0.9"),
        ("1.1.1.1", "3.3.3.3", Some("3.3.3.3"), "1.1.1.1 3.3.3.3"),
        ("", "3.3.3.3", Some("::ffff:3.3.3.3"), "3.3.3.3"),
        ("", "", Some("::1"), "::1"),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", forwarded.parse().unwrap());
        headers.insert("x-real-ip", real.parse().unwrap());
        let ips = source_ips(&headers, connection.map(|ip| ip.parse().unwrap()));
        let shown: Vec<String> = ips.iter().map(ToString::to_string).collect();
        assert_eq!(shown.join(" "), expect, "{forwarded} {real} {connection:?}");
    }
}

/// The stages of a request whose client is gone before it is answered.
#[tokio::test]
async fn a_request_that_ends_early_has_its_events() {
    for (runs_long, expect) in [(false, &["ResponseComplete"][..]), (true, &["ResponseStarted", "ResponseComplete"])] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let policy = AuditPolicy::parse("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}");
        let options = AuditOptions {
            policy: policy.expect("a policy"),
            log: AuditLogOptions::new(AuditOutput::File(path.clone())),
        };
        let env: Arc<dyn Environment> = Arc::new(crate::env::System);
        let auditor = Arc::new(Auditor::open(&options, &Arc::default(), &env).expect("a log"));
        let parts = http::Request::get("/api/v1/pods?watch=true").body(()).expect("a request").into_parts().0;
        let user = Arc::new(UserInfo::named("alice"));
        let asked = Attributes { user: &user, verb: "watch", path: "/api/v1/pods", resource: None };
        let audit = auditor.begin(&parts, &asked, Some(&user), &"a".into()).expect("it is audited");
        drop(Ending::new(Some(&audit), runs_long));
        auditor.flush().await;
        let lines = std::fs::read_to_string(&path).expect("a text");
        let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let stages: Vec<&str> = events.iter().filter_map(|event| event["stage"].as_str()).collect();
        assert_eq!(stages, expect);
        assert!(events.iter().all(|event| event["responseStatus"]["message"] == "Connection closed early"), "{lines}");
    }
}

/// What a client sends is recorded before it is validated.
#[test]
fn long_names_are_cut() {
    for (length, expect) in [(3, 3), (1024, 1024), (3 << 20, 1024 + CUT.len())] {
        assert_eq!(cut("x".repeat(length).as_bytes()).len(), expect);
    }
}

#[test]
fn long_user_agents_are_cut() {
    for (length, expect) in [(0, 0), (1024, 1024), (1025, 1024 + CUT.len())] {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, "x".repeat(length).parse().unwrap());
        assert_eq!(user_agent(&headers).len(), expect);
    }
}
