//! Real requests over real sockets, to ports that the system picked.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// Status, head and body of what is answered to this request.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String, String) {
    // What listens on all interfaces listens on this one.
    let mut stream = TcpStream::connect(("127.0.0.1", address.port())).await.expect("it listens");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_string())
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, _, body) = ask(address, "GET", path).await;
    (status, body)
}

/// An operator without other instances.
fn alone() -> LeaderPage {
    LeaderPage { leadership: konverge_runtime::Leadership::always("laptop"), groups: Vec::new(), shards: None }
}

fn settings(metrics: BindAddress, health: BindAddress) -> Settings {
    let mut settings = Settings::default();
    settings.metrics.address = metrics;
    settings.health.address = health;
    settings
}

fn refused(error: std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ConnectionRefused
}

#[tokio::test]
async fn metrics_and_probes_answer_on_their_own_ports() {
    let (metrics, health) = (Metrics::new(), Health::new());
    metrics.controller("webapp");
    metrics.counter("app_builds_total", "Builds").unwrap().inc();
    let cache = health.readiness("cache-webapps");
    let probes =
        Probes::start(&settings(BindAddress::All(0), BindAddress::loopback(0)), &metrics, &health, alone()).unwrap();
    let (at_metrics, at_health) = (probes.metrics_address().unwrap(), probes.health_address().unwrap());
    assert_ne!(at_metrics.port(), at_health.port());
    assert!(at_metrics.port() != 0 && at_health.port() != 0);

    let (status, head, page) = ask(at_metrics, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(page.contains("\napp_builds_total 1\n"));
    assert!(page.contains("controller_runtime_reconcile_total{controller=\"webapp\",result=\"success\"} 0\n"));
    let (status, head, body) = ask(at_metrics, "HEAD", "/metrics").await;
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("content-length: "), "{head}");

    assert_eq!(get(at_health, "/healthz").await, (200, "ok".into()));
    assert_eq!(
        get(at_health, "/readyz").await,
        (500, "[-]cache-webapps failed: not yet\nreadyz check failed\n".into())
    );
    cache.pass();
    assert_eq!(get(at_health, "/readyz").await, (200, "ok".into()));
    assert_eq!(get(at_health, "/readyz?verbose").await, (200, "[+]cache-webapps ok\nreadyz check passed\n".into()));

    assert_eq!(get(at_metrics, "/readyz").await, (404, "there is no such page; there is /metrics\n".into()));
    assert_eq!(get(at_health, "/").await, (404, "there is no such page; there is /healthz, /readyz, /leader\n".into()));
    let (status, head, _) = ask(at_health, "POST", "/healthz").await;
    assert_eq!(status, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    probes.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn equal_addresses_are_one_listener() {
    let mut settings = settings(BindAddress::loopback(0), BindAddress::loopback(0));
    settings.health.liveness_path = "/live".into();
    let probes = Probes::start(&settings, &Metrics::new(), &Health::new(), alone()).unwrap();
    let address = probes.metrics_address().unwrap();
    assert_eq!(probes.health_address(), Some(address));
    assert_eq!(get(address, "/metrics").await.0, 200);
    assert_eq!(get(address, "/live").await.0, 200);
    assert_eq!(get(address, "/readyz").await.0, 200);
    assert_eq!(
        get(address, "/healthz").await,
        (404, "there is no such page; there is /metrics, /live, /readyz, /leader\n".into())
    );
}

#[tokio::test]
async fn what_is_switched_off_does_not_listen() {
    let start = |settings: &Settings| Probes::start(settings, &Metrics::new(), &Health::new(), alone()).unwrap();
    let probes = start(&settings(BindAddress::Off, BindAddress::loopback(0)));
    assert_eq!(probes.metrics_address(), None);
    assert_eq!(get(probes.health_address().unwrap(), "/healthz").await.0, 200);
    let mut off = settings(BindAddress::loopback(0), BindAddress::loopback(0));
    off.health.enabled = false;
    let probes = start(&off);
    assert_eq!(probes.health_address(), None);
    assert_eq!(get(probes.metrics_address().unwrap(), "/readyz").await.0, 404);
    let probes = start(&settings(BindAddress::Off, BindAddress::Off));
    assert_eq!((probes.metrics_address(), probes.health_address()), (None, None));
    probes.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_with_its_flag() {
    let first =
        Probes::start(&settings(BindAddress::loopback(0), BindAddress::Off), &Metrics::new(), &Health::new(), alone())
            .unwrap();
    let taken = BindAddress::At(first.metrics_address().unwrap());
    let check = |settings: &Settings, what: &str, flag: &str| {
        let error = Probes::start(settings, &Metrics::new(), &Health::new(), alone()).unwrap_err();
        let said = format!("cannot serve {what}; {flag} takes another address, or 0 for none");
        assert_eq!(error.to_string(), said);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with(&format!("cannot listen on {taken}: port ")), "{cause}");
        assert!(cause.contains("is already in use"), "{cause}");
    };
    check(&settings(taken, BindAddress::Off), "metrics", "--metrics-bind-address");
    check(&settings(BindAddress::loopback(0), taken), "probes", "--health-probe-bind-address");
}

#[tokio::test]
async fn nothing_listens_after_stop_or_drop() {
    // Addresses of their own, where a machine has them, so that no other test gets these ports in between.
    let [first, second] =
        if cfg!(target_os = "linux") { ["127.0.0.77:0", "127.0.0.78:0"] } else { ["127.0.0.1:0", "[::1]:0"] }
            .map(|address| BindAddress::At(address.parse().unwrap()));
    let start = || Probes::start(&settings(first, second), &Metrics::new(), &Health::new(), alone()).unwrap();
    let probes = start();
    let addresses = [probes.metrics_address().unwrap(), probes.health_address().unwrap()];
    probes.stop(Duration::from_secs(5)).await;
    for address in addresses {
        assert!(refused(TcpStream::connect(address).await.unwrap_err()));
    }
    let probes = start();
    let addresses = [probes.metrics_address().unwrap(), probes.health_address().unwrap()];
    drop(probes);
    for address in addresses {
        // The task ends at its next turn; then the port is free.
        let ended = async {
            while TcpStream::connect(address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the listener outlived its owner");
    }
}

#[tokio::test]
async fn answers_of_checks() {
    let health = Health::new();
    let pages = Pages::new(vec![
        Page { path: "/healthz".into(), content: Content::Probe(Probe::Live, health.clone()) },
        Page { path: "/readyz".into(), content: Content::Probe(Probe::Ready, health.clone()) },
    ]);
    let ask = async |path: &str, query: &str| {
        let response = pages.answer(&Method::GET, path, query);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let expect = |status: u16, body: &str| (status, body.to_string());
    let workers = health.liveness("workers");
    let a = health.readiness("a");
    let b = health.readiness("b");
    health.readiness_from("c", || Ok(()));
    assert_eq!(ask("/healthz", "").await, expect(200, "ok"));
    a.pass();
    b.fail("waiting for the CRD webapps.example.com");
    let failed = "[+]a ok\n[-]b failed: waiting for the CRD webapps.example.com\n[+]c ok\nreadyz check failed\n";
    assert_eq!(ask("/readyz", "").await, expect(500, failed));
    assert_eq!(ask("/readyz", "exclude=b").await, expect(200, "ok"));
    let excluded = "[+]a ok\n[+]b excluded: ok\n[+]c ok\nreadyz check passed\n";
    assert_eq!(ask("/readyz", "verbose=1&exclude=b").await, expect(200, excluded));
    assert_eq!(ask("/readyz/a", "").await, expect(200, "ok"));
    assert_eq!(ask("/readyz/b", "").await, expect(500, "waiting for the CRD webapps.example.com\n"));
    assert_eq!(ask("/readyz/x", "").await, expect(404, "there is no check x\n"));
    assert_eq!(ask("/readyzz", "").await.0, 404);
    assert!(health.is_live() && !health.is_ready());
    b.pass();
    assert!(health.is_ready());
    // Somebody else's code that panics fails its check, not the probe.
    health.liveness_from("broken", || panic!("oops"));
    workers.fail("stuck");
    let failed = "[-]broken failed: the check panicked\n[-]workers failed: stuck\nhealthz check failed\n";
    assert_eq!(ask("/healthz", "").await, expect(500, failed));
}
