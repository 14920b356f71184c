//! The service `kubernetes`, by which programs in a cluster reach the API server, and the network that services are in. In: the
//! API server, the network and the port. Out: the service in the namespace `default` and the ServiceCIDR `kubernetes`, created
//! as kube-apiserver does at its start.

use bytes::Bytes;
use http::{Method, Request, header, request};
use http_body_util::{BodyExt, Full};
use konverge_apiserver::{ApiServer, ClusterIpRange, Environment, System, UserInfo};
use konverge_core::Status;
use serde_json::{Value, json};
use tower_service::Service;

/// Creates both, the service at the first address of the range of services, which no other service gets. The store is empty, so that
/// nothing can be there before.
pub(super) async fn create(api: &ApiServer, range: ClusterIpRange, port: u16) -> Result<(), Status> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": range.own_address().to_string(),
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
    });
    send(api, Request::post("/api/v1/namespaces/default/services"), &service).await?;
    let mut network = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [range.to_string()]},
    });
    const NETWORKS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
    send(api, Request::post(NETWORKS), &network).await?;
    network["status"] = json!({"conditions": [{
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": System.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    }]});
    send(api, Request::patch(format!("{NETWORKS}/kubernetes/status")), &network).await
}

async fn send(api: &ApiServer, request: request::Builder, object: &Value) -> Result<(), Status> {
    let patch = request.method_ref().is_some_and(|method| method == Method::PATCH);
    let kind = if patch { "application/merge-patch+json" } else { "application/json" };
    let request = request
        .header(header::CONTENT_TYPE, kind)
        // Managed fields name this program as their manager.
        .header(header::USER_AGENT, "kube-apiserver")
        .extension(UserInfo { groups: vec!["system:masters".to_owned()], ..UserInfo::named("system:apiserver") })
        .body(Full::new(Bytes::from(object.to_string())))
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
