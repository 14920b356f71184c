//! `konverge doctor` and `konverge support`, in a project and on a cluster of `konverge dev`. Cargo is a script, and so is the operator.

use std::fs;
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::deploying::{Cluster, Shop, has};
use crate::konverge::{PATIENCE, ends_on};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop-system/deployments/shop";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/shop-manager";

/// The report of the doctor, and its exit code.
fn report(home: &Path, kubeconfig: Option<&Path>, more: &[&str]) -> (Option<i32>, Value) {
    let (code, out, error) = ends_on(home, kubeconfig, &[&["doctor", "-o", "json"], more].concat());
    let report = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}\n{error}"));
    (code, report)
}

/// What a check says: the outcome, and everything else in one text.
fn finding(report: &Value, name: &str) -> Option<(String, String)> {
    let (area, check) = name.split_once('/').expect("AREA/CHECK");
    let mut findings = report["findings"].as_array().expect("findings").iter();
    let found = findings.find(|one| one["area"] == area && one["check"] == check)?;
    Some((found["outcome"].as_str()?.to_owned(), format!("{} {} {}", found["what"], found["details"], found["do"])))
}

#[track_caller]
fn check(report: &Value, name: &str, outcome: &str, part: &str) {
    let found = finding(report, name).unwrap_or_else(|| panic!("{name} is not in {report:#}"));
    assert!(found.0 == outcome && found.1.contains(part), "{name}: {found:?} instead of {outcome} {part:?}");
}

/// Changes an object in the cluster.
#[track_caller]
fn patch(cluster: &Cluster, path: &str, patch: &Value) {
    let headers = [("content-type", "application/merge-patch+json")];
    let (code, answer) = cluster.server.curl("PATCH", path, &headers, &patch.to_string());
    assert_eq!(code, 200, "{answer}");
}

fn kubeconfig(home: &Path, user: &Value, server: &str) -> PathBuf {
    let path = home.join("other-kubeconfig");
    let config = json!({
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "there", "context": {"cluster": "c", "user": "u"}}], "current-context": "there",
    });
    fs::write(&path, config.to_string()).expect("a file");
    path
}

/// A client certificate that ended in 2020, as kubeconfigs have it.
fn expired() -> Value {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(["a".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    json!({"client-certificate-data": STANDARD.encode(certificate), "client-key-data": STANDARD.encode(key.serialize_pem())})
}

#[test]
fn what_is_wrong_with_a_kubeconfig() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path();
    let only = ["--only", "kubeconfig,cluster,operator"];
    let (code, found) = report(home, None, &only);
    assert_eq!(code, Some(1));
    check(&found, "kubeconfig/files", "problem", "/nonexistent/kubeconfig is not there");
    check(&found, "cluster/version", "not checked", "names no cluster");
    assert!(finding(&found, "machine/rust").is_none(), "{found:#}");

    // Nobody listens on this port: it was given back.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let dead = kubeconfig(home, &json!({"token": "abc"}), &format!("https://{free}"));
    let (code, found) = report(home, Some(&dead), &only);
    assert_eq!(code, Some(1));
    check(&found, "kubeconfig/context", "ok", "there: https://127.0.0.1:");
    check(&found, "kubeconfig/server", "problem", "nobody listens there");
    check(&found, "cluster/version", "not checked", "see kubeconfig");
    let (code, found) = report(home, Some(&dead), &["--only", "kubeconfig", "--context", "elsewhere"]);
    assert_eq!(code, Some(1));
    check(&found, "kubeconfig/context", "problem", "there is no context \\\"elsewhere\\\"");
    check(&found, "kubeconfig/context", "problem", "there is there");

    let old = kubeconfig(home, &expired(), &format!("https://{free}"));
    check(&report(home, Some(&old), &only).1, "kubeconfig/certificate", "problem", "has expired at 2020-01-01");
    let plugin = kubeconfig(
        home,
        &json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}),
        "https://a",
    );
    check(&report(home, Some(&plugin), &["--only", "kubeconfig"]).1, "kubeconfig/plugin", "problem", "no-such-plugin");
    fs::write(home.join("bad"), "clusters: {").expect("a file");
    check(
        &report(home, Some(&home.join("bad")), &["--only", "kubeconfig"]).1,
        "kubeconfig/files",
        "problem",
        "cannot be read",
    );

    let (code, out, _) = ends_on(home, None, &["doctor", "--list", "--only", "machine"]);
    assert_eq!(code, Some(0));
    assert!(out.lines().all(|line| line.starts_with("machine ")) && out.contains("open-files"), "{out}");
    let (code, _, error) = ends_on(home, None, &["doctor", "--only", "moon"]);
    assert!(code == Some(2) && error.contains("possible values: machine"), "{error}");
}

/// Answers every request in the same way, until the test is over.
fn server(answer: fn(&str) -> (u16, &'static str)) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = std::io::BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            // The head ends with an empty line, and the client waits for no other request on this connection.
            while stream.read_line(&mut head).is_ok_and(|read| read > 2) {
                let last = head.lines().next_back().unwrap_or_default().to_lowercase();
                length = last.strip_prefix("content-length: ").map_or(length, |number| number.parse().unwrap_or(0));
            }
            let mut body = vec![0; length];
            let _ = stream.read_exact(&mut body);
            let (code, text) = answer(head.split(' ').nth(1).unwrap_or_default());
            let head = format!(
                "HTTP/1.1 {code} X\r\nlocation: /login\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                text.len()
            );
            let _ = stream.get_mut().write_all(format!("{head}{text}").as_bytes());
        }
    });
    url
}

/// What cannot be used is a problem, and nothing is waited for without end.
#[test]
fn kubeconfigs_that_cannot_be_used() {
    const REVIEW: &str = r#"{"kind": "SelfSubjectReview", "status": {"userInfo": {"username": "ann"}}}"#;
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path();
    let only = ["--only", "kubeconfig,cluster"];
    let user = json!({"token": "abc"});
    for (url, expect) in [
        ("https://not a host".to_owned(), "the kubeconfig cannot be used"),
        (server(|_| (302, "")), "answers /version with 302, and not as an API server does"),
        (server(|_| (200, "<html>log in</html>")), "answers /version with 200, and not as an API server does"),
    ] {
        let (code, found) = report(home, Some(&kubeconfig(home, &user, &url)), &only);
        check(&found, "kubeconfig/server", "problem", expect);
        assert_eq!(code, Some(1), "{url}");
    }
    // Its version is that of an API server, and its lists are not.
    let half = server(|path| match path {
        "/version" => (200, r#"{"gitVersion": "v1.36.0"}"#),
        path if path.contains("selfsubjectreviews") => (201, REVIEW),
        _ => (200, "<html>log in</html>"),
    });
    let (code, found) = report(home, Some(&kubeconfig(home, &user, &half)), &only);
    let all = found["findings"].as_array().expect("a list");
    let told = |finding: &&Value| {
        finding["outcome"] == "problem" && finding.to_string().contains("answers that are none of an API server")
    };
    assert!(code == Some(1) && all.iter().any(|finding| told(&finding)), "{found:#}");
    check(&found, "cluster/namespaces", "not checked", "the answer to /api/v1/namespaces is not understood");

    let plugin = home.join("hangs");
    fs::write(&plugin, "#!/bin/sh\nexec sleep 60\n").expect("a file");
    fs::set_permissions(&plugin, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    let user = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "interactiveMode": "Never"}});
    let (code, found) = report(home, Some(&kubeconfig(home, &user, "https://127.0.0.1:1")), &only);
    check(&found, "kubeconfig/server", "problem", "no credentials came within");
    assert_eq!(code, Some(1));

    let pipe = home.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    let (code, found) = report(home, Some(&pipe), &only);
    check(&found, "kubeconfig/files", "problem", "it is a pipe or a device");
    assert_eq!(code, Some(1));
}

#[test]
fn what_is_wrong_with_a_deployed_operator() {
    let (shop, cluster) = (Shop::new(), Cluster::start());
    let look = |more: &[&str]| report(&shop.home, Some(&cluster.kubeconfig), more);
    // Nothing is built and nothing is deployed, which is nobody's fault.
    let (_, found) = look(&[]);
    check(&found, "project/found", "ok", "the operator shop");
    check(&found, "project/build", "not checked", "--build");
    check(&found, "project/scaffold", "not checked", "no PROJECT");
    check(&found, "kubeconfig/server", "ok", "answers");
    check(&found, "kubeconfig/identity", "ok", "system:masters");
    check(&found, "cluster/version", "ok", "konverge");
    check(&found, "machine/clock", "ok", "within seconds");
    check(&found, "operator/deployed", "not checked", "no Deployment shop");
    shop.write("broken", "");
    let (code, found) = look(&["--only", "project", "--build"]);
    assert_eq!(code, Some(1));
    check(&found, "project/build", "problem", "cargo build");
    fs::remove_file(shop.home.join("broken")).expect("it is there");

    let (_, found) = look(&["--only", "project,cluster", "--build"]);
    check(&found, "project/build", "ok", "it compiles");
    check(&found, "cluster/crds", "warning", "shops.example.com is not installed");
    check(&found, "cluster/deploy-rights", "ok", "you may deploy");
    cluster.run(&shop, 0, &["deploy"]);
    cluster.run(&shop, 0, &["generate", "manifests"]);
    shop.write("config/samples/shop.yaml", "apiVersion: example.com/v1\nkind: Shop\nmetadata: {name: main}\n");
    let (_, found) = look(&["--only", "project,cluster,operator"]);
    for name in [
        "project/build",
        "project/generated",
        "project/samples",
        "cluster/crds",
        "cluster/stored-versions",
        "cluster/namespaces",
        "operator/deployed",
        "operator/pods",
        "operator/rights",
        "operator/deletions",
    ] {
        check(&found, name, "ok", "");
    }
    check(&found, "operator/probes", "not checked", "simulated");

    // The operator changes, the role loses a rule, a webhook calls nobody, a sample is of no kind, and the Pods crash.
    shop.write("config/rbac/role.yaml", &format!("{}# edited\n", shop.read("config/rbac/role.yaml")));
    shop.write("config/samples/bad.yaml", "apiVersion: example.com/v1\nkind: Shops\nmetadata: {name: main}\n");
    patch(&cluster, ROLE, &json!({"rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]}));
    let webhooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "gone"}, "webhooks": [{
        "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {"service": {"namespace": "shop-system", "name": "gone"}},
        "rules": [{"apiGroups": ["nobody.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(cluster.create(path, &webhooks.to_string()), 201);
    let crash =
        json!({"spec": {"template": {"metadata": {"annotations": {"simulate.konverge.dev/fail": "crash-loop"}}}}});
    patch(&cluster, DEPLOYMENT, &crash);
    let deadline = Instant::now() + PATIENCE;
    let found = loop {
        let (code, found) = look(&["--only", "project,cluster,operator"]);
        let (outcome, text) = finding(&found, "operator/pods").expect("Pods are looked at");
        if outcome == "problem" && text.contains("CrashLoopBackOff") {
            assert_eq!(code, Some(1));
            break found;
        }
        assert!(Instant::now() < deadline, "{found:#}");
    };
    check(&found, "operator/pods", "problem", "konverge logs --previous");
    check(&found, "operator/deployed", "problem", "is not rolled out");
    check(&found, "operator/rights", "problem", "patch shops.example.com");
    check(&found, "cluster/webhooks", "problem", "there is no Service shop-system/gone");
    check(&found, "project/generated", "warning", "config/rbac/role.yaml stale");
    check(&found, "project/samples", "problem", "bad.yaml");
    // The same for people, without colours.
    let (code, text, _) = ends_on(&shop.home, Some(&cluster.kubeconfig), &["doctor", "--only", "operator"]);
    assert_eq!(code, Some(1));
    has(&text, &["operator\n", "  problem      pods: ", "               → konverge logs --previous", " not checked\n"]);
    assert!(!text.contains('\x1b'), "{text}");
}

/// The files of an archive of `konverge support`, as one text.
fn unpacked(archive: &Path) -> String {
    let mut bytes = Vec::new();
    let file = fs::File::open(archive).expect("an archive");
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).expect("it is compressed");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn an_archive_has_what_helps_and_no_secrets() {
    let (shop, cluster) = (Shop::new(), Cluster::start());
    // A secret for each place, so that it is known which one leaks.
    let secret = |place: &str| format!("S3cret-of-{place}-0f1e2d3c");
    let places = [
        "data", "applied", "field", "map", "key", "env", "flag", "log", "bearer", "known", "url", "event", "cargo",
        "dev", "config", "pem", "child", "number", "header",
    ];
    let name = |place: &str| secret(place);
    shop.write(
        "crd.yaml",
        &shop.read("crd.yaml").replace("type: object,", "type: object, x-kubernetes-preserve-unknown-fields: true,"),
    );
    shop.write(
        "Cargo.toml",
        &format!("[dependencies]\nkonverge = {{ git = 'https://bob:{}@example.com/k' }}\n", name("cargo")),
    );
    shop.write(".konverge/dev.log", &format!("2026-01-01 operator connecting with password={}\n", name("dev")));
    cluster.run(&shop, 0, &["generate", "manifests"]);
    cluster.run(&shop, 0, &["deploy"]);
    let created = |path: &str, object: Value| assert_eq!(cluster.create(path, &object.to_string()), 201, "{object}");
    created(
        "/api/v1/namespaces/shop-system/secrets",
        json!({"metadata": {"name": "login"}, "stringData": {"a": name("data"), "b": name("known")}}),
    );
    let applied = json!({"data": {"password": STANDARD.encode(name("applied"))}}).to_string();
    created(
        "/apis/example.com/v1/namespaces/default/shops",
        json!({"apiVersion": "example.com/v1", "kind": "Shop",
            "metadata": {"name": "main", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied, "example.com/api-token": name("map")}},
            "spec": {"database": {"password": name("field"), "url": format!("postgres://bob:{}@db", name("url"))},
                     "encryption": {"key": name("key")}, "headers": [{"name": "Authorization", "value": name("header")}],
                     "credentials": {"pin": name("number")}, "color": "green"}}),
    );
    let shops = cluster.get("/apis/example.com/v1/namespaces/default/shops/main").expect("it is there");
    created(
        "/apis/apps/v1/namespaces/default/deployments",
        json!({"metadata": {"name": "child", "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Shop", "name": "main", "uid": shops["metadata"]["uid"]}]},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{
                "name": "main", "image": "nginx", "env": [{"name": "DB_PASSWORD", "value": name("child")}]}]}}}}),
    );
    created(
        "/api/v1/namespaces/shop-system/configmaps",
        json!({"metadata": {"name": "settings"}, "data": {"app.yaml": format!("user: bob\ntoken: {}\n", name("config"))}}),
    );
    created(
        "/api/v1/namespaces/shop-system/events",
        json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "shop-system", "name": "x"}, "type": "Warning", "reason": "Failed",
            "message": format!("login with password={} failed", name("event")), "reportingComponent": "a", "reportingInstance": "a", "action": "a",
            "eventTime": "2026-01-01T00:00:00.000000Z"}),
    );
    let key = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", name("pem"));
    let logs = format!(
        "reconciled key=default/main\nAuthorization: Bearer {}\ntoken={} user=bob\nconnected as {} to db\n{key}\n",
        name("bearer"),
        name("log"),
        name("known")
    );
    let template = json!({"spec": {"template": {"metadata": {"annotations": {"simulate.konverge.dev/logs": logs}}, "spec": {"containers": [{
        "name": "manager", "image": "example.com/shop:1.2.3", "env": [{"name": "API_KEY", "value": name("env")}], "args": ["--password", name("flag")],
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}}]}}}});
    patch(&cluster, DEPLOYMENT, &template);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pods = cluster.get("/api/v1/namespaces/shop-system/pods").expect("Pods");
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let is_new = |pod: &Value| {
            pod["metadata"]["annotations"]["simulate.konverge.dev/logs"].is_string()
                && pod["status"]["phase"] == "Running"
        };
        if pods.len() == 2 && pods.iter().all(is_new) {
            break;
        }
        assert!(Instant::now() < deadline, "{pods:?}");
    }

    let said = cluster.run(&shop, 0, &["support", "--dry-run"]);
    has(&said, &["operator/logs/", "objects/shops.example.com.json", "children/deployments.apps.json", "dev/dev.log"]);
    assert!(!shop.home.join("a.tar.gz").exists());
    let said = cluster.run(&shop, 0, &["support", "--output", "a.tar.gz", "--since", "10000h"]);
    has(&said, &["a.tar.gz: ", "secrets removed", "Look at it before you send it"]);
    let archive = unpacked(&shop.home.join("a.tar.gz"));
    for place in places {
        let secret = name(place);
        for form in [secret.clone(), STANDARD.encode(&secret)] {
            assert!(!archive.contains(&form), "the secret of {place} is in the archive: …{}…", around(&archive, &form));
        }
    }
    let token = fs::read_to_string(&cluster.kubeconfig).expect("a kubeconfig");
    let token = token.lines().find_map(|line| line.trim().strip_prefix("token: ")).expect("a token");
    assert!(!archive.contains(token), "the token of the kubeconfig is in the archive");
    // What helps is there.
    has(
        &archive,
        &[
            "konverge-support/MANIFEST.txt",
            "Removed: ",
            "doctor.txt",
            "konverge: 0.",
            "rustc",
            "reconciled key=default/main",
            "\"color\": \"green\"",
            "\"name\": \"child\"",
            "login with password=<removed> failed",
            "\"uid\"",
            "workqueue_depth",
            "crds/shops.example.com.json",
            "user: bob",
        ],
    );
    // A file that is there is left alone; a cluster that is not there is no reason for none.
    has(&cluster.run(&shop, 1, &["support", "--output", "a.tar.gz"]), &["is there already"]);
    let (code, out, error) = ends_on(&shop.home, None, &["support", "--output", "b.tar.gz"]);
    assert_eq!(code, Some(0), "{out}{error}");
    has(
        &unpacked(&shop.home.join("b.tar.gz")),
        &["the cluster: the kubeconfig names no cluster", "password=<removed>"],
    );
}

fn around(text: &str, part: &str) -> String {
    let at = text.find(part).unwrap_or_default();
    let from = text[..at].char_indices().rev().nth(150).map_or(0, |(at, _)| at);
    text[from..at].replace('\n', "⏎")
}
