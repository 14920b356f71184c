//! What an operator writes, as the server sees it. In: every request of the embedded server. Out: the writes of the operator, in their order. It can also
//! hold the answer to a write, so that the operator is killed in the middle of a reconcile, and refuse the first attempt of each write.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, header};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tower_service::Service;

use konverge_apiserver::Body;
use konverge_core::Status;

use crate::frontend::{Frontend, failure};

/// How many writes are kept. An operator that makes more than this has no steady state; the rest is counted only.
const MOST_WRITES: usize = 10_000;

/// How many different writes are refused: an operator that writes more than this has shown what it does about refusals.
const MOST_REFUSALS: usize = 200;

/// Groups of kinds that an operator does not reconcile: questions about rights, the Leases that say who leads, and webhooks and CRDs, into which it writes where
/// it listens and which certificate it has. Without a Secret of the cluster that is another one at each start.
const BESIDE: [&str; 5] = [
    "authorization.k8s.io",
    "authentication.k8s.io",
    "coordination.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
];

/// What a path of the API names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Target {
    pub group: String,
    pub version: String,
    /// Empty for objects that are in no namespace.
    pub namespace: String,
    pub plural: String,
    /// Empty for the creation of an object.
    pub name: String,
    pub subresource: String,
}

impl Target {
    /// What a path names; nothing for paths that are about no object.
    pub(super) fn of(path: &str) -> Option<Self> {
        let mut words = path.trim_matches('/').split('/');
        let (group, version) = match words.next()? {
            "api" => (String::new(), words.next()?),
            "apis" => (words.next()?.to_owned(), words.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = words.collect();
        let (namespace, rest) = match rest.as_slice() {
            // A namespace itself has the path /namespaces/NAME.
            ["namespaces", namespace, plural, ..] if !["status", "finalize"].contains(plural) => {
                (*namespace, &rest[2..])
            }
            _ => ("", &rest[..]),
        };
        let word = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        let (version, namespace) = (version.to_owned(), namespace.to_owned());
        (!rest.is_empty()).then(|| Self {
            group,
            version,
            namespace,
            plural: word(0),
            name: word(1),
            subresource: word(2),
        })
    }

    /// Whether it is about nothing that an operator reconciles.
    fn is_beside(&self) -> bool {
        BESIDE.contains(&self.group.as_str())
    }

    /// Whether it is a kind of events.
    pub(super) fn is_event(&self) -> bool {
        self.plural == "events"
    }

    /// The path of the list that the object is in.
    pub(super) fn list(&self) -> String {
        let root = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        format!("{root}/{}", self.plural)
    }
}

/// `deployments shop/web/status`
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.plural)?;
        for part in [&self.namespace, &self.name, &self.subresource].into_iter().filter(|part| !part.is_empty()) {
            write!(f, "/{part}")?;
        }
        Ok(())
    }
}

/// A write that the server stored or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub method: String,
    pub target: Target,
    pub code: u16,
}

/// `PATCH deployments /shop/web`
impl std::fmt::Display for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.target)
    }
}

/// The record of a server. Clones share it.
#[derive(Clone, Default)]
pub(super) struct WriteRecord(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    held: Notify,
}

#[derive(Default)]
struct State {
    /// The credentials of the operators whose writes are recorded.
    tokens: HashSet<String>,
    stored: Vec<Write>,
    /// How many writes were stored, also those that are not kept.
    count: usize,
    refused: Vec<Write>,
    mode: Mode,
}

/// What happens to writes.
#[derive(Default)]
enum Mode {
    #[default]
    Pass,
    /// The next write is stored, and its answer is held for good.
    HoldNext,
    /// An answer is held, and so are all that follow, until the operator is gone.
    Holding,
    /// The first attempt of each write is refused.
    RefuseFirst(HashSet<(String, Target)>),
}

impl WriteRecord {
    /// Records the writes that are made with this token.
    pub(super) fn follow(&self, token: &str) {
        self.0.state.lock().tokens.insert(token.to_owned());
    }

    /// How many writes were stored.
    pub(super) fn count(&self) -> usize {
        self.0.state.lock().count
    }

    /// The writes that were stored after the first `from`.
    pub(super) fn since(&self, from: usize) -> Vec<Write> {
        self.0.state.lock().stored.iter().skip(from).cloned().collect()
    }

    /// The writes that the server refused by itself.
    pub(super) fn refused(&self) -> Vec<Write> {
        self.0.state.lock().refused.clone()
    }

    /// Stores the next write and never answers it. [`WriteRecord::held`] tells when that is so.
    pub(super) fn hold_next(&self) {
        self.0.state.lock().mode = Mode::HoldNext;
    }

    /// Refuses the first attempt of each write with 503, as a server in trouble does.
    pub(super) fn refuse_first(&self) {
        self.0.state.lock().mode = Mode::RefuseFirst(HashSet::new());
    }

    /// Lets all writes pass again.
    pub(super) fn pass(&self) {
        self.0.state.lock().mode = Mode::Pass;
    }

    /// How many different writes were refused on purpose.
    pub(super) fn refused_on_purpose(&self) -> usize {
        match &self.0.state.lock().mode {
            Mode::RefuseFirst(seen) => seen.len(),
            _ => 0,
        }
    }

    /// Waits until an answer is held.
    pub(super) async fn held(&self) {
        self.0.held.notified().await;
    }

    /// What a request writes, if it is one of the operator and writes something.
    fn target<B>(&self, request: &Request<B>) -> Option<Target> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let is_tried = request.uri().query().is_some_and(|query| query.contains("dryRun=All"));
        if is_read || is_tried {
            return None;
        }
        let header = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
        let token = header.strip_prefix("Bearer ")?;
        let target = Target::of(request.uri().path()).filter(|target| !target.is_beside())?;
        self.0.state.lock().tokens.contains(token).then_some(target)
    }

    /// Whether a write is refused on purpose.
    fn refuses(&self, method: &str, target: &Target) -> bool {
        match &mut self.0.state.lock().mode {
            Mode::RefuseFirst(seen) => seen.len() < MOST_REFUSALS && seen.insert((method.to_owned(), target.clone())),
            // What comes from a process that is about to be killed must not be stored any more.
            Mode::Holding => true,
            Mode::Pass | Mode::HoldNext => false,
        }
    }

    /// Records a write; whether its answer is held.
    fn note(&self, write: Write) -> bool {
        let mut state = self.0.state.lock();
        if !(200..300).contains(&write.code) {
            if state.refused.len() < MOST_WRITES {
                state.refused.push(write);
            }
            return false;
        }
        state.count += 1;
        if state.stored.len() < MOST_WRITES {
            state.stored.push(write);
        }
        let holds = matches!(state.mode, Mode::HoldNext);
        if holds {
            state.mode = Mode::Holding;
            self.0.held.notify_one();
        }
        holds
    }
}

/// A frontend whose writes are recorded.
#[derive(Clone)]
pub(super) struct RecordedFrontend {
    pub inner: Frontend,
    pub record: WriteRecord,
}

impl<B> Service<Request<B>> for RecordedFrontend
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some(target) = self.record.target(&request) else { return self.inner.call(request) };
        let method = request.method().to_string();
        if self.record.refuses(&method, &target) {
            let status =
                Status::failure(503, "ServiceUnavailable", "the scorecard refuses the first attempt of each write");
            return Box::pin(std::future::ready(Ok(failure(&status))));
        }
        let (record, answered) = (self.record.clone(), self.inner.call(request));
        Box::pin(async move {
            let response = answered.await?;
            if record.note(Write { method, target, code: response.status().as_u16() }) {
                // The connection ends with the process that waits for this answer, and this future with it.
                std::future::pending::<()>().await;
            }
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_names() {
        let check = |path: &str, expect: Option<[&str; 6]>| {
            let found = Target::of(path).map(|target| {
                [target.group, target.version, target.namespace, target.plural, target.name, target.subresource]
            });
            assert_eq!(found, expect.map(|words| words.map(str::to_owned)), "{path}");
        };
        check("/api/v1/namespaces/shop/pods/a/status", Some(["", "v1", "shop", "pods", "a", "status"]));
        check("/api/v1/namespaces/shop", Some(["", "v1", "", "namespaces", "shop", ""]));
        check("/api/v1/namespaces/shop/finalize", Some(["", "v1", "", "namespaces", "shop", "finalize"]));
        check("/apis/apps/v1/namespaces/shop/deployments", Some(["apps", "v1", "shop", "deployments", "", ""]));
        check("/apis/example.com/v1/worlds/a", Some(["example.com", "v1", "", "worlds", "a", ""]));
        for path in ["/healthz", "/apis/apps", "/apis/apps/v1", "/"] {
            check(path, None);
        }
    }

    fn write(code: u16) -> Write {
        let target = Target::of("/api/v1/namespaces/a/configmaps/b").expect("a path");
        Write { method: "PATCH".into(), target, code }
    }

    fn request(method: &str, path: &str, token: &str) -> Request<()> {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        request.body(()).expect("a request")
    }

    #[test]
    fn only_writes_of_the_operator_are_recorded() {
        let record = WriteRecord::default();
        record.follow("its-own");
        let path = "/api/v1/namespaces/a/configmaps/b";
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
        for (method, path, token, expect) in [
            ("PATCH", path, "its-own", true),
            ("DELETE", path, "its-own", true),
            ("PATCH", path, "another", false),
            ("GET", path, "its-own", false),
            ("PUT", lease, "its-own", false),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "its-own", false),
            ("PATCH", &format!("{path}?dryRun=All"), "its-own", false),
        ] {
            assert_eq!(record.target(&request(method, path, token)).is_some(), expect, "{method} {path} {token}");
        }
    }

    #[test]
    fn what_is_stored_is_counted_and_one_answer_is_held() {
        let record = WriteRecord::default();
        assert!(!record.note(write(200)) && !record.note(write(409)));
        assert_eq!((record.count(), record.refused().len()), (1, 1));
        record.hold_next();
        assert!(!record.refuses("PATCH", &write(0).target));
        assert!(record.note(write(201)), "the next one is held");
        assert!(record.refuses("PATCH", &write(0).target), "nothing is stored behind it");
        record.pass();
        assert!(!record.note(write(200)));
        assert_eq!((record.since(1).len(), record.count()), (2, 3));
    }

    #[test]
    fn each_write_is_refused_once() {
        let record = WriteRecord::default();
        record.refuse_first();
        let target = write(0).target;
        let refused: Vec<bool> = [("PATCH", &target), ("PATCH", &target), ("DELETE", &target)]
            .map(|(method, target)| record.refuses(method, target))
            .into();
        assert_eq!((refused, record.refused_on_purpose()), (vec![true, false, true], 2));
    }
}
