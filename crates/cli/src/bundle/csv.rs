//! The ClusterServiceVersion: what OLM installs, and what catalogs show. In: a description, metadata and samples. Out: one object. Pure.
//!
//! OLM makes the Deployment, the ServiceAccount and the roles, in a namespace that an administrator chooses, and tells the operator by an annotation of
//! its Pods which namespaces to watch.

use serde_json::{Value, json};

use super::descriptors::{descriptors, spaced};
use super::managed_kinds::managed_kinds;
use super::metadata::BundleMetadata;
use super::webhooks;
use crate::description::{Description, text};
use crate::manifests::{Manifest, manifests};

pub(super) const KIND: &str = "ClusterServiceVersion";
pub(super) const API_VERSION: &str = "operators.coreos.com/v1alpha1";

/// How Pods learn which namespaces the OperatorGroup selects; empty is all of them.
const TARGET_NAMESPACES: &str = "metadata.annotations['olm.targetNamespaces']";

/// What kube's derive says of a kind about which its author says nothing.
const AUTO_GENERATED: &str = "Auto-generated derived type";

/// Why OLM cannot install an operator.
#[derive(Debug, thiserror::Error)]
pub(super) enum CsvError {
    #[error(
        "the leader of {0} is elected by Raft, which needs a StatefulSet, and OLM installs Deployments only; elect it by a Lease, or deploy it with \
         `konverge deploy` or the chart"
    )]
    Stateful(String),
    #[error(
        "the code of {name} says that it watches {namespaces}, but under OLM an OperatorGroup decides; remove `.namespaces(…)`, and let the setting \
         `namespaces` say so"
    )]
    FixedNamespaces { name: String, namespaces: String },
}

/// The ClusterServiceVersion of an operator.
pub(super) fn csv(operator: &Description, metadata: &BundleMetadata, samples: &[Value]) -> Result<Value, CsvError> {
    if operator.raft.is_some() {
        return Err(CsvError::Stateful(operator.name.clone()));
    }
    if !operator.rules.namespaces.is_empty() {
        let namespaces: Vec<&str> = operator.rules.namespaces.iter().map(|(name, _)| name.as_str()).collect();
        return Err(CsvError::FixedNamespaces { name: operator.name.clone(), namespaces: namespaces.join(", ") });
    }
    let owned = owned(operator);
    let mut spec = json!({
        "displayName": metadata.display_name,
        "description": metadata.description,
        "version": metadata.version.to_string(),
        "maturity": metadata.maturity,
        "minKubeVersion": metadata.min_kube_version,
        "installModes": install_modes(operator),
        "install": {"strategy": "deployment", "spec": strategy(operator)},
        "customresourcedefinitions": {"owned": owned},
    });
    let optional = [
        ("keywords", json!(metadata.keywords)),
        ("maintainers", json!(metadata.maintainers)),
        ("links", json!(metadata.links)),
        ("icon", json!(metadata.icon.iter().collect::<Vec<_>>())),
        ("skips", json!(metadata.skips)),
        ("webhookdefinitions", json!(webhooks::definitions(operator))),
        ("relatedImages", related_images(&operator.image)),
    ];
    for (field, items) in optional {
        if items.as_array().is_some_and(|items| !items.is_empty()) {
            spec[field] = items;
        }
    }
    for (field, value) in
        [("provider", metadata.provider.clone()), ("replaces", metadata.replaces.clone().map(Value::from))]
    {
        if let Some(value) = value {
            spec[field] = value;
        }
    }
    Ok(json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": {
            "name": metadata.csv_name(),
            // OLM knows which one, and takes the place of this word.
            "namespace": "placeholder",
            "annotations": annotations(operator, metadata, samples),
            "labels": labels(metadata),
        },
        "spec": spec,
    }))
}

fn annotations(operator: &Description, metadata: &BundleMetadata, samples: &[Value]) -> Value {
    let mut annotations = Value::Object(metadata.annotations.clone());
    let examples: Vec<&Value> = samples.iter().filter(|sample| is_owned(operator, sample)).collect();
    annotations["alm-examples"] = serde_json::to_string_pretty(&examples).expect("values are JSON").into();
    annotations["containerImage"] = operator.image.as_str().into();
    annotations["operatorframework.io/suggested-namespace"] = operator.namespace.as_str().into();
    annotations["operators.operatorframework.io/builder"] = "konverge".into();
    if !operator.summary.is_empty() {
        // Catalogs show it on the tile of the operator.
        annotations["description"] = operator.summary.as_str().into();
    }
    if let Some(range) = &metadata.skip_range {
        annotations["olm.skipRange"] = range.as_str().into();
    }
    annotations
}

/// On which machines the images run; without a label OLM takes amd64 for granted.
fn labels(metadata: &BundleMetadata) -> Value {
    let mut labels = json!({});
    for architecture in &metadata.architectures {
        labels[format!("operatorframework.io/arch.{architecture}")] = "supported".into();
    }
    if !metadata.architectures.is_empty() {
        labels["operatorframework.io/os.linux"] = "supported".into();
    }
    labels
}

/// Whether an object is of a kind and version that the operator defines.
fn is_owned(operator: &Description, sample: &Value) -> bool {
    let api_version = text(&sample["apiVersion"]);
    let (group, version) = api_version.rsplit_once('/').unwrap_or_default();
    let has = |definition: &Value| {
        definition["spec"]["versions"].as_array().into_iter().flatten().any(|known| known["name"] == version)
    };
    operator.definitions.iter().any(|definition| {
        let spec = &definition["spec"];
        spec["group"] == group && spec["names"]["kind"] == sample["kind"] && has(definition)
    })
}

/// Every served version of every kind.
fn owned(operator: &Description) -> Vec<Value> {
    let rules = operator.rules.cluster.iter().chain(operator.scoped.iter().flat_map(|scoped| &scoped.namespaced));
    let resources = managed_kinds(rules);
    let mut owned = Vec::new();
    for definition in &operator.definitions {
        let spec = &definition["spec"];
        let kind = text(&spec["names"]["kind"]);
        let versions = spec["versions"].as_array().into_iter().flatten();
        for version in versions.filter(|version| version["served"] == true) {
            let found = descriptors(version);
            let mut one = json!({
                "name": definition["metadata"]["name"], "version": version["name"], "kind": kind,
                "displayName": spaced(&kind), "description": described(version, &kind),
            });
            for (field, items) in
                [("resources", resources.clone()), ("specDescriptors", found.spec), ("statusDescriptors", found.status)]
            {
                if !items.is_empty() {
                    one[field] = items.into();
                }
            }
            owned.push(one);
        }
    }
    owned
}

/// What the author says of a kind, or of its `spec`.
fn described(version: &Value, kind: &str) -> String {
    let schema = &version["schema"]["openAPIV3Schema"];
    let said = [&schema["description"], &schema["properties"]["spec"]["description"]].map(text);
    let by_author = said.into_iter().find(|words| !words.is_empty() && !words.starts_with(AUTO_GENERATED));
    by_author.unwrap_or_else(|| format!("{} objects.", spaced(kind)))
}

/// Whose namespaces an OperatorGroup may select. Objects of a kind that is converted are seen by the whole cluster.
fn install_modes(operator: &Description) -> Value {
    let is_scoped = operator.scoped.is_some() && webhooks::converted(operator).is_empty();
    let mode = |kind: &str, supported: bool| json!({"type": kind, "supported": supported});
    json!([
        mode("OwnNamespace", is_scoped),
        mode("SingleNamespace", is_scoped),
        mode("MultiNamespace", is_scoped),
        mode("AllNamespaces", true),
    ])
}

fn strategy(operator: &Description) -> Value {
    let permission = |rules: Vec<Value>| json!({"serviceAccountName": operator.name, "rules": rules});
    // OLM widens the first to the whole cluster if the OperatorGroup selects all namespaces. They hold in the operator's own namespace,
    // too, where its Lease is.
    let (mut inside, cluster) = match &operator.scoped {
        Some(scoped) => (scoped.namespaced.clone(), scoped.cluster.clone()),
        None => (Vec::new(), operator.rules.cluster.clone()),
    };
    inside.extend(operator.leader_election.1.iter().cloned());
    let mut strategy = json!({"deployments": [deployment(operator)]});
    for (field, rules) in [("permissions", inside), ("clusterPermissions", cluster)] {
        if !rules.is_empty() {
            strategy[field] = json!([permission(rules)]);
        }
    }
    strategy
}

/// The Deployment, told about namespaces and certificates in OLM's way.
fn deployment(operator: &Description) -> Value {
    let is_it = |manifest: &Manifest| manifest.object["kind"] == "Deployment";
    let mut object = manifests(operator).into_iter().find(is_it).map(|manifest| manifest.object).unwrap_or_default();
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    if operator.scoped.is_some() {
        let from = json!({"fieldRef": {"fieldPath": TARGET_NAMESPACES}});
        container["env"] = json!([{"name": "WATCH_NAMESPACE", "valueFrom": from}]);
    }
    if operator.webhook_port().is_some()
        && let Some(arguments) = container["args"].as_array_mut()
    {
        arguments.push(format!("--webhook-cert-dir={}", webhooks::CERTIFICATES).into());
    }
    json!({"name": operator.name, "label": object["metadata"]["labels"], "spec": object["spec"]})
}

/// Images for clusters without a way to the internet, which mirror them by their digests.
fn related_images(image: &str) -> Value {
    match image.contains('@') {
        true => json!([{"name": "manager", "image": image}]),
        false => json!([]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::metadata::tests::example as metadata;
    use super::*;
    use crate::description::tests::{example, raft_example};

    #[test]
    fn what_olm_installs() {
        let mut shop = example();
        shop.image = "example.com/shop@sha256:00".into();
        let sample = |version: &str| json!({"apiVersion": version, "kind": "Shop", "metadata": {"name": "a"}});
        let csv = csv(&shop, &metadata(), &[sample("example.com/v1"), sample("example.com/v9")]).unwrap();
        assert_eq!(csv["metadata"]["name"], "shop.v1.2.3");
        let examples: Value = serde_json::from_str(&text(&csv["metadata"]["annotations"]["alm-examples"])).unwrap();
        assert_eq!(examples, json!([sample("example.com/v1")]));
        assert_eq!(csv["metadata"]["annotations"]["olm.skipRange"], "<1.2.3");
        let spec = &csv["spec"];
        assert_eq!((&spec["replaces"], &spec["version"]), (&json!("shop.v1.1.0"), &json!("1.2.3")));
        assert_eq!(spec["relatedImages"][0]["image"], "example.com/shop@sha256:00");
        // Versions are converted, so only the whole cluster can have it.
        let modes: Vec<bool> =
            spec["installModes"].as_array().unwrap().iter().map(|mode| mode["supported"] == true).collect();
        assert_eq!(modes, [false, false, false, true]);
        let strategy = &spec["install"]["spec"];
        assert_eq!(strategy["permissions"][0]["rules"].as_array().map(Vec::len), Some(2));
        assert_eq!(strategy["permissions"][0]["serviceAccountName"], "shop");
        let container = &strategy["deployments"][0]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], TARGET_NAMESPACES);
        assert_eq!(container["args"][2], "--webhook-cert-dir=/tmp/k8s-webhook-server/serving-certs");
        let owned = &spec["customresourcedefinitions"]["owned"][0];
        assert_eq!((&owned["version"], &owned["description"]), (&json!("v1"), &json!("A shop.\nIt has {{ braces }}.")));
        assert_eq!(owned["specDescriptors"][0]["path"], "size");
    }

    #[test]
    fn an_operator_that_can_be_scoped() {
        let mut shop = example();
        shop.definitions[0]["spec"].as_object_mut().unwrap().remove("conversion");
        let scoped = csv(&shop, &metadata(), &[]).unwrap();
        assert_eq!(scoped["spec"]["installModes"][0], json!({"type": "OwnNamespace", "supported": true}));
        shop.scoped = None;
        let whole = csv(&shop, &metadata(), &[]).unwrap();
        assert_eq!(whole["spec"]["installModes"][0]["supported"], false);
        assert!(whole["spec"]["install"]["spec"]["clusterPermissions"].is_array());
    }

    #[test]
    fn what_olm_cannot_install() {
        assert!(
            csv(&raft_example(), &metadata(), &[]).unwrap_err().to_string().contains("OLM installs Deployments only")
        );
        let mut fixed = example();
        fixed.rules.namespaces = vec![("a".into(), Vec::new())];
        assert!(csv(&fixed, &metadata(), &[]).unwrap_err().to_string().contains("says that it watches a, but"));
    }
}
