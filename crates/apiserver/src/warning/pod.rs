//! Pods and templates of pods: what is deprecated, has no effect, or is there twice.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use konverge_core::FieldPath;

use crate::assign::app_armor_profile_of;

use super::{address, annotation, fraction, list, node, text, volume};

const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_OLD: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The warnings for a pod, or for a template at `at`. They come in the order of the original's.
pub(super) fn warnings(at: &FieldPath, pod: &Value, out: &mut Vec<String>) {
    let (spec, at_spec) = (&pod["spec"], at.child("spec"));
    node_selection(&at_spec, spec, out);
    let annotations = at.child("metadata").child("annotations");
    for (name, why) in ANNOTATIONS {
        if annotation(pod, name).is_some() {
            out.push(format!("{}: {why}", annotations.key(name)));
        }
    }
    volume::of_pod(&at_spec.child("volumes"), list(&spec["volumes"]), out);
    repeated(&at_spec.child("hostAliases"), list(&spec["hostAliases"]), "ip", out);
    let secrets = list(&spec["imagePullSecrets"]);
    repeated(&at_spec.child("imagePullSecrets"), secrets, "name", out);
    for (index, _) in secrets.iter().enumerate().filter(|(_, secret)| text(&secret["name"]).is_empty()) {
        let at = at_spec.child("imagePullSecrets").index(index).child("name");
        out.push(format!("{at}: invalid empty name \"\""));
    }
    for name in ["memory", "ephemeral-storage"] {
        fraction(&at_spec.child("overhead").key(name), &spec["overhead"][name], out);
    }
    if spec["securityContext"]["seccompProfile"].is_null() && annotation(pod, SECCOMP_POD).is_some() {
        out.push(format!("{}: {SECCOMP_OLD}", annotations.key(SECCOMP_POD)));
    }
    let containers = containers(&at_spec, spec);
    for (at_container, container) in &containers {
        container_warnings(at, pod, at_container, container, out);
    }
    ports(&containers, out);
    port_names(&containers, out);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let at = at_spec.child("terminationGracePeriodSeconds");
        out.push(format!("{at}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    pod_affinity(&at_spec.child("affinity"), &spec["affinity"], out);
    for (index, server) in list(&spec["dnsConfig"]["nameservers"]).iter().enumerate() {
        address::ip(&at_spec.child("dnsConfig").child("nameservers").index(index), text(server), out);
    }
    for (index, alias) in list(&spec["hostAliases"]).iter().enumerate() {
        address::ip(&at_spec.child("hostAliases").index(index).child("ip"), text(&alias["ip"]), out);
    }
}

fn node_selection(at: &FieldPath, spec: &Value, out: &mut Vec<String>) {
    for (label, _) in spec["nodeSelector"].as_object().into_iter().flatten() {
        if let Some(why) = node::deprecated_label(label) {
            out.push(format!("{}: {why}", at.child("nodeSelector").key(label)));
        }
    }
    let (affinity, at_affinity) = (&spec["affinity"]["nodeAffinity"], at.child("affinity").child("nodeAffinity"));
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in list(&affinity[required]["nodeSelectorTerms"]).iter().enumerate() {
        node::term(&at_affinity.child(required).child("nodeSelectorTerms").index(index), term, false, out);
    }
    for (index, term) in list(&affinity[preferred]).iter().enumerate() {
        let at = at_affinity.child(preferred).index(index).child("preference");
        node::term(&at, &term["preference"], true, out);
    }
    for (index, constraint) in list(&spec["topologySpreadConstraints"]).iter().enumerate() {
        let at = at.child("topologySpreadConstraints").index(index);
        let key = text(&constraint["topologyKey"]);
        if let Some(why) = node::deprecated_label(key) {
            out.push(format!("{}: {key} is {why}", at.child("topologyKey")));
        }
        matches_nothing(&at, constraint, out);
    }
}

fn pod_affinity(at: &FieldPath, affinity: &Value, out: &mut Vec<String>) {
    for name in ["podAffinity", "podAntiAffinity"] {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(&affinity[name][required]).iter().enumerate() {
            matches_nothing(&at.child(name).child(required).index(index), term, out);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(&affinity[name][preferred]).iter().enumerate() {
            let at = at.child(name).child(preferred).index(index).child("podAffinityTerm");
            matches_nothing(&at, &term["podAffinityTerm"], out);
        }
    }
}

fn matches_nothing(at: &FieldPath, term: &Value, out: &mut Vec<String>) {
    if term["labelSelector"].is_null() {
        out.push(format!("{}: a null labelSelector results in matching no pod", at.child("labelSelector")));
    }
}

/// Values of a field that an earlier item has, too.
fn repeated(at: &FieldPath, items: &[Value], field: &str, out: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let value = text(&item[field]);
        if !seen.insert(value) {
            out.push(format!("{}: duplicate {field} {value:?}", at.index(index).child(field)));
        }
    }
}

fn containers<'p>(at: &FieldPath, spec: &'p Value) -> Vec<(FieldPath, &'p Value)> {
    let mut found = Vec::new();
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let items = list(&spec[field]).iter().enumerate();
        found.extend(items.map(|(index, container)| (at.child(field).index(index), container)));
    }
    found
}

fn container_warnings(at: &FieldPath, pod: &Value, at_container: &FieldPath, container: &Value, out: &mut Vec<String>) {
    let (name, security) = (text(&container["name"]), &container["securityContext"]);
    let annotations = at.child("metadata").child("annotations");
    let seccomp = format!("{SECCOMP_CONTAINER}{name}");
    if security["seccompProfile"].is_null() && annotation(pod, &seccomp).is_some() {
        out.push(format!("{}: {SECCOMP_OLD}", annotations.key(&seccomp)));
    }
    // The server copies the annotations of pods into the fields, so only templates are warned of.
    let app_armor = format!("{APP_ARMOR}{name}");
    if !at.as_str().is_empty()
        && security["appArmorProfile"].is_null()
        && let Some(profile) = annotation(pod, &app_armor)
        && app_armor_profile_of(profile).is_none_or(|field| pod["spec"]["securityContext"]["appArmorProfile"] != field)
    {
        let at = annotations.key(&app_armor);
        out.push(format!("{at}: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
    }
    for resource in ["memory", "ephemeral-storage"] {
        for part in ["limits", "requests"] {
            let at = at_container.child("resources").child(part).key(resource);
            fraction(&at, &container["resources"][part][resource], out);
        }
    }
    let mut seen = HashSet::new();
    for (index, variable) in list(&container["env"]).iter().enumerate() {
        let (name, value) = (text(&variable["name"]), text(&variable["value"]));
        let reference = format!("$({name})");
        let extends = variable["valueFrom"].is_null() && value != reference && value.contains(&reference);
        if !seen.insert(name) && !extends {
            let at = at_container.child("env").index(index);
            out.push(format!("{at}: hides previous definition of {name:?}, which may be dropped when using apply"));
        }
    }
}

/// A port that was seen before: where, and its address and port of the host.
type Seen<'a> = (FieldPath, &'a str, i64);

/// Ports that several containers say they listen on.
fn ports(containers: &[(FieldPath, &Value)], out: &mut Vec<String>) {
    let mut seen: HashMap<(i64, &str), Vec<Seen<'_>>> = HashMap::new();
    for (at, container) in containers {
        for (index, port) in list(&container["ports"]).iter().enumerate() {
            let at = at.child("ports").index(index);
            let number = |field: &str| port[field].as_i64().unwrap_or_default();
            let (host_ip, host_port, protocol) = (text(&port["hostIP"]), number("hostPort"), text(&port["protocol"]));
            if !host_ip.is_empty() && host_port == 0 {
                out.push(format!(
                    "{at}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{protocol} HostIP:{host_ip}}}",
                    text(&port["name"]),
                    number("containerPort"),
                ));
            }
            let others = seen.entry((number("containerPort"), protocol)).or_default();
            for (other, ip, port) in others.iter() {
                if host_ip == *ip && host_port == *port {
                    out.push(format!("{at}: duplicate port definition with {other}"));
                } else if host_port == 0 || *port == 0 {
                    out.push(format!("{at}: overlapping port definition with {other}"));
                } else if host_port == *port && host_ip.is_empty() != ip.is_empty() {
                    out.push(format!("{at}: dangerously ambiguous port definition with {other}"));
                }
            }
            others.push((at, host_ip, host_port));
        }
    }
}

fn port_names(containers: &[(FieldPath, &Value)], out: &mut Vec<String>) {
    let mut seen: HashMap<&str, FieldPath> = HashMap::new();
    for (at, container) in containers {
        for (index, port) in list(&container["ports"]).iter().enumerate() {
            let (at, name) = (at.child("ports").index(index), text(&port["name"]));
            match seen.get(name) {
                _ if name.is_empty() => {}
                Some(other) => out.push(format!(
                    "{at}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use \
                     {other}"
                )),
                None => {
                    seen.insert(name, at);
                }
            }
        }
    }
}
