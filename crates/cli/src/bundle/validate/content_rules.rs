//! What the objects of a bundle have to do with each other, and what an API server says of them. In: a bundle. Out: findings.

use std::collections::BTreeSet;

use konverge_apiserver::CrdRegistry;
use konverge_core::{ErrorChain, Status};
use serde_json::Value;

use super::super::files::PACKAGE_KEY;
use super::csv_rules::{KindVersion, owned, spelled};
use super::{Finding, LoadedBundle};
use crate::description::text;
use crate::documents::Document;

/// OLM keeps a bundle in one ConfigMap.
const MOST_BYTES: usize = 1 << 20;

/// From this part of it on there is a warning.
const NEARLY: f64 = 0.85;

/// Kinds whose objects an API server of ours judges.
const JUDGED: [&str; 9] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "PodDisruptionBudget",
    "PriorityClass",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
];

/// What does not fit together.
pub(super) fn judge(bundle: &LoadedBundle) -> Vec<Finding> {
    let (csv, file) = bundle.csv_with_file();
    let mut findings = definitions(bundle, csv, file);
    findings.extend(service_accounts(bundle, csv));
    findings.extend(size(bundle.stored_bytes));
    findings.extend(release_name(bundle, csv, file));
    findings.extend(related_images(csv, file));
    findings
}

fn definitions(bundle: &LoadedBundle, csv: &Value, file: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut there: BTreeSet<KindVersion> = BTreeSet::new();
    for Document { source, object } in bundle.definitions() {
        let spec = &object["spec"];
        let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
        for version in spec["versions"].as_array().into_iter().flatten() {
            let one = (group.clone(), text(&version["name"]), kind.clone());
            if there.contains(&one) {
                findings.push(Finding::error(
                    source,
                    format!("{} is defined in another file, too: remove one", spelled(&one)),
                ));
            }
            there.insert(one);
        }
    }
    let owned: BTreeSet<KindVersion> = owned(csv).into_iter().collect();
    for one in owned.difference(&there) {
        let words = format!(
            "spec.customresourcedefinitions.owned has {}, whose CRD is not in the bundle: add it, or remove the entry",
            spelled(one)
        );
        findings.push(Finding::error(file, words));
    }
    let kinds: BTreeSet<(&str, &str)> = owned.iter().map(|(group, _, kind)| (group.as_str(), kind.as_str())).collect();
    for one in there.iter().filter(|(group, _, kind)| !kinds.contains(&(group.as_str(), kind.as_str()))) {
        let words = format!(
            "spec.customresourcedefinitions.owned does not have {}, whose CRD is in the bundle: add it",
            spelled(one)
        );
        findings.push(Finding::error(file, words));
    }
    findings
}

fn service_accounts(bundle: &LoadedBundle, csv: &Value) -> Vec<Finding> {
    let deployments = csv["spec"]["install"]["spec"]["deployments"].as_array().into_iter().flatten();
    let used: Vec<String> =
        deployments.map(|deployment| text(&deployment["spec"]["template"]["spec"]["serviceAccountName"])).collect();
    let is_used = |document: &&Document| {
        document.object["kind"] == "ServiceAccount" && used.contains(&text(&document.object["metadata"]["name"]))
    };
    let words = "OLM makes this ServiceAccount for the Deployment of the ClusterServiceVersion: remove the file, or rename one of both";
    bundle.objects.iter().filter(is_used).map(|document| Finding::error(&document.source, words)).collect()
}

fn size(bytes: usize) -> Option<Finding> {
    let words = format!(
        "the bundle takes {bytes} bytes compressed, and OLM stores at most {MOST_BYTES}: shorten descriptions, or take a smaller icon"
    );
    match bytes {
        _ if bytes > MOST_BYTES => Some(Finding::error("", words)),
        _ if bytes as f64 > MOST_BYTES as f64 * NEARLY => Some(Finding::warning("", words)),
        _ => None,
    }
}

/// A bundle with a release beside its version is named after both.
fn release_name(bundle: &LoadedBundle, csv: &Value, file: &str) -> Option<Finding> {
    let (version, release) = (text(&csv["spec"]["version"]), text(&csv["spec"]["release"]));
    let expect = format!("{}-v{version}-{release}", text(&bundle.annotations[PACKAGE_KEY]));
    let is_wrong = !release.is_empty() && csv["metadata"]["name"] != expect.as_str();
    is_wrong.then(|| Finding::error(file, format!("metadata.name has to be {expect}, because spec.release is set")))
}

fn related_images(csv: &Value, file: &str) -> Vec<Finding> {
    let images = csv["spec"]["relatedImages"].as_array().into_iter().flatten().enumerate();
    let bad = images.filter(|(_, image)| !is_image(&text(&image["image"])));
    bad.map(|(at, image)| {
        Finding::error(
            file,
            format!(
                "spec.relatedImages[{at}].image {:?} is no image such as ghcr.io/acme/shop@sha256:…",
                text(&image["image"])
            ),
        )
    })
    .collect()
}

/// Whether a text names an image, as registries have it.
fn is_image(text: &str) -> bool {
    let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
    let is_hex = |digest: &str| {
        digest.len() >= 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
    };
    let is_digest = digest.is_none_or(|digest| digest.split_once(':').is_some_and(|(_, hex)| is_hex(hex)));
    let (host, path) = match rest.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => ("", rest),
    };
    let (path, tag) = path.split_once(':').map_or((path, None), |(path, tag)| (path, Some(tag)));
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let is_path = path.split('/').all(|part| {
        let ends = [part.bytes().next(), part.bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric())) && part.bytes().all(plain)
    });
    let is_word =
        |text: &str, more: &[u8]| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte));
    let is_tag = tag.is_none_or(|tag| !tag.is_empty() && tag.len() <= 128 && is_word(tag, b"._-"));
    is_digest && is_path && is_tag && is_word(host, b".:-[]")
}

/// What an API server refuses, and which examples it would refuse.
pub(super) async fn judge_as_server(bundle: &LoadedBundle) -> Result<Vec<Finding>, String> {
    let registry = CrdRegistry::new().await.map_err(|error| ErrorChain(&error).to_string())?;
    let mut findings = Vec::new();
    for Document { source, object } in bundle.definitions() {
        if object["apiVersion"] != "apiextensions.k8s.io/v1" {
            let words = format!(
                "{} is served by no cluster that is supported: write the CRD as apiextensions.k8s.io/v1",
                text(&object["apiVersion"])
            );
            findings.push(Finding::error(source, words));
        } else if let Err(status) = registry.register(object).await {
            findings.push(Finding::error(source, refusal(&status)));
        }
    }
    let is_judged = |document: &&Document| JUDGED.iter().any(|kind| document.object["kind"] == *kind);
    for Document { source, object } in bundle.objects.iter().filter(is_judged) {
        if let Err(status) = registry.check(object).await {
            findings.push(Finding::error(source, refusal(&status)));
        }
    }
    let (csv, file) = bundle.csv_with_file();
    let examples = text(&csv["metadata"]["annotations"]["alm-examples"]);
    let provided = owned(csv);
    for example in serde_json::from_str::<Vec<Value>>(&examples).unwrap_or_default() {
        let is_provided = provided.iter().any(|(group, version, kind)| {
            example["apiVersion"] == format!("{group}/{version}") && example["kind"] == kind.as_str()
        });
        if let Err(status) = registry.check(&example).await
            && is_provided
        {
            let name = format!("{} {}", text(&example["kind"]), text(&example["metadata"]["name"]));
            let words =
                format!("the example {name} is refused by its own CRD: {}; mend it in config/samples", status.message);
            findings.push(Finding::warning(file, words));
        }
    }
    Ok(findings)
}

fn refusal(status: &Status) -> String {
    format!("an API server refuses it: {}", status.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        let digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (image, expect) in [
            ("shop", true),
            ("ghcr.io/acme/shop:1.2.3", true),
            ("localhost:5000/shop", true),
            (&format!("ghcr.io/acme/shop@sha256:{digest}"), true),
            ("", false),
            ("Shop", false),
            ("ghcr.io/acme/shop:", false),
            ("ghcr.io/acme/ shop", false),
            ("shop@sha256:0", false),
        ] {
            assert_eq!(is_image(image), expect, "{image}");
        }
    }

    #[test]
    fn bundles_have_to_fit() {
        for (bytes, expect) in
            [(1000, None), (900_000, Some(super::super::Level::Warning)), (1 << 21, Some(super::super::Level::Error))]
        {
            assert_eq!(size(bytes).map(|finding| finding.level), expect, "{bytes}");
        }
    }
}
