//! Requests that the engine's writer does not make: a delete that says how, and others that name their own path. In: what
//! to send. Out: what was answered, as text. Never tells a cache: the desk does.

use http::{Method, Request};
use konverge_core::ObjectKey;
use konverge_runtime::Result;
use kube::Client;
use kube::core::ApiResource;
use serde_json::{Value, json};

/// How to delete.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeleteOptions<'a> {
    /// Just this object, not another one of its name.
    pub uid: &'a str,
    /// Only in this version; in any, if nothing is said here.
    pub resource_version: Option<&'a str>,
    /// How many seconds it may take to end; what its kind says, if nothing is said here.
    pub grace: Option<u32>,
    /// `Background`, `Foreground` or `Orphan`; what its kind says, if nothing is said here.
    pub propagation: Option<&'static str>,
}

/// What became of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It is gone.
    Now,
    /// It is on its way; this is how it looks now.
    Later(String),
    /// It was gone, or another object has its name.
    Absent,
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
) -> Result<Gone> {
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
        // What goes at once is answered with a Status, or with the object as it last was.
        Ok(text) if stays(&text) => Ok(Gone::Later(text)),
        Ok(_) => Ok(Gone::Now),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Gone::Absent),
        Err(kube::Error::Api(status)) if status.code == 409 && is_another(&status.message) => Ok(Gone::Absent),
        Err(error) => Err(error.into()),
    }
}

/// Reads the metadata of what is under a path.
pub(crate) async fn metadata(client: &Client, path: &str) -> Result<String, kube::Error> {
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let request = Request::builder().uri(path).header(http::header::ACCEPT, accept);
    client.request_text(request.body(Vec::new()).map_err(kube::Error::HttpError)?).await
}

/// Sends one request and answers with the text of the answer.
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

/// Whether a conflict says that another object has the name: servers have two ways to say so.
fn is_another(message: &str) -> bool {
    message.contains("UID in precondition") || message.contains("UID in the precondition")
}

/// Whether an answer to a delete shows an object that is still there: it has finalizers left, or time.
fn stays(answer: &str) -> bool {
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
    fn only_what_is_held_stays() {
        let check = |answer: Value, expect: bool| assert_eq!(stays(&answer.to_string()), expect, "{answer}");
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
