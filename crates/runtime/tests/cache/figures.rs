//! What a cached object costs. The figures are taken in a process of their own, where nothing else moves, against a
//! server that makes objects up as it is asked and keeps none of them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{Cache, CacheOf, Caches, Lists, Mode, Target, WatchSettings};
use kube::Client;
use kube::api::DynamicObject;
use serde_json::json;
use tokio::sync::Notify;

use crate::kinds::widgets;

/// As many as the first list of a process has, to pay for all that is needed once, and as many as are then measured.
const FIRST: usize = 5_000;
const OBJECTS: usize = 20_000;
/// And as many are then read.
const READS: usize = 2_000;
const CHILD: &str = "KONVERGE_FIGURES";

/// Serves objects made of one text, in which `#####` stands for a number.
#[derive(Clone)]
struct Made {
    text: Arc<str>,
    /// How many there are.
    count: Arc<AtomicUsize>,
    /// Ends the open watch of all namespaces with 410.
    expire: Arc<Notify>,
    asked: Arc<AtomicUsize>,
}

impl Made {
    fn line(&self, at: usize) -> String {
        format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", self.text.replace("#####", &format!("{at:05}")))
    }

    fn answer(&self, path: &str, query: &str) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let made = self.clone();
        if !query.contains("watch=true") {
            let from = query.split('&').find_map(|pair| pair.strip_prefix("continue=")?.parse().ok()).unwrap_or(0);
            let all = self.count.load(Ordering::SeqCst);
            let to = (from + 500).min(all);
            let items: Vec<String> = (from..to).map(|at| self.text.replace("#####", &format!("{at:05}"))).collect();
            let next = if to < all { to.to_string() } else { String::new() };
            let body = format!(
                "{{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"1\",\"continue\":\"{next}\"}},\
                 \"items\":[{}]}}",
                items.join(",")
            );
            let pieces = stream::once(async move { Ok(Frame::data(Bytes::from(body))) });
            return Response::new(UnsyncBoxBody::new(StreamBody::new(pieces)));
        }
        let lines: Pin<Box<dyn futures_util::Stream<Item = String> + Send>> = match query.contains("sendInitialEvents")
        {
            true => {
                let end = json!({"type": "BOOKMARK", "object": {"kind": "Widget", "apiVersion": "example.org/v1",
                    "metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}});
                let (lines, all) = (self.clone(), self.count.load(Ordering::SeqCst));
                stream::iter((0..all).map(move |at| lines.line(at))).chain(stream::iter([format!("{end}\n")])).boxed()
            }
            false => stream::empty().boxed(),
        };
        let of_all = !path.contains("/namespaces/");
        let gone = stream::once(async move {
            if !of_all {
                std::future::pending::<()>().await;
            }
            made.expire.notified().await;
            "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n".to_owned()
        });
        let pieces = lines.chain(gone).ready_chunks(32).map(|lines| Ok(Frame::data(Bytes::from(lines.concat()))));
        Response::new(UnsyncBoxBody::new(StreamBody::new(pieces)))
    }
}

impl tower_service::Service<Request<kube::client::Body>> for Made {
    type Response = Response<UnsyncBoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let made = self.clone();
        async move { Ok(made.answer(request.uri().path(), request.uri().query().unwrap_or_default())) }.boxed()
    }
}

/// The metadata that every object has, with managed fields of about so many bytes.
fn metadata(managed: usize) -> serde_json::Value {
    let fields: serde_json::Map<_, _> =
        (0..managed / 40).map(|at| (format!("f:someFieldOfTheSpec{at}"), json!({}))).collect();
    json!({
        "name": "widget-#####", "namespace": "default", "uid": "a0c4d5f2-3b1e-4c8d-9e6f-1234567#####",
        "resourceVersion": "18#####", "generation": 1, "creationTimestamp": "2026-11-01T12:00:00Z",
        "labels": {"app.kubernetes.io/name": "widget", "app.kubernetes.io/instance": "w#####"},
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "apiVersion": "example.org/v1", "fieldsV1": fields}]
    })
}

/// An object whose text is as long as asked, managed fields included.
fn object(bytes: usize, managed: usize) -> String {
    let make = |fields: usize| {
        let spec: serde_json::Map<_, _> =
            (0..fields).map(|at| (format!("setting{at}"), json!({"value": "some-text", "on": true}))).collect();
        json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": metadata(managed), "spec": spec})
            .to_string()
    };
    (0..).map(make).find(|text| text.len() >= bytes).unwrap()
}

fn figure(of: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(of)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// CPU time of all threads.
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let spent = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    Duration::from_nanos(spent.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum())
}

/// One measurement: what, how big, how much of it, and the most bytes an object may take.
async fn measure(name: &str, text: String, mode: Mode, lists: Lists, limit: f64) {
    let count = Arc::new(AtomicUsize::new(FIRST));
    let made = Made { text: text.into(), count: count.clone(), expire: Arc::new(Notify::new()), asked: Arc::default() };
    let start = cpu();
    let sent: usize = (0..OBJECTS).map(|at| made.line(at).len()).sum();
    let making = cpu() - start;
    let settings = WatchSettings { lists, ..WatchSettings::default() };
    let caches = Caches::new(Client::new(made.clone(), "default"), settings);
    let first = caches.open(Target::all(widgets()).mode(mode).within("default"));
    first.synced().await;
    count.store(OBJECTS, Ordering::SeqCst);
    let (before, allocated_before) = (figure("VmRSS"), figure("RssAnon"));
    let (start, spent) = (Instant::now(), cpu());
    let cache = caches.open(Target::all(widgets()).mode(mode));
    cache.synced().await;
    let (took, spent) = (start.elapsed(), cpu() - spent);
    assert_eq!(cache.figures().objects, OBJECTS);
    let steady = figure("VmRSS");
    // Pages of the program that were first used meanwhile are no cost of an object.
    let each = (figure("RssAnon") - allocated_before) as f64 / OBJECTS as f64;
    // The highest mark begins anew here.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let asked = made.asked.load(Ordering::SeqCst);
    made.expire.notify_one();
    relisted(&made, lists, asked).await;
    assert_eq!((cache.figures().restarts, first.figures().objects), (1, FIRST));
    let peak = figure("VmHWM");
    let kept = cache.get(&ObjectKey::new(Some("default"), "widget-00042")).unwrap().json().len();
    println!(
        "{name:22} {lists:?}: {:5} B sent, {kept:5} B kept, {each:6.0} B each ({:4.0} by own count); synced in {took:.1?}, \
         {:.1} µs CPU each; a relist peaks at {:.2} of steady objects",
        sent / OBJECTS,
        cache.figures().bytes as f64 / OBJECTS as f64,
        (spent.saturating_sub(making)).as_secs_f64() * 1e6 / OBJECTS as f64,
        (peak - before) as f64 / (steady - before) as f64,
    );
    assert!(each <= limit, "{name}: {each} B for each object, and not {limit}");
    if lists == Lists::Streamed {
        assert!((peak - before) as f64 <= 1.15 * (steady - before) as f64 + 2e6, "a relist took {} B", peak - steady);
    }
    reads(&cache);
}

/// Waits until a relist is over.
async fn relisted(made: &Made, lists: Lists, asked: usize) {
    let requests = if lists == Lists::Streamed { 1 } else { OBJECTS / 500 + 1 };
    while made.asked.load(Ordering::SeqCst) < asked + requests {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn reads(cache: &Cache) {
    let keys: Vec<ObjectKey> =
        (0..READS).map(|at| ObjectKey::new(Some("default"), &format!("widget-{at:05}"))).collect();
    let time = |what: &str, act: &dyn Fn(&ObjectKey)| {
        let start = Instant::now();
        keys.iter().for_each(act);
        println!("    {what}: {:.2} µs", start.elapsed().as_secs_f64() * 1e6 / READS as f64);
    };
    time("get", &|key| assert!(cache.get(key).is_some()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..10).for_each(|_| keys.iter().for_each(|key| assert!(cache.get(key).is_some()))));
        }
    });
    println!("    get, by two threads at once: {:.2} µs", start.elapsed().as_secs_f64() * 1e6 / (10 * READS) as f64);
    let start = Instant::now();
    let all = cache.list(Some("default"), &LabelSelector::default()).len();
    println!("    list: {:.3} µs for each object", start.elapsed().as_secs_f64() * 1e6 / all as f64);
    let start = Instant::now();
    let all = cache.list(None, &LabelSelector::parse("app.kubernetes.io/name=widget").unwrap()).len();
    println!("    list by label: {:.3} µs for each object", start.elapsed().as_secs_f64() * 1e6 / all as f64);
    if cache.target().mode == Mode::Full {
        time("get and find /spec/setting1", &|key| {
            assert!(cache.get(key).unwrap().pointer("/spec/setting1").is_some())
        });
        let typed = CacheOf::<DynamicObject>::new(cache.clone());
        time("get and decode", &|key| assert!(typed.get(key).unwrap().is_some()));
        time("get what was decoded", &|_| assert!(typed.get(&keys[READS - 1]).unwrap().is_some()));
    }
}

#[test]
fn what_an_object_costs() {
    if std::env::var_os(CHILD).is_none() {
        for which in ["resource", "pod", "metadata", "paged"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["figures::what_an_object_costs", "--exact", "--nocapture"])
                .env(CHILD, which)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout);
            println!("{}", said.lines().filter(|line| line.contains('µ')).collect::<Vec<_>>().join("\n"));
            assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
        }
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let resource = object(1600, 0);
        match std::env::var(CHILD).unwrap().as_str() {
            "resource" => {
                let limit = 1.15 * resource.len() as f64;
                measure("custom resource", resource, Mode::Full, Lists::Streamed, limit).await;
            }
            "pod" => measure("like a pod", object(5400, 2000), Mode::Full, Lists::Streamed, 6300.0).await,
            "metadata" => measure("metadata only", object(1600, 300), Mode::Metadata, Lists::Streamed, 475.0).await,
            _ => measure("custom resource", resource, Mode::Full, Lists::Paged, 1.4 * 1600.0).await,
        }
    });
}
