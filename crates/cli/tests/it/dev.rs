//! `konverge dev` as a person uses it: the requests that `curl` makes, pasted one by one, against a real process. What
//! Deployments become is not looked at: it takes controllers.

use std::fs;
use std::time::{Duration, Instant};

use ::konverge::k8s_openapi::api::core::v1::Namespace;
use ::konverge::kube;
use serde_json::{Value, json};

use crate::konverge::{Running, fails};

const DEFAULT: &str = "/apis/cloudnative.elide.dev/v1/namespaces/default/applications";
const TEST: &str = "/apis/cloudnative.elide.dev/v1/namespaces/test/applications";
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Polls until `look` finds something; the deadline is far beyond what it takes.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} did not happen");
}

fn get(server: &Running, path: &str) -> (u16, Value) {
    server.curl("GET", path, &[], "")
}

fn found(server: &Running, path: &str) -> Option<Value> {
    let (code, body) = get(server, path);
    (code == 200).then_some(body)
}

/// Lists namespaces as a client with this kubeconfig does.
fn namespaces(kubeconfig: &str) -> Result<usize, kube::Error> {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a config");
        let namespaces: kube::Api<Namespace> = kube::Api::all(kube::Client::try_from(config)?);
        Ok(namespaces.list(&Default::default()).await?.items.len())
    })
}

#[test]
fn the_walk_through() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["dev", "--port", "0", "--memory"]);

    // Health and metadata.
    let (code, index) = get(&server, "/");
    assert_eq!((code, &index["name"], &index["operators"]), (200, &json!("konverge dev"), &json!(["application"])));
    assert!(index["endpoints"].as_array().expect("a list").iter().any(|one| one["path"] == "/watch"), "{index}");
    assert_eq!(get(&server, "/healthz"), (200, json!("ok")));
    assert_eq!(get(&server, "/readyz"), (200, json!("ok")));
    let (_, definition) = get(&server, "/crd");
    assert_eq!(definition["spec"]["names"]["kind"], "Application");
    let (_, definitions) = get(&server, "/crds");
    assert_eq!(definitions["items"][0]["metadata"]["name"], "applications.cloudnative.elide.dev");
    assert_eq!(get(&server, "/leader").1["leader"], true);

    // Somebody watches all the while.
    let mut watch = server.stream("/watch", &[]);

    // Creating a resource.
    let body = r#"{
    "apiVersion": "cloudnative.elide.dev/v1",
    "kind": "Application",
    "metadata": {
      "name": "my-app"
    },
    "spec": {
      "replicas": 3,
      "image": "nginx:latest",
      "strategy": "RollingUpdate"
    }
  }"#;
    let (code, made) = server.curl("POST", DEFAULT, JSON, body);
    assert_eq!(
        (code, &made["metadata"]["namespace"], &made["metadata"]["generation"]),
        (201, &json!("default"), &json!(1))
    );
    assert_eq!(watch.event(), "ADDED my-app");

    // Getting a resource: the operator has seen it, and made its children.
    let path = format!("{DEFAULT}/my-app");
    let app = eventually("a status", || found(&server, &path).filter(|app| app["status"]["conditions"][1].is_object()));
    assert_eq!(app["status"]["observedGeneration"], 1);
    assert_eq!(app["metadata"]["finalizers"], json!(["cloudnative.elide.dev/application-finalizer"]));
    let deployment = "/apis/apps/v1/namespaces/default/deployments/my-app";
    let children = [
        deployment,
        "/api/v1/namespaces/default/services/my-app",
        "/api/v1/namespaces/default/configmaps/my-app-config",
    ];
    for child in children {
        let child = eventually(child, || found(&server, child));
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], app["metadata"]["uid"], "{child}");
    }
    let runs = |app: &Value, ready: i64| {
        let status = &app["status"];
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        status["phase"] == "Running"
            && status["readyReplicas"] == ready
            && status["replicas"] == ready
            && status["observedGeneration"] == app["metadata"]["generation"]
            && status["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready))
    };
    eventually("3 ready replicas", || found(&server, &path).filter(|app| runs(app, 3)));
    let (_, list) = get(&server, DEFAULT);
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("ApplicationList"), &json!("my-app")));

    // Updating a resource, which does not say what it replaces.
    let body = r#"{
    "apiVersion": "cloudnative.elide.dev/v1",
    "kind": "Application",
    "metadata": {
      "name": "my-app",
      "namespace": "default"
    },
    "spec": {
      "replicas": 5,
      "image": "nginx:latest",
      "strategy": "RollingUpdate"
    }
  }"#;
    let (code, updated) = server.curl("PUT", &path, JSON, body);
    assert_eq!((code, &updated["spec"]["replicas"]), (200, &json!(5)), "{updated}");
    eventually("5 replicas", || found(&server, deployment).filter(|child| child["spec"]["replicas"] == 5));
    eventually("5 ready replicas", || found(&server, &path).filter(|app| runs(app, 5)));

    // Deleting a child brings it back.
    let uid = found(&server, deployment).expect("a Deployment")["metadata"]["uid"].clone();
    assert_eq!(server.curl("DELETE", deployment, &[], "").0, 200);
    eventually("another Deployment", || found(&server, deployment).filter(|child| child["metadata"]["uid"] != uid));

    // Deleting a resource: its children go with it.
    assert_eq!(server.curl("DELETE", &path, &[], "").0, 200);
    eventually("the end", || (get(&server, &path).0 == 404).then_some(()));
    for child in children {
        eventually(child, || (get(&server, child).0 == 404).then_some(()));
    }
    let told = std::iter::from_fn(|| Some(watch.event()));
    let told: Vec<String> = told.take_while(|event| event != "DELETED my-app").collect();
    assert!(!told.is_empty() && told.iter().all(|event| event == "MODIFIED my-app"), "{told:?}");

    // Into a namespace that nobody made.
    let body = r#"{"apiVersion":"cloudnative.elide.dev/v1","kind":"Application","metadata":{"name":"test-app"},"spec":{"replicas":1,"image":"test:latest","strategy":"RollingUpdate"}}"#;
    assert_eq!(server.curl("POST", TEST, JSON, body).0, 201);
    assert_eq!(watch.event(), "ADDED test-app");
    let app = format!("{TEST}/test-app");
    eventually("a ready replica", || found(&server, &app).filter(|app| runs(app, 1)));
    let events = eventually("events", || {
        found(&server, "/events?namespace=test&object=Application/test-app").filter(|list| list["items"][0].is_object())
    });
    assert_eq!(events["items"][0]["involvedObject"]["name"], "test-app");
    let (_, all) = get(&server, "/apis/cloudnative.elide.dev/v1/applications");
    assert_eq!(all["items"].as_array().map(Vec::len), Some(1));
    let (code, metrics) = get(&server, "/metrics");
    let metrics = metrics.as_str().expect("text");
    assert!(code == 200 && metrics.contains("application_phase_changes_total{phase=\"Running\"}"), "{metrics}");
    assert!(metrics.contains("controller_runtime_reconcile_total"), "{metrics}");

    // What goes wrong is a Status.
    for (method, path, body, code, reason) in [
        ("POST", DEFAULT, "{not json", 400, "BadRequest"),
        ("GET", &format!("{DEFAULT}/absent"), "", 404, "NotFound"),
        ("DELETE", &format!("{DEFAULT}/absent"), "", 404, "NotFound"),
        ("POST", TEST, body, 409, "AlreadyExists"),
        ("POST", TEST, &body.replace("\"replicas\":1", "\"replicas\":101").replace("test-app", "odd"), 422, "Invalid"),
        ("GET", "/nowhere", "", 404, "NotFound"),
    ] {
        let (got, status) = server.curl(method, path, JSON, body);
        assert_eq!(
            (got, &status["kind"], &status["reason"]),
            (code, &json!("Status"), &json!(reason)),
            "{path}: {status}"
        );
    }
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_stream_resumes_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["dev", "--port", "0", "--memory", "--operator", "none"]);
    // No controller writes secrets.
    let secrets = "/api/v1/namespaces/default/secrets";
    let create = |name: &str| {
        let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}).to_string();
        assert_eq!(server.curl("POST", secrets, JSON, &body).0, 201);
    };
    let watching = |count: &str| {
        eventually(&format!("{count} streams"), || {
            let page = get(&server, "/metrics").1;
            page.as_str()?.lines().any(|line| line == format!("konverge_dev_watch_streams {count}")).then_some(())
        });
    };
    create("a");
    let mut first = server.stream("/watch?kind=secrets&namespace=default", &[]);
    assert_eq!(first.event(), "ADDED a");
    create("b");
    assert_eq!(first.event(), "ADDED b");
    watching("1");
    let last = first.last_id.clone();
    drop(first);
    // The server notices by itself that nobody reads any more.
    watching("0");
    create("c");
    assert_eq!(server.curl("DELETE", &format!("{secrets}/a"), &[], "").0, 200);
    let mut second = server.stream("/watch?kind=secrets&namespace=default", &[("last-event-id", &last)]);
    assert_eq!((second.event(), second.event()), ("ADDED c".to_owned(), "DELETED a".to_owned()));
    // An open stream does not hold up the stop.
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn nothing_is_lost_when_it_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["dev", "--port", "0"];
    let server = Running::start(directory.path(), &arguments);
    let body = json!({"apiVersion": "cloudnative.elide.dev/v1", "kind": "Application", "metadata": {"name": "kept"},
                      "spec": {"replicas": 2, "image": "nginx"}});
    let (_, made) = server.curl("POST", DEFAULT, JSON, &body.to_string());
    // Dropping it kills it.
    drop(server);
    let server = Running::start(directory.path(), &arguments);
    let (code, kept) = get(&server, &format!("{DEFAULT}/kept"));
    assert_eq!((code, &kept["metadata"]["uid"]), (200, &made["metadata"]["uid"]));
    // Its operator goes on where the other one was killed.
    let child = "/apis/apps/v1/namespaces/default/deployments/kept";
    eventually("the Deployment", || found(&server, child).filter(|child| child["spec"]["replicas"] == 2));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn the_operators_are_a_choice() {
    let directory = tempfile::tempdir().expect("a directory");
    for (choice, expect) in
        [("all", "[\"application\",\"webapp\",\"myapp\"]"), ("none", "[]"), ("webapp", "[\"webapp\"]")]
    {
        let server = Running::start(directory.path(), &["dev", "--port", "0", "--memory", "--operator", choice]);
        assert_eq!(get(&server, "/").1["operators"].to_string(), expect);
        let count = get(&server, "/crds").1["items"].as_array().map(Vec::len);
        assert_eq!(count, Some(expect.matches('"').count() / 2), "{choice}");
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn pages_of_the_web_are_kept_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["dev", "--port", "0", "--memory", "--operator", "none"]);
    for (headers, code) in [
        (&[("host", "localhost")][..], 200),
        (&[("host", "rebound.example")], 403),
        (&[("origin", "https://evil.example")], 403),
    ] {
        assert_eq!(server.curl("GET", "/api/v1/namespaces", headers, "").0, code, "{headers:?}");
    }
    let body = r#"{"metadata":{"name":"evil"}}"#;
    let headers = [("origin", "https://evil.example"), ("content-type", "text/plain")];
    assert_eq!(server.curl("POST", "/api/v1/namespaces", &headers, body).0, 403);
    assert_eq!(get(&server, "/api/v1/namespaces/evil").0, 404);
}

#[test]
fn from_elsewhere_it_takes_encryption_and_a_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["dev", "--port", "0", "--bind", "0.0.0.0", "--operator", "none"]);
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.ready);
    let kubeconfig = fs::read_to_string(directory.path().join(".konverge/kubeconfig")).expect("a file");
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).expect("a token");
    assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    assert!(kubeconfig.contains("certificate-authority-data: "), "{kubeconfig}");
    for (text, code) in [
        (kubeconfig.clone(), None),
        (kubeconfig.replace(token, &"0".repeat(64)), Some(401)),
        (kubeconfig.replace(&format!("\n    token: {token}"), " {}"), Some(401)),
    ] {
        let refused = namespaces(&text).err().map(|error| match error {
            kube::Error::Api(status) => status.code,
            other => panic!("{other}"),
        });
        assert_eq!(refused, code, "{text}");
    }
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn two_cannot_have_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &["dev", "--port", "0", "--operator", "none"]);
    let (port, holder) = (server.port().to_string(), format!("process {}", server.id()));
    let error = fails(directory.path(), &["dev", "--memory", "--data-dir", "other", "--port", &port]);
    assert!(error.contains(&format!("port {port} is already in use")), "{error}");
    #[cfg(target_os = "linux")]
    assert!(error.contains(&holder), "{error}");
    let error = fails(directory.path(), &["dev", "--port", "0"]);
    assert!(
        error.contains(&format!(".konverge is in use: {holder} at http")) && error.contains("--data-dir"),
        "{error}"
    );
    assert_eq!(server.stop().0, Some(0));
}
