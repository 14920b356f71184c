//! The files of a bundle. In: a description, metadata and samples. Out: `bundle/manifests`, `bundle/metadata`, `bundle/tests/scorecard` and
//! `bundle.Dockerfile`, laid out as operator-sdk does. Pure.

use serde_json::{Value, json};

use super::csv::{CsvError, csv};
use super::metadata::BundleMetadata;
use super::webhooks;
use crate::description::{Description, text};
use crate::generated_files::{GeneratedFiles, MARK};
use crate::manifests::{Manifest, Part, manifests};
use crate::yaml::{Reader, document};

/// The folder of a bundle.
pub(super) const BUNDLE: &str = "bundle";

/// The folders in it, as annotations name them.
pub(super) const MANIFESTS: &str = "manifests/";
pub(super) const METADATA: &str = "metadata/";
const SCORECARD: &str = "tests/scorecard/";

/// Which form a bundle has.
pub(super) const MEDIA_TYPE: &str = "registry+v1";

/// The keys of annotations, which labels of the image repeat.
pub(super) const MEDIA_TYPE_KEY: &str = "operators.operatorframework.io.bundle.mediatype.v1";
pub(super) const MANIFESTS_KEY: &str = "operators.operatorframework.io.bundle.manifests.v1";
pub(super) const METADATA_KEY: &str = "operators.operatorframework.io.bundle.metadata.v1";
pub(super) const PACKAGE_KEY: &str = "operators.operatorframework.io.bundle.package.v1";
pub(super) const CHANNELS_KEY: &str = "operators.operatorframework.io.bundle.channels.v1";
pub(super) const DEFAULT_CHANNEL_KEY: &str = "operators.operatorframework.io.bundle.channel.default.v1";

/// The tests of operator-sdk's scorecard, by their suites.
const SCORECARD_TESTS: [(&str, &str); 6] = [
    ("basic", "basic-check-spec"),
    ("olm", "olm-bundle-validation"),
    ("olm", "olm-crds-have-validation"),
    ("olm", "olm-crds-have-resources"),
    ("olm", "olm-spec-descriptors"),
    ("olm", "olm-status-descriptors"),
];
const SCORECARD_IMAGE: &str = "quay.io/operator-framework/scorecard-test:v1.42.3";

/// The files of a bundle.
pub(super) fn files(
    operator: &Description,
    metadata: &BundleMetadata,
    samples: &[Value],
) -> Result<GeneratedFiles, CsvError> {
    let mut files = GeneratedFiles::default();
    files.own(BUNDLE);
    let mut add = |path: String, value: &Value| {
        files.add(path, format!("{}{}", header(), document(value, Reader::Kubernetes)));
    };
    let csv = csv(operator, metadata, samples)?;
    add(format!("{BUNDLE}/{MANIFESTS}{}.clusterserviceversion.yaml", operator.name), &csv);
    for manifest in manifests(operator).into_iter().filter(is_beside) {
        let object = bundled(manifest.object, operator);
        add(format!("{BUNDLE}/{MANIFESTS}{}", file_name(&object)), &object);
    }
    let annotations = annotations(metadata);
    let named: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), value.as_str().into())).collect();
    add(format!("{BUNDLE}/{METADATA}annotations.yaml"), &json!({"annotations": named}));
    add(format!("{BUNDLE}/{SCORECARD}config.yaml"), &scorecard());
    files.add("bundle.Dockerfile", dockerfile(&annotations));
    Ok(files)
}

/// The first line of a file.
fn header() -> String {
    format!("# {MARK}; `konverge bundle` replaces this file. Remove this line to keep changes of yours.\n")
}

/// Whether an object stands beside the ClusterServiceVersion. OLM makes the operator's own account, roles, Deployment and webhooks by itself, and older
/// releases of it refuse bundles with a NetworkPolicy.
fn is_beside(manifest: &Manifest) -> bool {
    let kind = manifest.object["kind"].as_str().unwrap_or_default();
    match manifest.part {
        Part::Crd => true,
        Part::Manager => ["Service", "PodDisruptionBudget"].contains(&kind),
        // Roles of people: those of the operator are bound.
        Part::Rbac => kind == "ClusterRole" && manifest.file.ends_with("_role.yaml") && !is_own_role(&manifest.file),
        Part::Webhook | Part::Prometheus | Part::Grafana | Part::RestrictEgress => false,
    }
}

fn is_own_role(file: &str) -> bool {
    ["webhook_role.yaml", "leader_election_role.yaml"].contains(&file)
}

/// An object without its namespace, which OLM chooses.
fn bundled(mut object: Value, operator: &Description) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    if let Some(service) = object.pointer_mut("/spec/conversion/webhook/clientConfig/service") {
        // Until OLM has filled in the rest, conversions fail; without the webhook they would be wrong.
        service["name"] = webhooks::service_name(&operator.name).into();
    }
    object
}

/// `example.com_shops.yaml` for a CRD, `shop-metrics_v1_service.yaml` for others.
fn file_name(object: &Value) -> String {
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    if kind == "CustomResourceDefinition" {
        return format!("{}_{}.yaml", text(&object["spec"]["group"]), text(&object["spec"]["names"]["plural"]));
    }
    format!("{name}_{}_{}.yaml", text(&object["apiVersion"]).replace('/', "_"), kind.to_lowercase())
}

/// What a catalog has to know of a bundle before it opens it.
fn annotations(metadata: &BundleMetadata) -> Vec<(&'static str, String)> {
    vec![
        (MEDIA_TYPE_KEY, MEDIA_TYPE.to_owned()),
        (MANIFESTS_KEY, MANIFESTS.to_owned()),
        (METADATA_KEY, METADATA.to_owned()),
        (PACKAGE_KEY, metadata.package.clone()),
        (CHANNELS_KEY, metadata.channels.join(",")),
        (DEFAULT_CHANNEL_KEY, metadata.default_channel().to_owned()),
        ("operators.operatorframework.io.test.mediatype.v1", "scorecard+v1".to_owned()),
        ("operators.operatorframework.io.test.config.v1", SCORECARD.to_owned()),
    ]
}

fn scorecard() -> Value {
    let test = |(suite, name): &(&str, &str)| {
        json!({
            "entrypoint": ["scorecard-test", name], "image": SCORECARD_IMAGE,
            "labels": {"suite": suite, "test": format!("{name}-test")},
            "storage": {"spec": {"mountPath": {}}},
        })
    };
    json!({
        "apiVersion": "scorecard.operatorframework.io/v1alpha3", "kind": "Configuration", "metadata": {"name": "config"},
        "stages": [{"parallel": true, "tests": SCORECARD_TESTS.iter().map(test).collect::<Vec<_>>()}],
        "storage": {"spec": {"mountPath": {}}},
    })
}

fn dockerfile(annotations: &[(&'static str, String)]) -> String {
    let label = |(key, value): &(&str, String)| format!("LABEL {key}={value}\n");
    let labels: String = annotations.iter().map(label).collect();
    let copy = |folder: &str| format!("COPY {BUNDLE}/{folder} /{folder}\n");
    let copies: String = [MANIFESTS, METADATA, SCORECARD].into_iter().map(copy).collect();
    format!("{}FROM scratch\n\n{labels}\n{copies}", header())
}

#[cfg(test)]
mod tests {
    use super::super::metadata::tests::example as metadata;
    use super::*;
    use crate::description::tests::example;

    #[test]
    fn the_files_of_a_bundle() {
        let bundle = files(&example(), &metadata(), &[]).unwrap();
        let paths: Vec<String> = bundle.iter().map(|(path, _)| path.display().to_string()).collect();
        assert_eq!(
            paths,
            [
                "bundle/manifests/example.com_shops.yaml",
                "bundle/manifests/shop-metrics_v1_service.yaml",
                "bundle/manifests/shop-shop-admin_rbac.authorization.k8s.io_v1_clusterrole.yaml",
                "bundle/manifests/shop-shop-editor_rbac.authorization.k8s.io_v1_clusterrole.yaml",
                "bundle/manifests/shop-shop-viewer_rbac.authorization.k8s.io_v1_clusterrole.yaml",
                "bundle/manifests/shop.clusterserviceversion.yaml",
                "bundle/manifests/shop_policy_v1_poddisruptionbudget.yaml",
                "bundle/metadata/annotations.yaml",
                "bundle/tests/scorecard/config.yaml",
                "bundle.Dockerfile",
            ]
        );
        let of =
            |name: &str| bundle.iter().find(|(path, _)| path.ends_with(name)).map(|(_, text)| text.to_owned()).unwrap();
        for (path, text) in bundle.iter().filter(|(path, _)| !path.ends_with("shop.clusterserviceversion.yaml")) {
            assert!(!text.contains("namespace: shop-system") || path.ends_with("example.com_shops.yaml"), "{text}");
        }
        assert!(of("example.com_shops.yaml").contains("name: shop-service"), "the Service that OLM makes");
        assert!(of("bundle.Dockerfile").contains("LABEL operators.operatorframework.io.bundle.channels.v1=stable\n"));
        assert!(of("config.yaml").contains("olm-status-descriptors-test"));
    }
}
