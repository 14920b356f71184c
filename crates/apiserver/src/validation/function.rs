//! What no table can say. Each function is named in the table, and each file has the functions of one kind or type. In: one
//! value, and the structs around it. Out: errors.

mod admission;
mod api_service;
mod certificate;
mod claim;
mod configuration;
mod container;
mod flow_control;
mod job;
mod job_status;
mod mount;
mod network;
mod node;
mod pod;
mod pod_resize;
mod pod_status;
mod pod_update;
mod projected;
mod quota;
mod resources;
mod security_annotations;
mod service;
mod spread;
mod storage;
mod volume;
mod webhook;
mod workload;

use serde_json::Value;

pub(crate) use resources::is_extended as is_extended_resource;
pub(crate) use webhook::{client_config as check_client_config, review_versions as check_review_versions};

use super::walk::{Frame, NULL, Target, Walk};

/// A function of the table.
pub(super) type Function = fn(&mut Walk<'_>, Target<'_>, &Frame<'_>);

/// The function of this name in the table.
pub(super) fn named(name: &str) -> Option<Function> {
    [
        admission::named,
        api_service::named,
        certificate::named,
        claim::named,
        configuration::named,
        container::named,
        flow_control::named,
        job::named,
        mount::named,
        network::named,
        node::named,
        pod::named,
        pod_status::named,
        projected::named,
        quota::named,
        resources::named,
        security_annotations::named,
        service::named,
        spread::named,
        storage::named,
        volume::named,
        webhook::named,
        workload::named,
    ]
    .iter()
    .find_map(|file| file(name))
}

/// A field; null when it is not there.
fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.get(name).unwrap_or(&NULL)
}

/// A field that is a text; empty when it is not there.
fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    field(value, name).as_str().unwrap_or_default()
}

/// A field that is a number; 0 when it is not there.
fn number(value: &Value, name: &str) -> i64 {
    field(value, name).as_i64().unwrap_or_default()
}

/// The items of a field that is a list.
fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    field(value, name).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a field is there.
fn has(value: &Value, name: &str) -> bool {
    !field(value, name).is_null()
}

/// The entries of a field that is a map, in the order of their keys.
fn entries<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    field(value, name).as_object().into_iter().flatten()
}

/// Gives a struct the field of another one, or takes it away where the other one has none.
fn copy(from: &Value, to: &mut Value, name: &str) {
    let Some(fields) = to.as_object_mut() else { return };
    match from.get(name) {
        Some(value) => fields.insert(name.to_owned(), value.clone()),
        None => fields.remove(name),
    };
}
