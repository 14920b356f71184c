//! The server of one test, and the way to it. In: requests of clients. Out: answers, the server's or those the test
//! wants, and a record of both. It starts with the first request, so that a test can say beforehand what is there.
//!
//! ```text
//! start (once) → record → react → server
//! ```

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use konverge::testing::{LocalHandler, Retry, ServedLocally, retry};
use konverge::{Error, NotServed, RequestInfo, Result, Rules};
use konverge_apiserver::{ApiServer, AuthorizationMode, Body, Options, UserInfo, Versions};
use kube::client::Body as ClientBody;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tower_service::Service;

use crate::call::{Call, Calls, Verb};
use crate::kinds::{Kinds, Served};
use crate::permissions::Accounts;
use crate::react::{End, Fate, Rule, fate, lost, unreachable};
use crate::seed::Seeded;

type BoxError = Box<dyn StdError + Send + Sync>;

/// The server, the objects it starts with, the recorded calls, and the scripted failures. Clones share all of it.
#[derive(Clone, Default)]
pub(crate) struct Machine(Arc<Inner>);

#[derive(Default)]
struct Inner {
    server: OnceCell<ApiServer>,
    seeds: Mutex<Vec<Seeded>>,
    kinds: Kinds,
    log: Mutex<Log>,
    used: Mutex<Rules>,
    rules: Mutex<Vec<Rule>>,
    webhooks: Mutex<Webhooks>,
    accounts: Accounts,
}

/// Who answers the webhooks of a host. Replicas of an operator share one, and the newest answers.
#[derive(Default)]
struct Webhooks {
    count: u64,
    handlers: Vec<(String, u64, LocalHandler)>,
}

/// The calls, but for those that were forgotten.
#[derive(Default)]
struct Log {
    forgotten: usize,
    calls: Vec<Call>,
}

impl Machine {
    /// Something more to start with. Too late once the server runs.
    pub(crate) fn add_seed(&self, seed: Seeded) {
        assert!(
            !self.0.server.initialized(),
            "with(…) says what is there at the start; the server runs already: use create(…)"
        );
        self.0.seeds.lock().push(seed);
    }

    pub(crate) fn add_rule(&self, rule: Rule) {
        self.0.rules.lock().push(rule);
    }

    pub(crate) fn calls(&self) -> Calls {
        Calls(self.0.log.lock().calls.clone())
    }

    /// What all calls so far took to be allowed.
    pub(crate) fn used(&self) -> Rules {
        self.0.used.lock().clone()
    }

    /// The users that operators act as.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.0.accounts
    }

    pub(crate) fn forget_calls(&self) {
        let mut log = self.0.log.lock();
        log.forgotten += log.calls.len();
        log.calls.clear();
    }

    /// The server itself: neither recorded nor reacted to.
    pub(crate) async fn server(&self) -> Result<&ApiServer> {
        self.0.server.get_or_try_init(|| self.start()).await
    }

    /// Lets the server send the requests for webhooks of a host to this handler until the returned value is dropped. The server
    /// has to run.
    pub(crate) fn serve_webhooks(&self, host: &str, handler: LocalHandler) -> ServedLocally {
        let mut webhooks = self.0.webhooks.lock();
        webhooks.count += 1;
        let number = webhooks.count;
        webhooks.handlers.push((host.to_owned(), number, handler));
        self.register_newest(&webhooks, host);
        Box::new(ServedUntilDropped { machine: self.clone(), host: host.to_owned(), number })
    }

    fn register_newest(&self, webhooks: &Webhooks, host: &str) {
        let newest = webhooks.handlers.iter().rev().find(|(of, ..)| of == host).map(|(.., handler)| handler.clone());
        if let Some(server) = self.0.server.get() {
            server.register_webhooks(host, newest);
        }
    }

    async fn start(&self) -> Result<ApiServer> {
        // The same versions in every run, so that what a test compares or prints does not change.
        let authorization = vec![AuthorizationMode::Other(Arc::new(self.0.accounts.clone()))];
        let options = Options { versions: Versions::After(0), authorization, ..Options::default() };
        let server = ApiServer::open(options).await?;
        let mut seeds = self.0.seeds.lock().clone();
        let mut installed: Vec<Value> = Vec::new();
        for definition in seeds.iter_mut().filter_map(|seed| seed.definition.take()) {
            if !installed.contains(&definition) {
                self.place(&server, definition.clone()).await?;
                installed.push(definition);
            }
        }
        let objects = seeds.into_iter().filter_map(|seed| seed.object);
        // Kinds and namespaces have to be there before the objects that need them.
        let is_first =
            |object: &Value| matches!(object["kind"].as_str(), Some("CustomResourceDefinition" | "Namespace"));
        let (first, others): (Vec<Value>, Vec<Value>) = objects.partition(is_first);
        for object in first {
            self.place(&server, object).await?;
        }
        for object in others {
            if let Some(namespace) = object["metadata"]["namespace"].as_str() {
                let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
                match ask(&server, Method::POST, "/api/v1/namespaces", Some(&object)).await {
                    Ok(_) | Err(Refused { code: 409, .. }) => {}
                    Err(refused) => return Err(refused.into()),
                }
            }
            self.place(&server, object).await?;
        }
        Ok(server)
    }

    /// Creates an object as it stands: with its status, and on its way out if it has a deletionTimestamp.
    pub(crate) async fn place(&self, server: &ApiServer, mut object: Value) -> Result<Value> {
        let collection = self.collection(server, &mut object).await?;
        let status = object["status"].take();
        let leaving = object["metadata"]["deletionTimestamp"].take() != Value::Null;
        if leaving && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
            let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
            return Err(Error::permanent(format!(
                "{kind} {name} has a deletionTimestamp but no finalizer that would keep it from being gone"
            )));
        }
        // What only a server may set.
        for field in ["resourceVersion", "uid", "creationTimestamp", "generation"] {
            object["metadata"][field] = Value::Null;
        }
        let mut placed = ask(server, Method::POST, &collection, Some(&object)).await?;
        let path = format!("{collection}/{}", placed["metadata"]["name"].as_str().unwrap_or_default());
        if !status.is_null() && placed["status"] != status {
            placed["status"] = status;
            placed = ask(server, Method::PUT, &format!("{path}/status"), Some(&placed)).await?;
        }
        if leaving {
            ask(server, Method::DELETE, &path, None).await?;
            placed = ask(server, Method::GET, &path, None).await?;
        }
        Ok(placed)
    }

    /// The path under which objects like this one are; an object without a namespace goes into `default`.
    async fn collection(&self, server: &ApiServer, object: &mut Value) -> Result<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let named = |served: &Served| served.kind == kind;
        let Some(served) = self.0.kinds.find(server, group, version, named).await else {
            return Err(unknown_kind(&kind, &api_version));
        };
        let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        if !served.namespaced {
            return Ok(format!("{root}/{version}/{}", served.plural));
        }
        let namespace = match object["metadata"]["namespace"].as_str() {
            Some(namespace) if !namespace.is_empty() => namespace.to_owned(),
            _ => "default".to_owned(),
        };
        object["metadata"]["namespace"] = namespace.as_str().into();
        Ok(format!("{root}/{version}/namespaces/{namespace}/{}", served.plural))
    }

    /// Remembers a call; its number is for when it is answered.
    async fn record(&self, server: &ApiServer, asked: &RequestInfo, body: &[u8]) -> usize {
        let plural = |served: &Served| served.plural == asked.resource;
        let served = self.0.kinds.find(server, &asked.group, &asked.version, plural).await;
        let body: Option<Value> = serde_json::from_slice(body).ok();
        let name_inside = || body.as_ref()?["metadata"]["name"].as_str().map(str::to_owned);
        let name = asked.name.clone().or_else(|| if asked.verb == Verb::Create { name_inside() } else { None });
        let call = Call {
            verb: asked.verb,
            group: asked.group.clone(),
            kind: served.map_or_else(|| asked.resource.clone(), |served| served.kind),
            subresource: asked.subresource.clone(),
            namespace: asked.namespace.clone(),
            name,
            body,
            code: None,
        };
        let mut log = self.0.log.lock();
        log.calls.push(call);
        log.forgotten + log.calls.len() - 1
    }

    fn answered(&self, call: usize, code: u16) {
        let mut log = self.0.log.lock();
        // It may have been forgotten meanwhile.
        let at = call.checked_sub(log.forgotten);
        if let Some(call) = at.and_then(|at| log.calls.get_mut(at)) {
            call.code = Some(code);
        }
    }

    async fn serve(self, request: Request<ClientBody>) -> Result<Response<Body>, BoxError> {
        let server = self.server().await.map_err(|error| format!("{error:#}"))?;
        let mut service = server.clone();
        let (parts, body) = request.into_parts();
        let asked = RequestInfo::of(&parts);
        if !asked.is_resource() {
            let Ok(response) = service.call(Request::from_parts(parts, body)).await;
            return Ok(response);
        }
        self.0.used.lock().extend(Rules::of_request(&asked));
        let body = body.collect().await?.to_bytes();
        let call = self.record(server, &asked, &body).await;
        let Fate { delay, end } = fate(&mut self.0.rules.lock(), &asked);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let response = match &end {
            End::Unreachable => return Err(unreachable().into()),
            End::Refused(refusal) => refusal.response(&asked),
            End::Served | End::Lost => {
                let Ok(response) = service.call(Request::from_parts(parts, Body::full(body))).await;
                response
            }
        };
        if let End::Lost = end {
            return Err(lost().into());
        }
        self.answered(call, response.status().as_u16());
        Ok(response)
    }
}

impl Service<Request<ClientBody>> for Machine {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ClientBody>) -> Self::Future {
        Box::pin(self.clone().serve(request))
    }
}

/// Ends what [`Machine::serve_webhooks`] began.
struct ServedUntilDropped {
    machine: Machine,
    host: String,
    number: u64,
}

impl Drop for ServedUntilDropped {
    fn drop(&mut self) {
        let mut webhooks = self.machine.0.webhooks.lock();
        webhooks.handlers.retain(|(_, number, _)| *number != self.number);
        self.machine.register_newest(&webhooks, &self.host);
    }
}

/// The way to the server for an operator, as its user.
#[derive(Clone)]
pub(crate) struct ActingAs {
    pub machine: Machine,
    pub user: Arc<UserInfo>,
}

impl Service<Request<ClientBody>> for ActingAs {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<ClientBody>) -> Self::Future {
        request.extensions_mut().insert(self.user.clone());
        self.machine.call(request)
    }
}

/// Why the server did not do what the test itself asked for.
#[derive(Debug)]
pub(crate) struct Refused {
    pub code: u16,
    message: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Refused {}

/// One request of the test itself.
pub(crate) async fn ask(
    server: &ApiServer,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Refused> {
    let bytes = body.map(Value::to_string).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::full(bytes))
        .map_err(|error| Refused { code: 0, message: format!("{path} is no path: {error}") })?;
    let Ok(response) = server.clone().call(request).await;
    let code = response.status();
    let Ok(body) = response.into_body().collect().await;
    let body = body.to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if code.is_success() {
        return Ok(answer);
    }
    let message = match answer["message"].as_str() {
        Some(message) => message.to_owned(),
        None => format!("{path}: {}", String::from_utf8_lossy(&body)),
    };
    Err(Refused { code: code.as_u16(), message })
}

/// How a test installs the CRD of a kind.
fn install_hint(kind: &str) -> String {
    format!(
        "install its CRD in the test: with cluster.install::<{kind}>() or Fake::new().knows::<{kind}>() if it has a Rust type \
         that knows its CRD, otherwise with cluster.create(crd) or Fake::new().with(crd), where crd is the \
         CustomResourceDefinition as JSON"
    )
}

/// An error that says how to install the kind in a test, too, if a kind is not served. What would become of the object stays
/// the same.
pub(crate) fn with_install_hint(error: Error) -> Error {
    #[derive(Debug)]
    struct WithHint(String, NotServed);

    impl std::fmt::Display for WithHint {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl StdError for WithHint {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.1)
        }
    }

    let Some(not_served) = error.find::<NotServed>() else { return error };
    let hinted = WithHint(format!("{error:#}; {}", install_hint(&not_served.kind)), not_served.clone());
    let hinted = match retry(&error) {
        Retry::UntilChanged => Error::permanent(hinted),
        Retry::After(pause) => Error::retry_after(pause, hinted),
        _ => Error::new(hinted),
    };
    hinted.reason(error.get_reason())
}

/// The error for kinds that the server does not serve.
pub(crate) fn unknown_kind(kind: &str, api_version: &str) -> Error {
    Error::permanent(format!("the server does not serve {kind} of {api_version}; {}", install_hint(kind)))
}
