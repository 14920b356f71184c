//! The AppArmor profiles of a new pod. In: its annotations, the old way to choose them. Out: the same profiles in the fields of its
//! containers, and warnings of annotations.

use serde_json::{Value, json};

use konverge_core::FieldPath;

/// The beginning of an annotation; the name of a container follows.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The longest path of a profile.
const MAX_PROFILE_BYTES: usize = 4095;

/// Copies profiles from annotations into the fields of containers that have none.
pub(super) fn copy_from_annotations(pod: &mut Value, warnings: &mut Vec<String>) {
    let annotations = pod["metadata"]["annotations"].clone();
    let Some(annotations) = annotations.as_object() else { return };
    let spec = &mut pod["spec"];
    if !annotations.keys().any(|key| key.starts_with(ANNOTATION)) || spec["os"]["name"] == "windows" {
        return;
    }
    let of_pod = spec["securityContext"]["appArmorProfile"].clone();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let key = format!("{ANNOTATION}{}", container["name"].as_str().unwrap_or_default());
            let Some(annotation) = annotations.get(&key).and_then(Value::as_str) else { continue };
            if !container["securityContext"]["appArmorProfile"].is_null() {
                continue;
            }
            let profile = profile_of(annotation).filter(is_valid);
            // Every container has the profile of the pod anyway.
            if profile.as_ref() == Some(&of_pod) {
                continue;
            }
            if let Some(profile) = profile {
                container["securityContext"]["appArmorProfile"] = profile;
            }
            let at = FieldPath::new("metadata").child("annotations").key(&key);
            warnings.push(format!("{at}: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
        }
    }
}

/// The profile that an annotation means, if it means one.
pub(crate) fn profile_of(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        other => {
            let file = other.strip_prefix("localhost/").filter(|file| !file.is_empty())?;
            Some(json!({"type": "Localhost", "localhostProfile": file}))
        }
    }
}

/// Whether a container may have this profile.
fn is_valid(profile: &Value) -> bool {
    let file = profile["localhostProfile"].as_str();
    file.is_none_or(|file| file.trim() == file && file.len() <= MAX_PROFILE_BYTES)
}
