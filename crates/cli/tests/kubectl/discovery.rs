//! What the server says about itself: versions, resources, health, documents.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{REGIONS, WIDGETS};

#[test]
fn versions_and_resources() {
    let Some(cluster) = Cluster::start() else { return };
    let version = cluster.kubectl("version -o json").json();
    assert_eq!(version["serverVersion"]["major"], "1");
    assert!(version["serverVersion"]["gitVersion"].as_str().is_some_and(|text| text.starts_with("v1.")), "{version}");

    let versions = cluster.kubectl("api-versions").text();
    for expect in ["apiextensions.k8s.io/v1", "apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1", "v1"] {
        assert!(versions.lines().any(|line| line == expect), "{expect} is not in\n{versions}");
    }
    cluster.kubectl("api-resources --api-group=apps -o wide").prints(
        "NAME                 SHORTNAMES  APIVERSION  NAMESPACED  KIND                VERBS  CATEGORIES
         controllerrevisions              apps/v1     true        ControllerRevision  create,delete,deletecollection,get,list,patch,update,watch
         daemonsets           ds          apps/v1     true        DaemonSet           create,delete,deletecollection,get,list,patch,update,watch  all
         deployments          deploy      apps/v1     true        Deployment          create,delete,deletecollection,get,list,patch,update,watch  all
         replicasets          rs          apps/v1     true        ReplicaSet          create,delete,deletecollection,get,list,patch,update,watch  all
         statefulsets         sts         apps/v1     true        StatefulSet         create,delete,deletecollection,get,list,patch,update,watch  all",
    );

    // A definition is served the moment it is created, to a client that has looked before.
    cluster.create(&format!("{WIDGETS}{REGIONS}"));
    cluster.kubectl("api-resources --api-group=example.com --sort-by=name").prints(
        "NAME     SHORTNAMES  APIVERSION      NAMESPACED  KIND
         regions  rg          example.com/v1  false       Region
         widgets  wd          example.com/v1  true        Widget",
    );
    cluster.kubectl("api-resources --categories=gear -o name").prints("widgets.example.com");
    cluster.kubectl("api-resources --namespaced=false --api-group=example.com -o name").prints("regions.example.com");
    let versions = cluster.kubectl("api-versions").text();
    for expect in ["example.com/v1", "example.com/v1beta1"] {
        assert!(versions.lines().any(|line| line == expect), "{expect} is not in\n{versions}");
    }
    cluster.kubectl("get gadgets").fails("error: the server doesn't have a resource type \"gadgets\"");
}

#[test]
fn documents() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("get --raw /healthz").prints("ok");
    cluster.kubectl("get --raw /livez").prints("ok");
    let verbose = cluster.kubectl("get --raw /readyz?verbose").text();
    assert!(verbose.starts_with("[+]ping ok\n") && verbose.ends_with("readyz check passed\n"), "{verbose}");
    expect::has(&cluster.kubectl("get --raw /version").json(), &json!({"major": "1"}));
    cluster
        .kubectl("get --raw /nowhere")
        .fails("Error from server (NotFound): the server could not find the requested resource");
    let list = cluster.kubectl("get --raw /api/v1/namespaces?limit=1").json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
    expect::has(&list, &json!({"kind": "NamespaceList", "metadata": {"remainingItemCount": 3}}));

    cluster.create(WIDGETS);
    let index = cluster.kubectl("get --raw /openapi/v3").json();
    for group in ["api/v1", "apis/apps/v1", "apis/example.com/v1", "apis/example.com/v1beta1"] {
        let url = index["paths"][group]["serverRelativeURL"].as_str().unwrap_or_default().to_owned();
        assert!(url.starts_with(&format!("/openapi/v3/{group}?hash=")), "{group}: {url}");
    }
    let document = cluster.kubectl("get --raw /openapi/v3/apis/example.com/v1").json();
    let properties = &document["components"]["schemas"]["com.example.v1.Widget"]["properties"];
    expect::has(
        &properties["spec"]["properties"],
        &json!({
            "size": {"type": "string", "enum": ["small", "medium", "large"]},
            "replicas": {"minimum": 0, "maximum": 10, "default": 1},
            "parts": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        }),
    );
    assert!(document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/scale"].is_object());
}

#[test]
fn explain() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.kubectl("explain widget.spec.size").prints(
        "GROUP: example.com
         KIND: Widget
         VERSION: v1
         FIELD: size <string>
         ENUM:
           small
           medium
           large
         DESCRIPTION:
           How big it is.",
    );
    cluster.kubectl("explain wd.spec").prints(
        "GROUP: example.com
         KIND: Widget
         VERSION: v1
         FIELD: spec <Object>
         DESCRIPTION:
           What is wanted.
         FIELDS:
           color <string>
             <no description>
           note <string>
             <no description>
           parts <[]Object>
             <no description>
           replicas <integer>
             <no description>
           size <string> -required-
           enum: small, medium, large
             How big it is.
           tags <[]string>
             <no description>",
    );
    cluster.kubectl("explain widgets --recursive --api-version=example.com/v1beta1").prints(
        "GROUP: example.com
         KIND: Widget
         VERSION: v1beta1
         …",
    );
    cluster.kubectl("explain deployment.spec.replicas").prints(
        "GROUP: apps
         KIND: Deployment
         VERSION: v1
         FIELD: replicas <integer>
         DESCRIPTION:
           Number of desired pods. This is a pointer to distinguish between explicit
           zero and not specified. Defaults to 1.",
    );
    cluster.kubectl("explain deployment.spec.nothing").ends(
        1,
        "GROUP: apps
         KIND: Deployment
         VERSION: v1",
        "error: field \"nothing\" does not exist",
    );
}
