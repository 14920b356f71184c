//! Definitions: several versions, both scopes, changes while objects exist, what is wrong with them, and their end.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{REGIONS, WIDGETS, widget};

#[test]
fn versions() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let old = widget("old", "size: small").replace("example.com/v1\n", "example.com/v1beta1\n");
    cluster.kubectl("create -f -").input(&old).warns(
        "widget.example.com/old created",
        "Warning: example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget",
    );
    cluster.create(&widget("new", "size: large"));
    // Every object is there in every version.
    cluster
        .kubectl("get widgets.v1.example.com -o jsonpath={.items[*].apiVersion}")
        .prints("example.com/v1 example.com/v1");
    cluster.kubectl("get widgets.v1beta1.example.com -o jsonpath={.items[*].apiVersion}").warns(
        "example.com/v1beta1 example.com/v1beta1",
        "Warning: example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget",
    );
    expect::has(
        &cluster.object("crd widgets.example.com"),
        &json!({"status": {
            "storedVersions": ["v1"],
            "acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                "shortNames": ["wd"], "categories": ["all", "gear"]},
        }}),
    );
    // A version that is no longer served is gone at once, and its objects stay.
    let unserved = WIDGETS.replace("name: v1beta1\n    served: true", "name: v1beta1\n    served: false");
    cluster
        .kubectl("replace -f -")
        .input(&unserved)
        .prints("customresourcedefinition.apiextensions.k8s.io/widgets.example.com replaced");
    cluster.kubectl("get widgets.v1beta1.example.com").fails(
        "Error from server (NotFound): Unable to list \"example.com/v1beta1, Resource=widgets\": the server could not find \
         the requested resource (get widgets.example.com)",
    );
    cluster.kubectl("get wd -o name").prints("widget.example.com/new\nwidget.example.com/old");
    // A new field, a new column, a new default: at once, also for objects that exist.
    let wider = WIDGETS
        .replace("note: {type: string}", "note: {type: string, default: none}")
        .replace("priority: 1}", "}\n    - {name: Note, type: string, jsonPath: .spec.note}");
    cluster.kubectl("replace -f -").input(&wider).succeeds();
    cluster.kubectl("get wd new").prints(
        "NAME  SIZE   REPLICAS  PHASE  COLOR  NOTE  AGE
         new   large  1                blue   none  *s",
    );
}

#[test]
fn scopes() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(&format!("{WIDGETS}{REGIONS}"));
    cluster.create(
        &(widget("w", "size: small") + "---\napiVersion: example.com/v1\nkind: Region\nmetadata: {name: north}\n"),
    );
    cluster.kubectl("get rg north -o jsonpath={.metadata.namespace}").prints("");
    cluster.kubectl("get rg -n kube-system -o name").prints("region.example.com/north");
    cluster.kubectl("get wd -n kube-system").warns("", "No resources found in kube-system namespace.");
    cluster
        .kubectl("create -n kube-system -f -")
        .input(&widget("w", "size: large"))
        .prints("widget.example.com/w created");
    cluster.kubectl("get wd -A --no-headers").prints("default w small 1 *s\nkube-system w large 1 *s");
    cluster
        .kubectl("get --raw /apis/example.com/v1/namespaces/default/regions")
        .fails("Error from server (NotFound): the server could not find the requested resource");
}

#[test]
fn what_is_wrong_with_a_definition() {
    let Some(cluster) = Cluster::start() else { return };
    let check = |from: &str, to: &str, why: &str| {
        assert!(REGIONS.contains(from), "{from}");
        cluster.kubectl("create -f -").input(&REGIONS.replace(from, to)).fails(why);
    };
    check(
        "metadata: {name: regions.example.com}",
        "metadata: {name: other.example.com}",
        "The CustomResourceDefinition \"other.example.com\" is invalid: metadata.name: Invalid value: \"other.example.com\": \
         must be spec.names.plural+\".\"+spec.group",
    );
    check(
        "storage: true",
        "storage: false",
        "The CustomResourceDefinition \"regions.example.com\" is invalid:
         * spec.versions: Invalid value: …
         * status.storedVersions: Invalid value: null: must have at least one stored version",
    );
    check(
        "type: object\n        properties:\n          spec: {type: object,",
        "type: object\n        properties:\n          spec: {",
        "The CustomResourceDefinition \"regions.example.com\" is invalid: \
         spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
    );
    check(
        "scope: Cluster",
        "scope: Galaxy",
        "The CustomResourceDefinition \"regions.example.com\" is invalid: spec.scope: Unsupported value: \"Galaxy\": supported \
         values: \"Cluster\", \"Namespaced\"",
    );
    // A name that another definition has is not accepted, which is said in the status.
    cluster.create(REGIONS);
    let rival =
        REGIONS.replace("regions", "areas").replace("singular: region", "singular: area").replace("Region", "Area");
    cluster.create(&rival);
    let object = cluster.object("crd areas.example.com");
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = |kind: &str| conditions.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default();
    expect::has(
        &condition("NamesAccepted"),
        &json!({"status": "False", "reason": "ShortNamesConflict", "message": "\"rg\" is already in use"}),
    );
    expect::has(&condition("Established"), &json!({"status": "False", "reason": "NotAccepted"}));
}

#[test]
fn its_objects_go_with_it() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let held = widget("held", "size: small").replace("{name: held}", "{name: held, finalizers: [example.com/hold]}");
    cluster.create(&(widget("w", "size: small") + &held));
    let mut watch = cluster.kubectl("get wd -w --output-watch-events --no-headers").follow();
    watch.next("ADDED held small 1 *s");
    watch.next("ADDED w small 1 *s");
    cluster
        .kubectl("delete crd widgets.example.com --wait=false")
        .prints("customresourcedefinition.apiextensions.k8s.io \"widgets.example.com\" deleted");
    watch.next("MODIFIED held small 1 *s");
    watch.next("DELETED w small 1 *s");
    // It waits for the one that is held, and takes no new ones.
    cluster.kubectl("get wd -o name").prints("widget.example.com/held");
    cluster.kubectl("create -f -").input(&widget("late", "size: small")).fails(
        "Error from server (MethodNotAllowed): error when creating \"STDIN\": create not allowed while custom resource \
         definition is terminating",
    );
    cluster
        .kubectl("patch wd held --type=merge -p '{\"metadata\":{\"finalizers\":[]}}'")
        .prints("widget.example.com/held patched");
    cluster.kubectl("wait --for=delete crd/widgets.example.com --timeout=30s").succeeds();
    cluster.kubectl("api-resources --api-group=example.com").prints("NAME SHORTNAMES APIVERSION NAMESPACED KIND");
    cluster.kubectl("get wd").fails("error: the server doesn't have a resource type \"wd\"");
    // The same name can come again, and finds nothing of the old.
    cluster.create(WIDGETS);
    cluster.kubectl("get wd").warns("", "No resources found in default namespace.");
}
