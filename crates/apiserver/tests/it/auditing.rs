//! The audit log, through requests: one line for each event, as kube-apiserver writes them. The lines of failures, refusals, watches,
//! panics and requests that nobody waits for were held against those of its filters.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};

use konverge_apiserver::{
    Attributes, AuditLogOptions, AuditMode, AuditOptions, AuditOutput, AuditPolicy, AuthorizationMode, Authorizer,
    Decision, LocalWebhook, Options, UserInfo,
};
use konverge_core::Status;

use crate::cluster::{
    APPLY, AS_TABLE, AT_MOST, CONFIG_MAPS, Cluster, JSON_PATCH, MERGE, NAMESPACES, PODS, PROTOBUF, SECRETS, config_map,
    deployment, pod,
};

/// A server with an audit log, and how to read it.
struct Audited {
    cluster: Cluster,
    path: std::path::PathBuf,
    /// How many bytes of the log were looked at. Emptying the file instead would lose what is written at that very moment.
    seen: AtomicUsize,
    /// Removes the folder of the log.
    _folder: tempfile::TempDir,
}

impl Audited {
    /// With these rules, as JSON.
    async fn by(rules: &Value) -> Self {
        Self::with(&json!({"rules": rules}), |_| {}, |options| options).await
    }

    async fn with(
        policy: &Value,
        change_log: impl FnOnce(&mut AuditLogOptions),
        change: impl FnOnce(Options) -> Options,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut policy = policy.clone();
        (policy["apiVersion"], policy["kind"]) = ("audit.k8s.io/v1".into(), "Policy".into());
        let mut log = AuditLogOptions::new(AuditOutput::File(path.clone()));
        change_log(&mut log);
        let audit = Some(AuditOptions { policy: AuditPolicy::parse(&policy.to_string()).unwrap(), log });
        let cluster = Cluster::with(|options| change(Options { audit, ..options })).await;
        Self { cluster, path, seen: AtomicUsize::new(0), _folder: folder }
    }

    /// The events since the last look.
    async fn events(&self) -> Vec<Value> {
        self.cluster.server.flush_audit_log().await;
        let text = std::fs::read(&self.path).unwrap();
        // A line may be half written.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let new = &text[self.seen.swap(whole, Ordering::Relaxed)..whole];
        new.split_inclusive(|byte| *byte == b'\n').map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// The last event of one request.
    async fn last(&self) -> Value {
        self.events().await.pop().expect("an event")
    }
}

/// Stages with the codes of events, or `-`.
fn stages(events: &[Value]) -> Vec<String> {
    let code = |event: &Value| event["responseStatus"]["code"].as_u64().map_or("-".to_owned(), |code| code.to_string());
    events.iter().map(|event| format!("{} {}", event["stage"].as_str().unwrap(), code(event))).collect()
}

const EVERYTHING: &str = r#"[{"level": "RequestResponse"}]"#;

fn everything() -> Value {
    serde_json::from_str(EVERYTHING).unwrap()
}

#[tokio::test]
async fn whole_lines_are_those_of_kube_apiserver() {
    let audited = Audited::by(&json!([{"level": "Metadata"}])).await;
    let agent = [("user-agent", "test"), ("audit-id", "a-1"), ("x-real-ip", "192.0.2.1")];
    audited.cluster.ask("GET", "/api/v1/namespaces/a/pods/x?a=b&c=d", &agent, "").await.expect(404);
    audited.cluster.server.flush_audit_log().await;
    let text = std::fs::read_to_string(&audited.path).unwrap();
    let head = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a-1","stage":"#;
    let rest = r#""requestURI":"/api/v1/namespaces/a/pods/x?a=b\u0026c=d","verb":"get","user":{"username":"system:anonymous","groups":["system:unauthenticated"]},"sourceIPs":["192.0.2.1"],"userAgent":"test","objectRef":{"resource":"pods","namespace":"a","name":"x","apiVersion":"v1"},"#;
    let times =
        r#""requestReceivedTimestamp":"2026-01-02T03:04:05.000000Z","stageTimestamp":"2026-01-02T03:04:05.000000Z""#;
    let failure = r#""responseStatus":{"metadata":{},"status":"Failure","message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404},"#;
    let decision = r#","annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}"#;
    assert_eq!(
        text,
        format!(
            "{head}\"RequestReceived\",{rest}{times}}}\n{head}\"ResponseComplete\",{rest}{failure}{times}{decision}}}\n"
        )
    );
}

/// What each level records of the same requests.
#[tokio::test]
async fn levels() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}});
    for (level, request, response) in [
        ("None", None, None),
        ("Metadata", None, None),
        ("Request", Some("b"), None),
        ("RequestResponse", Some("b"), Some("Yg==")),
    ] {
        let audited = Audited::by(&json!([{"level": level}])).await;
        let created = audited.cluster.post(SECRETS, &secret).await.expect(201);
        let events = audited.events().await;
        if level == "None" {
            assert!(events.is_empty(), "{events:?}");
            continue;
        }
        assert_eq!(stages(&events), ["RequestReceived -", "ResponseComplete 201"], "{level}");
        assert_eq!((&events[0]["requestObject"], &events[0]["level"]), (&Value::Null, &json!(level)));
        let event = &events[1];
        assert_eq!(event["requestObject"]["stringData"]["a"].as_str(), request, "{level}");
        assert_eq!(event["responseObject"]["data"]["a"].as_str(), response, "{level}");
        if response.is_some() {
            assert_eq!(event["responseObject"], created);
        }
        // The name comes from the object, and what only the server knows is not there.
        let object = json!({"resource": "secrets", "namespace": "default", "name": "s", "apiVersion": "v1"});
        assert_eq!(event["objectRef"], object, "{level}");
    }
}

/// What was sent and what was answered, verb by verb.
#[tokio::test]
async fn what_was_sent_and_answered() {
    let audited = Audited::by(&everything()).await;
    let cluster = &audited.cluster;
    let path = format!("{CONFIG_MAPS}/m");
    let created = cluster.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    let event = audited.last().await;
    assert_eq!((&event["verb"], &event["responseObject"]), (&json!("create"), &created));

    // An update names the object that it replaces.
    let replaced = cluster.put(&path, &created).await.expect(200);
    let event = audited.last().await;
    assert_eq!((&event["verb"], &event["responseObject"]), (&json!("update"), &replaced));
    let (uid, version) = (&created["metadata"]["uid"], &created["metadata"]["resourceVersion"]);
    assert_eq!((&event["objectRef"]["uid"], &event["objectRef"]["resourceVersion"]), (uid, version));

    // Patches are as they were sent; those of server-side apply may be YAML.
    for (kind, patch, expect) in [
        (MERGE, "{ \"data\": {\"z\": \"1\",\n \"a\": \"2\"} }", json!({"data": {"z": "1", "a": "2"}})),
        (JSON_PATCH, r#"[{"op":"remove","path":"/data/z"}]"#, json!([{"op": "remove", "path": "/data/z"}])),
        (
            APPLY,
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {b: c}",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"b": "c"}}),
        ),
    ] {
        let path = format!("{path}?fieldManager=test");
        let patched = cluster.ask("PATCH", &path, &[("content-type", kind)], patch.to_owned()).await.expect(200);
        let event = audited.last().await;
        assert_eq!((&event["verb"], &event["requestObject"]), (&json!("patch"), &expect), "{kind}");
        assert_eq!(event["responseObject"], patched, "{kind}");
    }
    cluster.ask("PATCH", &path, &[("content-type", MERGE)], "{no").await.expect(400);
    assert_eq!(audited.last().await["requestObject"], Value::Null);

    // Lists are whole, whatever the client reads.
    for accept in ["application/json", "application/yaml", PROTOBUF, AS_TABLE] {
        let listed = cluster.accept(CONFIG_MAPS, accept).await.expect(200);
        let event = audited.last().await;
        assert_eq!(event["verb"], "list");
        assert_eq!(event["responseObject"]["kind"], if accept == AS_TABLE { "Table" } else { "ConfigMapList" });
        if accept == AS_TABLE || accept == "application/json" {
            assert_eq!(event["responseObject"], listed);
        }
        let got = cluster.accept(&path, accept).await.json();
        let event = audited.last().await;
        assert_eq!(event["responseObject"]["kind"], got["kind"], "{accept}");
    }

    // A deletion shows its options in the form that kube-apiserver has of them, and its Status.
    cluster.delete_with(&path, &json!({"propagationPolicy": "Background"})).await.expect(200);
    let event = audited.last().await;
    let options =
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", "propagationPolicy": "Background"});
    assert_eq!(event["requestObject"], options);
    let details = json!({"name": "m", "kind": "configmaps", "uid": uid});
    assert_eq!(event["responseStatus"], json!({"metadata": {}, "status": "Success", "details": details, "code": 200}));
    assert_eq!(event["responseObject"]["status"], "Success");
    cluster.delete(&path).await.expect(404);
    assert_eq!(audited.last().await["responseObject"]["reason"], "NotFound");

    // What is sent to a subresource is of another kind.
    cluster.post(PODS, &pod("p")).await.expect(201);
    let event = audited.last().await;
    assert_eq!(event["requestObject"]["spec"]["restartPolicy"], "Always", "with its defaults");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    cluster.post(&format!("{PODS}/p/eviction"), &eviction).await.expect(201);
    let event = audited.last().await;
    assert_eq!((&event["requestObject"], &event["responseStatus"]["status"]), (&eviction, &json!("Success")));
    assert_eq!(event["objectRef"]["subresource"], "eviction");
    // No path, no object.
    cluster.get("/version").await.expect(200);
    let event = audited.last().await;
    assert_eq!(
        (&event["verb"], &event["objectRef"], &event["requestURI"]),
        (&json!("get"), &Value::Null, &json!("/version"))
    );
    cluster.get("/nowhere").await;
    assert_eq!(audited.last().await["responseStatus"], json!({"metadata": {}, "code": 404}));
}

#[tokio::test]
async fn a_watch_has_an_event_when_it_begins_and_one_when_it_ends() {
    let audited = Audited::by(&everything()).await;
    let lines = audited.cluster.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let events = audited.events().await;
    assert_eq!(stages(&events), ["RequestReceived -", "ResponseStarted 200"]);
    assert_eq!((&events[1]["verb"], &events[1]["responseObject"]), (&json!("watch"), &Value::Null));
    drop(lines);
    assert_eq!(stages(&audited.events().await), ["ResponseComplete 200"]);
    // One that fails has all three at once.
    audited.cluster.get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=x")).await;
    assert_eq!(stages(&audited.events().await), ["RequestReceived -", "ResponseStarted 500", "ResponseComplete 500"]);
}

#[tokio::test]
async fn stages_and_managed_fields_are_omitted() {
    for (policy, expect, managed) in [
        (json!({"omitStages": ["RequestReceived"]}), vec!["ResponseComplete 201"], true),
        (json!({"omitStages": ["RequestReceived", "ResponseComplete"]}), vec![], true),
        (json!({"omitManagedFields": true}), vec!["RequestReceived -", "ResponseComplete 201"], false),
    ] {
        let mut policy = policy;
        policy["rules"] = everything();
        let audited = Audited::with(&policy, |_| {}, |options| options).await;
        audited.cluster.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
        let events = audited.events().await;
        assert_eq!(stages(&events), expect);
        if let Some(event) = events.last() {
            assert_eq!(event["responseObject"]["metadata"]["managedFields"].is_array(), managed, "{policy}");
        }
    }
}

/// Lets `admin` do everything, panics for `mad`, and refuses everybody else.
struct Rules;

impl Authorizer for Rules {
    fn authorize<'a>(&'a self, attributes: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        let name = attributes.user.name.clone();
        let impersonates = attributes.verb == "impersonate:user-info" || attributes.verb.starts_with("impersonate-on:");
        Box::pin(async move {
            assert_ne!(name, "mad", "no");
            match &*name {
                "admin" if !impersonates => Decision::Allow { reason: "because".into() },
                "helper" if impersonates => Decision::Allow { reason: String::new() },
                _ => Decision::Deny { reason: "only admin".into() },
            }
        })
    }
}

async fn send(audited: &Audited, user: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = Request::get("/api/v1/namespaces/a/pods/x").extension(UserInfo::named(user));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = audited.cluster.send(request.body(Full::new(Bytes::new())).unwrap()).await;
    response.status().as_u16()
}

#[tokio::test]
async fn who_asked_and_what_was_decided() {
    let rules = vec![AuthorizationMode::Other(Arc::new(Rules))];
    let policy = json!({"rules": [{"level": "None", "users": ["quiet"]}, {"level": "Metadata"}]});
    let audited = Audited::with(&policy, |_| {}, |options| Options { authorization: rules, ..options }).await;
    let decided = |decision: &str, reason: &str| json!({"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason});
    assert_eq!(send(&audited, "admin", &[]).await, 404);
    assert_eq!(audited.last().await["annotations"], decided("allow", "because"));
    assert_eq!(send(&audited, "bob", &[]).await, 403);
    let event = audited.last().await;
    assert_eq!(
        (&event["annotations"], &event["responseStatus"]["reason"]),
        (&decided("forbid", "only admin"), &json!("Forbidden"))
    );
    assert_eq!(send(&audited, "quiet", &[]).await, 403);
    assert!(audited.events().await.is_empty());

    // The rule is that of the user who asks; the other one is in a field of its own.
    let as_user = |name| [("impersonate-user", name)];
    assert_eq!(send(&audited, "admin", &as_user("quiet")).await, 403);
    let event = audited.last().await;
    assert_eq!(event["user"], json!({"username": "admin"}));
    assert_eq!(event["impersonatedUser"], json!({"username": "quiet", "groups": ["system:authenticated"]}));
    assert_eq!(event["authenticationMetadata"], Value::Null);
    assert_eq!(send(&audited, "helper", &as_user("bob")).await, 403);
    let event = audited.last().await;
    assert_eq!(event["authenticationMetadata"], json!({"impersonationConstraint": "impersonate:user-info"}));
    assert_eq!(send(&audited, "bob", &as_user("admin")).await, 403);
    let event = audited.last().await;
    assert_eq!((&event["impersonatedUser"], &event["annotations"]), (&Value::Null, &Value::Null));

    // The server itself fails.
    assert_eq!(send(&audited, "mad", &[]).await, 500);
    let events = audited.events().await;
    assert_eq!(stages(&events), ["RequestReceived -", "Panic 500"]);
    let message = events[1]["responseStatus"]["message"].as_str().unwrap();
    assert!(message.starts_with("APIServer panic'd: assertion"), "{message}");
}

#[tokio::test]
async fn a_credential_that_is_not_believed_is_one_event() {
    let audited = Audited::by(&json!([{"level": "None", "users": ["x"]}, {"level": "Metadata"}])).await;
    let (parts, ()) = Request::get("/api/v1/pods").header("audit-id", "a-1").body(()).unwrap().into_parts();
    let refused = Status::failure(401, "Unauthorized", "Unauthorized");
    let response = audited.cluster.server.refuse(parts, &refused).await;
    assert_eq!((response.status().as_u16(), &response.headers()["audit-id"]), (401, &"a-1".parse().unwrap()));
    let events = audited.events().await;
    assert_eq!(stages(&events), ["ResponseStarted 401"]);
    assert_eq!((&events[0]["user"], &events[0]["verb"]), (&json!({}), &json!("list")));
    let status =
        json!({"metadata": {}, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
    assert_eq!(events[0]["responseStatus"], status);
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_ends_too() {
    let audited = Audited::by(&json!([{"level": "Metadata"}])).await;
    let endless = StreamBody::new(futures_util::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>());
    let request = Request::post(CONFIG_MAPS).body(endless.boxed()).unwrap();
    let received = async {
        loop {
            match audited.events().await {
                events if events.is_empty() => tokio::task::yield_now().await,
                events => return events,
            }
        }
    };
    let events = tokio::select! {
        _ = audited.cluster.send(request) => panic!("the body never ends"),
        events = tokio::time::timeout(AT_MOST, received) => events.expect("the request is received"),
    };
    assert_eq!(stages(&events), ["RequestReceived -"]);
    let event = audited.last().await;
    let status = json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200});
    assert_eq!((&event["stage"], &event["responseStatus"]), (&json!("ResponseComplete"), &status));
}

#[tokio::test]
async fn what_admission_notes() {
    let audited = Audited::by(&json!([{"level": "Request", "verbs": ["create", "list"]}])).await;
    let cluster = &audited.cluster;
    let annotations = |event: &Value| event["annotations"].clone();

    // Policies, also for requests that they refuse.
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]});
    let policy = json!({
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "object.metadata.name != 'bad'", "message": "no"}],
            "auditAnnotations": [{"key": "name", "valueExpression": "'it is ' + object.metadata.name"}],
        },
    });
    let binding =
        json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny", "Audit"]}});
    cluster.post(POLICIES, &policy).await.expect(201);
    cluster.post(&POLICIES.replace("policies", "policybindings"), &binding).await.expect(201);
    cluster.post(CONFIG_MAPS, &config_map("good")).await.expect(201);
    let noted = annotations(&audited.last().await);
    assert_eq!((&noted["p/name"], &noted["authorization.k8s.io/decision"]), (&json!("it is good"), &json!("allow")));
    cluster.post(CONFIG_MAPS, &config_map("bad")).await.expect(422);
    let failure =
        r#"[{"message":"no","policy":"p","binding":"b","expressionIndex":0,"validationActions":["Deny","Audit"]}]"#;
    assert_eq!(annotations(&audited.last().await)["validation.policy.admission.k8s.io/validation_failure"], failure);

    // Webhooks.
    let handler: LocalWebhook = Arc::new(|request: Request<Bytes>| {
        let review: Value = serde_json::from_slice(request.body()).unwrap();
        // [{"op":"add","path":"/data","value":{"a":"b"}}]
        let patch = "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEiLCJ2YWx1ZSI6eyJhIjoiYiJ9fV0=";
        let response = json!({
            "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch,
            "auditAnnotations": {"k": "v"},
        });
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Box::pin(std::future::ready(http::Response::new(Bytes::from(body.to_string()))))
    });
    cluster.server.register_webhooks("h", Some(handler));
    let webhook = json!({
        "name": "h.example.com", "clientConfig": {"url": "https://h/"}, "rules": [rule],
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
    });
    const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    cluster.post(MUTATING, &json!({"metadata": {"name": "c"}, "webhooks": [webhook]})).await.expect(201);
    cluster.post(CONFIG_MAPS, &config_map("changed")).await.expect(201);
    let noted = annotations(&audited.last().await);
    assert_eq!(noted["h.example.com/k"], "v");
    assert_eq!(
        noted["mutation.webhook.admission.k8s.io/round_0_index_0"],
        r#"{"configuration":"c","webhook":"h.example.com","mutated":true}"#
    );
    assert_eq!(
        noted["patch.webhook.admission.k8s.io/round_0_index_0"],
        r#"{"configuration":"c","webhook":"h.example.com","patch":[{"op":"add","path":"/data","value":{"a":"b"}}],"patchType":"JSONPatch"}"#
    );

    // PodSecurity.
    let namespace = json!({"metadata": {"name": "n", "labels": {"pod-security.kubernetes.io/audit": "baseline"}}});
    cluster.post(NAMESPACES, &namespace).await.expect(201);
    let mut host = pod("h");
    host["spec"]["hostNetwork"] = true.into();
    cluster.post("/api/v1/namespaces/n/pods", &host).await.expect(201);
    let noted = annotations(&audited.last().await);
    assert_eq!(noted["pod-security.kubernetes.io/enforce-policy"], "privileged:latest");
    let violations = "would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    assert_eq!(noted["pod-security.kubernetes.io/audit-violations"], violations);

    // Deprecated versions.
    cluster.get("/api/v1/endpoints").await.expect(200);
    assert_eq!(annotations(&audited.last().await)["k8s.io/deprecated"], "true");
}

#[tokio::test]
async fn metrics() {
    let plain = Cluster::new().await;
    let page = |cluster: &Cluster| {
        let answer = cluster.server.clone();
        async move {
            let request = Request::get("/metrics").body(Full::new(Bytes::new())).unwrap();
            let response = tower_service::Service::call(&mut answer.clone(), request).await.unwrap();
            let text = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(text.to_vec()).unwrap();
            text.lines().filter(|line| line.starts_with("apiserver_audit")).map(str::to_owned).collect::<Vec<_>>()
        }
    };
    assert_eq!(page(&plain).await, ["apiserver_audit_event_total 0", "apiserver_audit_requests_rejected_total 0"]);
    let audited = Audited::by(&json!([{"level": "Metadata", "verbs": ["list"]}])).await;
    audited.cluster.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(
        page(&audited.cluster).await,
        [
            "apiserver_audit_event_total 2",
            r#"apiserver_audit_level_total{level="None"} 1"#,
            r#"apiserver_audit_level_total{level="Metadata"} 1"#,
            "apiserver_audit_requests_rejected_total 0",
        ]
    );
}

/// A device that is always full: nothing can be written.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_log_that_cannot_be_written() {
    let rules = json!([{"level": "None", "nonResourceURLs": ["/metrics"]}, {"level": "Metadata"}]);
    for (mode, code, lost, rejected) in
        [(AuditMode::Blocking, 200, 2, 0), (AuditMode::BlockingStrict, 500, 1, 1), (AuditMode::Batch, 200, 2, 0)]
    {
        let full = |log: &mut AuditLogOptions| {
            (log.output, log.mode) = (AuditOutput::File("/dev/full".into()), mode);
        };
        let audited = Audited::with(&json!({"rules": rules}), full, |options| options).await;
        let answer = audited.cluster.get(CONFIG_MAPS).await;
        assert_eq!(answer.code, code, "{mode:?}");
        if mode == AuditMode::BlockingStrict {
            let text =
                "Internal Server Error: \"/api/v1/namespaces/default/configmaps\": failed to store audit event\n";
            assert_eq!(answer.body, text);
        }
        audited.cluster.server.flush_audit_log().await;
        let page = String::from_utf8(audited.cluster.get("/metrics").await.body.to_vec()).unwrap();
        for line in [
            format!("apiserver_audit_error_total{{plugin=\"log\"}} {lost}\n"),
            format!("apiserver_audit_requests_rejected_total {rejected}\n"),
        ] {
            assert!(page.contains(&line), "{mode:?}: no {line} in {page}");
        }
    }
}

#[tokio::test]
async fn large_events_lose_their_objects() {
    let truncate = |log: &mut AuditLogOptions| log.max_event_bytes = Some(2000);
    let audited = Audited::with(&json!({"rules": everything()}), truncate, |options| options).await;
    let mut large = config_map("m");
    large["data"] = json!({"a": "x".repeat(3000)});
    audited.cluster.post(CONFIG_MAPS, &large).await.expect(201);
    let event = audited.last().await;
    assert_eq!((&event["requestObject"], &event["responseObject"]), (&Value::Null, &Value::Null));
    assert_eq!(event["annotations"]["audit.k8s.io/truncated"], "true");
    audited.cluster.post(CONFIG_MAPS, &config_map("n")).await.expect(201);
    assert_eq!(audited.last().await["requestObject"]["metadata"]["name"], "n");
}

/// Objects that are acted on are noted before anybody looks at them.
#[tokio::test]
async fn metadata_of_any_kind_is_noted() {
    let audited = Audited::by(&everything()).await;
    let cluster = &audited.cluster;
    cluster.post(PODS, &pod("a")).await.expect(201);
    cluster.post("/apis/apps/v1/namespaces/default/deployments", &deployment("a")).await.expect(201);
    cluster.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "a"}})).await.expect(201);
    let (eviction, binding) = (format!("{PODS}/a/eviction"), format!("{PODS}/a/binding"));
    let token = "/api/v1/namespaces/default/serviceaccounts/a/token";
    let scale = "/apis/apps/v1/namespaces/default/deployments/a/scale";
    // Path, method, and what is answered to metadata that is absent, null and a number.
    for (method, path, codes) in [
        ("POST", token, [201, 201, 400]),
        ("POST", &*eviction, [400, 400, 400]),
        ("POST", &*binding, [400, 400, 400]),
        ("POST", "/api/v1/namespaces/default/bindings", [400, 400, 400]),
        ("PUT", scale, [400, 400, 400]),
    ] {
        for (body, code) in [json!({}), json!({"metadata": null}), json!({"metadata": 5})].into_iter().zip(codes) {
            let answer = if method == "PUT" { cluster.put(path, &body).await } else { cluster.post(path, &body).await };
            assert_eq!(answer.code, code, "{method} {path} {body}: {:?}", answer.body);
            let event = audited.last().await;
            assert_eq!(event["responseStatus"]["code"], code, "{event}");
            if code == 400 {
                let message = answer.fails(400, "BadRequest");
                assert!(!message.contains("expected struct") && !message.contains("invalid type"), "{message}");
            }
        }
    }
}
