//! Requests to the API server in the same process. In: a request or a path. Out: the answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower_service::Service;

use konverge_apiserver::{ApiServer, Body, UserInfo};
use konverge_core::Status;

/// Hands a request over.
pub(super) async fn send<B>(api: &ApiServer, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match api.clone().call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Reads for the pages, as the user who asks for one: a page shows nobody what the API would refuse them.
#[derive(Clone)]
pub(super) struct Reader {
    api: ApiServer,
    user: Arc<UserInfo>,
}

impl Reader {
    pub(super) fn new(api: &ApiServer, user: Arc<UserInfo>) -> Self {
        Self { api: api.clone(), user }
    }

    /// Reads a path.
    pub(super) async fn get(&self, path: &str, accept: &'static str) -> Result<Response<Body>, Status> {
        let request = Request::get(path).header(http::header::ACCEPT, accept);
        let request = request.extension(self.user.clone()).body(Full::new(Bytes::new()));
        let request = request.map_err(|why| Status::bad_request(format!("{path:?} is no path: {why}")))?;
        Ok(send(&self.api, request).await)
    }

    /// Reads the JSON at a path.
    pub(super) async fn json(&self, path: &str) -> Result<Value, Status> {
        self.json_as(path, "application/json").await
    }

    /// Reads the JSON at a path, in this form of it.
    pub(super) async fn json_as(&self, path: &str, accept: &'static str) -> Result<Value, Status> {
        let response = self.get(path, accept).await?;
        let succeeded = response.status().is_success();
        let body = whole(response.into_body()).await;
        if !succeeded {
            return Err(status(&body));
        }
        serde_json::from_slice(&body).map_err(Status::internal)
    }
}

/// All of an answer.
pub(super) async fn whole(body: Body) -> Bytes {
    match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(never) => match never {},
    }
}

/// The `Status` that a failed request answered with.
pub(super) fn status(body: &[u8]) -> Status {
    serde_json::from_slice(body).unwrap_or_else(|_| Status::internal(String::from_utf8_lossy(body)))
}
