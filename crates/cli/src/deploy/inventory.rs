//! What a deploy made, kept in a ConfigMap beside the operator. In: objects. Out: which of them an earlier deploy had. Without this list nobody
//! would know of an object whose kind is not deployed any more.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{DeployError, ownership};
use crate::description::{DeployTarget, text};
use crate::remote_cluster::{ApplyOptions, RemoteCluster, RemoteError};

/// The key with the list.
const KEY: &str = "objects";

/// Objects by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inventory(BTreeSet<Entry>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    api_version: String,
    kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
}

impl Inventory {
    /// The list of these objects.
    pub(crate) fn of(objects: &[Value]) -> Self {
        let entry = |object: &Value| Entry {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        };
        Self(objects.iter().map(entry).collect())
    }

    /// The list of the deployment in the cluster; empty if there is none.
    pub(crate) async fn read(cluster: &RemoteCluster, target: &DeployTarget) -> Result<Self, DeployError> {
        let (name, path) = (list_name(target), list_path(target));
        let Some(found) = cluster.get(&path).await? else { return Ok(Self::default()) };
        let list = text(&found["data"][KEY]);
        let entries = serde_json::from_str(&list).map_err(|error| DeployError::Inventory(name, error.to_string()))?;
        Ok(Self(entries))
    }

    /// Writes the list.
    pub(crate) async fn write(
        &self,
        cluster: &RemoteCluster,
        target: &DeployTarget,
        manager: &str,
    ) -> Result<(), RemoteError> {
        let list = serde_json::to_string(&self.0).expect("names are JSON");
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": list_name(target), "namespace": target.namespace},
            "data": {KEY: list},
        });
        ownership::mark(&mut object, target);
        cluster.apply(&object, ApplyOptions { manager, force: true, dry_run: false }).await.map(drop)
    }

    /// Both lists.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).cloned().collect())
    }

    /// The objects, as far as they are known, that the other list does not have. Another version of an API has the same objects.
    pub(crate) fn without(&self, other: &Self) -> Vec<Value> {
        let group = |entry: &Entry| entry.api_version.rsplit_once('/').map(|(group, _)| group.to_owned());
        let is_same = |one: &Entry, two: &Entry| {
            group(one) == group(two) && (&one.kind, &one.namespace, &one.name) == (&two.kind, &two.namespace, &two.name)
        };
        self.0.iter().filter(|entry| !other.0.iter().any(|other| is_same(entry, other))).map(Entry::object).collect()
    }

    /// The objects, as far as they are known.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.0.iter().map(Entry::object).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Entry {
    fn object(&self) -> Value {
        let mut object = json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": self.name}});
        if !self.namespace.is_empty() {
            object["metadata"]["namespace"] = self.namespace.as_str().into();
        }
        object
    }
}

/// The name of the ConfigMap.
pub(crate) fn list_name(target: &DeployTarget) -> String {
    format!("konverge-deploy-{}", target.name)
}

/// The path of the ConfigMap.
pub(crate) fn list_path(target: &DeployTarget) -> String {
    format!("/api/v1/namespaces/{}/configmaps/{}", target.namespace, list_name(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_an_earlier_deploy() {
        let object = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "a"}});
        let before = Inventory::of(&[
            object("v1", "Service", "x"),
            object("policy/v1beta1", "PodDisruptionBudget", "x"),
            object("v1", "Secret", "x"),
        ]);
        let now = Inventory::of(&[object("v1", "Service", "x"), object("policy/v1", "PodDisruptionBudget", "x")]);
        assert_eq!(before.without(&now), [object("v1", "Secret", "x")]);
        assert_eq!(now.without(&before), Vec::<Value>::new());
        assert_eq!(before.and(&now).objects().len(), 4);
    }
}
