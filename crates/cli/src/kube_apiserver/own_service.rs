//! The service `kubernetes`, by which programs in a cluster reach the API server. In: the API server and its port. Out: the
//! service in the namespace `default`, created as kube-apiserver does at its start.

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use konverge_apiserver::{ApiServer, UserInfo};
use konverge_core::Status;
use serde_json::json;
use tower_service::Service;

/// The first address of the range that services get their addresses from. The API server gives it to no other service.
const CLUSTER_IP: &str = "10.96.0.1";

/// Creates the service. The store is empty, so that nothing can be there before.
pub(super) async fn create(api: &ApiServer, port: u16) -> Result<(), Status> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": CLUSTER_IP,
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
    });
    let request = Request::post("/api/v1/namespaces/default/services")
        .header(header::CONTENT_TYPE, "application/json")
        // Managed fields name this program as their manager.
        .header(header::USER_AGENT, "kube-apiserver")
        .extension(UserInfo { groups: vec!["system:masters".to_owned()], ..UserInfo::named("system:apiserver") })
        .body(Full::new(Bytes::from(service.to_string())))
        .map_err(Status::internal)?;
    let answer = match api.clone().call(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    if answer.status().is_success() {
        return Ok(());
    }
    let body = match answer.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    };
    Err(serde_json::from_slice(&body).unwrap_or_else(|_| Status::internal(String::from_utf8_lossy(&body))))
}
