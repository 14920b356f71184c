//! Instances of two releases and one API server, whose configurations each of them may overwrite.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use konverge_runtime::{Seat, Term};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tower_service::Service;

use super::*;
use crate::settings::Settings;
use crate::webhook::{Admission, Webhook};

const SECOND: Duration = Duration::from_secs(1);

/// An API server with one configuration and one CRD. An apply of the operator's manager replaces what the manager applied before.
#[derive(Clone, Default)]
struct Configurations(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    stored: Option<Value>,
    definition: Option<Value>,
    version: u64,
    applies: u32,
}

impl Configurations {
    fn answer(&self, method: &Method, path: &str, body: &Bytes) -> (StatusCode, Value) {
        let mut state = self.0.lock();
        let State { stored, definition, version, applies } = &mut *state;
        let stored = if path.contains("customresourcedefinitions") { definition } else { stored };
        if *method == Method::PATCH {
            let sent: Value = serde_json::from_slice(body).expect("an object");
            *applies += 1;
            let has_changed = stored
                .as_ref()
                .is_none_or(|stored| stored["webhooks"] != sent["webhooks"] || stored["spec"] != sent["spec"]);
            *version += u64::from(has_changed);
            stored.insert(sent)["metadata"]["resourceVersion"] = version.to_string().into();
        }
        match stored {
            Some(stored) => (StatusCode::OK, stored.clone()),
            None => {
                (StatusCode::NOT_FOUND, json!({"status": "Failure", "code": 404, "reason": "NotFound", "message": ""}))
            }
        }
    }

    /// The names of the webhooks that the API server calls, and how often it was told of some.
    fn told(&self) -> (Vec<String>, u32) {
        let state = self.0.lock();
        let webhooks = state.stored.as_ref().and_then(|stored| stored["webhooks"].as_array().cloned());
        let names = webhooks.into_iter().flatten().filter_map(|entry| entry["name"].as_str().map(str::to_owned));
        (names.collect(), state.applies)
    }
}

impl Service<Request<Body>> for Configurations {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let (code, answer) = server.answer(&head.method, head.uri.path(), &body);
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = code;
            Ok(response)
        })
    }
}

/// An instance of a release that has these webhooks.
fn instance(server: &Configurations, leadership: Leadership, webhooks: &[&str]) -> Registrar {
    let settings = Settings { name: "shops".into(), ..Settings::default() };
    let webhook = |name: &&str| {
        let webhook = Webhook::validating(|_: Admission<Pod>| async { Ok(()) }).named(format!("{name}.example.com"));
        webhook.spec().clone()
    };
    Registrar {
        trust: None,
        callers: None,
        place: Place::of(&settings, "default"),
        certificates: Certificates::in_memory(&["localhost".to_owned()], SystemTime::now()).expect("a certificate"),
        client: Client::new(server.clone(), "default"),
        leadership,
        field_manager: "shops".into(),
        webhooks: webhooks.iter().map(webhook).collect(),
        versions: Vec::new(),
        converts: Arc::default(),
        metrics: Metrics::default(),
        known: None,
        told: None,
        refused: None,
    }
}

fn lead(seat: &Seat, number: u64) {
    let term = Term { number, holder: "a".into(), fence: None };
    seat.lead(term, tokio::time::Instant::now() + 1000 * SECOND);
}

/// Whoever overwrites what the only instance told, and whatever is deleted, is found within a minute.
#[tokio::test]
async fn what_others_changed_is_told_again() {
    let server = Configurations::default();
    let mut old = instance(&server, Leadership::always("old"), &["first"]);
    let mut new = instance(&server, Leadership::always("new"), &["first", "second"]);
    let (time, begun) = (SystemTime::now(), Instant::now());
    old.step(time, begun).await.unwrap();
    new.step(time, begun + SECOND).await.unwrap();
    let both = vec!["first.example.com".to_owned(), "second.example.com".to_owned()];
    assert_eq!(server.told(), (both.clone(), 2));
    // The old instance looks once more before it ends, and takes the second webhook away.
    old.step(time, begun + COMPARE_AFTER).await.unwrap();
    assert_eq!(server.told().0, ["first.example.com"]);
    new.step(time, begun + COMPARE_AFTER + SECOND).await.unwrap();
    assert_eq!(server.told(), (both.clone(), 4));
    // Nothing is written while nothing changes.
    for minute in 2..9 {
        new.step(time, begun + minute * COMPARE_AFTER + SECOND).await.unwrap();
    }
    assert_eq!(server.told(), (both.clone(), 4));
    server.0.lock().stored = None;
    new.step(time, begun + 10 * COMPARE_AFTER).await.unwrap();
    assert_eq!(server.told(), (both, 5));
}

/// With leader election two releases do not overwrite each other: the entries are those of the leader.
#[tokio::test]
async fn only_the_leader_tells() {
    let server = Configurations::default();
    let ((old_leads, old_seat), (new_leads, new_seat)) = (Leadership::vacant(), Leadership::vacant());
    let mut old = instance(&server, old_leads, &["first"]);
    let mut new = instance(&server, new_leads, &["first", "second"]);
    let (time, begun) = (SystemTime::now(), Instant::now());
    // Nobody leads yet, and nobody has told.
    old.step(time, begun).await.unwrap();
    assert_eq!(server.told(), (vec!["first.example.com".to_owned()], 1));
    lead(&old_seat, 1);
    for second in 1..200 {
        old.step(time, begun + second * SECOND).await.unwrap();
        new.step(time, begun + second * SECOND).await.unwrap();
    }
    assert_eq!(server.told(), (vec!["first.example.com".to_owned()], 1));
    // The new release takes over.
    old_seat.follow(None);
    lead(&new_seat, 2);
    new.step(time, begun + 200 * SECOND).await.unwrap();
    for second in 200..400 {
        old.step(time, begun + second * SECOND).await.unwrap();
        new.step(time, begun + second * SECOND).await.unwrap();
    }
    let both = vec!["first.example.com".to_owned(), "second.example.com".to_owned()];
    assert_eq!(server.told(), (both, 2));
}

/// A release that is about to take over serves conversions that the leader knows nothing of: it tells of them at once, and of nothing else.
#[tokio::test]
async fn a_standby_tells_what_nobody_has_told() {
    let server = Configurations::default();
    let (standby, _seat) = Leadership::vacant();
    let mut new = instance(&server, standby, &[]);
    new.versions = vec!["shops.example.com".to_owned()];
    let (time, begun) = (SystemTime::now(), Instant::now());
    let conversion = |server: &Configurations| {
        server.0.lock().definition.as_ref().map(|crd| crd["spec"]["conversion"]["strategy"].clone())
    };
    assert!(new.step(time, begun).await.is_err(), "the CRD is not installed");
    server.0.lock().definition =
        Some(json!({"metadata": {"name": "shops.example.com", "resourceVersion": "1"}, "spec": {}}));
    new.step(time, begun + TRY_AGAIN_AFTER).await.unwrap();
    assert_eq!((conversion(&server), server.told().1), (Some("Webhook".into()), 1));
    for minute in 1..9 {
        new.step(time, begun + minute * COMPARE_AFTER + TRY_AGAIN_AFTER).await.unwrap();
    }
    assert_eq!(server.told().1, 1, "it is told already");
}

/// The leader of the former release has other webhooks. A standby that told of conversions tells of its own webhooks once it leads.
#[tokio::test]
async fn a_standby_that_told_a_part_tells_the_rest_when_it_leads() {
    let server = Configurations::default();
    let (time, begun) = (SystemTime::now(), Instant::now());
    instance(&server, Leadership::always("old"), &["first"]).step(time, begun).await.unwrap();
    server.0.lock().definition =
        Some(json!({"metadata": {"name": "shops.example.com", "resourceVersion": "1"}, "spec": {}}));
    let (standby, seat) = Leadership::vacant();
    let mut new = instance(&server, standby, &["second"]);
    new.versions = vec!["shops.example.com".to_owned()];
    new.step(time, begun).await.unwrap();
    assert_eq!(server.told(), (vec!["first.example.com".to_owned()], 2), "only the conversion was missing");
    lead(&seat, 1);
    new.step(time, begun + SECOND).await.unwrap();
    assert_eq!(server.told(), (vec!["second.example.com".to_owned()], 4));
}

#[tokio::test]
async fn a_panic_ends_one_round() {
    /// Panics in the second round, and then says that it goes on.
    fn round((rounds, told): &mut (u32, mpsc::UnboundedSender<u32>)) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            *rounds += 1;
            let _ = told.send(*rounds);
            assert_ne!(*rounds, 2, "nobody thought of this");
            // Long enough for the test to look before the next round.
            tokio::time::sleep(if *rounds > 3 { 1000 * SECOND } else { Duration::ZERO }).await;
        })
    }
    let (told, mut rounds) = mpsc::unbounded_channel();
    let liveness = Arc::new(Liveness::of("the task that registers webhooks"));
    let lives = liveness.clone();
    let task = tokio::spawn(async move { keep_going(&lives, (0, told), round).await });
    while rounds.recv().await.expect("it goes on") < 2 {}
    while liveness.check().is_ok() {
        tokio::task::yield_now().await;
    }
    let why = liveness.check().unwrap_err();
    assert!(why.starts_with("the task that registers webhooks panicked: "), "{why}");
    while rounds.recv().await.expect("it goes on") < 4 {}
    assert_eq!(liveness.check(), Ok(()));
    task.abort();
}
