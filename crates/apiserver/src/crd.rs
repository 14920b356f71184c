//! Custom resource definitions: objects like any other, whose rows join the table of kinds the moment they are written.
//! In: a CRD. Out: what is wrong with it, its status, and the rows it stands for. When it goes, its objects go first.

mod check;

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::MutexGuard;

use konverge_core::{FieldError, GroupVersionKind, Status};
use konverge_schema::{Arena, Budget, CompileError, OBJECT_META, OverBudget, TypeId, compile, kubernetes};
use konverge_store::{BoxFuture, Condition, Entry, Range, Revision};

use crate::behaviour::behaviour;
use crate::change::Done;
use crate::conditions;
use crate::delete::{DeleteOptions, delete};
use crate::digest::Digest;
use crate::discovery::compare_versions;
use crate::env::rfc3339;
use crate::meta;
use crate::part::Part;
use crate::record;
use crate::resource::{Column, Resource, ResourceSchema, ScalePaths, Shelf, Subresource, Verb, Verbs};
use crate::server::{OpenError, Server};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// Keeps a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn is_definition(resource: &Resource) -> bool {
    &*resource.group == GROUP && &*resource.plural == PLURAL
}

/// Lets one definition be written at a time; others wait for nobody.
pub(crate) async fn guard<'s>(server: &'s Server, resource: &Resource) -> Option<MutexGuard<'s, ()>> {
    if is_definition(resource) { Some(server.definitions.lock().await) } else { None }
}

/// Learns the definitions that are kept.
pub(crate) fn install_kept(server: &Server) -> Result<(), OpenError> {
    let kinds = server.kinds.snapshot();
    let definitions = kinds.find(GROUP, "v1", PLURAL).expect("definitions are built in");
    let range = Range { prefix: &definitions.shelf.prefix, ..Range::default() };
    let page = server.store.range(range).expect("the newest revision is never compacted");
    for entry in page.entries {
        let definition = record::decode(&entry);
        let name = || meta::text(&definition, "name").to_owned();
        install(server, &definition, entry.revision)
            .map_err(|source| OpenError::Definition { name: name(), source })?;
    }
    Ok(())
}

/// Takes the rows of a definition into the table, or out of it if it may not have the names it wants.
fn install(server: &Server, definition: &Value, revision: Revision) -> Result<(), CompileError> {
    let name = meta::text(definition, "name");
    if condition(definition, "Established") == Some("True") {
        // Its metadata and status may change, and what it defines stays as it was.
        let spec = Digest::of(definition["spec"].to_string().as_bytes());
        server.kinds.install(name, revision, spec, rows(definition, revision)?);
    } else {
        server.kinds.remove(name, revision);
    }
    Ok(())
}

/// Fills in what a definition may leave out, and its status, which only the server writes.
pub(crate) fn prepare(
    server: &Server,
    resource: &Resource,
    part: Part,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<(), Status> {
    if !is_definition(resource) || part == Part::Status {
        return Ok(());
    }
    let names = &mut new["spec"]["names"];
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names["singular"].as_str().is_none_or(str::is_empty) {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].as_str().is_none_or(str::is_empty) {
        names["listKind"] = format!("{kind}List").into();
    }
    if new["spec"]["conversion"].is_null() {
        new["spec"]["conversion"] = json!({"strategy": "None"});
    }
    let accepted = new["spec"]["names"].clone();
    let mut stored: Vec<Value> =
        old.and_then(|old| old["status"]["storedVersions"].as_array()).cloned().unwrap_or_default();
    for version in new["spec"]["versions"].as_array().into_iter().flatten() {
        if version["storage"] == true && !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    let taken = check::names_taken(&server.kinds.snapshot(), new);
    let names = match &taken {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", *reason, message.clone()),
    };
    let established = match &taken {
        None => ("True", "InitialNamesAccepted", "the initial names have been accepted"),
        Some(_) => ("False", "NotAccepted", "not all names are accepted"),
    };
    let now = rfc3339(server.env.now());
    let mut conditions = old.map(|old| old["status"]["conditions"].clone()).unwrap_or_default();
    set_condition(&mut conditions, "NamesAccepted", names.0, names.1, &names.2, &now);
    set_condition(&mut conditions, "Established", established.0, established.1, established.2, &now);
    new["status"] = json!({"conditions": conditions, "acceptedNames": accepted, "storedVersions": stored});
    Ok(())
}

/// What is wrong with a definition, beyond its own schema.
pub(crate) fn check(
    resource: &Resource,
    old: Option<&Value>,
    new: &Value,
    warnings: &mut Vec<String>,
    budget: &Budget,
) -> Result<Vec<FieldError>, OverBudget> {
    if is_definition(resource) { check::definition(old, new, warnings, budget) } else { Ok(Vec::new()) }
}

/// Takes a definition's rows into the table.
pub(crate) fn changed(server: &Server, resource: &Resource, entry: &Entry) {
    if !is_definition(resource) {
        return;
    }
    let definition = record::decode(entry);
    if let Err(error) = install(server, &definition, entry.revision) {
        tracing::error!(name = meta::text(&definition, "name"), %error, "a checked CRD does not compile");
    }
}

/// Takes the rows of a definition that is gone out of the table.
pub(crate) fn removed(server: &Server, resource: &Resource, key: &str, revision: Revision) {
    if is_definition(resource) {
        server.kinds.remove(resource.identity(key).1, revision);
    }
}

/// Makes sure that the definition of a kind takes new objects, now and when the object is committed.
pub(crate) fn must_accept(server: &Server, resource: &Resource) -> Result<Option<Condition>, Status> {
    if !resource.custom {
        return Ok(None);
    }
    let kinds = server.kinds.snapshot();
    let definitions = kinds.find(GROUP, "v1", PLURAL).expect("definitions are built in");
    let key = definitions.key(None, &format!("{}.{}", resource.plural, resource.group));
    let Some(entry) = server.store.get(&key, None).map_err(Status::internal)? else {
        return Err(Status::failure(404, "NotFound", "the server could not find the requested resource"));
    };
    // The row was made from this very version of it, unless the definition has changed since.
    let current = entry.revision == resource.shelf.since;
    if (current && !resource.verbs.contains(Verb::Create))
        || (!current && meta::is_terminating(&record::decode(&entry)))
    {
        return Err(going(resource));
    }
    Ok(Some(Condition::Unchanged(entry.key, entry.revision)))
}

/// What is said to those who create an object of a kind whose definition is going.
pub(crate) fn going(resource: &Resource) -> Status {
    let message = "create not allowed while custom resource definition is terminating";
    Status::failure(405, "MethodNotAllowed", message).about(&resource.group, &resource.plural, "")
}

/// Marks a definition whose deletion has begun. It stays until its objects are gone, and only once it is marked can be
/// told which those are: until then anybody may create more.
pub(crate) fn terminate(server: &Server, resource: &Resource, definition: &mut Value) {
    if !is_definition(resource) {
        return;
    }
    let mut finalizers: Vec<String> = meta::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|name| name == CLEANUP) {
        finalizers.push(CLEANUP.to_owned());
    }
    let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    meta::set_finalizers(definition, &finalizers);
    let now = rfc3339(server.env.now());
    let message = "CustomResource deletion is in progress";
    let conditions = &mut definition["status"]["conditions"];
    set_condition(conditions, "Terminating", "True", "InstanceDeletionInProgress", message, &now);
}

/// Deletes what a going definition defines; the definition itself once nothing of it is left.
pub(crate) async fn clean_up(server: &Server, resource: &Arc<Resource>, entry: Entry) -> Result<Done, Status> {
    let definition = record::decode(&entry);
    if !is_definition(resource) || !meta::finalizers(&definition).contains(&CLEANUP) {
        return Ok(Done::Kept(entry));
    }
    let options = DeleteOptions::default();
    for (row, instance) in instances(server, &definition) {
        let (namespace, name) = row.identity(&instance.key);
        match Box::pin(delete(server, &row, namespace, name, &options)).await {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    match finish(server, resource, meta::text(&definition, "name")).await {
        // Whoever deleted the last object has seen to it.
        Err(status) if status.code == 404 => Ok(Done::Gone(definition)),
        done => done,
    }
}

/// What follows when an object is gone: a going definition goes with its last object, and the names of a definition are
/// free for others that wanted them.
pub(crate) fn gone<'a>(server: &'a Server, resource: &'a Resource, object: &'a Value) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        let outcome = if resource.custom {
            last_object_gone(server, resource).await
        } else if is_definition(resource) {
            names_free(server, object["spec"]["group"].as_str().unwrap_or_default()).await
        } else {
            Ok(())
        };
        // The object is gone all the same, and the next one that goes, or the next start, tries again.
        if let Err(status) = outcome {
            tracing::warn!(%status, "a definition could not follow its objects");
        }
    })
}

/// Lets a definition go whose last object has gone.
async fn last_object_gone(server: &Server, gone: &Resource) -> Result<(), Status> {
    let kinds = server.kinds.snapshot();
    let row = kinds.find(&gone.group, &gone.version, &gone.plural);
    if row.is_some_and(|row| row.verbs.contains(Verb::Create)) {
        return Ok(());
    }
    let definitions = kinds.find(GROUP, "v1", PLURAL).expect("definitions are built in");
    let name = format!("{}.{}", gone.plural, gone.group);
    let entry = server.store.get(&definitions.key(None, &name), None).map_err(Status::internal)?;
    if entry.is_some_and(|entry| meta::is_terminating(&record::decode(&entry))) {
        match finish(server, definitions, &name).await {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    Ok(())
}

/// Looks again at definitions of a group whose names were taken.
async fn names_free(server: &Server, group: &str) -> Result<(), Status> {
    let kinds = server.kinds.snapshot();
    let definitions = kinds.find(GROUP, "v1", PLURAL).expect("definitions are built in");
    let range = Range { prefix: &definitions.shelf.prefix, ..Range::default() };
    let page = server.store.range(range).expect("the newest revision is never compacted");
    for entry in page.entries {
        let definition = record::decode(&entry);
        if definition["spec"]["group"] != group || condition(&definition, "NamesAccepted") != Some("False") {
            continue;
        }
        // Writing it again as it is judges its names anew.
        let write = server.internal_write(definitions);
        let mut said = Vec::new();
        let again = write.patch(meta::text(&definition, "name"), &mut said, |definition| Ok(definition.clone()));
        match Box::pin(again).await {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    Ok(())
}

/// Removes the finalizer when no object is left, and with it the definition if nothing else holds it.
async fn finish(server: &Server, definitions: &Arc<Resource>, name: &str) -> Result<Done, Status> {
    let write = server.internal_write(definitions);
    let mut said = Vec::new();
    let done = write.patch(name, &mut said, |definition| {
        let mut definition = definition.clone();
        if instances(server, &definition).is_empty() {
            let finalizers: Vec<String> = meta::finalizers(&definition)
                .into_iter()
                .filter(|finalizer| *finalizer != CLEANUP)
                .map(str::to_owned)
                .collect();
            meta::set_finalizers(&mut definition, &finalizers.iter().map(String::as_str).collect::<Vec<_>>());
        }
        Ok(definition)
    });
    Box::pin(done).await
}

/// Every object of a definition, with a row it can be reached through.
fn instances(server: &Server, definition: &Value) -> Vec<(Arc<Resource>, Entry)> {
    // Also objects of versions that are no longer served are objects.
    let rows = versions(definition, Revision(0), |_| true).unwrap_or_default();
    let Some(row) = rows.first() else { return Vec::new() };
    let range = Range { prefix: &row.shelf.prefix, ..Range::default() };
    let page = server.store.range(range).expect("the newest revision is never compacted");
    page.entries.into_iter().map(|entry| (row.clone(), entry)).collect()
}

/// The rows a definition stands for: one for each version that is served.
fn rows(definition: &Value, since: Revision) -> Result<Vec<Arc<Resource>>, CompileError> {
    versions(definition, since, |version| version["served"] == true)
}

/// One row for each version that is wanted.
fn versions(
    definition: &Value,
    since: Revision,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Vec<Arc<Resource>>, CompileError> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| -> Box<str> { value.as_str().unwrap_or_default().into() };
    let texts = |value: &Value| -> Vec<Box<str>> { value.as_array().into_iter().flatten().map(text).collect() };
    let versions = || spec["versions"].as_array().into_iter().flatten();
    let group = text(&spec["group"]);
    let stored = versions().find(|version| version["storage"] == true).map(|version| text(&version["name"]));
    let shelf = Shelf {
        prefix: format!("/registry/{group}/{}/", text(&names["plural"])).into(),
        api_version: format!("{group}/{}", stored.unwrap_or_default()).into(),
        since,
        renames: &[],
    };
    // A definition that is going takes no new objects.
    let going = meta::is_terminating(definition);
    let verbs = Verb::ALL.into_iter().filter(|verb| !(going && *verb == Verb::Create)).collect();
    let mut rows = Vec::new();
    for version in versions().filter(|version| wanted(version)) {
        let kind = GroupVersionKind {
            group: group.to_string(),
            version: text(&version["name"]).to_string(),
            kind: text(&names["kind"]).to_string(),
        };
        let (arena, root) = types(version)?;
        let scale = version["subresources"]["scale"].as_object().map(|scale| ScalePaths {
            spec_replicas: text(&scale["specReplicasPath"]),
            status_replicas: text(&scale["statusReplicasPath"]),
            selector: scale.get("labelSelectorPath").map(text),
        });
        rows.push(Arc::new(Resource {
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
            schema: ResourceSchema { arena: Arc::new(arena), root, name: openapi_name(&kind).into() },
            columns: columns(version),
            custom: true,
            tenure: None,
            shelf: shelf.clone(),
            selectable: version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|field| field["jsonPath"].as_str().unwrap_or_default().trim_start_matches('.').into())
                .collect(),
            scale,
            behaviour: behaviour(&group, &text(&names["plural"])),
            blank: json!({}),
            deprecation: deprecation(spec, version),
            descriptions: descriptions(&version["schema"]["openAPIV3Schema"]).map(Arc::new),
        }));
    }
    Ok(rows)
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

fn subresources(version: &Value, kind: &GroupVersionKind, scale: bool) -> Vec<Subresource> {
    let verbs: Verbs = [Verb::Get, Verb::Patch, Verb::Update].into_iter().collect();
    let mut subresources = Vec::new();
    if version["subresources"]["status"].is_object() {
        subresources.push(Subresource { name: "status".into(), gvk: kind.clone(), verbs });
    }
    if scale {
        let gvk = GroupVersionKind { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() };
        subresources.push(Subresource { name: "scale".into(), gvk, verbs });
    }
    subresources
}

/// What users of a version are told whose definition calls it deprecated.
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

/// A schema with nothing but its descriptions left, and the way to them.
fn descriptions(schema: &Value) -> Option<Value> {
    let mut kept = Map::new();
    if let Some(text) = schema["description"].as_str().filter(|text| !text.is_empty()) {
        kept.insert("description".into(), text.into());
    }
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields: Map<String, Value> =
        fields.filter_map(|(name, field)| Some((name.clone(), descriptions(field)?))).collect();
    if !fields.is_empty() {
        kept.insert("properties".into(), fields.into());
    }
    for below in ["items", "additionalProperties"] {
        if let Some(found) = schema.get(below).filter(|below| below.is_object()).and_then(descriptions) {
            kept.insert(below.into(), found);
        }
    }
    (!kept.is_empty()).then(|| kept.into())
}

fn columns(version: &Value) -> Arc<[Column]> {
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    columns
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

fn condition<'d>(definition: &'d Value, kind: &str) -> Option<&'d str> {
    let conditions = definition["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

/// Sets one condition of a definition.
fn set_condition(conditions: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    conditions::set(conditions, json!({"type": kind, "status": status, "reason": reason, "message": message}), now);
}
