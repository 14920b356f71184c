//! `kubectl scale`: Deployments, and custom resources that say where their replicas are.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{REGIONS, WEB, WIDGETS, widget};

#[test]
fn scale() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(&format!("{WIDGETS}{REGIONS}"));
    cluster.create(&(WEB.to_owned() + &widget("w", "size: small")));
    cluster.create("---\napiVersion: example.com/v1\nkind: Region\nmetadata: {name: north}");
    for (what, name, full, found) in
        [("deploy/web", "web", "deployment.apps/web", 2), ("wd/w", "w", "widget.example.com/w", 1)]
    {
        cluster.kubectl(&format!("scale {what} --replicas=4")).prints(&format!("{full} scaled"));
        expect::has(&cluster.object(what), &json!({"spec": {"replicas": 4}, "metadata": {"generation": 2}}));
        cluster.kubectl(&format!("scale {what} --current-replicas=4 --replicas=3")).prints(&format!("{full} scaled"));
        cluster
            .kubectl(&format!("scale {what} --current-replicas=9 --replicas={found}"))
            .fails("error: Expected replicas to be 9, was 3");
        let view = cluster.kubectl(&format!("get {what} --subresource=scale -o json")).json();
        expect::has(
            &view,
            &json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name, "namespace": "default"},
                "spec": {"replicas": 3}, "status": {"replicas": 0},
            }),
        );
        cluster
            .kubectl(&format!("patch {what} --subresource=scale --type=merge -p '{{\"spec\":{{\"replicas\":0}}}}'"))
            .prints("scale.autoscaling/* patched");
        expect::has(&cluster.object(what), &json!({"spec": {"replicas": 0}}));
    }
    // What counts the replicas is in charge of their number.
    let object = cluster.object("deploy web");
    let managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let scaled = managers.iter().find(|entry| entry["subresource"] == "scale");
    assert_eq!(scaled.map(|entry| &entry["fieldsV1"]), Some(&json!({"f:spec": {"f:replicas": {}}})), "{object:#}");

    // The selector and the number observed come from where the definition says.
    let status = json!({"status": {"replicas": 2, "selector": "app=w"}});
    cluster.kubectl(&format!("patch wd w --subresource=status --type=merge -p '{status}'")).succeeds();
    let view = cluster.kubectl("get wd w --subresource=scale -o json").json();
    expect::has(&view, &json!({"status": {"replicas": 2, "selector": "app=w"}}));

    cluster.kubectl("scale wd/w --replicas=11").fails(
        "The Widget \"w\" is invalid: spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10",
    );
    cluster
        .kubectl("scale deploy/web --replicas=-1")
        .fails("error: The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0");
    cluster
        .kubectl("scale region/north --replicas=2")
        .fails("Error from server (NotFound): regions.example.com \"north\" not found");
    cluster
        .kubectl("scale deploy/none --replicas=2")
        .fails("error: no objects passed to scale deployments.apps \"none\" not found");
    cluster
        .kubectl("scale deploy --all --replicas=5 --dry-run=server")
        .prints("deployment.apps/web scaled (server dry run)");
    expect::has(&cluster.object("deploy web"), &json!({"spec": {"replicas": 0}}));
}
