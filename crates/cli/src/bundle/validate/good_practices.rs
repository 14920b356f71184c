//! `good-practices`: what OLM allows and operators regret. In: a bundle. Out: findings, nearly all of them warnings.

use semver::Version;
use serde_json::Value;

use super::{Finding, LoadedBundle};
use crate::description::text;

/// How names of channels begin by convention.
const CHANNELS: [&str; 3] = ["candidate", "fast", "stable"];

pub(super) fn judge(bundle: &LoadedBundle) -> Vec<Finding> {
    let (csv, file) = bundle.csv_with_file();
    let strategy = &csv["spec"]["install"]["spec"];
    let mut findings = Vec::new();
    match strategy["deployments"].as_array().map(Vec::as_slice) {
        None => {
            findings.push(Finding::error(file, "spec.install.spec.deployments is missing: without one nothing runs"))
        }
        Some(deployments) => {
            findings.extend(requests(deployments).into_iter().map(|words| Finding::warning(file, words)))
        }
    }
    let mut warnings = descriptions(csv);
    let odd: Vec<String> = bundle
        .channels()
        .into_iter()
        .filter(|channel| !CHANNELS.iter().any(|known| channel.starts_with(known)))
        .collect();
    if !odd.is_empty() {
        warnings.push(format!("the channels {} are not called by convention: names begin with candidate, fast or stable; see `konverge bundle --channels`", odd.join(", ")));
    }
    if makes_definitions(strategy) {
        warnings.push("the operator may create or patch CRDs: OLM installs and upgrades them, so take the right away from its code".to_owned());
    }
    warnings.extend(name(&text(&csv["metadata"]["name"])));
    findings.extend(warnings.into_iter().map(|words| Finding::warning(file, words)));
    findings
}

/// Containers that ask for nothing.
fn requests(deployments: &[Value]) -> Vec<String> {
    let containers = deployments
        .iter()
        .flat_map(|deployment| deployment["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten());
    let lacks =
        |container: &&Value| container["resources"]["requests"].as_object().is_none_or(serde_json::Map::is_empty);
    let words = |container: &Value| {
        format!(
            "the container {} requests no CPU and memory, so quotas of a cluster may refuse its Pods",
            text(&container["name"])
        )
    };
    containers.filter(lacks).map(words).collect()
}

fn descriptions(csv: &Value) -> Vec<String> {
    let of = |relation: &'static str| {
        let kinds = csv["spec"]["customresourcedefinitions"][relation].as_array().into_iter().flatten();
        kinds.filter(|kind| text(&kind["description"]).is_empty()).map(move |kind| {
            format!("the {relation} CRD {} has no description: write a comment above its type", text(&kind["name"]))
        })
    };
    of("owned").chain(of("required")).collect()
}

fn makes_definitions(strategy: &Value) -> bool {
    let has = |rule: &Value, field: &str, words: &[&str]| {
        rule[field].as_array().into_iter().flatten().any(|item| words.iter().any(|word| item == word))
    };
    let permissions = ["permissions", "clusterPermissions"]
        .into_iter()
        .flat_map(|field| strategy[field].as_array().into_iter().flatten());
    permissions.flat_map(|permission| permission["rules"].as_array().into_iter().flatten()).any(|rule| {
        has(rule, "apiGroups", &["apiextensions.k8s.io"])
            && has(rule, "resources", &["customresourcedefinitions", "*", "[*]"])
            && has(rule, "verbs", &["create", "patch", "*", "[*]"])
    })
}

/// `shop.v1.2.3`
fn name(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split(".v").collect();
    let is_good =
        matches!(parts.as_slice(), [package, version] if !package.is_empty() && version.parse::<Version>().is_ok());
    (!is_good)
        .then(|| format!("metadata.name {name:?} is not called by convention: PACKAGE.vVERSION, such as shop.v1.2.3"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_of_versions() {
        for (text, expect) in
            [("shop.v1.2.3", true), ("shop.v1.2.3-rc.1", true), ("shop-1.2.3", false), ("shop.v1.2", false)]
        {
            assert_eq!(name(text).is_none(), expect, "{text}");
        }
    }

    #[test]
    fn rights_about_definitions() {
        for (verbs, expect) in [(vec!["get"], false), (vec!["get", "patch"], true), (vec!["*"], true)] {
            let rule = json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": verbs});
            assert_eq!(makes_definitions(&json!({"clusterPermissions": [{"rules": [rule]}]})), expect, "{verbs:?}");
        }
    }
}
