//! Requests that the engine's writer does not offer: deletes with all options, and requests to a given path. In: what to
//! send. Out: the answer as text. Never updates a cache: the context does.

use http::{Method, Request};
use konverge_core::ObjectKey;
use konverge_runtime::Result;
use kube::Client;
use kube::core::ApiResource;
use serde_json::{Value, json};

/// The options of a delete, as in the API.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeleteOptions<'a> {
    /// Delete only the object with this uid, not another one of the same name.
    pub uid: &'a str,
    /// Delete only this resource version; any version if `None`.
    pub resource_version: Option<&'a str>,
    /// The grace period in seconds; the default of the kind if `None`.
    pub grace: Option<u32>,
    /// `Background`, `Foreground` or `Orphan`; the default of the kind if `None`.
    pub propagation: Option<&'static str>,
}

/// The outcome of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// The object is gone.
    Now,
    /// The object waits for finalizers or its grace period; this is its JSON now.
    Terminating(String),
    /// The object did not exist, or another object has its name.
    NotFound,
}

/// The path of an object, or of the collection if there is no name.
pub(crate) fn path(api: &ApiResource, namespace: Option<&str>, name: &str) -> String {
    let mut path = match api.group.is_empty() {
        true => format!("/api/{}", api.version),
        false => format!("/apis/{}/{}", api.group, api.version),
    };
    if let Some(namespace) = namespace {
        path.push_str(&format!("/namespaces/{namespace}"));
    }
    path.push_str(&format!("/{}", api.plural));
    if !name.is_empty() {
        path.push_str(&format!("/{name}"));
    }
    path
}

/// Deletes an object.
pub(crate) async fn delete(
    client: &Client,
    api: &ApiResource,
    key: &ObjectKey,
    options: &DeleteOptions<'_>,
) -> Result<Deleted> {
    let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": options.uid}});
    if let Some(resource_version) = options.resource_version {
        body["preconditions"]["resourceVersion"] = resource_version.into();
    }
    if let Some(grace) = options.grace {
        body["gracePeriodSeconds"] = grace.into();
    }
    if let Some(propagation) = options.propagation {
        body["propagationPolicy"] = propagation.into();
    }
    match send(client, Method::DELETE, &path(api, key.namespace(), key.name()), Some(&body)).await {
        // If the object is gone at once, the answer is a Status or the last state of the object.
        Ok(text) if is_terminating(&text) => Ok(Deleted::Terminating(text)),
        Ok(_) => Ok(Deleted::Now),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Deleted::NotFound),
        Err(kube::Error::Api(status)) if status.code == 409 && is_uid_mismatch(&status.message) => {
            Ok(Deleted::NotFound)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads the metadata of the object or the collection at a path.
pub(crate) async fn metadata(client: &Client, path: &str) -> Result<String, kube::Error> {
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let request = Request::builder().uri(path).header(http::header::ACCEPT, accept);
    client.request_text(request.body(Vec::new()).map_err(kube::Error::HttpError)?).await
}

/// Sends one request and returns the body of the answer as text.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<String, kube::Error> {
    let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, "application/json");
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = request.body(body).map_err(kube::Error::HttpError)?;
    client.request_text(request).await
}

/// Whether a conflict means that another object has the name. Servers use two different messages for it.
fn is_uid_mismatch(message: &str) -> bool {
    message.contains("UID in precondition") || message.contains("UID in the precondition")
}

/// Whether the answer to a delete shows an object that still exists: it has finalizers, or its grace period runs.
fn is_terminating(answer: &str) -> bool {
    let Ok(answer) = serde_json::from_str::<Value>(answer) else { return false };
    let metadata = &answer["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|held| !held.is_empty());
    let has_time = metadata["deletionGracePeriodSeconds"].as_u64().is_some_and(|seconds| seconds > 0);
    answer["kind"] != "Status" && metadata["deletionTimestamp"].is_string() && (held || has_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_finalizers_or_a_grace_period_are_terminating() {
        let check = |answer: Value, expect: bool| assert_eq!(is_terminating(&answer.to_string()), expect, "{answer}");
        let when = "2026-01-01T00:00:00Z";
        check(json!({"kind": "Status", "metadata": {}}), false);
        check(json!({"kind": "Pod", "metadata": {"name": "p"}}), false);
        check(json!({"kind": "Pod", "metadata": {"deletionTimestamp": when, "deletionGracePeriodSeconds": 30}}), true);
        check(json!({"kind": "Pod", "metadata": {"deletionTimestamp": when, "deletionGracePeriodSeconds": 0}}), false);
        check(json!({"kind": "ConfigMap", "metadata": {"deletionTimestamp": when, "finalizers": ["a/b"]}}), true);
        check(json!({"kind": "ConfigMap", "metadata": {"deletionTimestamp": when, "finalizers": []}}), false);
    }

    #[test]
    fn paths_name_group_namespace_and_name() {
        use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
        let (deployments, nodes) = (ApiResource::erase::<Deployment>(&()), ApiResource::erase::<Node>(&()));
        assert_eq!(path(&deployments, Some("a"), "web"), "/apis/apps/v1/namespaces/a/deployments/web");
        assert_eq!(path(&deployments, Some("a"), ""), "/apis/apps/v1/namespaces/a/deployments");
        assert_eq!(path(&nodes, None, "n1"), "/api/v1/nodes/n1");
    }
}
