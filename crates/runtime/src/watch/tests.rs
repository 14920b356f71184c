//! Quiet watches over connections that may be half open, in front of a server that forgets.

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

use super::pulse::{Pulse, Renewal};
use super::*;
use crate::connect::MayBeHalfOpen;
use crate::{Cache, Caches};

/// A server that does not know what happened before a version, reached over connections that may be half open.
#[derive(Clone)]
struct Forgetful {
    server: ApiServer,
    oldest: Arc<AtomicU64>,
    /// Whether it knows nothing from before the next list.
    forgot: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<(Instant, Asked)>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    List,
    Watch,
    /// A watch from a version that the server has forgotten.
    TooLate,
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
        let asked = match value("watch").filter(|_| value("sendInitialEvents").is_none()) {
            None => Asked::List,
            Some(_) if self.forgot.load(SeqCst) || version < Some(self.oldest.load(SeqCst)) => Asked::TooLate,
            Some(_) => Asked::Watch,
        };
        self.asked.lock().push((Instant::now(), asked));
        self.forgot.fetch_and(asked != Asked::List, SeqCst);
        let mut server = self.server.clone();
        Box::pin(async move {
            let mut answer = match asked {
                Asked::TooLate => {
                    let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
                    let line = format!("{}\n", json!({"type": "ERROR", "object": status}));
                    Response::new(Full::new(Bytes::from(line)).boxed_unsync())
                }
                _ => server.call(request).await?.map(BodyExt::boxed_unsync),
            };
            answer.extensions_mut().insert(MayBeHalfOpen);
            Ok(answer)
        })
    }
}

impl Forgetful {
    async fn new() -> Self {
        let server = ApiServer::open(Options::default()).await.unwrap();
        Self { server, oldest: Arc::default(), forgot: Arc::default(), asked: Arc::default() }
    }

    async fn watched(&self, lists: Lists) -> (Caches, Cache) {
        let settings = WatchSettings { lists, ..WatchSettings::default() };
        let caches = Caches::new(Client::new(self.clone(), "default"), settings);
        let cache = caches.open(Target::of::<ConfigMap>());
        cache.synced().await;
        (caches, cache)
    }

    /// Something happens elsewhere. Gives its version.
    async fn elsewhere(&self) -> u64 {
        let secrets: Api<Secret> = Api::default_namespaced(Client::new(self.server.clone(), "default"));
        let secret = serde_json::from_value(json!({"metadata": {"generateName": "s-"}})).unwrap();
        let secret = secrets.create(&PostParams::default(), &secret).await.unwrap();
        secret.resource_version().unwrap().parse().unwrap()
    }

    /// Something happens that is watched.
    async fn here(&self, name: &str) {
        let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(self.server.clone(), "default"));
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }

    fn count(&self, what: Asked) -> usize {
        self.asked.lock().iter().filter(|(_, asked)| *asked == what).count()
    }
}

async fn see(cache: &Cache, name: &str) {
    let key = ObjectKey::new(Some("default"), name);
    while cache.get(&key).is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Its own kind stands still, and the history goes on with others.
#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_never_too_old() {
    for lists in [Lists::Streamed, Lists::Paged] {
        let server = Forgetful::new().await;
        let (caches, cache) = server.watched(lists).await;
        let mut versions = Vec::new();
        for _ in 0..120 {
            versions.push(server.elsewhere().await);
            // What happened more than twenty seconds ago is forgotten.
            if let Some(before) = versions.len().checked_sub(5) {
                server.oldest.store(versions[before], SeqCst);
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let (listed, watches) = (server.count(Asked::List), server.count(Asked::Watch));
        assert_eq!((listed, server.count(Asked::TooLate), cache.figures().restarts), (1, 0, 0), "{lists:?}");
        assert!((55..=70).contains(&watches), "{lists:?}: {watches} requests of a quiet watch in ten minutes");
        server.here("late").await;
        see(&cache, "late").await;
        caches.shutdown().await;
    }
}

/// One that was quiet before gets out of the way of renewing.
#[tokio::test(start_paused = true)]
async fn a_busy_watch_costs_nothing() {
    let server = Forgetful::new().await;
    let (caches, cache) = server.watched(Lists::Streamed).await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    server.asked.lock().clear();
    for at in 0..50 {
        let name = format!("busy-{at}");
        server.here(&name).await;
        see(&cache, &name).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let asked = server.asked.lock().len();
    assert!(asked <= 2, "{asked} requests of a busy watch in four minutes");
    caches.shutdown().await;
}

/// A history that is too short for the time between two bookmarks is nothing to fear, and nothing to wait for.
#[tokio::test(start_paused = true)]
async fn what_a_server_has_forgotten_is_listed_at_once() {
    for lists in [Lists::Streamed, Lists::Paged] {
        let server = Forgetful::new().await;
        let (caches, cache) = server.watched(lists).await;
        let mut states = cache.states();
        let well = states.wait_for(|state| matches!(state, WatchState::Failing(_)));
        let forgets = async {
            for round in 1..=5 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                server.forgot.store(true, SeqCst);
                while server.count(Asked::List) == round {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        tokio::select! {
            failing = well => panic!("{lists:?}: {:?}", failing.map(|state| state.clone())),
            () = forgets => {}
        }
        let asked = server.asked.lock().clone();
        let waits: Vec<Duration> =
            asked.windows(2).filter(|pair| pair[0].1 == Asked::TooLate).map(|pair| pair[1].0 - pair[0].0).collect();
        assert_eq!(waits, [Duration::ZERO; 5], "{lists:?}");
        assert_eq!(cache.figures().restarts, 5, "{lists:?}");
        caches.shutdown().await;
    }
}

/// A list whose end comes a second late, and nothing behind it.
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

/// A server whose rhythm is known may take its time in the middle of a list; behind it, silence is short again.
#[tokio::test(start_paused = true)]
async fn the_patience_of_a_list_ends_with_it() {
    let answer = Client::new(Slow, "default").send(Request::new(Body::empty())).await.unwrap();
    let (began, after) = (Instant::now(), Duration::from_secs(10));
    let notes = Notes::new(after);
    notes.set_rhythm(Some(Duration::from_secs(60)));
    notes.set_listing(true);
    let renewal = Some(Renewal { after, brief: false });
    let mut pulse = Pulse::of_watch(answer.into_body(), notes.clone(), began, renewal);
    assert!(pulse.frame().await.is_some_and(|frame| frame.is_ok()));
    notes.set_listing(false);
    assert!(pulse.frame().await.is_none(), "it is renewed, which is no error");
    assert_eq!(began.elapsed(), Duration::from_secs(11));
}
