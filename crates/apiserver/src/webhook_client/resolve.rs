//! A Service as an address. In: the namespace, name and port of a Service. Out: a host and a port to connect to. Pods are
//! simulated here, so nobody listens at the cluster IP of a Service: an annotation says where its webhook is, or its external name.

use serde_json::Value;

use crate::record;
use crate::server::Server;

/// On a Service: where the process listens that stands for its pods, such as `127.0.0.1:9443`.
pub const ADDRESS_ANNOTATION: &str = "konverge.dev/address";

pub(super) fn service(server: &Server, namespace: &str, name: &str, port: u16) -> Result<String, String> {
    let services = server.registry.find("", "v1", "services").expect("services are built in");
    let found = server.store.get(&services.key(Some(namespace), name), None).map_err(|error| error.to_string())?;
    let Some(entry) = found else { return Err(format!("service {name:?} not found")) };
    address(&record::decode(&entry), port)
}

fn address(service: &Value, port: u16) -> Result<String, String> {
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let spec = &service["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    if let Some(address) = service["metadata"]["annotations"][ADDRESS_ANNOTATION].as_str() {
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        return match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && is_port(port) => Ok(address.to_owned()),
            _ => Err(format!(
                "the annotation {ADDRESS_ANNOTATION} of service {name:?} is {address:?}; it needs a host and a port, such as \
                 127.0.0.1:9443"
            )),
        };
    }
    match text("type") {
        "ExternalName" => return Ok(format!("{}:{port}", text("externalName"))),
        "ClusterIP" if text("clusterIP") == "None" => {
            return Err("cannot route to service with ClusterIP \"None\"".to_owned());
        }
        _ => {}
    }
    let mut ports = spec["ports"].as_array().into_iter().flatten();
    if !ports.any(|known| known["port"] == port) {
        return Err(format!("no service port {port} found for service {name:?}"));
    }
    Err(format!(
        "pods are simulated here, so nothing answers for service {name:?}; say where its webhook listens: kubectl annotate \
         service -n {} {name} {ADDRESS_ANNOTATION}=127.0.0.1:9443",
        service["metadata"]["namespace"].as_str().unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn services_have_addresses_by_annotation_or_external_name() {
        let ports = json!([{"port": 443}]);
        for (annotation, spec, expect) in [
            (Some("127.0.0.1:9443"), json!({"type": "ClusterIP"}), Ok("127.0.0.1:9443")),
            (Some("9443"), json!({}), Err("needs a host and a port")),
            (None, json!({"type": "ExternalName", "externalName": "example.com"}), Ok("example.com:443")),
            (None, json!({"type": "ClusterIP", "clusterIP": "None"}), Err("cannot route to service with ClusterIP")),
            (
                None,
                json!({"type": "ClusterIP", "ports": [{"port": 80}]}),
                Err("no service port 443 found for service \"w\""),
            ),
            (None, json!({"type": "ClusterIP", "ports": ports}), Err("pods are simulated here")),
        ] {
            let mut service = json!({"metadata": {"name": "w", "namespace": "a"}, "spec": spec});
            if let Some(annotation) = annotation {
                service["metadata"]["annotations"] = json!({ADDRESS_ANNOTATION: annotation});
            }
            match (address(&service, 443), expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found, expect),
                (Err(found), Err(expect)) => assert!(found.contains(expect), "{found}"),
                (found, expect) => panic!("{found:?} instead of {expect:?}"),
            }
        }
    }
}
