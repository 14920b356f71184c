//! `--subresource=status`: the status is written apart from everything else, and everything else apart from it.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{REGIONS, WEB, WIDGETS, widget};

#[test]
fn status() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(WEB.to_owned() + &widget("w", "size: small")));
    let both = json!({"spec": {"replicas": 3}, "status": {"replicas": 3}});
    for (what, name, found) in [("deploy/web", "deployment.apps/web", 2), ("wd/w", "widget.example.com/w", 1)] {
        cluster
            .kubectl(&format!("patch {what} --subresource=status --type=merge -p '{both}'"))
            .prints(&format!("{name} patched"));
        expect::has(
            &cluster.object(what),
            &json!({"spec": {"replicas": found}, "status": {"replicas": 3}, "metadata": {"generation": 1}}),
        );
        let other = json!({"spec": {"replicas": 5}, "status": {"replicas": 9}});
        cluster.kubectl(&format!("patch {what} --type=merge -p '{other}'")).prints(&format!("{name} patched"));
        expect::has(
            &cluster.object(what),
            &json!({"spec": {"replicas": 5}, "status": {"replicas": 3}, "metadata": {"generation": 2}}),
        );
        cluster.kubectl(&format!("get {what} --subresource=status -o jsonpath={{.status.replicas}}")).prints("3");
        let object = cluster.object(what);
        let managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let status = managers.iter().find(|entry| entry["subresource"] == "status").cloned().unwrap_or_default();
        assert_eq!(status["fieldsV1"]["f:status"]["f:replicas"], json!({}), "{object:#}");
        assert!(status["fieldsV1"]["f:spec"].is_null(), "{object:#}");
        let mut replaced = object.clone();
        replaced["status"]["replicas"] = 4.into();
        replaced["spec"]["replicas"] = 7.into();
        cluster
            .kubectl("replace --subresource=status -f -")
            .input(&replaced.to_string())
            .prints(&format!("{name} replaced"));
        expect::has(&cluster.object(what), &json!({"spec": {"replicas": 5}, "status": {"replicas": 4}}));
    }
    cluster.kubectl("get wd --subresource=status w").prints(
        "NAME  SIZE   REPLICAS  PHASE  AGE
         w     small  5                *s",
    );
    // A status is not taken from a manifest that creates.
    cluster.create(
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: x}\nspec: {size: small}\nstatus: {phase: Odd}\n",
    );
    expect::has(&cluster.object("wd x"), &json!({"status": null}));
    // It is checked like the rest.
    cluster.kubectl("patch wd w --subresource=status --type=merge -p '{\"status\":{\"phase\":7}}'").fails(
        "The Widget \"w\" is invalid: status.phase: Invalid value: \"integer\": status.phase in body must be of type string: \"integer\"",
    );
}

#[test]
fn without_a_status_of_its_own() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(REGIONS);
    cluster.create("---\napiVersion: example.com/v1\nkind: Region\nmetadata: {name: north}\nstatus: {phase: New}\n");
    expect::has(&cluster.object("region north"), &json!({"status": {"phase": "New"}, "metadata": {"generation": 1}}));
    cluster
        .kubectl("patch region north --type=merge -p '{\"status\":{\"phase\":\"Old\"}}'")
        .prints("region.example.com/north patched");
    expect::has(&cluster.object("region north"), &json!({"status": {"phase": "Old"}, "metadata": {"generation": 2}}));
    cluster
        .kubectl("patch region north --subresource=status --type=merge -p '{\"status\":{\"phase\":\"No\"}}'")
        .fails("Error from server (NotFound): regions.example.com \"north\" not found");
}
