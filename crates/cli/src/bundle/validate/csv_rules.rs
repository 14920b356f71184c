//! The rules of a ClusterServiceVersion by itself. In: a bundle. Out: findings. The rules are those of operator-framework's `api` module.

use std::collections::BTreeSet;

use konverge_core::{NameRule, check_label_value, check_name};
use semver::Version;
use serde_json::Value;

use super::super::metadata::TABLE;
use super::{Finding, LoadedBundle};
use crate::description::text;

/// Annotations that OLM knows by exactly this spelling.
const ANNOTATIONS: [&str; 5] =
    ["olm.operatorGroup", "olm.operatorNamespace", "olm.targetNamespaces", "olm.providedAPIs", "olm.skipRange"];

const INSTALL_MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];

/// A kind in one version: group, version, kind.
pub(super) type KindVersion = (String, String, String);

/// What is wrong with the ClusterServiceVersion.
pub(super) fn judge(bundle: &LoadedBundle) -> Vec<Finding> {
    let (csv, file) = bundle.csv_with_file();
    let mut rules = Rules { csv, file, findings: Vec::new() };
    rules.names();
    rules.required();
    rules.versions();
    rules.install_modes();
    rules.examples();
    rules.annotations();
    rules.findings
}

struct Rules<'a> {
    csv: &'a Value,
    file: &'a str,
    findings: Vec<Finding>,
}

impl Rules<'_> {
    fn error(&mut self, words: impl Into<String>) {
        self.findings.push(Finding::error(self.file, words));
    }

    fn warn(&mut self, words: impl Into<String>) {
        self.findings.push(Finding::warning(self.file, words));
    }

    /// Names are values of labels, too.
    fn names(&mut self) {
        let (own, replaces) = (text(&self.csv["metadata"]["name"]), text(&self.csv["spec"]["replaces"]));
        for (field, name) in [("metadata.name", own), ("spec.replaces", replaces)] {
            if field == "spec.replaces" && name.is_empty() {
                continue;
            }
            let why = check_name(&name, NameRule::Subdomain, false).into_iter().chain(check_label_value(&name));
            let why: Vec<String> = why.collect();
            if !why.is_empty() {
                self.error(format!("{field} {name:?} cannot be a name: {}", why.join("; ")));
            }
        }
    }

    fn required(&mut self) {
        let spec = &self.csv["spec"];
        let is_empty = |value: &Value| value.is_null() || value.as_str().is_some_and(str::is_empty);
        let install = &spec["install"];
        let rows = [
            ("spec.displayName", is_empty(&spec["displayName"]), format!("set `display-name` in {TABLE}")),
            ("spec.install.strategy", is_empty(&install["strategy"]), "OLM knows `deployment`".to_owned()),
            (
                "spec.install.spec.deployments",
                install["spec"]["deployments"].as_array().is_none_or(Vec::is_empty),
                "without one nothing runs".to_owned(),
            ),
        ];
        for (field, _, what) in rows.into_iter().filter(|(_, is_missing, _)| *is_missing) {
            self.error(format!("{field} is missing: {what}"));
        }
    }

    fn versions(&mut self) {
        let (version, kubernetes) = (text(&self.csv["spec"]["version"]), text(&self.csv["spec"]["minKubeVersion"]));
        if !version.is_empty() && version.parse::<Version>().is_err() {
            self.error(format!(
                "spec.version {version:?} is no version such as 1.2.3; see `konverge bundle --version`"
            ));
        }
        if kubernetes.trim().is_empty() {
            self.warn(format!("spec.minKubeVersion is missing, so OLM installs the operator on any cluster: set `min-kube-version` in {TABLE}"));
        } else if kubernetes.parse::<Version>().is_err() {
            self.error(format!("spec.minKubeVersion {kubernetes:?} is no version such as 1.26.0"));
        }
    }

    fn install_modes(&mut self) {
        let modes = self.csv["spec"]["installModes"].as_array().cloned().unwrap_or_default();
        if modes.is_empty() {
            self.error("spec.installModes is missing: say for each of OwnNamespace, SingleNamespace, MultiNamespace and AllNamespaces whether it is supported");
            return;
        }
        let mut seen = BTreeSet::new();
        for kind in modes.iter().map(|mode| text(&mode["type"])) {
            if !INSTALL_MODES.contains(&kind.as_str()) {
                self.warn(format!(
                    "spec.installModes has {kind:?}, which OLM does not know; it knows {}",
                    INSTALL_MODES.join(", ")
                ));
            } else if !seen.insert(kind.clone()) {
                self.error(format!("spec.installModes has {kind} twice: remove one"));
            }
        }
        let supported: Vec<String> =
            modes.iter().filter(|mode| mode["supported"] == true).map(|mode| text(&mode["type"])).collect();
        if supported.is_empty() {
            self.error("spec.installModes supports none, so nobody can install the operator");
        }
        let webhooks = self.csv["spec"]["webhookdefinitions"].as_array().into_iter().flatten();
        let converts = webhooks
            .into_iter()
            .any(|webhook| webhook["conversionCRDs"].as_array().is_some_and(|crds| !crds.is_empty()));
        if converts && supported != ["AllNamespaces"] {
            self.error("spec.installModes has to support AllNamespaces alone, because the operator converts versions for the whole cluster");
        }
    }

    fn examples(&mut self) {
        let annotations = &self.csv["metadata"]["annotations"];
        let (alm, olm) = (annotations["alm-examples"].as_str(), annotations["olm.examples"].as_str());
        if alm.is_some() && olm.is_some() {
            self.warn("the annotations alm-examples and olm.examples are both there: remove olm.examples, which nobody reads beside the other");
        }
        let Some(examples) = alm.or(olm) else {
            self.warn("the annotation alm-examples is missing: write objects to config/samples, and run `konverge bundle` again");
            return;
        };
        let examples: Vec<Value> = match serde_json::from_str(if examples.is_empty() { "[]" } else { examples }) {
            Ok(examples) => examples,
            Err(error) => {
                self.error(format!("the annotation alm-examples is no JSON list of objects: {error}"));
                return;
            }
        };
        let shown: BTreeSet<KindVersion> = examples.iter().map(kind_version).collect();
        let provided: BTreeSet<KindVersion> = owned(self.csv).into_iter().collect();
        for one in shown.difference(&provided) {
            self.error(format!("alm-examples has a {}, which the operator does not provide: remove it, or add its CRD to spec.customresourcedefinitions.owned", spelled(one)));
        }
        for one in provided.difference(&shown) {
            self.warn(format!(
                "there is no example of {}: write one to config/samples, and run `konverge bundle` again",
                spelled(one)
            ));
        }
    }

    fn annotations(&mut self) {
        let names: Vec<String> = self.csv["metadata"]["annotations"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            let known = ANNOTATIONS.iter().find(|known| known.eq_ignore_ascii_case(&name));
            if let Some(known) = known.filter(|known| **known != name) {
                self.error(format!("the annotation {name} has to be spelt {known}"));
            }
            if name == "olm.properties" {
                self.warn(
                    "the annotation olm.properties is out of use: write the properties to metadata/properties.yaml",
                );
            }
        }
    }
}

/// The kinds that a ClusterServiceVersion says are its own.
pub(super) fn owned(csv: &Value) -> Vec<KindVersion> {
    let definitions = csv["spec"]["customresourcedefinitions"]["owned"].as_array().into_iter().flatten();
    let kinds = definitions.map(|owned| {
        let name = text(&owned["name"]);
        let group = name.split_once('.').map_or(name.clone(), |(_, group)| group.to_owned());
        (group, text(&owned["version"]), text(&owned["kind"]))
    });
    let services = csv["spec"]["apiservicedefinitions"]["owned"].as_array().into_iter().flatten();
    kinds.chain(services.map(|owned| (text(&owned["group"]), text(&owned["version"]), text(&owned["kind"])))).collect()
}

fn kind_version(object: &Value) -> KindVersion {
    let api_version = text(&object["apiVersion"]);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    (group.to_owned(), version.to_owned(), text(&object["kind"]))
}

/// `Shop (example.com/v1)`
pub(super) fn spelled((group, version, kind): &KindVersion) -> String {
    format!("{kind} ({group}/{version})")
}
