//! Manifests as files that `kubectl apply -k` and kustomize take, laid out as kubebuilder does. In: manifests. Out: files below `config`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::generated_files::{GeneratedFiles, YAML_HEADER};
use crate::manifests::{Manifest, Part};
use crate::yaml::{Reader, document};

/// The folder of all manifests.
pub(crate) const CONFIG: &str = "config";

/// The files of some parts. The folder `default`, which brings all together, is among them if everything is asked for.
pub(crate) fn files(manifests: &[Manifest], parts: &[Part]) -> GeneratedFiles {
    let mut files = GeneratedFiles::default();
    for part in parts {
        let folder = format!("{CONFIG}/{}", part.directory());
        files.own(&folder);
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for manifest in manifests.iter().filter(|manifest| manifest.part == *part) {
            let text = texts.entry(&manifest.file).or_default();
            if !text.is_empty() {
                *text += "---\n";
            }
            *text += &document(&manifest.object, Reader::Kubernetes);
        }
        if texts.is_empty() {
            continue;
        }
        let resources: Vec<&str> = texts.keys().copied().collect();
        files.add(format!("{folder}/kustomization.yaml"), kustomization(&resources, part.is_optional()));
        if *part == Part::Grafana {
            // Beside the ConfigMap there is the dashboard itself, for people who import it by hand.
            let data =
                manifests.iter().filter(|manifest| manifest.part == *part).map(|manifest| &manifest.object["data"]);
            for (name, text) in data.flat_map(|data| data.as_object().into_iter().flatten()) {
                files.add(format!("{folder}/{name}"), text.as_str().unwrap_or_default().to_owned());
            }
        }
        for (file, text) in texts {
            files.add(format!("{folder}/{file}"), format!("{YAML_HEADER}{text}"));
        }
    }
    if parts == Part::ALL {
        let folder = format!("{CONFIG}/default");
        files.own(&folder);
        let is_there = |part: &Part| manifests.iter().any(|manifest| manifest.part == *part);
        let base = |part: Part| format!("../{}", part.directory());
        let all = Part::ALL.into_iter().filter(|part| !part.is_optional() && is_there(part));
        let bases: Vec<String> = all.map(base).collect();
        let bases: Vec<&str> = bases.iter().map(String::as_str).collect();
        files.add(format!("{folder}/kustomization.yaml"), kustomization(&bases, false));
    }
    files
}

/// A component is what an overlay adds by `components:`, and nobody has otherwise.
fn kustomization(resources: &[&str], is_component: bool) -> String {
    let (version, kind) = match is_component {
        true => ("v1alpha1", "Component"),
        false => ("v1beta1", "Kustomization"),
    };
    let value: Value =
        json!({"apiVersion": format!("kustomize.config.k8s.io/{version}"), "kind": kind, "resources": resources});
    format!("{YAML_HEADER}{}", document(&value, Reader::Kubernetes))
}
