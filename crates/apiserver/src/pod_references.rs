//! The objects that a pod refers to by name. In: a pod, as JSON. Out: the names of secrets and config maps in its namespace, and
//! which kind of object it refers to first, for those who may refer to none. Pure.

use serde_json::Value;

/// The annotation of pods that a kubelet runs from its own files.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether a kubelet runs the pod from its own files.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

/// The names of the secrets that a pod refers to, perhaps several times.
pub(crate) fn secrets(pod: &Value) -> Vec<&str> {
    let spec = &pod["spec"];
    let mut names: Vec<&str> = items(&spec["imagePullSecrets"]).filter_map(|reference| name(reference)).collect();
    names.extend(from_environment(spec, "secretRef", "secretKeyRef"));
    for volume in items(&spec["volumes"]) {
        let of = |source: &str, reference: &str| name(&volume[source][reference]);
        // A volume has one source, and what comes first counts, as in Kubernetes.
        let sources = [
            ("cephfs", "secretRef"),
            ("cinder", "secretRef"),
            ("flexVolume", "secretRef"),
            ("projected", ""),
            ("rbd", "secretRef"),
            ("secret", ""),
            ("scaleIO", "secretRef"),
            ("iscsi", "secretRef"),
            ("storageos", "secretRef"),
            ("csi", "nodePublishSecretRef"),
        ];
        if volume["azureFile"].is_object() {
            names.extend(text(&volume["azureFile"]["secretName"]));
            continue;
        }
        match sources.iter().find(|(source, _)| volume[*source].is_object()) {
            Some(("projected", _)) => {
                names.extend(items(&volume["projected"]["sources"]).filter_map(|source| name(&source["secret"])));
            }
            Some(("secret", _)) => names.extend(text(&volume["secret"]["secretName"])),
            Some((source, reference)) => names.extend(of(source, reference)),
            None => {}
        }
    }
    names
}

/// The names of the config maps that a pod refers to, perhaps several times.
pub(crate) fn config_maps(pod: &Value) -> Vec<&str> {
    let spec = &pod["spec"];
    let mut names: Vec<&str> = from_environment(spec, "configMapRef", "configMapKeyRef").collect();
    for volume in items(&spec["volumes"]) {
        if volume["projected"].is_object() {
            names.extend(items(&volume["projected"]["sources"]).filter_map(|source| name(&source["configMap"])));
        } else {
            names.extend(name(&volume["configMap"]));
        }
    }
    names
}

/// Which objects a pod refers to, in the words that a refusal has for them; none if it refers to no object. An error if it has a
/// volume that is not known.
pub(crate) fn first_reference(pod: &Value) -> Result<Option<&'static str>, String> {
    const WITHOUT: [&str; 22] = [
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    ];
    const WITH: [(&str, &str); 7] = [
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    const PROJECTED: [(&str, &str); 5] = [
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    let spec = &pod["spec"];
    if text(&spec["serviceAccountName"]).is_some() {
        return Ok(Some("serviceaccounts"));
    }
    if !secrets(pod).is_empty() {
        return Ok(Some("secrets"));
    }
    if !config_maps(pod).is_empty() {
        return Ok(Some("configmaps"));
    }
    if items(&spec["resourceClaims"]).next().is_some() {
        return Ok(Some("resourceclaims"));
    }
    for volume in items(&spec["volumes"]) {
        let shown = || volume["name"].as_str().unwrap_or_default();
        let has = |source: &str| volume[source].is_object();
        if WITHOUT.iter().any(|source| has(source)) {
            continue;
        }
        if let Some((_, words)) = WITH.iter().find(|(source, _)| has(source)) {
            return Ok(Some(words));
        }
        if !has("projected") {
            return Err(format!("unknown volume type for volume  {:?}", shown()));
        }
        for source in items(&volume["projected"]["sources"]) {
            if let Some((_, words)) = PROJECTED.iter().find(|(kind, _)| source[*kind].is_object()) {
                return Ok(Some(words));
            }
            if !source["downwardAPI"].is_object() {
                return Err(format!("unknown source for projected volume {:?}", shown()));
            }
        }
    }
    Ok(None)
}

/// The names that the environment of containers is taken from: whole objects, and single keys.
fn from_environment<'p>(
    spec: &'p Value,
    whole: &'static str,
    key: &'static str,
) -> impl Iterator<Item = &'p str> + use<'p> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(|list| items(&spec[list])).flat_map(move |container| {
        let wholes = items(&container["envFrom"]).filter_map(move |source| name(&source[whole]));
        let keys = items(&container["env"]).filter_map(move |variable| name(&variable["valueFrom"][key]));
        wholes.chain(keys)
    })
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn name(reference: &Value) -> Option<&str> {
    text(&reference["name"])
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_pod_refers_to() {
        #[track_caller]
        fn check(spec: Value, expect_secrets: &[&str], expect_maps: &[&str], first: Result<Option<&str>, &str>) {
            let pod = json!({"spec": spec});
            assert_eq!(secrets(&pod), expect_secrets, "{pod}");
            assert_eq!(config_maps(&pod), expect_maps, "{pod}");
            assert_eq!(first_reference(&pod), first.map_err(str::to_owned), "{pod}");
        }
        let volume = |source: Value| json!({"volumes": [source]});
        check(json!({}), &[], &[], Ok(None));
        check(json!({"serviceAccountName": "a"}), &[], &[], Ok(Some("serviceaccounts")));
        check(json!({"imagePullSecrets": [{"name": "a"}, {}]}), &["a"], &[], Ok(Some("secrets")));
        let containers = json!({
            "initContainers": [{"envFrom": [{"secretRef": {"name": "a"}}, {"configMapRef": {"name": "b"}}]}],
            "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "c"}}}, {"value": "x"}]}],
            "ephemeralContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "d"}}}]}],
        });
        check(containers, &["a", "c"], &["b", "d"], Ok(Some("secrets")));
        check(volume(json!({"secret": {"secretName": "a"}})), &["a"], &[], Ok(Some("secrets")));
        check(volume(json!({"secret": {}})), &[], &[], Ok(Some("secrets (via secret volumes)")));
        check(volume(json!({"configMap": {"name": "a"}})), &[], &["a"], Ok(Some("configmaps")));
        check(volume(json!({"azureFile": {"secretName": "a"}})), &["a"], &[], Ok(Some("secrets")));
        for source in ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
            check(volume(json!({source: {"secretRef": {"name": "a"}}})), &["a"], &[], Ok(Some("secrets")));
            check(volume(json!({source: {}})), &[], &[], Ok(None));
        }
        check(volume(json!({"csi": {"nodePublishSecretRef": {"name": "a"}}})), &["a"], &[], Ok(Some("secrets")));
        check(volume(json!({"csi": {}})), &[], &[], Ok(Some("csidrivers (via CSI volumes)")));
        let projected = |sources: Value| volume(json!({"name": "v", "projected": {"sources": sources}}));
        check(
            projected(json!([{"secret": {"name": "a"}}, {"configMap": {"name": "b"}}])),
            &["a"],
            &["b"],
            Ok(Some("secrets")),
        );
        check(
            projected(json!([{"downwardAPI": {}}, {"serviceAccountToken": {}}])),
            &[],
            &[],
            Ok(Some("serviceaccounts (via projected volumes)")),
        );
        check(projected(json!([{}])), &[], &[], Err("unknown source for projected volume \"v\""));
        check(volume(json!({"emptyDir": {}})), &[], &[], Ok(None));
        check(volume(json!({"name": "v"})), &[], &[], Err("unknown volume type for volume  \"v\""));
        check(json!({"resourceClaims": [{"name": "a"}]}), &[], &[], Ok(Some("resourceclaims")));
    }
}
