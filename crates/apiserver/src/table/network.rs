//! Cells of services, endpoints and ingresses that are more than a path. In: an object. Out: text.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::cell::{at, each, int, list, scalar, some_of, text};

/// The first cluster address of a Service.
pub(super) fn cluster_ip(service: &Value, _: Timestamp) -> Value {
    match list(service, "spec.clusterIPs").first().and_then(Value::as_str) {
        Some(first) => first.into(),
        None if text(service, "spec.clusterIP").is_empty() => "<none>".into(),
        None => text(service, "spec.clusterIP").into(),
    }
}

/// Where a Service is reached from outside.
pub(super) fn external_ip(service: &Value, _: Timestamp) -> Value {
    let external = each(service, "spec.externalIPs", "");
    let joined = match text(service, "spec.type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".into(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => match (load_balancer(service), external) {
            (balancer, external) if balancer.is_empty() && external.is_empty() => "<pending>".into(),
            (balancer, external) if balancer.is_empty() || external.is_empty() => balancer + &external,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => text(service, "spec.externalName").to_owned(),
        _ => "<unknown>".into(),
    };
    joined.into()
}

/// `80/TCP,443:30443/TCP`
pub(super) fn service_ports(service: &Value, _: Timestamp) -> Value {
    let one = |port: &Value| {
        let protocol = text(port, "protocol");
        match int(port, "nodePort") {
            0 => format!("{}/{protocol}", int(port, "port")),
            node => format!("{}:{node}/{protocol}", int(port, "port")),
        }
    };
    let ports: Vec<String> = list(service, "spec.ports").iter().map(one).collect();
    if ports.is_empty() { "<none>".into() } else { ports.join(",").into() }
}

/// The first addresses of Endpoints, each with every port.
pub(super) fn endpoints(endpoints: &Value, _: Timestamp) -> Value {
    if list(endpoints, "subsets").is_empty() {
        return "<none>".into();
    }
    let mut all = Vec::new();
    for subset in list(endpoints, "subsets") {
        let addresses = || list(subset, "addresses").iter().map(|address| text(address, "ip"));
        if list(subset, "ports").is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in list(subset, "ports") {
            all.extend(addresses().map(|ip| host_port(ip, int(port, "port"))));
        }
    }
    some_of(&all, 3, ",", "").into()
}

/// The ports of an EndpointSlice.
pub(super) fn slice_ports(slice: &Value, _: Timestamp) -> Value {
    let one = |port: &Value| match (at(port, "port"), at(port, "name")) {
        (Some(_), _) => scalar(port, "port"),
        (None, Some(_)) => scalar(port, "name"),
        (None, None) => "*".into(),
    };
    let ports: Vec<String> = list(slice, "ports").iter().map(one).collect();
    some_of(&ports, 3, ",", "<unset>").into()
}

/// The first addresses of an EndpointSlice.
pub(super) fn slice_addresses(slice: &Value, _: Timestamp) -> Value {
    let addresses = list(slice, "endpoints").iter().flat_map(|endpoint| list(endpoint, "addresses"));
    let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    some_of(&addresses, 3, ",", "<unset>").into()
}

/// The hosts of an Ingress' rules.
pub(super) fn hosts(ingress: &Value, _: Timestamp) -> Value {
    let rules = list(ingress, "spec.rules");
    let hosts: Vec<&str> = rules.iter().map(|rule| text(rule, "host")).filter(|host| !host.is_empty()).collect();
    let shown = hosts[..hosts.len().min(3)].join(",");
    // What is left is counted in rules, also those without a host.
    let third = rules.iter().enumerate().filter(|(_, rule)| !text(rule, "host").is_empty()).nth(2);
    match third {
        _ if hosts.is_empty() => "*".into(),
        Some((at, _)) if at + 1 < rules.len() => format!("{shown} + {} more...", rules.len() - 3).into(),
        _ => shown.into(),
    }
}

/// Where an Ingress is reached.
pub(super) fn ingress_address(ingress: &Value, _: Timestamp) -> Value {
    load_balancer(ingress).into()
}

/// The ports an Ingress opens.
pub(super) fn ingress_ports(ingress: &Value, _: Timestamp) -> Value {
    if list(ingress, "spec.tls").is_empty() { "80".into() } else { "80, 443".into() }
}

/// `Kind.group/name` of an IngressClass' parameters.
pub(super) fn class_parameters(class: &Value, _: Timestamp) -> Value {
    let Some(parameters) = at(class, "spec.parameters") else { return "<none>".into() };
    let group = text(parameters, "apiGroup");
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", text(parameters, "kind"), text(parameters, "name")).into()
}

/// `resource.group/namespace/name` of an IPAddress' owner.
pub(super) fn parent(address: &Value, _: Timestamp) -> Value {
    let Some(parent) = at(address, "spec.parentRef") else { return "<none>".into() };
    let mut shown = text(parent, "resource").to_lowercase();
    for (before, part) in [(".", "group"), ("/", "namespace")] {
        if !text(parent, part).is_empty() {
            shown = shown + before + text(parent, part);
        }
    }
    format!("{shown}/{}", text(parent, "name")).into()
}

fn load_balancer(object: &Value) -> String {
    let one = |ingress| match text(ingress, "ip") {
        "" => text(ingress, "hostname"),
        ip => ip,
    };
    let all = list(object, "status.loadBalancer.ingress").iter().map(one).filter(|address| !address.is_empty());
    all.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",")
}

fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(cell: fn(&Value, Timestamp) -> Value, object: Value, expect: &str) {
        assert_eq!(cell(&object, Timestamp::UNIX_EPOCH), expect);
    }

    #[test]
    fn services() {
        check(cluster_ip, json!({}), "<none>");
        check(cluster_ip, json!({"spec": {"clusterIPs": ["10.0.0.1", "fd00::1"]}}), "10.0.0.1");
        check(service_ports, json!({}), "<none>");
        let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}]);
        check(service_ports, json!({"spec": {"ports": ports}}), "80/TCP,53:30053/UDP");

        let service = |ty: &str, external: Value, balancer: Value| {
            json!({"spec": {"type": ty, "externalIPs": external, "externalName": "db.example.com"},
                "status": {"loadBalancer": {"ingress": balancer}}})
        };
        check(external_ip, service("ClusterIP", json!([]), json!([])), "<none>");
        check(external_ip, service("NodePort", json!(["1.1.1.1", "2.2.2.2"]), json!([])), "1.1.1.1,2.2.2.2");
        check(external_ip, service("LoadBalancer", json!([]), json!([])), "<pending>");
        let balancer = json!([{"ip": "3.3.3.3"}, {"hostname": "a.b"}, {"ip": "2.2.2.2"}]);
        check(external_ip, service("LoadBalancer", json!([]), balancer.clone()), "2.2.2.2,3.3.3.3,a.b");
        check(external_ip, service("LoadBalancer", json!(["1.1.1.1"]), balancer), "2.2.2.2,3.3.3.3,a.b,1.1.1.1");
        check(external_ip, service("LoadBalancer", json!(["1.1.1.1"]), json!([])), "1.1.1.1");
        check(external_ip, service("ExternalName", json!([]), json!([])), "db.example.com");
        check(external_ip, json!({}), "<unknown>");
    }

    #[test]
    fn endpoint_addresses() {
        check(endpoints, json!({}), "<none>");
        check(endpoints, json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}]}]}), "1.1.1.1");
        let many = json!({"subsets": [{
            "addresses": [{"ip": "1.1.1.1"}, {"ip": "fd00::1"}],
            "ports": [{"port": 80}, {"port": 443}],
        }]});
        check(endpoints, many, "1.1.1.1:80,[fd00::1]:80,1.1.1.1:443 + 1 more...");

        check(slice_ports, json!({}), "<unset>");
        let ports = json!([{"port": 80}, {"name": "dns"}, {}, {"port": 1}]);
        check(slice_ports, json!({"ports": ports}), "80,dns,* + 1 more...");
        check(slice_addresses, json!({"endpoints": [{"addresses": ["a"]}, {"addresses": ["b", "c"]}]}), "a,b,c");
    }

    #[test]
    fn ingresses() {
        let rules = |hosts: &[&str]| json!({"spec": {"rules": hosts.iter().map(|host| json!({"host": host})).collect::<Vec<_>>()}});
        check(hosts, rules(&[]), "*");
        check(hosts, rules(&["", ""]), "*");
        check(hosts, rules(&["a", "b", "c"]), "a,b,c");
        check(hosts, rules(&["a", "b", "c", "d", "e"]), "a,b,c + 2 more...");
        check(hosts, rules(&["a", "", "b", "c", "d"]), "a,b,c + 2 more...");
        check(ingress_ports, json!({}), "80");
        check(ingress_ports, json!({"spec": {"tls": [{}]}}), "80, 443");
        check(ingress_address, json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}}), "1.1.1.1");
        check(class_parameters, json!({}), "<none>");
        let parameters = json!({"apiGroup": "b.io", "kind": "Config", "name": "c"});
        check(class_parameters, json!({"spec": {"parameters": parameters}}), "Config.b.io/c");
        let owner = json!({"resource": "services", "namespace": "n", "name": "s"});
        check(parent, json!({"spec": {"parentRef": owner}}), "services/n/s");
        check(parent, json!({"spec": {"parentRef": {"group": "g", "resource": "r", "name": "s"}}}), "r.g/s");
    }
}
