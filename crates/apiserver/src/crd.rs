//! Custom resource definitions: objects like any other, whose rows join the table of kinds the moment they are written.
//! In: a CRD. Out: what is wrong with it, its status, and the rows it stands for. When it goes, its objects go first.
//!
//! ```text
//! write ─▶ check ─▶ store ─▶ follow ─▶ rows ─▶ table of kinds
//!                     └────▶ lifecycle: objects of a definition that goes, names that become free
//! ```

mod check;
mod follow;
mod lifecycle;
mod names;
mod rows;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use konverge_core::{FieldError, Status};
use konverge_schema::{Budget, OverBudget};
use konverge_store::Condition;

use crate::conditions;
use crate::env::rfc3339;
use crate::meta;
use crate::part::Part;
use crate::resource::{Resource, Verb};
use crate::server::Server;
use crate::turns::{Turn, Turns};

use follow::Follower;
use lifecycle::Progress;

pub(crate) use follow::{catch_up, learn};
pub(crate) use lifecycle::{run, settle};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// Keeps a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What is said to a request whose kind changes again each time it is tried.
const OUTDATED: &str = "the custom resource definition has changed while the request was answered; try again";

fn is_definition(resource: &Resource) -> bool {
    &*resource.group == GROUP && &*resource.plural == PLURAL
}

/// The row of definitions themselves.
fn definitions(server: &Server) -> Arc<Resource> {
    server.kinds.find(GROUP, "v1", PLURAL).expect("definitions are built in")
}

/// What the server knows of definitions besides the rows they brought.
#[derive(Default)]
pub(crate) struct Definitions {
    /// Definitions are written one after the other, because a name belongs to whoever has it first.
    turns: Turns,
    follower: Mutex<Follower>,
    progress: watch::Sender<Progress>,
}

/// Lets one definition be written at a time; others wait for nobody.
pub(crate) async fn turn<'s>(server: &'s Server, resource: &Resource) -> Option<Turn<'s>> {
    if is_definition(resource) { Some(server.definitions.turns.next().await) } else { None }
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
    let mut stored: Vec<Value> =
        old.and_then(|old| old["status"]["storedVersions"].as_array()).cloned().unwrap_or_default();
    for version in new["spec"]["versions"].as_array().into_iter().flatten() {
        if version["storage"] == true && !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    // The table has to know everybody who was before; whoever calls this has the turn, so nobody else is on the way.
    catch_up(server);
    let before = old.map(|old| &old["status"]["acceptedNames"]);
    let names::Judged { accepted, refused } = names::judge(&server.kinds, new, before);
    let names = match &refused {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, &**message),
    };
    let now = rfc3339(server.env.now());
    let mut conditions = old.map(|old| old["status"]["conditions"].clone()).unwrap_or_default();
    set_condition(&mut conditions, "NamesAccepted", names.0, names.1, names.2, &now);
    // A kind that is served stays so, under the names it has, whatever else it asks for.
    if old.and_then(|old| condition(old, "Established")) != Some("True") {
        let established = match &refused {
            None => ("True", "InitialNamesAccepted", "the initial names have been accepted"),
            Some(_) => ("False", "NotAccepted", "not all names are accepted"),
        };
        set_condition(&mut conditions, "Established", established.0, established.1, established.2, &now);
    }
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

/// Brings the table of kinds up to date after a definition was committed.
pub(crate) fn committed(server: &Server, resource: &Resource) {
    if is_definition(resource) {
        catch_up(server);
    }
}

/// Makes sure that the definition of a kind takes new objects, now and when the object is committed.
pub(crate) fn must_accept(server: &Server, resource: &Resource) -> Result<Option<Condition>, Status> {
    let current = must_be_current(server, resource)?;
    if resource.custom && !resource.verbs.contains(Verb::Create) {
        return Err(going(resource));
    }
    Ok(current)
}

/// Makes sure that a row is what the definition of its kind says, now and when the object is committed. A request found
/// its row before it had sent its body or got a thread, and by now objects may be kept in another version, or with
/// other defaults: then [`is_outdated`], and the request is answered anew through the row there is now.
pub(crate) fn must_be_current(server: &Server, resource: &Resource) -> Result<Option<Condition>, Status> {
    // Rows without a tenure are built in, or made on the spot.
    let Some(tenure) = &resource.tenure else { return Ok(None) };
    let key = definitions(server).key(None, &format!("{}.{}", resource.plural, resource.group));
    // The table may not have heard of a change that the rows need not follow, such as that of a label.
    let is_current = |revision| {
        tenure.is_confirmed(revision) || {
            catch_up(server);
            tenure.is_confirmed(revision)
        }
    };
    match server.store.get(&key, None).map_err(Status::internal)? {
        Some(entry) if is_current(entry.revision) => Ok(Some(Condition::Unchanged(entry.key, entry.revision))),
        _ => Err(Status::failure(503, "ServiceUnavailable", OUTDATED).retry_after(1)),
    }
}

/// Whether a request has failed because its kind's definition has changed under it.
pub(crate) fn is_outdated(status: &Status) -> bool {
    status.code == 503 && status.message == OUTDATED
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

fn condition<'d>(definition: &'d Value, kind: &str) -> Option<&'d str> {
    let conditions = definition["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

/// Sets one condition of a definition.
fn set_condition(conditions: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    conditions::set(conditions, json!({"type": kind, "status": status, "reason": reason, "message": message}), now);
}
