//! Whether the namespaces of the settings exist. In: their names. Out: a warning for each that does not: a watch of a namespace
//! that does not exist succeeds and shows nothing, so a misspelt name would go unnoticed.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

/// Warns of namespaces that do not exist. One request for each; a server that refuses or does not respond says nothing about
/// the namespace, and is no reason to warn.
pub(super) async fn warn_of_missing(client: Client, namespaces: Vec<String>) {
    let api: Api<Namespace> = Api::all(client);
    for namespace in namespaces {
        if let Ok(None) = api.get_opt(&namespace).await {
            tracing::warn!(
                namespace,
                "the operator watches a namespace that does not exist; nothing is reconciled until it is created"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;
    use tower_service::Service;

    use super::*;

    /// Has the namespace `shop`, and refuses to tell about `secret`.
    struct Server;

    impl Service<Request<Body>> for Server {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let (code, body) = match request.uri().path().rsplit('/').next() {
                Some("shop") => (200, json!({"metadata": {"name": "shop"}})),
                Some("secret") => (403, json!({"kind": "Status", "code": 403, "reason": "Forbidden"})),
                _ => (404, json!({"kind": "Status", "code": 404, "reason": "NotFound"})),
            };
            let response = Response::builder().status(code).header("content-type", "application/json");
            ready(Ok(response.body(Body::from(body.to_string().into_bytes())).expect("the response is valid")))
        }
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_namespace_that_does_not_exist_is_logged() {
        let log = Log::default();
        let writes = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writes.clone()).finish();
        let logging = tracing::subscriber::set_default(subscriber);
        let names = ["shop", "shpo", "secret"].map(str::to_owned).to_vec();
        warn_of_missing(Client::new(Server, "default"), names).await;
        drop(logging);
        let text = String::from_utf8(log.0.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("namespace=\"shpo\"") && text.contains("does not exist"), "{text}");
    }
}
