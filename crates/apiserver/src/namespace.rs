//! What is special about namespaces: their finalizers and phases, and the four that every cluster has, which are created at the
//! start.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use konverge_core::Status;
use konverge_store::{CommitError, Condition, Entry};

use crate::commit::create_missing;
use crate::resource::Resource;
use crate::server::Server;
use crate::{meta, record};

/// The namespaces that every cluster has.
const INITIAL: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The finalizer that stands for the namespace's content.
const CONTENT: &str = "kubernetes";

fn is_namespace(resource: &Resource) -> bool {
    resource.group.is_empty() && &*resource.plural == "namespaces"
}

/// Creates the namespaces that every cluster has.
pub(crate) async fn create_initial(server: &Server) -> Result<(), CommitError> {
    let resource = &server.registry.find("", "v1", "namespaces").expect("namespaces are built in");
    let objects = INITIAL.map(|name| {
        let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        prepare(resource, None, &mut object);
        object["status"]["phase"] = "Active".into();
        object
    });
    create_missing(server, resource, objects).await
}

/// Sets what every namespace carries: the label of its name, and when it is new the finalizer of its content.
pub(crate) fn prepare(resource: &Resource, old: Option<&Value>, object: &mut Value) {
    if !is_namespace(resource) {
        return;
    }
    let name = meta::text(object, "name").to_owned();
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
    if old.is_none() {
        let finalizers = &mut object["spec"]["finalizers"];
        match finalizers.as_array_mut() {
            Some(finalizers) if finalizers.iter().any(|name| name == CONTENT) => {}
            Some(finalizers) => finalizers.push(CONTENT.into()),
            None => *finalizers = json!([CONTENT]),
        }
    }
}

/// Marks a namespace whose deletion has begun.
pub(crate) fn terminate(resource: &Resource, object: &mut Value) {
    if is_namespace(resource) {
        object["status"]["phase"] = "Terminating".into();
        // Namespaces have no grace period, not even one of no seconds.
        object["metadata"].as_object_mut().map(|metadata| metadata.remove("deletionGracePeriodSeconds"));
    }
}

/// Whether the finalizers in a namespace's spec are gone.
pub(crate) fn is_finalized(resource: &Resource, object: &Value) -> bool {
    !is_namespace(resource) || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

/// The condition that a namespace stays as it is, and whether it is being deleted; `None` if it does not exist.
pub(crate) fn find(server: &Server, name: &str) -> Result<Option<(Condition, bool)>, Status> {
    let namespaces = server.registry.find("", "v1", "namespaces").expect("namespaces are built in");
    let found = server.store.get(&namespaces.key(None, name), None).map_err(Status::internal)?;
    Ok(found.map(|entry| {
        let terminating = is_going(&entry);
        (Condition::Unchanged(entry.key, entry.revision), terminating)
    }))
}

/// Whether a namespace is being deleted. Parses as little as it can, because every create asks.
fn is_going(namespace: &Entry) -> bool {
    #[derive(Default, Deserialize)]
    struct Namespace {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        deletion_timestamp: Option<IgnoredAny>,
    }
    if !record::mentions(&namespace.value, record::DELETION_TIMESTAMP) {
        return false;
    }
    let stored: Namespace = serde_json::from_slice(&namespace.value).expect("the store holds only what encode wrote");
    stored.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use konverge_store::Revision;

    use super::*;

    #[test]
    fn a_namespace_goes_once_it_has_a_deletion_timestamp() {
        for (metadata, expect) in [
            (json!({"name": "a"}), false),
            (json!({"name": "a", "deletionTimestamp": null}), false),
            (json!({"name": "a", "labels": {"deletionTimestamp": "x"}}), false),
            (json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}), true),
        ] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "status": {}});
            let (key, value) = ("/a".into(), record::encode(&object));
            let entry = Entry { key, value, revision: Revision(1), created: Revision(1) };
            assert_eq!(is_going(&entry), expect, "{metadata}");
            assert_eq!(is_going(&entry), meta::is_terminating(&record::decode(&entry)), "{metadata}");
        }
    }
}
