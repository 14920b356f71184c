//! Ingresses, network policies, endpoint slices and address ranges.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, GroupVersion, NameRule, check_name};

use super::super::address;
use super::super::format;
use super::super::walk::{Frame, Target, Walk};
use super::{Function, field, has, list, text};

const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "ingress-class-annotation" => class_annotation,
        "ingress-host" => ingress_host,
        "tls-host" => |walk, at, _| host(walk, at),
        "ingress-path" => ingress_path,
        "ingress-status" => ingress_status,
        "policy-port" => policy_port,
        "ip-block" => ip_block,
        "ip-name" => ip_name,
        "service-cidrs" => |walk, at, _| service_cidrs(walk, at),
        "service-cidrs-update" => service_cidrs_update,
        "endpoint-address" => endpoint_address,
        "endpoint-port-name" => endpoint_port_name,
        "group-version" => group_version,
        "group-required" => group_required,
        "max-replicas" => max_replicas,
        "empty-enum" => |walk, at, _| walk.push(FieldError::not_supported(at.place.path(), at.value.clone(), [""])),
        "only-metric-source" => only_metric_source,
        "metric-resource" => |walk, at, _| {
            let name = at.value.as_str().unwrap_or_default();
            super::resources::container_name(walk, name, &at.place.path());
        },
        _ => return None,
    })
}

fn class_annotation(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let annotation = field(field(field(at.value, "metadata"), "annotations"), INGRESS_CLASS);
    let class = field(field(at.value, "spec"), "ingressClassName");
    if !annotation.is_null() && !class.is_null() && annotation != class {
        let path = FieldPath::new("annotations").child(INGRESS_CLASS);
        walk.push(FieldError::invalid(
            path,
            annotation.clone(),
            "must match `ingressClassName` when both are specified",
        ));
    }
}

fn ingress_host(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if at.value.as_str().is_some_and(|host| address::parse_sloppy(host).is_some()) {
        walk.invalid(at.place, at.value.clone(), "must be a DNS name, not an IP address");
    }
    host(walk, at);
}

fn host(walk: &mut Walk<'_>, at: Target<'_>) {
    let host = at.value.as_str().unwrap_or_default();
    let rule = if host.contains('*') { "wildcard" } else { "dns-subdomain" };
    for why in format::named(rule).map(|check| check(host)).unwrap_or_default() {
        walk.invalid(at.place, host, why);
    }
}

fn ingress_path(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.value.as_str().unwrap_or_default();
    for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| path.contains(part)) {
        walk.invalid(at.place, path, format!("must not contain '{part}'"));
    }
    for end in ["/..", "/."].into_iter().filter(|end| path.ends_with(end)) {
        walk.invalid(at.place, path, format!("cannot end with '{end}'"));
    }
}

fn ingress_status(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let before: HashSet<&str> =
        at.old.map(|old| list(old, "ingress").iter().map(|one| text(one, "ip")).collect()).unwrap_or_default();
    for (index, ingress) in list(at.value, "ingress").iter().enumerate() {
        let path = at.place.child("ingress").index(index);
        let (ip, host) = (text(ingress, "ip"), text(ingress, "hostname"));
        if !ip.is_empty() && !before.contains(ip) {
            for why in address::check_ip(ip) {
                walk.push(FieldError::invalid(path.child("ip"), ip.into(), why));
            }
        }
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

fn policy_port(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let (port, end) = (field(at.value, "port"), field(at.value, "endPort"));
    let (port_path, end_path) = (at.place.child("port"), at.place.child("endPort"));
    let not_a_port = "must be between 1 and 65535, inclusive";
    let is_port = |number: i64| (1..=65535).contains(&number);
    if let Some(name) = port.as_str() {
        if !end.is_null() {
            let why = "may not be specified when `port` is non-numeric";
            walk.push(FieldError::invalid(end_path, end.clone(), why));
        }
        for why in format::named("port-name").map(|check| check(name)).unwrap_or_default() {
            walk.push(FieldError::invalid(port_path.clone(), name.into(), why));
        }
        return;
    }
    let Some(number) = port.as_i64() else {
        if !end.is_null() {
            let why = "may not be specified when `port` is not specified";
            walk.push(FieldError::invalid(end_path, end.clone(), why));
        }
        return;
    };
    if !is_port(number) {
        walk.push(FieldError::invalid(port_path, number.into(), not_a_port));
    }
    if let Some(end) = end.as_i64() {
        if end < number {
            let why = "must be greater than or equal to `port`";
            walk.push(FieldError::invalid(end_path.clone(), number.into(), why));
        }
        if !is_port(end) {
            walk.push(FieldError::invalid(end_path, end.into(), not_a_port));
        }
    }
}

fn ip_block(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let range = text(at.value, "cidr");
    for why in address::check_cidr(range) {
        walk.push(FieldError::invalid(at.place.child("cidr"), range.into(), why));
    }
    let Some((network, length)) = address::parse_cidr(range) else { return };
    for (index, except) in list(at.value, "except").iter().filter_map(Value::as_str).enumerate() {
        let path = at.place.child("except").index(index);
        for why in address::check_cidr(except) {
            walk.push(FieldError::invalid(path.clone(), except.into(), why));
        }
        let Some((inner, inner_length)) = address::parse_cidr(except) else { continue };
        let inside =
            network.is_ipv4() == inner.is_ipv4() && address::masked(inner, length) == address::masked(network, length);
        if !inside || length >= inner_length {
            walk.push(FieldError::invalid(path, except.into(), "must be a strict subset of `cidr`"));
        }
    }
}

fn ip_name(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default();
    for why in address::check_canonical_ip(name) {
        walk.invalid(at.place, name, why);
    }
}

fn service_cidrs(walk: &mut Walk<'_>, at: Target<'_>) {
    let ranges: Vec<&str> = at.value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if ranges.is_empty() {
        return walk.push(FieldError::required(at.place.path(), "at least one CIDR required"));
    }
    if ranges.len() > 2 {
        return walk.invalid(at.place, serde_json::json!({"CIDRs": ranges}), "may only hold up to 2 values");
    }
    for (index, range) in ranges.iter().enumerate() {
        for why in address::check_canonical_cidr(range) {
            walk.push(FieldError::invalid(at.place.path().index(index), (*range).into(), why));
        }
    }
    let families: Vec<bool> = ranges.iter().filter_map(|range| Some(address::parse_cidr(range)?.0.is_ipv4())).collect();
    if let [one, other] = families[..]
        && one == other
    {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        walk.invalid(at.place, at.value.clone(), why);
    }
}

fn service_cidrs_update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let items = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let (before, after) = (items(at.old), items(Some(at.value)));
    let changed = |walk: &mut Walk<'_>, index: usize| {
        walk.push(FieldError::invalid(at.place.path().index(index), after[index].clone(), "field is immutable"));
    };
    if before.len() == after.len() {
        for index in (0..before.len()).filter(|index| before[*index] != after[*index]) {
            changed(walk, index);
        }
    } else if before.len() == 1 && after.len() == 2 {
        if before[0] != after[0] {
            changed(walk, 0);
        }
        service_cidrs(walk, at);
    } else {
        walk.invalid(at.place, at.value.clone(), "field is immutable");
    }
}

fn endpoint_address(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let address = at.value.as_str().unwrap_or_default();
    let list_path = frame.place.child("addresses");
    let kind = frame.above.map(|slice| text(slice.value, "addressType")).unwrap_or_default();
    let (problems, family) = match kind {
        "IPv4" => (address::check_ip(address), "IPv4"),
        "IPv6" => (address::check_canonical_ip(address), "IPv6"),
        "FQDN" => return domain(walk, at, address),
        _ => return,
    };
    if !problems.is_empty() {
        return problems.into_iter().for_each(|why| walk.invalid(at.place, address, why));
    }
    let is_v4 = matches!(address::parse_sloppy(address), Some(IpAddr::V4(_)));
    if is_v4 != (family == "IPv4") {
        walk.push(FieldError::invalid(list_path, address.into(), format!("must be an {family} address")));
    }
    address::check_endpoint_ip(address).into_iter().for_each(|why| walk.invalid(at.place, address, why));
}

fn domain(walk: &mut Walk<'_>, at: Target<'_>, name: &str) {
    if name.is_empty() {
        return walk.push(FieldError::required(at.place.path(), ""));
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = check_name(name, NameRule::Subdomain, false);
    if !problems.is_empty() {
        return walk.invalid(at.place, name, problems.join(","));
    }
    if !name.contains('.') {
        return walk.invalid(at.place, name, "should be a domain with at least two segments separated by dots");
    }
    for label in name.split('.') {
        let problems = check_name(label, NameRule::Label, false);
        if !problems.is_empty() {
            return walk.invalid(at.place, label, problems.join(","));
        }
    }
}

/// A port without a name has an empty one, which is there once as well.
fn endpoint_port_name(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default();
    if !frame.is_first("ports", name.to_owned()) {
        walk.push(FieldError::duplicate(at.place.path(), name.into()));
    }
}

fn group_version(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let version = at.value.as_str().unwrap_or_default();
    if !version.is_empty() && GroupVersion::parse(version).is_none() {
        walk.invalid(at.place, version, format!("unexpected GroupVersion string: {version}"));
    }
}

fn group_required(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let version = at.value.as_str().unwrap_or_default();
    if !version.contains('/') {
        walk.invalid(at.place, version, "apiVersion must specify API group");
    }
}

fn max_replicas(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let most = at.value.as_i64().unwrap_or_default();
    if field(frame.value, "minReplicas").as_i64().is_some_and(|least| most < least) {
        walk.invalid(at.place, most, "must be greater than or equal to `minReplicas`");
    }
}

fn only_metric_source(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let sources = ["object", "external", "pods", "resource", "containerResource"];
    let present: Vec<&str> = sources.into_iter().filter(|name| has(at.value, name)).collect();
    if present.len() == 1 {
        return;
    }
    let expected = match text(at.value, "type") {
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "External" => "external",
        "ContainerResource" => "containerResource",
        _ => "",
    };
    for name in present.into_iter().filter(|name| *name != expected) {
        walk.push(FieldError::forbidden(at.place.child(name), "must populate the given metric source only"));
    }
}
