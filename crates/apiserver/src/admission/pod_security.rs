//! PodSecurity: the labels of a namespace say which pods are refused in it, which are noted in the audit log, and which cause a
//! warning. Workloads that make pods are never refused, but their writer is warned.

mod checks;
mod policy;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use konverge_core::Status;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, lookup};
use crate::subresource::Subresource;
use checks::Violations;
use policy::{Level, LevelVersion, Policy};

const NAMESPACES: lookup::Kind = ("", "namespaces");
const PODS: lookup::Kind = ("", "pods");

/// The endpoints of pods that cannot change what the policies are about, or whose objects are no pods. Every other one is checked.
const IGNORED: [Subresource; 8] = [
    Subresource::Exec,
    Subresource::Attach,
    Subresource::Binding,
    Subresource::Eviction,
    Subresource::Log,
    Subresource::PortForward,
    Subresource::Proxy,
    Subresource::Status,
];

/// Annotations in the audit log.
const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
const VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
const ERROR: &str = "pod-security.kubernetes.io/error";

/// How many pods of a namespace are checked when its level changes, and for how long at most. As in kube-apiserver.
const MAX_PODS: usize = 3000;
const MAX_TIME: Duration = Duration::from_secs(1);

/// The kinds that make pods, and where their pod template is.
const WORKLOADS: [(&str, &str, &[&str]); 8] = [
    ("", "podtemplates", &["template"]),
    ("", "replicationcontrollers", &["spec", "template"]),
    ("apps", "daemonsets", &["spec", "template"]),
    ("apps", "deployments", &["spec", "template"]),
    ("apps", "replicasets", &["spec", "template"]),
    ("apps", "statefulsets", &["spec", "template"]),
    ("batch", "cronjobs", &["spec", "jobTemplate", "spec", "template"]),
    ("batch", "jobs", &["spec", "template"]),
];

#[derive(Deserialize)]
struct Labelled {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

pub(super) struct PodSecurity;

impl Plugin for PodSecurity {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && (is_about_pod(attributes)
                || attributes.is_about(NAMESPACES.0, NAMESPACES.1)
                || template_path(attributes).is_some())
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a Value,
        admission: &'a mut Admission,
    ) -> Verdict<'a> {
        if attributes.is_about(NAMESPACES.0, NAMESPACES.1) {
            return decided(check_namespace(attributes, object, admission));
        }
        decided(match template_path(attributes) {
            Some(path) => check_workload(attributes, object, path, admission),
            None => check_pod(attributes, object, admission),
        })
    }
}

fn is_about_pod(attributes: &Attributes<'_>) -> bool {
    (&*attributes.resource.group, &*attributes.resource.plural) == PODS && !IGNORED.contains(&attributes.subresource)
}

fn template_path(attributes: &Attributes<'_>) -> Option<&'static [&'static str]> {
    let row = WORKLOADS.iter().find(|(group, plural, _)| attributes.is_about(group, plural));
    row.map(|(_, _, path)| *path)
}

/// The policy of the namespace of a request.
fn policy(attributes: &Attributes<'_>) -> Result<Option<Policy>, Status> {
    let namespace = attributes.namespace.unwrap_or_default();
    let found = lookup::get::<Labelled>(attributes.server, NAMESPACES, None, namespace)?;
    Ok(found.map(|(_, namespace)| {
        let (policy, errors) = Policy::of(&namespace.metadata.labels);
        if let (Some(audit), false) = (&attributes.context.audit, errors.is_empty()) {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let errors = if let [one] = errors.as_slice() { one.clone() } else { format!("[{}]", errors.join(", ")) };
            audit.annotate(ERROR, format!("Failed to parse policy: {errors}"));
        }
        policy
    }))
}

/// Notes in the audit log what would be refused if the level of the audit were enforced.
fn note(level: LevelVersion, pod: &Value, attributes: &Attributes<'_>) {
    let Some(audit) = &attributes.context.audit else { return };
    let violations = Violations::of(level, &pod["metadata"], &pod["spec"]);
    if !violations.is_empty() {
        audit.annotate(VIOLATIONS, format!("would violate PodSecurity \"{level}\": {}", violations.details()));
    }
}

fn check_pod(attributes: &Attributes<'_>, pod: &Value, admission: &mut Admission) -> Result<(), Status> {
    let Some(policy) = policy(attributes)? else {
        let namespace = attributes.namespace.unwrap_or_default();
        return Err(Status::internal(format!("failed to lookup namespace {namespace:?}")));
    };
    // Nothing else of a pod that the policies are about can change.
    let judged = attributes.old.is_none_or(|old| has_new_image(old, pod));
    if let Some(audit) = attributes.context.audit.as_ref().filter(|_| judged || policy.is_privileged()) {
        audit.annotate(ENFORCED, policy.enforce.to_string());
    }
    if !judged {
        return Ok(());
    }
    note(policy.audit, pod, attributes);
    let violations = Violations::of(policy.enforce, &pod["metadata"], &pod["spec"]);
    if !violations.is_empty() {
        let level = policy.enforce;
        return Err(attributes.forbidden(format!("violates PodSecurity \"{level}\": {}", violations.details())));
    }
    warn(policy.warn, pod, admission);
    Ok(())
}

fn check_workload(
    attributes: &Attributes<'_>,
    object: &Value,
    path: &[&str],
    admission: &mut Admission,
) -> Result<(), Status> {
    let template = path.iter().fold(object, |value, field| &value[*field]);
    if let (Some(policy), true) = (policy(attributes)?, template.is_object()) {
        note(policy.audit, template, attributes);
        warn(policy.warn, template, admission);
    }
    Ok(())
}

fn warn(level: LevelVersion, pod: &Value, admission: &mut Admission) {
    let violations = Violations::of(level, &pod["metadata"], &pod["spec"]);
    if !violations.is_empty() {
        admission.warn(format!("would violate PodSecurity \"{level}\": {}", violations.details()));
    }
}

/// Whether an update changes an image, or adds or removes containers. Ephemeral containers are told apart by their names.
fn has_new_image(old: &Value, pod: &Value) -> bool {
    let images = |pod: &Value, list: &str| -> Vec<Value> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.map(|container| container["image"].clone()).collect()
    };
    let ephemeral = |pod: &Value| pod["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
    let before = ephemeral(old);
    let is_known = |new: &Value| {
        let known = before.iter().find(|container| container["name"] == new["name"]);
        known.is_some_and(|known| known["image"] == new["image"])
    };
    ["containers", "initContainers"].into_iter().any(|list| images(old, list) != images(pod, list))
        || !ephemeral(pod).iter().all(is_known)
}

/// Refuses labels that mean nothing, and warns of pods that a stricter level would refuse.
fn check_namespace(attributes: &Attributes<'_>, namespace: &Value, admission: &mut Admission) -> Result<(), Status> {
    let labels = |namespace: &Value| -> BTreeMap<String, String> {
        BTreeMap::deserialize(&namespace["metadata"]["labels"]).unwrap_or_default()
    };
    let (new, errors) = Policy::of(&labels(namespace));
    let old = attributes.old.map(|old| Policy::of(&labels(old)));
    if !errors.is_empty() && old.as_ref().is_none_or(|(_, before)| *before != errors) {
        return Err(Status::invalid("", "Namespace", attributes.name, &errors));
    }
    let Some((old, _)) = old else { return Ok(()) };
    let relaxed = new.enforce.version == old.enforce.version && new.enforce.level <= old.enforce.level;
    if new.enforce == old.enforce || new.enforce.level == Level::Privileged || relaxed {
        return Ok(());
    }
    // Enough to find one pod of each controller among the first, and no more than a request can read.
    let (pods, total) = lookup::first::<Value>(attributes, PODS, Some(attributes.name), Some(3 * MAX_PODS))?;
    let until = attributes.server.env.now() + MAX_TIME;
    let pods: Vec<Value> = pods.into_iter().map(|(_, pod)| pod).collect();
    let in_time = || attributes.server.env.now() < until;
    for warning in existing_violations(attributes.name, new.enforce, &pods, total, in_time) {
        admission.warn(warning);
    }
    Ok(())
}

/// What is wrong with the pods that are there: pods with the same violations together.
fn existing_violations(
    namespace: &str,
    level: LevelVersion,
    pods: &[Value],
    total: usize,
    in_time: impl Fn() -> bool,
) -> Vec<String> {
    // Pods of the same controller are alike, so one of each comes first.
    let controller = |pod: &Value| {
        let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.into_iter().find(|owner| owner["controller"] == true);
        controller.and_then(|owner| owner["uid"].as_str()).map(str::to_owned)
    };
    let mut seen = HashSet::new();
    let (first, later): (Vec<&Value>, Vec<&Value>) = pods.iter().partition(|pod| match controller(pod) {
        Some(uid) => seen.insert(uid),
        None => true,
    });
    let mut checked = 0;
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in first.into_iter().chain(later).take(MAX_PODS) {
        checked += 1;
        let violations = Violations::of(level, &pod["metadata"], &pod["spec"]);
        if !violations.is_empty() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            groups.entry(violations.reasons()).or_default().push(name);
        }
        if !in_time() {
            break;
        }
    }
    let mut warnings = Vec::new();
    if checked < total {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if !groups.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{level}\""
        ));
    }
    let mut texts: Vec<String> = groups
        .into_iter()
        .map(|(reasons, pods)| {
            let name = pods.iter().min().copied().unwrap_or_default();
            match pods.len() {
                1 => format!("{name}: {reasons}"),
                2 => format!("{name} (and 1 other pod): {reasons}"),
                count => format!("{name} (and {} other pods): {reasons}", count - 1),
            }
        })
        .collect();
    texts.sort();
    warnings.extend(texts);
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn existing_pods_are_grouped_by_what_they_violate() {
        let pod = |name: &str, owner: &str, privileged: bool| {
            json!({
                "metadata": {"name": name, "ownerReferences": [{"uid": owner, "controller": true}]},
                "spec": {
                    "hostNetwork": !privileged,
                    "containers": [{"name": "a", "securityContext": {"privileged": privileged}}],
                },
            })
        };
        let level = Policy::of(&BTreeMap::from([("pod-security.kubernetes.io/enforce".into(), "baseline".into())])).0;
        let pods = [pod("b", "1", true), pod("a", "1", true), pod("c", "2", false), pod("d", "3", true)];
        assert_eq!(
            existing_violations("n", level.enforce, &pods, 4, || true),
            [
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a (and 2 other pods): privileged",
                "c: host namespaces",
            ]
        );
        // Out of time after the first pod: one of each controller comes first.
        assert_eq!(
            existing_violations("n", level.enforce, &pods[1..], 3, || false),
            [
                "new PodSecurity enforce level only checked against the first 1 of 3 existing pods",
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a: privileged",
            ]
        );
        assert!(existing_violations("n", level.warn, &[], 0, || true).is_empty());
    }

    #[test]
    fn only_a_new_image_makes_an_update_significant() {
        let pod = |image: &str, count: usize| json!({"spec": {"containers": vec![json!({"image": image}); count]}});
        assert!(!has_new_image(&pod("a", 1), &pod("a", 1)));
        assert!(has_new_image(&pod("a", 1), &pod("b", 1)));
        assert!(has_new_image(&pod("a", 1), &pod("a", 2)));
        let debugged =
            |name: &str, image: &str| json!({"spec": {"ephemeralContainers": [{"name": name, "image": image}]}});
        assert!(!has_new_image(&debugged("a", "i"), &debugged("a", "i")));
        assert!(has_new_image(&pod("a", 0), &debugged("a", "i")));
        assert!(has_new_image(&debugged("a", "i"), &debugged("a", "j")));
        assert!(has_new_image(&debugged("a", "i"), &debugged("b", "i")));
    }
}
