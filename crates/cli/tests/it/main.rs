//! The command as people run it: real processes, real ports, real signals.

#![cfg(unix)]

mod auditing;
mod bundling;
mod closed_stdout;
mod credentials;
mod deploying;
mod dev;
mod diagnosing;
mod envtest;
mod full_disk;
mod konverge;
mod offline;
mod project;
mod scaffold;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use konverge::{Running, fails, runs};

#[test]
fn it_says_when_it_is_ready_and_stops_when_asked() {
    // The arguments, and what the ready line must have in it.
    let table: [(&[&str], &[&str]); 5] = [
        (&["apiserver", "--memory", "--port", "0"], &["konverge apiserver ready at http://127.0.0.1:", "(memory)"]),
        (&["apiserver", "--port", "0"], &["konverge apiserver ready at http://127.0.0.1:", "(disk .konverge/data)"]),
        (&["apiserver", "--memory", "--port", "0", "--tls"], &["ready at https://127.0.0.1:"]),
        (&["dev", "--port", "0"], &["konverge dev ready at http://127.0.0.1:", "kubeconfig /"]),
        (&["dev", "--port", "0", "--memory"], &["(memory)"]),
    ];
    for (arguments, expect) in table {
        let directory = tempfile::tempdir().expect("a directory");
        let server = Running::start(directory.path(), arguments);
        for part in expect {
            assert!(server.ready.contains(part), "{arguments:?} said {:?}", server.ready);
        }
        let kubeconfig = directory.path().join(".konverge/kubeconfig");
        let text = fs::read_to_string(&kubeconfig).expect("written before the line");
        let (_, address) = server.url().split_once("://").expect("a URL");
        assert!(text.contains(&format!("    server: https://{address}\n")), "{text}");
        assert!(text.contains("certificate-authority-data: "), "{text}");
        assert_eq!(fs::metadata(&kubeconfig).expect("a file").permissions().mode() & 0o777, 0o600);
        if server.url().starts_with("http:") {
            let version = server.get("/version");
            assert!(version.starts_with("HTTP/1.1 200") && version.contains("gitVersion"), "{version}");
        }
        let (code, _) = server.stop();
        assert_eq!(code, Some(0), "{arguments:?}");
        assert!(kubeconfig.exists(), "kept for the next start");
    }
}

#[test]
fn dev_says_what_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["dev", "--port", "0", "--memory"]);
    let url = server.url().to_string();
    let (_, rest) = server.stop();
    for part in
        ["Operators at work: application.", "export KUBECONFIG=/", &format!("curl -N '{url}/watch?kind=applications'")]
    {
        assert!(rest.contains(part), "{part:?} is not in {rest}");
    }
}

#[test]
fn a_watch_does_not_hold_up_the_stop() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["apiserver", "--port", "0", "--memory"]);
    let watch = server.open("/api/v1/namespaces?watch=true");
    let (code, _) = server.stop();
    assert_eq!(code, Some(0));
    drop(watch);
}

#[test]
fn a_page_of_the_web_may_not_use_the_api_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["apiserver", "--port", "0", "--memory"]);
    let config_maps = "/api/v1/namespaces/default/configmaps";
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    // What is asked, with which headers, and the code of the answer. Without a type it is what `kubectl create --raw` sends.
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let table: [(&str, &str, Headers<'_>, &str, u16); 6] = [
        ("POST", config_maps, &[("origin", "https://evil.example")], body, 403),
        ("POST", config_maps, &[("sec-fetch-site", "cross-site")], body, 403),
        ("GET", "/api/v1/secrets", &[("host", "evil.example")], "", 403),
        (
            "DELETE",
            "/api/v1/namespaces/default",
            &[("host", "evil.example"), ("origin", "http://evil.example")],
            "",
            403,
        ),
        ("GET", "/version", &[("host", "localhost"), ("host", "localhost")], "", 400),
        ("POST", config_maps, &[], body, 201),
    ];
    for (method, path, headers, body, expect) in table {
        let (code, answer) = server.curl(method, path, headers, body);
        assert_eq!(code, expect, "{method} {path} {headers:?}: {answer}");
    }
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn two_cannot_have_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["apiserver", "--port", "0"]);
    let (port, holder) = (server.port().to_string(), format!("process {}", server.id()));

    let error = fails(directory.path(), &["apiserver", "--memory", "--kubeconfig", "other", "--port", &port]);
    assert!(error.contains(&format!("127.0.0.1:{port}: port {port} is already in use")), "{error}");
    #[cfg(target_os = "linux")]
    assert!(error.contains(&holder), "{error}");

    let error = fails(directory.path(), &["apiserver", "--port", "0"]);
    assert!(
        error.contains(&format!(".konverge is in use: {holder} at http")) && error.contains("--data-dir"),
        "{error}"
    );

    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn objects_survive_restarts_and_backups() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["apiserver", "--port", "0"]);
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept"},"data":{"a":"b"}}"#;
    let created = server.post("/api/v1/namespaces/default/configmaps", body);
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let said = runs(directory.path(), &["backup", "sunday.backup"]);
    assert!(said.contains("copied .konverge/data at revision"), "{said}");
    let error = fails(directory.path(), &["backup", "sunday.backup"]);
    assert!(error.contains("the running server could not copy its data") && error.contains("already"), "{error}");
    server.stop();

    let said = runs(directory.path(), &["backup", "monday.backup"]);
    assert!(said.contains("copied .konverge/data at revision"), "{said}");
    let error = fails(directory.path(), &["backup", "monday.backup"]);
    assert!(error.contains("already there"), "{error}");
    let said = runs(directory.path(), &["restore", "monday.backup", "--data-dir", "other"]);
    assert!(said.contains("restored other/data; it goes on from revision"), "{said}");
    let error = fails(directory.path(), &["restore", "monday.backup", "--data-dir", "other"]);
    assert!(error.contains("not empty"), "{error}");

    runs(directory.path(), &["restore", "sunday.backup", "--data-dir", "third"]);
    for data in [".konverge", "other", "third"] {
        let server = Running::start(directory.path(), &["apiserver", "--port", "0", "--data-dir", data]);
        let found = server.get("/api/v1/namespaces/default/configmaps/kept");
        assert!(found.starts_with("HTTP/1.1 200") && found.contains(r#""a":"b""#), "{data}: {found}");
        server.stop();
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    // The arguments, and what the message must have in it.
    let table: [(&[&str], &str); 10] = [
        (&["apiserver", "--bind", "0.0.0.0"], "add --tls"),
        (&["apiserver", "--bind", "0.0.0.0", "--tls", "--anonymous", "everything"], "and --anonymous public"),
        (&["dev", "--bind", "0.0.0.0", "--anonymous", "everything"], "and --anonymous public"),
        (&["apiserver", "--memory", "--token-auth-file", "theirs"], "must have at least 3 columns"),
        (&["apiserver", "--memory", "--service-account-signing-key-file", "theirs"], "does not contain any valid"),
        (&["apiserver", "--memory", "--tls", "--tls-name", "a b"], "\"a b\" is neither a DNS name"),
        (&["apiserver", "--memory", "--kubeconfig", "theirs"], "theirs: has no cluster and user called konverge"),
        (&["backup", "copy"], ".konverge/data: there is no data to copy"),
        (&["restore", "nothing"], "nothing: cannot be used"),
        (&["restore", "theirs"], "theirs: this backup cannot be used"),
    ];
    for (arguments, expect) in table {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("theirs"), "apiVersion: v1\n").expect("a file");
        let error = fails(directory.path(), arguments);
        assert!(error.contains(expect), "{arguments:?} said {error}");
        assert!(error.starts_with("error: ") && error.trim_end().lines().count() == 1, "{error}");
    }
}

#[test]
fn the_version_is_told_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    for arguments in [["version"], ["--version"]] {
        assert_eq!(runs(directory.path(), &arguments), format!("konverge {}\n", env!("CARGO_PKG_VERSION")));
    }
}
