//! Validates custom resource definitions. In: the definition, and the one before it. Out: field errors with the paths and words
//! of kube-apiserver, and warnings about formats that nobody knows.

use std::collections::{BTreeSet, HashSet};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use konverge_cel::{check_defaults, check_rules};
use konverge_core::{FieldError, FieldPath, NameRule, check_name};
use konverge_schema::{Budget, OverBudget, check_schema, unknown_formats};

use crate::json_path::check_simple;
use crate::meta;
use crate::validation::{check_client_config, check_review_versions};
use crate::webhook_client::check_ca_bundle;

use super::condition;

/// Groups of Kubernetes itself need an annotation with their approval.
const APPROVED: &str = "api-approved.kubernetes.io";

/// The longest warning of a deprecated version, in bytes.
const MAX_WARNING: usize = 256;

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
    let problems = check_name(group, NameRule::Subdomain, false);
    if group.is_empty() {
        errors.push(FieldError::required(path.child("group"), ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid(path.child("group"), group.into(), problems.join(",")));
    } else if !group.contains('.') {
        let why = "should be a domain with at least one dot";
        errors.push(FieldError::invalid(path.child("group"), group.into(), why));
    }
    match spec["scope"].as_str().unwrap_or_default() {
        "Namespaced" | "Cluster" => {}
        "" => errors.push(FieldError::required(path.child("scope"), "")),
        other => {
            errors.push(FieldError::not_supported(path.child("scope"), other.into(), ["Cluster", "Namespaced"]));
        }
    }
    names(&mut errors, &path.child("names"), &spec["names"]);
    conversion(&mut errors, &path.child("conversion"), old, &spec["conversion"]);
    versions(&mut errors, &path, new, budget)?;
    if let Some(old) = old {
        immutable(&mut errors, old, new);
    }
    stored_versions(&mut errors, new);
    approval(&mut errors, group, old, new);
    if spec["preserveUnknownFields"] == true && old.is_none_or(|old| old["spec"]["preserveUnknownFields"] != true) {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(path.child("preserveUnknownFields"), true.into(), why));
    }
    let known = old.map(formats).unwrap_or_default();
    for format in formats(new).iter().filter(|format| !known.contains(*format)) {
        warnings.push(format!("unrecognized format {format:?}"));
    }
    Ok(errors)
}

/// The formats in the schemas of a definition that nobody checks.
fn formats(definition: &Value) -> BTreeSet<String> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions.flat_map(|version| unknown_formats(&version["schema"]["openAPIV3Schema"])).collect()
}

/// Groups of Kubernetes itself need an annotation that says who approved the API, or that nobody did.
fn approval(errors: &mut Vec<FieldError>, group: &str, old: Option<&Value>, new: &Value) {
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|before| before.is_empty() || before.ends_with('.')));
    let state = Approval::of(new);
    // Who changes something else does not have to correct it.
    if !protected || old.is_some_and(|old| Approval::of(old) == state) {
        return;
    }
    let path = FieldPath::new("metadata").child("annotations").key(APPROVED);
    let why = |what: &str| {
        format!(
            "protected groups must have approval annotation \"{APPROVED}\"{what}, \
             see https://github.com/kubernetes/enhancements/pull/1111"
        )
    };
    match state {
        Approval::Given | Approval::Bypassed => {}
        Approval::Missing => errors.push(FieldError::required(path, why(""))),
        Approval::Invalid => {
            let value = new["metadata"]["annotations"][APPROVED].clone();
            let either = " with either a URL or a reason starting with \"unapproved\"";
            errors.push(FieldError::invalid(path, value, why(either)));
        }
    }
}

/// What the annotation about the approval says.
#[derive(PartialEq, Eq)]
enum Approval {
    Given,
    Bypassed,
    Missing,
    Invalid,
}

impl Approval {
    fn of(definition: &Value) -> Self {
        let text = definition["metadata"]["annotations"][APPROVED].as_str().unwrap_or_default();
        let is_url = || text.parse::<http::Uri>().is_ok_and(|url| url.scheme().is_some() && url.host().is_some());
        match text {
            "" => Self::Missing,
            text if text.starts_with("unapproved") => Self::Bypassed,
            _ if is_url() => Self::Given,
            _ => Self::Invalid,
        }
    }
}

fn names(errors: &mut Vec<FieldError>, path: &FieldPath, names: &Value) {
    for field in ["plural", "singular"] {
        match names[field].as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(path.child(field), "")),
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

/// The errors have the paths of the internal type, as in kube-apiserver.
fn conversion(errors: &mut Vec<FieldError>, path: &FieldPath, old: Option<&Value>, conversion: &Value) {
    let (webhook, client) = (&conversion["webhook"], path.child("webhookClientConfig"));
    let versions = path.child("conversionReviewVersions");
    match conversion["strategy"].as_str() {
        None => return,
        Some("") => errors.push(FieldError::required(path.child("strategy"), "")),
        Some("None" | "Webhook") => {}
        Some(other) => {
            errors.push(FieldError::not_supported(path.child("strategy"), other.into(), ["None", "Webhook"]))
        }
    }
    if conversion["strategy"] != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if webhook["clientConfig"].is_object() {
            errors.push(FieldError::forbidden(client, why));
        }
        if webhook["conversionReviewVersions"].as_array().is_some_and(|versions| !versions.is_empty()) {
            errors.push(FieldError::forbidden(versions, why));
        }
        return;
    }
    let config = &webhook["clientConfig"];
    if config.is_object() {
        errors.extend(check_client_config(&client, config));
        // Whoever creates a definition may have no certificate yet, and one that is wrong may stay wrong.
        let established = old.is_some_and(|old| condition(old, "Established") == Some("True"));
        let before = old.and_then(|old| bundle(&old["spec"]["conversion"]["webhook"]["clientConfig"]));
        if let Some(Err(why)) = bundle(config)
            && established
            && !matches!(before, Some(Err(_)))
        {
            errors.push(FieldError::invalid(client.child("caBundle"), config["caBundle"].clone(), why));
        }
    } else {
        errors.push(FieldError::required(client, "required when strategy is set to Webhook"));
    }
    errors.extend(check_review_versions(&versions, &webhook["conversionReviewVersions"], ""));
}

/// Whether the CAs of a `clientConfig` can be read, if it has some.
fn bundle(config: &Value) -> Option<Result<(), String>> {
    let bytes = BASE64_STANDARD.decode(config["caBundle"].as_str()?).unwrap_or_default();
    let blank = bytes.iter().all(u8::is_ascii_whitespace);
    (!blank).then(|| check_ca_bundle(&bytes))
}

fn versions(
    errors: &mut Vec<FieldError>,
    spec: &FieldPath,
    definition: &Value,
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
        deprecation(errors, &path.child("deprecationWarning"), version);
        let place = |alike: bool, field: &str| match alike {
            true if at > 0 => None,
            true if field == "schema" => Some(spec.child("validation")),
            true => Some(spec.child(field)),
            false => Some(path.child(field)),
        };
        let own_path = path.child("schema").child("openAPIV3Schema");
        match (&version["schema"]["openAPIV3Schema"], place(schema_alike, "schema")) {
            (Value::Null, _) => errors.push(FieldError::required(own_path, "")),
            (schema, Some(path)) => {
                let status = version["subresources"]["status"].is_object();
                let path = path.child("openAPIV3Schema");
                let wrong = check_schema(schema, status, &path, budget)?;
                // Rules are judged by the types of the schema, and defaults by the rules, so that these have to be right.
                let wrong = if wrong.is_empty() { check_rules(schema, &path, budget)? } else { wrong };
                errors.extend(if wrong.is_empty() { check_defaults(schema, &path, budget)? } else { wrong });
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

/// The warning that clients of a deprecated version get. It travels in a header, so it is short and printable.
fn deprecation(errors: &mut Vec<FieldError>, path: &FieldPath, version: &Value) {
    let Some(warning) = version["deprecationWarning"].as_str() else { return };
    let mut wrong = |why: String| errors.push(FieldError::invalid(path.clone(), warning.into(), why));
    if version["deprecated"] != true {
        return wrong("can only be set for deprecated versions".to_owned());
    }
    if warning.len() > MAX_WARNING {
        wrong(format!("must be <= {MAX_WARNING} characters long"));
    }
    if warning.is_empty() {
        wrong("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, letter)| !is_printable(*letter)) {
        wrong(format!("must only contain printable UTF-8 characters; non-printable character found at index {at}"));
    }
}

/// What Go calls printable is what Rust's debug form does not escape, besides quotes and backslashes.
fn is_printable(letter: char) -> bool {
    // After another letter, where marks that combine with it are not escaped.
    matches!(letter, '"' | '\'' | '\\') || format!("a{letter}").escape_debug().count() == 2
}

fn columns(errors: &mut Vec<FieldError>, path: &FieldPath, version: &Value) {
    for (at, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
        let path = path.index(at);
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        if text("name").is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        }
        let types = ["integer", "number", "string", "boolean", "date"];
        let one_of = "must be one of boolean,date,integer,number,string";
        if text("type").is_empty() {
            errors.push(FieldError::required(path.child("type"), one_of));
        } else if !types.contains(&text("type")) {
            errors.push(FieldError::invalid(path.child("type"), text("type").into(), one_of));
        }
        let formats = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
        if !text("format").is_empty() && !formats.contains(&text("format")) {
            let why = format!("must be one of {}", formats.join(","));
            errors.push(FieldError::invalid(path.child("format"), text("format").into(), why));
        }
        // The name of the Go field. What does not parse ends the columns when a table is shown.
        let (path, text) = (path.child("JSONPath"), text("jsonPath"));
        if text.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if let Err(why) = check_simple(text) {
            errors.push(FieldError::invalid(path, text.into(), why));
        }
    }
}

fn scale(errors: &mut Vec<FieldError>, path: &FieldPath, scale: &Value) {
    if !scale.is_object() {
        return;
    }
    let fields = [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ];
    for (field, roots, outside) in fields {
        let path = path.child(field);
        match scale[field].as_str().unwrap_or_default() {
            "" if field == "labelSelectorPath" => {}
            "" => errors.push(FieldError::required(path, "")),
            text => {
                let simple = check_simple(text);
                let inside = roots.iter().any(|root| text.starts_with(root));
                if let Err(why) = simple.and(if inside { Ok(()) } else { Err(outside) }) {
                    errors.push(FieldError::invalid(path, text.into(), why));
                }
            }
        }
    }
}

fn selectable(errors: &mut Vec<FieldError>, path: &FieldPath, version: &Value) {
    let mut seen = HashSet::new();
    for (at, field) in version["selectableFields"].as_array().into_iter().flatten().enumerate() {
        let path = path.index(at).child("jsonPath");
        let text = field["jsonPath"].as_str().unwrap_or_default();
        if text.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let mut invalid = |why: String| errors.push(FieldError::invalid(path.clone(), text.into(), why));
        let schema = match field_schema(text, &version["schema"]["openAPIV3Schema"]) {
            Ok(schema) => schema,
            Err(why) => {
                invalid(format!("is an invalid path: {why}"));
                continue;
            }
        };
        if text.starts_with(".metadata.") || text == ".metadata" {
            invalid("must not point to fields in metadata".to_owned());
        }
        if !matches!(schema["type"].as_str(), Some("string" | "integer" | "boolean")) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                       are allowed.";
            invalid(why.to_owned());
        }
        if !seen.insert(text) {
            errors.push(FieldError::duplicate(path, text.into()));
        }
    }
    if seen.len() > SELECTABLE_MAX {
        errors.push(FieldError::too_many(path.clone(), seen.len(), SELECTABLE_MAX));
    }
}

/// The schema of a field, such as `.spec.color`, or of the values of a map.
fn field_schema<'s>(path: &str, schema: &'s Value) -> Result<&'s Value, String> {
    const DELIMITERS: [char; 3] = ['.', '[', ']'];
    let (mut schema, mut rest) = (schema, path);
    while let Some(first) = rest.chars().next() {
        let token = |text: &str| text.find(DELIMITERS).map_or(text.len(), |at| at.max(1));
        match first {
            '[' => return Err("array notation is not allowed".to_owned()),
            '.' if rest.len() == 1 => return Err("unexpected end of JSON path".to_owned()),
            '.' => {}
            _ => return Err(format!("expected [ or . but got: {}", &rest[..token(rest)])),
        }
        let (name, after) = rest[1..].split_at(token(&rest[1..]));
        let inner = if schema["properties"].is_object() {
            schema["properties"].get(name)
        } else {
            schema.get("additionalProperties").filter(|additional| additional.is_object())
        };
        schema = inner.ok_or("does not refer to a valid field")?;
        rest = after;
    }
    Ok(schema)
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
