//! `kubectl apply` as clients do it: the last applied manifest travels in an annotation, and a patch is made from it.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{WEB, WIDGETS, config_map, widget};

#[test]
fn again_and_with_a_field_less() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let two = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: z}}\ndata: {k: \"1\", l: \"2\"}\n";
    cluster.kubectl("apply -f -").input(two).prints("configmap/a created");
    let version = cluster.object("cm a")["metadata"]["resourceVersion"].clone();
    cluster.kubectl("apply -f -").input(two).prints("configmap/a unchanged");
    assert_eq!(cluster.object("cm a")["metadata"]["resourceVersion"], version);
    // Somebody else's field stays, a field that was applied and is no longer goes.
    cluster.kubectl("patch cm a --type=merge -p '{\"data\":{\"other\":\"3\"}}'").succeeds();
    cluster.kubectl("apply -f -").input(&config_map("a", "k", "5")).prints("configmap/a configured");
    let object = cluster.object("cm a");
    assert_eq!(object["data"], json!({"k": "5", "other": "3"}));
    expect::has(&object, &json!({"metadata": {"labels": null}}));
    let last = object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].as_str();
    assert!(last.is_some_and(|text| text.contains("\"k\":\"5\"")), "{object}");
    let managers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let managers: Vec<&str> = managers.filter_map(|entry| entry["manager"].as_str()).collect();
    assert!(managers.contains(&"kubectl-client-side-apply") && managers.contains(&"kubectl-patch"), "{managers:?}");

    let (small, large) = (widget("w", "size: small, note: hello, tags: [a]"), widget("w", "size: large, tags: [b]"));
    cluster.kubectl("apply -f -").input(&small).prints("widget.example.com/w created");
    cluster.kubectl("apply -f -").input(&small).prints("widget.example.com/w unchanged");
    cluster.kubectl("apply -f -").input(&large).prints("widget.example.com/w configured");
    expect::has(
        &cluster.object("wd w"),
        &json!({
            "metadata": {"generation": 2},
            "spec": {"size": "large", "note": null, "tags": ["b"], "color": "blue", "replicas": 1},
        }),
    );
    cluster.kubectl("apply view-last-applied wd w -o json").succeeds();

    // An object that was not applied before gets the annotation, and a word about it.
    cluster.create(&config_map("c", "k", "1"));
    cluster.kubectl("apply -f -").input(&config_map("c", "k", "2")).warns(
        "configmap/c configured",
        "Warning: resource configmaps/c is missing the kubectl.kubernetes.io/last-applied-configuration annotation which \
         is required by kubectl apply. kubectl apply should only be used on resources created declaratively by either \
         kubectl create --save-config or kubectl apply. The missing annotation will be patched automatically.",
    );
    cluster.kubectl("apply -f -").input(&(config_map("a", "k", "5") + &config_map("d", "k", "1"))).prints(
        "configmap/a unchanged
         configmap/d created",
    );
    // What the label selects and the manifest lacks is pruned.
    let kept = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: p1, labels: {set: p}}\n";
    cluster.kubectl("apply -f -").input(&(kept.to_owned() + &kept.replace("p1", "p2"))).succeeds();
    cluster
        .kubectl("apply --prune -l set=p --prune-allowlist=core/v1/ConfigMap -f -")
        .input(kept)
        .prints("configmap/p1 unchanged\nconfigmap/p2 pruned");
}

#[test]
fn containers_and_ports_merge_by_their_keys() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("apply -f -").input(WEB).prints("deployment.apps/web created");
    cluster.kubectl("apply -f -").input(WEB).prints("deployment.apps/web unchanged");
    // Another writer adds a sidecar and a port.
    let sidecar = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "server", "ports": [{"containerPort": 9090, "name": "metrics"}]},
        {"name": "sidecar", "image": "side:1"},
    ]}}}});
    cluster.kubectl(&format!("patch deploy web -p '{sidecar}'")).prints("deployment.apps/web patched");
    // A new image for one container, the other taken out.
    let changed =
        WEB.replace("nginx:1.27", "nginx:1.28").replace("      - name: proxy\n        image: envoy:1.30\n", "");
    cluster.kubectl("apply -f -").input(&changed).prints("deployment.apps/web configured");
    let names = "get deploy web -o jsonpath='{range .spec.template.spec.containers[*]}{.name}={.image} {end}'";
    cluster.kubectl(names).prints("server=nginx:1.28 sidecar=side:1");
    let object = cluster.object("deploy web");
    let ports = &object["spec"]["template"]["spec"]["containers"][0]["ports"];
    let mut ports: Vec<i64> =
        ports.as_array().into_iter().flatten().filter_map(|p| p["containerPort"].as_i64()).collect();
    ports.sort_unstable();
    assert_eq!(ports, [80, 9090], "{object}");
}

#[test]
fn refusals() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("apply -f -").input(WEB).prints("deployment.apps/web created");
    // A selector can not change.
    let other = WEB.replace("app: web", "app: other");
    cluster.kubectl("apply -f -").input(&other).fails(
        "The Deployment \"web\" is invalid: spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"other\"}}: field is immutable",
    );
    let unknown = WEB.replace("replicas: 2", "replicas: 2\n  replica: 3");
    cluster.kubectl("apply -f -").input(&unknown).fails("The request is invalid: patch: Invalid value: …");
    cluster
        .kubectl("apply -f - --validate=warn")
        .input(&unknown)
        .warns("deployment.apps/web configured", "Warning: unknown field \"spec.replica\"");
    cluster
        .kubectl("apply -f - -n nowhere")
        .input(&config_map("a", "k", "1"))
        .fails("Error from server (NotFound): error when creating \"STDIN\": namespaces \"nowhere\" not found");
}
