//! Large OpenAPI documents: who renders them, how often, and what is kept.

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower_service::Service;

use super::*;
use crate::server::{ApiServer, Options};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn send(api: &ApiServer, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    api.clone().call(request.body(Full::new(body)).unwrap()).await.unwrap()
}

async fn body(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// A definition whose description alone takes a MiB.
fn definition(plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.to_uppercase()},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "description": "d".repeat(1024 * 1024)}},
            }],
        },
    })
}

#[tokio::test(flavor = "current_thread")]
async fn a_large_document_is_rendered_once_and_elsewhere() {
    let api = ApiServer::open(Options::default()).await.unwrap();
    for plural in ["ones", "twos", "threes"] {
        assert_eq!(send(&api, "POST", CRDS, &[], definition(plural)).await.status(), 201);
    }
    const GZIP: &[(&str, &str)] = &[("accept-encoding", "gzip")];
    let mut others = vec!["fours", "fives"];
    for path in ["/openapi/v2", "/openapi/v3/apis/example.com/v1"] {
        let get = |headers| send(&api, "GET", path, headers, Value::Null);
        assert!(get(GZIP).now_or_never().is_none(), "{path}: rendered on the thread that serves");
        // The client has gone; those who come now wait for what it asked for.
        let together = join_all((0..4).map(|_| async { body(get(GZIP).await).await })).await;
        let again = body(get(GZIP).now_or_never().expect("is cached")).await;
        assert!(together.iter().all(|one| one.as_ptr() == again.as_ptr()), "{path}: one copy");
        let mut unpacked = Vec::new();
        GzDecoder::new(&*again).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked.len() > KEEP_PLAIN, "{path}: {}", unpacked.len());
        serde_json::from_slice::<Value>(&unpacked).expect("is JSON");
        let plain = get(&[]).await;
        let tag = plain.headers()["etag"].to_str().unwrap().to_owned();
        assert_eq!(body(plain).await, unpacked, "{path}");
        let is_known = [("if-none-match", &*tag)];
        assert_eq!(send(&api, "GET", path, &is_known, Value::Null).await.status(), 304, "{path}");
        // Another definition: who has the old document gets a new one, and the old one is given back.
        assert_eq!(send(&api, "POST", CRDS, &[], definition(others.pop().unwrap())).await.status(), 201);
        let changed = send(&api, "GET", path, &is_known, Value::Null).await;
        assert_eq!(changed.status(), 200, "{path}");
        assert!(body(changed).await.len() > unpacked.len(), "{path}");
        let kept = api.0.documents.cache.lock().bytes;
        assert!(kept < KEEP_PLAIN, "{path}: {kept} bytes are kept");
    }
}

#[test]
fn the_cache_is_bounded_and_keeps_the_newest() {
    let document = |bytes: usize| {
        Arc::new(CachedDocument { plain: Some(Bytes::from(vec![0; bytes])), gzip: Bytes::new(), hash: String::new() })
    };
    let name = |group: &str| Name::OpenApi(group.to_owned(), "v1".to_owned());
    const MIB: usize = 1024 * 1024;
    // What is inserted for which generation, and what is found then.
    for (inserted, generation, expect) in [
        (&[("a", 1, 1), ("b", 1, 1)][..], 1, &["a", "b"][..]),
        (&[("a", 1, 1), ("b", 2, 1)], 2, &["b"]),
        (&[("a", 2, 1), ("late", 1, 1)], 2, &["a"]),
        (&[("a", 2, 1)], 1, &[]),
        (&[("a", 1, 20), ("b", 1, 20)], 1, &["b"]),
        (&[("a", 1, 1), ("huge", 1, 40)], 1, &["huge"]),
        (&[("huge", 1, 40), ("a", 1, 1)], 1, &["a"]),
    ] {
        let mut cache = Cache::default();
        for (group, generation, mib) in inserted {
            cache.insert(*generation, name(group), &document(mib * MIB));
        }
        let found: Vec<&str> = ["a", "b", "late", "huge"]
            .into_iter()
            .filter(|group| cache.find(generation, &name(group)).is_some())
            .collect();
        assert_eq!(found, expect, "{inserted:?}");
    }
}
