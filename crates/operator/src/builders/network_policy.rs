//! NetworkPolicy: which connections of pods are allowed.

use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::number::{Count, NumberOrText};
use super::wrapper::{kind, named, spec, texts, wrapper};

kind! {
    /// Limits the connections to and from pods. Without a selector it is about all pods of its namespace.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let policy = NetworkPolicy::new("web")
    ///     .pod_selector(Selector::new().insert("app", "web"))
    ///     .allow_ingress(NetworkPolicyIngress::new().tcp_port(80))
    ///     .deny_all_egress();
    /// assert_eq!(policy.inner().spec.as_ref().unwrap().policy_types.as_ref().unwrap().len(), 2);
    /// ```
    NetworkPolicy(networking::NetworkPolicy)
}
spec!(NetworkPolicy, networking::NetworkPolicySpec);

impl NetworkPolicy {
    /// A policy called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        let spec = networking::NetworkPolicySpec { pod_selector: Some(LabelSelector::default()), ..Default::default() };
        Self(networking::NetworkPolicy { metadata: named(name), spec: Some(spec) })
    }

    /// Selects the pods that the policy is about.
    pub fn pod_selector(self, selector: impl Into<LabelSelector>) -> Self {
        let selector = selector.into();
        self.spec(|spec| spec.pod_selector = Some(selector))
    }

    /// Allows connections to the pods. As soon as there is one such rule, only connections that a rule allows are let in.
    pub fn allow_ingress(self, rule: NetworkPolicyIngress) -> Self {
        self.about("Ingress").spec(|spec| spec.ingress.get_or_insert_default().push(rule.into()))
    }

    /// Allows connections from the pods. As soon as there is one such rule, only connections that a rule allows are let out.
    pub fn allow_egress(self, rule: NetworkPolicyEgress) -> Self {
        self.about("Egress").spec(|spec| spec.egress.get_or_insert_default().push(rule.into()))
    }

    /// Denies all connections to the pods.
    pub fn deny_all_ingress(self) -> Self {
        self.about("Ingress").spec(|spec| spec.ingress = None)
    }

    /// Denies all connections from the pods.
    pub fn deny_all_egress(self) -> Self {
        self.about("Egress").spec(|spec| spec.egress = None)
    }

    fn about(self, direction: &str) -> Self {
        self.spec(|spec| {
            let types = spec.policy_types.get_or_insert_default();
            if !types.iter().any(|known| known == direction) {
                types.push(direction.to_owned());
            }
        })
    }
}

wrapper! {
    /// A rule for connections to pods: from where, and to which ports. By default from everywhere to all ports.
    NetworkPolicyIngress(networking::NetworkPolicyIngressRule)
}

wrapper! {
    /// A rule for connections from pods: to where, and to which ports. By default to everywhere and all ports.
    NetworkPolicyEgress(networking::NetworkPolicyEgressRule)
}

/// The methods of both directions, whose names differ in one word.
macro_rules! direction {
    (
        $name:ident,
        $peers:ident,
        $namespace_selector:ident,
        $pod_selector:ident,
        $pods_in:ident,
        $cidr:ident,
        $cidr_except:ident
    ) => {
        impl $name {
            /// A rule for all peers and ports.
            pub fn new() -> Self {
                Self::default()
            }

            /// Adds the pods of namespaces with these labels as peers.
            pub fn $namespace_selector(self, selector: impl Into<LabelSelector>) -> Self {
                self.peer(networking::NetworkPolicyPeer {
                    namespace_selector: Some(selector.into()),
                    ..Default::default()
                })
            }

            /// Adds pods with these labels in the policy's own namespace as peers.
            pub fn $pod_selector(self, selector: impl Into<LabelSelector>) -> Self {
                self.peer(networking::NetworkPolicyPeer { pod_selector: Some(selector.into()), ..Default::default() })
            }

            /// Adds pods with the labels `pods` in namespaces with the labels `namespaces` as peers.
            pub fn $pods_in(self, namespaces: impl Into<LabelSelector>, pods: impl Into<LabelSelector>) -> Self {
                self.peer(networking::NetworkPolicyPeer {
                    namespace_selector: Some(namespaces.into()),
                    pod_selector: Some(pods.into()),
                    ip_block: None,
                })
            }

            /// Adds a range of addresses as peers: `10.0.0.0/8`.
            pub fn $cidr(self, cidr: impl Into<String>) -> Self {
                self.$cidr_except(cidr, [] as [&str; 0])
            }

            /// Adds a range of addresses as peers, except for some of them.
            pub fn $cidr_except(
                self,
                cidr: impl Into<String>,
                except: impl IntoIterator<Item = impl Into<String>>,
            ) -> Self {
                let except = Some(texts(except)).filter(|except| !except.is_empty());
                let ip_block = Some(networking::IPBlock { cidr: cidr.into(), except });
                self.peer(networking::NetworkPolicyPeer { ip_block, ..Default::default() })
            }

            /// Limits the rule to a TCP port, by number or name; several calls allow several ports.
            pub fn tcp_port(self, port: impl NumberOrText) -> Self {
                self.port("TCP", port)
            }

            /// Limits the rule to a UDP port, by number or name; several calls allow several ports.
            pub fn udp_port(self, port: impl NumberOrText) -> Self {
                self.port("UDP", port)
            }

            /// Limits the rule to TCP ports from `first` to `last`.
            pub fn tcp_ports(mut self, first: impl NumberOrText + Count, last: impl Count) -> Self {
                self = self.port("TCP", first);
                if let Some(port) = self.0.ports.iter_mut().flatten().last() {
                    port.end_port = Some(super::number::int32(last));
                }
                self
            }

            fn peer(mut self, peer: networking::NetworkPolicyPeer) -> Self {
                self.0.$peers.get_or_insert_default().push(peer);
                self
            }

            fn port(mut self, protocol: &str, port: impl NumberOrText) -> Self {
                self.0.ports.get_or_insert_default().push(networking::NetworkPolicyPort {
                    port: Some(port.number_or_text()),
                    protocol: Some(protocol.to_owned()),
                    end_port: None,
                });
                self
            }
        }
    };
}

direction!(
    NetworkPolicyIngress,
    from,
    from_namespace_selector,
    from_pod_selector,
    from_pods_in,
    from_cidr,
    from_cidr_except
);
direction!(NetworkPolicyEgress, to, to_namespace_selector, to_pod_selector, to_pods_in, to_cidr, to_cidr_except);
