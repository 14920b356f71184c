//! Service: one address for a set of pods.

use k8s_openapi::api::core::v1 as core;

use super::Selector;
use super::number::{Count, NumberOrText, int32};
use super::wrapper::{add, kind, named, spec};

kind! {
    /// One address for a set of pods.
    ///
    /// Ports are identified by number and protocol: a second call for the same port changes it. Ports without a name get one
    /// (`tcp-80`) as soon as there are several, because the API server requires names then.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let service = Service::new("web").port(80, 8080).selector(Selector::new().insert("app", "web"));
    /// assert_eq!(service.inner().spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port, 80);
    /// ```
    Service(core::Service)
}
spec!(Service, core::ServiceSpec);

impl Service {
    /// A service called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        let spec = Some(core::ServiceSpec::default());
        Self(core::Service { metadata: named(name), spec, status: None })
    }

    /// Sends requests to pods with these labels.
    pub fn selector(self, selector: impl Into<Selector>) -> Self {
        let selector = selector.into();
        self.spec(|spec| add(&mut spec.selector, selector))
    }

    /// Forwards TCP `port` to `target`, the number or name of a port of the pods.
    pub fn port(self, port: impl Count, target: impl NumberOrText) -> Self {
        self.passes(port, target, |_| {})
    }

    /// Forwards TCP `port`, called `name`, to `target`.
    pub fn named_port(self, name: impl Into<String>, port: impl Count, target: impl NumberOrText) -> Self {
        self.passes(port, target, |port| port.name = Some(name.into()))
    }

    /// Forwards UDP `port` to `target`.
    pub fn udp_port(self, port: impl Count, target: impl NumberOrText) -> Self {
        self.passes(port, target, |port| port.protocol = Some("UDP".to_owned()))
    }

    /// Forwards TCP `port` to `target`, and opens `node_port` on every node for it.
    pub fn node_port(self, port: impl Count, target: impl NumberOrText, node_port: impl Count) -> Self {
        let node_port = int32(node_port);
        self.passes(port, target, |port| port.node_port = Some(node_port)).spec(|spec| {
            if spec.type_.as_deref() != Some("LoadBalancer") {
                spec.type_ = Some("NodePort".to_owned());
            }
            reachable(spec);
        })
    }

    fn passes(self, port: impl Count, target: impl NumberOrText, change: impl FnOnce(&mut core::ServicePort)) -> Self {
        let (port, target_port) = (int32(port), Some(target.number_or_text()));
        let mut port = core::ServicePort { port, target_port, ..Default::default() };
        change(&mut port);
        self.spec(|spec| {
            let ports = spec.ports.get_or_insert_default();
            let same = |known: &&mut core::ServicePort| known.port == port.port && known.protocol == port.protocol;
            match ports.iter_mut().find(same) {
                Some(known) => {
                    known.target_port = port.target_port;
                    known.name = port.name.or_else(|| known.name.take());
                    known.node_port = port.node_port.or(known.node_port);
                }
                None => ports.push(port),
            }
            name_ports(ports);
        })
    }

    /// Makes it a ClusterIP service, with an address inside the cluster. This is the default.
    pub fn cluster_ip(self) -> Self {
        self.spec(|spec| {
            spec.type_ = Some("ClusterIP".to_owned());
            reachable(spec);
            without_node_ports(spec);
        })
    }

    /// Makes it a LoadBalancer service, with an address outside the cluster.
    pub fn load_balancer(self) -> Self {
        self.spec(|spec| {
            spec.type_ = Some("LoadBalancer".to_owned());
            reachable(spec);
        })
    }

    /// Makes it headless: it has no address, and DNS answers with the addresses of the pods.
    pub fn headless(self) -> Self {
        self.spec(|spec| {
            spec.type_ = Some("ClusterIP".to_owned());
            spec.cluster_ip = Some("None".to_owned());
            without_node_ports(spec);
        })
    }

    /// Makes it an ExternalName service: DNS answers with another name.
    pub fn external_name(self, name: impl Into<String>) -> Self {
        self.spec(|spec| {
            spec.type_ = Some("ExternalName".to_owned());
            spec.external_name = Some(name.into());
            reachable(spec);
            without_node_ports(spec);
        })
    }

    /// Whether DNS answers with pods that are not ready, too, which peers need to find each other while they start.
    pub fn publish_not_ready_addresses(self, yes: bool) -> Self {
        self.spec(|spec| spec.publish_not_ready_addresses = Some(yes))
    }

    /// Its address inside the cluster.
    pub fn address(&self) -> Option<&str> {
        self.0.spec.as_ref()?.cluster_ip.as_deref().filter(|address| *address != "None")
    }

    /// Its address outside the cluster, once there is one.
    pub fn external_address(&self) -> Option<&str> {
        let ingress = self.0.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
        ingress.ip.as_deref().or(ingress.hostname.as_deref())
    }
}

/// Undoes `headless`.
fn reachable(spec: &mut core::ServiceSpec) {
    if spec.cluster_ip.as_deref() == Some("None") {
        spec.cluster_ip = None;
    }
}

fn without_node_ports(spec: &mut core::ServiceSpec) {
    spec.ports.iter_mut().flatten().for_each(|port| port.node_port = None);
}

fn name_ports(ports: &mut [core::ServicePort]) {
    if ports.len() < 2 {
        return;
    }
    for port in ports {
        let protocol = port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
        port.name.get_or_insert_with(|| format!("{protocol}-{}", port.port));
    }
}
