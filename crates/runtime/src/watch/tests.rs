//! Idle watches over connections that may be half open, and a server with a short history.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_apiserver::{ApiServer, Options};
use konverge_core::ObjectKey;
use kube::ResourceExt;
use kube::api::PostParams;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tower_service::Service;

use super::body::{ResponseBody, Resumption};
use super::*;
use crate::captured_log::CapturedLog;
use crate::connect::MayBeHalfOpen;
use crate::{Cache, Caches};

/// A server that has forgotten the changes before a version. Its connections may be half open.
#[derive(Clone)]
struct Forgetful {
    server: ApiServer,
    oldest: Arc<AtomicU64>,
    /// Whether it has forgotten everything from before the next list.
    forgot: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<(Instant, Requested)>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Requested {
    List,
    Watch,
    /// A watch from a version that the server has forgotten.
    TooOld,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Service<Request<Body>> for Forgetful {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let value =
            |name| query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)?.1.into());
        let version = value("resourceVersion").and_then(|version: &str| version.parse().ok());
        let requested = match value("watch").filter(|_| value("sendInitialEvents").is_none()) {
            None => Requested::List,
            Some(_) if self.forgot.load(SeqCst) || version < Some(self.oldest.load(SeqCst)) => Requested::TooOld,
            Some(_) => Requested::Watch,
        };
        self.requests.lock().push((Instant::now(), requested));
        self.forgot.fetch_and(requested != Requested::List, SeqCst);
        let mut server = self.server.clone();
        Box::pin(async move {
            let mut response = match requested {
                Requested::TooOld => {
                    let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
                    let line = format!("{}\n", json!({"type": "ERROR", "object": status}));
                    Response::new(Full::new(Bytes::from(line)).boxed_unsync())
                }
                _ => server.call(request).await?.map(BodyExt::boxed_unsync),
            };
            response.extensions_mut().insert(MayBeHalfOpen);
            Ok(response)
        })
    }
}

impl Forgetful {
    async fn new() -> Self {
        let server = ApiServer::open(Options::default()).await.unwrap();
        Self { server, oldest: Arc::default(), forgot: Arc::default(), requests: Arc::default() }
    }

    async fn watched(&self, lists: Lists) -> (Caches, Cache) {
        let settings = WatchSettings { lists, ..WatchSettings::default() };
        let caches = Caches::new(Client::new(self.clone(), "default"), settings);
        let cache = caches.open(Target::of::<ConfigMap>());
        cache.synced().await;
        (caches, cache)
    }

    /// Creates an object of a kind that is not watched. Returns its resource version.
    async fn create_unwatched(&self) -> u64 {
        let secrets: Api<Secret> = Api::default_namespaced(Client::new(self.server.clone(), "default"));
        let secret = serde_json::from_value(json!({"metadata": {"generateName": "s-"}})).unwrap();
        let secret = secrets.create(&PostParams::default(), &secret).await.unwrap();
        secret.resource_version().unwrap().parse().unwrap()
    }

    /// Creates an object of the kind that is watched.
    async fn create_watched(&self, name: &str) {
        let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(self.server.clone(), "default"));
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }

    fn count(&self, what: Requested) -> usize {
        self.requests.lock().iter().filter(|(_, requested)| *requested == what).count()
    }
}

async fn wait_for(cache: &Cache, name: &str) {
    let key = ObjectKey::new(Some("default"), name);
    while cache.get(&key).is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The watched kind does not change, while changes of other kinds fill the server's history.
#[tokio::test(start_paused = true)]
async fn an_idle_watch_never_expires() {
    for lists in [Lists::Streamed, Lists::Paged] {
        let server = Forgetful::new().await;
        let (caches, cache) = server.watched(lists).await;
        let mut versions = Vec::new();
        for _ in 0..120 {
            versions.push(server.create_unwatched().await);
            // The server forgets changes after twenty seconds.
            if let Some(before) = versions.len().checked_sub(5) {
                server.oldest.store(versions[before], SeqCst);
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let (listed, watches) = (server.count(Requested::List), server.count(Requested::Watch));
        assert_eq!((listed, server.count(Requested::TooOld), cache.figures().restarts), (1, 0, 0), "{lists:?}");
        assert!((55..=70).contains(&watches), "{lists:?}: {watches} requests of an idle watch in ten minutes");
        server.create_watched("late").await;
        wait_for(&cache, "late").await;
        caches.shutdown().await;
    }
}

/// Also a watch that was idle before has a long timeout again once events come.
#[tokio::test(start_paused = true)]
async fn an_active_watch_costs_no_requests() {
    let server = Forgetful::new().await;
    let (caches, cache) = server.watched(Lists::Streamed).await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    server.requests.lock().clear();
    for at in 0..50 {
        let name = format!("busy-{at}");
        server.create_watched(&name).await;
        wait_for(&cache, &name).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let requests = server.requests.lock().len();
    assert!(requests <= 2, "{requests} requests of an active watch in four minutes");
    caches.shutdown().await;
}

/// If the server's history is shorter than the time between two bookmarks, the watch lists again at once and does not
/// count as failing.
#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_again_at_once() {
    for lists in [Lists::Streamed, Lists::Paged] {
        let server = Forgetful::new().await;
        let (caches, cache) = server.watched(lists).await;
        let mut states = cache.states();
        let fails = states.wait_for(|state| matches!(state, WatchState::Failing(_)));
        let forgets = async {
            for round in 1..=5 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                server.forgot.store(true, SeqCst);
                while server.count(Requested::List) == round {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        tokio::select! {
            failing = fails => panic!("{lists:?}: {:?}", failing.map(|state| state.clone())),
            () = forgets => {}
        }
        let requests = server.requests.lock().clone();
        let waits: Vec<Duration> = requests
            .windows(2)
            .filter(|pair| pair[0].1 == Requested::TooOld)
            .map(|pair| pair[1].0 - pair[0].0)
            .collect();
        assert_eq!(waits, [Duration::ZERO; 5], "{lists:?}");
        assert_eq!(cache.figures().restarts, 5, "{lists:?}");
        caches.shutdown().await;
    }
}

/// A streamed list that ends a second late, and then silence.
struct Slow;

impl Service<Request<Body>> for Slow {
    type Response = Answer;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let end = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}});
        let end = stream::once(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(Frame::data(Bytes::from(format!("{end}\n"))))
        });
        std::future::ready(Ok(Response::new(BodyExt::boxed_unsync(StreamBody::new(end.chain(stream::pending()))))))
    }
}

/// In the middle of a list the server may be silent for long; after the list, the idle timeout counts.
#[tokio::test(start_paused = true)]
async fn the_idle_timeout_counts_after_the_list() {
    let response = Client::new(Slow, "default").send(Request::new(Body::empty())).await.unwrap();
    let (began, after) = (Instant::now(), Duration::from_secs(10));
    let state = TransportState::new(after);
    state.set_bookmark_interval(Some(Duration::from_secs(60)));
    state.set_listing(true);
    let resumption = Some(Resumption { after, server_ends_it: false });
    let mut body = ResponseBody::of_watch(response.into_body(), state.clone(), began, resumption);
    assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
    state.set_listing(false);
    assert!(body.frame().await.is_none(), "the body ends without an error");
    assert_eq!(began.elapsed(), Duration::from_secs(11));
}

/// Whoever looks at the log later still sees why nothing happens: what, for whom, and what to do.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_logged_once_a_minute() {
    let log = CapturedLog::at(tracing::Level::WARN);
    let _log = tracing::subscriber::set_default(log.clone());
    let server = ApiServer::open(Options::default()).await.unwrap();
    let caches = Caches::new(Client::new(server, "default"), WatchSettings::default());
    let resource = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    let cache = caches.open(Target::all(resource));
    cache.add_user("widget.example.com");
    tokio::time::sleep(Duration::from_secs(190)).await;
    let lines = log.lines();
    assert!((3..=4).contains(&lines.len()), "{lines:#?}");
    for part in
        ["Widget", "example.com/v1", "widget.example.com", "install the CustomResourceDefinition widgets.example.com"]
    {
        assert!(lines.iter().all(|line| line.contains(part)), "{part}: {lines:#?}");
    }
    caches.shutdown().await;
}
