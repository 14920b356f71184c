//! The FlowSchemas and PriorityLevelConfigurations that every cluster has. In: tables of facts. Out: objects that are created
//! together at the start of the server; later writes bring back what somebody deleted or changed, and say of every FlowSchema
//! whether its priority level exists. None of them has an effect: `in_flight` limits requests.

mod keep;
mod table;

use std::sync::Arc;

use serde_json::{Value, json};

use konverge_core::Status;
use konverge_store::CommitError;

use crate::commit::create_missing;
use crate::context::RequestContext;
use crate::env::rfc3339;
use crate::resource::Resource;
use crate::server::Server;
use crate::subresource::Subresource;
use crate::user::SystemUser;
use crate::write::WriteRequest;

pub(crate) use keep::run;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";

/// The annotation that says whether the server keeps the spec of an initial object up to date.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// The field managers of specs and of conditions, by their names in kube-apiserver.
const SPEC_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
const STATUS_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// An object that every cluster has.
struct Initial {
    name: &'static str,
    spec: Value,
    /// Whether changes of its spec are always undone. The specs of other objects are left to users who have changed them.
    mandatory: bool,
}

/// Creates the initial objects that do not exist yet.
pub(crate) async fn create_initial(server: &Server) -> Result<(), CommitError> {
    let context = &server.task_context(SystemUser::ApiServer);
    let (levels, schemas) = (resource(server, LEVELS), resource(server, SCHEMAS));
    let new_levels = table::levels().into_iter().map(|initial| {
        let mut level = object(&levels, &initial);
        spec_writer(server, context, &levels).own_fields(&mut level);
        level
    });
    let new_schemas = table::schemas().into_iter().map(|initial| {
        let mut schema = object(&schemas, &initial);
        spec_writer(server, context, &schemas).own_fields(&mut schema);
        let status = status_of(server, &schemas, initial.name, &schema["spec"], true);
        status_writer(server, context, &schemas).merged(Some(&schema), &status, true)
    });
    let new_schemas = new_schemas.collect::<Result<Vec<_>, Status>>().expect("the table's objects fit their type");
    tokio::try_join!(create_missing(server, &levels, new_levels), create_missing(server, &schemas, new_schemas))?;
    Ok(())
}

fn resource(server: &Server, plural: &str) -> Arc<Resource> {
    server.registry.find(GROUP, "v1", plural).expect("the kinds of flow control are built in")
}

fn object(resource: &Resource, initial: &Initial) -> Value {
    json!({
        "apiVersion": resource.api_version(), "kind": *resource.kind,
        "metadata": {"name": initial.name, "annotations": {AUTO_UPDATE: "true"}},
        "spec": initial.spec, "status": {},
    })
}

fn spec_writer<'a>(server: &'a Server, context: &'a RequestContext, resource: &'a Arc<Resource>) -> WriteRequest<'a> {
    WriteRequest { manager: SPEC_MANAGER.to_owned(), ..server.internal_write(context, resource) }
}

fn status_writer<'a>(server: &'a Server, context: &'a RequestContext, resource: &'a Arc<Resource>) -> WriteRequest<'a> {
    let subresource = Subresource::Status;
    WriteRequest { manager: STATUS_MANAGER.to_owned(), subresource, ..server.internal_write(context, resource) }
}

/// A configuration with the condition of a FlowSchema that says whether its priority level exists.
fn status_of(server: &Server, schemas: &Resource, name: &str, spec: &Value, found: bool) -> Value {
    let level = spec["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
    let (status, reason, how) = match found {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {how}");
    json!({
        "apiVersion": schemas.api_version(), "kind": *schemas.kind, "metadata": {"name": name},
        "status": {"conditions": [{
            "type": "Dangling", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": rfc3339(server.env.now()),
        }]},
    })
}
