//! The resources that a custom resource definition stands for. In: a definition that was validated. Out: one resource for each
//! version. Nothing is decided here that the definition does not say.

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};

use konverge_cel::RuleSet;
use konverge_core::GroupVersionKind;
use konverge_schema::{Arena, CompileError, OBJECT_META, TypeId, compile, kubernetes};
use konverge_store::Revision;

use crate::behaviour::behaviour;
use crate::conversion::Converters;
use crate::digest::Digest;
use crate::discovery::compare_versions;
use crate::json_path::JsonPath;
use crate::meta;
use crate::resource::{Column, Resource, ResourceSchema, ResourceStorage, ScalePaths, SubresourceInfo};
use crate::verb::{Verb, Verbs};

/// The resources of a definition: one for each version that is served.
pub(super) fn resources(
    definition: &Value,
    since: Revision,
    converters: &Converters,
) -> Result<Vec<Arc<Resource>>, CompileError> {
    versions(definition, since, converters, |version| version["served"] == true)
}

/// A resource that every object of a definition can be read and written through, also if no version is served. Objects are
/// stored like this since `since`.
pub(super) fn any(definition: &Value, since: Revision, converters: &Converters) -> Option<Arc<Resource>> {
    // The version that objects are stored in, so that only objects of an older storage version have to be converted.
    versions(definition, since, converters, |version| version["storage"] == true).ok()?.into_iter().next()
}

/// The prefix of the keys of a definition's objects.
pub(super) fn prefix(definition: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("/registry/{}/{}/", text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["plural"]))
}

/// The names that a definition has; if none are accepted yet, those that it asks for.
pub(super) fn names(definition: &Value) -> &Value {
    let accepted = &definition["status"]["acceptedNames"];
    let is_accepted = accepted["kind"].as_str().is_some_and(|kind| !kind.is_empty());
    if is_accepted { accepted } else { &definition["spec"]["names"] }
}

/// What decides how objects are stored: the storage version and its schema. While this stays the same, the stored bytes of an
/// object are what would be stored now.
pub(super) fn stored_as(definition: &Value) -> Digest {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored = versions.into_iter().find(|version| version["storage"] == true).unwrap_or(&Value::Null);
    Digest::of(json!([stored["name"], stored["schema"]]).to_string().as_bytes())
}

/// One resource for each version that is wanted.
fn versions(
    definition: &Value,
    since: Revision,
    converters: &Converters,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Vec<Arc<Resource>>, CompileError> {
    let spec = &definition["spec"];
    let names = names(definition);
    let text = |value: &Value| -> Box<str> { value.as_str().unwrap_or_default().into() };
    let texts = |value: &Value| -> Vec<Box<str>> { value.as_array().into_iter().flatten().map(text).collect() };
    let versions = || spec["versions"].as_array().into_iter().flatten();
    let group = text(&spec["group"]);
    let stored = versions().find(|version| version["storage"] == true);
    let stored_types = stored.map(types).transpose()?.map(|(arena, root)| (Arc::new(arena), root));
    let stored = stored.map_or(&Value::Null, |version| &version["name"]);
    let storage = ResourceStorage {
        prefix: prefix(definition).into(),
        api_version: format!("{group}/{}", text(stored)).into(),
        since,
        renames: &[],
        types: stored_types,
        converter: converters(definition),
    };
    // A definition that is being deleted accepts no new objects.
    let terminating = meta::is_terminating(definition);
    let verbs = Verb::ALL.into_iter().filter(|verb| !(terminating && *verb == Verb::Create)).collect();
    let mut resources = Vec::new();
    for version in versions().filter(|version| wanted(version)) {
        let kind = GroupVersionKind {
            group: group.to_string(),
            version: text(&version["name"]).to_string(),
            kind: text(&names["kind"]).to_string(),
        };
        let (arena, root) = match storage.types.clone().filter(|_| version["name"] == *stored) {
            Some(types) => types,
            None => types(version).map(|(arena, root)| (Arc::new(arena), root))?,
        };
        let scale = version["subresources"]["scale"].as_object().map(|scale| ScalePaths {
            spec_replicas: text(&scale["specReplicasPath"]),
            status_replicas: text(&scale["statusReplicasPath"]),
            selector: scale.get("labelSelectorPath").map(text),
        });
        let rules = RuleSet::compile(&version["schema"]["openAPIV3Schema"]);
        resources.push(Arc::new(Resource {
            group: group.clone(),
            version: text(&version["name"]),
            plural: text(&names["plural"]),
            singular: text(&names["singular"]),
            kind: text(&names["kind"]),
            list_kind: text(&names["listKind"]),
            short_names: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            verbs,
            subresources: subresources(version, &kind, scale.is_some()),
            schema: ResourceSchema { arena, root, name: openapi_name(&kind).into(), rules: rules.map(Arc::new) },
            columns: columns(version),
            custom: true,
            lifetime: None,
            storage: storage.clone(),
            selectable: version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|field| field["jsonPath"].as_str().unwrap_or_default().trim_start_matches('.').into())
                .collect(),
            scale,
            behaviour: behaviour(&group, &text(&names["plural"])),
            empty_object: json!({}),
            deprecation: deprecation(spec, version),
            descriptions: descriptions(&version["schema"]["openAPIV3Schema"]).map(Arc::new),
            published: OnceLock::new(),
        }));
    }
    Ok(resources)
}

/// The types of one version, with the metadata every object has.
fn types(version: &Value) -> Result<(Arena, TypeId), CompileError> {
    let mut arena = Arena::default();
    let published = kubernetes();
    let metadata = published.named(OBJECT_META).expect("the published types have it");
    let metadata = arena.import(published, metadata);
    arena.name(OBJECT_META, metadata);
    let schema = Some(&version["schema"]["openAPIV3Schema"]).filter(|schema| schema.is_object());
    let root = compile(&mut arena, schema)?;
    Ok((arena, root))
}

fn subresources(version: &Value, kind: &GroupVersionKind, scale: bool) -> Vec<SubresourceInfo> {
    let verbs: Verbs = [Verb::Get, Verb::Patch, Verb::Update].into_iter().collect();
    let mut subresources = Vec::new();
    if version["subresources"]["status"].is_object() {
        subresources.push(SubresourceInfo { name: "status".into(), gvk: kind.clone(), verbs });
    }
    if scale {
        let gvk = GroupVersionKind { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() };
        subresources.push(SubresourceInfo { name: "scale".into(), gvk, verbs });
    }
    subresources
}

/// The warning for requests to a deprecated version.
fn deprecation(spec: &Value, version: &Value) -> Option<Box<str>> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(text) = version["deprecationWarning"].as_str() {
        return Some(text.into());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind, name) = (text(&spec["group"]), text(&spec["names"]["kind"]), text(&version["name"]));
    let versions = spec["versions"].as_array().into_iter().flatten();
    let better = versions
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| text(&other["name"]))
        .filter(|other| compare_versions(other, &name).is_lt())
        .min_by(|a, b| compare_versions(a, b));
    let instead = better.map(|better| format!("; use {group}/{better} {kind}")).unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{instead}").into())
}

/// A schema with nothing but its descriptions left, and the fields on the way to them.
fn descriptions(schema: &Value) -> Option<Value> {
    let mut described = Map::new();
    if let Some(text) = schema["description"].as_str().filter(|text| !text.is_empty()) {
        described.insert("description".into(), text.into());
    }
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields: Map<String, Value> =
        fields.filter_map(|(name, field)| Some((name.clone(), descriptions(field)?))).collect();
    if !fields.is_empty() {
        described.insert("properties".into(), fields.into());
    }
    for below in ["items", "additionalProperties"] {
        if let Some(found) = schema.get(below).filter(|below| below.is_object()).and_then(descriptions) {
            described.insert(below.into(), found);
        }
    }
    (!described.is_empty()).then(|| described.into())
}

/// The columns, up to one whose path does not parse, as kube-apiserver shows them.
fn columns(version: &Value) -> Arc<[Column]> {
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    columns
        .take_while(|column| JsonPath::compile(column["jsonPath"].as_str().unwrap_or_default()).is_ok())
        .map(|column| {
            let text = |field: &str| -> Box<str> { column[field].as_str().unwrap_or_default().into() };
            Column {
                name: text("name"),
                ty: text("type"),
                format: text("format"),
                description: text("description"),
                priority: column["priority"].as_i64().and_then(|priority| i32::try_from(priority).ok()).unwrap_or(0),
                json_path: text("jsonPath"),
            }
        })
        .collect()
}

/// A type's name in OpenAPI documents: the group reversed, as `com.example.v1.Widget`.
fn openapi_name(kind: &GroupVersionKind) -> String {
    let mut parts: Vec<&str> = kind.group.split('.').rev().collect();
    parts.extend([kind.version.as_str(), kind.kind.as_str()]);
    parts.join(".")
}
