//! The addresses and ports of a service. In: the ranges, what other services have, the service before and after the write, a
//! random number. Out: the service with a cluster IP, its family and node ports, or the error of those that it asks for. There is one
//! family, IPv4. Pure.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use konverge_core::{FieldError, FieldPath, Status};

use super::allocated::Taken;
use super::ranges::ServiceRanges;

const ALLOCATED: &str = "provided port is already allocated";

/// Why a service is refused.
#[derive(Debug, PartialEq)]
pub(super) enum Refused {
    /// It asks for an address or port that it cannot have.
    Field(FieldError),
    /// No address or port is left, or the port for health checks cannot be had.
    Full(String),
}

impl Refused {
    pub(super) fn status(self, invalid: impl FnOnce(FieldError) -> Status) -> Status {
        match self {
            Self::Field(error) => invalid(error),
            Self::Full(why) => Status::internal(why),
        }
    }
}

/// Drops what the new type of a service does not have, and carries over what the writer left out.
pub(super) fn carry_over(old: &Value, new: &mut Value) {
    let before = &old["spec"];
    let after = &mut new["spec"];
    let same = |after: &Value, field: &str| non_empty(&after[field]) == non_empty(&before[field]);
    if needs_address(before) && !needs_address(after) {
        if same(after, "clusterIP") && same(after, "clusterIPs") {
            ["clusterIP", "clusterIPs"].iter().for_each(|field| remove(after, field));
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(after, field) {
                remove(after, field);
            }
        }
    }
    if needs_ports(before)
        && !needs_ports(after)
        && node_ports(after).iter().all(|port| node_ports(before).contains(port))
    {
        ports_mut(after).for_each(|port| remove(port, "nodePort"));
    }
    for (field, needed) in [
        ("healthCheckNodePort", needs_health_check as fn(&Value) -> bool),
        ("allocateLoadBalancerNodePorts", is_balanced),
        ("loadBalancerClass", is_balanced),
        ("externalTrafficPolicy", is_reached_from_outside),
        ("internalTrafficPolicy", |spec| spec["type"] != "ExternalName"),
    ] {
        if needed(before) && !needed(after) && same(after, field) {
            remove(after, field);
        }
    }
    if needs_address(before) && needs_address(after) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies"] {
            if non_empty(&after[field]).is_none() {
                copy(before, after, field);
            }
        }
        // An empty text is not taken for no policy: validation refuses it.
        if after["ipFamilyPolicy"].is_null() {
            copy(before, after, "ipFamilyPolicy");
        }
        // A change of `clusterIP` changes the list as well.
        if !same(after, "clusterIP") && same(after, "clusterIPs") {
            after["clusterIPs"] = json!([after["clusterIP"]]);
        }
    }
    if needs_ports(before) && needs_ports(after) {
        let requested = node_ports(after);
        for port in ports_mut(after).filter(|port| non_empty(&port["nodePort"]).is_none()) {
            let old = ports(before).find(|old| non_empty(&old["name"]) == non_empty(&port["name"]));
            let old_node_port = old.and_then(|old| non_empty(&old["nodePort"]));
            if let Some(node_port) = old_node_port.filter(|node_port| !requested.contains(node_port)) {
                port["nodePort"] = node_port.clone();
            }
        }
    }
    if needs_health_check(before) && needs_health_check(after) && non_empty(&after["healthCheckNodePort"]).is_none() {
        copy(before, after, "healthCheckNodePort");
    }
    if !is_balanced(after) && non_empty(&new["status"]["loadBalancer"]["ingress"]).is_some() {
        new["status"]["loadBalancer"] = json!({});
    }
}

/// Allocates what a service needs and does not have.
pub(super) fn assign(
    ranges: &ServiceRanges,
    taken: &Taken<'_>,
    random: u128,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<(), Refused> {
    let before = old.map(|old| &old["spec"]);
    let spec = &mut new["spec"];
    // Also where there can be no address, so that validation sees and refuses it.
    if non_empty(&spec["clusterIPs"]).is_none()
        && let Some(address) = non_empty(&spec["clusterIP"]).cloned()
    {
        spec["clusterIPs"] = json!([address]);
    }
    if needs_address(spec) {
        check_addresses(before.filter(|before| needs_address(before)), spec)?;
        choose_families(spec)?;
        let fresh = non_empty(&spec["clusterIP"]).is_none() || !before.is_some_and(needs_address);
        if fresh && spec["clusterIP"] != "None" {
            allocate_cluster_ip(ranges, taken, random, spec)?;
        }
    }
    if needs_ports(spec) {
        choose_ports(ranges, taken, random, spec, before)?;
    }
    if needs_health_check(spec) && !before.is_some_and(needs_health_check) {
        allocate_health_check_port(ranges, taken, random, spec)?;
    }
    Ok(())
}

/// The port at which load balancers ask for the health of a node: the one that is asked for, or any.
fn allocate_health_check_port(
    ranges: &ServiceRanges,
    taken: &Taken<'_>,
    random: u128,
    spec: &mut Value,
) -> Result<(), Refused> {
    let ours = node_ports(spec).iter().filter_map(number).collect::<Vec<_>>();
    let Some(asked) = non_empty(&spec["healthCheckNodePort"]) else {
        spec["healthCheckNodePort"] = free_port(ranges, taken, &ours, random)?.into();
        return Ok(());
    };
    let why = match number(asked) {
        Some(port) if !ranges.node_ports.contains(port) => out_of_range(ranges),
        Some(port) if taken.has_port(&port) || ours.contains(&port) => ALLOCATED.to_owned(),
        Some(_) => return Ok(()),
        None => out_of_range(ranges),
    };
    // kube-apiserver does not make a 422 of this.
    Err(Refused::Full(format!("failed to allocate requested HealthCheck NodePort {asked}: {why}")))
}

fn out_of_range(ranges: &ServiceRanges) -> String {
    format!("provided port is not in the valid range. The range of valid ports is {}", ranges.node_ports)
}

fn check_addresses(before: Option<&Value>, spec: &Value) -> Result<(), Refused> {
    let path = FieldPath::new("spec").child("clusterIPs");
    let all = &spec["clusterIPs"];
    let refuse = |path: FieldPath, why: &str| Err(Refused::Field(FieldError::invalid(path, all.clone(), why)));
    let list: &[Value] = all.as_array().map_or(&[], Vec::as_slice);
    match (non_empty(&spec["clusterIP"]), list.first()) {
        (Some(one), Some(first)) if one != first => return refuse(path, "first value must match `clusterIP`"),
        (None, Some(_)) => return refuse(path, "must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    if list.len() > 1 && list.iter().any(|address| address == "None") {
        return refuse(path, "'None' must be the first and only value");
    }
    for (at, address) in list.iter().enumerate() {
        let valid = address == "None" || address.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok());
        if !valid {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            return Err(Refused::Field(FieldError::invalid(path.index(at), address.clone(), why)));
        }
    }
    let had = before.and_then(|before| before["clusterIPs"].get(0));
    if had.is_some_and(|had| Some(had) != list.first()) {
        return refuse(path.index(0), "may not change once set");
    }
    Ok(())
}

fn choose_families(spec: &mut Value) -> Result<(), Refused> {
    let apart = non_empty(&spec["clusterIP"]) == Some(&json!("None"))
        && spec["selector"].as_object().is_none_or(|s| s.is_empty());
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = if apart { "RequireDualStack" } else { "SingleStack" }.into();
    }
    if non_empty(&spec["ipFamilies"]).is_none() {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    let single = spec["ipFamilyPolicy"] == "SingleStack";
    // A headless service without a selector may have two families, although the cluster has one.
    if apart {
        if let Some(families) = spec["ipFamilies"].as_array_mut().filter(|families| !single && families.len() == 1) {
            families.push(if families[0] == "IPv4" { "IPv6" } else { "IPv4" }.into());
        }
        return Ok(());
    }
    let path = FieldPath::new("spec");
    if spec["ipFamilyPolicy"] == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        let error = FieldError::invalid(path.child("ipFamilyPolicy"), spec["ipFamilyPolicy"].clone(), why);
        return Err(Refused::Field(error));
    }
    for (at, family) in spec["ipFamilies"].as_array().into_iter().flatten().enumerate() {
        if family != "IPv4" {
            let error = FieldError::invalid(
                path.child("ipFamilies").index(at),
                family.clone(),
                "not configured on this cluster",
            );
            return Err(Refused::Field(error));
        }
    }
    Ok(())
}

fn allocate_cluster_ip(
    ranges: &ServiceRanges,
    taken: &Taken<'_>,
    random: u128,
    spec: &mut Value,
) -> Result<(), Refused> {
    let range = ranges.cluster_ips;
    if let Some(asked) = non_empty(&spec["clusterIP"]).and_then(Value::as_str) {
        let parsed: Option<Ipv4Addr> = asked.parse().ok();
        let why = match parsed {
            Some(address) if taken.has_address(&address) => "provided IP is already allocated".to_owned(),
            Some(address) if range.contains(address) => return Ok(()),
            _ => "the provided network does not match the current range".to_owned(),
        };
        let why = format!("failed to allocate IP {asked}: {why}");
        let path = FieldPath::new("spec").child("clusterIPs");
        return Err(Refused::Field(FieldError::invalid(path, spec["clusterIPs"].clone(), why)));
    }
    let free = range.candidates(random).find(|address| !taken.has_address(address));
    let address = free.ok_or_else(|| Refused::Full("failed to allocate a serviceIP: range is full".to_owned()))?;
    let address = address.to_string();
    spec["clusterIPs"] = json!([address]);
    spec["clusterIP"] = address.into();
    Ok(())
}

fn choose_ports(
    ranges: &ServiceRanges,
    taken: &Taken<'_>,
    random: u128,
    spec: &mut Value,
    before: Option<&Value>,
) -> Result<(), Refused> {
    let unasked = spec["allocateLoadBalancerNodePorts"] != false || !is_balanced(spec);
    let had_ports: Vec<u16> =
        before.map(|before| node_ports(before).iter().filter_map(number).collect()).unwrap_or_default();
    // A port of two protocols has one node port, wherever in the list it was asked for.
    let mut given: HashMap<u64, u16> = HashMap::new();
    let mut ours: Vec<u16> = Vec::new();
    for (at, port) in ports(spec).enumerate() {
        let Some(node_port) = non_empty(&port["nodePort"]) else { continue };
        let number = number(node_port);
        let service_port = port["port"].as_u64().unwrap_or_default();
        let twice = number.is_some_and(|number| ours.contains(&number) && given.get(&service_port) != Some(&number));
        let why = match number {
            Some(number) if had_ports.contains(&number) => None,
            Some(number) if !ranges.node_ports.contains(number) => Some(out_of_range(ranges)),
            Some(number) if taken.has_port(&number) || twice => Some(ALLOCATED.into()),
            Some(_) => None,
            None => Some(out_of_range(ranges)),
        };
        if let Some(why) = why {
            let path = FieldPath::new("spec").child("ports").index(at).child("nodePort");
            return Err(Refused::Field(FieldError::invalid(path, node_port.clone(), why)));
        }
        if let Some(number) = number {
            ours.push(number);
            given.entry(service_port).or_insert(number);
        }
    }
    if unasked {
        for port in ports_mut(spec).filter(|port| non_empty(&port["nodePort"]).is_none()) {
            let service_port = port["port"].as_u64().unwrap_or_default();
            let number = match given.get(&service_port) {
                Some(number) => *number,
                None => free_port(ranges, taken, &ours, random)?,
            };
            given.insert(service_port, number);
            ours.push(number);
            port["nodePort"] = number.into();
        }
    }
    Ok(())
}

fn free_port(ranges: &ServiceRanges, taken: &Taken<'_>, ours: &[u16], random: u128) -> Result<u16, Refused> {
    let free = ranges.node_ports.candidates(random).find(|port| !taken.has_port(port) && !ours.contains(port));
    free.ok_or_else(|| Refused::Full("failed to allocate a nodePort: range is full".to_owned()))
}

fn needs_address(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

fn needs_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort" || is_balanced(spec)
}

fn needs_health_check(spec: &Value) -> bool {
    is_balanced(spec) && spec["externalTrafficPolicy"] == "Local"
}

fn is_balanced(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer"
}

fn is_reached_from_outside(spec: &Value) -> bool {
    needs_ports(spec) || spec["type"] == "ClusterIP" && non_empty(&spec["externalIPs"]).is_some()
}

/// A value that is not null, empty or zero.
fn non_empty(value: &Value) -> Option<&Value> {
    let empty = value.is_null() || value == "" || value == 0 || value.as_array().is_some_and(Vec::is_empty);
    (!empty).then_some(value)
}

fn number(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|number| number.try_into().ok())
}

fn ports(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["ports"].as_array().into_iter().flatten()
}

fn ports_mut(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten()
}

fn node_ports(spec: &Value) -> Vec<Value> {
    ports(spec).filter_map(|port| non_empty(&port["nodePort"]).cloned()).collect()
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    if let (Some(value), Some(fields)) = (from.get(field), to.as_object_mut()) {
        fields.insert(field.to_owned(), value.clone());
    }
}

fn remove(value: &mut Value, field: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(field);
    }
}

#[cfg(test)]
mod tests;
