//! Tests of requests through a proxy.

use std::convert::Infallible;
use std::future::{Ready, ready};

use http::header;

use super::*;

/// Responds with its name, and with whether the request asked to close the connection.
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
        let response = Response::builder().header("server", self.0).header("closes", closes.to_string());
        ready(Ok(response.body(Body::empty()).expect("the response is valid")))
    }
}

#[tokio::test]
async fn watches_through_a_proxy_open_new_connections() {
    let client = |name| Client::new(Server(name), "default");
    let proxied = Proxied { requests: client("requests"), watches: client("watches") };
    let client = Client::new(proxied, "default");
    for (path, server, closes) in [
        ("/api/v1/pods?limit=5", "requests", "false"),
        ("/api/v1/pods?watch=true&resourceVersion=7", "watches", "true"),
        ("/api/v1/pods?resourceVersion=7&watch=1", "watches", "true"),
        ("/api/v1/pods?labelSelector=watch%3D1", "requests", "false"),
    ] {
        let response = client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(
            (&response.headers()["server"], &response.headers()["closes"]),
            (&server.parse().unwrap(), &closes.parse().unwrap()),
            "{path}"
        );
        assert!(response.extensions().get::<MayBeHalfOpen>().is_some(), "{path}");
    }
}
