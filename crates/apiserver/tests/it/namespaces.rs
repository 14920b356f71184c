//! Namespaces: their content, what cannot be created in them, and their deletion.

use serde_json::json;

use konverge_apiserver::{ApiServer, Collector, Options};

use crate::cluster::{AT_MOST, CONFIG_MAPS, Cluster, MERGE, NAMESPACES, config_map, names};

#[tokio::test]
async fn some_are_always_there() {
    let cluster = Cluster::new().await;
    let list = cluster.get(NAMESPACES).await.expect(200);
    assert_eq!(names(&list), ["default", "kube-node-lease", "kube-public", "kube-system"]);
    for item in list["items"].as_array().unwrap() {
        assert_eq!(item["status"]["phase"], "Active");
        assert_eq!(item["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(item["metadata"]["labels"]["kubernetes.io/metadata.name"], item["metadata"]["name"]);
    }
    for (name, code) in [("default", 403), ("kube-system", 403), ("kube-public", 403), ("kube-node-lease", 200)] {
        assert_eq!(cluster.delete(&format!("{NAMESPACES}/{name}")).await.code, code, "{name}");
    }
}

#[tokio::test]
async fn only_finalize_changes_the_finalizers() {
    let cluster = Cluster::new().await;
    let team = json!({"metadata": {"name": "team"}, "spec": {"finalizers": ["example.com/mine"]}});
    let both = json!(["example.com/mine", "kubernetes"]);
    assert_eq!(cluster.post(NAMESPACES, &team).await.expect(201)["spec"]["finalizers"], both);
    let path = format!("{NAMESPACES}/team");
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"finalizers": ["example.com/other"]}});
    assert_eq!(cluster.patch(&path, MERGE, &patch).await.expect(200)["spec"]["finalizers"], both);
    let replaced = cluster.put(&path, &json!({"metadata": {"name": "team"}})).await.expect(200);
    assert_eq!(replaced["spec"]["finalizers"], both);
    let ends = json!({"status": {"phase": "Terminating"}});
    let refused = cluster.patch(&format!("{path}/status"), MERGE, &ends).await;
    assert_eq!(
        refused.fails(422, "Invalid"),
        "Namespace \"team\" is invalid: status.Phase: Invalid value: \"Terminating\": may only be 'Active' if \
         `deletionTimestamp` is empty"
    );
    cluster.delete(&path).await.expect(200);
    let none = json!({"spec": {"finalizers": []}});
    assert_eq!(cluster.patch(&path, MERGE, &none).await.expect(200)["spec"]["finalizers"], both);
}

#[tokio::test]
async fn nothing_is_created_where_nothing_is() {
    let cluster = Cluster::new().await;
    let nowhere = "/api/v1/namespaces/nowhere/configmaps";
    assert_eq!(
        cluster.post(nowhere, &config_map("a")).await.fails(404, "NotFound"),
        "namespaces \"nowhere\" not found"
    );
    cluster.post(&format!("{nowhere}?dryRun=All"), &config_map("a")).await.fails(404, "NotFound");
    assert_eq!(names(&cluster.get(nowhere).await.expect(200)).len(), 0, "but one may look");
    cluster.delete(nowhere).await.expect(200);
    cluster.get(&format!("{nowhere}/a")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn a_namespace_that_goes() {
    let cluster = Cluster::new().await;
    cluster.post(NAMESPACES, &json!({"metadata": {"name": "team"}})).await.expect(201);
    let maps = "/api/v1/namespaces/team/configmaps";
    let made = cluster.post(maps, &config_map("a")).await.expect(201);
    let going = cluster.delete(&format!("{NAMESPACES}/team")).await.expect(200);
    assert_eq!(going["status"]["phase"], "Terminating");
    assert!(going["metadata"]["deletionTimestamp"].is_string());

    let refused = cluster.post(maps, &config_map("b")).await;
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "configmaps \"b\" is forbidden: unable to create new content in namespace team because it is being terminated"
    );
    assert_eq!(
        refused.json()["details"],
        json!({"name": "b", "kind": "configmaps", "causes": [{
            "reason": "NamespaceTerminating", "message": "namespace team is being terminated",
            "field": "metadata.namespace",
        }]})
    );
    let apply = config_map("c");
    cluster.patch(&format!("{maps}/c?fieldManager=me"), crate::cluster::APPLY, &apply).await.fails(403, "Forbidden");
    // What is there can still be changed, and deleted.
    let mut changed = made;
    changed["data"] = json!({"k": "w"});
    cluster.put(&format!("{maps}/a"), &changed).await.expect(200);
    cluster.delete(&format!("{maps}/a")).await.expect(200);

    let mut finalized = going.clone();
    finalized["spec"]["finalizers"] = json!([]);
    cluster.put(&format!("{NAMESPACES}/team/finalize"), &finalized).await.expect(200);
    cluster.get(&format!("{NAMESPACES}/team")).await.fails(404, "NotFound");
}

/// If the namespace is deleted between the check and the commit, no object is left behind in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind_in_a_namespace_that_went() {
    let options = Options { collector: Collector::Inside, ..Options::default() };
    let server = ApiServer::open(options).await.unwrap();
    let cluster = std::sync::Arc::new(Cluster { server, ..Cluster::new().await });
    for round in 0..20 {
        let name = format!("team-{round}");
        cluster.post(NAMESPACES, &json!({"metadata": {"name": name}})).await.expect(201);
        let path = format!("{NAMESPACES}/{name}/configmaps");
        let writing = (0..3).map(|writer| {
            let (cluster, path) = (cluster.clone(), path.clone());
            tokio::spawn(async move {
                for at in 0.. {
                    if cluster.post(&path, &config_map(&format!("m{writer}-{at}"))).await.code != 201 {
                        return;
                    }
                }
            })
        });
        let writing: Vec<_> = writing.collect();
        tokio::task::yield_now().await;
        cluster.delete(&format!("{NAMESPACES}/{name}")).await.expect(200);
        for writer in writing {
            writer.await.unwrap();
        }
        let gone = async {
            while cluster.get(&format!("{NAMESPACES}/{name}")).await.code != 404 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(AT_MOST, gone).await.expect("the namespace should go");
        assert_eq!(names(&cluster.get(&path).await.expect(200)).len(), 0, "{name}");
    }
    cluster.post(CONFIG_MAPS, &config_map("elsewhere")).await.expect(201);
}

/// With any propagation policy, a namespace is deleted with its content.
#[tokio::test]
async fn a_namespace_goes_by_every_policy() {
    let server = ApiServer::open(Options::default()).await.unwrap();
    let cluster = Cluster { server, ..Cluster::new().await };
    for policy in ["Background", "Foreground", "Orphan"] {
        let name = policy.to_lowercase();
        let made = cluster.post(NAMESPACES, &json!({"metadata": {"name": name}})).await.expect(201);
        cluster.post(&format!("{NAMESPACES}/{name}/configmaps"), &config_map("inside")).await.expect(201);
        // A namespace of its own, which only has the other as its owner.
        let mut owned = json!({"metadata": {"name": format!("of-{name}")}});
        owned["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": made["metadata"]["uid"]}]);
        cluster.post(NAMESPACES, &owned).await.expect(201);
        cluster.delete(&format!("{NAMESPACES}/{name}?propagationPolicy={policy}")).await.expect(200);
        let settled = async {
            while cluster.get(&format!("{NAMESPACES}/{name}")).await.code != 404
                || (cluster.get(&format!("{NAMESPACES}/of-{name}")).await.code == 404) != (policy != "Orphan")
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(AT_MOST, settled).await.unwrap_or_else(|_| panic!("{policy}: the namespace should go"));
    }
}
