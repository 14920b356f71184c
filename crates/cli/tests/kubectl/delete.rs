//! `kubectl delete`: what goes, what is held, and by whom.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{WIDGETS, config_map, widget};

#[test]
fn selections() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let labelled =
        |name: &str| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: x}}}}\n");
    cluster.create(&(config_map("a", "k", "1") + &config_map("b", "k", "1") + &labelled("x1") + &labelled("x2")));
    cluster.create(&(widget("w", "size: small") + &widget("x", "size: large, color: red")));
    cluster.kubectl("delete cm a --dry-run=server").prints("configmap \"a\" deleted … ");
    cluster.kubectl("delete cm a").prints("configmap \"a\" deleted …");
    cluster.kubectl("delete cm a").fails("Error from server (NotFound): configmaps \"a\" not found");
    cluster.kubectl("delete cm a --ignore-not-found").prints("");
    cluster.kubectl("delete cm -l set=x").prints("configmap \"x1\" deleted …\nconfigmap \"x2\" deleted …");
    cluster.kubectl("delete wd --field-selector spec.color=red").prints("widget.example.com \"x\" deleted …");
    cluster.kubectl("delete -f -").input(&widget("w", "")).prints("widget.example.com \"w\" deleted …");
    cluster.kubectl("delete cm --all --now").prints("configmap \"b\" deleted …");
    cluster.kubectl("delete cm --all").prints("No resources found");
    cluster
        .kubectl("delete ns default")
        .fails("Error from server (Forbidden): namespaces \"default\" is forbidden: this namespace may not be deleted");
    // The whole collection in one request.
    cluster.create(&(config_map("a", "k", "1") + &labelled("x1")));
    cluster.kubectl("delete --raw /api/v1/namespaces/default/configmaps?labelSelector=set%3Dx").succeeds();
    cluster.kubectl("get cm -o name").prints("configmap/a");
}

#[test]
fn finalizers_hold() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let held = widget("w", "size: small").replace("{name: w}", "{name: w, finalizers: [example.com/hold]}");
    cluster.create(&held);
    cluster.kubectl("delete wd w --wait=false").prints("widget.example.com \"w\" deleted …");
    let object = cluster.object("wd w");
    assert!(object["metadata"]["deletionTimestamp"].is_string(), "{object:#}");
    expect::has(&object, &json!({"metadata": {"deletionGracePeriodSeconds": 0, "generation": 2}}));
    // Again changes nothing; a new finalizer comes too late.
    cluster.kubectl("delete wd w --wait=false").prints("widget.example.com \"w\" deleted …");
    assert_eq!(cluster.object("wd w")["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"]);
    cluster
        .kubectl("patch wd w --type=json -p '[{\"op\":\"add\",\"path\":\"/metadata/finalizers/-\",\"value\":\"example.com/more\"}]'")
        .fails(
            "The Widget \"w\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
             being deleted, found new finalizers []string{\"example.com/more\"}",
        );
    // Others may still write to it, and kubectl waits until the last one lets go.
    cluster.kubectl("label wd w going=yes").prints("widget.example.com/w labeled");
    let mut waiting = cluster.kubectl("delete wd w").follow();
    waiting.next("widget.example.com \"w\" deleted …");
    let mut gone = cluster.kubectl("get wd w -w --output-watch-events --no-headers").follow();
    gone.next("ADDED w small 1 *s");
    cluster
        .kubectl("patch wd w --type=merge -p '{\"metadata\":{\"finalizers\":null}}'")
        .prints("widget.example.com/w patched");
    gone.next("DELETED w small 1 *s");
    waiting.ends();
    cluster.kubectl("get wd w").fails("Error from server (NotFound): widgets.example.com \"w\" not found");
}

#[test]
fn grace() {
    let Some(cluster) = Cluster::start() else { return };
    let pod = |name: &str, node: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{{node} containers: [{{name: c, image: busybox}}]}}\n"
        )
    };
    cluster.create(&(pod("placed", "nodeName: n1,") + &pod("waiting", "") + &pod("forced", "nodeName: n1,")));
    // Somebody runs it, so it has its time to end.
    cluster.kubectl("delete pod placed --wait=false").prints("pod \"placed\" deleted …");
    expect::has(&cluster.object("pod placed"), &json!({"metadata": {"deletionGracePeriodSeconds": 30}}));
    cluster.kubectl("delete pod placed --wait=false --grace-period=5").succeeds();
    expect::has(&cluster.object("pod placed"), &json!({"metadata": {"deletionGracePeriodSeconds": 5}}));
    // Nobody runs it, so nobody is asked.
    cluster.kubectl("delete pod waiting").prints("pod \"waiting\" deleted …");
    cluster.kubectl("delete pod forced placed --grace-period=0 --force").warns(
        "pod \"forced\" force deleted …\npod \"placed\" force deleted …",
        "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. The \
         resource may continue to run on the cluster indefinitely.",
    );
    cluster.kubectl("get pods").warns("", "No resources found in default namespace.");
}
