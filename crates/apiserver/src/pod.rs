//! The subresources of pods that do more than store what is sent: `binding` gives a pod its node, `eviction` deletes it if its
//! disruption budget allows, `log` prints what a simulated container prescribes, `exec`, `attach` and `portforward` connect to
//! it (`connect`), `proxy` passes requests on to it. In: a Binding, an Eviction, or parameters. Out: a changed pod, a connection, or the `Status` that says why
//! not.

mod binding;
mod connect;
mod container;
mod eviction;
mod log;
mod process;
mod proxy;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use konverge_core::{GroupVersion, Status, from_value_without_nulls};

use crate::admission::{Admission, Attributes, Operation, kind_of};
use crate::decode::Decoded;
use crate::request::Query;
use crate::write::{WriteRequest, foreign_namespace, unregistered};

pub(crate) use binding::bind;
pub(crate) use connect::{PodRequest, connect};
pub(crate) use eviction::evict;
pub(crate) use log::log;
pub(crate) use process::note_exits;
pub(crate) use proxy::{proxy_node, proxy_pod, proxy_service};

/// A Binding or an Eviction.
#[derive(Deserialize)]
struct SentObject<T> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(flatten)]
    rest: T,
}

/// Its metadata, which names the pod.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    annotations: Option<Map<String, Value>>,
    labels: Option<Map<String, Value>>,
}

/// What is particular to a kind of these objects.
trait SentKind: DeserializeOwned {
    /// The name of its type in the table of built-in types.
    const TYPE: &str;
}

/// An older version that is read too: this kind has not changed since.
const OLD_EVICTION: (&str, &str) = ("Eviction", "policy/v1beta1");

/// Receives an object of the kind that the endpoint speaks, and makes sure that it is about this pod.
fn receive<T: SentKind>(
    write: &WriteRequest<'_>,
    name: &str,
    sent: Decoded,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    let gvk = &write.resource.subresource(write.subresource.name()).expect("the endpoint was found by its name").gvk;
    let (kind, version) = (&gvk.kind, &gvk.version);
    if let Some(given) = sent.value["kind"].as_str().filter(|given| given != kind) {
        return Err(Status::bad_request(format!(
            "the kind in the data ({given}) does not match the expected kind ({kind})"
        )));
    }
    let undecodable = |version: &str, why: String| {
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    };
    if let Some(given) = sent.value["apiVersion"].as_str() {
        let of = GroupVersion::parse(given).filter(|of| of.group == gvk.group).ok_or_else(|| {
            Status::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({})",
                gvk.group_version()
            ))
        })?;
        if of.version != *version && (&**kind, given) != OLD_EVICTION {
            return Err(undecodable(&of.version, unregistered(kind, given)));
        }
    }
    let object = write.receive_typed(T::TYPE, sent, warnings).map_err(|why| undecodable(version, why))?;
    read::<T>(write, name, object.clone())?;
    Ok(object)
}

/// Reads such an object, as the client sent it or as the admission plugins left it.
fn read<T: SentKind>(write: &WriteRequest<'_>, name: &str, object: Value) -> Result<SentObject<T>, Status> {
    let gvk = &write.resource.subresource(write.subresource.name()).expect("the endpoint was found by its name").gvk;
    let (kind, version) = (&gvk.kind, &gvk.version);
    // In Go, a null is the same as nothing.
    let object: SentObject<T> = from_value_without_nulls(object).map_err(|why| {
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    })?;
    let about = &object.metadata;
    if !about.namespace.is_empty() && Some(&*about.namespace) != write.namespace {
        return Err(foreign_namespace());
    }
    if about.name != name {
        return Err(Status::bad_request(format!("name in URL does not match name in {kind} object")));
    }
    Ok(object)
}

/// Asks the admission plugins about an object that is acted on instead of being stored. Gives back what they made of it.
pub(crate) async fn admit(
    write: &WriteRequest<'_>,
    name: &str,
    mut sent: Value,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    identify(write, &mut sent);
    ask_plugins(write, &write.attributes(name, None), &mut sent, warnings).await?;
    Ok(sent)
}

/// Says what an object is that is acted on.
pub(crate) fn identify(write: &WriteRequest<'_>, sent: &mut Value) {
    let gvk = kind_of(write.resource, write.subresource);
    sent["apiVersion"] = gvk.api_version().into();
    sent["kind"] = gvk.kind.as_str().into();
    sent["metadata"]["namespace"] = write.namespace.into();
}

async fn ask_plugins(
    write: &WriteRequest<'_>,
    attributes: &Attributes<'_>,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let (chain, mut admission) = (&write.server.admission, Admission::default());
    let admitted = match chain.admit(attributes, object, &mut admission).await {
        Ok(()) => chain.validate(attributes, object, &mut admission).await,
        refused => refused,
    };
    warnings.append(&mut admission.warnings);
    admitted
}

/// Asks the admission plugins about a connection. They see what the query asks for, as an object of the kind that the endpoint
/// speaks. Gives the query as they changed it.
pub(crate) async fn admit_connection(
    write: &WriteRequest<'_>,
    name: &str,
    query: &Query,
    warnings: &mut Vec<String>,
) -> Result<Query, Status> {
    if query.dry_run() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let gvk = &write.resource.subresource(write.subresource.name()).expect("the endpoint was found by its name").gvk;
    let mut options = json!({"apiVersion": gvk.api_version(), "kind": gvk.kind});
    for field in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(field) {
            options[field] = true.into();
        }
    }
    for field in ["container", "path"] {
        if let Some(text) = query.get(field).filter(|text| !text.is_empty()) {
            options[field] = text.into();
        }
    }
    let command = query.all("command");
    if !command.is_empty() {
        options["command"] = command.into();
    }
    let ports: Vec<i64> = query.all("ports").iter().filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        options["ports"] = ports.into();
    }
    let attributes = Attributes { operation: Operation::Connect, ..write.attributes(name, None) };
    let asked = options.clone();
    ask_plugins(write, &attributes, &mut options, warnings).await?;
    let mut query = query.clone();
    for field in ["stdin", "stdout", "stderr", "tty", "container", "command", "ports"] {
        if options[field] != asked[field] {
            query.set(field, &options[field]);
        }
    }
    Ok(query)
}
