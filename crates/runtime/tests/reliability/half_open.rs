//! Connections whose other end is gone. In the first test client and server talk over the loopback device of a network
//! namespace of their own, and the device is taken down: a request and a watch over such a connection have to fail within
//! fifteen seconds. The test starts itself again inside of the namespace. Where the system does not allow network
//! namespaces, it checks only that keepalive probes are sent, and says so.
//!
//! The other tests are about peers whose kernel still answers: a server that hangs is noticed because its bookmarks do not
//! come, and over a socket an idle watch is resumed over another connection.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_apiserver::{ApiServer, Options};
use konverge_runtime::{Cache, Caches, Target, WatchSettings, WatchState, connect};
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::faults::{Faults, Line, Verdict};
use crate::operator::{Hand, key};

const INSIDE: &str = "KONVERGE_INSIDE_NAMESPACE";

/// Serves over TCP.
async fn serve(server: ApiServer) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(server.clone());
            tokio::spawn(async move {
                let http = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                // Connections break in these tests.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

fn client(address: SocketAddr) -> Client {
    connect(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap()
}

async fn watched(address: SocketAddr) -> Cache {
    watched_with(address, WatchSettings::default()).await
}

async fn watched_with(address: SocketAddr, settings: WatchSettings) -> Cache {
    let cache = Caches::new(client(address), settings).open(Target::of::<ConfigMap>());
    cache.synced().await;
    cache
}

fn loopback(state: &str) {
    let done = Command::new("ip").args(["link", "set", "lo", state]).status().expect("ip is installed");
    assert!(done.success());
}

async fn inside() {
    loopback("up");
    let server = ApiServer::open(Options::default()).await.unwrap();
    let hand = Hand::new(&Client::new(server.clone(), "default"));
    let address = serve(server.clone()).await;
    let cache = watched(address).await;
    // A request whose response never comes, and an idle watch.
    let request = http::Request::get("/api/v1/secrets?watch=1").body(kube::client::Body::empty()).unwrap();
    let mut answer = client(address).send(request).await.unwrap().into_body();
    let mut states = cache.states();
    assert_eq!(*states.borrow_and_update(), WatchState::Live);

    loopback("down");
    let cut = Instant::now();
    hand.set("missed", "x").await;
    hand.set("gone", "x").await;
    hand.delete("gone").await;
    let request = async {
        while let Some(Ok(_)) = answer.frame().await {}
        cut.elapsed()
    };
    let watch = async {
        states.wait_for(|state| matches!(state, WatchState::Failing(_))).await.unwrap();
        cut.elapsed()
    };
    let (request, watch) = tokio::join!(request, watch);
    println!("noticed after {request:?} (a request) and {watch:?} (a watch)");
    for noticed in [request, watch] {
        assert!(noticed <= Duration::from_secs(15), "{noticed:?}");
    }

    loopback("up");
    while cache.get(&key("missed")).is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(cache.get(&key("gone")).is_none());
}

/// In how many seconds the kernel sends the next keepalive probe to this address, from the kernel's table of connections.
fn next_probe(address: SocketAddr) -> Option<f64> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let to = format!(":{:04X}", address.port());
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (kind, when) = fields[5].split_once(':')?;
        let established = fields[2].ends_with(&to) && fields[3] == "01";
        // 02 is the keepalive timer.
        (established && kind == "02").then(|| i64::from_str_radix(when, 16).unwrap() as f64 / 100.0)
    })
}

#[test]
fn a_cut_network_is_noticed_within_fifteen_seconds() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if std::env::var_os(INSIDE).is_some() {
        return runtime.block_on(inside());
    }
    // On every system: probes are sent over an idle connection.
    runtime.block_on(async {
        let address = serve(ApiServer::open(Options::default()).await.unwrap()).await;
        let _cache = watched(address).await;
        let within = next_probe(address);
        assert!(within.is_some_and(|within| within <= 5.0), "{within:?}");
    });
    let unshared = ["--user", "--map-root-user", "--net"];
    let may = Command::new("unshare").args(unshared).args(["ip", "link", "set", "lo", "up"]).output();
    if !may.is_ok_and(|may| may.status.success()) {
        println!("no network namespace here: only the probes were looked at");
        return;
    }
    let again = std::env::current_exe().unwrap();
    let name = "half_open::a_cut_network_is_noticed_within_fifteen_seconds";
    let again = Command::new("unshare")
        .args(unshared)
        .arg(again)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    println!("{}", said.lines().find(|line| line.contains("noticed after")).unwrap_or_default());
    assert!(again.status.success(), "{said}{}", String::from_utf8_lossy(&again.stderr));
}

/// Checks after how many seconds a watch is given up. `bookmarks` says what happens to each bookmark of the first watch; number
/// 0 is the one that ends the list. After a bookmark that is silenced, nothing comes.
async fn check(name: &str, bookmarks: fn(usize) -> Line, given_up_after: f64) {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    faults.plan(move |_, before| {
        let mut number = 0;
        Verdict::Lines(Box::new(move |line| {
            if before > 0 || !String::from_utf8_lossy(&line).contains("\"type\":\"BOOKMARK\"") {
                return Line::Pass;
            }
            number += 1;
            bookmarks(number - 1)
        }))
    });
    let caches = faults.caches(WatchSettings { random: || 0.0, ..WatchSettings::default() });
    let cache = caches.open(Target::of::<ConfigMap>());
    cache.synced().await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    hand.set("late", "x").await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(cache.get(&key("late")).is_some(), "{name}");
    let asked = faults.asked();
    let after = (asked[1].0 - asked[0].0).as_secs_f64();
    assert!((after - given_up_after).abs() < 0.1, "{name}: asked again after {after} s");
    caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_its_bookmarks_is_given_up() {
    fn until(last: usize, number: usize) -> Line {
        if number <= last { Line::Pass } else { Line::Silence }
    }
    // The server ends a watch after 290 seconds, and the client five seconds later.
    check("all is well", |_| Line::Pass, 290.0).await;
    check("it sends none", |number| if number == 0 { Line::Pass } else { Line::Drop }, 290.0).await;
    check("it sends one in two minutes", |number| if number % 2 == 0 { Line::Pass } else { Line::Drop }, 290.0).await;
    // The last bookmark came after 60 or 120 seconds. The watch is given up 75 seconds later, and requested again after 0.8
    // seconds.
    check("it fell silent", |number| until(1, number), 135.8).await;
    check("it fell silent later", |number| until(2, number), 195.8).await;
    check("nobody knows whether it sends any", |number| until(0, number), 295.0).await;
}

/// A proxy that keeps every connection to its clients open. After a cut, it drops what the server sends over older connections;
/// new connections work.
struct Proxy {
    address: SocketAddr,
    /// Changes when all connections are cut.
    age: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

async fn half_open_proxy(server: SocketAddr) -> Proxy {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (age, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, counted) = (age.clone(), connections.clone());
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let server = tokio::net::TcpStream::connect(server).await.unwrap();
            let (born, now) = (now.load(Ordering::SeqCst), now.clone());
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut piece = vec![0; 65_536];
                while let Ok(read @ 1..) = from_server.read(&mut piece).await {
                    if born == now.load(Ordering::SeqCst) && to_client.write_all(&piece[..read]).await.is_err() {
                        return;
                    }
                }
                // The connection to the server is gone, and the client does not notice.
                std::future::pending::<()>().await;
            });
        }
    });
    Proxy { address, age, connections }
}

/// Neither the kernel nor, in the first minute, a missing bookmark shows that the proxy has lost the server.
#[tokio::test]
async fn a_watch_leaves_a_half_open_connection() {
    let server = ApiServer::open(Options::default()).await.unwrap();
    let hand = Hand::new(&Client::new(server.clone(), "default"));
    let Proxy { address: proxy, age, .. } = half_open_proxy(serve(server).await).await;
    let settings = WatchSettings { idle_timeout: Duration::from_millis(200), ..WatchSettings::default() };
    let cache = watched_with(proxy, settings).await;
    let patience = Duration::from_secs(50);
    for round in 0..3 {
        // All open connections are cut, also idle ones.
        age.fetch_add(1, Ordering::SeqCst);
        let name = format!("missed-{round}");
        hand.set(&name, "x").await;
        let seen = async {
            while cache.get(&key(&name)).is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(patience, seen).await.expect("the watch is blind");
    }
    // A resumed watch is normal, and not a failure.
    assert_eq!((cache.state(), cache.figures().restarts), (WatchState::Live, 0));
    assert_eq!(
        WatchSettings::default().idle_timeout,
        Duration::from_secs(10),
        "so that it is noticed within fifteen seconds"
    );
}

/// Idle connections are cut as well, which shows only when a request hangs on one.
#[tokio::test]
async fn a_request_takes_no_connection_that_was_idle_for_long() {
    let server = ApiServer::open(Options::default()).await.unwrap();
    let proxy = half_open_proxy(serve(server).await).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(proxy.address));
    let list = async || {
        let answer = tokio::time::timeout(Duration::from_secs(50), maps.list(&ListParams::default())).await;
        answer.expect("it hangs on a connection that is cut").unwrap();
        proxy.connections.load(Ordering::SeqCst)
    };
    let pass = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    let first = list().await;
    pass(5).await;
    assert_eq!(list().await, first, "one that was used a moment ago is used again");
    proxy.age.fetch_add(1, Ordering::SeqCst);
    pass(11).await;
    assert_eq!(list().await, first + 1);
}
