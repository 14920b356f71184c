//! The tests of operator-sdk's scorecard, under its names. They compare samples, CRDs and the bundle.

use std::collections::BTreeSet;

use serde_json::Value;

use super::life_with_samples;
use crate::manifests::called;
use crate::scorecard::check::{Judged, Verdict, seen};
use crate::scorecard::observations::Observations;

/// What to do about a bundle that lacks something.
const BUNDLE: &str =
    "`konverge bundle` writes the bundle; [package.metadata.konverge.bundle] in Cargo.toml has what it cannot know";

pub(in crate::scorecard) fn basic_check_spec(all: &Observations) -> Judged {
    if all.samples.is_empty() {
        return Err(Verdict::not_measured("there are no samples", "write an object of each kind to config/samples"));
    }
    let without = |(_, sample): &&(String, Value)| sample["spec"].is_null();
    let found: Vec<String> = all
        .samples
        .iter()
        .filter(without)
        .map(|(source, sample)| format!("{source}: {} has no spec", called(sample)))
        .collect();
    Ok(Verdict::of(
        found,
        format!("all {} samples have a spec", all.samples.len()),
        "write a spec into the sample, so that people see what there is to set",
    ))
}

pub(in crate::scorecard) fn bundle_validation(all: &Observations) -> Judged {
    let bundle = seen(&all.bundle)?;
    Ok(Verdict::of(bundle.errors.clone(), "the bundle is valid", BUNDLE))
}

pub(in crate::scorecard) fn crds_have_validation(all: &Observations) -> Judged {
    let life = life_with_samples(all)?;
    let mut found = BTreeSet::new();
    for sample in &life.samples {
        let Some(schema) = schema(&all.definitions, sample) else {
            // Samples of kinds of others are none of the operator's business.
            continue;
        };
        for part in ["spec", "status"] {
            for field in fields(sample, part) {
                let property = &schema["properties"][part];
                if property["properties"][&field].is_null() && property["x-kubernetes-preserve-unknown-fields"] != true
                {
                    found.insert(format!("{}: {part}.{field} is not in the schema", kind(sample)));
                }
            }
        }
    }
    Ok(Verdict::of(
        found.into_iter().collect(),
        "every field of the samples is validated",
        "give the field a type in the struct of the kind, instead of keeping unknown fields",
    ))
}

pub(in crate::scorecard) fn crds_have_resources(all: &Observations) -> Judged {
    let bundle = seen(&all.bundle)?;
    let owned = owned(&bundle.csv);
    if owned.is_empty() {
        return Err(Verdict::not_measured("the bundle owns no CRDs", ""));
    }
    let without = |definition: &&&Value| definition["resources"].as_array().is_none_or(Vec::is_empty);
    let found: Vec<String> =
        owned.iter().filter(without).map(|definition| format!("{} lists no resources", kind(definition))).collect();
    Ok(Verdict::of(
        found,
        format!("{} owned CRDs list what is made for them", owned.len()),
        "declare what the operator makes with `.owns::<Kind>()`; the bundle lists it",
    ))
}

pub(in crate::scorecard) fn spec_descriptors(all: &Observations) -> Judged {
    let bundle = seen(&all.bundle)?;
    if all.samples.is_empty() {
        return Err(Verdict::not_measured("there are no samples", "write an object of each kind to config/samples"));
    }
    Ok(described(&bundle.csv, all.samples.iter().map(|(_, sample)| sample), "spec", "specDescriptors"))
}

pub(in crate::scorecard) fn status_descriptors(all: &Observations) -> Judged {
    let bundle = seen(&all.bundle)?;
    Ok(described(&bundle.csv, life_with_samples(all)?.samples.iter(), "status", "statusDescriptors"))
}

/// Whether every field of a part of the samples has a descriptor.
fn described<'a>(csv: &Value, samples: impl Iterator<Item = &'a Value>, part: &str, descriptors: &str) -> Verdict {
    let owned = owned(csv);
    let mut found = BTreeSet::new();
    for sample in samples {
        let version = sample["apiVersion"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let Some(definition) = owned.iter().find(|one| one["kind"] == sample["kind"] && one["version"] == version)
        else {
            continue;
        };
        for field in fields(sample, part) {
            let is_it = |descriptor: &Value| descriptor["path"] == field.as_str();
            if !definition[descriptors].as_array().is_some_and(|all| all.iter().any(is_it)) {
                found.insert(format!("{} {version}: {part}.{field} has no descriptor", kind(sample)));
            }
        }
    }
    Verdict::of(found.into_iter().collect(), format!("every field of {part} has a descriptor"), BUNDLE)
}

fn owned(csv: &Value) -> Vec<&Value> {
    csv["spec"]["customresourcedefinitions"]["owned"].as_array().into_iter().flatten().collect()
}

fn fields(object: &Value, part: &str) -> Vec<String> {
    object[part].as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect()
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

/// The schema of a sample's version.
fn schema<'a>(definitions: &'a [Value], sample: &Value) -> Option<&'a Value> {
    let (group, version) = sample["apiVersion"].as_str()?.split_once('/')?;
    let is_it = |definition: &&Value| {
        definition["spec"]["group"] == group && definition["spec"]["names"]["kind"] == sample["kind"]
    };
    let versions = definitions.iter().find(is_it)?["spec"]["versions"].as_array()?;
    versions.iter().find(|one| one["name"] == version).map(|one| &one["schema"]["openAPIV3Schema"])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{good_life, judges, lived};
    use super::*;
    use crate::scorecard::check::Outcome::{Failed, NotMeasured, Passed};
    use crate::scorecard::observations::SeenBundle;
    use serde_json::json;

    fn seen_bundle(owned: Value, errors: &[&str]) -> Observations {
        let csv = json!({"spec": {"customresourcedefinitions": {"owned": owned}}});
        let errors = errors.iter().map(|error| (*error).to_owned()).collect();
        let sample = json!({"apiVersion": "example.com/v1", "kind": "Shop", "spec": {"replicas": 1}});
        Observations {
            bundle: Some(Ok(SeenBundle { csv, errors })),
            samples: vec![("a.yaml".into(), sample)],
            ..lived(good_life())
        }
    }

    #[test]
    fn samples_have_specs() {
        judges("basic-check-spec", &lived(good_life()), Passed, "all 1");
        judges("basic-check-spec", &Observations::default(), NotMeasured, "config/samples");
        let without =
            Observations { samples: vec![("a.yaml".into(), json!({"kind": "Shop"}))], ..Observations::default() };
        judges("basic-check-spec", &without, Failed, "a.yaml: Shop");
    }

    #[test]
    fn bundles() {
        let shop = |resources: Value, spec: &str, status: &[&str]| {
            let status: Vec<Value> = status.iter().map(|path| json!({"path": path})).collect();
            json!([{"kind": "Shop", "version": "v1", "resources": resources, "specDescriptors": [{"path": spec}], "statusDescriptors": status}])
        };
        let good = shop(json!([{"kind": "Deployment"}]), "replicas", &["conditions", "observedGeneration"]);
        for name in
            ["olm-bundle-validation", "olm-crds-have-resources", "olm-spec-descriptors", "olm-status-descriptors"]
        {
            judges(name, &seen_bundle(good.clone(), &[]), Passed, "");
            judges(
                name,
                &Observations { bundle: Some(Err("no icon".into())), ..lived(good_life()) },
                NotMeasured,
                "no icon",
            );
        }
        judges("olm-bundle-validation", &seen_bundle(good.clone(), &["no name"]), Failed, "no name");
        judges("olm-crds-have-resources", &seen_bundle(shop(json!([]), "replicas", &[]), &[]), Failed, "Shop lists no");
        judges(
            "olm-spec-descriptors",
            &seen_bundle(shop(json!([]), "size", &[]), &[]),
            Failed,
            "Shop v1: spec.replicas",
        );
        judges(
            "olm-status-descriptors",
            &seen_bundle(shop(json!([]), "size", &["conditions"]), &[]),
            Failed,
            "status.observedGeneration",
        );
    }

    #[test]
    fn fields_are_in_schemas() {
        let with = |spec: Value| {
            let schema =
                json!({"properties": {"spec": spec, "status": {"x-kubernetes-preserve-unknown-fields": true}}});
            let definition = json!({"spec": {"group": "example.com", "names": {"kind": "Shop"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
            Observations { definitions: vec![definition], ..lived(good_life()) }
        };
        judges("olm-crds-have-validation", &with(json!({"properties": {"replicas": {"type": "integer"}}})), Passed, "");
        judges("olm-crds-have-validation", &with(json!({"properties": {}})), Failed, "Shop: spec.replicas");
    }
}
