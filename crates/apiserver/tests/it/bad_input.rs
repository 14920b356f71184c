//! Invalid input. Whatever a client sends, the answer is a clear refusal, nothing panics, no stored object changes, no key is
//! outside of `/registry/`, and the next client is served as before.

mod mutants;
mod names;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};

use konverge_store::Range;

use crate::cluster::{APPLY, Answer, CONFIG_MAPS, Cluster, JSON_PATCH, MERGE, STRATEGIC, WIDGETS, config_map, widget};

const LIMIT: usize = 3 * 1024 * 1024;

/// Checks that an answer is a success, or a well-formed failure that blames the client.
#[track_caller]
fn check_sane(answer: &Answer) {
    if answer.code < 400 {
        return;
    }
    answer.check_failure();
    let text = String::from_utf8_lossy(&answer.body);
    assert!(!text.contains("panic"), "{}: {text}", answer.what);
    // These are 5xx on a cluster too.
    let known = [
        "failed to create typed patch object",
        "failed to convert new object",
        "unknown patch type",
        "does not contain declared merge key",
        "Too large resource version",
    ];
    let known = known.iter().any(|known| text.contains(known));
    assert!(answer.code < 500 || known, "{}: {text}", answer.what);
}

/// Every key of the store.
fn keys(cluster: &Cluster) -> Vec<String> {
    let page = cluster.server.store().range(Range::default()).unwrap();
    page.entries.iter().map(|entry| entry.key.to_string()).collect()
}

/// A key has a kind, perhaps a namespace, and a name: nothing else, and no `..`.
#[track_caller]
fn check_keys(cluster: &Cluster) {
    for key in keys(cluster) {
        let segments: Vec<&str> = key.split('/').collect();
        assert!(key.starts_with("/registry/") && (5..=6).contains(&segments.len()), "{key:?}");
        assert!(segments[1..].iter().all(|segment| !matches!(*segment, "" | "." | "..")), "{key:?}");
    }
}

async fn send(cluster: &Cluster, content_type: &str, body: impl Into<Bytes>) -> Answer {
    cluster.ask("POST", CONFIG_MAPS, &[("content-type", content_type)], body).await
}

#[tokio::test]
async fn bodies_that_cannot_be_read() {
    let cluster = Cluster::new().await;
    for (content_type, body) in [
        ("application/json", &b""[..]),
        ("application/json", b"{"),
        ("application/json", b"}"),
        ("application/json", b"null"),
        ("application/json", b"[]"),
        ("application/json", b"5"),
        ("application/json", b"\"text\""),
        ("application/json", b"{\"metadata\":{\"name\":\"a\"}} {}"),
        ("application/json", b"{\"metadata\":{\"name\":\"a\"},}"),
        ("application/json", b"{'metadata':{'name':'a'}}"),
        ("application/json", b"{\"metadata\":{\"name\":\"\xff\xfe\"}}"),
        ("application/json", b"{\"metadata\":{\"name\":\"\\ud800\"}}"),
        ("application/json", b"{\"metadata\":{\"name\":\"a\0b\"}}"),
        ("application/json", b"{\"data\":{\"k\":1e999}}"),
        ("application/json", b"\x1f\x8b\x08\x00\x00\x00\x00\x00"),
        ("application/json", b"k8s\0\x0a\x10\x0a\x02v1"),
        ("application/yaml", b""),
        ("application/yaml", b"a: b: c"),
        ("application/yaml", b"\tmetadata:\n"),
        ("application/yaml", b"metadata: [\n"),
        ("application/yaml", b"--- {}\n--- {}\n"),
        ("application/yaml", b"metadata: *nobody"),
        ("application/yaml", b"\xff\xfe"),
        ("application/yaml", b"!!binary x"),
        ("application/yaml", b"? [a, b]\n: c\n"),
        ("application/yaml", b"metadata: &a\n  name: *a\n"),
    ] {
        let answer = send(&cluster, content_type, body).await;
        assert!(matches!(answer.code, 400 | 422), "{body:?}: {}", answer.code);
        check_sane(&answer);
    }
    assert_eq!(send(&cluster, "application/json", config_map("a").to_string()).await.code, 201);
}

/// A body of so many bytes, in pieces, that says how long it is or does not.
struct Endless {
    left: usize,
    told: bool,
}

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static PIECE: [u8; 64 * 1024] = [b' '; 64 * 1024];
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let size = PIECE.len().min(self.left);
        self.left -= size;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PIECE[..size])))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.told { SizeHint::with_exact(self.left as u64) } else { SizeHint::default() }
    }
}

#[tokio::test]
async fn bodies_that_are_too_large() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    for (method, path, content_type) in [
        ("POST", CONFIG_MAPS.to_owned(), "application/json"),
        ("PUT", format!("{CONFIG_MAPS}/a"), "application/json"),
        ("PATCH", format!("{CONFIG_MAPS}/a"), MERGE),
        ("DELETE", format!("{CONFIG_MAPS}/a"), "application/json"),
    ] {
        for (size, told) in [(LIMIT + 1, true), (LIMIT + 1, false), (10 << 30, true), (10 << 30, false)] {
            let request = Request::builder().method(method).uri(&path).header("content-type", content_type);
            let response = cluster.send(request.body(Endless { left: size, told }).unwrap()).await;
            assert_eq!(response.status().as_u16(), 413, "{method} {size} {told}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let status: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(status["reason"], "RequestEntityTooLarge");
        }
    }
    // What just fits is read.
    let mut fits = config_map("b").to_string();
    fits.push_str(&" ".repeat(LIMIT - fits.len()));
    assert_eq!(send(&cluster, "application/json", fits).await.code, 201);
    // A body that ends too early is a 400.
    let torn = stream::iter([Ok(Frame::data(Bytes::from_static(b"{\"meta"))), Err(std::io::Error::other("cut"))]);
    let request = Request::post(CONFIG_MAPS).header("content-type", "application/json");
    let response = cluster.send(request.body(StreamBody::new(torn)).unwrap()).await;
    assert_eq!(response.status().as_u16(), 400);
    cluster.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
}

#[tokio::test]
async fn bombs() {
    let cluster = Cluster::with_widgets().await;
    let nested = |open: &str, close: &str, depth: usize| format!("{}{}", open.repeat(depth), close.repeat(depth));
    let mut bodies = vec![];
    for depth in [130, 10_000, 500_000] {
        bodies.push(("application/json", nested("[", "]", depth)));
        bodies.push(("application/json", nested("{\"a\":", "}", depth).replace(":}", ":1}")));
        bodies.push((
            "application/json",
            format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{}}}", nested("[", "]", depth)),
        ));
        bodies.push(("application/yaml", nested("[", "]", depth)));
        bodies.push(("application/yaml", nested("{a: ", "}", depth)));
    }
    for depth in [130, 1_000] {
        bodies.push(("application/yaml", (0..depth).map(|at| format!("{}a:\n", " ".repeat(at))).collect()));
        bodies.push(("application/yaml", "- ".repeat(depth)));
    }
    let mut laughs = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 9].join(",");
        laughs.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    bodies.push(("application/yaml", laughs));
    let text = "x".repeat(100_000);
    let mut long = format!("a: &a \"{text}\"\nb:\n");
    long.push_str(&"  - *a\n".repeat(50_000));
    bodies.push(("application/yaml", long));
    for (content_type, body) in &bodies {
        let answer = send(&cluster, content_type, body.clone()).await;
        check_sane(&answer);
        assert!(matches!(answer.code, 400 | 413 | 422), "{} {}", answer.code, &body[..body.len().min(60)]);
    }
    for (kind, body) in [
        (MERGE, nested("{\"a\":", "}", 10_000).replace(":}", ":1}")),
        (STRATEGIC, nested("{\"a\":", "}", 10_000).replace(":}", ":1}")),
        (JSON_PATCH, nested("[", "]", 10_000)),
        (APPLY, nested("{\"a\":", "}", 10_000).replace(":}", ":1}")),
    ] {
        let path = format!("{CONFIG_MAPS}/a?fieldManager=me");
        check_sane(&cluster.ask("PATCH", &path, &[("content-type", kind)], body).await);
    }
}

#[tokio::test]
async fn a_million_keys() {
    let cluster = Cluster::with_widgets().await;
    // 3 MiB hold some 300,000 of the shortest keys there are; a million are over the limit.
    let keys = |count: usize| (0..count).map(|at| format!("\"{at:x}\":0")).collect::<Vec<_>>().join(",");
    let many = format!("{{{}}}", "\"k\":0,".repeat(1_000_000));
    assert_eq!(send(&cluster, "application/json", many).await.code, 413);
    let fits = format!("{{\"metadata\":{{\"name\":\"a\"}},{}}}", keys(100_000));
    let answer = send(&cluster, "application/json", fits.clone()).await;
    answer.expect(201);
    let strict = cluster.ask("POST", &format!("{CONFIG_MAPS}?fieldValidation=Strict"), &[], fits).await;
    check_sane(&strict);
    assert_eq!(strict.code, 400);
    assert!(strict.body.len() < 10_000, "what is wrong with it is told a hundred times, not a hundred thousand times");
    let same = format!("{{\"metadata\":{{\"name\":\"b\"}},{}\"k\":0}}", "\"k\":0,".repeat(400_000));
    assert!(same.len() < LIMIT);
    check_sane(&send(&cluster, "application/json", same).await);
    let free = format!(
        "{{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{{\"name\":\"a\"}},\"spec\":{{\"free\":{{{}}}}}}}",
        keys(30_000)
    );
    let answer = cluster.ask("POST", WIDGETS, &[("content-type", "application/json")], free).await;
    check_sane(&answer);
}

#[tokio::test]
async fn numbers_at_the_edge() {
    let cluster = Cluster::with_widgets().await;
    for number in [
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "1e308",
        "1e309",
        "-0",
        "0.1e-400",
        "1.0",
        "100000000000000000000000000000000000000000",
    ] {
        let body = widget("NAME").to_string().replace("NAME", "a").replace("\"size\":1", &format!("\"size\":{number}"));
        let answer = cluster.ask("POST", WIDGETS, &[("content-type", "application/json")], body).await;
        check_sane(&answer);
        if answer.code == 201 {
            assert_eq!(cluster.get(&format!("{WIDGETS}/a")).await.expect(200), answer.json(), "{number}");
            cluster.delete(&format!("{WIDGETS}/a")).await.expect(200);
        }
    }
}

#[tokio::test]
async fn queries_that_make_no_sense() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let long = "x".repeat(50_000);
    let values = [
        "",
        "=",
        "&",
        "%",
        "%zz",
        "%00",
        "%ff%fe",
        "-1",
        "0",
        "9999999999999999999999",
        "1e5",
        "true",
        "null",
        "[]",
        "{}",
        "../../etc",
        "a%0d%0ab",
        "%F0%9F%98%80",
        "a,b,,",
        "a in (",
        "a in (b,",
        "!",
        "!!a",
        "a=b=c",
        "(((((",
        "a notin ()",
        "==",
        long.as_str(),
    ];
    let parameters = [
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "timeoutSeconds",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "force",
        "pretty",
        "propagationPolicy",
        "gracePeriodSeconds",
        "orphanDependents",
        "includeObject",
        "unknown",
        "",
    ];
    for parameter in parameters {
        for value in values {
            let value = value.replace(' ', "+").replace(['{', '}'], "%7B");
            for path in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}/a")] {
                check_sane(&cluster.get(&format!("{path}?{parameter}={value}")).await);
            }
            let post = format!("{CONFIG_MAPS}?{parameter}={value}&dryRun=All");
            check_sane(&cluster.post(&post, &config_map("b")).await);
            let patch = format!("{CONFIG_MAPS}/a?{parameter}={value}&dryRun=All");
            check_sane(&cluster.patch(&patch, MERGE, &json!({})).await);
            check_sane(&cluster.delete(&patch).await);
        }
    }
    // Four namespaces, two priority classes, eight priority levels, eleven flow schemas, and the ConfigMap that was there before.
    assert_eq!(keys(&cluster).len(), 26);
}

#[tokio::test]
async fn headers_that_make_no_sense() {
    let cluster = Cluster::new().await;
    let long = format!("application/json;{}", "a=b;".repeat(5_000));
    for value in [
        "",
        ";",
        ",",
        "/",
        "*/",
        "/*",
        "a/b/c",
        "application/json;",
        "application/json;q=",
        "application/json;q=nan",
        "application/json;q=9e99",
        "application/json;as=Table;v=;g=",
        ";;;;;",
        ",,,,",
        "application/json,,,,",
        "\t",
        long.as_str(),
    ] {
        for header in ["accept", "content-type", "user-agent", "if-none-match", "accept-encoding"] {
            let headers = [(header, value)];
            check_sane(&cluster.ask("GET", CONFIG_MAPS, &headers, "").await);
            check_sane(&cluster.ask("GET", "/apis", &headers, "").await);
            let answer =
                cluster.ask("POST", &format!("{CONFIG_MAPS}?dryRun=All"), &headers, config_map("a").to_string()).await;
            check_sane(&answer);
        }
    }
    // Bytes that are no text.
    let request = Request::get(CONFIG_MAPS).header("accept", http::HeaderValue::from_bytes(b"\xff\xfe").unwrap());
    let response = cluster.send(request.body(http_body_util::Full::new(Bytes::new())).unwrap()).await;
    assert!(response.status().as_u16() < 500);
}

#[tokio::test]
async fn methods_nobody_knows() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    for method in ["OPTIONS", "TRACE", "CONNECT", "BREW", "get", "HEAD"] {
        for path in [CONFIG_MAPS, "/version", "/nowhere", "/api/v1/namespaces/default/configmaps/a", "/apis"] {
            let answer = cluster.ask(method, path, &[], "").await;
            assert!(answer.code < 500, "{method} {path}");
            if answer.code >= 400 && method != "HEAD" {
                check_sane(&answer);
            }
        }
    }
}

#[tokio::test]
async fn parameters_that_cannot_be_read() {
    let cluster = Cluster::new().await;
    for (path, code) in [
        ("?limit=", 400),
        ("?limit=x", 400),
        ("?limit=1", 200),
        ("?timeoutSeconds=", 400),
        ("?timeout=zzz", 400),
        ("?timeout=5", 400),
        ("?timeout=", 200),
        ("?timeout=0", 200),
        ("?timeout=1m30s", 200),
    ] {
        let answer = cluster.get(&format!("{CONFIG_MAPS}{path}")).await;
        assert_eq!(answer.code, code, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }
}

#[tokio::test]
async fn media_types_of_bodies() {
    let cluster = Cluster::new().await;
    let object = crate::cluster::config_map("a");
    for (media_type, code) in [
        ("application/json;;;=", 415),
        ("application/json; charset", 415),
        ("application/json;", 201),
        ("application/json; charset=utf-8", 201),
        ("Application/JSON", 201),
    ] {
        let path = format!("{CONFIG_MAPS}?dryRun=All");
        let answer = cluster.ask("POST", &path, &[("content-type", media_type)], object.to_string()).await;
        assert_eq!(answer.code, code, "{media_type}: {}", String::from_utf8_lossy(&answer.body));
    }
    cluster.post(CONFIG_MAPS, &object).await.expect(201);
    for (media_type, code) in [
        ("application/merge-patch+json", 200),
        ("application/merge-patch+json; charset=utf-8", 200),
        ("application/MERGE-patch+json", 415),
    ] {
        let path = format!("{CONFIG_MAPS}/a");
        let answer = cluster.ask("PATCH", &path, &[("content-type", media_type)], "{}").await;
        assert_eq!(answer.code, code, "{media_type}: {}", String::from_utf8_lossy(&answer.body));
    }
}

#[tokio::test]
async fn addresses_of_nodes_are_unique() {
    let cluster = Cluster::new().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    cluster.post("/api/v1/nodes", &node).await.expect(201);
    let host = |address: &str| json!({"type": "Hostname", "address": address});
    for (addresses, fits) in [(json!([host("h"), host("i")]), true), (json!([host("h"), host("h")]), false)] {
        let patch = json!({"status": {"addresses": addresses}});
        let answer = cluster.patch("/api/v1/nodes/n/status", "application/merge-patch+json", &patch).await;
        if fits {
            answer.expect(200);
        } else {
            let message = answer.fails(422, "Invalid");
            assert!(message.contains("status.addresses[1]: Duplicate value"), "{message}");
        }
    }
}
