//! What goes when its owner or its namespace goes.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{WIDGETS, config_map, widget};

/// Creates a ConfigMap that a Widget owns.
fn own(cluster: &Cluster, name: &str, owner: &str, block: bool) {
    let uid = cluster.object(&format!("wd {owner}"))["metadata"]["uid"].clone();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [
        {"apiVersion": "example.com/v1", "kind": "Widget", "name": owner, "uid": uid, "blockOwnerDeletion": block},
    ]}});
    cluster.create(&object.to_string());
}

#[test]
fn background_orphan_foreground() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(widget("w", "size: small") + &widget("o", "size: small") + &widget("f", "size: small")));
    cluster.create(&config_map("free", "k", "1"));
    for (name, owner) in [("w1", "w"), ("w2", "w"), ("o1", "o"), ("f1", "f")] {
        own(&cluster, name, owner, true);
    }

    cluster.kubectl("delete wd w").prints("widget.example.com \"w\" deleted …");
    cluster.kubectl("wait --for=delete cm/w1 cm/w2 --timeout=30s").succeeds();

    cluster.kubectl("delete wd o --cascade=orphan").prints("widget.example.com \"o\" deleted …");
    cluster.kubectl("get wd o").fails("Error from server (NotFound): widgets.example.com \"o\" not found");
    expect::has(&cluster.object("cm o1"), &json!({"metadata": {"ownerReferences": null}}));

    // In the foreground the owner stays until what depends on it is gone.
    cluster.kubectl("patch cm f1 --type=merge -p '{\"metadata\":{\"finalizers\":[\"example.com/hold\"]}}'").succeeds();
    cluster.kubectl("delete wd f --cascade=foreground --wait=false").prints("widget.example.com \"f\" deleted …");
    expect::has(&cluster.object("wd f"), &json!({"metadata": {"finalizers": ["foregroundDeletion"]}}));
    cluster.kubectl("wait --for=jsonpath={.metadata.deletionTimestamp} cm/f1 --timeout=30s").succeeds();
    cluster.kubectl("get wd f -o name").prints("widget.example.com/f");
    cluster.kubectl("patch cm f1 --type=merge -p '{\"metadata\":{\"finalizers\":null}}'").succeeds();
    cluster.kubectl("wait --for=delete wd/f --timeout=30s").succeeds();
    cluster.kubectl("get cm -o name").prints("configmap/free\nconfigmap/o1");
}

#[test]
fn namespaces_take_their_content_along() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(&format!("{WIDGETS}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: team}}"));
    let held = config_map("held", "k", "1").replace("{name: held}", "{name: held, finalizers: [example.com/hold]}");
    let content = config_map("a", "k", "1") + &widget("w", "size: small") + &held;
    cluster.kubectl("create -n team -f -").input(&content).succeeds();
    cluster.kubectl("delete ns team --wait=false").prints("namespace \"team\" deleted");
    cluster.kubectl("wait -n team --for=delete cm/a wd/w --timeout=30s").succeeds();
    cluster.kubectl("get ns team").prints("NAME STATUS AGE\nteam Terminating *s");
    cluster.kubectl("create -n team -f -").input(&config_map("late", "k", "1")).fails(
        "Error from server (Forbidden): error when creating \"STDIN\": configmaps \"late\" is forbidden: unable to create new \
         content in namespace team because it is being terminated",
    );
    cluster.kubectl("patch cm held -n team --type=merge -p '{\"metadata\":{\"finalizers\":null}}'").succeeds();
    cluster.kubectl("wait --for=delete ns/team --timeout=30s").succeeds();
    cluster.kubectl("get ns team").fails("Error from server (NotFound): namespaces \"team\" not found");
}
