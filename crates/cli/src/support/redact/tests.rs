//! Cases: texts, objects, known values, and secrets that are planted in every kind of place.

use super::*;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
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
    let bytes = [0xff, 0xfe, 1, 2, 3, 4, 5];
    let mut redactor = Redactor::new(values(&json!({"data": {"a": STANDARD.encode(bytes)}})));
    assert_eq!(redactor.text(&format!("it is {}", STANDARD.encode(bytes))), "it is <removed>");
}

#[test]
fn the_manifest_tells_what_was_not_searched_for() {
    use crate::support::archive::{Archive, tests::read};
    let check = |most_bytes: usize, is_told: bool| {
        let known = Known::within(["hunter22".to_owned(), "x".repeat(2_000)], most_bytes);
        let archive = Archive::new(Redactor { known, ..Redactor::new([]) });
        let (path, manifest) = read(&archive.finish("head").unwrap()).swap_remove(0);
        assert!(path.ends_with("MANIFEST.txt"), "{path}");
        assert_eq!(manifest.contains("secrets: not everything could be searched for"), is_told, "{manifest}");
    };
    check(100, true);
    check(1 << 20, false);
}

#[test]
fn a_pattern_does_not_hide_a_known_value() {
    let check = |known: &str, given: &str, expect: &str| {
        let mut redactor = Redactor::new([known.to_owned()]);
        assert_eq!((redactor.text(given).as_str(), redactor.take_count()), (expect, 1));
    };
    check("correct horse battery", "password=correct horse battery", "password=<removed>");
    check("correct horse battery", "it is correct horse battery!", "it is <removed>!");
    // What stands around a known value may be a part of the secret.
    check("hunter22", "password=hunter22-and-more", "password=<removed>");
    check("hunter22", "amqp://bob:hunter22more@mq", "amqp://<removed>@mq");
    check("hunter22", "sent Bearer hunter22more", "sent Bearer <removed>");
}

/// Secrets of many alphabets in every kind of place, and the bytes of the archive searched for them.
#[test]
fn no_secret_survives_in_any_place() {
    use crate::support::archive::tests::read;
    use crate::support::archive::{Archive, Content};
    const ALPHABETS: [&str; 4] = [
        "abcdefghijklmnopqrstuvwxyz",
        "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz0123456789",
        "0123456789abcdef",
        "ABCxyz019!#%*+-._~^|()",
    ];
    /// A secret that depends on the seed alone.
    fn secret(seed: u64) -> String {
        let alphabet: Vec<char> = ALPHABETS[seed as usize % ALPHABETS.len()].chars().collect();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            alphabet[(state % alphabet.len() as u64) as usize]
        };
        // A letter first: what begins with a sign is a flag.
        std::iter::once('q').chain(std::iter::repeat_with(&mut next).take(11 + seed as usize % 20)).collect()
    }
    /// The places in which a secret is found although nobody knows it.
    fn places(secret: &str) -> Vec<(&'static str, Content)> {
        let encoded = STANDARD.encode(secret);
        let object = |object: Value| Content::Objects(vec![object]);
        let pod = |container: Value| object(json!({"kind": "Pod", "spec": {"containers": [container]}}));
        let text = |text: String| Content::Text(text);
        vec![
            ("data of a Secret", object(json!({"kind": "Secret", "data": {"a": encoded}}))),
            ("stringData", object(json!({"kind": "Secret", "stringData": {"a": secret}}))),
            ("binaryData", object(json!({"kind": "ConfigMap", "binaryData": {"a": encoded}}))),
            (
                "what was applied",
                object(
                    json!({"kind": "Secret", "metadata": {"annotations": {COPIES[0]: json!({"stringData": {"a": secret}}).to_string()}}}),
                ),
            ),
            (
                "managedFields",
                object(
                    json!({"metadata": {"managedFields": [{"manager": "a", "fieldsV1": {"f:data": {format!("v:{secret}"): {}}}}]}}),
                ),
            ),
            ("a variable", pod(json!({"env": [{"name": "SMTP_PASSWORD", "value": secret}]}))),
            (
                "a URL in a variable",
                pod(json!({"env": [{"name": "DATABASE", "value": format!("mysql://root:{secret}@db/x")}]})),
            ),
            ("a flag", pod(json!({"args": [format!("--client-secret={secret}")]}))),
            ("the word after a flag", pod(json!({"command": ["run", "--token", secret, "--verbose"]}))),
            ("an annotation", object(json!({"metadata": {"annotations": {"example.com/api-key": secret}}}))),
            ("a field", object(json!({"spec": {"db": {"password": secret}}}))),
            ("a field below", object(json!({"spec": {"credentials": {"aws": {"value": secret}}}}))),
            ("a list below", object(json!({"spec": {"tokens": [secret, {"value": secret}]}}))),
            ("a field `key`", object(json!({"spec": {"license": {"key": secret}}}))),
            ("a header", object(json!({"spec": {"headers": [{"name": "X-Auth-Token", "value": secret}]}}))),
            (
                "YAML in a ConfigMap",
                object(json!({"kind": "ConfigMap", "data": {"a.yaml": format!("db:\n  password: {secret}\n")}})),
            ),
            (
                "a block of YAML",
                object(
                    json!({"kind": "ConfigMap", "data": {"a.yaml": format!("token: |\n  {secret}\n  {secret}\nb: 1\n")}}),
                ),
            ),
            (
                "JSON in a ConfigMap",
                object(json!({"kind": "ConfigMap", "data": {"a.json": json!({"apiKey": secret}).to_string()}})),
            ),
            (
                "a default of a schema",
                object(
                    json!({"kind": "CustomResourceDefinition", "spec": {"properties": {"password": {"default": secret}}}}),
                ),
            ),
            ("an event", object(json!({"kind": "Event", "message": format!("login failed: password={secret}")}))),
            ("Authorization in a log", text(format!("GET / Authorization: Bearer {secret}\n"))),
            ("headers in a log", text(format!("{{\"Authorization\": [\"Bearer {secret}\"]}}\n"))),
            ("a variable in a log", text(format!("export GITHUB_TOKEN={secret}\n"))),
            ("JSON in a log", text(json!({"level": "info", "password": secret}).to_string())),
            ("JSON in JSON in a log", text(json!({"body": json!({"password": secret}).to_string()}).to_string())),
            ("a URL in a log", text(format!("connecting to amqp://bob:{secret}@mq:5672\n"))),
            (
                "a key in a log",
                text(format!("-----BEGIN RSA PRIVATE KEY-----\n{secret}\n-----END RSA PRIVATE KEY-----\n")),
            ),
            (
                "a key in base64",
                text(format!("caBundle: {}\n", STANDARD.encode(format!("-----BEGIN PRIVATE KEY-----\n{secret}\n")))),
            ),
        ]
    }
    for seed in 1..=24 {
        let (unknown, known) = (secret(seed), secret(seed + 1_000));
        let mut archive = Archive::new(Redactor::new([known.clone()]));
        let places = places(&unknown);
        for (at, (place, content)) in places.into_iter().enumerate() {
            archive.add(&format!("{at}.txt"), place, content, "");
        }
        // One that is known is found where nothing points at it.
        archive.add(
            "known.log",
            "a log",
            Content::Text(format!("it says {known} and {}\n", STANDARD.encode(&known))),
            "",
        );
        archive.add(
            "known.json",
            "an object",
            Content::Json(json!({"status": {"message": format!("I saw {known}")}, known.clone(): 1})),
            "",
        );
        archive.missing("pods", &format!("the server said {known}"));
        for (path, text) in read(&archive.finish("head").unwrap()) {
            for secret in [&unknown, &known] {
                for form in [secret.clone(), STANDARD.encode(secret)] {
                    assert!(!text.contains(&form), "seed {seed}: {secret} is in {path}:\n{text}");
                }
            }
        }
    }
    for sign in [" ", ",", ";", "&", "}", "]", "\"", "'", "\\", "<", "%", "\" '"] {
        let known = format!("qcorrect{sign}horse{sign}qbattery");
        let mut archive = Archive::new(Redactor::new([known.clone()]));
        for (at, (place, content)) in places(&known).into_iter().enumerate() {
            archive.add(&format!("{at}.txt"), place, content, "");
        }
        for (path, text) in read(&archive.finish("head").unwrap()) {
            for part in ["qcorrect", "qbattery", &STANDARD.encode(&known)] {
                assert!(!text.contains(part), "{part} of {known} is in {path}:\n{text}");
            }
        }
    }
}
