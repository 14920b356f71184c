//! Quotas and limit ranges: which resources they may name, and that their amounts agree.

use std::collections::BTreeSet;

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, check_label_key};

use super::super::quantity;
use super::super::walk::{Frame, NULL, Target, Walk};
use super::resources::{can_overcommit, check_amount, check_resource, container_name, is_huge_page};
use super::{Function, entries, field, has, list, text};

/// Resources without a domain that a quota can limit.
const QUOTA: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const COMPUTE: [&str; 6] = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "quota-hard" => |walk, at, _| amounts(walk, at.value, "hard", &at.place.path()),
        "quota-status" => |walk, at, _| {
            amounts(walk, at.value, "hard", &at.place.path());
            amounts(walk, at.value, "used", &at.place.path());
        },
        "quota-scopes" => scopes,
        "quota-scope-selector" => scope_selector,
        "limit-type" => limit_type,
        "limit-range" => limit_range,
        _ => return None,
    })
}

fn is_quota(name: &str) -> bool {
    QUOTA.contains(&name) || is_huge_page(name) || name.starts_with("requests.hugepages-")
}

fn amounts(walk: &mut Walk<'_>, value: &Value, name: &str, path: &FieldPath) {
    for (resource, amount) in entries(value, name) {
        let path = path.child(name).key(resource);
        check_resource(walk, resource, &path);
        if !resource.contains('/') && !is_quota(resource) {
            let why = "must be a standard resource for quota";
            walk.push(FieldError::invalid(path.clone(), resource.as_str().into(), why));
        }
        check_amount(walk, resource, amount, &path);
    }
}

/// Whether a quota with this scope can limit this resource.
fn fits(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || COMPUTE.contains(&resource)
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&resource),
        _ => true,
    }
}

fn scopes(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.child("scopes");
    let scopes: Vec<&str> = list(at.value, "scopes").iter().filter_map(Value::as_str).collect();
    let shown = field(at.value, "scopes");
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            walk.push(FieldError::invalid(path.clone(), shown.clone(), "unsupported scope"));
        }
        for (resource, _) in entries(at.value, "hard") {
            if is_quota(resource) && !fits(scope, resource) {
                let why = "unsupported scope applied to resource";
                walk.push(FieldError::invalid(path.clone(), shown.clone(), why));
            }
        }
    }
    conflicts(walk, &scopes, shown, &path);
}

fn conflicts(walk: &mut Walk<'_>, scopes: &[&str], shown: &Value, path: &FieldPath) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            walk.push(FieldError::invalid(path.clone(), shown.clone(), "conflicting scopes"));
        }
    }
}

fn scope_selector(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let path = at.place.child("matchExpressions");
    let mut scopes = Vec::new();
    for requirement in list(at.value, "matchExpressions") {
        let (scope, operator) = (text(requirement, "scopeName"), text(requirement, "operator"));
        scopes.push(scope);
        let invalid = |name: &str, shown: Value, why: &str| FieldError::invalid(path.child(name), shown, why);
        if !SCOPES.contains(&scope) {
            walk.push(invalid("scopeName", scope.into(), "unsupported scope"));
        }
        for (resource, _) in entries(frame.value, "hard") {
            if is_quota(resource) && !fits(scope, resource) {
                let why = "unsupported scope applied to resource";
                walk.push(FieldError::invalid(path.clone(), at.value.clone(), why));
            }
        }
        if !["PriorityClass", "VolumeAttributesClass"].contains(&scope)
            && SCOPES.contains(&scope)
            && operator != "Exists"
        {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                       ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort \
                       or ResourceQuotaScopeCrossNamespacePodAffinity";
            walk.push(invalid("operator", operator.into(), why));
        }
        let values = list(requirement, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                walk.push(FieldError::required(path.child("values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                walk.push(invalid("values", field(requirement, "values").clone(), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => walk.push(invalid("operator", other.into(), "not a valid selector operator")),
        }
    }
    conflicts(walk, &scopes, field(frame.value, "scopes"), &path);
}

fn limit_type(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let kind = at.value.as_str().unwrap_or_default();
    let problems = check_label_key(kind);
    let known = kind.contains('/') || ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind);
    if problems.is_empty() && !known {
        return walk.invalid(at.place, kind, "must be a standard limit type or fully qualified");
    }
    problems.into_iter().for_each(|why| walk.invalid(at.place, kind, why));
}

fn limit_range(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let kind = text(at.value, "type");
    let path = at.place.path();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let check_names = |walk: &mut Walk<'_>, list: &str| {
        for (name, _) in entries(at.value, list) {
            let path = path.child(list).key(name);
            if ["Pod", "Container"].contains(&kind) {
                container_name(walk, name, &path);
            } else {
                check_resource(walk, name, &path);
            }
        }
    };
    check_names(walk, "max");
    check_names(walk, "min");
    if kind == "Pod" {
        for list in ["default", "defaultRequest"] {
            if entries(at.value, list).next().is_some() {
                walk.push(FieldError::forbidden(path.child(list), "may not be specified when `type` is 'Pod'"));
            }
        }
    } else {
        check_names(walk, "default");
        check_names(walk, "defaultRequest");
    }
    let bounded = ["min", "max"].iter().any(|list| has(field(at.value, list), "storage"));
    if kind == "PersistentVolumeClaim" && !bounded {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        walk.push(FieldError::required(path.child("limits"), why));
    }
    check_names(walk, "maxLimitRequestRatio");
    let lists = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    for list in lists.iter().filter(|list| kind != "Pod" || !list.starts_with("default")) {
        names.extend(entries(at.value, list).map(|(name, _)| name.as_str()));
    }
    for name in names {
        agree(walk, at.value, kind, name, &path);
    }
}

/// The amounts of one resource, against each other.
fn agree(walk: &mut Walk<'_>, item: &Value, kind: &str, name: &str, path: &FieldPath) {
    let get = |list: &str| {
        let hidden = kind == "Pod" && list.starts_with("default");
        Some(if hidden { &NULL } else { field(field(item, list), name) }).filter(|amount| !amount.is_null())
    };
    let (min, max) = (get("min"), get("max"));
    let (default, request, ratio) = (get("default"), get("defaultRequest"), get("maxLimitRequestRatio"));
    let mut exceeds =
        |list: &str, one: (&str, Option<&Value>), other: (&str, Option<&Value>), shown: Option<&Value>| {
            if let (Some(less), Some(more)) = (one.1, other.1)
                && quantity::of(less) > quantity::of(more)
            {
                let why = format!(
                    "{} value {} is greater than {} value {}",
                    one.0,
                    quantity::text(less),
                    other.0,
                    quantity::text(more)
                );
                let shown = quantity::text(shown.unwrap_or(less));
                walk.push(FieldError::invalid(path.child(list).key(name), shown.into(), why));
            }
        };
    exceeds("min", ("min", min), ("max", max), min);
    exceeds("defaultRequest", ("min", min), ("default request", request), request);
    exceeds("defaultRequest", ("default request", request), ("max", max), request);
    exceeds("defaultRequest", ("default request", request), ("default limit", default), request);
    exceeds("default", ("min", min), ("default", default), min);
    exceeds("default", ("default", default), ("max", max), max);
    if let Some(ratio) = ratio {
        let path = path.child("maxLimitRequestRatio").key(name);
        let shown = quantity::text(ratio);
        if quantity::of(ratio) < quantity::of(&Value::from(1)) {
            let why = format!("ratio {shown} is less than 1");
            walk.push(FieldError::invalid(path.clone(), shown.as_str().into(), why));
        }
        if let (Some(min), Some(max)) = (min, max) {
            let most = quantity::of(max).as_f64() / quantity::of(min).as_f64();
            if quantity::of(ratio).as_f64() > most {
                let why = format!("ratio {shown} is greater than max/min = {most:.6}");
                walk.push(FieldError::invalid(path, shown.into(), why));
            }
        }
    }
    if let (Some(default), Some(request)) = (default, request)
        && !can_overcommit(name)
        && quantity::of(default) != quantity::of(request)
    {
        let (default, request) = (quantity::text(default), quantity::text(request));
        let why = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        walk.push(FieldError::invalid(path.child("defaultRequest").key(name), request.as_str().into(), why));
    }
}
