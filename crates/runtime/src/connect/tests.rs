//! Tests of what goes through a proxy.

use std::convert::Infallible;
use std::future::{Ready, ready};

use http::header;

use super::*;

/// Says who it is, and whether its connection is to be closed.
struct Server(&'static str);

impl Service<Request<Body>> for Server {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let closes = request.headers().get(header::CONNECTION).is_some_and(|value| value == "close");
        let answer = Response::builder().header("server", self.0).header("closes", closes.to_string());
        ready(Ok(answer.body(Body::empty()).expect("it is an answer")))
    }
}

#[tokio::test]
async fn watches_through_a_proxy_are_renewed_over_new_connections() {
    let client = |name| Client::new(Server(name), "default");
    let proxied = Proxied { requests: client("requests"), watches: client("watches") };
    let client = Client::new(proxied, "default");
    for (path, server, closes) in [
        ("/api/v1/pods?limit=5", "requests", "false"),
        ("/api/v1/pods?watch=true&resourceVersion=7", "watches", "true"),
        ("/api/v1/pods?resourceVersion=7&watch=1", "watches", "true"),
        ("/api/v1/pods?labelSelector=watch%3D1", "requests", "false"),
    ] {
        let answer = client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(
            (&answer.headers()["server"], &answer.headers()["closes"]),
            (&server.parse().unwrap(), &closes.parse().unwrap()),
            "{path}"
        );
        assert!(answer.extensions().get::<MayBeHalfOpen>().is_some(), "{path}");
    }
}
