//! `proxy` of pods and services: requests that are passed on. In: a request, and the path behind `proxy`. Out: what a forwarded
//! connection to the port would answer, or kube-apiserver's error if nothing would. Nodes have no kubelet that could answer.

use std::net::IpAddr;

use http::{HeaderValue, Response, header};
use serde_json::Value;

use konverge_core::Status;

use crate::body::Body;
use crate::meta;
use crate::response::typed;
use crate::simulation::{HttpAnswer, Simulation};

use super::connect::PodRequest;
use super::container;

/// Passes a request on to a pod: `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
pub(crate) async fn proxy_pod(at: &PodRequest<'_>) -> Result<Response<Body>, Status> {
    let asked =
        Target::parse(at.name).ok_or_else(|| Status::bad_request(format!("invalid pod request {:?}", at.name)))?;
    let pod = at.read(asked.name).await?.object;
    let simulation = Simulation::of(&pod);
    if simulation.ip.parse::<IpAddr>().is_err() {
        return Err(Status::bad_request("address not allowed"));
    }
    let port = match asked.port {
        "" => simulation.first_port().unwrap_or(if asked.scheme == "https" { 443 } else { 80 }),
        text => text.parse().map_err(|_| unreachable(&format!("dial tcp: lookup tcp/{text}: unknown port")))?,
    };
    answer(at, &pod, &simulation, port)
}

/// Passes a request on to one of the pods that are ready behind a service. A port is named by its name or number.
pub(crate) async fn proxy_service(at: &PodRequest<'_>) -> Result<Response<Body>, Status> {
    let asked =
        Target::parse(at.name).ok_or_else(|| Status::bad_request(format!("invalid service request {:?}", at.name)))?;
    let mut port_name = asked.port.to_owned();
    if let Ok(number) = asked.port.parse::<i64>() {
        let service = at.read(asked.name).await?.object;
        let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let Some(port) = ports.find(|port| port["port"] == number) else {
            let why = format!("no service port {number} found for service {:?}", asked.name);
            return Err(unavailable(&why));
        };
        port_name = port["name"].as_str().unwrap_or_default().to_owned();
    }
    let endpoints = at.read_other("endpoints", asked.name).await?;
    let subsets = endpoints["subsets"].as_array().map(Vec::as_slice).unwrap_or_default();
    if subsets.is_empty() {
        return Err(unavailable(&format!("no endpoints available for service {:?}", asked.name)));
    }
    for subset in subsets {
        let mut ports = subset["ports"].as_array().into_iter().flatten();
        let port = ports.find(|port| port["name"].as_str().unwrap_or_default() == port_name);
        let number = port.and_then(|port| port["port"].as_u64()).and_then(|port| u16::try_from(port).ok());
        // Only addresses that are pods.
        let mut addresses = subset["addresses"].as_array().into_iter().flatten();
        let pod = addresses.find_map(|address| {
            (address["targetRef"]["kind"] == "Pod").then(|| address["targetRef"]["name"].as_str()).flatten()
        });
        if let (Some(number), Some(name)) = (number, pod) {
            let pod = at.read_other("pods", name).await?;
            return answer(at, &pod, &Simulation::of(&pod), number);
        }
    }
    Err(unavailable(&format!("no endpoints available for service {:?}", at.name)))
}

/// Refuses to pass a request on to the kubelet of a node.
pub(crate) async fn proxy_node(at: &PodRequest<'_>) -> Result<Response<Body>, Status> {
    let asked =
        Target::parse(at.name).ok_or_else(|| Status::bad_request(format!("invalid node request {:?}", at.name)))?;
    at.read(asked.name).await?;
    Err(unreachable(&format!("node {} is simulated, and there is no kubelet that could answer", asked.name)))
}

/// `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
#[derive(Debug, PartialEq, Eq)]
struct Target<'n> {
    scheme: &'n str,
    name: &'n str,
    port: &'n str,
}

impl<'n> Target<'n> {
    fn parse(id: &'n str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some(Self { scheme, name, port })
    }
}

/// What a port of a pod answers.
fn answer(at: &PodRequest<'_>, pod: &Value, simulation: &Simulation, port: u16) -> Result<Response<Body>, Status> {
    let uri = &at.request.parts.uri;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let Some(path) = behind_proxy(uri.path(), at.namespace.is_some()) else {
        // Relative links of a page need the slash.
        let mut response = typed(301, "text/plain", Body::empty());
        let location = HeaderValue::try_from(format!("{}/{query}", uri.path()));
        response.headers_mut().insert(header::LOCATION, location.expect("a path is a header value"));
        return Ok(response);
    };
    let listens = container::any_running(pod) && simulation.check_port(port).is_ok();
    if !listens {
        return Err(unreachable(&format!("dial tcp {}:{port}: connect: connection refused", simulation.ip)));
    }
    let method = at.request.parts.method.as_str();
    let HttpAnswer { status, content_type, body } = simulation.request(port, method, &format!("{path}{query}"));
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, content_type);
    response.body(Body::full(body)).map_err(|why| {
        let name = meta::text(pod, "name");
        Status::internal(format!("the annotations of pod {name} prescribe an answer that is none: {why}"))
    })
}

/// The path behind `/api/v1/namespaces/NAMESPACE/RESOURCE/NAME/proxy`; nothing if there is not even a slash.
fn behind_proxy(path: &str, namespaced: bool) -> Option<String> {
    let segments = if namespaced { 8 } else { 6 };
    let rest: Vec<&str> = path.split('/').skip(segments).collect();
    (!rest.is_empty()).then(|| format!("/{}", rest.join("/")))
}

fn unreachable(why: &str) -> Status {
    unavailable(&format!("error trying to reach service: {why}"))
}

fn unavailable(why: &str) -> Status {
    Status::failure(503, "ServiceUnavailable", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_ports() {
        for (id, expect) in [
            ("web", Some(("", "web", ""))),
            ("web:80", Some(("", "web", "80"))),
            ("https:web:http", Some(("https", "web", "http"))),
            (":80", None),
            ("ftp:web:80", None),
            ("a:b:c:d", None),
        ] {
            let got = Target::parse(id).map(|target| (target.scheme, target.name, target.port));
            assert_eq!(got, expect, "{id}");
        }
    }

    #[test]
    fn paths_behind_the_proxy() {
        for (path, expect) in [
            ("/api/v1/namespaces/shop/pods/web:80/proxy", None),
            ("/api/v1/namespaces/shop/pods/web:80/proxy/", Some("/")),
            ("/api/v1/namespaces/shop/pods/web/proxy/a/b", Some("/a/b")),
        ] {
            assert_eq!(behind_proxy(path, true).as_deref(), expect, "{path}");
        }
    }
}
