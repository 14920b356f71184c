//! The surface in the test's own process: no socket, no operator. Objects are made by the tests.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use konverge::kube::CustomResourceExt;
use konverge_apiserver::{Authentication, AuthorizationMode, MoreMetrics, Options, StaticTokens, UserInfo};

use super::*;
use crate::operator_crds::Definitions;

/// What the operator of these tests is for.
fn definition() -> Value {
    serde_json::to_value(application::Application::crd()).expect("JSON")
}

const APPS: &str = "/apis/cloudnative.elide.dev/v1/namespaces/default/applications";

struct World {
    frontend: Frontend,
    api: ApiServer,
    metrics: Metrics,
}

impl World {
    /// A developer's server that knows Applications.
    async fn new() -> Self {
        let world = Self::with(Options { lenient_updates: true, ..Options::default() }).await;
        let made = world.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await;
        assert_eq!(made.0, 201, "{}", made.1);
        world
    }

    /// What a user with a token is answered.
    async fn get_as(&self, token: &str, method: &str, path: &str) -> u16 {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        let request = request.header("content-type", "application/json").body(Full::from("{}")).expect("a request");
        self.send(request).await.status().as_u16()
    }

    async fn with(options: Options) -> Self {
        let metrics = Metrics::new();
        let shown = metrics.clone();
        let more_metrics = Some(MoreMetrics(Arc::new(move || shown.page())));
        let api = ApiServer::open(Options { more_metrics, ..options }).await.expect("a server");
        let operator = application::operator(&Metrics::new()).expect("an operator");
        let about = About {
            url: "http://127.0.0.1:3000".into(),
            storage: "memory".into(),
            operators: vec!["application"],
            project: None,
            webhooks: vec![Arc::new(operator.test_webhooks(konverge::kube::Client::new(api.clone(), "default")))],
            definitions: {
                let definitions = Definitions::default();
                definitions.add(definition());
                definitions
            },
            since: "2026-01-02T03:04:05Z".parse().expect("a time"),
        };
        let frontend = Frontend::dev(
            Access::Loopback,
            api.clone(),
            Companions { metrics: metrics.clone(), failing: Arc::new(Vec::new) },
            about,
        );
        Self { frontend: frontend.expect("a frontend"), api, metrics }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Response<Body> {
        self.frontend.clone().call(request).await.expect("an answer")
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let response = self.send(request.body(Full::from(body)).expect("a request")).await;
        let code = response.status().as_u16();
        let body = api_client::whole(response.into_body()).await;
        (code, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()))
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, &Value::Null).await
    }

    async fn watch(&self, path: &str, last: Option<&str>) -> Stream {
        let mut request = Request::get(path);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = self.send(request.body(Full::default()).expect("a request")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream(Box::pin(response.into_body()))
    }

    /// How many streams the metrics count.
    fn watching(&self) -> String {
        let page = self.metrics.page();
        page.lines().find_map(|line| line.strip_prefix("konverge_dev_watch_streams ")).expect("a gauge").to_owned()
    }
}

/// The events of a stream.
struct Stream(Pin<Box<Body>>);

impl Stream {
    /// The next piece, as it is sent.
    async fn piece(&mut self) -> String {
        let frame = tokio::time::timeout(Duration::from_secs(20), self.0.frame()).await.expect("something comes");
        let bytes = frame.expect("the stream goes on").expect("no error").into_data().expect("data");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    /// The next event in short: `ADDED name`, and its id.
    async fn event(&mut self) -> (String, String) {
        loop {
            let piece = self.piece().await;
            let field = |name: &str| piece.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            let Some(data) = field("data: ") else { continue };
            let data: Value = serde_json::from_str(&data).expect("JSON");
            assert_eq!(field("event: ").as_deref(), data["type"].as_str(), "{piece}");
            let object = &data["object"]["metadata"];
            let id = field("id: ").unwrap_or_default();
            assert_eq!(id, object["resourceVersion"].as_str().unwrap_or_default(), "{piece}");
            return (format!("{} {}", data["type"].as_str().unwrap(), object["name"].as_str().unwrap_or_default()), id);
        }
    }

    async fn briefs(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.event().await.0);
        }
        all
    }
}

fn app(name: &str, replicas: i32) -> Value {
    json!({"apiVersion": "cloudnative.elide.dev/v1", "kind": "Application", "metadata": {"name": name},
           "spec": {"replicas": replicas, "image": "nginx:latest"}})
}

/// A page is read with the rights of whoever asks for it.
#[tokio::test]
async fn pages_show_what_the_api_would_show() {
    let mut tokens = StaticTokens::default();
    tokens.add("bobs", UserInfo::named("bob"));
    let authentication = Authentication { tokens, ..Authentication::default() };
    let authorization = vec![AuthorizationMode::Rbac];
    let world = World::with(Options { authentication, authorization, ..Options::default() }).await;
    let master = world.api.acting_as(crate::users::master("test"));
    let client = konverge::kube::Client::new(master, "default");
    let make = async |path: &str, object: Value| {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).expect("a request");
        client.request::<Value>(request).await.expect("it is created");
    };
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let binding = |name: &str| {
        json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
               "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]})
    };
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/watch", "/events", "/validate", "/apis", "/api", "/apis/*", "/api/*"]}]);
    make(&format!("{rbac}/clusterroles"), role("paths", paths)).await;
    make(&format!("{rbac}/clusterrolebindings"), binding("paths")).await;
    assert_eq!(world.get_as("bobs", "GET", "/watch?kind=secrets").await, 403, "only the path is allowed");
    assert_eq!(world.get_as("bobs", "GET", "/events").await, 403);
    assert_eq!(world.get_as("bobs", "POST", "/validate").await, 403, "get is not post");
    let secrets = json!([{"verbs": ["list", "watch", "get"], "apiGroups": [""], "resources": ["secrets"]}]);
    make(&format!("{rbac}/clusterroles"), role("secrets", secrets)).await;
    make(&format!("{rbac}/clusterrolebindings"), binding("secrets")).await;
    assert_eq!(world.get_as("bobs", "GET", "/watch?kind=secrets").await, 200);
}

#[tokio::test]
async fn pages() {
    let world = World::new().await;
    for (method, path, code, part) in [
        ("GET", "/", 200, "\"endpoints\""),
        ("GET", "/healthz", 200, "ok"),
        ("GET", "/livez", 200, "ok"),
        ("GET", "/readyz", 200, "ok"),
        ("GET", "/readyz?verbose", 200, "readyz check passed"),
        ("GET", "/version", 200, "gitVersion"),
        ("GET", "/openapi/v3", 200, "paths"),
        ("GET", "/crd", 200, "\"applications.cloudnative.elide.dev\""),
        ("GET", "/crds", 200, "CustomResourceDefinitionList"),
        ("GET", "/leader", 200, "\"acquireTime\":\"2026-01-02T03:04:05.000000Z\""),
        ("GET", "/leader", 200, "\"elections\":[]"),
        ("GET", "/metrics", 200, "konverge_dev_watch_streams 0"),
        ("GET", "/events", 200, "EventList"),
        ("GET", "/events?since=never", 400, "since must be a time"),
        ("GET", "/events?what=ever", 400, "it has: namespace, object"),
        ("GET", "/watch?kind=Nothing", 400, "there is no kind \\\"Nothing\\\" to watch; there is: "),
        ("GET", "/watch?kind=node&namespace=default", 400, "a Node is in no namespace"),
        ("GET", "/watch?since=1", 400, "it has: kind, namespace"),
        ("GET", "/nowhere", 404, "GET / lists the pages"),
        ("GET", "/watch/x", 404, "there is no page"),
        ("POST", "/events", 405, "MethodNotAllowed"),
        ("GET", "/apis/nowhere.example/v1/things", 404, "404 page not found"),
    ] {
        let (got, body) = world.ask(method, path, &Value::Null).await;
        assert_eq!(got, code, "{method} {path}: {body}");
        assert!(body.to_string().contains(part), "{method} {path}: {body}");
        if code >= 400 && got != 404 {
            assert_eq!((&body["kind"], &body["code"]), (&json!("Status"), &json!(code)), "{path}");
        }
    }
    // A failing operator fails readiness and health, but not liveness: the API server works.
    let about = world.frontend.0.pages.as_ref().expect("pages").about.clone();
    let failing: FailingChecks = Arc::new(|| vec!["[-]operator x failed: why".to_owned()]);
    let ill =
        Frontend::dev(Access::Loopback, world.api.clone(), Companions { metrics: Metrics::new(), failing }, about)
            .expect("a frontend");
    let ill = World { frontend: ill, api: world.api.clone(), metrics: Metrics::new() };
    assert_eq!(ill.get("/readyz").await, (500, json!("[-]operator x failed: why\nreadyz check failed\n")));
    assert_eq!(ill.get("/healthz").await, (500, json!("[-]operator x failed: why\nhealthz check failed\n")));
    assert_eq!(ill.get("/livez").await, (200, json!("ok")));
    // Single checks are those of the API server, and no other method reads a check.
    assert_eq!(ill.get("/healthz/ping").await, (200, json!("ok")));
    assert_eq!(ill.get("/readyz/ping").await, (200, json!("ok")));
    assert_eq!(ill.ask("POST", "/readyz", &Value::Null).await.0, world.ask("POST", "/readyz", &Value::Null).await.0);
}

#[tokio::test]
async fn a_browser_gets_a_page() {
    let world = World::new().await;
    let request = Request::get("/").header("accept", "text/html,*/*;q=0.8").body(Full::default()).expect("a request");
    let response = world.send(request).await;
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    assert!(response.headers()["content-security-policy"].to_str().expect("text").starts_with("default-src 'none'"));
    let page = String::from_utf8(api_client::whole(response.into_body()).await.to_vec()).expect("text");
    for page_of in index::PAGES {
        assert!(page.contains(&format!("<code>{}</code>", page_of.path)), "{}", page_of.path);
    }
    assert!(page.contains("new EventSource('/watch?kind='") && !page.contains("{{"), "{page}");
    assert!(page.contains("<body data-kind=\"applications.cloudnative.elide.dev\" data-path=\"/apis/cloudnative.elide.dev/v1/applications\">"), "{page}");
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "nothing from elsewhere");
}

#[tokio::test]
async fn a_page_shows_one_kind() {
    let html = async |world: &World, path: &str| {
        let request = Request::get(path).header("accept", "text/html").body(Full::default()).expect("a request");
        let response = world.send(request).await;
        let code = response.status().as_u16();
        (code, String::from_utf8(api_client::whole(response.into_body()).await.to_vec()).expect("text"))
    };
    let (known, plain) = (World::new().await, World::with(Options::default()).await);
    for (world, path, expect) in [
        (&known, "/", "data-kind=\"applications.cloudnative.elide.dev\""),
        (&known, "/", "<a href=\"/?kind=applications.cloudnative.elide.dev\" aria-current=\"page\">Application</a>"),
        (&known, "/?kind=po", "<h2>Pod <"),
        // Where no definition is installed yet, there is still something to look at.
        (&plain, "/", "data-kind=\"deployments.apps\""),
    ] {
        let (code, page) = html(world, path).await;
        assert!(code == 200 && page.contains(expect), "{path}: {expect} is not in {page}");
    }
    for (path, expect) in [
        ("/?kind=%3Cscript%3E", "there is no kind \\\"<script>\\\" to watch"),
        ("/?knid=Pod", "/ has no parameter \\\"knid\\\"; it has: kind"),
    ] {
        let (code, page) = html(&known, path).await;
        assert!(code == 400 && page.contains(expect), "{path}: {page}");
    }
}

#[tokio::test]
async fn what_is_posted_makes_its_namespace() {
    let world = World::new().await;
    let posted = |namespace: &str| format!("/apis/cloudnative.elide.dev/v1/namespaces/{namespace}/applications");
    let (code, made) = world.ask("POST", &posted("test"), &app("a", 1)).await;
    assert_eq!((code, &made["metadata"]["namespace"]), (201, &json!("test")), "{made}");
    assert_eq!(world.get("/api/v1/namespaces/test").await.0, 200);

    // Only where something would be kept, and only custom resources.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    for (path, body, code) in [
        (posted("dry") + "?dryRun=All", app("a", 1), 404),
        ("/apis/nowhere.example/v1/namespaces/dry/things".into(), app("a", 1), 404),
        ("/api/v1/namespaces/dry/configmaps".into(), map, 404),
        ("/apis/apps/v1/namespaces/dry/deployments".into(), json!({}), 404),
        (posted("Not-A-Name"), app("a", 1), 404),
        (posted("dry"), json!("no object"), 400),
        (posted("dry"), json!({"too": "long".repeat(1 << 20)}), 413),
    ] {
        let (got, body) = world.ask("POST", &path, &body).await;
        assert_eq!(got, code, "{path}: {body}");
    }
    assert_eq!(world.get("/api/v1/namespaces/dry").await.0, 404);
}

#[tokio::test]
async fn custom_resources_are_replaced_without_their_version() {
    let world = World::new().await;
    world.ask("POST", APPS, &app("a", 1)).await;
    let (code, replaced) = world.ask("PUT", &format!("{APPS}/a"), &app("a", 5)).await;
    assert_eq!((code, &replaced["spec"]["replicas"], &replaced["metadata"]["generation"]), (200, &json!(5), &json!(2)));
    let mut old = app("a", 6);
    old["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(world.ask("PUT", &format!("{APPS}/a"), &old).await.0, 409);

    // A server that is not a developer's insists.
    let strict = World::with(Options::default()).await;
    strict.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await;
    strict.ask("POST", APPS, &app("a", 1)).await;
    let (code, refused) = strict.ask("PUT", &format!("{APPS}/a"), &app("a", 5)).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().expect("text").contains("metadata.resourceVersion"), "{refused}");
}

#[tokio::test]
async fn a_stream_begins_with_what_is_there_and_goes_on() {
    let world = World::new().await;
    for name in ["b", "a", "c"] {
        world.ask("POST", APPS, &app(name, 1)).await;
    }
    world.ask("PUT", &format!("{APPS}/b"), &app("b", 2)).await;
    let mut stream = world.watch("/watch", None).await;
    assert_eq!(stream.piece().await, "retry: 1000\n\n");
    // In the order in which they last changed.
    assert_eq!(stream.briefs(3).await, ["ADDED a", "ADDED c", "ADDED b"]);
    let mark = stream.piece().await;
    assert_eq!(mark, format!("id: {}\n\n", world.api.store().revision().0));
    world.ask("PUT", &format!("{APPS}/a"), &app("a", 3)).await;
    world.ask("POST", &APPS.replace("default", "other"), &app("d", 1)).await;
    world.ask("DELETE", &format!("{APPS}/c"), &Value::Null).await;
    assert_eq!(stream.briefs(3).await, ["MODIFIED a", "ADDED d", "DELETED c"]);

    let mut other = world.watch("/watch?namespace=other", None).await;
    assert_eq!(other.briefs(1).await, ["ADDED d"]);
    for kind in ["Namespace", "namespaces", "ns"] {
        let mut namespaces = world.watch(&format!("/watch?kind={kind}"), None).await;
        assert_eq!(namespaces.briefs(5).await.last().expect("some"), "ADDED other", "{kind}");
    }
}

#[tokio::test]
async fn a_stream_resumes_after_any_event() {
    let world = World::new().await;
    for name in ["b", "a"] {
        world.ask("POST", APPS, &app(name, 1)).await;
    }
    world.ask("PUT", &format!("{APPS}/b"), &app("b", 2)).await;
    let mut stream = world.watch("/watch", None).await;
    let (first, id) = stream.event().await;
    assert_eq!(first, "ADDED a");
    drop(stream);
    // What was there and had not been told yet comes as the change that it was.
    let mut stream = world.watch("/watch", Some(&id)).await;
    let (second, id) = stream.event().await;
    assert_eq!(second, "MODIFIED b");
    drop(stream);
    world.ask("DELETE", &format!("{APPS}/a"), &Value::Null).await;
    world.ask("POST", APPS, &app("c", 1)).await;
    let mut stream = world.watch("/watch", Some(&id)).await;
    assert_eq!(stream.briefs(2).await, ["DELETED a", "ADDED c"]);
    drop(stream);

    // Who comes too late, or from another life of the server, is told so and gets everything anew.
    world.api.store().compact(world.api.store().revision());
    for last in [id.as_str(), "999999"] {
        let mut stream = world.watch("/watch", Some(last)).await;
        assert_eq!(stream.briefs(3).await, ["RESYNC ", "ADDED b", "ADDED c"], "{last}");
    }
    let request = Request::get("/watch").header("last-event-id", "yesterday").body(Full::default()).expect("a request");
    assert_eq!(world.send(request).await.status(), 400);
}

#[tokio::test]
async fn who_goes_leaves_nothing_behind() {
    let world = World::new().await;
    assert_eq!(world.watching(), "0");
    let mut streams = Vec::new();
    for count in 1..=3 {
        streams.push(world.watch("/watch", None).await);
        assert_eq!(world.watching(), count.to_string());
    }
    // One that read, one that never did, one that waits.
    world.ask("POST", APPS, &app("a", 1)).await;
    assert_eq!(streams[0].briefs(1).await, ["ADDED a"]);
    streams.clear();
    assert_eq!(world.watching(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_shows_that_it_lives() {
    let world = World::new().await;
    let mut stream = world.watch("/watch", None).await;
    let mut quiet = 0;
    while quiet < 2 {
        let piece = stream.piece().await;
        match piece.as_str() {
            ": nothing new\n\n" => quiet += 1,
            piece => assert!(piece.starts_with("retry: ") || piece.starts_with("id: "), "{piece}"),
        }
    }
    // The end of the server is the end of the stream.
    world.api.shutdown();
    while let Some(frame) = stream.0.frame().await {
        let data = frame.expect("no error").into_data().expect("data");
        assert!(data.starts_with(b": ") || data.starts_with(b"id: "), "{data:?}");
    }
    drop(stream);
    assert_eq!(world.watching(), "0");
}

#[tokio::test]
async fn a_stream_that_nobody_reads_holds_no_objects() {
    let world = World::new().await;
    for name in ["a", "b", "c", "d"] {
        assert_eq!(world.ask("POST", APPS, &app(name, 1)).await.0, 201);
    }
    let mut stream = world.watch("/watch", None).await;
    assert_eq!(stream.event().await.0, "ADDED a");
    // What changes before its turn is told as it is then, and what goes is not told at all.
    assert_eq!(world.ask("PUT", &format!("{APPS}/b"), &app("b", 2)).await.0, 200);
    assert_eq!(world.ask("DELETE", &format!("{APPS}/c"), &Value::Null).await.0, 200);
    assert_eq!(stream.briefs(2).await, ["ADDED d", "ADDED b"]);
    assert_eq!(world.ask("PUT", &format!("{APPS}/b"), &app("b", 3)).await.0, 200);
    assert_eq!(world.ask("DELETE", &format!("{APPS}/d"), &Value::Null).await.0, 200);
    assert_eq!(stream.briefs(2).await, ["MODIFIED b", "DELETED d"]);
}

/// A review of an Application, as an API server sends it.
fn review(spec: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5", "operation": "CREATE", "name": "shop", "namespace": "default",
            "kind": {"group": "cloudnative.elide.dev", "version": "v1", "kind": "Application"},
            "resource": {"group": "cloudnative.elide.dev", "version": "v1", "resource": "applications"},
            "object": {
                "apiVersion": "cloudnative.elide.dev/v1", "kind": "Application",
                "metadata": {"name": "shop", "namespace": "default"}, "spec": spec,
            },
        },
    })
}

#[tokio::test]
async fn reviews_are_answered_by_the_webhooks_of_the_operators() {
    let world = World::new().await;
    let limits = json!({"limits": {"cpu": "1"}});
    for (spec, expect) in [
        (json!({"image": "nginx", "resources": limits}), Ok(None)),
        (json!({"image": "nginx"}), Ok(Some("spec.resources.limits is not set"))),
        (
            json!({"image": "nginx", "replicas": 101}),
            Err("spec.replicas: Invalid value: 101: must be between 0 and 100"),
        ),
        (json!({"image": "nginx", "replicas": -1}), Err("spec.replicas: Invalid value: -1: must be between 0 and 100")),
        (json!({"replicas": 1}), Err("spec.image: Required value: name the image to run")),
        (json!({"image": "quay.io/a/b"}), Err("must be from one of the registries gcr.io and docker.io")),
        (json!({"image": "library/ubuntu:22.04"}), Err("must not be the base image ubuntu")),
    ] {
        let (code, answer) = world.ask("POST", "/validate", &review(&spec)).await;
        let response = &answer["response"];
        assert_eq!((code, &answer["kind"], &response["uid"]), (200, &json!("AdmissionReview"), &json!("705ab4f5")));
        match expect {
            Ok(warning) => {
                assert_eq!(response["allowed"], true, "{spec}: {answer}");
                let warned = response["warnings"][0].as_str();
                assert!(warned.map(|text| &text[..warning.unwrap_or_default().len()]) == warning, "{spec}: {answer}");
            }
            Err(why) => {
                assert_eq!(
                    (&response["allowed"], &response["status"]["code"]),
                    (&json!(false), &json!(422)),
                    "{answer}"
                );
                assert!(response["status"]["message"].as_str().unwrap_or_default().contains(why), "{spec}: {answer}");
            }
        }
    }
    let (_, answer) = world.ask("POST", "/mutate", &review(&json!({"image": "nginx"}))).await;
    let mut object = review(&json!({"image": "nginx"}))["request"]["object"].take();
    review::apply(&mut object, answer["response"]["patch"].as_str().expect("a patch")).expect("it applies");
    assert_eq!(object["spec"], json!({"image": "nginx", "replicas": 1, "strategy": "RollingUpdate"}));
    assert_eq!(
        object["metadata"]["labels"],
        json!({
            "app.kubernetes.io/name": "shop", "app.kubernetes.io/instance": "shop",
            "app.kubernetes.io/managed-by": "application",
        })
    );
    // Nobody has webhooks for this kind.
    let mut other = review(&json!({}));
    other["request"]["resource"] = json!({"group": "", "version": "v1", "resource": "secrets"});
    assert_eq!(world.ask("POST", "/validate", &other).await.1["response"], json!({"uid": "705ab4f5", "allowed": true}));

    let mut odd = review(&json!({}));
    odd["request"]["operation"] = json!("PAINT");
    for (method, body, expect) in [
        ("GET", Value::Null, 405),
        ("POST", json!("no review"), 400),
        ("POST", json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), 400),
        ("POST", odd, 400),
    ] {
        assert_eq!(world.ask(method, "/validate", &body).await.0, expect, "{method} {body}");
    }
}
