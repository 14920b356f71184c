//! Sets of children.

use std::sync::Arc;

use konverge_runtime::{Adopt, Applied, Child, Member, Mode, Object, Owner, SET_LABEL, WriteError};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::cluster::{Cluster, config_map, kind, webapp};

struct Family {
    cluster: Cluster,
    owner: Owner,
}

impl Family {
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        let parent = json!({
            "apiVersion": "example.com/v1", "kind": "WebApp",
            "metadata": {"name": "w", "namespace": "default"}, "spec": {},
        });
        let owner = Owner::of(&webapp(), &cluster.create(&webapp(), parent).await).unwrap();
        Self { cluster, owner }
    }

    async fn child(&self, api: ApiResource, config: Value) -> Child {
        let live = self.cluster.see(&api, config["metadata"]["name"].as_str().unwrap()).await;
        let cached = |live: Value| Arc::new(Object::parse(&api, &live.to_string(), Mode::Full).unwrap());
        Child { live: live.map(cached), api, config }
    }

    /// Applies config maps of these names, with all that is there as members.
    async fn apply(&self, set: &str, names: &[&str]) -> (Vec<Applied>, Vec<String>) {
        let mut wanted = Vec::new();
        for name in names {
            let config = json!({"metadata": {"name": name, "namespace": "default"}});
            wanted.push(self.child(config_map(), config).await);
        }
        let members = self.members(&["a", "b", "c", "foreign"]).await;
        let report =
            self.cluster.writer.apply_all(set, &self.owner, Adopt::Always, wanted, &members, |_| ()).await.unwrap();
        (
            report.applied,
            report
                .pruned
                .iter()
                .map(|(member, _)| member.live["metadata"]["name"].as_str().unwrap().to_owned())
                .collect(),
        )
    }

    async fn members(&self, names: &[&str]) -> Vec<Member> {
        let mut members = Vec::new();
        for name in names {
            let live = self.cluster.see(&config_map(), name).await;
            members.extend(live.map(|live| Member { api: config_map(), live }));
        }
        members
    }

    async fn names(&self) -> Vec<String> {
        let members = self.members(&["a", "b", "c", "foreign"]).await;
        members.iter().map(|member| member.live["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn what_is_no_longer_wanted_is_pruned() {
    let family = Family::start().await;
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foreign", "namespace": "default", "labels": {SET_LABEL: "s"}}});
    family.cluster.create(&config_map(), foreign).await;
    let (applied, pruned) = family.apply("s", &["a", "b"]).await;
    assert!(applied.iter().all(|applied| matches!(applied, Applied::Created(_))) && pruned.is_empty());
    assert_eq!(family.cluster.methods(), "PATCH PATCH");

    let (applied, pruned) = family.apply("s", &["a", "b"]).await;
    assert_eq!((applied, pruned.len()), (vec![Applied::Unchanged; 2], 0));
    assert_eq!(family.cluster.methods(), "");

    let (_, pruned) = family.apply("s", &["b", "c"]).await;
    assert_eq!(pruned, ["a"]);
    let sent = family.cluster.sent();
    assert_eq!(sent.iter().map(|sent| sent.method.as_str()).collect::<Vec<_>>(), ["PATCH", "DELETE"]);
    assert!(sent[1].body["preconditions"]["uid"].is_string());
    assert_eq!(family.names().await, ["b", "c", "foreign"]);

    // Another set of the same owner has its own members.
    let (_, pruned) = family.apply("t", &["a"]).await;
    assert!(pruned.is_empty());
    let (_, pruned) = family.apply("s", &[]).await;
    assert_eq!(pruned, ["b", "c"]);
    assert_eq!(family.names().await, ["a", "foreign"]);
}

#[tokio::test]
async fn nothing_is_pruned_unless_all_that_is_wanted_is_there() {
    let family = Family::start().await;
    family.apply("s", &["a", "b"]).await;
    let bad = json!({"metadata": {"name": "b", "namespace": "default", "labels": {"bad label": ""}}});
    let fine = json!({"metadata": {"name": "c", "namespace": "default"}});
    let wanted = vec![family.child(config_map(), bad).await, family.child(config_map(), fine.clone()).await];
    let members = family.members(&["a", "b"]).await;
    let error =
        family.cluster.writer.apply_all("s", &family.owner, Adopt::Always, wanted, &members, |_| ()).await.unwrap_err();
    assert!(matches!(error, WriteError::Invalid { .. }), "{error:?}");
    assert_eq!(family.names().await, ["a", "b", "c"]);

    family.cluster.methods();
    let twice = vec![family.child(config_map(), fine.clone()).await, family.child(config_map(), fine).await];
    let error =
        family.cluster.writer.apply_all("s", &family.owner, Adopt::Always, twice, &members, |_| ()).await.unwrap_err();
    assert_eq!(error.to_string(), "metadata.name: ConfigMap default/c is in the set twice");
    assert_eq!(family.cluster.methods(), "");
}

/// A child outside of the owner's namespace cannot refer to it, so its labels do.
#[tokio::test]
async fn children_elsewhere_are_found_by_their_labels() {
    let family = Family::start().await;
    let role = kind("rbac.authorization.k8s.io", "v1", "ClusterRole");
    let child = family.child(role.clone(), json!({"metadata": {"name": "r"}, "rules": []})).await;
    let writer = &family.cluster.writer;
    writer.apply_all("s", &family.owner, Adopt::Always, vec![child], &[], |_| ()).await.unwrap();
    let live = family.cluster.see(&role, "r").await.unwrap();
    assert_eq!(live["metadata"].get("ownerReferences"), None);
    let members = [Member { api: role.clone(), live }];
    let report = writer.apply_all("s", &family.owner, Adopt::Always, Vec::new(), &members, |_| ()).await.unwrap();
    assert_eq!(report.pruned.len(), 1);
    assert!(family.cluster.see(&role, "r").await.is_none());
}
