//! Binding: a scheduler decides on which node a pod runs. In: a `Binding`. Out: the pod with its node and the condition
//! `PodScheduled`; a pod that has a node already, or must not get one yet, is a conflict.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use konverge_core::{FieldError, FieldPath, Status};

use super::{Metadata, SentKind, admit, read, receive};
use crate::conditions;
use crate::decode::Decoded;
use crate::env::rfc3339;
use crate::meta;
use crate::write::WriteRequest;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Binding {
    target: Target,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Target {
    kind: String,
    name: String,
}

impl SentKind for Binding {
    const TYPE: &str = "io.k8s.api.core.v1.Binding";
}

/// Binds a pod to a node. Plugins are asked about the request that the client sent, which may be about `bindings`.
pub(crate) async fn bind(
    write: &WriteRequest<'_>,
    asked: &WriteRequest<'_>,
    name: &str,
    sent: Decoded,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let object = receive::<Binding>(write, name, sent, warnings)?;
    let value = admit(asked, name, object, warnings).await?;
    let sent = read::<Binding>(write, name, value)?;
    check(&sent.rest.target)?;
    let now = rfc3339(write.server.env.now());
    write.modify_unmanaged(name, |pod| bound(pod, &sent.metadata, &sent.rest.target.name, &now)).await?;
    Ok(())
}

fn check(target: &Target) -> Result<(), Status> {
    let path = FieldPath::new("target");
    let mut errors = Vec::new();
    if !matches!(&*target.kind, "" | "Node") {
        let known = ["Node", "<empty>"];
        errors.push(FieldError::not_supported(path.child("kind"), target.kind.as_str().into(), known));
    }
    if target.name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        // kube-apiserver does not make a 422 of these.
        [one] => Err(Status::failure(500, "", one)),
        many => Err(Status::failure(500, "", format!("[{}]", many.join(", ")))),
    }
}

/// The pod with its node.
fn bound(pod: &Value, wanted: &Metadata, node: &str, now: &str) -> Result<Value, Status> {
    let name = meta::text(pod, "name");
    for (what, given, field) in
        [("UID", &wanted.uid, "uid"), ("ResourceVersion", &wanted.resource_version, "resourceVersion")]
    {
        let found = meta::text(pod, field);
        if !given.is_empty() && given != found {
            let why = format!("Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}");
            return Err(Status::conflict("", "pods", name, &why));
        }
    }
    let refused = |why: &str| Err(Status::conflict("", "pods/binding", name, why));
    if meta::is_terminating(pod) {
        return refused(&format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return refused(&format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return refused(&format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = node.into();
    for (field, added) in [("annotations", &wanted.annotations), ("labels", &wanted.labels)] {
        let Some(added) = added.as_ref().filter(|added| !added.is_empty()) else { continue };
        let fields = meta::of_mut(&mut pod).entry(field).or_insert_with(|| Map::new().into());
        fields.as_object_mut().into_iter().for_each(|fields| fields.extend(added.clone()));
    }
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    conditions::set(&mut pod["status"]["conditions"], json!({"type": "PodScheduled", "status": "True"}), now);
    Ok(pod)
}
