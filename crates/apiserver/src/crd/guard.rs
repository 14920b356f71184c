//! Whether a request may still be processed through its resource. In: a resource that was looked up at the start of the
//! request. Out: a condition for the commit, or the `Status` that sends the request to the current resource.

use konverge_core::Status;
use konverge_store::Condition;

use crate::resource::Resource;
use crate::server::Server;
use crate::verb::Verb;

use super::{catch_up, definitions};

/// The message for a request whose definition changed at each attempt.
const OUTDATED: &str = "the custom resource definition has changed while the request was answered; try again";

/// Makes sure that the definition of a kind accepts new objects, now and when the object is committed.
pub(crate) fn must_accept(server: &Server, resource: &Resource) -> Result<Option<Condition>, Status> {
    let current = must_be_current(server, resource)?;
    if resource.custom && !resource.verbs.contains(Verb::Create) {
        return Err(terminating(resource));
    }
    Ok(current)
}

/// Makes sure that a resource is what the definition of its kind says, now and when the object is committed. A request
/// looked up its resource before it had sent its body or got a thread, and by now objects may be stored in another version,
/// or with other defaults. Then the error [`is_outdated`], and the request is processed again with the current resource.
pub(crate) fn must_be_current(server: &Server, resource: &Resource) -> Result<Option<Condition>, Status> {
    // A resource without a lifetime is built in, or not in the registry.
    let Some(lifetime) = &resource.lifetime else { return Ok(None) };
    let key = definitions(server).key(None, &[&*resource.plural, ".", &*resource.group].concat());
    // The registry may not know yet of a change that leaves the resources as they are, such as a new label.
    let is_current = |revision| {
        lifetime.is_confirmed(revision) || {
            catch_up(server);
            lifetime.is_confirmed(revision)
        }
    };
    match server.store.get(&key, None).map_err(Status::internal)? {
        Some(entry) if is_current(entry.revision) => Ok(Some(Condition::Unchanged(entry.key, entry.revision))),
        _ => Err(Status::failure(503, "ServiceUnavailable", OUTDATED).retry_after(1)),
    }
}

/// Whether a request has failed because the definition of its kind has changed meanwhile.
pub(crate) fn is_outdated(status: &Status) -> bool {
    status.code == 503 && status.message == OUTDATED
}

/// 405: the definition of the kind is being deleted.
pub(crate) fn terminating(resource: &Resource) -> Status {
    let message = "create not allowed while custom resource definition is terminating";
    Status::failure(405, "MethodNotAllowed", message).about(&resource.group, &resource.plural, "")
}
