//! `kubectl get -w`: what is there, and then every change in order.

use crate::cluster::Cluster;
use crate::fixtures::{WIDGETS, config_map, widget};

#[test]
fn changes_are_seen_in_order() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(config_map("a", "k", "1") + &widget("w", "size: small")));

    let mut config_maps = cluster.kubectl("get cm -w --output-watch-events").follow();
    config_maps.next("EVENT NAME DATA AGE");
    config_maps.next("ADDED a 1 *s");
    let mut widgets = cluster.kubectl("get wd -w --output-watch-events").follow();
    widgets.next("EVENT NAME SIZE REPLICAS PHASE AGE");
    widgets.next("ADDED w small 1 *s");
    let mut objects = cluster.kubectl("get wd w -w -o jsonpath='{.spec.replicas}:{.status.phase}{\"\\n\"}'").follow();
    objects.next("1:");
    let mut labelled = cluster.kubectl("get cm -w -l env=dev --output-watch-events --no-headers").follow();

    cluster.create(&config_map("b", "k", "1"));
    cluster.kubectl("patch cm b --type=merge -p '{\"data\":{\"l\":\"2\"}}'").succeeds();
    // What comes to match appears; what ceases to match goes.
    cluster.kubectl("label cm b env=dev").succeeds();
    labelled.next("ADDED b 2 *s");
    cluster.kubectl("label cm b env-").succeeds();
    labelled.next("DELETED b 2 *s");
    cluster.kubectl("delete cm b").succeeds();
    for expect in ["ADDED b 1 *s", "MODIFIED b 2 *s", "MODIFIED b 2 *s", "MODIFIED b 2 *s", "DELETED b 2 *s"] {
        config_maps.next(expect);
    }

    cluster.kubectl("scale wd w --replicas=4").succeeds();
    cluster.kubectl("patch wd w --subresource=status --type=merge -p '{\"status\":{\"phase\":\"Ready\"}}'").succeeds();
    cluster.kubectl("delete wd w").succeeds();
    widgets.next("MODIFIED w small 4 *s");
    widgets.next("MODIFIED w small 4 Ready *s");
    widgets.next("DELETED w small 4 Ready *s");
    objects.next("4:");
    objects.next("4:Ready");
}

#[test]
fn selectable_fields_and_new_objects_only() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(widget("r", "size: small, color: red") + &widget("g", "size: small, color: green")));
    let mut red =
        cluster.kubectl("get wd -w --field-selector spec.color=red --output-watch-events --no-headers").follow();
    red.next("ADDED r small 1 *s");
    // A change that makes no difference is no change.
    cluster
        .kubectl("patch wd r --type=merge -p '{\"spec\":{\"size\":\"small\"}}'")
        .prints("widget.example.com/r patched (no change)");
    cluster.kubectl("patch wd g --type=merge -p '{\"spec\":{\"color\":\"red\"}}'").succeeds();
    red.next("ADDED g small 1 *s");
    cluster.kubectl("patch wd r --type=merge -p '{\"spec\":{\"color\":\"green\"}}'").succeeds();
    red.next("DELETED r small 1 *s");
}
