//! The service `kubernetes`, by which programs in a cluster reach the API server, and the network that services are in. In: the
//! API server, the network and the address of the listener. Out: the service in the namespace `default` with its Endpoints and
//! EndpointSlice, and the ServiceCIDR `kubernetes`, as kube-apiserver writes them at its start.
//!
//! Endpoints cannot have loopback addresses. kube-apiserver advertises the address of another interface then, also where nothing
//! listens there. Here both objects exist, and have an address only if the listener is reached under it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use konverge_apiserver::{ApiServer, ClusterIpRange, Environment, System, UserInfo};
use konverge_core::Status;
use serde_json::{Value, json};
use tower_service::Service;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const NETWORKS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

/// All four objects have this name.
const NAME: &str = "kubernetes";

/// Creates what is missing, and corrects the port and the address of what an earlier run has left in the store.
pub(crate) async fn publish(api: &ApiServer, range: ClusterIpRange, listener: SocketAddr) -> Result<(), Status> {
    let own = OwnServer { api };
    own.write_network(range).await?;
    own.write_service(range, listener.port()).await?;
    let address = advertised(listener.ip());
    own.write(ENDPOINTS, endpoints(address, listener.port())).await?;
    own.write(SLICES, slice(address, listener.port())).await
}

/// The address under which others reach the listener. If it listens at all interfaces, this is the address that this machine
/// has towards other networks.
fn advertised(bound: IpAddr) -> Option<IpAddr> {
    let address = match bound.is_unspecified() {
        false => bound,
        true => outward(bound)?,
    };
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// The address of the interface with the route to other networks. Connecting a UDP socket asks the system for the route and sends
/// nothing; the addresses that it connects to are for documentation.
fn outward(bound: IpAddr) -> Option<IpAddr> {
    let towards: &[SocketAddr] = match bound {
        IpAddr::V4(_) => &[SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9)],
        // A socket for all IPv6 addresses takes IPv4 as well.
        IpAddr::V6(_) => &[
            SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
            SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9),
        ],
    };
    towards.iter().find_map(|there| {
        let any: IpAddr = if there.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(there).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

fn service(range: ClusterIpRange, port: u16) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": range.own_address().to_string(),
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
    })
}

fn endpoints(address: Option<IpAddr>, port: u16) -> Value {
    let mut endpoints = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": NAME, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
    });
    if let Some(address) = address {
        endpoints["subsets"] = json!([{
            "addresses": [{"ip": address.to_string()}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }]);
    }
    endpoints
}

fn slice(address: Option<IpAddr>, port: u16) -> Value {
    let endpoints: Vec<Value> = address
        .iter()
        .map(|address| json!({"addresses": [address.to_string()], "conditions": {"ready": true}}))
        .collect();
    let ports =
        if address.is_some() { json!([{"name": "https", "port": port, "protocol": "TCP"}]) } else { Value::Null };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": if address.is_some_and(|address| address.is_ipv6()) { "IPv6" } else { "IPv4" },
        "endpoints": endpoints,
        "ports": ports,
    })
}

/// The server as a client of itself.
struct OwnServer<'a> {
    api: &'a ApiServer,
}

impl OwnServer<'_> {
    /// The service has the first address of the range, which no other service gets.
    async fn write_service(&self, range: ClusterIpRange, port: u16) -> Result<(), Status> {
        let wanted = service(range, port);
        let Some(found) = self.get(SERVICES).await? else { return self.send(Method::POST, SERVICES, &wanted).await };
        if found["spec"]["ports"][0]["targetPort"] == port {
            return Ok(());
        }
        let ports = json!({"spec": {"ports": wanted["spec"]["ports"]}});
        self.send(Method::PATCH, &format!("{SERVICES}/{NAME}"), &ports).await
    }

    /// A ServiceCIDR cannot be changed. One of an earlier run with another range stays, as on a cluster.
    async fn write_network(&self, range: ClusterIpRange) -> Result<(), Status> {
        let cidrs = json!([range.to_string()]);
        let found = match self.get(NETWORKS).await? {
            Some(found) => found,
            None => {
                let network = json!({
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "ServiceCIDR",
                    "metadata": {"name": NAME},
                    "spec": {"cidrs": cidrs},
                });
                self.send(Method::POST, NETWORKS, &network).await?;
                network
            }
        };
        if found["spec"]["cidrs"] != cidrs {
            tracing::warn!(stored = %found["spec"]["cidrs"], range = %cidrs, "the ServiceCIDR kubernetes is of another range");
            return Ok(());
        }
        if found["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty()) {
            return Ok(());
        }
        let ready = json!({"status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "",
            "message": "Kubernetes default Service CIDR is ready",
            "lastTransitionTime": System.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]}});
        self.send(Method::PATCH, &format!("{NETWORKS}/{NAME}/status"), &ready).await
    }

    /// Creates or replaces an object. The type of the addresses of an EndpointSlice cannot be changed.
    async fn write(&self, collection: &str, mut wanted: Value) -> Result<(), Status> {
        let one = format!("{collection}/{NAME}");
        if let Some(found) = self.get(collection).await? {
            // A restart writes nothing, so that it needs no webhook.
            if ["addressType", "subsets", "endpoints", "ports"].iter().all(|field| same(&found[field], &wanted[field]))
            {
                return Ok(());
            }
            if found["addressType"] == wanted["addressType"] {
                wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
                return self.send(Method::PUT, &one, &wanted).await;
            }
            self.send(Method::DELETE, &one, &Value::Null).await?;
        }
        self.send(Method::POST, collection, &wanted).await
    }

    async fn get(&self, collection: &str) -> Result<Option<Value>, Status> {
        let (status, body) = self.call(Method::GET, &format!("{collection}/{NAME}"), &Value::Null).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            _ => {
                accepted(status, &body).and_then(|()| serde_json::from_slice(&body).map_err(Status::internal)).map(Some)
            }
        }
    }

    async fn send(&self, method: Method, path: &str, object: &Value) -> Result<(), Status> {
        let (status, body) = self.call(method, path, object).await?;
        accepted(status, &body)
    }

    async fn call(&self, method: Method, path: &str, object: &Value) -> Result<(StatusCode, Bytes), Status> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = if object.is_null() { Bytes::new() } else { object.to_string().into() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, kind)
            // Managed fields name this program as their manager.
            .header(header::USER_AGENT, "kube-apiserver")
            .extension(UserInfo { groups: vec!["system:masters".to_owned()], ..UserInfo::named("system:apiserver") })
            .body(Full::new(body))
            .map_err(Status::internal)?;
        let answer = match self.api.clone().call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let status = answer.status();
        match answer.into_body().collect().await {
            Ok(body) => Ok((status, body.to_bytes())),
            Err(never) => match never {},
        }
    }
}

/// Whether two lists or texts are the same; an empty list is none.
fn same(one: &Value, other: &Value) -> bool {
    let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    one == other || empty(one) && empty(other)
}

fn accepted(status: StatusCode, body: &[u8]) -> Result<(), Status> {
    match status.is_success() {
        true => Ok(()),
        false => Err(serde_json::from_slice(body).unwrap_or_else(|_| Status::internal(String::from_utf8_lossy(body)))),
    }
}

#[cfg(test)]
mod tests {
    use konverge_apiserver::Options;

    use super::*;

    /// The target port of the service, and the addresses of its Endpoints and its EndpointSlice, as the listener moves.
    #[tokio::test]
    async fn follows_the_listener() {
        let api = ApiServer::open(Options::default()).await.unwrap();
        let own = OwnServer { api: &api };
        for (listener, expect) in [
            ("127.0.0.1:3000", None),
            ("198.51.100.7:6443", Some(("198.51.100.7", "IPv4"))),
            ("198.51.100.8:6443", Some(("198.51.100.8", "IPv4"))),
            ("[2001:db8::7]:6443", Some(("2001:db8::7", "IPv6"))),
            ("[::1]:3001", None),
        ] {
            let listener: SocketAddr = listener.parse().unwrap();
            publish(&api, ClusterIpRange::default(), listener).await.unwrap();
            let service = own.get(SERVICES).await.unwrap().unwrap();
            assert_eq!(service["spec"]["ports"][0]["targetPort"], listener.port(), "{listener}");
            assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
            let endpoints = own.get(ENDPOINTS).await.unwrap().unwrap();
            let slice = own.get(SLICES).await.unwrap().unwrap();
            let address = expect.map_or(Value::Null, |(address, _)| json!(address));
            let port = expect.map_or(Value::Null, |_| json!(listener.port()));
            assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], address, "{listener}");
            assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], port, "{listener}");
            assert_eq!(slice["endpoints"][0]["addresses"][0], address, "{listener}");
            assert_eq!(slice["ports"][0]["port"], port, "{listener}");
            assert_eq!(slice["addressType"], expect.map_or("IPv4", |(_, family)| family), "{listener}");
        }
        let network = own.get(NETWORKS).await.unwrap().unwrap();
        assert_eq!(network["spec"]["cidrs"], json!(["10.96.0.0/16"]));
        assert_eq!(network["status"]["conditions"][0]["type"], "Ready");
    }
}
