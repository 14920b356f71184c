//! The lenient create of `konverge dev`: a custom resource that is posted into a namespace that does not exist creates the
//! namespace. In: a request. Out: the API server's answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use serde_json::json;

use konverge_apiserver::{ApiServer, Body, UserInfo};
use konverge_core::Status;

use super::{api_client, failure};

/// The largest body a request may have: what the API server accepts.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Hands a request over; if a custom resource lacks its namespace, makes that and tries again.
pub(super) async fn forward<B>(api: &ApiServer, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Some(namespace) = posted_into(&request).map(str::to_owned) else { return api_client::send(api, request).await };
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(why) if why.is::<LengthLimitError>() => {
            let message = format!("Request entity too large: limit is {MAX_BODY_BYTES}");
            return failure(&Status::too_large(message));
        }
        Err(why) => return failure(&Status::bad_request(format!("the request body did not arrive whole: {why}"))),
    };
    let again = || Request::from_parts(parts.clone(), Full::new(body.clone()));
    let response = api_client::send(api, again()).await;
    if response.status() != 404 {
        return response;
    }
    let (head, answer) = response.into_parts();
    let answer = api_client::whole(answer).await;
    let details = api_client::status(&answer).details.unwrap_or_default();
    let lacks = details.group.is_empty() && details.kind == "namespaces" && details.name == namespace;
    if lacks && make(api, &namespace, parts.extensions.get().cloned()).await {
        return api_client::send(api, again()).await;
    }
    Response::from_parts(head, Body::full(answer))
}

/// The namespace of a request that creates an object of a group with a domain of its own, and means it.
fn posted_into<B>(request: &Request<B>) -> Option<&str> {
    let segments: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let dry = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("dryRun")));
    match segments.as_slice() {
        // Groups of Kubernetes have no dot, or end in k8s.io: what is posted there is as strict as anywhere.
        ["apis", group, _, "namespaces", namespace, _]
            if request.method() == Method::POST && !dry && group.contains('.') && !group.ends_with(".k8s.io") =>
        {
            Some(namespace)
        }
        _ => None,
    }
}

/// Makes a namespace, if the user of the request may; that somebody else was faster is fine.
async fn make(api: &ApiServer, name: &str, user: Option<Arc<UserInfo>>) -> bool {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
    let mut request = Request::post("/api/v1/namespaces?fieldManager=konverge-dev")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(object)))
        .expect("a known path makes a request");
    if let Some(user) = user {
        request.extensions_mut().insert(user);
    }
    let code = api_client::send(api, request).await.status().as_u16();
    if code == 201 {
        tracing::info!(namespace = name, "created a namespace for an object that was posted into it");
    }
    matches!(code, 201 | 409)
}
