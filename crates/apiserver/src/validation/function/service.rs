//! Services: addresses, families and ports together, and what an update may change.

use std::collections::HashSet;

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, NameRule, check_name};

use super::super::address;
use super::super::place::Place;
use super::super::walk::{Frame, Target, Walk};
use super::{Function, field, has, list, number, text};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "topology-annotations" => topology_annotations,
        "service-ports-required" => ports_required,
        "external-name" => external_name,
        "client-ip-affinity" => client_ip_affinity,
        "cluster-ips" => cluster_ips,
        "external-ip" => external_ip,
        "duplicate-ports" => duplicate_ports,
        "source-ranges" => source_ranges,
        "external-traffic" => external_traffic,
        "service-update" => update,
        "load-balancer-status" => load_balancer_status,
        _ => return None,
    })
}

fn topology_annotations(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let (hints, mode) = (field(at.value, HINTS), field(at.value, MODE));
    if !hints.is_null() && !mode.is_null() && hints != mode {
        let why = format!("must match annotations[{HINTS}] when both are specified");
        walk.invalid(&Place::Key(at.place, MODE), mode.clone(), why);
    }
}

fn is_headless(spec: &Value) -> bool {
    matches!(list(spec, "clusterIPs"), [one] if one == "None")
}

fn ports_required(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let spec = field(at.value, "spec");
    if list(spec, "ports").is_empty() && !is_headless(spec) && text(spec, "type") != "ExternalName" {
        walk.push(FieldError::required(FieldPath::new("spec").child("ports"), ""));
    }
}

fn external_name(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default();
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        return walk.push(FieldError::required(at.place.path(), ""));
    }
    for why in check_name(name, NameRule::Subdomain, false) {
        walk.invalid(at.place, name, why);
    }
}

fn client_ip_affinity(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let why = "when session affinity type is ClientIP";
    let path = at.place.path();
    let client = field(at.value, "clientIP");
    let timeout = field(client, "timeoutSeconds");
    if at.value.is_null() {
        walk.push(FieldError::required(path, why));
    } else if client.is_null() {
        walk.push(FieldError::required(path.child("clientIP"), why));
    } else if timeout.is_null() {
        walk.push(FieldError::required(path.child("clientIP").child("timeoutSeconds"), why));
    } else if !(1..=86400).contains(&timeout.as_i64().unwrap_or_default()) {
        let why = "must be greater than 0 and less than 86400";
        walk.push(FieldError::invalid(path.child("clientIP").child("timeoutSeconds"), timeout.clone(), why));
    }
}

fn cluster_ips(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.child("clusterIPs");
    let ips: Vec<&str> = list(at.value, "clusterIPs").iter().filter_map(Value::as_str).collect();
    let all = field(at.value, "clusterIPs");
    let one = text(at.value, "clusterIP");
    match (one, ips.first()) {
        ("", None) => {}
        ("", Some(_)) => {
            let why = "must be empty when `clusterIP` is not specified";
            walk.push(FieldError::invalid(path.clone(), all.clone(), why));
        }
        (_, None) => walk.push(FieldError::required(path.clone(), "")),
        (one, Some(first)) if one != *first => {
            walk.push(FieldError::invalid(path.clone(), all.clone(), "first value must match `clusterIP`"));
        }
        _ => {}
    }
    let families: Vec<&str> = list(at.value, "ipFamilies").iter().filter_map(Value::as_str).collect();
    let mut seen = HashSet::new();
    for (index, family) in families.iter().enumerate() {
        let path = at.place.child("ipFamilies").index(index);
        if !["IPv4", "IPv6"].contains(family) {
            walk.push(FieldError::not_supported(path.clone(), (*family).into(), ["IPv4", "IPv6"]));
        }
        if !seen.insert(*family) {
            walk.push(FieldError::duplicate(path, (*family).into()));
        }
    }
    let policy = text(at.value, "ipFamilyPolicy");
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if has(at.value, "ipFamilyPolicy") && !policies.contains(&policy) {
        walk.push(FieldError::not_supported(at.place.child("ipFamilyPolicy"), policy.into(), policies));
    }
    let before: HashSet<&str> =
        at.old.map(|old| list(old, "clusterIPs").iter().filter_map(Value::as_str).collect()).unwrap_or_default();
    let mut malformed = false;
    for (index, ip) in ips.iter().enumerate() {
        if index == 0 && *ip == "None" {
            if ips.len() > 1 {
                malformed = true;
                walk.push(FieldError::invalid(path.clone(), all.clone(), "'None' must be the first and only value"));
            }
            continue;
        }
        if before.contains(ip) {
            continue;
        }
        for why in address::check_ip(ip) {
            malformed = true;
            walk.push(FieldError::invalid(path.index(index), (*ip).into(), why));
        }
    }
    if ips.len() > 2 {
        walk.push(FieldError::invalid(path.clone(), all.clone(), "may only hold up to 2 values"));
    }
    if malformed {
        return;
    }
    if ips.len() > 1 && address::is_dual_stack(&ips) == Some(false) {
        let why = "may specify no more than one IP for each IP family";
        walk.push(FieldError::invalid(path.clone(), all.clone(), why));
    }
    if is_headless(at.value) {
        return;
    }
    for (index, (ip, family)) in ips.iter().zip(&families).enumerate() {
        let is_v6 = address::parse_sloppy(ip).is_some_and(|address| address.is_ipv6());
        let expected = match *family {
            "IPv4" if is_v6 => "IPv4",
            "IPv6" if !is_v6 => "IPv6",
            _ => continue,
        };
        let why = format!("expected an {expected} value as indicated by `ipFamilies[{index}]`");
        walk.push(FieldError::invalid(path.index(index), (*ip).into(), why));
    }
}

fn external_ip(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let ip = at.value.as_str().unwrap_or_default();
    let was_there = frame.old.is_some_and(|old| list(old, "externalIPs").iter().any(|before| before == ip));
    let mut problems = if was_there { Vec::new() } else { address::check_ip(ip) };
    if problems.is_empty() {
        problems = address::check_endpoint_ip(ip);
    }
    for why in problems {
        walk.invalid(at.place, ip, why);
    }
}

fn duplicate_ports(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.child("ports");
    let mut seen = HashSet::new();
    for (index, port) in list(at.value, "ports").iter().enumerate() {
        let node_port = number(port, "nodePort");
        if node_port != 0 && !seen.insert((text(port, "protocol"), node_port)) {
            walk.push(FieldError::duplicate(path.index(index).child("nodePort"), node_port.into()));
        }
    }
    let mut seen = HashSet::new();
    for (index, port) in list(at.value, "ports").iter().enumerate() {
        let key = (text(port, "protocol"), number(port, "port"));
        if !seen.insert(key) {
            // A cluster shows its own struct here, with the fields that it compares.
            let shown = serde_json::json!({
                "Name": "", "Protocol": key.0, "AppProtocol": null, "Port": key.1, "TargetPort": 0, "NodePort": 0,
            });
            walk.push(FieldError::duplicate(path.index(index), shown));
        }
    }
}

fn source_ranges(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let is_balancer = text(at.value, "type") == "LoadBalancer";
    let not_here = "may only be used when `type` is 'LoadBalancer'";
    let ranges = list(at.value, "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let path = at.place.child("LoadBalancerSourceRanges");
        if !is_balancer {
            walk.push(FieldError::forbidden(path.clone(), not_here));
        }
        let before: HashSet<&str> = at
            .old
            .map(|old| list(old, "loadBalancerSourceRanges").iter().filter_map(|v| v.as_str().map(str::trim)).collect())
            .unwrap_or_default();
        for (index, range) in ranges.iter().enumerate() {
            let range = range.as_str().unwrap_or_default().trim();
            if before.contains(range) {
                continue;
            }
            for why in address::check_cidr(range) {
                walk.push(FieldError::invalid(path.index(index), range.into(), why));
            }
        }
        return;
    }
    let annotation = |object: &Value| field(field(field(object, "metadata"), "annotations"), SOURCE_RANGES).clone();
    let ranges = annotation(walk.object);
    let Some(given) = ranges.as_str() else { return };
    let path = FieldPath::new("metadata").child("annotations").key(SOURCE_RANGES);
    if !is_balancer {
        walk.push(FieldError::forbidden(path.clone(), not_here));
    }
    if walk.before.is_none_or(|old| annotation(old) != ranges) && !given.trim().is_empty() {
        for range in given.trim().split(',').map(str::trim) {
            for why in address::check_cidr(range) {
                walk.push(FieldError::invalid(path.clone(), range.into(), why));
            }
        }
    }
}

fn is_external(spec: &Value) -> bool {
    let kind = text(spec, "type");
    matches!(kind, "LoadBalancer" | "NodePort") || kind == "ClusterIP" && !list(spec, "externalIPs").is_empty()
}

fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn external_traffic(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.child("externalTrafficPolicy");
    let policy = text(at.value, "externalTrafficPolicy");
    if !is_external(at.value) {
        if !policy.is_empty() {
            let why = "may only be set for externally-accessible services";
            walk.push(FieldError::invalid(path, policy.into(), why));
        }
    } else if policy.is_empty() {
        walk.push(FieldError::required(path, ""));
    } else if !["Cluster", "Local"].contains(&policy) {
        walk.push(FieldError::not_supported(path, policy.into(), ["Cluster", "Local"]));
    }
    let path = at.place.child("healthCheckNodePort");
    let port = number(at.value, "healthCheckNodePort");
    if !needs_health_check(at.value) {
        if port != 0 {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            walk.push(FieldError::invalid(path, port.into(), why));
        }
    } else if port == 0 {
        walk.push(FieldError::required(path, ""));
    } else if !(1..=65535).contains(&port) {
        walk.push(FieldError::invalid(path, port.into(), "must be between 1 and 65535, inclusive"));
    }
}

fn update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    let (old, new) = (field(old, "spec"), field(at.value, "spec"));
    let spec = FieldPath::new("spec");
    let kinds = (text(old, "type"), text(new, "type"));
    if kinds.0 != "ExternalName" && kinds.1 != "ExternalName" {
        let headless = (is_headless(old), is_headless(new));
        if headless != (true, true) {
            update_list(walk, old, new, "clusterIPs", "clusterIP");
        }
        if headless == (false, false) {
            update_list(walk, old, new, "ipFamilies", "ipFamily");
        }
    }
    let (class, class_before) = (field(new, "loadBalancerClass"), field(old, "loadBalancerClass"));
    let path = spec.child("loadBalancerClass");
    if kinds == ("LoadBalancer", "LoadBalancer") && class != class_before {
        walk.push(FieldError::invalid(path.clone(), class.clone(), "may not change once set"));
    }
    // The original checks the class here and again with the other fields.
    if kinds.1 != "LoadBalancer" && !class.is_null() {
        walk.push(FieldError::forbidden(path, "may only be used when `type` is 'LoadBalancer'"));
    }
    if needs_health_check(old)
        && needs_health_check(new)
        && number(old, "healthCheckNodePort") != number(new, "healthCheckNodePort")
    {
        walk.push(FieldError::forbidden(spec.child("healthCheckNodePort"), "field is immutable"));
    }
}

/// The addresses or families of a service: the first stays, a second one may come and go.
fn update_list(walk: &mut Walk<'_>, old: &Value, new: &Value, name: &str, one: &str) {
    let (before, after) = (list(old, name), list(new, name));
    let path = FieldPath::new("spec").child(name);
    let shown = || field(new, name).clone();
    let ips = || field(new, "clusterIPs").clone();
    if before.len() == after.len() {
        for (index, (before, after)) in before.iter().zip(after).enumerate() {
            if before != after {
                let index = if name == "clusterIPs" { index } else { 0 };
                walk.push(FieldError::invalid(path.index(index), shown(), "may not change once set"));
            }
        }
        return;
    }
    if before.len() > after.len() {
        if list(new, "clusterIPs").is_empty() {
            walk.push(FieldError::invalid(path.index(0), shown(), format!("primary {one} can not be unset")));
        }
        if let (Some(first), Some(was)) = (after.first(), before.first())
            && first != was
        {
            walk.push(FieldError::invalid(path.index(0), ips(), "may not change once set"));
        }
        if after.len() == 1 && text(new, "ipFamilyPolicy") != "SingleStack" {
            let why = format!("must be set to 'SingleStack' when releasing the secondary {one}");
            let policy = field(new, "ipFamilyPolicy").clone();
            walk.push(FieldError::invalid(FieldPath::new("spec").child("ipFamilyPolicy"), policy, why));
        }
    } else if let (Some(first), Some(was)) = (after.first(), before.first())
        && first != was
    {
        walk.push(FieldError::invalid(path.index(0), ips(), "may not change once set"));
    }
}

fn load_balancer_status(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let ingresses = list(at.value, "ingress");
    if text(field(walk.object, "spec"), "type") != "LoadBalancer" && !ingresses.is_empty() {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        return walk.push(FieldError::forbidden(at.place.child("ingress"), why));
    }
    let before: HashSet<&str> =
        at.old.map(|old| list(old, "ingress").iter().map(|one| text(one, "ip")).collect()).unwrap_or_default();
    for (index, ingress) in ingresses.iter().enumerate() {
        let path = at.place.child("ingress").index(index);
        let ip = text(ingress, "ip");
        if !ip.is_empty() && !before.contains(ip) {
            for why in address::check_ip(ip) {
                walk.push(FieldError::invalid(path.child("ip"), ip.into(), why));
            }
        }
        let mode = text(ingress, "ipMode");
        if !has(ingress, "ipMode") {
            if !ip.is_empty() {
                walk.push(FieldError::required(path.child("ipMode"), "must be specified when `ip` is set"));
            }
        } else if ip.is_empty() {
            walk.push(FieldError::forbidden(path.child("ipMode"), "may not be specified when `ip` is not set"));
        } else if !["Proxy", "VIP"].contains(&mode) {
            walk.push(FieldError::not_supported(path.child("ipMode"), mode.into(), ["Proxy", "VIP"]));
        }
        let host = text(ingress, "hostname");
        if !host.is_empty() {
            for why in check_name(host, NameRule::Subdomain, false) {
                walk.push(FieldError::invalid(path.child("hostname"), host.into(), why));
            }
            if address::parse_sloppy(host).is_some() {
                let why = "must be a DNS name, not an IP address";
                walk.push(FieldError::invalid(path.child("hostname"), host.into(), why));
            }
        }
    }
}
