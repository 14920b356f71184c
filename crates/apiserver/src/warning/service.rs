//! Services, their endpoints and network policies: fields that have no effect together, and addresses in old forms.

use serde_json::Value;

use konverge_core::FieldPath;

use super::{address, annotation, list, text};

const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

pub(super) fn warnings(service: &Value, out: &mut Vec<String>) {
    if annotation(service, TOPOLOGY_HINTS).is_some() {
        out.push(format!("annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"));
    }
    let (spec, at) = (&service["spec"], FieldPath::new("spec"));
    let each = |field: &str, check: fn(&FieldPath, &str, &mut Vec<String>), out: &mut Vec<String>| {
        for (index, value) in list(&spec[field]).iter().enumerate() {
            check(&at.child(field).index(index), text(value), out);
        }
    };
    let external_name = spec["type"] == "ExternalName";
    let headless = spec["type"] == "ClusterIP" && spec["clusterIP"] == "None";
    let external_ips = !list(&spec["externalIPs"]).is_empty();
    if !external_name && !matches!(text(&spec["clusterIP"]), "" | "None") {
        each("clusterIPs", address::ip, out);
    }
    let mut warn = |applies: bool, why: &str| {
        if applies {
            out.push(why.to_owned());
        }
    };
    warn(headless && !text(&spec["loadBalancerIP"]).is_empty(), "spec.loadBalancerIP is ignored for headless services");
    warn(headless && external_ips, "spec.externalIPs is ignored for headless services");
    warn(headless && spec["sessionAffinity"] != "None", "spec.SessionAffinity is ignored for headless services");
    each("externalIPs", address::ip, out);
    if external_ips && !headless && !external_name {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    address::ip(&at.child("loadBalancerIP"), text(&spec["loadBalancerIP"]), out);
    each("loadBalancerSourceRanges", address::cidr, out);
    if external_name && external_ips {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !external_name && !text(&spec["externalName"]).is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
}

pub(super) fn endpoints(endpoints: &Value, out: &mut Vec<String>) {
    if endpoints["metadata"]["labels"]["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
        return;
    }
    for (index, subset) in list(&endpoints["subsets"]).iter().enumerate() {
        for field in ["addresses", "notReadyAddresses"] {
            for (position, endpoint) in list(&subset[field]).iter().enumerate() {
                let at = FieldPath::new("subsets").index(index).child(field).index(position).child("ip");
                address::ip(&at, text(&endpoint["ip"]), out);
            }
        }
    }
}

pub(super) fn endpoint_slice(old: Option<&Value>, slice: &Value, out: &mut Vec<String>) {
    if old.is_none() && slice["addressType"] == "FQDN" {
        out.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let managed_by = text(&slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]);
    if matches!(managed_by, "endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io") {
        return;
    }
    for (index, endpoint) in list(&slice["endpoints"]).iter().enumerate() {
        for (position, value) in list(&endpoint["addresses"]).iter().enumerate() {
            let at = FieldPath::new("endpoints").index(index).child("addresses").index(position);
            address::ip(&at, text(value), out);
        }
    }
}

pub(super) fn network_policy(policy: &Value, out: &mut Vec<String>) {
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(&policy["spec"][direction]).iter().enumerate() {
            for (position, peer) in list(&rule[peers]).iter().enumerate() {
                let at = FieldPath::new("spec").child(direction).index(index).child(peers).index(position);
                let (at, block) = (at.child("ipBlock"), &peer["ipBlock"]);
                address::cidr(&at.child("cidr"), text(&block["cidr"]), out);
                for (index, except) in list(&block["except"]).iter().enumerate() {
                    address::cidr(&at.child("except").index(index), text(except), out);
                }
            }
        }
    }
}
