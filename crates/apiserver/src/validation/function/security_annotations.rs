//! Annotations of pods that are older than the fields which say the same of seccomp and AppArmor. Where both are given, they match.

use serde_json::Value;

use konverge_core::{FieldError, FieldPath};

use super::super::walk::{Frame, Target, Walk};
use super::pod::containers;
use super::{Function, field, has, text};

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn named(name: &str) -> Option<Function> {
    (name == "security-annotations").then_some(security_annotations)
}

/// Compares annotations and fields of a pod or of a template.
fn security_annotations(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let annotations = field(field(at.value, "metadata"), "annotations");
    // Most pods have no annotations.
    if annotations.as_object().is_none_or(serde_json::Map::is_empty) {
        return;
    }
    let (spec, path) = (field(at.value, "spec"), at.place.path().child("spec"));
    let security = |object| field(object, "securityContext");
    let at_security = |path: &FieldPath, field: &str| path.child("securityContext").child(field);
    let pod_seccomp = field(security(spec), "seccompProfile");
    check(walk, annotations, SECCOMP_POD, pod_seccomp, "seccomp", &at_security(&path, "seccompProfile"));
    let containers = containers(spec, &path);
    for (container, path) in &containers {
        let key = format!("{SECCOMP_CONTAINER}{}", text(container, "name"));
        let profile = field(security(container), "seccompProfile");
        check(walk, annotations, &key, profile, "seccomp", &at_security(path, "seccompProfile"));
    }
    if text(field(spec, "os"), "name") == "windows" {
        return;
    }
    let of_pod = field(security(spec), "appArmorProfile");
    for (container, path) in &containers {
        let key = format!("{APP_ARMOR}{}", text(container, "name"));
        let own = field(security(container), "appArmorProfile");
        let profile = if own.is_null() { of_pod } else { own };
        check(walk, annotations, &key, profile, "apparmor", &at_security(path, "appArmorProfile"));
    }
}

/// Refuses a profile that the annotation of this key contradicts.
fn check(walk: &mut Walk<'_>, annotations: &Value, key: &str, profile: &Value, what: &str, path: &FieldPath) {
    if profile.is_null() || !has(annotations, key) {
        return;
    }
    let annotation = text(annotations, key);
    let matches = match text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || what == "seccomp" && annotation == "docker/default",
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(file) if field(profile, "localhostProfile").as_str() != Some(file) => {
                let why = format!("{what} profile in annotation and field must match");
                return walk.push(FieldError::forbidden(path.child("localhostProfile"), why));
            }
            file => file.is_some(),
        },
        _ => true,
    };
    if !matches {
        walk.push(FieldError::forbidden(path.child("type"), format!("{what} type in annotation and field must match")));
    }
}
