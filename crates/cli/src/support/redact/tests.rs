use super::*;
use serde_json::json;

#[test]
fn texts() {
    let check = |given: &str, expect: &str| assert_eq!(Redactor::new([]).text(given), expect);
    check("nothing to hide", "nothing to hide");
    check("password=hunter22 user=bob", "password=<removed> user=bob");
    check(r#"{"password":"hunter22","user":"bob"}"#, r#"{"password":<removed>,"user":"bob"}"#);
    check(r#"said {\"apiKey\":\"hunter22\",\"a\":1}"#, r#"said {\"apiKey\":<removed>\",\"a\":1}"#);
    check("DB_PASSWORD: 'a b'", "DB_PASSWORD: <removed>");
    check("run --token abcdef --replicas 3", "run --token <removed> --replicas 3");
    check("Authorization: Bearer abc.def", "Authorization: <removed>");
    check("sent Bearer abcdefgh to them", "sent Bearer <removed> to them");
    check("Cookie: a=1; b=2", "Cookie: <removed>");
    check("postgres://bob:hunter22@db/x", "postgres://<removed>@db/x");
    check("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.abc", "token <removed>");
    check("id AKIAIOSFODNN7EXAMPLE", "id <removed>");
    check("a\n-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\nb", "a\n<removed>\nb");
    check("a -----BEGIN PRIVATE KEY-----\nMHcC", "a <removed>");
    check("token: |\n  abc\n  def\nuser: bob\n", "token: |\n  <removed>\nuser: bob\n");
    // What is public, or says nothing, stays.
    for same in [
        "automountServiceAccountToken: true",
        "reconciled key=default/memcached-sample",
        "-----BEGIN CERTIFICATE-----\nMHcC\n-----END CERTIFICATE-----",
        "https://example.com:8443/path",
        "notes: |\n  abc\n",
    ] {
        check(same, same);
    }
    let key = STANDARD.encode("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n");
    check(&format!("key {key}"), "key <removed>");
    let public = STANDARD.encode("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n");
    check(&public, &public);
}

#[test]
fn objects() {
    let check = |mut given: Value, expect: Value| {
        Redactor::new([]).object(&mut given);
        assert_eq!(given, expect);
    };
    check(
        json!({"kind": "Secret", "data": {"a": "b"}, "stringData": {"c": "d"}, "type": "Opaque"}),
        json!({"kind": "Secret", "data": {"a": REMOVED}, "stringData": {"c": REMOVED}, "type": "Opaque"}),
    );
    check(
        json!({"kind": "Pod", "spec": {"containers": [{"env": [
            {"name": "DB_PASSWORD", "value": "x"}, {"name": "LOG", "value": "info"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "args": ["--api-key", "x", "--replicas", "3"]}],
            "imagePullSecrets": [{"name": "pull"}], "volumes": [{"name": "v", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}}],
            "tolerations": [{"key": "node", "effect": "NoSchedule"}]}}),
        json!({"kind": "Pod", "spec": {"containers": [{"env": [
            {"name": "DB_PASSWORD", "value": REMOVED}, {"name": "LOG", "value": "info"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "args": ["--api-key", REMOVED, "--replicas", "3"]}],
            "imagePullSecrets": [{"name": "pull"}], "volumes": [{"name": "v", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}}],
            "tolerations": [{"key": "node", "effect": "NoSchedule"}]}}),
    );
    check(
        json!({"kind": "CustomResourceDefinition", "spec": {"schema": {"properties": {"password": {"type": "string", "default": "x"}}}}}),
        json!({"kind": "CustomResourceDefinition", "spec": {"schema": {"properties": {"password": {"type": "string", "default": REMOVED}}}}}),
    );
    check(
        json!({"kind": "Shop", "spec": {"credentials": {"user": "bob", "pin": 1234, "enabled": true}, "encryption": {"key": "x"}}}),
        json!({"kind": "Shop", "spec": {"credentials": {"user": REMOVED, "pin": REMOVED, "enabled": true}, "encryption": {"key": REMOVED}}}),
    );
}

#[test]
fn known_values_are_found_in_every_form() {
    let secret = "p\"ss w/rd+1";
    let mut redactor = Redactor::new([secret.to_owned(), "short".into(), "123456".into()]);
    for form in [
        secret.to_owned(),
        STANDARD.encode(secret),
        STANDARD.encode(format!("{secret}\n")),
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
        serde_json::to_string(secret).unwrap(),
    ] {
        let shown = redactor.text(&format!("before {form} after"));
        assert!(!shown.contains(&form) && shown.contains("before") && shown.contains("after"), "{shown}");
    }
    assert!(redactor.take_count() >= 4);
    // Words that stand everywhere stay.
    assert_eq!(redactor.text("short 123456"), "short 123456");
    let found = values(&json!({"data": {"a": STANDARD.encode("hunter22"), "namespace": STANDARD.encode("default")}}));
    assert_eq!(found, ["hunter22"]);
}
