//! `kubectl label` and `kubectl annotate`.

use serde_json::json;

use crate::cluster::Cluster;
use crate::fixtures::{WEB, WIDGETS, config_map, widget};

#[test]
fn labels() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(config_map("a", "k", "1") + &widget("w", "size: small") + WEB));
    for (what, name) in
        [("cm/a", "configmap/a"), ("wd/w", "widget.example.com/w"), ("deploy/web", "deployment.apps/web")]
    {
        let label = |change: &str| cluster.kubectl(&format!("label {what} {change}"));
        label("env=dev tier=x").prints(&format!("{name} labeled"));
        label("env=dev").prints(&format!("{name} not labeled"));
        label("env=prod").fails("error: 'env' already has a value (dev), and --overwrite is false");
        label("env=prod --overwrite").prints(&format!("{name} labeled"));
        label("tier-").prints(&format!("{name} unlabeled"));
        label("none-").prints(&format!("label \"none\" not found.\n{name} not labeled"));
        let object = cluster.object(what);
        assert_eq!(object["metadata"]["labels"]["env"], json!("prod"));
        assert_eq!(object["metadata"]["labels"]["tier"], json!(null));
        assert!(object["metadata"]["generation"].is_null() || object["metadata"]["generation"] == 1, "{object:#}");
    }
    cluster.kubectl("label cm --all batch=1").prints("configmap/a labeled");
    cluster.kubectl("label cm -l batch=1 batch-").prints("configmap/a unlabeled");
    cluster.kubectl("label cm a 'bad key=1'").fails(
        "The ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"bad key\": name part must consist of alphanumeric …",
    );
    cluster.kubectl("patch cm a --type=merge -p '{\"metadata\":{\"labels\":{\"x\":\"-\"}}}'").fails(
        "The ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"-\": a valid label must be an empty string or \
         consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. …",
    );
}

#[test]
fn annotations() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(config_map("a", "k", "1") + &widget("w", "size: small")));
    for (what, name) in [("cm/a", "configmap/a"), ("wd/w", "widget.example.com/w")] {
        let annotate = |change: &str| cluster.kubectl(&format!("annotate {what} {change}"));
        annotate("example.com/note='two words' x=1").prints(&format!("{name} annotated"));
        annotate("x=2").fails(
            "error: --overwrite is false but found the following declared annotation(s): 'x' already has a value (1)",
        );
        annotate("x=2 --overwrite").prints(&format!("{name} annotated"));
        annotate("x-").prints(&format!("{name} annotated"));
        let annotations = cluster.object(what)["metadata"]["annotations"].clone();
        assert_eq!(annotations, json!({"example.com/note": "two words"}));
        annotate("x=3 --resource-version=1").fails("Error from server (Conflict): Operation cannot be fulfilled on …");
    }
}
