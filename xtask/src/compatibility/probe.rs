//! In: an endpoint and a verb. Out: whether our server has them, found out by a request. The object that a request names does
//! not exist, so an endpoint that is there answers that the object is not, or that the body is wrong.

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::runtime::Runtime;
use tower_service::Service;

use konverge_apiserver::{ApiServer, Options};

use super::original::Endpoint;

/// A name that no object has.
const NOBODY: &str = "compatibility-probe";

/// A server in this process.
pub(super) struct Probe {
    runtime: Runtime,
    server: ApiServer,
}

impl Probe {
    /// Starts a server without objects of its users.
    pub(super) fn start() -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
        let server = runtime.block_on(ApiServer::open(Options::default())).map_err(|error| error.to_string())?;
        Ok(Self { runtime, server })
    }

    /// Whether a request for this verb is one that the endpoint knows.
    pub(super) fn is_served(&mut self, endpoint: &Endpoint, verb: &str) -> bool {
        let Some((method, path)) = request(endpoint, verb) else { return false };
        let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = if matches!(method, Method::GET | Method::DELETE) { "" } else { "{}" };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.body(Full::from(body)).expect("known methods and paths make a request");
        self.runtime.block_on(async {
            let Ok(response) = self.server.call(request).await;
            let code = response.status();
            // The answer to a watch does not end, but neither is it a refusal.
            if code.is_success() {
                return true;
            }
            let Ok(collected) = response.into_body().collect().await;
            let status: Value = serde_json::from_slice(&collected.to_bytes()).unwrap_or_default();
            is_known(code, &status)
        })
    }
}

/// Whether a refusal comes from the endpoint, rather than from not having it.
fn is_known(code: StatusCode, status: &Value) -> bool {
    match code {
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => false,
        // A path that nobody knows gets plain text, or a Status that names no object.
        StatusCode::NOT_FOUND => status["details"]["name"].as_str().is_some_and(|name| !name.is_empty()),
        _ => true,
    }
}

/// The request for a verb.
fn request(endpoint: &Endpoint, verb: &str) -> Option<(Method, String)> {
    let Endpoint { group, version, resource, .. } = endpoint;
    let group = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let namespace = if endpoint.namespaced { "/namespaces/default" } else { "" };
    let collection = format!("{group}{namespace}/{resource}");
    let object = match &endpoint.subresource {
        None => format!("{collection}/{NOBODY}"),
        Some(subresource) => format!("{collection}/{NOBODY}/{subresource}"),
    };
    let created = if endpoint.subresource.is_some() { object.clone() } else { collection.clone() };
    Some(match verb {
        "get" => (Method::GET, object),
        "list" => (Method::GET, collection),
        "watch" => (Method::GET, format!("{collection}?watch=true&timeoutSeconds=1")),
        "create" => (Method::POST, created),
        "update" => (Method::PUT, object),
        "patch" => (Method::PATCH, object),
        "delete" => (Method::DELETE, object),
        "deletecollection" => (Method::DELETE, format!("{collection}?dryRun=All")),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_what_is_not() {
        let mut probe = Probe::start().expect("a server");
        let mut check = |resource: &str, subresource: Option<&str>, verb: &str, expect: bool| {
            let endpoint = Endpoint {
                group: String::new(),
                version: "v1".into(),
                resource: resource.into(),
                subresource: subresource.map(str::to_owned),
                namespaced: true,
                verbs: Vec::new(),
            };
            assert_eq!(probe.is_served(&endpoint, verb), expect, "{verb} {resource} {subresource:?}");
        };
        for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"] {
            check("pods", None, verb, true);
            check("unicorns", None, verb, false);
        }
        check("pods", Some("status"), "patch", true);
        check("pods", Some("status"), "create", false);
        check("pods", Some("horn"), "get", false);
        check("bindings", None, "list", false);
    }
}
