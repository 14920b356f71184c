//! Custom resource definitions: objects like any other, whose resources are served as soon as the definition is stored. In: a
//! definition. Out: its errors, its status, and the resources it stands for. When it is deleted, its objects are deleted first.
//!
//! ```text
//! write ─▶ status ─▶ check ─▶ store ─▶ follow ─▶ resources ─▶ registry
//!                               └────▶ lifecycle: deletes the objects of deleted definitions, assigns names that became free
//! ```

mod check;
mod embedded;
mod follow;
mod guard;
mod lifecycle;
mod names;
mod object;
mod resources;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use konverge_core::FieldError;
use konverge_schema::{Budget, OverBudget};

use crate::commit_lock::{CommitGuard, CommitLock};
use crate::resource::Resource;
use crate::server::Server;
use crate::subresource::Subresource;

use follow::Follower;
use lifecycle::Progress;

pub(crate) use embedded::check_embedded_types;
pub(crate) use follow::{catch_up, load};
pub(crate) use guard::{is_outdated, must_accept, must_be_current, terminating};
pub(crate) use lifecycle::{run, settle};
pub(crate) use object::validate_object;
pub(crate) use status::{accept_names, prepare, terminate};

use status::condition;

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// The finalizer that holds a definition until its objects are deleted.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn is_definition(resource: &Resource) -> bool {
    &*resource.group == GROUP && &*resource.plural == PLURAL
}

/// The resource of definitions themselves.
fn definitions(server: &Server) -> Arc<Resource> {
    server.registry.find(GROUP, "v1", PLURAL).expect("definitions are built in")
}

/// What the server knows of definitions besides their resources in the registry.
#[derive(Default)]
pub(crate) struct Definitions {
    /// Definitions are written one after the other, because a name belongs to the first definition that asks for it.
    lock: CommitLock,
    follower: Mutex<Follower>,
    progress: watch::Sender<Progress>,
}

/// Locks the writing of definitions; writes of other kinds need no lock.
pub(crate) async fn lock<'s>(server: &'s Server, resource: &Resource) -> Option<CommitGuard<'s>> {
    if is_definition(resource) { Some(server.definitions.lock.lock().await) } else { None }
}

/// The errors of a definition, beyond those of its own schema. The status is for controllers to write, and is not judged.
pub(crate) fn check(
    resource: &Resource,
    subresource: Subresource,
    old: Option<&Value>,
    new: &Value,
    warnings: &mut Vec<String>,
    budget: &Budget,
) -> Result<Vec<FieldError>, OverBudget> {
    if !is_definition(resource) || subresource == Subresource::Status {
        return Ok(Vec::new());
    }
    check::definition(old, new, warnings, budget)
}

/// Brings the registry up to date after a definition was committed.
pub(crate) fn committed(server: &Server, resource: &Resource) {
    if is_definition(resource) {
        catch_up(server);
    }
}
