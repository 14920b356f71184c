//! Validates custom resource definitions. In: the definition, and the one before it. Out: field errors with the paths and words
//! of kube-apiserver, and warnings about formats that nobody knows.

use std::collections::HashSet;

use serde_json::Value;

use konverge_cel::check_rules;
use konverge_core::{FieldError, FieldPath, NameRule, check_name};
use konverge_schema::{Budget, OverBudget, check_schema, unknown_formats};

use crate::json_path::{JsonPath, check_simple};
use crate::meta;

/// Groups of Kubernetes itself need an annotation with their approval.
const APPROVED: &str = "api-approved.kubernetes.io";

/// The most fields a version can be selected by.
const SELECTABLE_MAX: usize = 8;

/// The errors of a definition.
pub(super) fn definition(
    old: Option<&Value>,
    new: &Value,
    warnings: &mut Vec<String>,
    budget: &Budget,
) -> Result<Vec<FieldError>, OverBudget> {
    let mut errors = Vec::new();
    let path = FieldPath::new("spec");
    let spec = &new["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    let name = meta::text(new, "name");
    if name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(FieldPath::new("metadata").child("name"), name.into(), why));
    }
    if group.is_empty() {
        errors.push(FieldError::required(path.child("group"), ""));
    } else {
        named(&mut errors, path.child("group"), group, NameRule::Subdomain);
        if group.split('.').count() < 2 {
            let why = "should be a domain with at least one dot";
            errors.push(FieldError::invalid(path.child("group"), group.into(), why));
        }
    }
    if (group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io"))
        && new["metadata"]["annotations"][APPROVED].as_str().is_none_or(str::is_empty)
    {
        let annotations = FieldPath::new("metadata").child("annotations").key(APPROVED);
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\", \
                   see https://github.com/kubernetes/enhancements/pull/1111";
        errors.push(FieldError::required(annotations, why));
    }
    if !matches!(spec["scope"].as_str(), Some("Namespaced" | "Cluster")) {
        let value = spec["scope"].clone();
        errors.push(FieldError::not_supported(path.child("scope"), value, ["Cluster", "Namespaced"]));
    }
    names(&mut errors, &path.child("names"), &spec["names"]);
    if spec["preserveUnknownFields"] == true {
        let why = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid(path.child("preserveUnknownFields"), true.into(), why));
    }
    conversion(&mut errors, &path.child("conversion"), &spec["conversion"]);
    versions(&mut errors, &path, new, warnings, budget)?;
    if let Some(old) = old {
        immutable(&mut errors, old, new);
    }
    stored_versions(&mut errors, new);
    Ok(errors)
}

fn names(errors: &mut Vec<FieldError>, path: &FieldPath, names: &Value) {
    for field in ["plural", "singular"] {
        match names[field].as_str().unwrap_or_default() {
            "" if field == "plural" => errors.push(FieldError::required(path.child(field), "")),
            "" => {}
            name => named(errors, path.child(field), name, NameRule::Label1035),
        }
    }
    for field in ["kind", "listKind"] {
        match names[field].as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(path.child(field), "")),
            name => {
                let lower = name.to_lowercase();
                let problems = check_name(&lower, NameRule::Label1035, false);
                let wrong = |why| {
                    FieldError::invalid(
                        path.child(field),
                        name.into(),
                        format!("may have mixed case, but should otherwise match: {why}"),
                    )
                };
                errors.extend(problems.into_iter().map(wrong));
            }
        }
    }
    if names["kind"].is_string() && names["kind"] == names["listKind"] {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(path.child("listKind"), names["listKind"].clone(), why));
    }
    for field in ["shortNames", "categories"] {
        for (at, name) in names[field].as_array().into_iter().flatten().filter_map(Value::as_str).enumerate() {
            named(errors, path.child(field).index(at), name, NameRule::Label1035);
        }
    }
}

fn conversion(errors: &mut Vec<FieldError>, path: &FieldPath, conversion: &Value) {
    match conversion["strategy"].as_str() {
        Some("None") if conversion["webhook"].is_object() => {
            let why = "should not be set when strategy is not set to Webhook";
            errors.push(FieldError::forbidden(path.child("webhook"), why));
        }
        Some("None") | None => {}
        Some(other) => {
            // Refused, because conversion webhooks are not called yet.
            errors.push(FieldError::not_supported(path.child("strategy"), other.into(), ["None"]));
        }
    }
}

fn versions(
    errors: &mut Vec<FieldError>,
    spec: &FieldPath,
    definition: &Value,
    warnings: &mut Vec<String>,
    budget: &Budget,
) -> Result<(), OverBudget> {
    let versions = definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let path = spec.child("versions");
    // What is the same in all versions is validated once, with a path at the top, as kube-apiserver does.
    let alike = |field: &str| versions.windows(2).all(|pair| pair[0][field] == pair[1][field]);
    let shared = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"].map(alike);
    let [schema_alike, subresources_alike, columns_alike, selectable_alike] = shared;
    let mut seen = HashSet::new();
    let mut unique = true;
    for (at, version) in versions.iter().enumerate() {
        let path = path.index(at);
        let name = version["name"].as_str().unwrap_or_default();
        unique &= seen.insert(name);
        named(errors, path.child("name"), name, NameRule::Label1035);
        let place = |alike: bool, field: &str| match alike {
            true if at > 0 => None,
            true if field == "schema" => Some(spec.child("validation")),
            true => Some(spec.child(field)),
            false => Some(path.child(field)),
        };
        let own_path = path.child("schema").child("openAPIV3Schema");
        match (&version["schema"]["openAPIV3Schema"], place(schema_alike, "schema")) {
            (Value::Null, _) => errors.push(FieldError::required(own_path, "schemas are required")),
            (schema, Some(path)) => {
                let status = version["subresources"]["status"].is_object();
                let path = path.child("openAPIV3Schema");
                let wrong = check_schema(schema, status, &path, budget)?;
                // Rules are judged by the types of the schema, so it has to be right.
                errors.extend(if wrong.is_empty() { check_rules(schema, &path, budget)? } else { wrong });
                let formats = unknown_formats(schema, &own_path).into_iter();
                warnings.extend(formats.map(|(path, format)| format!("unrecognized format {format:?} at {path}")));
            }
            (_, None) => {}
        }
        if let Some(path) = place(columns_alike, "additionalPrinterColumns") {
            columns(errors, &path, version);
        }
        if let Some(path) = place(subresources_alike, "subresources") {
            scale(errors, &path.child("scale"), &version["subresources"]["scale"]);
        }
        if let Some(path) = place(selectable_alike, "selectableFields") {
            selectable(errors, &path, version);
        }
    }
    let value = || definition["spec"]["versions"].clone();
    if !unique {
        errors.push(FieldError::invalid(path.clone(), value(), "must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(path, value(), why));
    }
    Ok(())
}

fn columns(errors: &mut Vec<FieldError>, path: &FieldPath, version: &Value) {
    for (at, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
        let path = path.index(at);
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        for field in ["name", "type", "jsonPath"] {
            if text(field).is_empty() {
                errors.push(FieldError::required(path.child(field), ""));
            }
        }
        let types = ["integer", "number", "string", "boolean", "date"];
        if !text("type").is_empty() && !types.contains(&text("type")) {
            let why = "must be one of boolean,date,integer,number,string";
            errors.push(FieldError::invalid(path.child("type"), text("type").into(), why));
        }
        if !text("jsonPath").is_empty() {
            json_path(errors, path.child("jsonPath"), text("jsonPath"));
        }
    }
}

fn scale(errors: &mut Vec<FieldError>, path: &FieldPath, scale: &Value) {
    if !scale.is_object() {
        return;
    }
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        match scale[field].as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(path.child(field), "")),
            text if !text.starts_with(root) => {
                let why = format!("should be a json path under {}", root.trim_end_matches('.'));
                errors.push(FieldError::invalid(path.child(field), text.into(), why));
            }
            text if text.contains('[') => {
                let why = "only a simple path without array indices is supported";
                errors.push(FieldError::invalid(path.child(field), text.into(), why));
            }
            _ => {}
        }
    }
    if let Some(text) = scale["labelSelectorPath"].as_str()
        && !text.starts_with(".spec.")
        && !text.starts_with(".status.")
    {
        let why = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(path.child("labelSelectorPath"), text.into(), why));
    }
}

fn selectable(errors: &mut Vec<FieldError>, path: &FieldPath, version: &Value) {
    let fields = version["selectableFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    if fields.len() > SELECTABLE_MAX {
        errors.push(FieldError::too_many(path.clone(), fields.len(), SELECTABLE_MAX));
    }
    let mut seen = HashSet::new();
    for (at, field) in fields.iter().enumerate() {
        let path = path.index(at).child("jsonPath");
        let text = field["jsonPath"].as_str().unwrap_or_default();
        if !seen.insert(text) {
            errors.push(FieldError::duplicate(path.clone(), text.into()));
        }
        if text.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        if !text.starts_with('.') || text.contains(['[', '*']) {
            errors.push(FieldError::invalid(path, text.into(), "must be a simple path such as .spec.color"));
            continue;
        }
        if text.starts_with(".metadata.") || text == ".metadata" {
            errors.push(FieldError::invalid(path, text.into(), "must not point to fields in metadata"));
            continue;
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let target = text.split('.').skip(1).try_fold(schema, |schema, name| schema["properties"].get(name));
        let kind = target.and_then(|target| target["type"].as_str());
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            let why = "must point to a field of type string, boolean or integer";
            errors.push(FieldError::invalid(path, text.into(), why));
        }
    }
}

fn immutable(errors: &mut Vec<FieldError>, old: &Value, new: &Value) {
    let established = super::condition(old, "Established") == Some("True");
    let spec = FieldPath::new("spec");
    let names = spec.child("names");
    let fixed = [
        (true, spec.child("group"), &old["spec"]["group"], &new["spec"]["group"]),
        (true, names.child("plural"), &old["spec"]["names"]["plural"], &new["spec"]["names"]["plural"]),
        (established, names.child("kind"), &old["spec"]["names"]["kind"], &new["spec"]["names"]["kind"]),
        (established, spec.child("scope"), &old["spec"]["scope"], &new["spec"]["scope"]),
    ];
    for (applies, path, before, after) in fixed {
        if applies && before != after {
            errors.push(FieldError::invalid(path, after.clone(), "field is immutable"));
        }
    }
}

/// A version in which objects may still be stored cannot be removed.
fn stored_versions(errors: &mut Vec<FieldError>, new: &Value) {
    let versions = new["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let path = FieldPath::new("status").child("storedVersions");
    if new["status"]["storedVersions"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::invalid(path.clone(), Value::Null, "must have at least one stored version"));
    }
    for (at, stored) in new["status"]["storedVersions"].as_array().into_iter().flatten().enumerate() {
        if !versions.iter().any(|version| version["name"] == *stored) {
            let name = stored.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(path.index(at), stored.clone(), why));
        }
    }
}

fn named(errors: &mut Vec<FieldError>, path: FieldPath, name: &str, rule: NameRule) {
    let problems = check_name(name, rule, false);
    errors.extend(problems.into_iter().map(|why| FieldError::invalid(path.clone(), name.into(), why)));
}

fn json_path(errors: &mut Vec<FieldError>, path: FieldPath, text: &str) {
    if let Err(why) = check_simple(text) {
        errors.push(FieldError::invalid(path.clone(), text.into(), why));
    } else if let Err(error) = JsonPath::compile(text) {
        errors.push(FieldError::invalid(path, text.into(), format!("is an invalid JSONPath: {error}")));
    }
}
