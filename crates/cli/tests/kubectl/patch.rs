//! `kubectl patch` in its three formats.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{WEB, WIDGETS, config_map, widget};

/// A JSON patch that does not fit the object. Kubernetes does not say why.
const NOT_APPLICABLE: &str = "The request is invalid: the server rejected our request due to an error in our request";

fn patch(cluster: &Cluster, what: &str, kind: &str, patch: Value) -> crate::kubectl::Kubectl {
    cluster.kubectl(&format!("patch {what} --type={kind} -p '{patch}'"))
}

#[test]
fn merge_and_json() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(config_map("a", "k", "1") + &widget("w", "size: small, tags: [a, b]")));
    patch(&cluster, "cm a", "merge", json!({"data": {"k": null, "l": "2"}})).prints("configmap/a patched");
    assert_eq!(cluster.object("cm a")["data"], json!({"l": "2"}));
    patch(&cluster, "cm a", "merge", json!({"data": {"l": "2"}})).prints("configmap/a patched (no change)");
    patch(&cluster, "wd w", "merge", json!({"spec": {"tags": ["c"]}})).prints("widget.example.com/w patched");
    assert_eq!(cluster.object("wd w")["spec"]["tags"], json!(["c"]), "a list is replaced");
    // A default comes back when its field is taken away.
    patch(&cluster, "wd w", "merge", json!({"spec": {"color": null}}))
        .prints("widget.example.com/w patched (no change)");

    patch(
        &cluster,
        "wd w",
        "json",
        json!([
            {"op": "test", "path": "/spec/size", "value": "small"},
            {"op": "replace", "path": "/spec/size", "value": "large"},
            {"op": "add", "path": "/spec/tags/-", "value": "d"},
            {"op": "copy", "from": "/spec/size", "path": "/spec/note"},
            {"op": "add", "path": "/metadata/labels", "value": {"a~b": "c"}},
        ]),
    )
    .fails(
        "The Widget \"w\" is invalid: metadata.labels: Invalid value: \"a~b\": name part must consist of alphanumeric …",
    );
    patch(
        &cluster,
        "wd w",
        "json",
        json!([
            {"op": "test", "path": "/spec/size", "value": "small"},
            {"op": "replace", "path": "/spec/size", "value": "large"},
            {"op": "add", "path": "/spec/tags/-", "value": "d"},
            {"op": "copy", "from": "/spec/size", "path": "/spec/note"},
            {"op": "remove", "path": "/spec/tags/0"},
        ]),
    )
    .prints("widget.example.com/w patched");
    expect::has(&cluster.object("wd w"), &json!({"spec": {"size": "large", "tags": ["d"], "note": "large"}}));
    // A test that fails leaves everything as it was.
    patch(
        &cluster,
        "wd w",
        "json",
        json!([
            {"op": "replace", "path": "/spec/size", "value": "small"},
            {"op": "test", "path": "/spec/note", "value": "small"},
        ]),
    )
    .fails(NOT_APPLICABLE);
    patch(&cluster, "wd w", "json", json!([{"op": "remove", "path": "/spec/none"}])).fails(NOT_APPLICABLE);
    expect::has(&cluster.object("wd w"), &json!({"spec": {"size": "large"}}));

    // A patch can say which version it is for.
    patch(&cluster, "cm a", "merge", json!({"metadata": {"resourceVersion": "1"}, "data": {"l": "3"}})).fails(
        "Error from server (Conflict): Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
         please apply your changes to the latest version and try again",
    );
    patch(&cluster, "cm none", "merge", json!({})).fails("Error from server (NotFound): configmaps \"none\" not found");
    // Who and where an object is can not be patched.
    patch(&cluster, "cm a", "merge", json!({"metadata": {"name": "b"}}))
        .fails("Error from server (BadRequest): the name of the object (b) does not match the name on the URL (a)");
    patch(&cluster, "cm a", "merge", json!({"metadata": {"uid": "other"}}))
        .fails("The ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable");
}

#[test]
fn strategic() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(WEB.to_owned() + &widget("w", "size: small")));
    let containers = |list: Value| json!({"spec": {"template": {"spec": {"containers": list}}}});
    let show = "get deploy web -o jsonpath='{range .spec.template.spec.containers[*]}{.name}={.image} {end}'";
    patch(&cluster, "deploy web", "strategic", containers(json!([{"name": "proxy", "image": "envoy:2"}])))
        .prints("deployment.apps/web patched");
    cluster.kubectl(show).prints("server=nginx:1.27 proxy=envoy:2");
    patch(&cluster, "deploy web", "strategic", containers(json!([{"name": "proxy", "$patch": "delete"}])))
        .prints("deployment.apps/web patched");
    cluster.kubectl(show).prints("server=nginx:1.27");
    patch(
        &cluster,
        "deploy web",
        "strategic",
        containers(json!([{"$patch": "replace"}, {"name": "only", "image": "busybox"}])),
    )
    .prints("deployment.apps/web patched");
    cluster.kubectl(show).prints("only=busybox");
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}});
    patch(&cluster, "deploy web", "strategic", json!({"spec": {"strategy": rolling}}))
        .prints("deployment.apps/web patched");
    // Replacing a strategy's kind takes the settings of the other one away.
    patch(
        &cluster,
        "deploy web",
        "strategic",
        json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
    )
    .prints("deployment.apps/web patched");
    assert_eq!(cluster.object("deploy web")["spec"]["strategy"], json!({"type": "Recreate"}));
    patch(&cluster, "deploy web", "strategic", containers(json!([{"image": "nameless"}])))
        .fails("Error from server: map: map[image:nameless] does not contain declared merge key: name");
    // Custom resources have no merge keys to go by.
    patch(&cluster, "wd w", "strategic", json!({"spec": {"size": "large"}})).fails(
        "error: application/strategic-merge-patch+json is not supported by example.com/v1, Kind=Widget: the body of the \
         request was in an unknown format - accepted media types include: application/json-patch+json, \
         application/merge-patch+json, application/apply-patch+yaml",
    );
}

#[test]
fn set_image() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WEB);
    cluster.kubectl("set image deploy/web server=nginx:2 proxy=envoy:2").prints("deployment.apps/web image updated");
    let show = "get deploy web -o jsonpath='{range .spec.template.spec.containers[*]}{.name}={.image} {end}{.metadata.generation}'";
    cluster.kubectl(show).prints("server=nginx:2 proxy=envoy:2 2");
    // The same again is no change.
    cluster.kubectl("set image deploy/web server=nginx:2").prints("");
    cluster.kubectl("set image deploy/web none=nginx:2").fails("error: unable to find container named \"none\"");
    cluster.kubectl("set env deploy/web -c server A=1 B=2").prints("deployment.apps/web env updated");
    cluster.kubectl("set env deploy/web -c server A- C=3").prints("deployment.apps/web env updated");
    let object = cluster.object("deploy web");
    let env = &object["spec"]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(env, &json!([{"name": "B", "value": "2"}, {"name": "C", "value": "3"}]));
    cluster
        .kubectl("set resources deploy/web -c proxy --limits=cpu=200m")
        .prints("deployment.apps/web resource requirements updated");
}
