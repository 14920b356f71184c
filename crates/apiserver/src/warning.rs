//! What Kubernetes warns of in objects that it takes. In: an object that passed validation, and the one before it. Out: texts for
//! `Warning` headers. Never refuses anything, and never changes the object.

mod address;
mod node;
mod pod;
mod service;
mod volume;

use serde_json::Value;

use konverge_core::{FieldPath, NameRule, Quantity, check_name};

use crate::meta;
use crate::resource::Resource;
use crate::subresource::Subresource;

/// Kinds that make pods, with the place of their template and whether a new one should have a name that can be a host name.
pub(crate) const TEMPLATES: [(&str, &[&str], bool); 8] = [
    ("CronJob", &["spec", "jobTemplate", "spec", "template"], true),
    ("DaemonSet", &["spec", "template"], false),
    ("Deployment", &["spec", "template"], true),
    ("Job", &["spec", "template"], true),
    ("PodTemplate", &["template"], false),
    ("ReplicaSet", &["spec", "template"], true),
    ("ReplicationController", &["spec", "template"], true),
    ("StatefulSet", &["spec", "template"], false),
];

/// A job with more completions and more pods at once than this may lose track of them.
const MANY_COMPLETIONS: i64 = 100_000;
const MANY_AT_ONCE: i64 = 10_000;

const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
const STATIC_SUFFIX: &str = ".static.k8s.io";

/// The warnings for a write of an object of a built-in kind.
pub(crate) fn of(resource: &Resource, subresource: Subresource, old: Option<&Value>, new: &Value) -> Vec<String> {
    let mut out = Vec::new();
    if resource.custom || subresource != Subresource::Main {
        return out;
    }
    if let Some((_, path, _)) = TEMPLATES.iter().find(|(kind, ..)| **kind == *resource.kind) {
        template_owner(&resource.kind, path, old, new, &mut out);
    }
    match (&*resource.group, &*resource.kind) {
        // Kubernetes saves the time on updates, which no person writes.
        ("", "Pod") if old.is_none() => {
            host_name("the Pod's hostname", new, &mut out);
            pod::warnings(&FieldPath::root(), new, &mut out);
        }
        ("", "Service") => service::warnings(new, &mut out),
        ("", "Endpoints") => service::endpoints(new, &mut out),
        ("", "Node") => node::warnings(new, &mut out),
        ("", "PersistentVolume") => volume::persistent_volume(new, &mut out),
        ("", "PersistentVolumeClaim") => volume::claim(new, &mut out),
        ("", "ResourceQuota") if old.is_none() => quota(new, &mut out),
        ("", "Secret") => key_pair(new, &mut out),
        ("", "ServiceAccount") => {
            let annotated = |object: &Value| annotation(object, MOUNTABLE_SECRETS).is_some();
            if annotated(new) && !old.is_some_and(annotated) {
                out.push(format!(
                    "metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate \
                     access to mounted secrets"
                ));
            }
        }
        ("discovery.k8s.io", "EndpointSlice") => service::endpoint_slice(old, new, &mut out),
        ("networking.k8s.io", "Ingress")
            if old.is_none()
                && annotation(new, INGRESS_CLASS).is_some()
                && new["spec"]["ingressClassName"].is_null() =>
        {
            out.push(format!("annotation {INGRESS_CLASS:?} is deprecated, please use 'spec.ingressClassName' instead"));
        }
        ("networking.k8s.io", "NetworkPolicy") => service::network_policy(new, &mut out),
        ("node.k8s.io", "RuntimeClass") => node::runtime_class(new, &mut out),
        ("storage.k8s.io", "StorageClass") => node::storage_class(new, &mut out),
        ("storage.k8s.io", "CSIStorageCapacity") => {
            node::label_selector("nodeTopology", &new["nodeTopology"], &mut out)
        }
        ("storage.k8s.io", "CSIDriver") => {
            let requests = |object: &Value| object["spec"]["tokenRequests"].clone();
            let changed = old.is_none_or(|old| requests(old) != requests(new));
            let unset = new["spec"]["serviceAccountTokenInSecrets"].is_null();
            if changed && !list(&requests(new)).is_empty() && unset {
                out.push(
                    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                     possible logging of tokens in volume attributes"
                        .to_owned(),
                );
            }
        }
        ("resource.k8s.io", "ResourceSlice") => {
            let driver = text(&new["spec"]["driver"]);
            if driver != driver.to_lowercase() {
                out.push(format!(
                    "spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"
                ));
            }
        }
        ("admissionregistration.k8s.io", _) if meta::text(new, "name").ends_with(STATIC_SUFFIX) => {
            out.push(format!(
                "metadata.name: names ending with {STATIC_SUFFIX:?} are reserved for static manifest-based configurations and \
                 cannot be managed via the API"
            ));
        }
        _ => {}
    }
    out
}

/// The warnings for a kind that makes pods: about its template, and about what else is only found there.
fn template_owner(kind: &str, path: &[&str], old: Option<&Value>, new: &Value, out: &mut Vec<String>) {
    fn find<'o>(object: &'o Value, path: &[&str]) -> &'o Value {
        path.iter().fold(object, |value, name| &value[*name])
    }
    if old.is_none() && TEMPLATES.iter().any(|(known, _, named)| *known == kind && *named) {
        host_name("Pod names and hostnames", new, out);
    }
    let generation = |object: &Value| meta::of(object).get("generation").cloned();
    let changed = old.is_none_or(|old| match kind {
        "DaemonSet" => find(old, path) != find(new, path),
        _ => generation(old) != generation(new),
    });
    let at = path.iter().fold(FieldPath::root(), |at, name| at.child(name));
    if changed {
        if matches!(kind, "Job" | "CronJob") {
            job(&path[..path.len() - 1], new, out);
        }
        let template = find(new, path);
        if template.is_object() {
            pod::warnings(&at, template, out);
        }
    }
    match kind {
        "CronJob" if old.is_some() && text(&new["spec"]["schedule"]).contains("TZ") => out.push(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        ),
        "StatefulSet" => {
            for (index, claim) in list(&new["spec"]["volumeClaimTemplates"]).iter().enumerate() {
                let at = FieldPath::new("spec").child("volumeClaimTemplates").index(index);
                let at = if old.is_some() { at.child("Spec") } else { at };
                volume::claim_spec(&at, &claim["spec"], out);
            }
            if new["spec"]["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
                out.push(
                    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                        .to_owned(),
                );
            }
        }
        _ => {}
    }
}

fn job(path: &[&str], new: &Value, out: &mut Vec<String>) {
    let spec = path.iter().fold(new, |value, name| &value[*name]);
    let number = |field: &str| spec[field].as_i64().unwrap_or_default();
    if spec["completionMode"] == "Indexed"
        && number("completions") > MANY_COMPLETIONS
        && number("parallelism") > MANY_AT_ONCE
    {
        out.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes \
             might not be able to track completedIndexes when a big number of indexes fail",
            path.join(".")
        ));
    }
}

/// A name that is also a part of host names should be one.
fn host_name(used_in: &str, object: &Value, out: &mut Vec<String>) {
    let problems = check_name(meta::text(object, "name"), NameRule::Label, false);
    if !problems.is_empty() {
        out.push(format!(
            "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: \
             [{}]",
            problems.join(" ")
        ));
    }
}

fn quota(object: &Value, out: &mut Vec<String>) {
    let hard = &object["spec"]["hard"];
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let (prefixed, limit) = (format!("requests.{name}"), format!("limits.{name}"));
        let request = match (&hard[&prefixed], name) {
            (Value::Null, "cpu" | "memory") => name,
            _ => prefixed.as_str(),
        };
        if let (Some(requested), Some(limited)) = (Quantity::of(&hard[request]), Quantity::of(&hard[&limit]))
            && requested > limited
        {
            out.push(format!("ResourceQuota {request} ({requested}) should be less than {limit} ({limited})"));
        }
    }
}

/// A TLS secret without PEM in it. Whether a key belongs to its certificate is not looked at.
fn key_pair(object: &Value, out: &mut Vec<String>) {
    use base64::Engine;
    if object["type"] != "kubernetes.io/tls" {
        return;
    }
    let has_pem = |name: &str| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text(&object["data"][name])).unwrap_or_default();
        bytes.windows(11).any(|window| window == b"-----BEGIN ")
    };
    if !has_pem("tls.crt") {
        out.push("tls: failed to find any PEM data in certificate input".to_owned());
    } else if !has_pem("tls.key") {
        out.push("tls: failed to find any PEM data in key input".to_owned());
    }
}

/// Bytes of which there is a fraction.
fn fraction(at: &FieldPath, amount: &Value, out: &mut Vec<String>) {
    if let Some(quantity) = Quantity::of(amount).filter(|quantity| quantity.milli_value() % 1000 != 0) {
        out.push(format!("{at}: fractional byte value \"{quantity}\" is invalid, must be an integer"));
    }
}

fn annotation<'o>(object: &'o Value, name: &str) -> Option<&'o str> {
    object["metadata"]["annotations"].get(name).and_then(Value::as_str)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
